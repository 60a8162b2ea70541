"""Weights that a pretrained model's own are made into: between words, without special tokens."""

import json

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import byte_pairs, small_bert, small_gpt2
from tests.pipeline.records import record
from tests.shell import attn, here

TEXT = "the cats walking home"
TOKENS = ("[CLS]", "the", "cat", "##s", "walk", "##ing", "home", "[SEP]")
WORDS = ("[CLS]", "the", "cats", "walking", "home", "[SEP]")
RUNS = ([0], [1], [2, 3], [4, 5], [6], [7])
pytestmark = pytest.mark.usefixtures("tokenizers")


@pytest.fixture
def folder(tmp_path):
    """A BERT of word pieces."""
    return small_bert(tmp_path / "bert")


def joined(weights):
    """Sum the weights to a word's pieces, and average those from them."""
    return [[np.mean([weights[i][keys].sum() for i in rows]) for keys in RUNS] for rows in RUNS]


@pytest.mark.parametrize("head", ["0", "1", "mean"])
def test_pieces_are_joined_to_words(head, folder):
    pieces = trace_self(TEXT, Settings(model=folder, head=head))
    assert pieces.query_tokens == TOKENS
    trace = trace_self(TEXT, Settings(model=folder, head=head, join_pieces=True))
    assert trace.query_tokens == trace.key_tokens == WORDS
    assert (trace.is_scored, trace.kind, trace.head_names) == (False, "self", ("0", "1"))
    np.testing.assert_allclose(trace.weights, joined(pieces.weights), atol=FLOAT32)
    np.testing.assert_allclose(trace.weights.sum(axis=1), 1, atol=FLOAT32)


def test_special_tokens_are_hidden_and_rows_renormalized_where_asked(folder):
    whole = trace_self(TEXT, Settings(model=folder)).weights[1:-1, 1:-1]
    hidden = trace_self(TEXT, Settings(model=folder, hide_special=True))
    assert hidden.query_tokens == TOKENS[1:-1]
    np.testing.assert_allclose(hidden.weights, whole, atol=FLOAT32)
    assert any("Hidden: [CLS], [SEP]" in note and "not renormalised" in note for note in hidden.notes)
    again = trace_self(TEXT, Settings(model=folder, hide_special=True, renormalize=True))
    np.testing.assert_allclose(again.weights, whole / whole.sum(axis=1, keepdims=True), atol=FLOAT32)


def test_all_heads_are_joined_and_the_mask_with_them(tmp_path):
    vocabulary = ("a", "b", "c", "d", "Ġ", "Ġa")
    folder = small_gpt2(tmp_path / "gpt2")
    byte_pairs(folder, vocabulary, ["Ġ a"])
    pieces = trace_self("db ac ab", Settings(model=folder, head="all"))
    assert pieces.query_tokens == ("d", "b", "Ġa", "c", "Ġa", "b")
    trace = trace_self("db ac ab", Settings(model=folder, head="all", join_pieces=True))
    assert trace.query_tokens == ("db", "ac", "ab") and trace.kind == "masked"
    assert trace.mask.tolist() == np.tri(3, dtype=bool).tolist() and trace.mask_name == "causal"
    for before, after in zip(pieces.heads, trace.heads, strict=True):
        summed = before.weights.reshape(3, 2, 3, 2).sum(axis=3).mean(axis=1)
        np.testing.assert_allclose(after.weights, summed, atol=FLOAT32)


def test_a_row_is_asked_for_by_its_word(folder):
    every = record("self", TEXT, "-m", folder, "--join-pieces")
    one = record("self", TEXT, "-m", folder, "--join-pieces", "-q", "walking")
    assert one["query_tokens"] == ["walking"] and one["query_rows"] == [3]
    assert_alike(one["weights"], [every["weights"][3]], FLOAT32)
    assert one["because"] is None and one["score"] is None
    assert record("explain", TEXT, "-m", folder, "--hide-special", "--steps")["because"] is None
    assert here("self", TEXT, "-m", folder, "--join-pieces", "-q", "##ing").code == 2
    top = record("self", TEXT, "-m", folder, "--join-pieces", "--top", "1")
    assert_alike([link[2] for link in top["links"]], [max(row) for row in every["weights"]], FLOAT32)


def test_every_head_a_page_and_a_figure_have_words(folder, at):
    """Heads are measured between words; the rollout goes through pieces, as that of one head's screen does."""
    found = record("heads", TEXT, "-m", folder, "--join-pieces", "--rollout")
    assert found["query_tokens"] == found["key_tokens"] == list(WORDS)
    assert sum("Word pieces are joined" in note for note in found["notes"]) == 1
    for layer in found["layers"]:
        asked = Settings(model=folder, layer=layer["layer"], head="all", join_pieces=True)
        for head, own in zip(layer["heads"], trace_self(TEXT, asked).heads, strict=True):
            assert head["shares"]["itself"] == pytest.approx(np.diag(own.weights).mean(), abs=FLOAT32)
    rollout = trace_self(TEXT, Settings(model=folder, head="rollout", join_pieces=True))
    assert_alike(found["rollout"], rollout.weights.tolist(), FLOAT32)
    shown = here("heads", TEXT, "-m", folder, "--join-pieces", "--hide-special")
    assert "attn heads TEXT -m DIR --join-pieces --hide-special --layer 0" in " ".join(shown.out.split())
    assert "Hidden: [CLS], [SEP]. Rows are not renormalised." in shown.out
    for name in ("page.html", "figure.svg"):
        figure = ("--figure", "links") if name.endswith("svg") else ()
        assert here("self", TEXT, "-m", folder, "--join-pieces", *figure, "-o", name).code == 0
        drawn = (at / name).read_text()
        assert "walking" in drawn and "##ing" not in drawn


def test_heads_of_a_file_are_joined_where_it_has_tokens(folder, at):
    assert here("self", TEXT, "-m", folder, "--head", "all", "-o", "weights.json").code == 0
    one = record("heads", "--weights", "weights.json", "--join-pieces", "--layer", "1")
    own = record("heads", TEXT, "-m", folder, "--join-pieces", "--layer", "1")
    assert one["query_tokens"] == list(WORDS)
    assert_alike(one["layers"][0]["heads"], own["layers"][0]["heads"], FLOAT32)
    np.save(at / "bare.npy", np.full((2, 3, 3), 1 / 3))
    ran = here("heads", "--weights", "bare.npy", "--join-pieces")
    assert ran.code == 2 and "--join-pieces needs tokens, and bare.npy has none" in ran.err


def test_next_words_stay_and_their_place_is_named_as_the_model_has_it(folder):
    text = "the cats [MASK] home"
    plain = record("self", text, "-m", folder, "--next", "3")["next_words"]
    options = ("-m", folder, "--next", "3", "--join-pieces", "--hide-special")
    assert_alike(record("self", text, *options)["next_words"], plain, FLOAT32)
    assert 'Likeliest to fill "[MASK]"' in here("self", text, *options).out


def test_settings_are_compared_and_lines_of_a_file_shaped(folder, at):
    found = record("compare", TEXT, "-m", folder, "--vary", "join-pieces=no,yes")
    assert [one["query_tokens"] for one in found["records"]] == [list(TOKENS), list(WORDS)]
    found = record("compare", TEXT, "-m", folder, "--hide-special", "--vary", "renormalize=no,yes")
    assert found["difference"] is not None
    shape = ("--join-pieces", "--hide-special", "--fields", "all")
    ran = attn("batch", "-m", folder, *shape, input=f"{TEXT}\n")
    assert json.loads(ran.out) == json.loads(attn("self", TEXT, "-m", folder, *shape[:2], "-f", "json").out)
