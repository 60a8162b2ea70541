"""One row by hand: how one query comes to its weights, the numbers first and then the arithmetic behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Say
from attn_cli.render.numbers import four, plain
from attn_cli.render.views.whys import MOST_RIVALS, Walked, mixture, reasons, walked
from attn_cli.render.views.wording import (
    cap_term,
    head_of_layer,
    is_large,
    placed,
    position_term,
    quoted_at,
    root_divisor,
    rotated_symbol,
    rotated_term,
    temperature_divisor,
)
from attn_cli.settings.settings import ALL
from attn_cli.trace.head import Head
from attn_cli.trace.row import Because, Row
from attn_cli.trace.trace import Trace

ALL_FACTORS = 8
FIRST_FACTORS, FIRST_NUMBERS = 2, 3
MOST_KEYS = 12
MOST_WORKED = 3  # rivals whose products are written out
SHORT_COUNT = 10_000


def one_row(trace: Trace, i: int, every_key: bool) -> Iterator[Block]:
    """Yield query i's row: the table of its keys, why the winner won, and the arithmetic.

    With `every_key` the arithmetic of every key is written out in full, else that of the winner and its rivals.
    """
    yield from row_and_reasons(trace, i, every_key)
    of = walked(trace, i)
    if of is None:
        return
    if of.head.q is not None:
        yield from query_vectors(trace, of.head, i)
    yield from hand_work(of, every_key, distances=None)
    if of.head.output is None:  # scores were given, without values
        return
    if not every_key and of.head.q is not None and of.head.q.shape[1] > ALL_FACTORS:
        yield Say("--by-hand all writes out every product.", quiet=True)
    elif every_key and of.head.q is not None:
        yield Say("Factors are shown rounded, so a sum of them may differ in its last digits.", quiet=True)
    yield Say(mixture(of))
    if of.head.output is not None:
        yield Formula(_vector("output", of.head.output[i].tolist()))


def hand_work(of: Walked, every_key: bool, distances: int | None = 1) -> Iterator[Block]:
    """Yield the scores of the winner and its rivals (or of every key) as sums of products.

    What the distance adds is written out of the first keys alone, as many as `distances`; None is all.
    """
    if every_key:
        yield from _sums(of, _keys(of.trace, of.row, True), None, True)
    else:
        if distances is not None and of.head.rotated is not None:
            distances += 1  # a turn is that of one key alone: the runner-up's can be checked, too
        yield from _sums(of, _worked_keys(of), distances, False)


def row_and_reasons(trace: Trace, i: int, every_key: bool = False) -> Iterator[Block]:
    """Yield the table of query i's keys, and why its winner won."""
    head = trace.stepped_head
    row = trace.row(i, head)
    query = quoted_at(trace.query_tokens, i)
    yield Heading(f"One row by hand: what does {query} look at?")
    assert row is not None
    if trace.shown.scores is None:
        yield Say(
            f"The mean of the heads has weights but no scores of its own. This is {head_of_layer(head)}."
        )
    elif (len(trace.heads) > 1 and trace.settings.head == ALL) or head.layer is not None:
        yield Say(f"This is {head_of_layer(head)}.")
    if row.total == 0:
        yield Say(f"{query} may look at nothing: its weights and its output are zeros.")
        return
    yield row_table(trace, row, _keys(trace, row, every_key))
    yield Formula(_legend(trace, head, row))
    yield from map(Say, reasons(trace, row, row.because()))


def _sums(of: Walked, keys: list[int], distances: int | None, every: bool) -> Iterator[Block]:
    trace, head, row = of
    for n, j in enumerate(keys):
        key = placed(trace.key_tokens, j)
        if head.q is not None:
            yield Formula(_products(trace, head, row.query, j, row, every), f"{key}:")
        if distances is None or n < distances:
            yield from _added(of, j, every)
    if row.shift:
        yield Say(
            f"Before exp, the largest score ({plain(row.shift)}) is subtracted from every score: this keeps the "
            "numbers small, and cancels out."
        )


def _worked_keys(of: Walked) -> list[int]:
    """Return the keys whose arithmetic is written out: the winner and its rivals."""
    found = of.row.because()
    return list(dict.fromkeys([of.winner, *(one.rival_index for one in found[:MOST_WORKED])]))


def query_vectors(trace: Trace, head: Head, i: int) -> list[Formula]:
    """Return query i's x, what it is the sum of, and its q; q alone where that is x."""
    assert head.q is not None
    token = f"{placed(trace.query_tokens, i)}:"
    if _is_x(trace):
        return [Formula(_vector("q = x", head.q[i].tolist()), token)]
    found = []
    if trace.placed is not None:
        found.append(Formula(_vector("word", trace.placed.words_query[i].tolist()), token))
        found.append(
            Formula(_vector("P", trace.placed.encodings_query[i].tolist()), f"place {trace.place(i)}:")
        )
    if trace.x_query is not None:
        name = "x = word + P" if trace.placed else "x"
        found.append(Formula(_vector(name, trace.x_query[i].tolist()), token))
    made = "W_q x" if trace.projection.layout == "out-in" else "x W_q"
    bias = " + b_q" if head.b_q is not None else ""
    made = f"{made}{bias}" if head.qk_norm is None else f"norm({made}{bias})"
    name = f"q = {made}" if head.W_q is not None else "q"
    return [*found, Formula(_vector(name, head.q[i].tolist()), token)]


def _is_x(trace: Trace) -> bool:
    """Return whether a query is its word's vector: with W the identity, and nothing added for places."""
    return trace.projection.source == "identity" and len(trace.head_names) == 1 and trace.placed is None


def _vector(name: str, numbers: list[float]) -> str:
    if len(numbers) <= ALL_FACTORS:
        return f"{name} = [{'  '.join(map(plain, numbers))}]"
    first = "  ".join(map(plain, numbers[:FIRST_NUMBERS]))
    return f"{name} = [{first}  …  {plain(numbers[-1])}] ({len(numbers)} numbers)"


def _keys(trace: Trace, row: Row, every: bool) -> list[int]:
    """Return the keys to list, in the order of the text: all, or the strongest where they are many."""
    most = MOST_KEYS * 3 if trace.asked and not is_large(trace) else MOST_KEYS
    n_k = len(row.masked)
    if every or n_k <= most:
        return list(range(n_k))
    return sorted({*row.strongest[:most], *trace.named_rivals[:MOST_RIVALS]})


def _products(trace: Trace, head: Head, i: int, j: int, row: Row, every: bool) -> str:
    """Return a score written as a sum: every term, or of many the first two, and the rest as one."""
    assert head.q is not None and head.k is not None
    return _written(trace, head.q[i].tolist(), head.k[j].tolist(), row.scores[j], every)


def _written(trace: Trace, q: list[float], k: list[float], value: float, every: bool) -> str:
    """Return the score of a query with a key, `value`, as a sum."""
    left, written, after = score_named(trace.score).by_hand(q, k, value, plain)
    terms = [text for text, _ in written]
    values = [value for _, value in written]
    if len(terms) > ALL_FACTORS and not every:
        rest = f"({len(terms) - FIRST_FACTORS} more: {plain(sum(values[FIRST_FACTORS:]))})"
        terms = [*terms[:FIRST_FACTORS], rest]
    total = sum(values)
    if not math.isfinite(total):
        return f"{left} is too large to write out; the score is {plain(value)}"
    return f"{left} = {' + '.join(terms)} = {plain(total)}{after}"


def _added(of: Walked, j: int, every: bool) -> Iterator[Formula]:
    """Yield what the distance of key j adds, and what the cap makes of its score, written out."""
    trace, head, row = of
    if head.position_vectors is not None:
        yield _distance(trace, head, row.query, j, row)
    if head.rotated is not None:
        yield _rotated(trace, head, j, row, every)
    if row.capped is not None:
        score = row.summed[j] if row.is_rotated else row.scaled[j]
        yield Formula(f"capped = {cap_term(trace, plain(score))} = {plain(row.capped[j])}", "")


def _rotated(trace: Trace, head: Head, j: int, row: Row, every: bool) -> Formula:
    """Return what the distance of key j adds where vectors are turned: the turned score, less the content."""
    assert head.rotated is not None and row.position is not None
    q, k = head.rotated.q[row.query].tolist(), head.rotated.k[j].tolist()
    left, _, products = _written(
        trace, q, k, row.summed[j] * trace.temperature / trace.scale, every
    ).partition(" ")
    divided = f"{root_divisor(trace)}{temperature_divisor(trace)}"
    content = row.scaled[j]
    less = f"- {plain(content)}" if content >= 0 else f"+ {plain(-content)}"
    away = f"{placed(trace.key_tokens, j)}, turned:"
    distance = f"distance = that{divided} {less} = {plain(row.position[j])}"
    return Formula(f"{rotated_symbol(left)} {products}; {distance}", away)


def _distance(trace: Trace, head: Head, i: int, j: int, row: Row) -> Formula:
    """Return what the distance of key j from query i adds, written out."""
    assert head.q is not None and head.position_vectors is not None and head.position_biases is not None
    assert row.position is not None
    reach = len(head.position_biases) // 2
    place = max(-reach, min(reach, j - i)) + reach
    q, r = head.q[i].tolist(), head.position_vectors[place].tolist()
    along = sum(a * b for a, b in zip(q, r, strict=True))
    b = float(head.position_biases[place])
    numbers = f"{plain(along)} + {plain(b) if b >= 0 else f'({plain(b)})'}"
    term = f"distance = {position_term(trace, numbers)} = {plain(row.position[j])}"
    apart, way = abs(j - i), "back" if j < i else "on"
    words = f"{min(apart, reach)} {'or more ' if apart >= reach else ''}words {way}"
    if apart < 2:
        words = f"1 word {way}" if apart else "its own place"
    return Formula(term, f"{placed(trace.key_tokens, j)}, {words}:")


def row_table(trace: Trace, row: Row, keys: list[int]) -> Columns:
    """Return a table of these keys of one query: content, distance, sum, exp, weight, and how far a key is behind.

    The other keys are summed up in one line, the masked ones counted in another. Without a distance term the
    content is the sum, and the score it was divided from stands before it.
    """
    is_divided = bool(_divisor(trace))
    header = ["key", "content", "distance", "sum"]
    if row.position is None:
        header = ["key", score_named(trace.score).column, *(["content"] if is_divided else [])]
    if row.capped is not None:  # what was given for the distance is added to what the cap leaves
        header.insert(2 if row.position is not None and not row.is_rotated else len(header), "capped")
    header += ["exp" if not row.shift else "exp(s - max)", "weight"]
    winner = row.strongest[0]
    is_split = row.position is not None and len(keys) > 1
    rows = [_key_line(trace, row, j, is_divided) for j in keys]
    if is_split:
        header += ["behind", "mostly in"]
        for line, j in zip(rows, keys, strict=True):
            line += ["–", "winner"] if j == winner else _lost(row.against(winner, j))
    rest = set(range(len(row.weights))).difference(keys)
    others = [j for j in sorted(rest) if not row.is_masked(j)]
    tail = ["…"] * (2 * is_split)
    blank = ["…"] * (len(header) - 3 - len(tail))
    if others:
        exps, weights = (sum(part[j] for j in others) for part in (row.exps, row.weights))
        rows.append([_counted(len(others), "others"), *blank, _weight(exps), _weight(weights), *tail])
    if masked := len(rest) - len(others):
        rows.append([_counted(masked, "masked"), *blank, "masked", "–", *tail])
    rows.append(["sum", *blank, _weight(row.total), four(sum(row.weights)), *tail])
    return Columns(header, rows)


def _key_line(trace: Trace, row: Row, j: int, is_divided: bool) -> list[str]:
    is_masked = row.is_masked(j)
    line = [placed(trace.key_tokens, j)]
    if row.position is None:
        shown = [row.scores[j], *([row.scaled[j]] if is_divided else [])]
        line += ["–" if math.isinf(x) else four(x) for x in shown]  # given scores may be masked already
    else:
        line += [four(row.scaled[j]), four(row.position[j]), "masked" if is_masked else four(row.summed[j])]
    if row.capped is not None:
        at = 2 if row.position is not None and not row.is_rotated else len(line)
        line.insert(at, "masked" if is_masked and row.is_rotated else four(row.capped[j]))
    return line + (["masked", "–"] if is_masked else [_weight(row.exps[j]), _weight(row.weights[j])])


def _lost(found: Because) -> list[str]:
    """Return how far the sum of a rival is behind the winner's, and which term most of it is in."""
    return ["–", "mask"] if found.decided == "mask" else [four(found.lead), found.decided]


def _divisor(trace: Trace) -> str:
    return (root_divisor(trace) + temperature_divisor(trace)).strip()


def _counted(n: int, what: str) -> str:
    """Return how many more keys there are, briefly: a long label would be cut."""
    return f"{n:,} {what if n < SHORT_COUNT else 'more'}"


def _legend(trace: Trace, head: Head, row: Row) -> str:
    """Return how the columns come about."""
    content = f"{score_named(trace.score).symbol}{root_divisor(trace)}{temperature_divisor(trace)}"
    parts = [f"content = {content}"] if row.position is not None or _divisor(trace) else []
    if row.position is not None and head.position_vectors is not None:
        parts.append(f"distance = {position_term(trace)}")
    if head.rotated is not None:
        parts.append(f"distance = {rotated_term(trace)} (q', k': after rotation by position)")
    elif row.position is not None and head.position_vectors is None and trace.of_model:
        by = f", and divided by {trace.temperature:.12g}" if trace.temperature != 1 else ""
        parts.append(f"distance: learned, for each range of distances{by}")
    if row.capped is not None:
        score = "sum" if row.is_rotated else "content" if _divisor(trace) else score_named(trace.score).symbol
        parts.append(f"capped = {cap_term(trace, score)}")
    parts.append(f"weight = exp / {_weight(row.total)}")
    return ", ".join(parts)


def _weight(weight: float) -> str:
    """Return a weight or an exp with four decimals, or in powers of ten where these do not suit it."""
    if weight >= 10_000:
        return f"{weight:.4e}"
    return four(weight) if weight == 0 or weight >= 0.001 else f"{weight:.2e}"
