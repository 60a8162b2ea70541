"""--head rollout: attention through the layers of a model, or of a file of weights (Abnar and Zuidema 2020)."""

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from tests.alike import FLOAT32
from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2
from tests.models.checkpoints.test_parity import CASES, PAIRS
from tests.models.checkpoints.test_run import by_loops
from tests.pipeline import records
from tests.pipeline.records import attentions, model_of, record
from tests.shell import here

TEXT = "dabca"
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
def folder(tokenizers, tmp_path):
    """A GPT-2 of six letters."""
    return small_gpt2(tmp_path / "gpt2")


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
