"""The main screens: the table of weights, maps of several heads, and bars; and the weights as rows of cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attn_cli.errors import count, count_more
from attn_cli.io.types import Array
from attn_cli.render import (
    Bars,
    Block,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Say,
    ShadeRange,
    placed,
    plain,
    quoted,
    share,
    short,
)
from attn_cli.render.views import finding, long_text, origins, wording
from attn_cli.settings import NORM, WEIGHT, View
from attn_cli.trace import Diagnosis, Head, Trace

MOST_ROWS, FEW_ROWS = 40, 8  # FEW_ROWS of a long text, as bars
MOST_FOCUS, MOST_MAPPED, MOST_FOUND, MOST_NAMED = 3, 60, 4, 3
HALF = 0.5
PAGES = ("latex", "html", "svg")  # shaded as on a terminal, and limited in width


def table(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the weight matrix (of each head shown), or each row's strongest links where it is too large."""
    drawn = drawn_heads(trace)
    yield Heading(wording.title(trace), 1)
    yield from finding.finding(trace)
    yield Formula(wording.formula(trace))
    if takes := wording.sink_takes(trace, drawn, trace.focus[0] if trace.asked else None):
        yield Say(takes)
    if trace.asked and trace.is_scored:
        from attn_cli.render.views.one_row import one_row  # most tables need neither this nor the walk

        for i in trace.focus[:MOST_FOCUS]:
            yield from one_row(trace, i, view.by_hand == "all")
        if (more := len(trace.focus) - MOST_FOCUS) > 0:
            said = count(more, "more row matches: its", "more rows match: their")
            yield Say(f"{said} weights follow, without arithmetic.")
    elif trace.asked and trace.shown.lengths is not None and len(drawn) == 1:
        yield from (finding.norms_by_hand(trace, i) for i in trace.focus[:MOST_FOCUS])
    elif trace.asked:
        yield Say(" ".join(wording.no_arithmetic(trace)))
    if view.steps and trace.is_scored:
        from attn_cli.render.views.steps import walk

        yield from walk(trace)
    if view.steps or trace.asked:
        yield Heading(f"The {trace.drawn}s")
    yield from all_weights(trace, view)
    yield from origins.closing(trace, with_learned=len(drawn) == 1)
    yield from finding.what_next(trace, view)


def drawn_heads(trace: Trace) -> tuple[Head, ...]:
    """Return the heads whose matrices are drawn: the mean as one, else all that are shown."""
    is_mean = trace.settings.head == "mean" and not trace.has_layers
    return (trace.shown,) if is_mean else trace.shown_heads


def all_weights(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the weights of every head that is shown: as small maps where there are several, else as a matrix."""
    drawn, is_short = drawn_heads(trace), len(trace.listed) <= MOST_ROWS
    is_shaded = view.format in (None, "table", *PAGES) and view.precision is None
    if len(drawn) > 1 and trace.whole and len(trace.key_tokens) <= MOST_MAPPED and is_short and is_shaded:
        yield from _maps(trace, drawn)
        return
    is_bounded = (view.width is not None or view.format in PAGES) and view.precision is None
    is_crowded = len(trace.listed) * len(trace.key_tokens) > wording.MOST_CELLS
    is_crowded = is_bounded and (is_crowded or (trace.asked and wording.is_large(trace)))
    for head in drawn:
        yield from _heading(head, drawn)
        if trace.whole and not is_crowded:
            yield weight_matrix(trace, head)
        elif trace.asked:
            yield from long_text.asked_rows(trace, head, view)
        elif trace.whole or trace.condensed:
            yield from long_text.long_view(trace, head, view)
        else:
            yield from long_text.row_links(trace, head, view, trace.listed, trace.settings.top or 1)
    if trace.whole and len(drawn) == 1 and is_short and trace.drawn == WEIGHT:
        rows = list(zip(trace.listed, trace.diagnoses(with_temperature=False), strict=True))
        yield from map(Say, remarks(trace, rows, least=max(2, len(rows) // 2)))


def _heading(head: Head, drawn: Sequence[Head]) -> Iterator[Heading]:
    if len(drawn) > 1:
        layer = "Head" if head.layer is None else f"Layer {head.layer}, head"
        yield Heading(f"{layer} {head.name}", 2)


def _maps(trace: Trace, drawn: Sequence[Head]) -> Iterator[Block]:
    if trace.has_layers:
        yield Say("Each map is named by its layer and its head: 0.1 is head 1 of layer 0, nearest the words.")
    names, queries, keys = [head.label for head in drawn], trace.query_tokens, trace.key_tokens
    is_norms, listed = trace.drawn == NORM, [queries[i] for i in trace.listed]
    values, shades = map(trace.visible_weights, drawn), ShadeRange(0.0, largest_weight(trace, trace.listed))
    maps = Maps(names, listed, keys, [*values], shades, trace.listed)
    yield maps._replace(is_weights=not is_norms, is_norms=is_norms)
    if is_norms:
        yield Heading("What each head takes from where")
        yield Say("The key whose share of a head's weights and of its norms differ most, and both shares:")
        apart = [(head.label, *finding.shares_apart(trace, head)) for head in drawn]
        yield Links([(name, [(placed(keys, j), f"{w} -> {e}")]) for name, j, w, e in apart])
        return
    yield Heading("What each head finds")
    yield Say("Each head's strongest links to other words, each at least half of a word's attention:")
    found = []
    for head in drawn:
        links = long_text.firsts(head, long_text.own_rows(trace))
        strong = [one for one in links if one[2] >= HALF and not (trace.is_self and one[0] == one[1])]
        best = sorted(strong, key=lambda one: -one[2])[:MOST_FOUND]
        named = [(f"{short(queries[i])} -> {short(keys[j])}", share(weight)) for i, j, weight in best]
        found.append((head.label, named))
    yield Links(found, none="none")
    if trace.learned and trace.learned.about and any(links for _, links in found):
        yield Say("Some may be wrong: attn explain --head NAME says how often a head is right.")
    one = "--layer N --head NAME" if trace.has_layers else "--head NAME"
    yield Say(f"{one} shows one head with its numbers; --precision 3 all of them.", quiet=True)


def weight_matrix(trace: Trace, head: Head) -> Matrix:
    """Return a head's weights over the listed rows, with the rows' sums; or its norms, where these are drawn."""
    matrix = labelled_matrix(trace, trace.visible_weights(head))
    if trace.drawn == NORM:  # which have no sum that means anything
        return matrix._replace(is_weights=False)
    sums = [f"{total:.3f}" for total in head.sums[[trace.row_in_arrays(i) for i in trace.listed]]]
    return matrix._replace(sums=sums)


def labelled_matrix(trace: Trace, values: Array) -> Matrix:
    """Return a matrix of the listed rows, labelled with the trace's tokens."""
    matrix = Matrix([trace.query_tokens[i] for i in trace.listed], trace.key_tokens, values, "query\\key")
    return matrix._replace(is_weights=True, shaded=True, row_numbers=trace.listed)


def remarks(trace: Trace, diagnosed: list[tuple[int, Diagnosis]], least: int = 1) -> Iterator[str]:
    """Yield remarks: rows that are nearly uniform, and, if at least `least`, rows decided by a key's length."""
    uniform = [quoted(trace.query_tokens[i]) for i, found in diagnosed if found.nearly_uniform]
    if uniform:
        which = f"The row of {uniform[0]} is"
        if len(uniform) > 1:
            named = ", ".join(uniform[:MOST_NAMED]) + ", ..." * (len(uniform) > MOST_NAMED)
            which = f"{len(uniform):,} of {len(diagnosed):,} rows ({named}) are"
            which = "Every row is" if len(uniform) == len(diagnosed) else which
        yield f"{which} nearly uniform: all keys get almost the same."
    found = [(i, d.longer, d.nearer) for i, d in diagnosed if d.longer is not None and d.nearer is not None]
    if not found or len(found) < least or trace.shown.k is None:
        return
    (i, longer, nearer), *others = found
    far, K = quoted(trace.key_tokens[longer]), trace.shown.k
    times = math.hypot(*K[longer].tolist()) / math.hypot(*K[nearer].tolist())
    near = "itself" if trace.is_self and nearer == i else quoted(trace.key_tokens[nearer])
    more = f" The same holds in {count(len(others), 'other row', 'other rows')}." if others else ""
    yield (
        f"Vector length decides here: {quoted(trace.query_tokens[i])} has the smaller angle to {near}, but the key of "
        f"{far} is {plain(times, 2)} times as long and scores higher. --score cosine compares directions alone.{more}"
    )


def bars(trace: Trace, view: View) -> Iterator[Block]:
    """Yield, for each query, a bar and a number for every word it may attend to."""
    is_long, drawn = trace.condensed and not trace.asked, drawn_heads(trace)
    rows = trace.listed if trace.asked else trace.listed[: FEW_ROWS if is_long else MOST_ROWS]
    strongest = [long_text.strongest_named(trace, head) if is_long else [] for head in drawn]
    largest = max([largest_weight(trace, rows), *(weight for items in strongest for _, weight in items)])
    for head, items in zip(drawn, strongest, strict=True):
        yield from _heading(head, drawn)
        if items:
            yield from (Bars("The strongest links to another word:", items, largest), Say(""))
        for i in rows:
            if i != rows[0]:
                yield Say("")
            yield row_bars(trace, head, i, largest)._replace(measure=trace.drawn)
    if len(rows) < len(trace.listed):
        yield Say(f"{count_more(len(trace.listed) - len(rows), 'row')}: -q WORD shows one.")
    yield Say(f"The longest bar is {share(largest)}.", quiet=True)
    yield from origins.closing(trace)


def row_bars(trace: Trace, head: Head, i: int, largest: float) -> Bars:
    """Return the bars of query i: one for each key, or for the strongest where they are many."""
    name = f"{short(trace.query_tokens[i])} {'attending to' if trace.drawn == WEIGHT else 'takes (norm)'}"
    keys, k = trace.key_tokens, trace.settings.top or 5
    if trace.whole and len(keys) <= MOST_ROWS * 3:
        weights = trace.visible_weights(head, [i])[0].tolist()
        unmasked = (None if math.isnan(weight) else weight for weight in weights)
        return Bars(f"{name}:", [*zip(keys, unmasked, strict=True)], largest)
    items = [(keys[j], weight) for j, weight in long_text.links_of(head, i, k)]
    return Bars(f"{name}, the {k} strongest of {len(keys):,}:", items, largest)


def largest_weight(trace: Trace, rows: Sequence[int]) -> float:
    """Return the largest weight in these rows of the drawn heads."""
    return max(float(head.links.weights[list(rows)].max()) for head in drawn_heads(trace))


def weight_rows(trace: Trace, tidy: bool = False) -> Iterator[list[object]]:
    """Yield a row of names, then the weights: wide, "" where masked, or tidy: `query, key, weight`.

    Several heads have a column `head`, several layers one of these before it. The strongest links alone are always
    tidy; those of a long text, whose words are repeated, also have the positions of query and key.
    """
    heads, queries, keys = drawn_heads(trace), trace.query_tokens, trace.key_tokens
    is_tidy, is_named = tidy or not trace.whole, len(heads) > 1 or trace.has_layers
    names = [*["layer"] * trace.has_layers, *["head"] * is_named, "query"]
    places = ["query_row", "key_column"] if trace.condensed else []
    yield [*names, *(["key", trace.drawn] if is_tidy else keys), *places]
    for head in heads:
        of_head: list[object] = [*[head.layer] * trace.has_layers, *[head.name] * is_named]
        for i, j, weight in () if trace.whole else trace.links(head):
            yield [*of_head, queries[i], keys[j], weight, *((i, j) if trace.condensed else ())]
        rows = trace.listed if trace.whole else ()
        for i, weights in zip(rows, trace.visible_weights(head, rows).tolist(), strict=True):
            row = [*of_head, queries[i]]
            if is_tidy:
                links = zip(keys, weights, strict=True)
                yield from ([*row, key, w] for key, w in links if not math.isnan(w))
            else:
                yield row + ["" if math.isnan(w) else w for w in weights]
