"""The mask by itself: in words, as each framework writes it, and what it does to scores and weights.

What frameworks make of a fully masked row was measured with torch 2.13.0 and Keras 3.15.1 (on torch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core import masks
from attn_cli.core.attention import softmax
from attn_cli.core.mask_rules import MASKS, find_rule
from attn_cli.io.plural import count
from attn_cli.render.blocks import Beside, Block, Formula, Heading, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.views.long_text import block_map
from attn_cli.render.views.wording import closing, told_apart
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

MOST_ROWS, MOST_COLUMNS = 24, 40
MOST_NAMED, FIRST_NAMED, LAST_NAMED = 12, 6, 4
BEFORE = 3  # rows that see nothing, above the first that sees something
FEW = 8  # rows and columns at a corner
CORNERS = [(name, f"{rule.corner}: --mask {name}") for name, rule in MASKS.items() if rule.corner]
TRUE_FALSE, ADDED = ("F", "T"), ("-inf", "0")
SHUT = (
    "attn: weights and output are zeros, and a note says so.",
    "By hand: exp(-inf) is 0 for every key, the sum is 0, and 0/0 is NaN.",
    "torch scaled_dot_product_attention: the output is zeros (2.13.0); older versions gave NaN.",
    "torch MultiheadAttention: NaN with need_weights=True, which is its default; zeros with False (2.13.0).",
    "Keras MultiHeadAttention: zeros with return_attention_scores=True; without, the plain mean of all values, "
    "hidden ones too (3.15.1 on torch).",
    "Keras Attention: the same weight for every key, hidden ones too: it subtracts 1e9 from each masked score, "
    "and where that is every score, it cancels out (3.15.1).",
)


def mask_lab(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the mask in words, as booleans, as numbers to add, what it does, and its special cases."""
    rows = _rows(trace)
    allowed = _allowed(trace, rows)
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    name = "No mask" if trace.mask_name == "none" else f"The mask: {trace.mask_name}"
    size = f"{count(n_q, 'query (row)', 'queries (rows)')} x {count(n_k, 'key (column)', 'keys (columns)')}"
    yield Heading(f"{name}; {size}", 1)
    for sentence in _rules(trace):
        yield Say(sentence)
    yield Heading("In words")
    for sentence in _words(trace, rows, allowed):
        yield Say(sentence)
    columns = _columns(trace, rows, allowed)
    if len(rows) < len(trace.listed) or len(columns) < n_k:
        which = f" ({columns.start:,} to {columns.stop - 1:,})" if columns.start else ""
        those = f" ({rows[0]:,} to {rows[-1]:,})" if _are_moved(trace, rows) else ""
        yield Say(
            f"These are {len(rows):,} of {len(trace.listed):,} rows{those}, and below {len(columns):,} of {n_k:,} "
            f"columns{which}; -q WORD shows any row."
        )
    if trace.long_view is not None and trace.mask is not None:
        yield Heading("As a map")
        yield from block_map(trace, trace.long_view, view, is_mask=True)
    yield from _booleans(trace, rows, columns, allowed[:, _slice(columns)])
    yield Heading("As numbers added to the scores")
    yield _square(trace, rows, columns, allowed[:, _slice(columns)].astype(float), marks=ADDED)
    yield Say("Adding -inf hides a key, because exp(-inf) is 0; adding 0 changes nothing.")
    yield from _before_and_after(trace, rows, columns)
    yield from _corners(trace, rows, columns)
    yield from _shut(trace, rows, allowed)
    yield from closing(trace, with_learned=False)
    idle = [name for name, is_set in (("--steps", view.steps), ("--top", trace.settings.top)) if is_set]
    for name in idle:
        yield Say(f"Note: {name} has no effect with --show mask.")


def _rows(trace: Trace) -> list[int]:
    """Return the queries to show: those whose mask is at hand, not too many.

    Where the first ones may look at nothing, they are those from just before the first that may.
    """
    if trace.condensed:
        return [i for i in trace.listed if i in trace.focus][:MOST_ROWS]
    listed = list(trace.listed)
    if trace.asked or trace.mask is None or trace.mask[listed[:MOST_ROWS]].any():
        return listed[:MOST_ROWS]
    seeing = np.flatnonzero(trace.mask[listed].any(axis=1))
    start = max(0, int(seeing[0]) - BEFORE) if len(seeing) else 0
    return listed[start : start + MOST_ROWS]


def _are_moved(trace: Trace, rows: Sequence[int]) -> bool:
    """Tell whether these rows are not the first of all: then they are named by their places."""
    return not trace.condensed and rows[0] != trace.listed[0]


def _allowed(trace: Trace, rows: Sequence[int]) -> Bools:
    if trace.mask is None:
        return np.ones((len(rows), len(trace.key_tokens)), dtype=np.bool_)
    return trace.mask[[trace.held(i) for i in rows]]


def _columns(trace: Trace, rows: Sequence[int], allowed: Bools) -> range:
    """Return the keys to show: the first ones; of a long text those where the first row's mask has its end."""
    n_k = len(trace.key_tokens)
    if not trace.condensed:
        return range(min(MOST_COLUMNS, n_k))
    open_keys = np.flatnonzero(allowed[0])
    middle = int(open_keys[-1]) if 0 < len(open_keys) < n_k else rows[0]
    start = max(0, min(middle - MOST_COLUMNS // 2, n_k - MOST_COLUMNS))
    return range(start, min(start + MOST_COLUMNS, n_k))


def _slice(columns: range) -> slice:
    return slice(columns.start, columns.stop)


def _rules(trace: Trace) -> list[str]:
    """Return the rules that the mask follows, in words."""
    rule = trace.mask_name
    if trace.pad_keys:
        rule = "" if rule == "padding" else rule.removesuffix(", padding")
    found = find_rule(rule)
    told = [] if not rule else None if found is None else [found[0].words(trace.is_self, *found[1])]
    if told is None:
        meaning = f" True in it means {trace.settings.mask_true}." if trace.settings.mask_true else ""
        told = [f"The mask comes from {rule}.{meaning}"]
    if trace.pad_keys:
        told = [*told, "No token may look at padding; where padding itself looks does not matter."]
    return told


def _words(trace: Trace, rows: Sequence[int], allowed: Bools) -> list[str]:
    """Return for each query whom it may look at, in a sentence."""
    return [_sentence(trace, i, may) for i, may in zip(rows, allowed, strict=True)]


def _sentence(trace: Trace, i: int, may: Bools) -> str:
    query = told_apart(trace.query_tokens, i)
    open_keys = np.flatnonzero(may).tolist()
    if not open_keys:
        return f"{query} may look at nothing."
    names = [told_apart(trace.key_tokens, j) for j in open_keys]
    if len(names) > MOST_NAMED:
        names = [*names[:FIRST_NAMED], "...", *names[-LAST_NAMED:]]
    return f"{query} may look at {', '.join(names)} ({len(open_keys):,} of {len(may):,})."


def _square(
    trace: Trace, rows: Sequence[int], columns: range, values: Array, marks: tuple[str, str] | None = None
) -> Matrix:
    """Return these rows and columns as a matrix; columns from the middle of a text are named by their numbers."""
    names = [trace.query_tokens[i] for i in rows]
    if columns.start or _are_moved(trace, rows):
        names = [f"{i} {name}" for i, name in zip(rows, names, strict=True)]
    return Matrix(
        names,
        list(map(str, columns)) if columns.start else trace.key_tokens[_slice(columns)],
        values,
        corner="query\\key",
        shaded=True,
        row_numbers=None if columns.start or _are_moved(trace, rows) else rows,
        marks=marks,
    )


def _booleans(trace: Trace, rows: Sequence[int], columns: range, allowed: Bools) -> Iterator[Block]:
    yield Heading("As booleans: what True means differs")
    polarities = (
        ("torch SDPA: T may attend", allowed),
        ("torch MHA: T is blocked", ~allowed),
        ("Keras: T may attend", allowed),
    )
    yield Beside(
        [name for name, _ in polarities],
        [_square(trace, rows, columns, values.astype(float), marks=TRUE_FALSE) for _, values in polarities],
    )
    yield Formula("scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=mask)", "torch SDPA:")
    yield Formula("MultiheadAttention(...)(query=q, key=k, value=v, attn_mask=~mask)", "torch MHA:")
    yield Formula("MultiHeadAttention(...)(query=q, value=v, key=k, attention_mask=mask)", "Keras:")
    if trace.pad_keys and trace.condensed:
        first, last = trace.pad_keys[0], trace.pad_keys[-1]
        yield Say(
            f"torch MHA also takes padding separately: key_padding_mask has {len(trace.key_tokens):,} booleans, and is "
            f"True from {first:,} to {last:,}."
        )
    elif trace.pad_keys:
        places = ["T" if j in trace.pad_keys else "F" for j in columns]
        yield Formula(
            f"key_padding_mask = [{' '.join(places)}], True = padding",
            "torch MHA also takes padding separately:",
        )
    yield Say(
        "With the wrong polarity, every query sees exactly what it should not, and no error is raised."
    )


def _before_and_after(trace: Trace, rows: Sequence[int], columns: range) -> Iterator[Block]:
    """Yield scores before and after the mask, and the weights that the softmax makes of them."""
    head = trace.heads[0] if trace.shown.scores is None else trace.shown
    assert head.scaled_scores is not None
    yield Heading("Before the softmax")
    if len(trace.head_names) > 1:
        yield Say(f"These are the numbers of head {head.name}.", quiet=True)
    held = [trace.held(i) for i in rows]
    scores = head.scaled_scores[held]
    if head.position_scores is not None:
        scores = scores + head.position_scores[held]
    allowed = _allowed(trace, rows)
    few = _slice(columns)
    names = [f"scaled{' + position' if head.position_scores is not None else ''}", "masked"]
    sides = [scores[:, few], np.where(allowed, scores, np.nan)[:, few]]
    if trace.mask is None:
        names, sides = names[:1], sides[:1]
    yield Beside(names, [_square(trace, rows, columns, side) for side in sides])
    yield Heading("After the softmax")
    weights = head.weights[held]
    shown = np.where(allowed, weights, np.nan)[:, few]
    sums = [f"{total:.3f}" for total in weights.sum(axis=1)]
    yield _square(trace, rows, columns, shown)._replace(is_weights=True, sums=sums)
    yield from _too_late(trace, rows, scores, allowed)


def _too_late(trace: Trace, rows: Sequence[int], scores: Array, allowed: Bools) -> Iterator[Block]:
    """Yield what would be left of the row that loses most, were the mask put on after the softmax."""
    left = np.where(allowed, softmax(scores), 0).sum(axis=1)
    partly = np.flatnonzero(allowed.any(axis=1) & ~allowed.all(axis=1))
    if not len(partly):
        return
    at = int(partly[np.argmin(left[partly])])
    yield Say(
        f"The mask comes before the softmax, so that each row still sums to one. Applied after it, the row of "
        f"{told_apart(trace.query_tokens, rows[at])} would sum to {share(float(left[at]))}."
    )


def _corners(trace: Trace, rows: list[int], columns: range) -> Iterator[Block]:
    """Yield both causal masks where there are not as many queries as keys."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    if n_q == n_k:
        if any(trace.mask_name.startswith(name) for name, _ in CORNERS):
            yield Heading("Top-left or bottom-right")
            yield Say(
                "With as many keys as queries both causal masks are the same; attn cross TEXT CONTEXT --show "
                "mask shows them side by side."
            )
        return
    yield Heading("Causal with unequal lengths: which corner?")
    if n_q <= MOST_ROWS and n_k <= MOST_COLUMNS:
        parts = [_corner(trace, name, rows, columns) for name, _ in CORNERS]
        yield Beside([title for _, title in CORNERS], parts)
    else:  # each where its corner is
        high, wide = min(FEW, n_q), min(FEW, n_k)
        ends = (range(high), range(wide)), (range(n_q - high, n_q), range(n_k - wide, n_k))
        for (name, title), (few_rows, few_columns) in zip(CORNERS, ends, strict=True):
            yield Say(f"{title}, {_span(few_rows, 'queries')} and {_span(few_columns, 'keys')}:")
            yield _corner(trace, name, few_rows, few_columns)
    if trace.pad_keys:
        yield Say("Here padding counts as keys, and is not hidden yet.", quiet=True)
    yield Say(
        f"Top-left: the first query sees the first key alone, the last one {min(n_q, n_k):,} of {n_k:,}. torch "
        "(is_causal=True) and Keras (use_causal_mask=True) do this."
    )
    shut = n_q - n_k
    blind = f", and the first {count(shut, 'query sees', 'queries see')} nothing" if shut > 0 else ""
    yield Say(
        f"Bottom-right: the last query sees every key{blind}. flash-attention has done this since 2.1: the queries "
        "are the end of a longer text."
    )


def _corner(trace: Trace, name: str, rows: Sequence[int], columns: range) -> Matrix:
    """Return these rows and columns of a causal mask."""
    mask = masks.named(name, len(trace.query_tokens), len(trace.key_tokens))
    assert mask is not None
    return _square(
        trace, rows, columns, mask.rows(list(rows))[:, _slice(columns)].astype(float), marks=TRUE_FALSE
    )


def _span(places: range, what: str) -> str:
    return f"{what} {places[0]:,} to {places[-1]:,}"


def _shut(trace: Trace, rows: Sequence[int], allowed: Bools) -> Iterator[Block]:
    """Yield what becomes of rows in which nothing is allowed, or how to see one."""
    shut = [rows[at] for at in np.flatnonzero(~allowed.any(axis=1)).tolist()]
    yield Heading("A fully masked row")
    if not shut:
        yield Say("No row shown here is fully masked; --pad 2 --pad-side left under a causal mask makes two.")
        return
    names = [told_apart(trace.query_tokens, i) for i in shut[:LAST_NAMED]]
    more = f" and {len(shut) - LAST_NAMED} more" if len(shut) > LAST_NAMED else ""
    yield Say(f"Every key is masked for {', '.join(names)}{more}. What becomes of such a row:")
    for sentence in SHUT:
        yield Say(sentence)


def mask_views(trace: Trace) -> dict[str, object] | None:
    """Return the mask as each framework writes it, for JSON, over the queries shown; None if it is not all at hand.

    -inf, which JSON has no word for, is None.
    """
    if trace.condensed:
        return None
    allowed = _allowed(trace, trace.listed)
    pads = trace.pad_keys
    return {
        "words": _words(trace, trace.listed, allowed),
        "torch_sdpa": allowed.tolist(),
        "torch_mha": (~allowed).tolist(),
        "keras": allowed.tolist(),
        "key_padding": [j in pads for j in range(len(trace.key_tokens))] if pads else None,
        "additive": [[0.0 if may else None for may in row] for row in allowed.tolist()],
    }
