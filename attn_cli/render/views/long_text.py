"""What replaces a matrix that is too large to draw: a map of its blocks, entropies, and the strongest links.

What a long text alone needs (`pipeline.long_text`) is loaded where one is shown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.errors import count, count_more
from attn_cli.pipeline.long_text import MAP, first_of_each, merged, spread, strongest_links, view_of
from attn_cli.render import (
    Block,
    Columns,
    Heading,
    Links,
    Maps,
    Say,
    ShadeRange,
    placed,
    quoted,
    share,
    short,
)
from attn_cli.render.numbers import number
from attn_cli.render.views.wording import is_large
from attn_cli.settings import View
from attn_cli.trace import Head, LongView, Trace

NUMERIC = 10  # rows and columns of a map that is written as numbers
WORDED = 60  # characters of a screen from which words fit beside a map
EDGES, BARE = 20, 10  # characters beside a map, with words and without
TABLED = 40  # characters from which links are a table: in a narrower one, labels would lose their numbers
MOST_LINKS, OTHER_LINKS, FIRST_ROWS, FEW_LINKS, EXTREMES, MOST_ASKED = 10, 5, 12, 3, 3, 40
ALIKE = 1e-5  # means that differ by less than this share of them are alike
TWO, ONE = number(2), number(1)


def long_view(trace: Trace, head: Head, view: View) -> Iterator[Block]:
    """Yield a map of the shown head's weights, entropies, and the strongest links; for other heads the links only."""
    if head.name != trace.shown.name:
        yield from _strongest(trace, head, view, OTHER_LINKS)
        return
    level, top = 3 if trace.settings.head == "all" else 2, trace.settings.top
    kept = _kept(trace, head)
    yield Say(f"{len(trace.query_tokens):,} x {len(trace.key_tokens):,} weights are too many to draw.")
    yield from block_map(trace, kept, view)
    yield from (Heading("How spread out the rows are", level), *_spread(trace, kept))
    yield from (Heading("The strongest links", level), *_strongest(trace, head, view, MOST_LINKS))
    yield Heading("The first rows" if top is None else "Every row", level)
    rows, k = trace.listed if top is not None else trace.listed[:FIRST_ROWS], top or FEW_LINKS
    yield from row_links(trace, head, view, rows, k)
    if (more := len(trace.listed) - len(rows)) > 0:
        keeps = "each row's strongest links, -o FILE.npy every weight" if trace.condensed else "every weight"
        rest = count_more(more, "row")
        yield Say(f"{rest}: -q WORD shows one, --top {k} lists all; -o FILE.json keeps {keeps}.")


def _kept(trace: Trace, head: Head) -> LongView:
    return trace.long_view or view_of(head.weights, trace.mask)


def block_map(trace: Trace, kept: LongView, view: View, is_mask: bool = False) -> Iterator[Block]:
    """Yield the map, with as many blocks as fit: a block's mean weight, or for the mask its share of allowed links."""
    is_roomy, is_page = view.width is None or view.width >= WORDED, view.format in ("html", "latex")
    room = MAP if view.width is None or is_page else view.width - (EDGES if is_roomy else BARE)
    across = next((size for size in (MAP, MAP // 2) if size <= room), max(1, min(NUMERIC, room)))
    # A character is twice as tall as it is wide. Where each row is one query, all are shown.
    down = MAP if is_page or len(trace.query_tokens) <= MAP else max(NUMERIC, across // 2)
    if view.format == "markdown" or (is_page and view.color == "never"):  # which have numbers
        down = across = NUMERIC
    kept = merged(kept, down, across)
    starts, columns = kept.query_edges[:-1], kept.key_edges[:-1]
    sizes = np.outer(np.diff(kept.query_edges), np.diff(kept.key_edges))
    values = np.where(kept.counts > 0, kept.counts / sizes, np.nan) if is_mask else kept.means
    known = values[~np.isnan(values)]
    is_flat = is_mask or not known.size or known.max() - known.min() <= ALIKE * known.max()
    least, most = 0.0 if is_flat else float(known.min()), 1.0 if is_mask else float(known.max(initial=0.0))
    rows = [_word(trace.query_tokens, i) if is_roomy else "" for i in starts]
    numbers = columns if len(columns) < len(trace.key_tokens) else None
    keys = [trace.key_tokens[j] for j in columns]
    yield Maps([""], rows, keys, [values], ShadeRange(least, most), starts, numbers)
    down, across = (round(edges[-1] / (len(edges) - 1)) for edges in (kept.query_edges, kept.key_edges))
    of = f"{count(down, 'query', 'queries')} x {count(across, 'key', 'keys')}"
    of = of if (sizes == sizes[0, 0]).all() else f"about {of}"
    allowed = " that may be looked at" if is_mask or (kept.counts < sizes).any() else ""
    yield Say(f"Each cell is the {'share' if is_mask else 'mean weight'} of {of}{allowed}.")
    yield Say("Rows and columns are numbered by their first query and key.", quiet=True)


def _named(tokens: Sequence[str], i: int) -> str:
    """Return a token preceded by its number, unless it is a label made of the number, as q7."""
    return f"{i} {tokens[i]}".rstrip() if _word(tokens, i) else tokens[i]


def _word(tokens: Sequence[str], i: int) -> str:
    """Return a token to write beside its number; empty for a label made of the number."""
    return "" if tokens[i] in (f"q{i}", f"k{i}") else tokens[i]


def _spread(trace: Trace, kept: LongView) -> Iterator[Block]:
    found = spread(trace, kept)
    if found is None:
        yield Say("No row may look at more than one key.")
        return
    allowed, ends, queries = kept.allowed[found.ranked], found.ranked.tolist(), trace.query_tokens
    most, whose = int(allowed.max()), "of a row"
    if len(ends) != len(queries) - len(trace.pad_queries):
        whose = "of a row that may look at several keys"
    yield Say(
        f"The entropy {whose} lies between {TWO(found.lowest)} and {TWO(found.highest)} bits, with a median of "
        f"{TWO(found.median)}; the maximum is {TWO(math.log2(most))}, log2 of {most:,} equally weighted keys."
    )
    if len(ends) > 2 * EXTREMES:  # each word once
        focused = first_of_each(queries, ends, EXTREMES)
        others = [i for i in reversed(ends) if i not in focused]
        ends = [*focused, *reversed(first_of_each(queries, others, EXTREMES))]
    rows = []
    for i in ends:
        bits, maximum = float(kept.entropy[i]), math.log2(kept.allowed[i])
        rows.append([_named(queries, i), TWO(bits), TWO(maximum), _many(2**bits)])
    yield Columns(["query", "entropy", "at most", "2^entropy"], rows)
    order = ", by entropy as a share of its maximum" if len({*allowed.tolist()}) > 1 else ""
    yield Say(
        f"The most focused rows first, the most spread ones last{order}; 2^entropy is the number of equally weighted "
        "keys with the same entropy.",
        quiet=True,
    )


def _many(keys: float) -> str:
    return f"{keys:,.0f}" if keys >= 100 else ONE(keys)


def _strongest(trace: Trace, head: Head, view: View, most: int) -> Iterator[Block]:
    found = strongest_links(trace, head, most)
    kept = f"{count(head.links.keys.shape[1], 'link', 'links')} kept of each row"
    if not found.links:
        yield Say(f"None of the {kept} leads to a different word.")
        return
    those = "The strongest links" if found.is_sure else f"Of the {kept}, the strongest"
    yield Say(f"{those} to a different word, each pair of words once:")
    ends = [(_named(trace.query_tokens, i), _named(trace.key_tokens, j), share(w)) for i, j, w in found.links]
    if view.width is None or view.width >= TABLED:
        yield Links([(query, [(key, weight)]) for query, key, weight in ends])
    else:
        yield from (Say(f"{query} -> {key} {weight}") for query, key, weight in ends)


def strongest_named(trace: Trace, head: Head) -> list[tuple[str, float]]:
    """Return the strongest links of all to different words: `your -> ability`, and the weight."""
    found = strongest_links(trace, head, MOST_LINKS).links
    queries, keys = trace.query_tokens, trace.key_tokens
    return [(f"{short(queries[i])} -> {short(keys[j])}", weight) for i, j, weight in found]


def links_of(head: Head, i: int, most: int | None = None) -> list[tuple[int, float]]:
    """Return query i's strongest keys and their weights, strongest first."""
    links = zip(head.links.keys[i, :most].tolist(), head.links.weights[i, :most].tolist(), strict=True)
    return [(j, weight) for j, weight in links if j >= 0]


def firsts(head: Head, rows: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return (query, key, weight) of the strongest link of each of these rows, if it has one."""
    return [(i, *link) for i in rows for link in links_of(head, i, 1)]


def own_rows(trace: Trace) -> list[int]:
    """Return the listed rows without those of padding."""
    return [i for i in trace.listed if i not in trace.pad_queries]


def row_links(trace: Trace, head: Head, view: View, rows: Sequence[int], k: int) -> Iterator[Block]:
    """Yield the k strongest links of some rows; in a large text, repeated keys are preceded by their positions."""
    queries, keys, is_long = trace.query_tokens, trace.key_tokens, is_large(trace)
    key = placed if is_long and (view.width is None or view.width >= TABLED) else operator.getitem
    query = _named if is_long and trace.asked else operator.getitem
    table = [(query(queries, i), [(key(keys, j), share(w)) for j, w in links_of(head, i, k)]) for i in rows]
    yield Say(f"The {k} strongest keys of each query:" if k > 1 else "The strongest key of each query:")
    yield Links(table)


def asked_rows(trace: Trace, head: Head, view: View) -> Iterator[Block]:
    """Yield how spread out the requested rows are, and their strongest links."""
    rows = trace.listed[:MOST_ASKED] if trace.settings.top is None else trace.listed
    if is_large(trace) and head.name == trace.shown.name:
        kept = _kept(trace, head)
        yield from (Say(_of_row(trace, kept, i)) for i in rows[:EXTREMES])
    yield from row_links(trace, head, view, rows, trace.settings.top or 5)
    if (more := len(trace.listed) - len(rows)) > 0:
        yield Say(f"{count_more(more, 'row')}: -q NUMBER shows one, -o FILE.json keeps all.")


def _of_row(trace: Trace, kept: LongView, i: int) -> str:
    query, allowed = f"{quoted(trace.query_tokens[i])} ({i})", int(kept.allowed[i])
    if allowed < 2:
        return f"{query} may look at {'one key only' if allowed else 'nothing'}."
    bits = float(kept.entropy[i])
    return (
        f"The row of {query} has an entropy of {TWO(bits)} bits, like {_many(2**bits)} equally weighted keys; "
        f"the maximum for {allowed:,} keys is log2 {allowed:,} = {TWO(math.log2(allowed))}."
    )
