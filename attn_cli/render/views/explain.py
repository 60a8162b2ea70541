"""The screen of `attn explain`."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.render.blocks import Bars, Block, Columns, Formula, Heading, Say
from attn_cli.render.numbers import number
from attn_cli.render.views.closing import closing
from attn_cli.render.views.long_text import links_of, long_view
from attn_cli.render.views.one_row import one_row
from attn_cli.render.views.origins import learned
from attn_cli.render.views.overview import MOST_FOCUS, MOST_ROWS, drawn_heads, largest_weight, remarks
from attn_cli.render.views.steps import walk
from attn_cli.render.views.wording import (
    formula,
    head_of_layer,
    may_look_at,
    no_arithmetic,
    quoted,
    short,
    shown_part,
    title,
)
from attn_cli.settings.output import View
from attn_cli.trace.head import Head
from attn_cli.trace.steps import Walk
from attn_cli.trace.trace import Trace

MOST_DIAGNOSED = 12
TWO = number(2)


def explain(trace: Trace, view: View, parts: Walk) -> Iterator[Block]:
    """Yield the walk: one row by hand, every matrix, the mask, how sharp it is, and who attends to whom."""
    yield Heading(title(trace), 1)
    yield Formula(formula(trace))
    if not trace.is_scored:
        yield Say(" ".join(no_arithmetic(trace)))
    elif trace.of_model:
        yield Say(shown_part(trace), quiet=True)
    if trace.is_scored and parts.by_hand:
        yield from map(Say, learned(trace))
        for i in trace.focus[:MOST_FOCUS]:
            yield from one_row(trace, i, view.by_hand == "all")
    if trace.is_scored and (not trace.asked or parts.only):
        if parts.by_hand:
            yield Heading("The whole matrix, step by step")
        yield from walk(trace, parts.only, each=not parts.ending)
        if parts.by_hand:
            yield from _mask(trace)
    if not parts.ending:
        yield from closing(trace, with_learned=False)
        return
    yield from _sharpness(trace)
    is_long = trace.condensed and not trace.asked
    for head in drawn_heads(trace):
        yield Heading(f"Who attends to whom{_of_head(trace, head)}")
        yield from long_view(trace, head, view) if is_long else _who(trace, head)
    yield from closing(trace, with_learned=False)


def _of_head(trace: Trace, head: Head) -> str:
    """Return which head is meant, where there are several."""
    n = len(trace.head_names)
    if head.name == "mean":
        return f": mean of {n} heads" + ("" if head.layer is None else f" of layer {head.layer}")
    return "" if n == 1 and head.layer is None else f": {head_of_layer(head)}"


def _mask(trace: Trace) -> Iterator[Block]:
    yield Heading(f"Who may look at whom{_of_head(trace, trace.shown)}")
    if trace.mask is not None:
        for i in trace.listed[:MOST_ROWS]:
            if not trace.condensed or i in trace.focus:
                yield Say(may_look_at(trace, i))
        yield Say("A masked key gets no weight; the other keys of the row share all of it.")
        return
    n_k, i = len(trace.key_tokens), trace.focus[0]
    if n_k == 1:
        yield Say("There is one key, so a mask could only hide everything.")
        return
    query = quoted(trace.query_tokens[i])
    if not trace.is_self:
        yield Say(f"No mask: {query} may look at all {n_k:,} keys.")
        return
    if i == n_k - 1 and not trace.condensed:
        last, i = query, i // 2
        query = quoted(trace.query_tokens[i])
        yield Say(f"{last} is last, so a causal mask hides nothing from it; take {query}.")
    yield Say(f"No mask: {query} may look at all {n_k:,} words, including those after it.")
    if not trace.condensed:
        yield Say(f"Under a causal mask (attn masked) it could only look back, {_if_causal(trace, i)}")


def _if_causal(trace: Trace, i: int) -> str:
    """Return what a causal mask would do to the weights of query i."""
    if trace.projection.layer:
        return "and so could every word in the layers below: all the numbers would change."
    weights = trace.shown.weights[i].tolist()
    past = sum(weights[: i + 1])
    if past < 0.001:
        return "at words that get less than 0.001 now."
    parts = [
        f"{quoted(trace.key_tokens[j])} {weights[j]:.4g}/{past:.4g} = {weights[j] / past:.3f}"
        for j in range(max(0, i - 5), i + 1)
    ]
    return (
        f"and the remaining weights, {past:.4g} together, would be rescaled to sum to one: "
        f"{'... ' if i > 5 else ''}{', '.join(parts)}."
    )


def _sharpness(trace: Trace) -> Iterator[Block]:
    """Yield each row's entropy, and the temperature at which its strongest key would have 95 %."""
    rows = trace.listed if not trace.condensed else trace.focus
    if len(trace.key_tokens) < 2 or not rows:
        return
    diagnosed = list(zip(rows, trace.diagnoses(rows), strict=True))
    yield Heading("How sharp are the weights?")
    lines = []
    for i, found in diagnosed[:MOST_DIAGNOSED]:
        cells, t = ["masked", "–", "–"], found.temperature_95
        if found.entropy is not None and found.most is not None:
            cells = [TWO(found.entropy), TWO(found.most), "–" if t is None else f"{t:.3g}"]
        lines.append([short(trace.query_tokens[i]), *cells])
    yield Columns(["query", "entropy", "at most", "95 % at -t"], lines)
    if len(diagnosed) > MOST_DIAGNOSED:
        yield Say(f"{len(diagnosed) - MOST_DIAGNOSED:,} more rows: -q WORD shows one.", quiet=True)
    yield Say(
        "Entropy is in bits: 0 where one key has all, log2 of the number of keys where all have the same. At the "
        "temperature in the last column (-t) the strongest key would have 95 %."
    )
    yield from map(Say, remarks(trace, diagnosed))


def _who(trace: Trace, head: Head) -> Iterator[Block]:
    rows = trace.listed[:MOST_ROWS]
    items: list[tuple[str, float | None]] = []
    for i in rows:
        name = f"{short(trace.query_tokens[i])} -> {_looks_at(trace, head, i)}"
        items.append((name, float(head.links.weights[i, 0])))
    yield Bars("", items, largest_weight(trace, rows))
    others = _strongest_others(trace, head, rows)
    if others:
        yield Say("Each word's strongest link to a different word:")
        yield Bars("", others, largest_weight(trace, rows))
    if len(rows) < len(trace.listed):
        yield Say(f"{len(trace.listed) - len(rows):,} more rows: -q WORD shows one.", quiet=True)


def _strongest_others(trace: Trace, head: Head, rows: tuple[int, ...]) -> list[tuple[str, float | None]]:
    """Return each row's strongest link to a differently written word, if most rows look at their own."""
    items: list[tuple[str, float | None]] = []
    own = 0
    for i in rows:
        if i in trace.pad_queries:
            continue
        token = trace.query_tokens[i].casefold()
        links = [(trace.key_tokens[j], weight) for j, weight in links_of(head, i)]
        own += bool(links) and links[0][0].casefold() == token
        for key, weight in links:
            if key.casefold() != token and key not in trace.unknown:
                items.append((f"{short(trace.query_tokens[i])} -> {short(key)}", weight))
                break
    return items if 2 * own > len(rows) else []


def _looks_at(trace: Trace, head: Head, i: int) -> str:
    """Return what query i looks at most, itself where it shares the first place; `all alike`, or `nothing`."""
    links = links_of(head, i)
    if not links:
        return "nothing"
    j, most = links[0]
    if trace.mask is None or not trace.condensed:
        n = len(trace.key_tokens) if trace.mask is None else int(trace.mask[i].sum())
        if n > 1 and abs(most * n - 1) < 1e-9:
            return "all alike"
    return short(trace.key_tokens[i if trace.is_self and dict(links).get(i, -1.0) >= most - 1e-12 else j])
