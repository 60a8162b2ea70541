"""Attention sinks, with which no row may be said to sum to one, and the norms of the vectors weight · v W_o."""

import json
import math
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.by_hand import gpt_oss, saved, small_bert, small_gpt_oss
from tests.models.checkpoints.test_parity import same_as_by_vectors
from tests.pipeline.records import record, rolled_up_to
from tests.shell import refused, rows, told
from tests.small_models import trace_checkpoint

TEXT, CAT = "dabca", "the cat sat on the mat"


@pytest.fixture(scope="module")
def folder(tokenizers, tmp_path_factory):
    return small_gpt_oss(tmp_path_factory.mktemp("models") / "gpt_oss")


def sink_of(layer, head):
    return float(gpt_oss()[f"layers.{layer}.self_attn.sinks"][head])


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_weight_is_its_exp_over_the_sum_of_all_exps_and_that_of_the_sink(temperature, folder):
    found = record("self", TEXT, "-m", folder, "--head", "1", "-t", str(temperature), "--steps")
    (head,), s = found["heads"], sink_of(1, 1)
    assert head["sink_score"] == pytest.approx(s)
    for row, weights, taken in zip(head["masked_scores"], found["weights"], found["sink"], strict=True):
        exps = [0 if score is None else math.exp(score) for score in row]
        total = sum(exps) + math.exp(s / temperature)
        np.testing.assert_allclose(weights, np.array(exps) / total, atol=1e-6)
        assert taken == pytest.approx(math.exp(s / temperature) / total, abs=1e-6) and 0 < taken < 1
    np.testing.assert_allclose(found["output"], np.array(found["weights"]) @ head["v"], atol=1e-5)
    assert {one["temperature_95"] for one in found["diagnostics"]} == {None}  # the rest goes to the sink


def test_no_screen_says_that_rows_sum_to_one(folder):
    commands = (
        "self --steps|explain|explain --steps|self --head all|masked --next 0|self -f bars|self --head mean|"
        "explain --mask window:1|masked --show mask"
    )
    for command, *more in map(str.split, commands.split("|")):
        screen = " ".join(told(command, TEXT, "-m", folder, *more).split())
        said = re.sub(r"rows sum to 1 with the sink", "", screen)
        assert not re.search(r"sums? to (one|1)\b", said), command
        assert "sink" in screen, command


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("more", [{}, {"temperature": 0.5}, {"every_head": True}])
def test_a_script_computes_with_the_sink(framework, more, folder, capsys):
    from attn_cli.render.code import script

    pytest.importorskip(framework)
    trace = trace_checkpoint("self", TEXT, None, Settings(layer=0, head="1", **more), folder)
    names = {}
    exec(script(trace, framework), names)
    np.testing.assert_allclose(np.asarray(names["weights"]), trace.weights, atol=1e-9)
    np.testing.assert_allclose(np.asarray(names["output"]), trace.output, atol=1e-9)


def test_a_record_of_it_is_shown_and_computed_with_its_sink(folder, tmp_path):
    file = str(tmp_path / "record.json")
    told("self", TEXT, "-m", folder, "--head", "all", "--steps", "-f", "json", "-o", file)
    own = record("self", TEXT, "-m", folder, "--head", "all", "--steps")
    for command in ("show", "compute"):
        again = record(command, file, "--head", "all", "--steps")
        np.testing.assert_allclose(again["weights"], own["weights"], atol=1e-9)
        np.testing.assert_allclose(again["sink"], own["sink"], atol=1e-9)
        assert [one["sink_score"] for one in again["heads"]] == [one["sink_score"] for one in own["heads"]]
    assert "sink" in refused("check", file, "--expect", file, code=65)
    screen = told("show", file, "--head", "1")
    assert "The sink takes" in screen and "shown as they are" not in screen


def test_long_texts_lose_as_much_to_the_sink(folder):
    """Beyond 128 x 128 scores others are computed by the fast way, which knows no sink."""
    trace = trace_checkpoint("self", TEXT * 40, None, Settings(layer=0, head="1"), folder)
    exps = np.exp(np.where(trace.mask, trace.shown.masked_scores, -np.inf))
    total = exps.sum(axis=1, keepdims=True) + math.exp(sink_of(0, 1))
    np.testing.assert_allclose(trace.weights, exps / total, atol=1e-9)


@pytest.mark.parametrize(("sink", "share"), [("1e+300", 1), ("-1e+300", 0)])
def test_a_sink_beyond_the_dtype_is_refused(sink, share, tmp_path):
    file = tmp_path / "given.json"
    file.write_text(f'{{"Q": [[1, 0]], "K": [[1, 0]], "V": [[1, 0]], "sinks": [{sink}]}}')
    said = refused("compute", str(file), "--dtype", "float32", code=65)
    assert f"sink's score, {sink}, is not a finite number in float32" in said
    assert record("compute", str(file))["sink"] == [share]


def test_the_formula_of_a_rollout_gives_its_numbers(folder):
    means = (record("self", TEXT, "-m", folder, "--head", "mean", "--layer", n)["weights"] for n in "01")
    rolled = ("self", TEXT, "-m", folder, "--head", "rollout")
    expected = rolled_up_to(np.array([*means])[:, np.newaxis], 1)
    np.testing.assert_allclose(record(*rolled)["weights"], expected, atol=1e-9)
    screen = " ".join(told(*rolled).split())
    assert "weights = A1 A0, each A = (mean of the heads + I) / 2, rows divided by their sums" in screen


def test_one_row_of_a_condensed_text_is_named_for_its_sink_and_top_keeps_all_shares(folder):
    asked = ("-m", folder, "--layer", "0", "--head", "0")
    screen = " ".join(told("self", TEXT * 600, *asked).split())
    share, token, place = re.search(r'sink takes ([\d.]+) of the row of "(\w)" \((\d+)\)', screen).groups()
    before = (TEXT * 600)[: int(place) + 1]  # what that row can see
    both = ("--top", "2"), ("--fields", "sink")
    top, whole = (json.loads(told("self", before, *asked, *more, "-f", "json")) for more in both)
    assert before[-1] == token and float(share) == pytest.approx(whole["sink"][-1], abs=1e-3)
    assert top["weights"] is None and top["sink"] == whole["sink"]


def test_a_script_of_several_heads_is_refused_for_their_sinks(folder):
    said = refused("self", TEXT, "-m", folder, "--head", "all", "-f", "code:numpy")
    assert "no sink; these heads have sinks." in said and "differ" not in said


@pytest.mark.parametrize("kind", ["bert", "gpt2", "gemma2", "gpt_oss"])
def test_the_vectors_sum_to_what_w_o_makes_and_their_lengths_are_the_norms(kind, tmp_path):
    if kind == "gemma2":
        folder = saved(tmp_path, by_hand.GEMMA2, by_hand.gemma2())
    else:
        folder = getattr(by_hand, f"small_{kind}")(tmp_path)
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
    table = [[*row.values()][1:] for row in rows(*of, "--measure", "norm")]
    np.testing.assert_allclose(np.array(table, float), found["norms"])
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
