"""The mask by itself: in words, as each framework writes it, and what it does to scores and weights.

What frameworks make of a fully masked row was measured with torch 2.13.0 and Keras 3.15.1 (on torch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core import masks
from attn_cli.core.attention import softmax
from attn_cli.core.masks import MASKS, find_rule
from attn_cli.io.escape import count
from attn_cli.render.blocks import Beside, Block, Formula, Heading, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.screen.text import listed
from attn_cli.render.views.closing import closing
from attn_cli.render.views.long_text import block_map
from attn_cli.render.views.wording import head_named, may_look_at, quoted_at, size
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

MOST_ROWS, MOST_COLUMNS = 24, 40
RECENT = "causal, "  # a causal mask with a window, as models have it
MOST_EMPTY = 4  # fully masked rows that are named
BEFORE = 3  # rows that see nothing, above the first that sees something
FEW = 8  # rows and columns at a corner
CORNERS = [(name, f"{rule.corner}: --mask {name}") for name, rule in MASKS.items() if rule.corner]
TRUE_FALSE, ADDED = ("F", "T"), ("-inf", "0")
FULLY_MASKED = (
    "attn: weights and output are zeros, and a note says so.",
    "By hand: exp(-inf) is 0 for every key, the sum is 0, and 0/0 is NaN.",
    "torch scaled_dot_product_attention: the output is zeros (2.13.0); older versions gave NaN.",
    "torch MultiheadAttention: NaN with need_weights=True, which is its default; zeros with False (2.13.0).",
    "Keras MultiHeadAttention: zeros with return_attention_scores=True; without, the plain mean of all values, "
    "hidden ones too (3.15.1 on torch).",
    "Keras Attention: the same weight for every key, hidden ones too: it subtracts 1e9 from every masked "
    "score, which cancels out where all are masked (3.15.1).",
)


def mask_lab(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the mask in words, as booleans, as numbers to add, its effect, and its special cases."""
    rows = _rows(trace)
    allowed = _allowed(trace, rows)
    columns = _columns(trace, rows, allowed)
    few = allowed[:, columns]
    name = "No mask" if trace.mask_name == "none" else f"The mask: {trace.mask_name}"
    yield Heading(f"{name}; {size(trace)}", 1)
    yield from map(Say, _rules(trace))
    yield Heading("In words")
    yield from (Say(may_look_at(trace, i)) for i in rows)
    yield from _left_out(trace, rows, columns)
    if trace.long_view is not None and trace.mask is not None:
        yield Heading("As a map")
        yield from block_map(trace, trace.long_view, view, is_mask=True)
    yield from _booleans(trace, rows, columns, few)
    yield Heading("As numbers added to the scores")
    yield _square(trace, rows, columns, few.astype(float), marks=ADDED)
    yield Say("Adding -inf hides a key, because exp(-inf) is 0; adding 0 changes nothing.")
    if trace.is_scored:
        yield from _before_and_after(trace, rows, columns, allowed)
    yield from _corners(trace, rows, columns)
    yield from _fully_masked(trace, rows, allowed)
    yield from closing(trace, with_learned=False)
    for option, is_set in (("--steps", view.steps), ("--top", trace.settings.top)):
        if is_set:
            yield Say(f"Note: {option} has no effect with --show mask.")


def _left_out(trace: Trace, rows: Sequence[int], columns: range) -> Iterator[Block]:
    n_k = len(trace.key_tokens)
    if len(rows) == len(trace.listed) and len(columns) == n_k:
        return
    which = f" ({columns.start:,} to {columns.stop - 1:,})" if columns.start else ""
    those = f" ({rows[0]:,} to {rows[-1]:,})" if _starts_later(trace, rows) else ""
    yield Say(
        f"These are {len(rows):,} of {len(trace.listed):,} rows{those}, and below {len(columns):,} of {n_k:,} "
        f"columns{which}; -q WORD shows any row."
    )


def _rows(trace: Trace) -> list[int]:
    """Return the queries to show; if the first ones are fully masked, start near the first that is not."""
    if trace.condensed:
        return [i for i in trace.listed if i in trace.focus][:MOST_ROWS]
    listed = list(trace.listed)
    if trace.asked or trace.mask is None or trace.mask[listed[:MOST_ROWS]].any():
        return listed[:MOST_ROWS]
    seeing = np.flatnonzero(trace.mask[listed].any(axis=1))
    start = max(0, int(seeing[0]) - BEFORE) if len(seeing) else 0
    return listed[start : start + MOST_ROWS]


def _starts_later(trace: Trace, rows: Sequence[int]) -> bool:
    """Return whether earlier rows are left out, so that these are labelled with their places."""
    return not trace.condensed and rows[0] != trace.listed[0]


def _allowed(trace: Trace, rows: Sequence[int]) -> Bools:
    if trace.mask is None:
        return np.ones((len(rows), len(trace.key_tokens)), dtype=np.bool_)
    return trace.mask[[trace.row_in_arrays(i) for i in rows]]


def _columns(trace: Trace, rows: Sequence[int], allowed: Bools) -> range:
    """Return the keys to show: the first ones; of a long text those around the end of the first row's mask."""
    n_k = len(trace.key_tokens)
    if not trace.condensed:
        return range(min(MOST_COLUMNS, n_k))
    open_keys = np.flatnonzero(allowed[0])
    middle = int(open_keys[-1]) if 0 < len(open_keys) < n_k else rows[0]
    start = max(0, min(middle - MOST_COLUMNS // 2, n_k - MOST_COLUMNS))
    return range(start, min(start + MOST_COLUMNS, n_k))


def _rules(trace: Trace) -> list[str]:
    rule = masks.rule_in(trace.mask_name)
    found = find_rule(rule)
    rules = []
    if found is not None:
        if rule != "none" or trace.mask_name == "none":
            rules.append(found[0].words(trace.is_self, *found[1]))
    elif rule.startswith(RECENT):
        rules.append(f"Each word looks only back, at {rule.removeprefix(RECENT)}, its own among them.")
    else:
        meaning = f" True in it means {trace.settings.mask_true}." if trace.settings.mask_true else ""
        rules.append(f"The mask comes from {rule}.{meaning}")
    if trace.pad_keys:
        rules.append("No token may look at padding; where padding itself looks does not matter.")
    if trace.settings.without:
        rules.append("--without hides words from everybody; a note below names them.")
    return rules


def _square(
    trace: Trace, rows: Sequence[int], columns: range, values: Array, marks: tuple[str, str] | None = None
) -> Matrix:
    """Return a matrix of these rows and columns; columns from the middle of a text are labelled by number."""
    numbered = bool(columns.start) or _starts_later(trace, rows)
    return Matrix(
        [f"{i} {trace.query_tokens[i]}" if numbered else trace.query_tokens[i] for i in rows],
        [str(j) if columns.start else trace.key_tokens[j] for j in columns],
        values,
        corner="query\\key",
        shaded=True,
        row_numbers=None if numbered else rows,
        marks=marks,
    )


def _booleans(trace: Trace, rows: Sequence[int], columns: range, allowed: Bools) -> Iterator[Block]:
    yield Heading("As booleans: what True means differs")
    sides = [
        _square(trace, rows, columns, side.astype(float), TRUE_FALSE) for side in (allowed, ~allowed, allowed)
    ]
    yield Beside(["torch SDPA: T may attend", "torch MHA: T is blocked", "Keras: T may attend"], sides)
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
    yield Say("With the wrong polarity, every query sees exactly what it should not, and no error is raised.")


def _before_and_after(trace: Trace, rows: Sequence[int], columns: range, allowed: Bools) -> Iterator[Block]:
    head = trace.heads[0] if trace.shown.scores is None else trace.shown
    assert head.scaled_scores is not None
    yield Heading("Before the softmax")
    if len(trace.head_names) > 1:
        yield Say(f"These are the numbers of {head_named(head.name)}.", quiet=True)
    held = [trace.row_in_arrays(i) for i in rows]
    scores, name = head.scaled_scores[held], "scaled"
    if head.position_scores is not None:
        scores, name = scores + head.position_scores[held], "scaled + position"
    if head.capped_scores is not None:
        scores, name = head.capped_scores[held], "capped"
        if head.rotated is None and head.position_scores is not None:
            scores, name = scores + head.position_scores[held], "capped + position"
    sides = {name: scores}
    if trace.mask is not None:
        sides["masked"] = np.where(allowed, scores, np.nan)
    yield Beside(list(sides), [_square(trace, rows, columns, side[:, columns]) for side in sides.values()])
    yield Heading("After the softmax")
    weights = np.where(allowed, head.weights[held], np.nan)[:, columns]
    sums = [f"{total:.3f}" for total in head.sums[held]]
    yield _square(trace, rows, columns, weights)._replace(is_weights=True, sums=sums)
    yield from _too_late(trace, rows, scores, allowed)


def _too_late(trace: Trace, rows: Sequence[int], scores: Array, allowed: Bools) -> Iterator[Block]:
    """Yield what a mask after the softmax would leave of the row that loses most."""
    left = np.where(allowed, softmax(scores), 0).sum(axis=1)
    partly = np.flatnonzero(allowed.any(axis=1) & ~allowed.all(axis=1))
    if not len(partly):
        return
    at = int(partly[np.argmin(left[partly])])
    yield Say(
        f"The mask comes before the softmax, so that each row still sums to one. Applied after it, the row of "
        f"{quoted_at(trace.query_tokens, rows[at])} would sum to {share(float(left[at]))}."
    )


def _corners(trace: Trace, rows: list[int], columns: range) -> Iterator[Block]:
    """Yield both causal masks where the numbers of queries and keys differ."""
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
        parts = [_causal(trace, name, rows, columns) for name, _ in CORNERS]
        yield Beside([title for _, title in CORNERS], parts)
    else:  # the part of each where its corner is
        high, wide = min(FEW, n_q), min(FEW, n_k)
        ends = (range(high), range(wide)), (range(n_q - high, n_q), range(n_k - wide, n_k))
        for (name, title), (few_rows, few_columns) in zip(CORNERS, ends, strict=True):
            queries, keys = (f"{places[0]:,} to {places[-1]:,}" for places in (few_rows, few_columns))
            yield Say(f"{title}, queries {queries} and keys {keys}:")
            yield _causal(trace, name, few_rows, few_columns)
    if trace.pad_keys:
        yield Say("Here padding counts as keys, and is not hidden yet.", quiet=True)
    yield Say(
        f"Top-left: the first query sees the first key alone, the last one {min(n_q, n_k):,} of {n_k:,}. torch "
        "(is_causal=True) and Keras (use_causal_mask=True) do this."
    )
    blind = f", and the first {count(n_q - n_k, 'query sees', 'queries see')} nothing" if n_q > n_k else ""
    yield Say(
        f"Bottom-right: the last query sees every key{blind}. flash-attention has done this since 2.1: the queries "
        "are the end of a longer text."
    )


def _causal(trace: Trace, name: str, rows: Sequence[int], columns: range) -> Matrix:
    mask = masks.named(name, len(trace.query_tokens), len(trace.key_tokens))
    assert mask is not None
    values = mask.rows(list(rows))[:, columns].astype(float)
    return _square(trace, rows, columns, values, marks=TRUE_FALSE)


def _fully_masked(trace: Trace, rows: Sequence[int], allowed: Bools) -> Iterator[Block]:
    """Yield what becomes of fully masked rows, or how to see one."""
    empty = [rows[at] for at in np.flatnonzero(~allowed.any(axis=1)).tolist()]
    yield Heading("A fully masked row")
    if not empty:
        yield Say("No row shown here is fully masked; --pad 2 --pad-side left under a causal mask makes two.")
        return
    names = listed([quoted_at(trace.query_tokens, i) for i in empty], MOST_EMPTY)
    yield Say(f"Every key is masked for {names}. What becomes of such a row:")
    yield from map(Say, FULLY_MASKED)


def mask_views(trace: Trace) -> dict[str, object] | None:
    """Return the shown queries' mask as each framework writes it, for JSON; None for a condensed trace.

    -inf, which JSON lacks, is None.
    """
    if trace.condensed:
        return None
    allowed = _allowed(trace, trace.listed)
    pads = trace.pad_keys
    return {
        "words": [may_look_at(trace, i) for i in trace.listed],
        "torch_sdpa": allowed.tolist(),
        "torch_mha": (~allowed).tolist(),
        "keras": allowed.tolist(),
        "key_padding": [j in pads for j in range(len(trace.key_tokens))] if pads else None,
        "additive": [[0.0 if may else None for may in row] for row in allowed.tolist()],
    }
