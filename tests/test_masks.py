"""Masks: each rule against its definition, and what True means in a file."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.masks import Mask, from_array, named

lengths = st.integers(1, 8)
laws = settings(max_examples=50, deadline=None, derandomize=True)


def whole(mask):
    return mask.rows(range(mask.n_q))


@laws
@given(lengths, lengths)
def test_causal_lets_a_query_look_at_its_own_number_and_below(n_q, n_k):
    assert whole(named("causal", n_q, n_k)).tolist() == [[j <= i for j in range(n_k)] for i in range(n_q)]


@laws
@given(lengths, lengths)
def test_causal_bottom_right_lets_the_last_query_look_at_all_and_each_before_it_at_one_less(n_q, n_k):
    allowed = whole(named("causal-bottom-right", n_q, n_k))
    assert allowed.sum(axis=1).tolist() == [max(0, n_k - before) for before in reversed(range(n_q))]
    assert (np.diff(allowed.astype(int), axis=1) <= 0).all(), "what may be seen comes first"


@laws
@given(lengths)
def test_both_causal_masks_are_one_where_the_lengths_agree(n):
    np.testing.assert_array_equal(whole(named("causal", n, n)), whole(named("causal-bottom-right", n, n)))


@laws
@given(lengths, lengths, st.integers(0, 9))
def test_a_window_reaches_as_far_as_it_says_to_both_sides(n_q, n_k, size):
    wanted = [[abs(i - j) <= size for j in range(n_k)] for i in range(n_q)]
    assert whole(named(f"window:{size}", n_q, n_k)).tolist() == wanted


@pytest.mark.parametrize("name", ["causal", "causal-bottom-right", "window:2", "a file"])
def test_rows_can_be_had_in_any_order_without_the_rest(name):
    array = np.random.default_rng(0).random((5, 7)) > 0.5
    mask = Mask(name, 5, 7, array if name == "a file" else None)
    np.testing.assert_array_equal(mask.rows([4, 0, 2]), whole(mask)[[4, 0, 2]])


def test_the_mask_none_is_no_mask():
    assert named("none", 3, 3) is None


@pytest.mark.parametrize(
    "name", ["casual", "Causal", "window", "window:", "window:-1", "window:x", "window:N", ""]
)
def test_an_unknown_name_is_wrong_usage_and_the_known_ones_are_listed(name):
    with pytest.raises(UsageError) as refused:
        named(name, 2, 2)
    assert name in refused.value.message
    assert all(known in refused.value.hint for known in ("none", "causal", "causal-bottom-right", "window:N"))
    assert refused.value.option == "--mask"


@pytest.mark.parametrize("name", ["window:N", "casual", "window:-1"])
def test_an_unknown_name_is_refused_as_a_mask_and_not_as_a_file_without_a_polarity(name):
    with pytest.raises(UsageError, match="no mask"):
        trace_self("a b", Settings(embedding="random", mask=name))


ROWS = [[True, False, True], [False, True, True]]


@pytest.mark.parametrize(
    "values",
    [ROWS, np.array(ROWS), np.array(ROWS, dtype=int).tolist(), np.array(ROWS, dtype=float)],
    ids=type,
)
def test_true_means_what_the_file_is_said_to_mean_by_it(values):
    np.testing.assert_array_equal(whole(from_array("m", values, "allowed", 2, 3)), ROWS)
    np.testing.assert_array_equal(whole(from_array("m", values, "blocked", 2, 3)), np.logical_not(ROWS))


@pytest.mark.parametrize(
    "values",
    [
        [[0, 1, 2]],
        [[0.0, -np.inf, 0]],
        [[0.5, 0, 1]],
        [["true", "false", "true"]],
        [[None, True, True]],
        {"a": 1},
    ],
    ids=str,
)
def test_values_that_are_neither_true_nor_false_are_refused(values):
    with pytest.raises(InputError, match="m "):
        from_array("m", values, "allowed", 1, 3)


def test_a_mask_of_another_shape_is_refused_with_both_shapes():
    with pytest.raises(InputError) as refused:
        from_array("m", ROWS, "allowed", 3, 2)
    assert "(2, 3)" in refused.value.message
    assert "3 queries and 2 keys" in refused.value.message


def test_a_mask_whose_rows_differ_in_length_is_refused():
    with pytest.raises(InputError, match="rows differ in length"):
        from_array("m", [[True], [True, False]], "allowed", 2, 2)


# Through the one path


def test_masked_attention_is_causal_unless_another_mask_is_chosen():
    text = "a b c d"
    assert trace_masked(text, Settings(embedding="random")).mask.tolist() == np.tri(4, dtype=bool).tolist()
    chosen = trace_masked(text, Settings(embedding="random", mask="window:0"))
    assert chosen.mask.tolist() == np.eye(4, dtype=bool).tolist()
    assert trace_masked(text, Settings(embedding="random", mask="none")).mask is None


def test_a_mask_file_needs_to_say_what_true_means(tmp_path):
    path = tmp_path / "mask.txt"
    path.write_text("1 0\n1 1\n")
    with pytest.raises(UsageError) as refused:
        trace_self("a b", Settings(embedding="random", mask=str(path)))
    assert refused.value.option == "--mask-true"


def test_both_polarities_of_a_mask_file_are_opposites(tmp_path):
    path = tmp_path / "mask.txt"
    path.write_text("1 0 0\n1 1 0\n0 0 0\n")
    allowed, blocked = (
        trace_self("a b c", Settings(embedding="random", mask=str(path), mask_true=meaning))
        for meaning in ("allowed", "blocked")
    )
    np.testing.assert_array_equal(allowed.mask, np.logical_not(blocked.mask))
    np.testing.assert_array_equal(allowed.weights > 0, allowed.mask)
    assert any("fully masked" in note for note in allowed.notes)
