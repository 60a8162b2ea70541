"""The mask lab and padding: words, polarities, corners, and rows in which nothing is left to look at."""

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.core.masks import Mask, named, widened, with_padding
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.teach.examples import load
from tests.shell import record, refused, told

CAT = "The cat sat on a mat"
RANDOM = ("-e", "random")
MODELS = [{"projection": "roles-deep"}, {"projection": "roles-deep", "layer": 1}, {"head": "subject"}]
MODELS += [{"embedding": "random"}, {"embedding": "random", "projection": "identity", "score": "cosine"}]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mask", ["none", "causal", "window:1"])
@pytest.mark.parametrize("more", MODELS, ids=str)
def test_padding_changes_no_weight_of_a_real_word(side, mask, more):
    """The rules count distances or places from the start; both are moved alike for queries and keys."""
    alone = trace_self(CAT, Settings(mask=mask, **more))
    padded = trace_self(CAT, Settings(mask=mask, pad=3, pad_side=side, **more))
    real = slice(3, None) if side == "left" else slice(0, -3)
    np.testing.assert_allclose(padded.weights[real, real], alone.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(padded.output[real], alone.output, rtol=0, atol=1e-10)
    assert not padded.weights[:, list(padded.pad_keys)].any()


@pytest.mark.parametrize("projection", ["roles", "roles-deep", "identity"])
def test_in_cross_attention_the_context_is_padded_also_below_and_the_text_is_not(projection):
    texts = ("she", "likes black coffee")
    alone, padded = (trace_cross(*texts, Settings(projection=projection, pad=n)) for n in (None, 2))
    assert padded.query_tokens == ("she",)
    assert padded.key_tokens == ("likes", "black", "coffee", "<pad>", "<pad>")
    np.testing.assert_allclose(padded.weights[:, :3], alone.weights, rtol=0, atol=1e-12)
    assert not padded.mask[:, 3:].any()


def test_padding_has_an_id_and_zeros():
    trace = trace_masked(CAT, Settings(embedding="random", pad=2, pad_side="left"))
    assert not trace.weights[:2].any() and not trace.output[:2].any()
    np.testing.assert_allclose(trace.weights[2:].sum(axis=1), 1)
    trace = trace_self("she likes she", Settings(pad=2))
    assert (trace.query_ids, trace.unknown) == ((0, 1, 0, 2, 2), ())
    assert not trace.x_query[3:].any()
    found = trace.to_dict()
    assert (found["padding"], found["mask_name"]) == ([3, 4], "padding")
    assert trace_self("she likes she").to_dict()["padding"] is None
    trace = trace_self("a <pad> b", Settings(embedding="random", tokenizer="whitespace", pad=1))
    assert trace.mask.tolist() == [[True, True, True, False]] * 4


def test_no_rule_needs_more_rows_than_are_asked_for_and_padding_of_many_is_refused():
    mask = with_padding(named("causal", 10**6, 10**6), 10**6, 10**6, range(3))
    assert np.flatnonzero(mask.rows([5])[0]).tolist() == [3, 4, 5]
    assert (mask.label, with_padding(None, 3, 3, range(2, 3)).label) == ("causal, padding", "padding")
    part = widened(Mask("m", 1, 1, np.array([[False]])), 2, 3, range(1, 2), range(2, 3))
    assert part.rows([0, 1]).tolist() == [[True] * 3, [True, True, False]]
    # Padding of a long text is hidden there too.
    trace = trace_self("w " * 1100, Settings(embedding="random", pad=5, pad_side="left"))
    assert trace.condensed and int(trace.shown.links.keys.min()) == 5
    assert "The mask is padding." in trace.notes
    trace = trace_matrices("example", load("coffee").given, Settings(pad=1))
    assert trace.key_tokens == ("she", "likes", "coffee", "<pad>")
    assert not trace.x_key[3].any() and not trace.weights[:, 3].any()
    refused("self", "a", "--pad", "10001")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("more", [{}, {"embedding": "random"}], ids=str)
def test_the_walk_turns_on_a_word_and_never_on_padding(side, more):
    text = "the dog chased the cat"
    padded, alone = (trace_self(text, Settings(pad=n, pad_side=side, **more)) for n in (4, None))
    assert padded.query_tokens[padded.focus[0]] == alone.query_tokens[alone.focus[0]] != "<pad>"


@pytest.mark.parametrize("options", ["", "--mask window:1", "--pad 2", "--mask none", "-q sat"])
def test_the_views_are_one_mask_in_each_polarity(options):
    args = ("masked", CAT, *RANDOM, "--show", "mask", *options.split())
    found, shown = record(*args), told(*args, "--width", "200")
    views, pads = found["mask_views"], found["padding"]
    assert views["words"] and all(sentence in shown for sentence in views["words"])
    allowed = found["mask"] or [[True] * 6] * 6
    assert views["torch_sdpa"] == views["keras"] == allowed
    assert views["torch_mha"] == [[not may for may in row] for row in allowed]
    assert views["additive"] == [[0.0 if may else None for may in row] for row in allowed]
    assert views["key_padding"] == (pads and [j in pads for j in range(len(found["key_tokens"]))])


def test_a_mask_file_is_joined_with_padding(at):
    (at / "mask.txt").write_text("1 0\n1 1\n")
    with_padding = {"right": [[1, 0, 0], [1, 1, 0], [1, 1, 0]], "left": [[0, 1, 1], [0, 1, 0], [0, 1, 1]]}
    for side, wanted in with_padding.items():
        settings = Settings(embedding="random", mask="mask.txt", mask_true="allowed", pad=1, pad_side=side)
        assert trace_self("a b", settings).mask.astype(int).tolist() == wanted
    (at / "mask.txt").write_text("1 0 1\n0 1 1\n")  # of two texts, the context alone is padded
    assert trace_cross("a b", "x y z", settings).mask.astype(int).tolist() == [[0, 1, 0, 1], [0, 0, 1, 1]]
    for form in ("csv", "tsv", "code:numpy"):
        assert f"no {form} form" in refused("masked", "a b", *RANDOM, "--show", "mask", "-f", form)
    assert record("masked", "w " * 1100, *RANDOM, "--show", "mask")["mask_views"] is None  # of a long text
