"""--without: words that are hidden from every query."""

import json

import numpy as np
import pytest

from tests.shell import attn, here

FOX = "The quick brown fox jumped over the lazy dog"


def record(*args: str) -> dict:
    ran = here(*args, "-f", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_word_that_is_off_gets_nothing_and_the_others_share_its_weight():
    before, after = record("self", FOX), record("self", FOX, "--without", "fox")
    assert all(row[3] is False and sum(row) == 8 for row in after["mask"])
    left = np.delete(np.array(before["weights"]), 3, axis=1)
    expected = left / left.sum(axis=1, keepdims=True)  # what softmax leaves of the others
    assert np.allclose(np.delete(np.array(after["weights"]), 3, axis=1), expected, rtol=0, atol=1e-12)
    assert not np.array(after["weights"])[:, 3].any()
    assert any("fox (3)" in note for note in after["notes"])


def test_a_token_is_named_as_for_q_and_the_option_may_be_given_again():
    off = [not may for may in record("self", FOX, "--without", "THE", "--without", "3")["mask"][0]]
    assert [j for j, is_off in enumerate(off) if is_off] == [0, 3, 6]  # no THE: case-blind, both of them


def test_it_joins_the_mask_and_the_padding(tmp_path):
    both = record("masked", "she likes coffee", "--without", "she", "--pad", "1")
    assert both["mask"] == [
        [False] * 4,
        [False, True, False, False],
        [False, True, True, False],
        [False, True, True, False],
    ]
    assert both["mask_name"] == "causal, padding, words off"
    assert both["weights"][0] == [0.0] * 4  # nothing is left to look at


@pytest.mark.parametrize(
    "command",
    [
        ("cross", "she", "likes coffee"),
        ("explain", "she likes coffee"),
        ("lookup", "colour", "coffee=Porche", "color=black"),
    ],
)
def test_every_attention_command_takes_it(command):
    found = record(*command, "--without", "coffee")
    assert [row[found["key_tokens"].index("coffee")] for row in found["mask"]] == [False] * len(found["mask"])


def test_compute_and_batch_take_it():
    given = {"Q": [[1.0], [2.0]], "K": [[1.0], [2.0]], "V": [[1.0], [2.0]], "tokens": ["a", "b"]}
    ran = attn("compute", "-", "--without", "a", "-f", "json", input=json.dumps(given))
    assert json.loads(ran.out)["weights"] == [[0.0, 1.0]] * 2
    ran = attn("batch", "--without", "she", "--fields", "mask", input="she likes coffee\n")
    assert json.loads(ran.out)["mask"] == [[False, True, True]] * 3


def test_two_words_are_compared_as_each_of_them_is_off():
    ran = here("compare", "she likes coffee", "--vary", "without=she,coffee", "-f", "json")
    traces = json.loads(ran.out)["records"]
    assert [one["mask"][0] for one in traces] == [[False, True, True], [True, True, False]]
