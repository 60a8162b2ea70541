"""The first screen of `attn explain`: one row and why it came out so, then where its numbers come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_cli.io.escape import count
from attn_cli.io.terminal import Terminal
from attn_cli.render.blocks import Beside, Block, Formula, Heading, Matrix, Say
from attn_cli.render.screen.text import listed
from attn_cli.render.views.closing import closing, dropped
from attn_cli.render.views.one_row import hand_work, query_vectors, row_and_reasons
from attn_cli.render.views.origins import learned_briefly
from attn_cli.render.views.overview import MOST_FOCUS, all_weights
from attn_cli.render.views.step_sentences import shown_ids
from attn_cli.render.views.whys import Walked, heads, mixture, walked, why
from attn_cli.render.views.wording import formula, kind_of, no_arithmetic, shared_with, short, shown_part
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_TOKENS = 24
MOST_LINES, WIDTH = 60, 80
MOST_SMALL = 32  # numbers in X of an input whose every matrix may fit


def story(trace: Trace, view: View) -> Iterator[Block]:
    """Yield what attention does, a row by hand with its because, where the numbers come from, and all the rows.

    A small input has its every matrix too, as long as the screen stays within MOST_LINES lines.
    """
    if not trace.is_scored:
        return _without_scores(trace, view)
    if matrices := _matrices(trace):
        whole = list(_parts(trace, view, matrices))
        if _height(whole, view) <= MOST_LINES:
            return iter(whole)
    return _parts(trace, view, [])


def _parts(trace: Trace, view: View, matrices: list[Block]) -> Iterator[Block]:
    yield Heading(_title(trace), 1)
    if trace.of_model:
        yield Say(shown_part(trace), quiet=True)
    yield Say(_what(trace))
    rows = trace.focus[:MOST_FOCUS]
    for i in rows:
        yield from row_and_reasons(trace, i, view.by_hand == "all")
    if more := len(trace.focus) - len(rows):
        yield Say(
            f"{count(more, 'more row matches', 'more rows match')}: give a number with -q for one of them."
        )
    of = next(filter(None, (walked(trace, i) for i in rows)), None)
    if of is not None:
        yield from _numbers(of, view.by_hand == "all", several=len(rows) > 1)
    if matrices:
        yield Heading("Every matrix")
        yield from matrices
    if not trace.asked:
        yield Heading("All the rows: who looks at whom")
        yield from all_weights(trace, view)
    if of is not None:
        yield from _meaning(of)
    if trace.next_words is not None:
        from attn_cli.render.views.closing import next_words  # only a pretrained model has some

        yield from next_words(trace)
    yield from _next(trace)


def _without_scores(trace: Trace, view: View) -> Iterator[Block]:
    """Yield the rows of weights that have no scores, and what they are."""
    yield Heading(_title(trace), 1)
    yield Formula(formula(trace))
    yield Say(" ".join(no_arithmetic(trace)))
    yield from all_weights(trace, view)
    yield from closing(trace)


def _height(blocks: list[Block], view: View) -> int:
    """Return how many lines the blocks take on a screen."""
    from attn_cli.render.screen.draw import draw

    return sum(1 for _ in draw(blocks, view, Terminal(view.width or WIDTH)))


def _matrices(trace: Trace) -> list[Block]:
    """Return every matrix of a small input, those of one shape side by side; nothing for a larger one."""
    head = trace.stepped_head
    if trace.condensed or trace.asked or trace.x_query is None or trace.x_query.size > MOST_SMALL:
        return []
    found: list[tuple[str, tuple[str, ...], Array | None]] = [("X", trace.query_tokens, trace.x_query)]
    if trace.has_second_input and trace.x_key is not None:
        found.append(("context", trace.key_tokens, trace.x_key))
    for name, rows in (("q", trace.query_tokens), ("k", trace.key_tokens), ("v", trace.key_tokens)):
        W = getattr(head, f"W_{name}")
        if W is not None and trace.projection.source != "identity":
            found.append((f"W_{name}", tuple(map(str, range(len(W)))), W))
        found.append((name.upper(), rows, getattr(head, name)))
    found += [("scores", trace.query_tokens, head.scores), ("scaled", trace.query_tokens, head.scaled_scores)]
    groups: dict[tuple[tuple[str, ...], bool, int], list[tuple[str, Array]]] = {}
    for name, rows, values in found:
        if values is not None:
            is_square = name in ("scores", "scaled")
            groups.setdefault((rows, is_square, values.shape[1]), []).append((name, values))
    return [_side_by_side(trace, *key, group) for key, group in groups.items()]


def _side_by_side(
    trace: Trace, rows: tuple[str, ...], is_square: bool, n: int, group: list[tuple[str, Array]]
) -> Block:
    columns = trace.key_tokens if is_square else tuple(map(str, range(n)))
    parts = [Matrix(rows, columns, values, digits=trace.settings.round) for _, values in group]
    return Beside([name for name, _ in group], parts)


def _title(trace: Trace) -> str:
    """Return the kind of attention, and the text."""
    texts = [trace.query_tokens, trace.key_tokens] if trace.has_second_input else [trace.query_tokens]
    shown = [" ".join(map(short, text[:MOST_TOKENS])) + " ..." * (len(text) > MOST_TOKENS) for text in texts]
    return f"{kind_of(trace)}: {' -> '.join(shown)}"


def _what(trace: Trace) -> str:
    """Return what attention does, in two sentences."""
    words = "all the words of the text" if trace.is_self else "the words of the context"
    if trace.mask is not None:
        words = "the words that it may look at"
    is_apart = trace.heads[0].position_scores is not None
    is_plain = trace.placed is None and (is_apart or not trace.of_model)
    share = "its match (content)" if is_plain else "its match, its place included (content)"
    if is_apart:
        share += " and its place (distance)"
    return (
        f"Attention gives each word a new vector, a mix of {words}. A word's weight in it comes from {share}."
    )


def _numbers(of: Walked, every_key: bool, several: bool) -> Iterator[Block]:
    """Yield where the numbers of the row come from: tokens, vectors, q and k, and why each step is there."""
    trace = of.trace
    yield Heading("Where these numbers come from" + (f": the row of {of.query}" if several else ""))
    if trace.query_ids is not None:
        yield Say(f"Tokens and ids: {_numbered(trace)}. {why('tokens', of)}")
    shared = shared_with(trace, of.head)
    yield Say(f"{why('W_q', of)} {shared}".rstrip())
    if of.head.q is not None:
        vectors = query_vectors(trace, of.head, of.row.query)
        yield from vectors if trace.placed is not None or trace.of_model else vectors[-1:]
    yield from hand_work(of, every_key)
    yield from (
        Say(text)
        for step in ("position_scores", "scaled_scores", "capped_scores", "weights")
        if (text := why(step, of))
    )


def _numbered(trace: Trace) -> str:
    """Return the tokens with their ids."""
    ids = shown_ids(trace) or ((), ())
    sides = [(trace.query_tokens, ids[0]), (trace.key_tokens, ids[1])]
    pairs = dict.fromkeys(
        (token, number)
        for tokens, numbers in (sides if trace.has_second_input else sides[:1])
        for token, number in zip(tokens, numbers, strict=True)
    )
    return listed([f"{short(token)} {number}" for token, number in pairs], MOST_TOKENS)


def _meaning(of: Walked) -> Iterator[Block]:
    """Yield what the output is, what a mask is for, and what the head was taught."""
    if of.trace.shown.scores is not None:  # the mean of heads has other weights than this row
        yield Say(mixture(of))
        if text := why("masked_scores", of):
            yield Say(text)
    yield Say(" ".join([*learned_briefly(of.trace), heads(of)]))


def _next(trace: Trace) -> Iterator[Block]:
    """Yield where to go on, and what else is to be said."""
    another = "attn cross TEXT CONTEXT (rows: TEXT looks; columns: CONTEXT)"
    if trace.of_model:  # which may read one text alone
        another = "attn heads TEXT -m DIR (all layers and heads)"
    yield Say(
        "Next: attn explain TEXT --versus WORD (why not it?), attn explain TEXT --steps (every matrix), "
        f"{another}."
    )
    for mark in dropped(trace):
        yield Say(mark, quiet=True)
    for note in trace.notes:
        yield Say(f"Note: {note}")
