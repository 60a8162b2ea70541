"""attn compare with two models, or with two texts in one: which heads and next words moved."""

import csv
import io
import json

import numpy as np
import pytest

from tests.models.checkpoints.by_hand import (
    BERT,
    GPT_OSS,
    PIECES,
    bert,
    byte_pairs,
    gpt2,
    gpt_oss,
    saved,
    small_bert,
    small_gpt2,
    small_gpt_oss,
    word_pieces,
)
from tests.models.checkpoints.gguf_by_hand import in_both_forms
from tests.schema import complaints
from tests.shell import here

pytestmark = pytest.mark.usefixtures("tokenizers")
GPT = "h.1.attn.c_attn.weight"


@pytest.fixture
def decoders(tmp_path):
    """Two models that differ in the queries of head 1 of layer 1 alone."""
    changed = {name: array.copy() for name, array in gpt2().items()}
    changed[GPT][:, 4:8] *= -1
    return small_gpt2(tmp_path / "base"), small_gpt2(tmp_path / "tuned", changed)


def record(*args):
    ran = here("compare", *args, "-f", "json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert complaints(found) == []
    return found


def every_head(text, folder, *options):
    """The weights of every head, by (layer, head), as attn self has them."""
    ran = here("self", text, "-m", folder, "--layer", "all", "--head", "all", "-f", "json", *options)
    return {(one["layer"], one["name"]): np.array(one["weights"]) for one in json.loads(ran.out)["heads"]}


def divergence(P, Q):
    """Jensen-Shannon by its definition: half of each Kullback-Leibler divergence from the mean; in bits."""
    found = []
    for p, q in zip(P, Q, strict=True):
        p, q = p / p.sum(), q / q.sum()
        found.append(
            sum(
                a * np.log2(2 * a / (a + b)) / 2
                for one, other in ((p, q), (q, p))
                for a, b in zip(one, other, strict=True)
                if a > 0
            )
        )
    return np.mean(found)


def test_the_one_head_that_was_changed_is_named_and_those_below_have_not_moved(decoders):
    base, tuned = decoders
    found = record("dabca", "-m", base, "-m", tuned)
    first, *others = found["heads"]
    assert (first["layer"], first["head"]) == (1, "1") and [one["divergence"] for one in others] == [0, 0, 0]
    before, after = (every_head("dabca", folder)[1, "1"] for folder in decoders)
    assert first["divergence"] == pytest.approx(divergence(before, after), abs=1e-6)
    assert first["divergence"] > 0.01
    assert found["option"] == "model" and found["values"] == [base, tuned]
    for side, weights in zip(found["records"], (before, after), strict=True):
        np.testing.assert_allclose(side["weights"], weights, atol=1e-6)
    assert found["aligned"]["queries"] == [[n, n] for n in range(5)]
    assert "Head 1 of layer 1 differs most" in found["summary"]


def test_a_layer_and_a_head_that_are_asked_for_are_shown_and_all_are_measured(decoders):
    chosen = record("dabca", "-m", decoders[0], "-m", decoders[1], "--layer", "0", "--head", "1")
    assert [(side["projection"]["layer"], side["head"]) for side in chosen["records"]] == [(0, "1")] * 2
    assert chosen["largest_mover"] is None and chosen["heads"][0]["layer"] == 1


def test_next_words_are_those_whose_probability_in_both_differs_most(decoders):
    found = record("dabca", "-m", decoders[0], "-m", decoders[1])["next_words"]
    said = []
    for folder in decoders:
        ran = here("masked", "dabca", "-m", folder, "--next", "6", "-f", "json", "--fields", "next_words")
        said.append({one["id"]: one["probability"] for one in json.loads(ran.out)["next_words"]})
    change = {n: abs(said[1][n] - said[0][n]) for n in said[0]}
    assert [one["id"] for one in found] == sorted(change, key=lambda n: -change[n])[:5]
    for one in found:
        assert one["probabilities"] == pytest.approx([of_model[one["id"]] for of_model in said], abs=1e-6)


def test_an_encoder_tells_of_the_gap_and_without_one_says_why_not(tmp_path):
    folder, tensors = small_bert(tmp_path / "one"), bert(seed=1, vocabulary=len(PIECES))
    other = saved(tmp_path / "two", BERT, tensors)
    word_pieces(other)
    assert len(record("the [MASK] home", "-m", folder, "-m", other)["next_words"]) == 5
    ran = here("compare", "the cats home", "-m", folder, "-m", other)
    assert record("the cats home", "-m", folder, "-m", other)["next_words"] is None
    assert "it fills gaps" in " ".join(ran.out.split())
    joined = record("the cats home", "-m", folder, "-m", other, "--join-pieces", "--hide-special")
    before, after = (
        every_head("the cats home", one, "--join-pieces", "--hide-special") for one in (folder, other)
    )
    for one in joined["heads"]:
        at = one["layer"], one["head"]
        P, Q = (
            np.hstack([W, 1 - W.sum(axis=1, keepdims=True)]) for W in (before[at], after[at])
        )  # to hidden tokens
        assert one["divergence"] == pytest.approx(divergence(P, Q), abs=1e-6)


def test_what_goes_to_another_sink_is_a_move(tmp_path):
    folder, tensors = small_gpt_oss(tmp_path / "one"), gpt_oss()
    tensors["layers.1.self_attn.sinks"] += 6
    other = saved(tmp_path / "two", GPT_OSS, tensors)
    byte_pairs(other)
    found = record("abcd", "-m", folder, "-m", other)
    before, after = (every_head("abcd", one) for one in (folder, other))
    for one in found["heads"]:
        at = one["layer"], one["head"]
        P, Q = (np.hstack([W, 1 - W.sum(axis=1, keepdims=True)]) for W in (before[at], after[at]))
        assert one["divergence"] == pytest.approx(divergence(P, Q) if at[0] else 0.0, abs=3e-6)
    assert found["heads"][0]["layer"] == 1 and found["heads"][0]["divergence"] > 0.1


def test_what_quantization_did_is_small_and_in_every_head(tmp_path):
    folder, exact, eight = in_both_forms(tmp_path)
    same = record("abca abd", "-m", folder, "-m", exact)
    assert max(one["divergence"] for one in same["heads"]) < 1e-9
    found = record("abca abd", "-m", folder, "-m", eight)["heads"]
    assert len(found) == 4 and all(1e-9 < one["divergence"] < 0.1 for one in found)
    out = here("compare", "abca abd", "-m", folder, "-m", eight, "--width", "80").out
    assert max(map(len, out.splitlines())) <= 80 and "eight.gguf" in out and "layer\\head" in out


def test_two_texts_are_compared_over_the_words_that_they_share(tmp_path):
    folder = small_bert(tmp_path / "bert")
    texts = "the cats walking", "the cat walking home"
    found = record(texts[0], "--with", texts[1], "-m", folder)
    first, second = (side["query_tokens"] for side in found["records"])
    pairs = found["aligned"]["keys"]
    assert [first[i] for i, _ in pairs] == [second[j] for _, j in pairs]
    assert [first[i] for i, _ in pairs] == ["[CLS]", "the", "cat", "walk", "##ing", "[SEP]"]
    rows, columns = ([pair[side] for pair in pairs] for side in (0, 1))
    before, after = (every_head(text, folder) for text in texts)
    expected = {
        at: divergence(before[at][np.ix_(rows, rows)], after[at][np.ix_(columns, columns)]) for at in before
    }
    for one in found["heads"]:
        assert one["divergence"] == pytest.approx(expected[one["layer"], one["head"]], abs=1e-6)
    ranked = [one["divergence"] for one in found["heads"]]
    assert ranked == sorted(ranked, reverse=True) and ranked[0] > 0
    shown = found["records"][0]
    assert (shown["projection"]["layer"], shown["head"]) == (
        found["heads"][0]["layer"],
        found["heads"][0]["head"],
    )
    # As many tokens at other places: cells have no counterparts.
    assert len(first) == len(second) and found["difference"] is None and found["next_words"] is None
    assert record("the cat", "--with", "a cat", "-m", folder)["difference"] is not None


def test_texts_that_share_nothing_are_shown_and_no_head_is_measured(decoders):
    ran = here("compare", "abc", "--with", "ddd", "-m", decoders[0])
    assert ran.code == 0 and "no head can be measured" in " ".join(ran.out.split())


def test_csv_has_a_row_for_each_head(decoders):
    ran = here("compare", "dabca", "-m", decoders[0], "-m", decoders[1], "-f", "csv")
    rows = [*csv.DictReader(io.StringIO(ran.out))]
    found = record("dabca", "-m", decoders[0], "-m", decoders[1])["heads"]
    assert [(int(row["layer"]), row["head"]) for row in rows] == [
        (one["layer"], one["head"]) for one in found
    ]
    assert float(rows[0]["divergence"]) == pytest.approx(found[0]["divergence"])


def test_what_does_not_fit_is_one_line(decoders, tmp_path):
    base, tuned = decoders
    deep = small_gpt2(tmp_path / "deep", gpt2(layers=3), n_layer=3)
    other = small_bert(tmp_path / "bert")
    for args, code, said in (
        (("-m", base, "-m", deep), 65, "2 layers x 2 heads have no counterparts in 3 layers x 2 heads"),
        (("-m", base, "-m", other), 65, "The models' tokens part at place 0: 'd' and '[CLS]'."),
        (("-m", base, "-m", tuned, "-m", deep), 2, "two different models"),
        (("-m", base, "-m", base), 2, "two different models"),
        (("-m", base, "-m", tuned, "--vary", "t=1,2"), 2, "all else the same"),
        (("-m", base, "-m", tuned, "--with", "ab"), 2, "all else the same"),
        (("-m", base, "-m", tuned, "--layer", "all"), 2, "One layer"),
        (("-m", base, "-m", tuned, "--head", "all"), 2, "One head"),
        (("-m", base, "-m", tuned, "--layer", "7"), 2, "layer 7"),
        (("-m", base, "-m", tuned, "-q", "dd"), 2, "'dd'"),
        (("-m", base, "-m", tuned, "--seed", "3"), 2, "--seed"),
    ):
        ran = here("compare", "dabca", *args)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1) and said in ran.err, (args, ran)


def test_a_model_from_a_variable_or_a_file_is_one_whatever_its_name(decoders, tmp_path, monkeypatch):
    (tmp_path / "a b").symlink_to(decoders[0])
    monkeypatch.chdir(tmp_path)
    args = ("compare", "dabca", "--vary", "head=0,1", "-f", "json")
    (tmp_path / "attn.toml").write_text('model = "tuned"\n')
    for env, name in (({}, "tuned"), ({"ATTN_MODEL": "a b"}, "a b")):
        ran = here(*args, env=env)
        assert ran.code == 0, ran.err
        assert [side["embedding"]["name"] for side in json.loads(ran.out)["records"]] == [name] * 2
        assert ("settings from attn.toml: model" in ran.err) == (name == "tuned")
