"""What comes of the weights: the vectors weight · v W_o, whose lengths --measure norm shows, sum to what W_o makes."""

import csv
import io
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.by_hand import GEMMA2, gemma2, saved, small_bert, small_gpt2, small_gpt_oss
from tests.models.checkpoints.norms import same_as_by_vectors
from tests.pipeline.records import record
from tests.shell import refused, told

CAT = "the cat sat on the mat"


@pytest.mark.parametrize("kind", ["bert", "gpt2", "gemma2", "gpt_oss"])
def test_the_vectors_sum_to_what_w_o_makes_and_their_lengths_are_the_norms(kind, tmp_path):
    makers = {"bert": small_bert, "gpt2": small_gpt2, "gpt_oss": small_gpt_oss}
    folder = saved(tmp_path, GEMMA2, gemma2()) if kind == "gemma2" else makers[kind](tmp_path)
    with Checkpoint(str(folder)) as checkpoint:
        run = checkpoint.run(texts([[3, 4, 5, 1, 2, 3]]))
        assert [same_as_by_vectors(run, steps, kind) for steps in run.steps()]


@pytest.mark.usefixtures("tokenizers")
def test_the_json_has_norms_beside_the_weights_and_the_page_of_numbers_has_them_in_their_place(tmp_path):
    folder = small_bert(tmp_path)
    of = ("self", "the cat walk", "-m", folder, "--layer", "1")
    plain, found = record(*of, "--head", "all", "--steps"), record(*of, "--head", "all", "--measure", "norm")
    assert plain["norms"] is None and plain["measure"] == "weight" and plain["heads"][0]["norms"] is None
    assert found["weights"] == plain["weights"] and found["norms"] == found["heads"][0]["norms"]
    W_o = np.array(plain["W_o"])
    for n, (head, steps) in enumerate(zip(found["heads"], plain["heads"], strict=True)):
        made = np.array(plain["x_key"]) @ np.array(steps["W_v"]) + np.array(steps["b_v"])
        parts = np.array(steps["weights"])[..., None] * (made @ W_o[4 * n : 4 * n + 4])
        np.testing.assert_allclose(head["norms"], np.linalg.norm(parts, axis=-1), rtol=1e-5)
    mean = record(*of, "--head", "mean", "--measure", "norm")
    np.testing.assert_allclose(mean["norms"], np.mean([head["norms"] for head in found["heads"]], axis=0))
    table = [*csv.reader(io.StringIO(told(*of, "--measure", "norm", "-f", "csv")))]
    np.testing.assert_allclose([list(map(float, row[1:])) for row in table[1:]], found["norms"])
    assert told(*of, "--measure", "norm", "-f", "csv", "--tidy").startswith("query,key,norm")


def test_the_learned_models_of_our_own_have_norms_too():
    trace = trace_self(CAT, Settings(measure="norm"))
    lengths = np.linalg.norm(trace.shown.v, axis=1)
    np.testing.assert_allclose(trace.shown.norms, trace.weights * lengths, rtol=1e-9)
    trace = trace_masked(CAT, Settings(measure="norm", head="all", projection="language", next=0))
    heads = [*zip(trace.heads, np.split(trace.W_o, len(trace.heads)), strict=True)]
    made = sum((head.weights[..., None] * (head.v @ W)).sum(axis=1) for head, W in heads)
    np.testing.assert_allclose(made + trace.b_o, trace.layer_output, rtol=1e-9, atol=1e-9)
    for head, W in heads:
        parts = head.weights[..., None] * (head.v @ W)
        np.testing.assert_allclose(head.norms, np.linalg.norm(parts, axis=-1), rtol=1e-9, atol=1e-12)


def test_no_screen_of_norms_has_sums_or_says_that_rows_have_one():
    for more in ("", "--head all", "-q sat", "-f bars", "-f markdown", "-f latex", "-f html"):
        said = told("self", CAT, "--measure", "norm", "--width", "80", *more.split())
        said = re.sub("<style>.*?</style>", "", said, flags=re.S)
        assert "norm" in said and not re.search(r"sums? to|\bsum\b", said), more
    assert "head by head" in refused("masked", CAT, "--measure", "norm-residual", "-f", "page")


@pytest.mark.usefixtures("tokenizers")
def test_norms_of_joined_and_hidden_tokens_are_sums_and_means_of_norms_that_may_be_above_one(tmp_path):
    folder = small_bert(tmp_path)
    of = ("self", "walking cats", "-m", folder, "--measure", "norm", "--head", "1")
    whole, joined = record(*of), record(*of, "--join-pieces", "--hide-special")
    assert joined["weights"] != joined["norms"] and joined["measure"] == "norm"
    norms, kept = np.array(whole["norms"]), joined["key_tokens"]
    assert kept == ["walking", "cats"]
    size = (len(norms) - 2) // len(kept)
    expected = norms[1:-1, 1:-1].reshape(len(kept), size, len(kept), size).sum(axis=3).mean(axis=1)
    np.testing.assert_allclose(joined["norms"], expected, rtol=1e-5)
    assert expected.max() > 1
    whole = record(*of[:-2], "--measure", "norm-residual")
    hidden = record(*of[:-2], "--measure", "norm-residual", "--hide-special")
    np.testing.assert_allclose(hidden["norms"], np.array(whole["norms"])[1:-1, 1:-1], rtol=1e-5)
    assert whole["head"] == "mean" and [one["norms"] for one in whole["heads"]] == [None, None]
