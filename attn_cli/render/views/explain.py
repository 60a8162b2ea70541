"""The screens of `attn explain`: the story from its first sentence on, one row and why it came out so; the walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.errors import count, count_more
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import Array
from attn_cli.render import (
    Bars,
    Beside,
    Block,
    Columns,
    Formula,
    Heading,
    Matrix,
    Say,
    listed,
    quoted,
    short,
    walk,
)
from attn_cli.render.numbers import number
from attn_cli.render.views import finding, long_text, origins, overview, step_sentences, steps, wording
from attn_cli.render.views.one_row import hand_work, one_row, query_vectors, row_and_reasons
from attn_cli.render.views.whys import Walked, heads, output, several_heads, walked, why
from attn_cli.render.views.wording import formula, may_look_at, no_arithmetic
from attn_cli.settings import View
from attn_cli.trace import Head, Trace

MOST_DIAGNOSED, MOST_TOKENS = 12, 24
MOST_LINES, WIDTH = 60, 80
MOST_SMALL = 32  # numbers in X of an input whose every matrix may fit
TWO = number(2)
# The first two are left out first.
WHYS = ("k", "position_scores", "scaled_scores", "capped_scores", "weights")


def story(trace: Trace, view: View) -> Iterator[Block]:
    """Yield what was found, a row by hand with its reasons, where its numbers come from, and what the output is for.

    Every matrix of a small input, all the rows and further reasons are there as long as MOST_LINES lines hold them.
    """
    if not trace.is_scored:
        yield from (Heading(_text(trace), 1), Formula(formula(trace)), Say(" ".join(no_arithmetic(trace))))
        yield from overview.all_weights(trace, view)
        yield from origins.closing(trace)
        return
    from attn_cli.render.screen.draw import draw

    matrices, terminal = _matrices(trace), Terminal(view.width or WIDTH)
    tries = [(matrices, True, 0), (matrices, True, 2), (matrices, False, 2)] * bool(matrices)
    for parts in [*tries, ([], True, 0), *(([], trace.condensed, brief) for brief in range(4))]:
        whole = list(_story(trace, view, *parts))
        if len(list(draw(whole, view, terminal))) <= MOST_LINES:
            break
    yield from whole


def _story(trace: Trace, view: View, matrices: list[Block], has_rows: bool, brief: int) -> Iterator[Block]:
    yield Heading(_text(trace), 1)
    if trace.of_model:
        yield Say(wording.shown_part(trace), quiet=True)
    words = "all words" if trace.is_self else "the words of the context"
    words = words if trace.mask is None else "the words that it may look at"
    is_apart = trace.heads[0].position_scores is not None
    has_place = trace.placed is not None or (trace.of_model and not is_apart)
    match = f"match{', its place included' * has_place} (content){' and place (distance)' * is_apart}"
    found = f"{finding.looks_most_at(trace, trace.shown, trace.focus[0])}. " * bool(trace.focus)
    yield Say(f"{found}Each word's new vector is a mix of {words}, by {match}.")
    rows, is_whole = trace.focus[: overview.MOST_FOCUS], view.by_hand == "all"
    for i in rows:
        yield from row_and_reasons(trace, i, is_whole)
    if more := len(trace.focus) - len(rows):
        matches = count(more, "more row matches", "more rows match")
        yield Say(f"{matches}: give a number with -q for one of them.")
    of = next(filter(None, (walked(trace, i) for i in rows)), None)
    if of is not None:
        yield Heading("Where these numbers come from" + f": the row of {of.query}" * (len(rows) > 1))
        yield from _numbers(of, is_whole, WHYS[max(0, brief - 1) :])
    if matrices:
        yield from (Heading("Every matrix"), *matrices)
    if has_rows and not trace.asked:
        yield Heading("All the rows: who looks at whom")
        yield from overview.all_weights(trace, view)
    yield Heading("What comes of it")
    if of is not None and trace.shown.scores is not None:  # the mean of heads has other weights
        yield from map(Say, filter(None, (output(of), "" if brief else why("masked_scores", of))))
    if of is not None:
        others = list(several_heads(of))
        yield Say(" ".join([*([] if brief else origins.learned_briefly(trace)), heads(of, bool(others))]))
        yield from others
    yield from origins.next_words(trace) if trace.next_words is not None else origins.leaned(trace)
    yield from origins.notes(trace)
    yield from finding.other_rows(trace)


def _text(trace: Trace) -> str:
    texts = [trace.query_tokens, trace.key_tokens] if trace.has_second_input else [trace.query_tokens]
    shown = [" ".join(map(short, text[:MOST_TOKENS])) + " ..." * (len(text) > MOST_TOKENS) for text in texts]
    return f"{wording.kind_of(trace)}: {' -> '.join(shown)}"


def _numbers(of: Walked, every_key: bool, whys: Sequence[str]) -> Iterator[Block]:
    """Yield where the numbers of the row come from: tokens, vectors, q and k, and why each step is there."""
    trace = of.trace
    if (ids := step_sentences.shown_ids(trace)) is not None:
        sides = [(trace.query_tokens, ids[0]), (trace.key_tokens, ids[1])][: 1 + trace.has_second_input]
        pairs = dict.fromkeys(pair for side in sides for pair in zip(*side, strict=True))
        numbered = listed([f"{short(token)} {number}" for token, number in pairs], MOST_TOKENS)
        rows = "" if trace.vocabulary is None or trace.of_model else f", their rows in {trace.embedding.name}"
        yield Say(f"Tokens and ids{rows}: {numbered}.{step_sentences.one_vector(trace)} {why('tokens', of)}")
    three = [why("W_q", of), why("k", of) if "k" in whys else "", wording.shared_with(trace, of.head)]
    yield Say(" ".join(filter(None, three)))
    if of.head.q is not None:
        vectors = query_vectors(trace, of.head, of.row.query)
        yield from vectors if trace.placed is not None or trace.of_model else vectors[-1:]
    yield from hand_work(of, every_key)
    yield from map(Say, filter(None, (why(step, of) for step in whys if step != "k")))


def _matrices(trace: Trace) -> list[Block]:
    """Return every matrix of a small input, those of one shape side by side; nothing for a larger one."""
    head, queries, keys = trace.stepped_head, trace.query_tokens, trace.key_tokens
    if trace.condensed or trace.asked or trace.x_query is None or trace.x_query.size > MOST_SMALL:
        return []
    found: list[tuple[str, Sequence[str], Array | None]] = [("X", queries, trace.x_query)]
    found += [("context", keys, trace.x_key)] * trace.has_second_input
    for name, tokens in (("q", queries), ("k", keys), ("v", keys)):
        W = None if trace.projection.source == "identity" else getattr(head, f"W_{name}")
        numbers = [str(n) for n in range(0 if W is None else len(W))]
        found += [(f"W_{name}", numbers, W), (name.upper(), tokens, getattr(head, name))]
    found += [("scores", queries, head.scores), ("scaled", queries, head.scaled_scores)]
    groups: dict[tuple[object, ...], dict[str, Matrix]] = {}
    for name, rows, values in found:
        if values is not None:
            is_square = name in ("scores", "scaled")
            columns = keys if is_square else [str(n) for n in range(values.shape[1])]
            matrix = Matrix(rows, columns, values, digits=trace.settings.round)
            groups.setdefault((*rows, is_square, len(columns)), {})[name] = matrix
    return [Beside(list(group), list(group.values())) for group in groups.values()]


# The walk


def explain(trace: Trace, view: View, parts: walk.Walk) -> Iterator[Block]:
    """Yield the walk: one row by hand, every matrix, the mask, how sharp the rows are, and their strongest keys."""
    yield from (Heading(wording.title(trace), 1), Formula(formula(trace)))
    if not trace.is_scored:
        yield Say(" ".join(no_arithmetic(trace)))
    elif trace.of_model:
        yield Say(wording.shown_part(trace), quiet=True)
    if trace.is_scored and parts.by_hand:
        yield from map(Say, origins.learned(trace))
        for i in trace.focus[: overview.MOST_FOCUS]:
            yield from one_row(trace, i, view.by_hand == "all")
    if trace.is_scored and (not trace.asked or parts.only):
        if parts.by_hand:
            yield Heading("The whole matrix, step by step")
        yield from steps.walk(trace, parts.only, each=not parts.ending)
        if parts.by_hand:
            yield Heading(f"Who may look at whom{_of_head(trace, trace.shown)}")
            yield from map(Say, _mask(trace))
    if parts.ending:
        yield from _sharpness(trace)
        is_long = trace.condensed and not trace.asked
        for head in overview.drawn_heads(trace):
            yield Heading(f"Who attends to whom{_of_head(trace, head)}")
            yield from long_text.long_view(trace, head, view) if is_long else _who(trace, head)
    yield from origins.closing(trace, with_learned=False)


def _of_head(trace: Trace, head: Head) -> str:
    n = len(trace.head_names)
    if head.name == "mean":
        return f": mean of {n} heads" + ("" if head.layer is None else f" of layer {head.layer}")
    return "" if n == 1 and head.layer is None else f": {wording.head_of_layer(head)}"


def _mask(trace: Trace) -> Iterator[str]:
    n_k, i = len(trace.key_tokens), trace.focus[0]
    if trace.mask is not None:
        rows = trace.listed[: overview.MOST_ROWS]
        yield from (may_look_at(trace, i) for i in rows if not trace.condensed or i in trace.focus)
        yield "A masked key gets no weight; the other keys of the row share all of it."
    elif n_k == 1:
        yield "There is one key, so a mask could only hide everything."
    elif not trace.is_self:
        yield f"No mask: {quoted(trace.query_tokens[i])} may look at all {n_k:,} keys."
    else:
        if i == n_k - 1 and not trace.condensed:
            last, i = quoted(trace.query_tokens[i]), i // 2
            yield f"{last} is last, so a causal mask hides nothing from it; take {quoted(trace.query_tokens[i])}."
        query = quoted(trace.query_tokens[i])
        yield f"No mask: {query} may look at all {n_k:,} words, including those after it."
        weights = [] if trace.condensed else trace.shown.weights[i, : i + 1].tolist()
        past, near = sum(weights), [*zip(trace.key_tokens, weights, strict=False)][-6:]
        would = "and so could every word in the layers below: all the numbers would change."
        if not trace.projection.layer and past < 0.001:
            would = "at words that get less than 0.001 now."
        elif not trace.projection.layer:
            each = ", ".join(f"{quoted(key)} {w:.4g}/{past:.4g} = {w / past:.3f}" for key, w in near)
            would = f"and the remaining weights, {past:.4g} together, would be rescaled to sum to one: "
            would += f"{'... ' * (i > 5)}{each}."
        if not trace.condensed:
            yield f"Under a causal mask (--mask causal) it could only look back, {would}"


def _sharpness(trace: Trace) -> Iterator[Block]:
    rows = trace.focus if trace.condensed else trace.listed
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
    yield from _more_rows(diagnosed, lines)
    yield Say(
        "Entropy is in bits: 0 where one key has all, log2 of the number of keys where all have the same. At the "
        "temperature in the last column (-t) the strongest key would have 95 %."
    )
    yield from map(Say, overview.remarks(trace, diagnosed))


def _more_rows(rows: Sequence[object], shown: Sequence[object]) -> Iterator[Say]:
    if len(rows) > len(shown):
        yield Say(f"{count_more(len(rows) - len(shown), 'row')}: -q WORD shows one.", quiet=True)


def _who(trace: Trace, head: Head) -> Iterator[Block]:
    """Yield what each row looks at most; if that is mostly its own word, the strongest links to other words, too."""
    rows, queries, keys = trace.listed[: overview.MOST_ROWS], trace.query_tokens, trace.key_tokens
    largest, weights = overview.largest_weight(trace, rows), head.links.weights[:, 0].tolist()
    items, others, own = list[tuple[str, float]](), list[tuple[str, float]](), 0
    for i in rows:
        links, looks_at = long_text.links_of(head, i), "nothing"
        for j, most in links[:1]:
            n = len(keys) if trace.mask is None else 0 if trace.condensed else int(trace.mask[i].sum())
            is_own = trace.is_self and dict(links).get(i, -1.0) >= most - 1e-12
            looks_at = "all alike" if n > 1 and abs(most * n - 1) < 1e-9 else short(keys[i if is_own else j])
        items.append((f"{short(queries[i])} -> {looks_at}", weights[i]))
        links = [] if i in trace.pad_queries else links
        apart = [link for link in links if keys[link[0]].casefold() != queries[i].casefold()]
        own += links[:1] != apart[:1]
        known = [(keys[j], weight) for j, weight in apart if keys[j] not in trace.unknown]
        others += [(f"{short(queries[i])} -> {short(key)}", weight) for key, weight in known[:1]]
    yield Bars("", items, largest)
    if others and 2 * own > len(rows):
        yield Say("Each word's strongest link to a different word:")
        yield Bars("", others, largest)
    yield from _more_rows(trace.listed, rows)
