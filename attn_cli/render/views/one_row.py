"""One row by hand: how one query comes to its weights, the numbers first and then the arithmetic behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attn_cli.core.scores import score_named
from attn_cli.io.types import Array
from attn_cli.render import Block, Columns, Formula, Heading, Say, four, placed, plain, quoted, quoted_at
from attn_cli.render.views import wording
from attn_cli.render.views.whys import MOST_RIVALS, Walked, mixture, reasons, walked
from attn_cli.settings import ALL
from attn_cli.trace import Head, Row, Trace

ALL_FACTORS, FIRST_FACTORS, FIRST_NUMBERS = 8, 2, 3
MOST_KEYS = 12
MOST_WORKED = 3  # rivals whose products are written out
SHORT_COUNT = 10_000
MASKED = "masked"
TERMS = ("q·place", "k·place")


def one_row(trace: Trace, i: int, every_key: bool) -> Iterator[Block]:
    """Yield query i's row: its keys, why the winner won, and the arithmetic of `every_key`, or of winner and rivals."""
    yield from row_and_reasons(trace, i, every_key)
    if (of := walked(trace, i)) is None:
        return
    q, output = of.head.q, of.head.output
    if q is not None:
        yield from query_vectors(trace, of.head, i)
    yield from hand_work(of, every_key, distances=None)
    if output is None:  # scores were given, without values
        return
    if every_key and q is not None:
        yield Say("Factors are shown rounded, so a sum of them may differ in its last digits.", quiet=True)
    elif q is not None and q.shape[1] > ALL_FACTORS:
        yield Say("--by-hand all writes out every product.", quiet=True)
    yield Say(mixture(of))
    yield Formula(_vector("output", output[i].tolist()))


def row_and_reasons(trace: Trace, i: int, every_key: bool = False) -> Iterator[Block]:
    """Yield the table of query i's keys, and why its winner won."""
    head, query = trace.stepped_head, quoted_at(trace.query_tokens, i)
    row, this = trace.row(i, head), f"This is {wording.head_of_layer(head)}."
    yield Heading(f"One row by hand: what does {query} look at?")
    assert row is not None
    if trace.shown.scores is None:
        yield Say(f"The mean of the heads has weights but no scores of its own. {this}")
    elif (len(trace.heads) > 1 and trace.settings.head == ALL) or head.layer is not None:
        yield Say(this)
    if row.total == 0:
        yield Say(f"{query} may look at nothing: its weights and its output are zeros.")
        return
    keys = _keys(trace, row, every_key)
    yield row_table(trace, row, keys)
    yield Formula(_legend(trace, head, row))
    if row.position is not None and len(row.weights) > 1:
        winner = quoted(row.key_tokens[row.strongest[0]])
        yield Formula(f"the sum of {winner} less this sum; mostly from: its larger part", "lead:")
    yield from map(Say, reasons(trace, row, row.because(), keys))


def _keys(trace: Trace, row: Row, every: bool) -> list[int]:
    """Return the keys to list, in the order of the text: all, or the strongest where they are many."""
    most = MOST_KEYS * 3 if trace.asked and not wording.is_large(trace) else MOST_KEYS
    if every or len(row.masked) <= most:
        return list(range(len(row.masked)))
    return sorted({*row.strongest[:most], *trace.named_rivals[:MOST_RIVALS]})


# The table


def row_table(trace: Trace, row: Row, keys: list[int]) -> Columns:
    """Return a table of these keys of one query: content, distance, sum, exp, weight, and how far the winner leads.

    The other keys are summed up in one line, the masked ones counted in another.
    """
    terms, is_split = _terms(trace, row), row.position is not None and len(keys) > 1
    header = ["key", *(name for name, _, _ in terms), "exp(s - max)" if row.shift else "exp", "weight"]
    rows = []
    for j in keys:
        is_masked, line = row.is_masked(j), [placed(trace.key_tokens, j)]
        for _, values, hides in terms:
            written = "–" if math.isinf(values[j]) else four(values[j])  # given scores may be masked already
            line.append(MASKED if hides and is_masked else written)
        line += [MASKED, "–"] if is_masked else [_weight(row.exps[j]), _weight(row.weights[j])]
        if is_split:
            found = None if j == row.strongest[0] else row.against(row.strongest[0], j)
            decided = found.decided if found else "winner"
            line += [four(found.lead) if found and decided != "mask" else "–", decided]
        rows.append(line)
    rest = set(range(len(row.weights))).difference(keys)
    others = [j for j in sorted(rest) if not row.is_masked(j)]
    whole, ends = sum(row.weights), []
    if others:
        exps, weights = (_weight(sum(part[j] for j in others)) for part in (row.exps, row.weights))
        ends.append((_counted(len(others), "other" if len(others) == 1 else "others"), exps, weights))
    if masked := len(rest) - len(others):
        ends.append((_counted(masked, MASKED), MASKED, "–"))
    if row.sunk:
        ends.append(("(sink)", _weight(row.sunk), _weight(row.sunk / row.total)))
        whole += row.sunk / row.total
    ends.append(("sum", _weight(row.total), four(whole)))
    blank, tail = ["…"] * len(terms), ["…"] * (2 * is_split)
    rows += [[label, *blank, exp, weight, *tail] for label, exp, weight in ends]
    return Columns(header + ["lead", "mostly from"] * is_split, rows)


def _terms(trace: Trace, row: Row) -> list[tuple[str, Sequence[float], bool]]:
    """Return the columns of a score's terms: name, values, and whether a masked key's are hidden."""
    capped = [] if row.capped is None else [("capped", row.capped, row.is_rotated)]
    if row.position is None:
        content = [("content", row.scaled, False)] if wording.divisor(trace) else []
        return [(score_named(trace.score).column, row.scores, False), *content, *capped]
    parts = [("content", row.scaled, False), ("distance", row.position, False), ("sum", row.summed, True)]
    at = len(parts) if row.is_rotated else 1  # a given distance is added to what the cap leaves
    if row.terms is not None:
        parts[1:2] = [(name, values, False) for name, values in zip(TERMS, row.terms, strict=True)]
    return [*parts[:at], *capped, *parts[at:]]


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what if n < SHORT_COUNT else 'more'}"


def _weight(weight: float) -> str:
    """Return a weight or an exp with four decimals, or in powers of ten (four digits: a row fits eighty cells)."""
    if weight >= 10_000:
        return f"{weight:.3e}"
    return four(weight) if weight == 0 or weight >= 0.001 else f"{weight:.2e}"


def _legend(trace: Trace, head: Head, row: Row) -> str:
    symbol = score_named(trace.score).symbol
    is_divided = bool(wording.divisor(trace))
    parts = [f"content = {symbol}{wording.divisor(trace)}"] if row.position is not None or is_divided else []
    if row.position is not None and head.position_vectors is not None:
        parts.append(f"distance = {wording.position_term(trace)}")
    elif head.rotated is not None:
        parts.append(f"distance = {wording.rotated_term(trace)} (q', k': after rotation by position)")
    elif row.position is not None and trace.of_model:
        by = f", and divided by {trace.temperature:.12g}" if trace.temperature != 1 else ""
        told, how, _ = wording.distance_of_model(head)
        apart = "q·place, with a key made of the distance, plus k·place, with a query made of it"
        parts.append(f"distance: {told if row.terms is None else apart}, {how}{by}")
    if row.capped is not None:
        score = "sum" if row.is_rotated else "content" if is_divided else symbol
        parts.append(f"capped = {wording.cap_term(trace, score)}")
    if head.sink is not None:
        shift = f" - {plain(row.shift)}" if row.shift else ""
        heat = wording.temperature_divisor(trace)
        parts.append(f"sink: exp({plain(head.sink)}{heat}{shift}), and no value")
    return ", ".join([*parts, f"weight = exp / {_weight(row.total)}"])


# The arithmetic


def query_vectors(trace: Trace, head: Head, i: int) -> list[Formula]:
    """Return query i's x, what it is the sum of, and its q; q alone where that is x."""
    assert head.q is not None
    token, added = f"{placed(trace.query_tokens, i)}:", trace.placed
    made = "W_q x" if trace.projection.layout == "out-in" else "x W_q"
    made += " + b_q" * (head.b_q is not None)
    q = "q" if head.W_q is None else f"q = {made}" if head.qk_norm is None else f"q = norm({made})"
    found: list[tuple[str, Array | None, str]] = [(q, head.q, token)]
    if trace.projection.source == "identity" and len(trace.head_names) == 1 and added is None:
        found = [("q = x", head.q, token)]
    elif added is not None:
        place = f"place {trace.place(i)}:"
        words = ("word", added.words_query, token), ("P", added.encodings_query, place)
        found = [*words, ("x = word + P", trace.x_query, token), *found]
    else:
        found = [("x", trace.x_query, token), *found]
    return [Formula(_vector(name, X[i].tolist()), before) for name, X, before in found if X is not None]


def _vector(name: str, numbers: list[float]) -> str:
    if len(numbers) <= ALL_FACTORS:
        return f"{name} = [{'  '.join(map(plain, numbers))}]"
    first = "  ".join(map(plain, numbers[:FIRST_NUMBERS]))
    return f"{name} = [{first}  …  {plain(numbers[-1])}] ({len(numbers)} numbers)"


def hand_work(of: Walked, every_key: bool, distances: int | None = 1) -> Iterator[Block]:
    """Yield the scores of the winner and its rivals (or of every key) as sums of products.

    What the distance adds is written out for the first `distances` keys; None is all.
    """
    trace, head, row = of
    rivals = (one.rival_index for one in row.because()[:MOST_WORKED])
    keys = _keys(trace, row, True) if every_key else list(dict.fromkeys([row.strongest[0], *rivals]))
    if distances is None or every_key:
        distances = len(keys)
    elif head.rotated is not None:
        distances += 1  # a rotation is that of one key alone: the runner-up's can be checked, too
    for n, j in enumerate(keys):
        if head.q is not None and head.k is not None:
            products = _products(trace, head.q[row.query], head.k[j], row.scores[j], every_key)
            yield Formula(products, f"{placed(trace.key_tokens, j)}:")
        if n < distances:
            yield from _added(of, j, every_key)
    if row.shift:
        yield Say(
            f"Before exp, the largest score ({plain(row.shift)}) is subtracted from every score: this keeps the "
            "numbers small, and cancels out."
        )


def _products(trace: Trace, q: Array, k: Array, score: float, every: bool) -> str:
    """Return a score written as a sum: every term, or of many the first two, and the rest as one."""
    left, written, after = score_named(trace.score).by_hand(q.tolist(), k.tolist(), score, plain)
    terms, values = [text for text, _ in written], [value for _, value in written]
    if len(terms) > ALL_FACTORS and not every:
        rest = f"({len(terms) - FIRST_FACTORS} more: {plain(sum(values[FIRST_FACTORS:]))})"
        terms = [*terms[:FIRST_FACTORS], rest]
    if not math.isfinite(sum(values)):
        return f"{left} is too large to write out; the score is {plain(score)}"
    return f"{left} = {' + '.join(terms)} = {plain(sum(values))}{after}"


def _added(of: Walked, j: int, every: bool) -> Iterator[Formula]:
    (trace, head, row), key = of, placed(of.trace.key_tokens, j)
    if head.position_vectors is not None and head.position_biases is not None:
        assert head.q is not None and row.position is not None
        reach, apart = len(head.position_biases) // 2, abs(j - row.query)
        place = max(-reach, min(reach, j - row.query)) + reach
        q, r = head.q[row.query].tolist(), head.position_vectors[place].tolist()
        along, b = sum(x * y for x, y in zip(q, r, strict=True)), float(head.position_biases[place])
        numbers = f"{plain(along)} + {plain(b) if b >= 0 else f'({plain(b)})'}"
        way = "back" if j < row.query else "on"
        words = f"{min(apart, reach)} {'or more ' if apart >= reach else ''}words {way}"
        words = ("its own place", f"1 word {way}", words)[min(apart, 2)]
        term = f"distance = {wording.position_term(trace, numbers)} = {plain(row.position[j])}"
        yield Formula(term, f"{key}, {words}:")
    if head.rotated is not None and row.position is not None:
        q, k = head.rotated.q[row.query], head.rotated.k[j]
        score, content = row.summed[j] * trace.temperature / trace.scale, row.scaled[j]
        left, _, products = _products(trace, q, k, score, every).partition(" ")
        less = f"- {plain(content)}" if content >= 0 else f"+ {plain(-content)}"
        distance = f"distance = that{wording.divisor(trace)} {less} = {plain(row.position[j])}"
        yield Formula(f"{wording.rotated_symbol(left)} {products}; {distance}", f"{key}, turned:")
    if row.capped is not None:
        score = row.summed[j] if row.is_rotated else row.scaled[j]
        yield Formula(f"capped = {wording.cap_term(trace, plain(score))} = {plain(row.capped[j])}", "")
