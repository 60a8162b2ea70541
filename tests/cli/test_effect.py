"""attn effect: parts that sum to the logit, the word they are of, heads knocked out, and what it refuses."""

import csv
import json
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_masked
from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2
from tests.schema import printed
from tests.shell import here, plain

TEXT = "The cat sat on the"
TABLE, DOG = ("--target", "table"), ("--against", "dog")


def told(*args):
    found = printed("effect", *args)
    parts = [one["value"] for one in found["parts"]]
    assert found["sum"] == pytest.approx(sum(parts))
    if found["softcap"] is None:
        assert found["sum"] == pytest.approx(found["logit"], rel=1e-5, abs=1e-6 * sum(map(abs, parts)))
    return found


def test_the_language_model_s_parts_sum_to_the_logit_of_the_word_that_it_says():
    found, trace = told(TEXT), trace_masked(TEXT, Settings(next=3))
    said = trace.next_words.words[0]
    assert found["target"] == {"token": said.word, "id": said.id} and found["against"] is None
    assert (found["logit"], found["probability"]) == pytest.approx((said.logit, said.probability), rel=1e-4)
    assert (found["place"], found["rank"], found["query_tokens"]) == (4, 1, TEXT.split())
    kinds = {one["part"] for one in found["parts"]}
    assert kinds >= {"head", "mlp", "attention bias", "embedding", "norm bias", "output bias"}
    assert len([one for one in found["parts"] if one["part"] == "head"]) == 24
    moved = found["moved"]
    assert moved["value"] == pytest.approx(sum(moved["values"]), rel=1e-4)
    assert abs(moved["value"]) == max(abs(one["value"]) for one in found["parts"] if one["part"] == "head")


def test_a_difference_is_that_of_two_words_parts():
    table, dog, both = told(TEXT, *TABLE), told(TEXT, "--target", "dog"), told(TEXT, *TABLE, *DOG)
    assert both["against"] == dog["target"] and dog["rank"] > 1
    for first, second, less in zip(table["parts"], dog["parts"], both["parts"], strict=True):
        assert less["value"] == pytest.approx(first["value"] - second["value"], abs=1e-5)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    return small_gpt2(tmp_path_factory.mktemp("effect") / "letters", gpt2(places=20))


@pytest.mark.parametrize("more", [(), ("--knock-out-with", "mean")])
def test_a_model_without_a_head_is_the_model_whose_w_o_has_nothing_for_it(letters, tmp_path, more):
    found = told("ab ab", "-m", letters, "--target", "b", "--measure", "knock-out", *more)
    assert [(one["layer"], one["head"]) for one in found["knock_outs"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    if not more:
        T = gpt2(places=20)
        W = T["h.0.attn.c_proj.weight"]
        T["h.0.attn.c_proj.weight"] = np.concatenate([W[:4], np.zeros_like(W[4:])])  # nothing for head 1
        without = told("ab ab", "-m", small_gpt2(tmp_path / "without", T), "--target", "b")
        for name in ("logit", "probability"):
            assert found["knock_outs"][1][name] == pytest.approx(without[name], rel=1e-4)
    assert {one["logit"] for one in found["knock_outs"]}.isdisjoint({found["logit"]})


def test_a_head_that_copies_and_one_that_gives_nothing_are_told_apart(tmp_path):
    """Both attend alike; head 0 writes each word's own vector into the stream, head 1 nothing."""
    T = {name: M.copy() for name, M in gpt2(places=20).items()}
    for n in (0, 1):
        T[f"h.{n}.mlp.c_proj.weight"][:] = 0
        T[f"h.{n}.attn.c_proj.weight"][4:] = 0
    found = told("ab ab", "-m", small_gpt2(tmp_path / "copies", T), "--measure", "knock-out")
    heads = {(one["layer"], one["head"]): one["value"] for one in found["parts"] if one["part"] == "head"}
    left = {(one["layer"], one["head"]): one["logit"] - found["logit"] for one in found["knock_outs"]}
    for layer in (0, 1):
        assert heads[layer, 1] == left[layer, 1] == 0
        assert abs(heads[layer, 0]) > 1e-3 < abs(left[layer, 0])


def test_the_word_is_the_likeliest_that_has_a_vector_as_in_every_other_view():
    found = told("the")  # [unknown], all other words as one, is likelier than any
    last = json.loads(here("lens", "the", "-f", "json").out)["layers"][-1]["positions"][0]
    first, second, *_ = last["words"]
    assert (found["target"]["id"], found["rank"]) == (first["id"], 1)
    assert told("the", "--target", "[unknown]")["probability"] > found["probability"]
    assert "rank 2 among its words" in plain(here("effect", "the", "--target", second["word"]).out)


def test_a_table_has_every_part_and_a_screen_what_a_head_adds_and_what_is_lost_without_it():
    ran = here("effect", TEXT, "--measure", "knock-out", "-f", "csv")
    table = list(csv.DictReader(ran.out.splitlines()))
    found = told(TEXT, "--measure", "knock-out")
    assert [float(row["value"]) for row in table] == pytest.approx([one["value"] for one in found["parts"]])
    left = [float(row["logit_without"]) for row in table if row["logit_without"]]
    assert left == pytest.approx([one["logit"] for one in found["knock_outs"]], rel=1e-5)
    screen = plain(here("effect", TEXT, "--measure", "knock-out", "--width", "80").out)
    assert 'What says "table", after "the"' in screen and "model's own" in screen
    assert max(map(len, screen.splitlines())) <= 80
    screen = plain(here("effect", "in the village of", "--target", "[unknown]", "--measure", "knock-out").out)
    adds, lost = re.search(r"adds (\S)\S+; without it (\S)\S+ is lost\.$", screen.strip()).groups()
    assert adds != lost
    screen = plain(here("effect", TEXT, "--measure", "knock-out", "--knock-out-with", "mean").out)
    assert "misses it" not in screen and "its mean over the text" in screen.splitlines()[-1]


def test_an_encoder_says_what_stands_in_its_mask_s_place(tmp_path):
    model = small_bert(tmp_path / "bert")
    found = told("the [MASK] sat", "-m", model)
    assert found["fills"] and found["query_tokens"][found["place"]] == "[MASK]"
    assert {"segment", "position", "output layer bias"} <= {one["part"] for one in found["parts"]}
    ran = here("effect", "the [MASK] sat", "-m", model)
    assert "in place of" in ran.out and "held as a ratio" in plain(ran.out).replace("\n", " ")
    assert here("effect", "the cat sat", "-m", model).code == 65
    assert told("the [MASK]", "-m", model, "--target", "##s")["target"]["token"] == "##s"  # as errors name it
    said = here("effect", "the [MASK]", "-m", model, "--target", "qqz").err
    assert "qqz is not in the vocabulary of bert" in said
