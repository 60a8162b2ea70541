"""One row by hand: how one query comes to its weights, with every number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Say
from attn_cli.render.numbers import number, plain
from attn_cli.render.views.wording import (
    head_named,
    is_large,
    placed,
    position_term,
    quoted_at,
    root_divisor,
    short,
    temperature_divisor,
)
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Row, Trace

ALL_FACTORS = 8
FIRST_FACTORS = 4
MOST_KEYS = 12
SHORT_COUNT = 10_000
FOUR = number(4)


def one_row(trace: Trace, i: int, every_product: bool) -> Iterator[Block]:
    """Yield query i's arithmetic: q, the products of q·k, then scaled score, exp and weight of every key.

    With `every_product` the products of every key are written out, else those of its strongest keys.
    """
    is_mean = trace.shown.scores is None
    head = trace.heads[0] if is_mean else trace.shown
    row = trace.row(i, head)
    query = quoted_at(trace.query_tokens, i)
    yield Heading(f"One row by hand: what does {query} look at?")
    assert row is not None
    if is_mean:
        yield Say(
            f"The mean of the heads has weights but no scores of its own. This is {head_named(head.name)}."
        )
    if row.total == 0:
        yield Say(f"{query} may look at nothing: its weights and its output are zeros.")
        return
    keys = _keys(row, every_product)
    if head.q is not None:
        yield from _vectors(trace, head, i)
    for j in keys if every_product else _worked_keys(trace, row):
        key = quoted_at(trace.key_tokens, j) if is_large(trace) else short(trace.key_tokens[j])
        yield Formula(_products(trace, head, i, j, row), f"{query} with {key}:")
        if head.position_vectors is not None:
            yield _position(trace, head, i, j, row)
    yield row_table(trace, row, keys)
    yield from _sentences(trace, row, query)
    if head.output is not None:
        yield Formula(_vector("output", head.output[i].tolist()))


def _vectors(trace: Trace, head: Head, i: int) -> Iterator[Block]:
    """Yield the query's x and q, which are the same where W is the identity."""
    assert head.q is not None
    token = f"{short(trace.query_tokens[i])}:"
    q = head.q[i].tolist()
    if trace.projection.source == "identity" and len(trace.head_names) == 1 and trace.placed is None:
        yield Formula(_vector("q = x", q), token)
        return
    if trace.placed is not None:
        yield Formula(_vector("word", trace.placed.words_query[i].tolist()), token)
        yield Formula(_vector("P", trace.placed.encodings_query[i].tolist()), f"place {trace.place(i)}:")
    if trace.x_query is not None:
        yield Formula(_vector("x = word + P" if trace.placed else "x", trace.x_query[i].tolist()), token)
    made = "W_q x" if trace.projection.layout == "out-in" else "x W_q"
    bias = " + b_q" if head.b_q is not None else ""
    yield Formula(_vector(f"q = {made}{bias}" if head.W_q is not None else "q", q), token)


def _vector(name: str, numbers: list[float]) -> str:
    if len(numbers) <= ALL_FACTORS:
        return f"{name} = [{'  '.join(map(plain, numbers))}]"
    first = "  ".join(map(plain, numbers[:FIRST_FACTORS]))
    return f"{name} = [{first}  …  {plain(numbers[-1])}] ({len(numbers)} numbers)"


def _keys(row: Row, every: bool) -> list[int]:
    """Return the keys to list: all, or the strongest ones in the order of the text."""
    most = MOST_KEYS * 3 if every else MOST_KEYS
    n_k = len(row.masked)
    return list(range(n_k)) if n_k <= most else sorted(_strongest(row)[:most])


def _strongest(row: Row) -> list[int]:
    allowed = [j for j in range(len(row.masked)) if not _is_masked(row, j)]
    return sorted(allowed, key=lambda j: -row.weights[j])


def _worked_keys(trace: Trace, row: Row) -> list[int]:
    """Return the strongest key, and the strongest one that is a different word."""
    order = _strongest(row)
    own = trace.query_tokens[row.query].casefold()
    others = [j for j in order if trace.key_tokens[j].casefold() != own]
    return list(dict.fromkeys([*order[:1], *others[:1]]))


def _products(trace: Trace, head: Head, i: int, j: int, row: Row) -> str:
    """Return a score written as a sum: all its terms up to eight, else the first four, the rest, and the last."""
    assert head.q is not None and head.k is not None
    score = score_named(trace.score)
    left, written, after = score.by_hand(head.q[i].tolist(), head.k[j].tolist(), row.scores[j], plain)
    terms = [text for text, _ in written]
    values = [value for _, value in written]
    if len(terms) > ALL_FACTORS:
        between = f"({len(terms) - FIRST_FACTORS - 1} more: {plain(sum(values[FIRST_FACTORS:-1]))})"
        terms = [*terms[:FIRST_FACTORS], between, terms[-1]]
    total = sum(values)
    if not math.isfinite(total):
        return f"{left} is too large to write out; the score is {plain(row.scores[j])}"
    return f"{left} = {' + '.join(terms)} = {plain(total)}{after}"


def _position(trace: Trace, head: Head, i: int, j: int, row: Row) -> Formula:
    """Return what the distance of key j from query i adds, written out."""
    assert head.q is not None and head.position_vectors is not None and head.position_biases is not None
    assert row.position is not None
    reach = len(head.position_biases) // 2
    place = max(-reach, min(reach, j - i)) + reach
    q, r = head.q[i].tolist(), head.position_vectors[place].tolist()
    along = sum(a * b for a, b in zip(q, r, strict=True))
    b = float(head.position_biases[place])
    numbers = f"{plain(along)} + {plain(b) if b >= 0 else f'({plain(b)})'}"
    term = f"position = {position_term(trace)} = {position_term(trace, numbers)} = {plain(row.position[j])}"
    apart, way = abs(j - i), "back" if j < i else "on"
    if apart < 2:
        return Formula(term, f"1 word {way}:" if apart else "at distance 0:")
    return Formula(term, f"{min(apart, reach)} {'or more ' if apart >= reach else ''}words {way}:")


def row_table(trace: Trace, row: Row, keys: list[int]) -> Columns:
    """Return a table of these keys of one query: score, scaled score, exp, weight.

    The other keys are summed up in one line, the masked ones counted in another.
    """
    divisor = (root_divisor(trace) + temperature_divisor(trace)).strip()
    header = ["key", score_named(trace.score).column, *([divisor] if divisor else [])]
    if row.position is not None:
        header += ["position", "sum"]
    header += ["exp" if not row.shift else "exp(s - max)", f"/ {_weight(row.total)}"]
    rows = [_key_line(trace, row, j, bool(divisor)) for j in keys]
    rest = set(range(len(row.weights))).difference(keys)
    others = [j for j in sorted(rest) if not _is_masked(row, j)]
    blank = ["…"] * (len(header) - 3)
    if others:
        exps, weights = (sum(part[j] for j in others) for part in (row.exps, row.weights))
        rows.append([_counted(len(others), "others"), *blank, _weight(exps), _weight(weights)])
    if masked := len(rest) - len(others):
        rows.append([_counted(masked, "masked"), *blank, "masked", "–"])
    rows.append(["sum", *blank, _weight(row.total), FOUR(sum(row.weights))])
    return Columns(header, rows)


def _key_line(trace: Trace, row: Row, j: int, is_divided: bool) -> list[str]:
    is_masked = _is_masked(row, j)
    # In a large text, keys that are written alike are told apart by their places.
    line = [placed(trace.key_tokens, j) if is_large(trace) else short(trace.key_tokens[j])]
    line += [FOUR(row.scores[j]), *([FOUR(row.scaled[j])] if is_divided else [])]
    if row.position is not None:
        line += [FOUR(row.position[j]), "masked" if is_masked else FOUR(row.masked[j])]
    return line + (["masked", "–"] if is_masked else [_weight(row.exps[j]), _weight(row.weights[j])])


def _is_masked(row: Row, j: int) -> bool:
    return row.masked[j] == float("-inf")


def _counted(n: int, what: str) -> str:
    """Return how many more keys there are, briefly: a long label would be cut."""
    return f"{n:,} {what if n < SHORT_COUNT else 'more'}"


def _sentences(trace: Trace, row: Row, query: str) -> Iterator[Block]:
    if row.shift:
        yield Say(
            f"Before exp, the largest score ({plain(row.shift)}) is subtracted from every score: this keeps the "
            "numbers small, and cancels out."
        )
    allowed = _strongest(row)
    order = allowed[:3]
    tokens = [quoted_at(trace.key_tokens, j) for j in order]
    names = [
        "itself" if trace.is_self and j == row.query else name for j, name in zip(order, tokens, strict=True)
    ]
    parts = [f"{_weight(row.weights[j])} to {name}" for j, name in zip(order, names, strict=True)]
    tail = f" and at most {_weight(row.weights[allowed[3]])} to any other." if len(allowed) > 3 else "."
    yield Say(f"So {query} gives {', '.join(parts)}{tail}")
    mixed = " + ".join(f"{_weight(row.weights[j])} v({name})" for j, name in zip(order, tokens, strict=True))
    rest = " + ..." if len(allowed) > 3 else ""
    yield Say(f"Its output is the values mixed in these shares: {mixed}{rest}")


def _weight(weight: float) -> str:
    """Return a weight or an exp with four decimals, or in powers of ten where these do not suit it."""
    if weight >= 10_000:
        return f"{weight:.4e}"
    return FOUR(weight) if weight == 0 or weight >= 0.001 else f"{weight:.2e}"
