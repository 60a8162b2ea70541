"""Layers, rollouts, pieces and next words: every format has them, and what they do not go with is refused."""

import json
import shlex

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.errors import UsageError
from tests.models.checkpoints.by_hand import small_bert, small_gpt2
from tests.pipeline.records import checked
from tests.shell import here

TEXT = "'the cats walking home' -m {bert}"
CASES = [
    ("show {one} --head rollout", "goes through layers, and"),
    ("show {cross} --head rollout", "needs self-attention"),
    ("show {three} --context-tokens 'w x y z' --head rollout", "needs self-attention"),
    ("show {one} --layer all", "needs several layers"),
    ("show {one} --layer mean", "needs several layers"),
    ("self 'a b' -m {gpt2} --next -1", "--next"),
]


@pytest.fixture(scope="module")
def files(tokenizers, tmp_path_factory):
    """Small models and files of weights by the names that commands have for them."""
    tmp_path = tmp_path_factory.mktemp("files")
    weights = np.full((3, 1, 4, 4), 0.25)
    np.savez(tmp_path / "three.npz", attentions=weights, tokens=["a", "b", "c", "d"])
    np.savez(tmp_path / "one.npz", attentions=weights[0], tokens=["a", "b", "c", "d"])
    np.save(tmp_path / "cross.npy", np.full((2, 1, 2, 4), 0.25))
    saved = {name: tmp_path / f"{name}.npz" for name in ("one", "three")}
    models = {"gpt2": small_gpt2(tmp_path / "gpt2"), "bert": small_bert(tmp_path / "bert")}
    return saved | models | {"cross": tmp_path / "cross.npy"}


@pytest.mark.parametrize(("command", "says"), CASES)
def test_what_does_not_go_together_is_refused_in_one_line(command, says, files):
    ran = here(*shlex.split(command.format(**files)))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1) and says in ran.err


def test_from_python_too():
    with pytest.raises(UsageError, match="layer all"):
        trace_self("a b", Settings(embedding="random", layer="all"))
    with pytest.raises(UsageError, match="needs a model"):
        trace_self("a b", Settings(next=1))


@pytest.mark.parametrize(
    "format", ["table", "bars", "json", "csv", "tsv", "markdown", "latex", "html", "svg", "npy"]
)
@pytest.mark.parametrize(
    "command",
    [
        "self dabca -m {gpt2}",
        "self dabca -m {gpt2} --layer all",
        "self dabca -m {gpt2} --layer all --head all",
        "self dabca -m {gpt2} --layer all --head mean",
        "self dabca -m {gpt2} --head rollout",
        f"self {TEXT} --join-pieces --head all",
    ],
)
def test_every_format_has_them(command, format, files, at):
    ran = here(*shlex.split(command.format(**files)), "-f", format, "-o", "out")
    assert ran.code == 0, ran.err
    made = (at / "out").read_bytes()
    assert len(made) > 100 and (b"nan" not in made or format == "npy")
    if format == "json":
        checked(json.loads(made))
    if "join" in command and format != "npy":
        assert b"walking" in made and b"##ing" not in made
