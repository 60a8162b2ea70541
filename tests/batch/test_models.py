"""Lines through a pretrained model: together, each as by itself but for the last bits of float32."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import small_gpt2
from tests.shell import attn, here
from tests.thorough import like_cases, takes_long

pytestmark = pytest.mark.usefixtures("tokenizers")


def lines(n: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcd"), size)) for size in draw.integers(1, 9, n)]


@pytest.fixture
def folder(at):
    Path("lines.txt").write_text("".join(f"{line}\n" for line in lines(40)))
    return small_gpt2(at / "gpt2")


@pytest.mark.parametrize(
    "options",
    [
        *(("--fields", "all"), ("--fields", "all", "--layer", "0", "--head", "mean")),
        ("--fields", "query_tokens,weights,summary", "-t", "0.5", "--mask", "none"),
        *(("--fields", "weights", "--head", "rollout"), ("--fields", "weights", "--layer", "all")),
        ("--fields", "all", "-q", "a", "--keep-going"),
    ],
    ids=" ".join,
)
@like_cases
def test_a_line_among_others_has_the_numbers_that_it_has_by_itself(options, folder):
    got = here("batch", "lines.txt", "-m", folder, *options)
    found = [json.loads(line) for line in got.out.splitlines()]
    assert len(found) == 40
    alone = [option for option in options if option != "--keep-going"]
    for line, record in zip(lines(40), found, strict=True):
        by_itself = here("self", line, "-m", folder, "-f", "jsonl", *alone)
        if by_itself.code:
            assert record["error"]["code"] == by_itself.code
        else:
            assert_alike({**record}, json.loads(by_itself.out), FLOAT32)


@takes_long  # what it holds, test_same_numbers holds of other models
def test_any_number_of_processes_and_parts_that_are_continued_hold_the_same_bytes(folder):
    Path("lines.txt").write_text("".join(f"{line}\n" for line in lines(600)))
    one = attn("batch", "lines.txt", "-m", folder, "--workers", "1")
    assert one.code == 0 and one.out.count("\n") == 600
    assert attn("batch", "lines.txt", "-m", folder, "--workers", "3") == one


def test_lines_through_a_pipe_are_computed_one_by_one(folder):
    """However they arrive, so that their bytes do not depend on it."""
    text = Path("lines.txt").read_text()
    piped = attn("batch", "-m", folder, input=text)
    for line, record in zip(lines(40), piped.out.splitlines(), strict=True):
        fields = ("--fields", "query_tokens,key_tokens,weights,summary")
        assert json.loads(record) == json.loads(here("self", line, "-m", folder, "-f", "jsonl", *fields).out)
