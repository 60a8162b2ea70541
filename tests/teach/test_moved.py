"""attn compare with two models, or with two texts in one: which heads and next words moved."""

import csv
import json

import numpy as np
import pytest

from attn_cli.teach.moved import divergences
from tests import shell
from tests.cli.tables import told as cases
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.gguf_by_hand import in_both_forms
from tests.schema import complaints
from tests.shell import here, refused, told

pytestmark = pytest.mark.usefixtures("tokenizers")
GPT = "h.1.attn.c_attn.weight"


@pytest.fixture
def decoders(tmp_path):
    """Two models that differ in the queries of head 1 of layer 1 alone."""
    changed = by_hand.gpt2()
    changed[GPT][:, 4:8] *= -1
    return by_hand.small_gpt2(tmp_path / "base"), by_hand.small_gpt2(tmp_path / "tuned", changed)


def record(*args):
    found = shell.record("compare", *args)
    assert complaints(found) == []
    return found


def every_head(text, folder, *options):
    """The weights of every head, by (layer, head), as attn self has them; what goes elsewhere is a last column."""
    found = shell.record("self", text, "-m", folder, "--layer", "all", "--head", "all", *options)["heads"]
    heads = {(one["layer"], one["name"]): np.array(one["weights"]) for one in found}
    return {at: np.hstack([W, (1 - W.sum(axis=1, keepdims=True)).clip(0)]) for at, W in heads.items()}


def divergence(P, Q):
    """Jensen-Shannon by its definition: half of each Kullback-Leibler divergence from the mean; in bits."""
    found = []
    for p, q in zip(P, Q, strict=True):
        p, q = p / p.sum(), q / q.sum()
        pairs = [(a, b) for one, other in ((p, q), (q, p)) for a, b in zip(one, other, strict=True) if a > 0]
        found.append(sum(a * np.log2(2 * a / (a + b)) / 2 for a, b in pairs))
    return np.mean(found)


def moved_by(found, before, after, within=1e-6):
    """Check how far every head moved, and that they are sorted by it."""
    for one in found["heads"]:
        at = one["layer"], one["head"]
        assert one["divergence"] == pytest.approx(divergence(before[at], after[at]), abs=within)
    moves = [one["divergence"] for one in found["heads"]]
    assert len(moves) == len(before) and moves == sorted(moves, reverse=True) and moves[0] > 0.01
    return found


def test_the_one_head_that_was_changed_is_named_with_the_next_words_that_differ_most(decoders):
    base, tuned = decoders
    before, after = (every_head("dabca", folder) for folder in decoders)
    found = moved_by(record("dabca", "-m", base, "-m", tuned), before, after)
    first, *others = found["heads"]
    assert (first["layer"], first["head"]) == (1, "1") and [one["divergence"] for one in others] == [0, 0, 0]
    assert found["option"] == "model" and found["values"] == [base, tuned]
    for side, weights in zip(found["records"], (before, after), strict=True):
        np.testing.assert_allclose(side["weights"], weights[1, "1"][:, :5], atol=1e-6)
    assert found["aligned"]["queries"] == [[n, n] for n in range(5)]
    assert "Head 1 of layer 1 differs most" in found["summary"]
    out = here("compare", "dabca", "-m", base, "-m", tuned, "-f", "csv").out
    for row, one in zip(csv.DictReader(out.splitlines()), found["heads"], strict=True):
        assert (int(row["layer"]), row["head"]) == (one["layer"], one["head"])
        assert float(row["divergence"]) == pytest.approx(one["divergence"])
    chosen = record("dabca", "-m", base, "-m", tuned, "--layer", "0", "--head", "1")  # and all are measured
    assert [(side["projection"]["layer"], side["head"]) for side in chosen["records"]] == [(0, "1")] * 2
    assert chosen["largest_mover"] is None and chosen["heads"][0]["layer"] == 1
    words = (shell.record("masked", "dabca", "-m", one, "--next", "6")["next_words"] for one in decoders)
    said = [{one["id"]: one["probability"] for one in some} for some in words]
    change = {n: abs(said[1][n] - said[0][n]) for n in said[0]}
    assert [one["id"] for one in found["next_words"]] == sorted(change, key=lambda n: -change[n])[:5]
    for one in found["next_words"]:
        assert one["probabilities"] == pytest.approx([of_model[one["id"]] for of_model in said], abs=1e-6)


def test_more_than_ten_heads_stand_in_the_order_of_their_numbers(tmp_path):
    n, d = 12, 24
    base, changed = by_hand.gpt2(d=d), by_hand.gpt2(d=d)
    changed[GPT][:, 4:6] *= -1  # the queries of head 2
    sides = []
    for name, tensors in (("base", base), ("tuned", changed)):
        (tmp_path / name).mkdir()
        sides += ["-m", by_hand.small_gpt2(tmp_path / name / "gpt2", tensors, n_embd=d, n_head=n)]
    out = told("compare", "dabca", *sides, "--width", "120")
    header, _, last = (line.split() for line in out[out.index("layer\\head") :].splitlines()[:3])
    assert header == ["layer\\head", *map(str, range(n)), "mean"]
    assert "gpt2 and gpt2" not in out, "of models with one name, the folders are told"
    assert [n for n, cell in enumerate(last[1:-1]) if float(cell)] == [2]


def test_an_encoder_tells_of_the_gap_and_without_one_says_why_not(tmp_path):
    folder = by_hand.small_bert(tmp_path / "one")
    other = by_hand.bert(seed=1, vocabulary=len(by_hand.PIECES))
    other = by_hand.saved(tmp_path / "two", by_hand.BERT, other)
    by_hand.word_pieces(other)
    assert len(record("the [MASK] home", "-m", folder, "-m", other)["next_words"]) == 5
    assert record("the cats home", "-m", folder, "-m", other)["next_words"] is None
    said = " ".join(told("compare", "the cats home", "-m", folder, "-m", other).split())
    assert "it fills gaps" in said and "--next:" not in said
    joined = "--join-pieces", "--hide-special"  # some weight goes to hidden tokens
    sides = (every_head("the cats home", one, *joined) for one in (folder, other))
    moved_by(record("the cats home", "-m", folder, "-m", other, *joined), *sides)


def test_another_sink_is_a_move_and_what_quantization_did_is_small_and_in_every_head(tmp_path):
    folder, tensors = by_hand.small_gpt_oss(tmp_path / "one"), by_hand.gpt_oss()
    tensors["layers.1.self_attn.sinks"] += 6
    other = by_hand.saved(tmp_path / "two", by_hand.GPT_OSS, tensors)
    by_hand.byte_pairs(other)
    sides = [every_head("abcd", one) for one in (folder, other)]
    found = moved_by(record("abcd", "-m", folder, "-m", other), *sides, within=3e-6)["heads"]
    assert found[0]["layer"] == 1 and found[0]["divergence"] > 0.1
    assert {one["divergence"] for one in found if one["layer"] == 0} == {0}
    folder, exact, eight = in_both_forms(tmp_path)
    same = record("abca abd", "-m", folder, "-m", exact)
    assert max(one["divergence"] for one in same["heads"]) < 1e-9
    found = record("abca abd", "-m", folder, "-m", eight)["heads"]
    assert len(found) == 4 and all(1e-9 < one["divergence"] < 0.1 for one in found)
    out = told("compare", "abca abd", "-m", folder, "-m", eight, "--width", "80")
    assert max(map(len, out.splitlines())) <= 80 and "eight.gguf" in out and "layer\\head" in out


def test_two_texts_are_compared_over_the_words_that_they_share(tmp_path):
    folder = by_hand.small_bert(tmp_path / "bert")
    texts = "the cats walking", "the cat walking home"
    found = record(texts[0], "--with", texts[1], "-m", folder)
    first, second = (side["query_tokens"] for side in found["records"])
    pairs = found["aligned"]["keys"]
    assert [first[i] for i, _ in pairs] == [second[j] for _, j in pairs]
    assert [first[i] for i, _ in pairs] == ["[CLS]", "the", "cat", "walk", "##ing", "[SEP]"]
    sides = []
    for text, places in zip(texts, zip(*pairs, strict=True), strict=True):
        sides.append({at: W[np.ix_(places, places)] for at, W in every_head(text, folder).items()})
    moved_by(found, *sides)
    shown, first_of = found["records"][0], found["heads"][0]
    assert (shown["projection"]["layer"], shown["head"]) == (first_of["layer"], first_of["head"])
    # As many tokens at other places: cells have no counterparts.
    assert len(first) == len(second) and found["difference"] is None and found["next_words"] is None
    assert record("the cat", "--with", "a cat", "-m", folder)["difference"] is not None
    same = record("the cat", "--with", "the cat", "-m", folder)["records"][0]  # no head moved: the usual one
    assert (same["projection"]["layer"], same["head"]) == (1, "0")
    # A row that may look at nothing in one of two texts does not count.
    before, after = np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([[[0.0, 1.0], [0.5, 0.5]]])
    assert divergences(before, after) == divergences(after, before) == [1.0]
    assert divergences(before[:, 1:], after[:, 1:]) == [0.0]


WRONG = """
-m DEEP => 65 2 layers x 2 heads have no counterparts in 3 layers x 2 heads
-m BERT => 65 The models' tokens part at place 0: 'd' and '[CLS]'.
-m TUNED -m DEEP => 2 two different models | -m BASE => 2 two different models
-m TUNED --vary t=1,2 => 2 all else the same | -m TUNED --with ab => 2 all else the same
-m TUNED --layer all => 2 One layer | -m TUNED --head all => 2 One head | -m TUNED --layer 7 => 2 layer 7
-m TUNED -q dd => 2 'dd' | -m TUNED --seed 3 => 2 --seed
"""


def test_what_does_not_fit_is_one_line_and_what_shares_nothing_is_not_measured(decoders, tmp_path, at):
    deep = by_hand.small_gpt2(tmp_path / "deep", by_hand.gpt2(layers=3), n_layer=3)
    models = (*decoders, deep, by_hand.small_bert(tmp_path / "bert"))
    folders = dict(zip(("BASE", "TUNED", "DEEP", "BERT"), models, strict=True))
    for line, end in cases(WRONG):
        code, said = end.split(" ", 1)
        args = (folders.get(word, word) for word in line)
        assert said in refused("compare", "dabca", "-m", decoders[0], *args, code=int(code))
    shown = told("compare", "abc", "--with", "ddd", "-m", decoders[0])
    assert "no head can be measured" in " ".join(shown.split())
    (tmp_path / "a b").symlink_to(decoders[0])  # a model from a variable or a file is one, whatever its name
    args = ("compare", "dabca", "--vary", "head=0,1", "-f", "json")
    (tmp_path / "attn.toml").write_text('model = "tuned"\n')
    for env, name in (({}, "tuned"), ({"ATTN_MODEL": "a b"}, "a b")):
        ran = here(*args, env=env)
        assert ran.code == 0, ran.err
        assert [side["embedding"]["name"] for side in json.loads(ran.out)["records"]] == [name] * 2
        assert ("settings from attn.toml: model" in ran.err) == (name == "tuned")
