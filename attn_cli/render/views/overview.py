"""The main screens: the table of weights, maps of several heads, and bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.escape import count
from attn_cli.render.blocks import Bars, Block, Formula, Heading, Links, Maps, Matrix, Say, ShadeRange
from attn_cli.render.numbers import plain, share
from attn_cli.render.views.closing import closing
from attn_cli.render.views.long_text import asked_rows, links_of, long_view, row_links, strongest_named
from attn_cli.render.views.wording import MOST_CELLS, formula, is_large, no_arithmetic, quoted, short, title
from attn_cli.settings.output import View
from attn_cli.trace.head import Head
from attn_cli.trace.row import Diagnosis
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_ROWS = 40
FEW_ROWS = 8  # of a long text, as bars
MOST_FOCUS = 3
MOST_MAPPED = 60
MOST_FOUND = 4
MOST_NAMED = 3
HALF = 0.5
PAGES = ("latex", "html", "svg")  # shaded as on a terminal, and limited in width


def table(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the weight matrix (of each head shown), or each row's strongest links where it is too large."""
    yield Heading(title(trace), 1)
    yield Formula(formula(trace))
    if trace.asked:
        yield from _asked_rows(trace, view)
    if view.steps and trace.is_scored:
        from attn_cli.render.views.steps import walk  # most tables need neither this nor rows by hand

        yield from walk(trace)
    if view.steps or trace.asked:
        yield Heading("The weights")
    yield from all_weights(trace, view)
    yield from closing(trace, with_learned=len(drawn_heads(trace)) == 1)


def all_weights(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the weights of every head that is shown: as small maps where there are several, else as a matrix."""
    drawn = drawn_heads(trace)
    if len(drawn) > 1 and _fits_maps(trace, view):
        yield from _multiples(trace)
        return
    for head in drawn:
        if len(drawn) > 1:
            yield Heading(_titled(head), 2)
        yield from _weights(trace, head, view)
    if trace.whole and len(drawn) == 1 and len(trace.listed) <= MOST_ROWS:
        rows = list(zip(trace.listed, trace.diagnoses(with_temperature=False), strict=True))
        yield from map(Say, remarks(trace, rows, least=max(2, len(rows) // 2)))


def _titled(head: Head) -> str:
    """Return `Head 7`, or `Layer 3, head 7` where there are several layers."""
    return f"Head {head.name}" if head.layer is None else f"Layer {head.layer}, head {head.name}"


def _multiples(trace: Trace) -> Iterator[Block]:
    """Yield every head as a small map, and the links that it finds."""
    drawn = drawn_heads(trace)
    if trace.has_layers:
        yield Say("Each map is named by its layer and its head: 0.1 is head 1 of layer 0, nearest the words.")
    yield Maps(
        [head.label for head in drawn],
        [trace.query_tokens[i] for i in trace.listed],
        trace.key_tokens,
        [listed_weights(trace, head) for head in drawn],
        ShadeRange(0.0, largest_weight(trace, trace.listed)),
        trace.listed,
        is_weights=True,
    )
    yield Heading("What each head finds")
    yield Say("Each head's strongest links to other words, each at least half of a word's attention:")
    found = [(head.label, _found(trace, head)) for head in drawn]
    yield Links(found, none="none")
    if trace.learned and trace.learned.about and any(links for _, links in found):
        yield Say("Some may be wrong: attn explain --head NAME says how often a head is right.")
    one = "--layer N --head NAME" if trace.has_layers else "--head NAME"
    yield Say(f"{one} shows one head with its numbers; --precision 3 all of them.", quiet=True)


def _found(trace: Trace, head: Head) -> list[tuple[str, str]]:
    """Return a head's strongest links to other words, strongest first: `jumped -> fox`, and the weight."""
    found = []
    for i in trace.listed:
        for j, weight in links_of(head, i, 1):
            if i not in trace.pad_queries and weight >= HALF and not (trace.is_self and i == j):
                found.append((weight, f"{short(trace.query_tokens[i])} -> {short(trace.key_tokens[j])}"))
    found.sort(key=lambda link: -link[0])
    return [(name, share(weight)) for weight, name in found[:MOST_FOUND]]


def _fits_maps(trace: Trace, view: View) -> bool:
    """Return whether to draw the heads as small maps: not in a format without shades, or with --precision."""
    is_drawn = view.format in (None, "table", *PAGES) and view.precision is None
    is_small = len(trace.key_tokens) <= MOST_MAPPED and len(trace.listed) <= MOST_ROWS
    return is_drawn and trace.whole and is_small


def _asked_rows(trace: Trace, view: View) -> Iterator[Block]:
    if not trace.is_scored:
        yield Say(" ".join(no_arithmetic(trace)))
        return
    from attn_cli.render.views.one_row import one_row

    for i in trace.focus[:MOST_FOCUS]:
        yield from one_row(trace, i, view.by_hand == "all")
    if len(trace.focus) > MOST_FOCUS:
        yield Say(
            f"{len(trace.focus) - MOST_FOCUS} more rows match: their weights follow, without arithmetic."
        )


def drawn_heads(trace: Trace) -> tuple[Head, ...]:
    """Return the heads whose matrices are drawn: the mean as one, else all that are shown."""
    is_mean = trace.settings.head == "mean" and not trace.has_layers
    return (trace.shown,) if is_mean else trace.shown_heads


def _weights(trace: Trace, head: Head, view: View) -> Iterator[Block]:
    cells = len(trace.listed) * len(trace.key_tokens)
    is_bounded = view.width is not None or view.format in PAGES
    is_crowded = cells > MOST_CELLS or (trace.asked and is_large(trace))
    if trace.whole and not (is_bounded and is_crowded and view.precision is None):
        yield weight_matrix(trace, head)
    elif trace.asked:
        yield from asked_rows(trace, head, view)
    elif trace.whole or trace.condensed:
        yield from long_view(trace, head, view)
    else:
        yield from row_links(trace, head, view, trace.listed, trace.settings.top or 1)


def weight_matrix(trace: Trace, head: Head) -> Matrix:
    """Return a head's weights over the listed rows, with the rows' sums."""
    sums = [f"{total:.3f}" for total in head.sums[[trace.row_in_arrays(i) for i in trace.listed]]]
    return labelled_matrix(trace, listed_weights(trace, head))._replace(sums=sums)


def labelled_matrix(trace: Trace, values: Array) -> Matrix:
    """Return a matrix of the listed rows, labelled with the trace's tokens."""
    return Matrix(
        [trace.query_tokens[i] for i in trace.listed],
        trace.key_tokens,
        values,
        corner="query\\key",
        is_weights=True,
        shaded=True,
        row_numbers=trace.listed,
    )


def listed_weights(trace: Trace, head: Head) -> Array:
    """Return a head's weights over the listed rows, NaN where masked."""
    rows = [trace.row_in_arrays(i) for i in trace.listed]
    values, mask = head.weights[rows], trace.mask_of(head)
    return values if mask is None else np.where(mask[rows], values, np.nan)


def remarks(trace: Trace, diagnosed: list[tuple[int, Diagnosis]], least: int = 1) -> Iterator[str]:
    """Yield remarks: rows that are nearly uniform, and, if at least `least`, rows decided by a key's length."""
    uniform = [i for i, d in diagnosed if d.nearly_uniform]
    if uniform:
        yield f"{_rows_named(trace, uniform, len(diagnosed))} nearly uniform: all keys get almost the same."
    found = [(i, d.longer, d.nearer) for i, d in diagnosed if d.longer is not None and d.nearer is not None]
    if found and len(found) >= least:
        yield from _lengths(trace, found)


def _rows_named(trace: Trace, some: list[int], of: int) -> str:
    """Return `The row of "she" is`, `Every row is` or `3 of 9 rows are`, with the first few named."""
    if len(some) == 1:
        return f"The row of {quoted(trace.query_tokens[some[0]])} is"
    if len(some) == of:
        return "Every row is"
    named = ", ".join(quoted(trace.query_tokens[i]) for i in some[:MOST_NAMED])
    more = ", ..." if len(some) > MOST_NAMED else ""
    return f"{len(some):,} of {of:,} rows ({named}{more}) are"


def _lengths(trace: Trace, found: list[tuple[int, int, int]]) -> Iterator[str]:
    """Yield a sentence on the first of these (query, longer key, nearer key)."""
    K = trace.shown.k
    if K is None:
        return
    i, longer, nearer = found[0]
    times = math.hypot(*K[longer].tolist()) / math.hypot(*K[nearer].tolist())
    more = count(len(found) - 1, "other row", "other rows")
    others = f" The same holds in {more}." if len(found) > 1 else ""
    query, far = quoted(trace.query_tokens[i]), quoted(trace.key_tokens[longer])
    near = "itself" if trace.is_self and nearer == i else quoted(trace.key_tokens[nearer])
    yield (
        f"Vector length decides here: {query} has the smaller angle to {near}, but the key of {far} is "
        f"{plain(times, 2)} times as long and scores higher. --score cosine compares directions alone.{others}"
    )


def bars(trace: Trace, view: View) -> Iterator[Block]:
    """Yield, for each query, a bar and a number for every word it may attend to."""
    is_long = trace.condensed and not trace.asked
    rows = trace.listed if trace.asked else trace.listed[: FEW_ROWS if is_long else MOST_ROWS]
    drawn = drawn_heads(trace)
    strongest = [strongest_named(trace, head) if is_long else [] for head in drawn]
    largest = max([largest_weight(trace, rows), *(weight for items in strongest for _, weight in items)])
    for head, items in zip(drawn, strongest, strict=True):
        if len(drawn) > 1:
            yield Heading(_titled(head), 2)
        if items:
            yield Bars("The strongest links to another word:", items, largest)
            yield Say("")
        for i in rows:
            if i != rows[0]:
                yield Say("")
            yield row_bars(trace, head, i, largest)
    if len(rows) < len(trace.listed):
        yield Say(f"{len(trace.listed) - len(rows):,} more rows: -q WORD shows one.")
    yield Say(f"The longest bar is {share(largest)}.", quiet=True)
    yield from closing(trace)


def row_bars(trace: Trace, head: Head, i: int, largest: float) -> Bars:
    """Return the bars of query i: one for each key, or for the strongest where they are many."""
    name = f"{short(trace.query_tokens[i])} attending to"
    if not trace.whole or len(trace.key_tokens) > MOST_ROWS * 3:
        k = trace.settings.top or 5
        name += f", the {k} strongest of {len(trace.key_tokens):,}:"
        return Bars(name, [(trace.key_tokens[j], weight) for j, weight in links_of(head, i, k)], largest)
    at = trace.row_in_arrays(i)
    mask = trace.mask_of(head)
    allowed = np.ones(len(trace.key_tokens), bool) if mask is None else mask[at]
    items = [
        (token, float(weight) if may else None)
        for token, weight, may in zip(trace.key_tokens, head.weights[at], allowed, strict=True)
    ]
    return Bars(f"{name}:", items, largest)


def largest_weight(trace: Trace, rows: Sequence[int]) -> float:
    """Return the largest weight in these rows of the drawn heads."""
    return max(float(head.links.weights[list(rows)].max()) for head in drawn_heads(trace))
