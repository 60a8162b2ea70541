"""A pair of texts in one sequence of an encoder: what every command and format shows of it."""

import json

import numpy as np
import pytest

from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import small_bert
from tests.pipeline.records import record
from tests.shell import here

A, B = "the cats", "walking home"
TOKENS_A, TOKENS_B = ["[CLS]", "the", "cat", "##s", "[SEP]"], ["walk", "##ing", "home", "[SEP]"]
pytestmark = pytest.mark.usefixtures("tokenizers")


@pytest.fixture
def folder(at):
    return small_bert(at / "bert")


def pair(folder, *options, text=A, second=B, command="self"):
    return record(command, text, "--pair", second, "-m", folder, *options)


def test_both_texts_are_one_sequence_with_their_segments(folder):
    found = pair(folder)
    assert found["query_tokens"] == found["key_tokens"] == TOKENS_A + TOKENS_B
    assert found["query_segments"] == found["key_segments"] == [0] * 5 + [1] * 4
    assert "A pair in one sequence: text a is tokens 0 to 4, b 5 to 8." in found["notes"]
    typed = record("self", "the cats [SEP] walking home", "-m", folder)
    assert typed["query_tokens"] == found["query_tokens"] and typed["query_segments"] is None
    assert np.abs(np.subtract(typed["weights"], found["weights"])).max() > 0.01  # the second segment counts
    assert pair(folder, "-q", "home")["query_segments"] == [1]


@pytest.mark.parametrize("between", ["a-a", "a-b", "b-a", "b-b"])
def test_a_part_is_a_block_of_the_whole_in_every_command(between, folder, at):
    whole = np.array(pair(folder)["weights"])
    parts = {"a": (slice(0, 5), TOKENS_A), "b": (slice(5, 9), TOKENS_B)}
    (rows, queries), (columns, keys) = (parts[side] for side in between.split("-"))
    found = pair(folder, "--between", between)
    assert (found["query_tokens"], found["key_tokens"], found["score"]) == (queries, keys, None)
    assert_alike(found["weights"], whole[rows, columns].tolist(), FLOAT32)
    again = pair(folder, "--between", between, "--renormalize")
    np.testing.assert_allclose(np.sum(again["weights"], axis=1), 1)
    heads = pair(folder, "--between", between, command="heads")
    assert (heads["query_tokens"], heads["key_tokens"]) == (queries, keys)
    first = heads["layers"][1]["heads"][0]["shares"]["first"]
    rows_of_first = found["weights"][1:] if between in ("a-a", "b-b") else found["weights"]
    assert first == pytest.approx(np.mean([row[0] for row in rows_of_first]), abs=FLOAT32)
    (at / "lines.tsv").write_text(f"{A}\t{B}\nthe\t{B} home\ncats\thome\n")  # two of nine tokens
    ran = here("batch", "lines.tsv", "--kind", "pair", "-m", folder, "--between", between)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert_alike(lines[0]["weights"], found["weights"], FLOAT32)
    assert_alike(
        lines[1]["weights"],
        pair(folder, "--between", between, text="the", second=f"{B} home")["weights"],
        FLOAT32,
    )
    for name, options in (("page.html", ()), ("links.svg", ("--figure", "links"))):
        ran = here("self", A, "--pair", B, "-m", folder, "--between", between, *options, "-o", name)
        assert ran.code == 0 and (at / name).stat().st_size > 1000


def test_words_and_special_tokens_of_a_part(folder):
    joined = pair(folder, "--between", "b-a", "--join-pieces", "--hide-special")
    assert (joined["query_tokens"], joined["key_tokens"]) == (["walking", "home"], ["the", "cats"])
    whole = np.array(pair(folder)["weights"])[5:8, 1:4]
    summed = np.stack([whole[:, 0], whole[:, 1:].sum(axis=1)], axis=1)
    assert_alike(joined["weights"], [summed[:2].mean(axis=0).tolist(), summed[2].tolist()], FLOAT32)
    screen = here("self", A, "--pair", A, "-m", folder, "--between", "a-b").out
    assert "itself" not in screen and "from text a to text b" in screen  # the same words, twice
    assert "attn self TEXT --head all -m DIR --pair TEXT --between a-b" in " ".join(screen.split())


def test_a_gap_is_filled_with_both_texts_in_sight_and_words_that_are_lacking_named_from_both(folder):
    alone = record("self", "the [MASK]", "-m", folder, "--next", "3")["next_words"]
    beside = pair(folder, "--next", "3", text="the [MASK]")["next_words"]
    assert len(beside) == 3 and beside[0]["probability"] != pytest.approx(alone[0]["probability"])
    notes = pair(folder, text="the zebra", second="a lion home")["notes"]
    assert any('"zebra", "lion" are not in the vocabulary' in note for note in notes)
