"""Masks: each rule against its definition, and what True means in a file."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from attn_cli import Settings, trace_self
from attn_cli.core.masks import Mask, joined, mask_examples, named, rule_in, rule_named, widened, with_padding
from attn_cli.errors import InputError, UsageError
from attn_cli.pipeline.mask import mask_from_values
from tests.thorough import often

lengths = st.integers(1, 8)
laws = settings(max_examples=often(50), deadline=None, derandomize=True)


def whole(mask):
    return mask.rows(range(mask.n_q))


RULES = {  # by name, with a and b for its numbers: whether query i may look at key j
    "causal": lambda i, j, n_q, n_k, a, b: j <= i,
    "causal-bottom-right": lambda i, j, n_q, n_k, a, b: n_k - 1 - j >= n_q - 1 - i,
    "window:{}": lambda i, j, n_q, n_k, a, b: abs(i - j) <= a,
    "window:{}:{}": lambda i, j, n_q, n_k, a, b: i - a <= j <= i + b,
}


@laws
@given(st.sampled_from([*RULES]), lengths, lengths, st.integers(0, 9), st.integers(0, 9))
def test_a_rule_lets_a_query_look_where_its_definition_says(name, n_q, n_k, a, b):
    wanted = [[RULES[name](i, j, n_q, n_k, a, b) for j in range(n_k)] for i in range(n_q)]
    assert whole(named(name.format(a, b), n_q, n_k)).tolist() == wanted
    assert named("none", n_q, n_k) is None
    rule, numbers = rule_named(name.format(a, b))  # and so do a script's line and a page's, read as Python
    known = {"np": np, "n_q": n_q, "n_k": n_k, "a": a, "b": b, "abs": abs}
    np.testing.assert_array_equal(eval(rule.lines["numpy"].format(*numbers), known), wanted)
    on_page = rule.javascript.replace("Math.abs", "abs").replace("&&", "and")
    assert [[eval(on_page, known | {"i": i, "j": j}) for j in range(n_k)] for i in range(n_q)] == wanted


UNKNOWN = "casual Causal causal:1 window window: window:-1 window:x window:N window:1:2:3 window:1: window::1"
UNKNOWN += " window:1:-1 window:1000000000 window:\u0661"


@pytest.mark.parametrize("name", [*UNKNOWN.split(), ""])
def test_an_unknown_name_is_wrong_usage_and_the_known_ones_are_listed(name):
    with pytest.raises(UsageError, match="There is no mask") as refused:
        named(name, 2, 2)
    assert name in refused.value.message and refused.value.option == "--mask"
    known = "none, causal, causal-bottom-right, window:N, window:L:R (N, L, R: 0 or more)"
    assert known in refused.value.hint
    if name:  # it is refused as a mask, and not as a file without a polarity
        with pytest.raises(UsageError, match="no mask"):
            trace_self("a b", Settings(embedding="random", mask=name))


TOLD = {  # of one text
    "none": "Every query may look at every key.",
    "causal": "Query i may look at the keys 0 to i: at itself and back.",
    "causal-bottom-right": "The last query may look at every key, and each query before it at one key less.",
    "window:0": "A query may look at keys that stand at most 0 places away.",
    "window:1": "A query may look at keys that stand at most 1 place away.",
    "window:1200": "A query may look at keys that stand at most 1,200 places away.",
    "window:2:3": "A query may look at the keys from 2 places before its own to 3 places after it.",
    "window:0:1": "A query may look at the keys from its own place to 1 place after it.",
}


def test_a_rule_is_told_in_words_and_has_an_example():
    for name, said in TOLD.items():
        rule, numbers = rule_named(name)
        assert rule.words(True, *numbers) == said
        assert rule.words(False, *numbers) == said.replace(": at itself and back", "")
    assert mask_examples() == ("none", "causal", "causal-bottom-right", "window:1", "window:1:1")


def test_a_label_names_all_that_is_hidden_and_the_rule_is_found_in_it():
    for rule in ("none", "causal", "window:1:2"):
        for padding, excluded in ((range(0), ()), (range(1, 2), ()), (range(0), (0,)), (range(1, 2), (0, 1))):
            label = Mask(rule, 3, 3, padding=padding, excluded=excluded).label
            parts = [rule] * (rule != "none") + ["padding"] * len(padding) + ["words off"] * bool(excluded)
            assert label == ", ".join(parts) and rule_in(label or rule) == rule


def test_of_several_masks_the_one_of_most_keys_stands_for_all():
    masks = [with_padding(None, 2, 4, range(3, 4)), named("causal", 2, 3)]
    for found in (joined(masks), joined(masks[::-1])):
        assert found.n_k == 4 and whole(found).tolist() == [[True, *[False] * 3], [True, True, False, False]]
    assert joined([]) is None


def test_a_mask_of_a_part_allows_all_around_it_and_keeps_its_name():
    found = widened(named("causal", 2, 2), 3, 4, range(1, 3), range(2, 4))
    assert whole(found).tolist() == [[True] * 4, [True, True, True, False], [True] * 4]
    assert (found.name, found.n_q, found.n_k) == ("causal", 3, 4)


# Some rows and some keys of a mask, for those who go over it tile by tile


@st.composite
def masks_and_rows(draw):
    """A mask of any rule, with padding or without, or several at once, and a block of its rows."""
    n_q, n_k = draw(lengths), draw(lengths)
    masks = [one_mask(draw, n_q, n_k) for _ in range(draw(st.sampled_from([1, 1, 2, 3])))]
    start = draw(st.integers(0, n_q - 1))
    return masks, start, draw(st.integers(start + 1, n_q))


def one_mask(draw, n_q, n_k):
    rule = draw(st.sampled_from(["none", "causal", "causal-bottom-right", "window", "window:L:R", "array"]))
    if rule == "array":
        numbers = np.random.default_rng(draw(st.integers(0, 99))).random((n_q, n_k))
        mask = Mask("given", n_q, n_k, numbers < draw(st.sampled_from([0.1, 0.5, 1.0])))
    else:
        numbers = [draw(st.integers(0, 12)) for _ in range({"window": 1, "window:L:R": 2}.get(rule, 0))]
        mask = named(":".join([rule.partition(":")[0], *map(str, numbers)]), n_q, n_k)
    if mask is None or draw(st.booleans()):
        start = draw(st.integers(0, n_k))
        mask = with_padding(mask, n_q, n_k, range(start, draw(st.integers(start, n_k))))
    return mask


@settings(max_examples=often(300), deadline=None, derandomize=True)
@given(masks_and_rows(), st.data())
def test_the_spans_the_tiles_and_the_rows_of_a_mask_are_those_of_the_whole(given_mask, data):
    masks, start, stop = given_mask
    mask, every = joined(masks), np.logical_and.reduce([whole(one) for one in masks])
    np.testing.assert_array_equal(whole(mask), every)  # where all allow
    seen, n_k = every[start:stop], mask.n_k
    low, high, sure = mask.spans(start, stop)
    assert 0 <= low <= high and not seen[:, :low].any() and not seen[:, high:].any()
    assert seen[:, max(low, sure.start) : min(high, sure.stop)].all()
    if all(one.array is None and not one.padding for one in masks):  # of rules alone nothing is left out
        assert seen.all(axis=0).sum() == len(range(max(low, sure.start), min(high, sure.stop)))
    low = data.draw(st.integers(0, n_k - 1))
    high = data.draw(st.integers(low + 1, n_k))
    tile = np.ones((stop - start, high - low), bool)
    for columns, hidden in mask.hidden(range(start, stop), low, high, sure):
        tile[:, columns] = ~hidden
    np.testing.assert_array_equal(tile, seen[:, low:high])
    rows = [*range(start, stop)][::-2]
    np.testing.assert_array_equal(mask.rows(rows, low, high), whole(mask)[rows, low:high])


MISFITS = [
    *((values, 1, 3, "m ") for values in ([[0, 1, 2]], [[0.0, -np.inf, 0]], [[0.5, 0, 1]], {"a": 1})),
    *((values, 1, 3, "m ") for values in ([["true", "false", "true"]], [[None, True, True]])),
    ([[True, False, True], [False, True, True]], 3, 2, r"\(2, 3\).*3 queries and 2 keys"),
    ([[True], [True, False]], 2, 2, "rows differ in length"),
]


@pytest.mark.parametrize(("values", "n_q", "n_k", "said"), MISFITS, ids=str)
def test_values_that_are_no_mask_of_this_shape_are_refused(values, n_q, n_k, said):
    with pytest.raises(InputError, match=said):
        mask_from_values("m", values, "allowed", n_q, n_k)
