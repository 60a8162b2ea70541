"""Shares of attention by pattern, the names that follow from them, and rollout, on weights whose role is known."""

import numpy as np
import pytest

from attn_cli.trace import head_roles
from attn_cli.trace.head_roles import BAG, MIXED, PATTERNS, Pattern, Text, find_patterns, measure

N, HALF = 16, 8
WORDS = [f"w{i}" for i in np.random.default_rng(3).permutation(HALF)]
REPEATED = tuple(WORDS + WORDS)
ALL = np.ones((N, N), np.bool_)
CAUSAL = np.tri(N, dtype=np.bool_)


def looking_at(keys, allowed, share=1.0):
    even = allowed / allowed.sum(axis=1, keepdims=True)
    return share * np.eye(allowed.shape[1])[keys] + (1 - share) * even


def role(weights, allowed=ALL, tokens=REPEATED):
    return measure(weights, allowed, find_patterns(Text(tokens, tokens, True), allowed))


AT = np.arange(N)
KNOWN = {"previous": np.maximum(AT - 1, 0), "itself": AT, "first": AT * 0}
KNOWN |= {"same": np.maximum(AT - HALF, 0), "induction": np.where(AT >= HALF, AT - HALF + 1, 0)}


@pytest.mark.parametrize("allowed", [ALL, CAUSAL], ids=["all", "causal"])
@pytest.mark.parametrize("name", KNOWN)
def test_a_head_that_follows_a_pattern_has_its_name_and_all_of_its_share(name, allowed):
    keys = KNOWN[name]
    if name == "same" and allowed is ALL:  # then the first half can look at the second too
        keys = (AT + HALF) % N
    found = role(looking_at(keys, allowed), allowed)
    assert (found.name, found.share, found.entropy) == (name, 1.0, 0.0)
    weaker = role(looking_at(keys, allowed, 0.8), allowed)
    assert weaker.name == name and weaker.share < 1 and weaker.entropy > 0


def test_next_separators_and_an_even_spread_have_their_names():
    assert role(np.eye(N)[np.minimum(AT + 1, N - 1)]).name == "next"
    even = role(ALL / N)
    assert (even.name, even.share, even.entropy) == (BAG, pytest.approx(1.0), pytest.approx(np.log2(N)))
    tokens = ("[CLS]", "the", "cat", ",", "a", "dog", ".", "[SEP]")
    at = np.array([7, 3, 3, 6, 6, 7, 7, 6])
    found = role(np.eye(8)[at], np.ones((8, 8), np.bool_), tokens)
    assert (found.name, found.share) == ("separators", 1.0)
    # [CLS] frames the text, and is the first
    found = role(np.eye(8)[[0] * 8], np.ones((8, 8), np.bool_), tokens)
    assert (found.name, found.shares["separators"]) == ("first", 0.0)


def test_a_share_is_the_mean_over_the_rows_where_the_pattern_is_possible():
    weights = np.random.default_rng(0).random((N, N)) * CAUSAL
    weights /= weights.sum(axis=1, keepdims=True)
    found = role(weights, CAUSAL)
    by_hand = {
        "previous": [weights[i, i - 1] for i in range(1, N)],
        "itself": [weights[i, i] for i in range(N)],
        "first": [weights[i, 0] for i in range(1, N)],
        "same": [weights[i, i - HALF] for i in range(HALF, N)],
        "induction": [weights[i, i - HALF + 1] for i in range(HALF, N)],
        BAG: [sum(min(w, 1 / (i + 1)) for w in weights[i, : i + 1]) for i in range(1, N)],
    }
    for name, values in by_hand.items():
        assert found.shares[name] == pytest.approx(np.mean(values)), name
    assert found.shares["next"] is None and found.shares["separators"] is None
    assert tuple(found.shares) == (*PATTERNS, BAG)


def test_chance_in_a_short_text_is_no_role_and_two_equal_shares_are_mixed():
    two = np.array([[0.5, 0.5], [0.35, 0.65]])
    assert role(two, np.ones((2, 2), np.bool_), ("a", "b")).name != "itself"
    half = 0.5 * (looking_at(KNOWN["previous"], CAUSAL) + looking_at(AT, CAUSAL))
    assert role(half, CAUSAL).name == MIXED


THRESHOLDS = [  # shares of two patterns, a uniform head's share of them, the rows that have one; bag-of-words; a name
    *((0.75, 0.1, 0.5, 2, 0.0, "previous"), (0.74, 0.1, 0.5, 2, 0.0, MIXED), (0.75, 0.1, 0.5, 1, 0.0, MIXED)),
    *(
        (0.8, 0.7, 0.0, 2, 0.0, "previous"),
        (0.8, 0.71, 0.0, 2, 0.0, MIXED),
        (0.7, 0.8, 0.0, 2, 0.0, "itself"),
    ),
    *((0.1, 0.1, 0.0, 2, 0.8, BAG), (0.1, 0.1, 0.0, 2, 0.79, MIXED), (0.1, 0.1, 0.0, 2, None, MIXED)),
]


@pytest.mark.parametrize(("one", "other", "even", "rows", "bag", "name"), THRESHOLDS)
def test_a_head_is_named_half_way_to_all_and_a_tenth_above_others(one, other, even, rows, bag, name):
    patterns = dict.fromkeys(("previous", "itself"), Pattern(ALL, np.ones(rows, bool), even))
    assert head_roles.named({"previous": one, "itself": other, BAG: bag}, patterns) == name


def test_a_fully_masked_row_does_not_count():
    allowed = CAUSAL.copy()
    allowed[0] = False
    weights = looking_at(AT, CAUSAL)
    weights[0] = 0
    found = role(weights, allowed)
    assert (found.name, found.share, found.entropy) == ("itself", 1.0, 0.0)
    assert role(allowed / N, allowed).entropy == pytest.approx(np.mean(np.log2(np.arange(2, N + 1))))
    nothing = role(np.zeros((N, N)), np.zeros((N, N), np.bool_))
    assert nothing.name == MIXED and nothing.entropy is None and set(nothing.shares.values()) == {None}
    np.testing.assert_allclose(head_roles.rolled_out(None, np.zeros((1, 4, 4))), np.eye(4))


def test_two_texts_have_no_places_in_common_and_unknown_tokens_no_words():
    allowed = np.ones((2, 3), np.bool_)
    patterns = find_patterns(Text(("▁b", "c"), ("a", "ĠB", "c"), False), allowed)
    found = measure(np.eye(3)[[1, 2]], allowed, patterns)
    assert (found.name, found.share) == ("same", 1.0)
    assert all(found.shares[name] is None for name in ("previous", "next", "itself", "induction"))
    unknown = measure(np.eye(N), ALL, find_patterns(Text(None, None, True), ALL))
    assert unknown.name == "itself"
    assert all(unknown.shares[name] is None for name in ("separators", "same", "induction"))


def test_punctuation_and_what_frames_a_text_separate():
    assert all(map(head_roles.is_separator, ("[SEP]", "</s>", ",", "Ġ.", "▁", "—")))
    assert not any(map(head_roles.is_separator, ("cat", "##s", "[UNK]", "Ġ3")))


def test_block_means_are_the_means_of_what_is_allowed():
    weights = np.random.default_rng(2).random((2, 7, 7))
    allowed = np.tri(7, dtype=np.bool_)
    found = head_roles.block_means(weights, allowed, 3, 4)
    rows, columns = ([i * 7 // n for i in range(n)] + [7] for n in (3, 4))
    for h, r, c in np.ndindex(2, 3, 4):
        cell = np.s_[rows[r] : rows[r + 1], columns[c] : columns[c + 1]]
        inside = weights[h][cell][allowed[cell]]
        assert found[h, r, c] == pytest.approx(inside.mean()) if inside.size else np.isnan(found[h, r, c])
    np.testing.assert_allclose(head_roles.block_means(weights, np.ones((7, 7), np.bool_), 7, 7), weights)
