"""--layer all and --head rollout (Abnar and Zuidema 2020): the layers of a model, or of a file, in one trace."""

import csv
import io

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError
from attn_cli.pipeline import record as all_layers
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2
from tests.models.checkpoints.test_parity import CASES, PAIRS
from tests.models.checkpoints.test_run import by_loops
from tests.pipeline import records
from tests.pipeline.records import attentions, model_of, record
from tests.shell import here

TEXT = "dabca"


@pytest.fixture
def folder(tokenizers, tmp_path):
    return small_gpt2(tmp_path / "gpt2")


def test_every_head_of_every_layer_is_in_the_trace(folder):
    expected, _ = by_loops(gpt2(), [3, 0, 1, 2, 0])
    trace = trace_self(TEXT, Settings(model=folder, layer="all", head="all"))
    assert [(head.layer, head.name) for head in trace.heads] == [(0, "0"), (0, "1"), (1, "0"), (1, "1")]
    found = np.array([head.weights for head in trace.heads]).reshape(2, 2, 5, 5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert trace.shown is trace.heads[2] and trace.projection.layer == 1  # the last layer's main head
    for head in ("0", "1", "mean"):
        trace = trace_masked(TEXT, Settings(model=folder, layer="all", head=head, next=0))
        assert [(one.layer, one.name) for one in trace.heads] == [(0, head), (1, head)]
        for layer, one in enumerate(trace.heads):
            alone = trace_self(TEXT, Settings(model=folder, layer=layer, head=head))
            np.testing.assert_allclose(one.weights, alone.weights, atol=FLOAT32)


def test_the_json_names_each_head_s_layer(folder):
    found = record("self", TEXT, "-m", folder, "--layer", "all", "--head", "all", "--steps")
    assert [(one["layer"], one["name"]) for one in found["heads"]] == [(0, "0"), (0, "1"), (1, "0"), (1, "1")]
    assert all(one["scores"] is not None and one["q"] is not None for one in found["heads"])
    one = record("self", TEXT, "-m", folder, "--layer", "0", "--head", "all")
    assert [head["layer"] for head in one["heads"]] == [0, 0]
    assert_alike(one["heads"][1]["weights"], found["heads"][1]["weights"], FLOAT32)
    mean = record("explain", TEXT, "-m", folder, "--layer", "all", "--head", "mean")
    assert [(head["layer"], head["name"]) for head in mean["heads"]] == [(0, "mean"), (1, "mean")]
    plain = record("self", "a b", "-e", "random", "--heads", "2", "--head", "all")
    assert [head["layer"] for head in plain["heads"]] == [None, None]


def test_pieces_are_joined_in_every_layer(tokenizers, tmp_path):
    bert = small_bert(tmp_path / "bert")
    shaped = {"model": bert, "join_pieces": True, "hide_special": True}
    trace = trace_self("the cats walking", Settings(**shaped, layer="all", head="all"))
    assert trace.query_tokens == ("the", "cats", "walking")
    for head in trace.heads:
        alone = trace_self("the cats walking", Settings(**shaped, layer=head.layer, head=head.name))
        np.testing.assert_allclose(head.weights, alone.weights, atol=FLOAT32)
    hidden = [note for note in trace.notes if "Hidden" in note]
    assert [note[:8] for note in hidden] == ["Layer 0:", "Layer 1:"]
    assert sum("Word pieces are joined" in note for note in trace.notes) == 1


def test_what_the_model_says_next_does_not_change(folder):
    one = trace_masked(TEXT, Settings(model=folder))
    every = trace_masked(TEXT, Settings(model=folder, layer="all"))
    assert_alike(every.next_words, one.next_words, FLOAT32)


def test_a_note_on_next_words_is_of_the_model_and_not_of_its_last_layer(tokenizers, tmp_path):
    bert = small_bert(tmp_path / "bert")
    trace = trace_self("the cats walking", Settings(model=bert, layer="all", next=3))
    assert [note for note in trace.notes if "it fills gaps" in note and note.startswith("--next:")]


@pytest.mark.parametrize("name", ["gpt_neo", "modernbert"])
def test_layers_whose_masks_differ_keep_their_own(name, tokenizers, transformers, tmp_path):
    expected = attentions(model_of(CASES[name], transformers, tmp_path))
    trace = trace_self(records.TEXT, Settings(model=str(tmp_path), layer="all", head="all"))
    for head in trace.heads:
        weights = expected[head.layer][int(head.name)]
        np.testing.assert_allclose(head.weights, weights, atol=1e-5)
        np.testing.assert_array_equal(trace.mask_of(head), weights > 0)
    assert any("masks differ" in note for note in trace.notes)
    shown = here("self", records.TEXT, "-m", str(tmp_path), "--layer", "all", "--precision", "2")
    first, second = shown.out.split("Layer 1, head 0")
    assert first.count("–") != second.split("Layer 2")[0].count("–")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_screen_names_layers_and_fits(width, folder):
    shown = here("self", TEXT, "-m", folder, "--layer", "all", "--head", "all", "--width", str(width)).out
    assert all(name in shown for name in ("0.0", "0.1", "1.0", "1.1")) and "layers 0 to 1" in " ".join(
        shown.split()
    )
    assert max(map(len, shown.splitlines())) <= width
    numbers = here("self", TEXT, "-m", folder, "--layer", "all", "--precision", "3").out
    assert "Layer 0, head 0" in numbers and "Layer 1, head 0" in numbers


def test_tables_and_arrays_have_all_layers(folder, at):
    options = ("-m", folder, "--layer", "all", "--head", "all")
    rows = list(csv.DictReader(io.StringIO(here("self", TEXT, *options, "-f", "csv", "--tidy").out)))
    places = {(row["layer"], row["head"]) for row in rows}
    assert places == {("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")}
    assert here("self", TEXT, *options, "-o", "all.npy").code == 0
    trace = trace_self(TEXT, Settings(model=folder, layer="all", head="all"))
    expected = np.array([head.weights for head in trace.heads]).reshape(2, 2, 5, 5)
    np.testing.assert_allclose(np.load(at / "all.npy"), expected, atol=FLOAT32)


def test_a_learned_model_of_several_layers_has_them_too():
    words = "The cat sat on the mat"
    trace = trace_self(words, Settings(projection="roles-deep", layer="all", head="all"))
    layers = sorted({head.layer for head in trace.heads})
    assert layers == list(range(trace.learned.layers)) and trace.projection.layer == layers[-1]
    for layer in layers:
        alone = trace_self(words, Settings(projection="roles-deep", layer=layer, head="all"))
        of_layer = [head for head in trace.heads if head.layer == layer]
        assert [head.name for head in of_layer] == [head.name for head in alone.heads]
        np.testing.assert_allclose(of_layer[0].weights, alone.heads[0].weights, rtol=1e-12)
    ran = here("self", words, "-p", "roles-deep", "--layer", "all", "--head", "mean")
    assert ran.code == 0 and "0.mean" in ran.out


def test_two_layers_are_compared(folder):
    assert record("compare", TEXT, "-m", folder, "--vary", "layer=0,1")["values"] == [0, 1]


def test_more_than_can_be_held_is_refused(folder, monkeypatch):
    monkeypatch.setattr(all_layers, "MOST_CELLS", 99)
    with pytest.raises(InputError, match="5 x 5 weights of 4 heads are too many"):
        trace_self(TEXT, Settings(model=folder, layer="all", head="all"))
    assert len(trace_self(TEXT, Settings(model=folder, layer="all")).heads) == 2


NAMES = ["[CLS]", "walk", "##ing", "home"]


def rolled_up_to(layers, last):
    """Return the rollout of weights (layers, heads, n, n), in NumPy."""
    rolled = np.eye(layers.shape[-1])
    for heads in layers[: last + 1]:
        layer = 0.5 * heads.mean(axis=0) + 0.5 * np.eye(len(rolled))
        layer /= layer.sum(axis=1, keepdims=True)
        rolled = layer @ rolled
    return rolled


@pytest.fixture
def file(tmp_path):
    """Saved weights of three causal layers of two heads."""
    weights = np.tril(np.random.default_rng(0).random((3, 2, 4, 4)))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.savez(tmp_path / "all.npz", attentions=weights, tokens=NAMES)
    return str(tmp_path / "all.npz"), weights


def test_a_model_s_rollout_is_that_of_its_layers(folder):
    expected = np.array(by_loops(gpt2(), [3, 0, 1, 2, 0])[0])
    for layer in (0, 1):
        trace = trace_self(TEXT, Settings(model=folder, head="rollout", layer=layer))
        np.testing.assert_allclose(trace.weights, rolled_up_to(expected, layer), atol=1e-5)
        assert (trace.shown.name, trace.kind, trace.mask_name) == ("rollout", "masked", "causal")
        assert not trace.is_scored and trace.projection.layer == layer
    every = trace_masked(TEXT, Settings(model=folder, head="rollout", layer="all", next=0))
    assert [head.layer for head in every.heads] == [0, 1]
    for layer, head in enumerate(every.heads):
        np.testing.assert_allclose(head.weights, rolled_up_to(expected, layer), atol=1e-5)


def test_it_is_that_of_attn_heads(folder):
    found = record("self", TEXT, "-m", folder, "--head", "rollout")
    every = record("heads", TEXT, "-m", folder, "--rollout")["rollout"]
    np.testing.assert_allclose(found["weights"], every, atol=1e-6)
    assert found["head"] == "rollout" and found["score"] is None and found["heads"] == []


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt_neo"])
def test_it_reaches_further_than_a_layer_s_window(name, tokenizers, transformers, tmp_path):
    expected = np.array(attentions(model_of(CASES[name], transformers, tmp_path)), np.float64)
    trace = trace_self(records.TEXT, Settings(model=str(tmp_path), head="rollout"))
    rolled = rolled_up_to(expected, len(expected) - 1)
    np.testing.assert_allclose(trace.weights, rolled, atol=1e-5)
    allowed = np.ones_like(rolled, bool) if trace.mask is None else trace.mask
    np.testing.assert_array_equal(allowed, rolled > 0)


def test_a_mask_is_tried_in_the_last_layer_alone(folder):
    expected = np.array(by_loops(gpt2(), [3, 0, 1, 2, 0])[0])
    tried = trace_self(TEXT, Settings(model=folder, head="mean", mask="none")).weights
    trace = trace_self(TEXT, Settings(model=folder, head="rollout", mask="none"))
    rolled = rolled_up_to(np.array([expected[0], [tried, tried]]), 1)
    np.testing.assert_allclose(trace.weights, rolled, atol=1e-5)
    assert trace.mask is None


def test_its_pieces_are_joined(tokenizers, tmp_path):
    bert = small_bert(tmp_path / "bert")
    whole = trace_self("the cats", Settings(model=bert, head="rollout")).weights
    words = trace_self("the cats", Settings(model=bert, head="rollout", join_pieces=True, hide_special=True))
    assert words.query_tokens == ("the", "cats")
    summed = np.add.reduceat(whole, [0, 1, 2, 4], axis=1)[:, 1:3]
    np.testing.assert_allclose(words.weights, [summed[1], summed[2:4].mean(axis=0)], atol=FLOAT32)


def test_a_file_of_several_layers_has_one(file):
    name, weights = file
    for layer in range(3):
        found = record("show", name, "--head", "rollout", "--layer", str(layer))
        np.testing.assert_allclose(found["weights"], rolled_up_to(weights, layer), atol=1e-12)
        assert found["mask_name"] == "causal" and found["head"] == "rollout"
    last = record("show", name, "--head", "rollout")
    np.testing.assert_allclose(last["weights"], rolled_up_to(weights, 2), atol=1e-12)
    words = record("show", name, "--head", "rollout", "--join-pieces")
    assert words["query_tokens"] == ["[CLS]", "walking", "home"]
    assert "weights = A2 A1 A0" in here("show", name, "--head", "rollout").out


def test_a_decoder_s_cross_attention_has_none(tokenizers, transformers, tmp_path):
    model_of(PAIRS["t5"], transformers, tmp_path)
    ran = here("cross", "the cat", "a b", "-m", str(tmp_path), "--head", "rollout")
    assert ran.code == 2 and "needs self-attention" in ran.err
