"""The mask by itself: in words, as each framework writes it, and what it does to scores and weights.

What frameworks make of a fully masked row was measured with torch 2.13.0 and Keras 3.15.1 (on torch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.core import attention, masks
from attn_cli.errors import count
from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.render import Beside, Block, Formula, Heading, Matrix, Say, listed, quoted_at, share, window
from attn_cli.render.views import long_text, origins, wording
from attn_cli.settings import View
from attn_cli.trace import Trace

MOST_ROWS, MOST_COLUMNS = 24, 40
RECENT = "causal, "  # a causal mask with a window, as models have it
MOST_EMPTY = 4  # fully masked rows that are named
BEFORE = 3  # rows that see nothing, above the first that sees something
FEW = 8  # rows and columns at a corner
CORNERS = [(name, f"{rule.corner}: --mask {name}") for name, rule in masks.MASKS.items() if rule.corner]
TRUE_FALSE, ADDED = ("F", "T"), ("-inf", "0")
POLARITIES = ("torch SDPA: T may attend", "torch MHA: T is blocked", "Keras: T may attend")
CALLS = {
    "torch SDPA:": "scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=mask)",
    "torch MHA:": "MultiheadAttention(...)(query=q, key=k, value=v, attn_mask=~mask)",
    "Keras:": "MultiHeadAttention(...)(query=q, value=v, key=k, attention_mask=mask)",
}
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


class _Shown(NamedTuple):
    """The part of a mask that is shown: its queries, its keys, and who of them may attend to every key."""

    trace: Trace
    rows: Sequence[int]
    columns: range
    allowed: Bools  # (rows, n_k)

    @property
    def starts_later(self) -> bool:
        """Whether earlier rows are left out, so that these are labelled with their places."""
        return not self.trace.condensed and self.rows[0] != self.trace.listed[0]

    def matrix(self, values: Array | Bools, marks: tuple[str, str] | None = None) -> Matrix:
        """Return numbers of (rows, n_k); columns from the middle of a text are labelled by number."""
        (queries, keys), columns = (self.trace.query_tokens, self.trace.key_tokens), self.columns
        is_numbered = bool(columns.start) or self.starts_later
        rows = [f"{i} {queries[i]}" if is_numbered else queries[i] for i in self.rows]
        numbers = None if is_numbered else self.rows
        names = [str(j) if columns.start else keys[j] for j in columns]
        shown = values[:, columns].astype(float)
        return Matrix(rows, names, shown, "query\\key", shaded=True, row_numbers=numbers, marks=marks)


def mask_lab(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the mask in words, as booleans, as numbers to add, its effect, and its special cases."""
    shown = _shown(trace)
    _, rows, columns, allowed = shown
    name = "No mask" if trace.mask_name == "none" else f"The mask: {trace.mask_name}"
    yield Heading(f"{name}; {wording.size(trace)}", 1)
    yield from map(Say, _rules(trace))
    yield Heading("In words")
    yield from (Say(wording.may_look_at(trace, i)) for i in rows)
    n, n_k = len(trace.listed), len(trace.key_tokens)
    which = f" ({columns.start:,} to {columns.stop - 1:,})" if columns.start else ""
    those = f" ({rows[0]:,} to {rows[-1]:,})" if shown.starts_later else ""
    if len(rows) < n or len(columns) < n_k:
        yield Say(
            f"These are {len(rows):,} of {n:,} rows{those}, and below {len(columns):,} of {n_k:,} columns{which}; "
            "-q WORD shows any row."
        )
    if trace.long_view is not None and trace.mask is not None:
        yield Heading("As a map")
        yield from long_text.block_map(trace, trace.long_view, view, is_mask=True)
    yield from _booleans(shown)
    yield from (Heading("As numbers added to the scores"), shown.matrix(allowed, ADDED))
    yield Say("Adding -inf hides a key, because exp(-inf) is 0; adding 0 changes nothing.")
    if trace.is_scored:
        yield from _before_and_after(shown)
    yield from _corners(shown)
    yield Heading("A fully masked row")
    empty = [quoted_at(trace.query_tokens, rows[at]) for at in np.flatnonzero(~allowed.any(axis=1)).tolist()]
    if empty:
        yield Say(f"Every key is masked for {listed(empty, MOST_EMPTY)}. What becomes of such a row:")
        yield from map(Say, FULLY_MASKED)
    else:
        yield Say("No row shown here is fully masked; --pad 2 --pad-side left under a causal mask makes two.")
    yield from origins.closing(trace, with_learned=False)
    ignored = {"--steps": view.steps, "--top": trace.settings.top}
    yield from (Say(f"Note: {name} has no effect with --show mask.") for name in ignored if ignored[name])


def _shown(trace: Trace) -> _Shown:
    """Return the first keys and the first queries that are not fully masked; of a long text the row in focus."""
    rows, start, n_k = trace.listed, 0, len(trace.key_tokens)
    if trace.condensed:
        rows = tuple(i for i in rows if i in trace.focus)
    elif not (trace.asked or trace.mask is None or trace.mask[:MOST_ROWS].any()):
        seeing = np.flatnonzero(trace.mask.any(axis=1))
        start = max(0, int(seeing[0]) - BEFORE) if len(seeing) else 0
    rows = rows[start : start + MOST_ROWS]
    allowed = _allowed(trace, rows)
    open_keys = np.flatnonzero(allowed[0])
    middle = int(open_keys[-1]) if 0 < len(open_keys) < n_k else rows[0]
    columns = range(n_k)[window(n_k, MOST_COLUMNS, middle if trace.condensed else None)]
    return _Shown(trace, rows, columns, allowed)


def _allowed(trace: Trace, rows: Sequence[int]) -> Bools:
    if trace.mask is None:
        return np.ones((len(rows), len(trace.key_tokens)), dtype=np.bool_)
    return trace.mask[[trace.row_in_arrays(i) for i in rows]]


def _rules(trace: Trace) -> Iterator[str]:
    rule = masks.rule_in(trace.mask_name)
    found = masks.find_rule(rule)
    if found is None and rule.startswith(RECENT):
        yield f"Each word looks only back, at {rule.removeprefix(RECENT)}, its own among them."
    elif found is None:
        means = f" True in it means {trace.settings.mask_true}." if trace.settings.mask_true else ""
        yield f"The mask comes from {rule}.{means}"
    elif rule != "none" or trace.mask_name == "none":
        yield found[0].words(trace.is_self, *found[1])
    if trace.pad_keys:
        yield "No token may look at padding; where padding itself looks does not matter."
    if trace.settings.without:
        yield "--without hides words from everybody; a note below names them."


def _booleans(shown: _Shown) -> Iterator[Block]:
    (trace, _, columns, allowed), pads = shown, shown.trace.pad_keys
    yield Heading("As booleans: what True means differs")
    yield Beside(POLARITIES, [shown.matrix(side, TRUE_FALSE) for side in (allowed, ~allowed, allowed)])
    yield from (Formula(call, framework) for framework, call in CALLS.items())
    also = "torch MHA also takes padding separately:"
    if pads and trace.condensed:
        booleans = f"{len(trace.key_tokens):,} booleans, and is True from {pads[0]:,} to {pads[-1]:,}."
        yield Say(f"{also} key_padding_mask has {booleans}")
    elif pads:
        places = " ".join("T" if j in pads else "F" for j in columns)
        yield Formula(f"key_padding_mask = [{places}], True = padding", also)
    yield Say("With the wrong polarity, every query sees exactly what it should not, and no error is raised.")


def _before_and_after(shown: _Shown) -> Iterator[Block]:
    trace, rows, _, allowed = shown
    head, held = trace.stepped_head, [trace.row_in_arrays(i) for i in rows]
    yield Heading("Before the softmax")
    if len(trace.head_names) > 1:
        yield Say(f"These are the numbers of {wording.head_named(head.name)}.", quiet=True)
    capped, position = head.capped_scores, head.position_scores
    before, name = (head.scaled_scores, "scaled") if capped is None else (capped, "capped")
    assert before is not None
    scores = before[held]
    if position is not None and capped is None:  # else the cap is of both together
        scores, name = scores + position[held], f"{name} + position"
    sides = {name: scores}
    if trace.mask is not None:
        sides["masked"] = np.where(allowed, scores, np.nan)
    yield Beside(list(sides), [shown.matrix(side) for side in sides.values()])
    yield Heading("After the softmax")
    weights = shown.matrix(np.where(allowed, head.weights[held], np.nan))
    yield weights._replace(is_weights=True, sums=[f"{total:.3f}" for total in head.sums[held]])
    partly = np.flatnonzero(allowed.any(axis=1) & ~allowed.all(axis=1))
    if len(partly) and head.sink is None:
        left = np.where(allowed, attention.softmax(scores), 0).sum(axis=1)
        at = int(partly[np.argmin(left[partly])])  # the row that loses most
        yield Say(
            "The mask comes before the softmax, so that each row still sums to one. Applied after it, the row of "
            f"{quoted_at(trace.query_tokens, rows[at])} would sum to {share(float(left[at]))}."
        )


def _corners(shown: _Shown) -> Iterator[Block]:
    trace = shown.trace
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
        yield Beside([title for _, title in CORNERS], [_causal(shown, name) for name, _ in CORNERS])
    else:  # the part of each where its corner is
        ends = (range(min(FEW, n_q)), range(min(FEW, n_k))), (range(n_q)[-FEW:], range(n_k)[-FEW:])
        for (name, title), (rows, columns) in zip(CORNERS, ends, strict=True):
            queries, keys = (f"{places[0]:,} to {places[-1]:,}" for places in (rows, columns))
            yield Say(f"{title}, queries {queries} and keys {keys}:")
            yield _causal(shown._replace(rows=rows, columns=columns), name)
    if trace.pad_keys:
        yield Say("Here padding counts as keys, and is not hidden yet.", quiet=True)
    blind = f", and the first {count(n_q - n_k, 'query sees', 'queries see')} nothing" if n_q > n_k else ""
    yield Say(
        f"Top-left: the first query sees the first key alone, the last one {min(n_q, n_k):,} of {n_k:,}. torch "
        "(is_causal=True) and Keras (use_causal_mask=True) do this."
    )
    yield Say(
        f"Bottom-right: the last query sees every key{blind}. flash-attention has done this since 2.1: the queries "
        "are the end of a longer text."
    )


def _causal(shown: _Shown, name: str) -> Matrix:
    mask = masks.named(name, len(shown.trace.query_tokens), len(shown.trace.key_tokens))
    assert mask is not None
    return shown.matrix(mask.rows(list(shown.rows)), TRUE_FALSE)


def mask_views(trace: Trace) -> dict[str, object] | None:
    """Return the shown queries' mask as each framework writes it, None for -inf; None for a condensed trace."""
    if trace.condensed:
        return None
    allowed, pads = _allowed(trace, trace.listed), trace.pad_keys
    return {
        "words": [wording.may_look_at(trace, i) for i in trace.listed],
        "torch_sdpa": allowed.tolist(),
        "torch_mha": (~allowed).tolist(),
        "keras": allowed.tolist(),
        "key_padding": [j in pads for j in range(len(trace.key_tokens))] if pads else None,
        "additive": [[0.0 if may else None for may in row] for row in allowed.tolist()],
    }
