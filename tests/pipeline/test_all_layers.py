"""Made of a model's weights or of a file's: all layers at once, rollout (Abnar and Zuidema 2020), words of pieces."""

import json
import shlex

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError
from attn_cli.pipeline import record as all_layers
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import byte_pairs, gpt2, small_gpt2
from tests.models.checkpoints.test_parity import CASES, PAIRS
from tests.models.checkpoints.test_run import by_loops
from tests.pipeline.records import TEXT as CATS, attentions, model_of, record, rolled_up_to
from tests.schema import checked
from tests.shell import attn, here, refused, rows, told

TEXT = "dabca"
TOKENS = ("[CLS]", "the", "cat", "##s", "walk", "##ing", "home", "[SEP]")
WORDS = ("[CLS]", "the", "cats", "walking", "home", "[SEP]")
RUNS = ([0], [1], [2, 3], [4, 5], [6], [7])
EVERY = [(0, "0"), (0, "1"), (1, "0"), (1, "1")]
pytestmark = pytest.mark.usefixtures("tokenizers")


@pytest.fixture(scope="module")
def expected():
    """The weights (layers, heads, n, n) that the causal model has for TEXT."""
    return np.array(by_loops(gpt2(), [3, 0, 1, 2, 0])[0])


def test_every_head_of_every_layer_is_in_the_trace(causal, expected):
    trace = trace_self(TEXT, Settings(model=causal, layer="all", head="all"))
    assert trace.shown is trace.heads[2] and trace.projection.layer == 1  # the last layer's main head
    for head in ("0", "1", "mean"):
        trace = trace_masked(TEXT, Settings(model=causal, layer="all", head=head, next=0))
        assert [(one.layer, one.name) for one in trace.heads] == [(0, head), (1, head)]
        for layer, one in enumerate(trace.heads):
            alone = trace_self(TEXT, Settings(model=causal, layer=layer, head=head))
            wanted = expected[layer].mean(axis=0) if head == "mean" else expected[layer, int(head)]
            for found in (one, alone):
                np.testing.assert_allclose(found.weights, wanted, atol=1e-5)
            assert (alone.kind, alone.mask_name, alone.projection.layer) == ("masked", "causal", layer)
            assert alone.query_tokens == alone.key_tokens == tuple(TEXT) and alone.head_names == ("0", "1")
    assert record("compare", TEXT, "-m", causal, "--vary", "layer=0,1")["values"] == [0, 1]


def test_json_tables_and_arrays_name_each_head_s_layer(causal, expected, at):
    options = ("self", TEXT, "-m", causal, "--layer", "all", "--head", "all")
    found = record(*options, "--steps")
    assert [(one["layer"], one["name"]) for one in found["heads"]] == EVERY
    assert all(one["scores"] is not None and one["q"] is not None for one in found["heads"])
    one = record(*options[:4], "--layer", "0", "--head", "all")
    assert [head["layer"] for head in one["heads"]] == [0, 0]
    assert_alike(one["heads"][1]["weights"], found["heads"][1]["weights"], FLOAT32)
    mean = record("explain", TEXT, "-m", causal, "--layer", "all", "--head", "mean")
    assert [(head["layer"], head["name"]) for head in mean["heads"]] == [(0, "mean"), (1, "mean")]
    plain = record("self", "a b", "-e", "random", "--heads", "2", "--head", "all")
    assert [head["layer"] for head in plain["heads"]] == [None, None]
    assert {(int(row["layer"]), row["head"]) for row in rows(*options, "--tidy")} == {*EVERY}
    assert here(*options, "-o", "all.npy").code == 0
    np.testing.assert_allclose(np.load(at / "all.npy"), expected, atol=FLOAT32)


def test_what_the_model_says_next_does_not_change(causal):
    one, every = (trace_masked(TEXT, Settings(model=causal, layer=layer)) for layer in (None, "all"))
    assert_alike(every.next_words, one.next_words, FLOAT32)


@pytest.mark.parametrize("name", ["gpt_neo", "modernbert"])
def test_layers_whose_masks_differ_keep_their_own(name, transformers, tmp_path):
    expected = attentions(model_of(CASES[name], transformers, tmp_path))
    trace = trace_self(CATS, Settings(model=str(tmp_path), layer="all", head="all"))
    for head in trace.heads:
        weights = expected[head.layer][int(head.name)]
        np.testing.assert_allclose(head.weights, weights, atol=1e-5)
        np.testing.assert_array_equal(trace.mask_of(head), weights > 0)
    assert any("masks differ" in note for note in trace.notes)
    shown = here("self", CATS, "-m", str(tmp_path), "--layer", "all", "--precision", "2")
    first, second = shown.out.split("Layer 1, head 0")
    assert first.count("–") != second.split("Layer 2")[0].count("–")


def test_the_screen_names_layers_and_fits(causal):
    every = ("self", TEXT, "-m", causal, "--layer", "all")
    for width in (40, 60, 80):
        shown = told(*every, "--head", "all", "--width", str(width))
        assert all(name in shown for name in ("0.0", "0.1", "1.0", "1.1"))
        assert "layers 0 to 1" in " ".join(shown.split()) and max(map(len, shown.splitlines())) <= width
    numbers = told(*every, "--precision", "3")
    assert "Layer 0, head 0" in numbers and "Layer 1, head 0" in numbers


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
    assert "0.mean" in told("self", words, "-p", "roles-deep", "--layer", "all", "--head", "mean")


def test_more_than_can_be_held_is_refused(causal, monkeypatch):
    monkeypatch.setattr(all_layers, "MOST_CELLS", 99)
    with pytest.raises(InputError, match="5 x 5 weights of 4 heads are too many"):
        trace_self(TEXT, Settings(model=causal, layer="all", head="all"))
    assert len(trace_self(TEXT, Settings(model=causal, layer="all")).heads) == 2


def test_a_model_s_rollout_is_that_of_its_layers_and_of_attn_heads(causal, expected):
    every = trace_masked(TEXT, Settings(model=causal, head="rollout", layer="all", next=0))
    assert [head.layer for head in every.heads] == [0, 1]
    for layer, head in enumerate(every.heads):
        trace = trace_self(TEXT, Settings(model=causal, head="rollout", layer=layer))
        for weights in (trace.weights, head.weights):
            np.testing.assert_allclose(weights, rolled_up_to(expected, layer), atol=1e-5)
        assert (trace.shown.name, trace.kind, trace.mask_name) == ("rollout", "masked", "causal")
        assert not trace.is_scored and trace.projection.layer == layer
    found = record("self", TEXT, "-m", causal, "--head", "rollout")
    rollout = record("heads", TEXT, "-m", causal, "--rollout")["rollout"]
    np.testing.assert_allclose(found["weights"], rollout, atol=1e-6)
    assert found["head"] == "rollout" and found["score"] is None and found["heads"] == []


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt_neo"])
def test_it_reaches_further_than_a_layer_s_window(name, transformers, tmp_path):
    expected = np.array(attentions(model_of(CASES[name], transformers, tmp_path)), np.float64)
    trace = trace_self(CATS, Settings(model=str(tmp_path), head="rollout"))
    rolled = rolled_up_to(expected, len(expected) - 1)
    np.testing.assert_allclose(trace.weights, rolled, atol=1e-5)
    allowed = np.ones_like(rolled, bool) if trace.mask is None else trace.mask
    np.testing.assert_array_equal(allowed, rolled > 0)


def test_a_mask_is_tried_in_the_last_layer_alone(causal, expected):
    tried = trace_self(TEXT, Settings(model=causal, head="mean", mask="none")).weights
    trace = trace_self(TEXT, Settings(model=causal, head="rollout", mask="none"))
    rolled = rolled_up_to(np.array([expected[0], [tried, tried]]), 1)
    np.testing.assert_allclose(trace.weights, rolled, atol=1e-5)
    assert trace.mask is None and (tried > 0).all()


def test_a_file_of_several_layers_has_one(at):
    weights = np.tril(np.random.default_rng(0).random((3, 2, 4, 4)))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.savez(at / "all.npz", attentions=weights, tokens=["[CLS]", "walk", "##ing", "home"])
    show = ("show", "all.npz", "--head", "rollout")
    for layer, more in ((0, ("--layer", "0")), (1, ("--layer", "1")), (2, ("--layer", "2")), (2, ())):
        found = record(*show, *more)
        np.testing.assert_allclose(found["weights"], rolled_up_to(weights, layer), atol=1e-12)
        assert found["mask_name"] == "causal" and found["head"] == "rollout"
    assert record(*show, "--join-pieces")["query_tokens"] == ["[CLS]", "walking", "home"]
    assert "weights = A2 A1 A0" in here(*show).out


def joined(weights):
    """Sum the weights to a word's pieces, and average those from them."""
    return [[np.mean([weights[i][keys].sum() for i in rows]) for keys in RUNS] for rows in RUNS]


@pytest.mark.parametrize("head", ["0", "1", "mean", "rollout"])
def test_pieces_are_joined_to_words_and_special_tokens_hidden_with_rows_renormalized_where_asked(head, bert):
    pieces = trace_self(CATS, Settings(model=bert, head=head))
    assert pieces.query_tokens == TOKENS
    trace = trace_self(CATS, Settings(model=bert, head=head, join_pieces=True))
    assert trace.query_tokens == trace.key_tokens == WORDS
    assert (trace.is_scored, trace.kind, trace.head_names) == (False, "self", ("0", "1"))
    np.testing.assert_allclose(trace.weights, joined(pieces.weights), atol=FLOAT32)
    whole = pieces.weights[1:-1, 1:-1]
    hidden = trace_self(CATS, Settings(model=bert, head=head, hide_special=True))
    assert hidden.query_tokens == TOKENS[1:-1]
    np.testing.assert_allclose(hidden.weights, whole, atol=FLOAT32)
    assert any("Hidden: [CLS], [SEP]" in note and "not renormalised" in note for note in hidden.notes)
    if head != "mean":  # of heads that are renormalised
        again = trace_self(CATS, Settings(model=bert, head=head, hide_special=True, renormalize=True))
        np.testing.assert_allclose(again.weights, whole / whole.sum(axis=1, keepdims=True), atol=FLOAT32)


def test_all_heads_are_joined_and_the_mask_with_them(tmp_path):
    letters = small_gpt2(tmp_path / "gpt2")
    byte_pairs(letters, ("a", "b", "c", "d", "Ġ", "Ġa"), ["Ġ a"])
    pieces = trace_self("db ac ab", Settings(model=letters, head="all"))
    assert pieces.query_tokens == ("d", "b", "Ġa", "c", "Ġa", "b")
    trace = trace_self("db ac ab", Settings(model=letters, head="all", join_pieces=True))
    assert trace.query_tokens == ("db", "ac", "ab") and trace.kind == "masked"
    assert trace.mask.tolist() == np.tri(3, dtype=bool).tolist() and trace.mask_name == "causal"
    for before, after in zip(pieces.heads, trace.heads, strict=True):
        summed = before.weights.reshape(3, 2, 3, 2).sum(axis=3).mean(axis=1)
        np.testing.assert_allclose(after.weights, summed, atol=FLOAT32)


def test_pieces_are_joined_in_every_layer(bert):
    shaped = {"model": bert, "join_pieces": True, "hide_special": True}
    trace = trace_self("the cats walking", Settings(**shaped, layer="all", head="all"))
    assert trace.query_tokens == ("the", "cats", "walking")
    for head in trace.heads:
        alone = trace_self("the cats walking", Settings(**shaped, layer=head.layer, head=head.name))
        np.testing.assert_allclose(head.weights, alone.weights, atol=FLOAT32)
    hidden = [note for note in trace.notes if "Hidden" in note]
    assert [note[:8] for note in hidden] == ["Layer 0:", "Layer 1:"]
    assert sum("Word pieces are joined" in note for note in trace.notes) == 1


def test_a_row_is_asked_for_by_its_word(bert):
    every = record("self", CATS, "-m", bert, "--join-pieces")
    one = record("self", CATS, "-m", bert, "--join-pieces", "-q", "walking")
    assert one["query_tokens"] == ["walking"] and one["query_rows"] == [3]
    assert_alike(one["weights"], [every["weights"][3]], FLOAT32)
    assert one["because"] is None and one["score"] is None
    assert record("explain", CATS, "-m", bert, "--hide-special", "--steps")["because"] is None
    top = record("self", CATS, "-m", bert, "--join-pieces", "--top", "1")
    assert_alike([link[2] for link in top["links"]], [max(row) for row in every["weights"]], FLOAT32)


def test_every_head_a_page_and_a_figure_have_words(bert, at):
    """Heads are measured between words; the rollout goes through pieces, as that of one head's screen does."""
    found = record("heads", CATS, "-m", bert, "--join-pieces", "--rollout")
    assert found["query_tokens"] == found["key_tokens"] == list(WORDS)
    assert sum("Word pieces are joined" in note for note in found["notes"]) == 1
    for layer in found["layers"]:
        asked = Settings(model=bert, layer=layer["layer"], head="all", join_pieces=True)
        for head, own in zip(layer["heads"], trace_self(CATS, asked).heads, strict=True):
            assert head["shares"]["itself"] == pytest.approx(np.diag(own.weights).mean(), abs=FLOAT32)
    rollout = trace_self(CATS, Settings(model=bert, head="rollout", join_pieces=True))
    assert_alike(found["rollout"], rollout.weights.tolist(), FLOAT32)
    shown = here("heads", CATS, "-m", bert, "--join-pieces", "--hide-special")
    assert "attn heads TEXT -m DIR --join-pieces --hide-special --layer 0" in " ".join(shown.out.split())
    assert "Hidden: [CLS], [SEP]. Rows are not renormalised." in shown.out
    here("self", CATS, "-m", bert, "--join-pieces", "--figure", "links", "-o", "figure.svg")
    drawn = (at / "figure.svg").read_text()
    assert "walking" in drawn and "##ing" not in drawn


def test_heads_of_a_file_are_joined_where_it_has_tokens(bert, at):
    assert here("self", CATS, "-m", bert, "--head", "all", "-o", "weights.json").code == 0
    one = record("heads", "--weights", "weights.json", "--join-pieces", "--layer", "1")
    own = record("heads", CATS, "-m", bert, "--join-pieces", "--layer", "1")
    assert one["query_tokens"] == list(WORDS)
    assert_alike(one["layers"][0]["heads"], own["layers"][0]["heads"], FLOAT32)


def test_next_words_stay_and_their_place_is_named_as_the_model_has_it(bert):
    text = "the cats [MASK] home"
    plain = record("self", text, "-m", bert, "--next", "3")["next_words"]
    options = ("-m", bert, "--next", "3", "--join-pieces", "--hide-special")
    assert_alike(record("self", text, *options)["next_words"], plain, FLOAT32)
    assert 'Likeliest to fill "[MASK]"' in here("self", text, *options).out


def test_settings_are_compared_and_lines_of_a_file_shaped(bert):
    found = record("compare", CATS, "-m", bert, "--vary", "join-pieces=no,yes")
    assert [one["query_tokens"] for one in found["records"]] == [list(TOKENS), list(WORDS)]
    found = record("compare", CATS, "-m", bert, "--hide-special", "--vary", "renormalize=no,yes")
    assert found["difference"] is not None
    shape = ("--join-pieces", "--hide-special", "--fields", "all")
    ran = attn("batch", "-m", bert, *shape, input=f"{CATS}\n")
    assert json.loads(ran.out) == json.loads(attn("self", CATS, "-m", bert, *shape[:2], "-f", "json").out)


FORMATS = ["table", "bars", "json", "csv", "tsv", "markdown", "latex", "html", "svg", "npy"]
MADE = """
self dabca -m {gpt2}
self dabca -m {gpt2} --layer all
self dabca -m {gpt2} --layer all --head all
self dabca -m {gpt2} --layer all --head mean
self dabca -m {gpt2} --head rollout
self 'the cats walking home' -m {bert} --join-pieces --head all
"""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("command", MADE.strip().splitlines())
def test_every_format_has_them(command, format, causal, bert, at):
    ran = here(*shlex.split(command.format(gpt2=causal, bert=bert)), "-f", format, "-o", "out")
    assert ran.code == 0, ran.err
    made = (at / "out").read_bytes()
    assert len(made) > 100 and (b"nan" not in made or format == "npy")
    if format == "json":
        checked(json.loads(made))
    if "join" in command and format != "npy":
        assert b"walking" in made and b"##ing" not in made


def test_a_decoder_s_cross_attention_has_no_rollout(transformers, tmp_path):
    model_of(PAIRS["t5"], transformers, tmp_path)
    said = refused("cross", "the cat", "a b", "-m", str(tmp_path), "--head", "rollout")
    assert "needs self-attention" in said
