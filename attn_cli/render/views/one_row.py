"""One row by hand: how one query comes to its weights, with every number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Say
from attn_cli.render.numbers import number, plain
from attn_cli.render.views.wording import d_k, is_large, placed, quoted, short, told_apart, warmth
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Row, Trace

ALL_FACTORS = 8
FIRST_FACTORS = 4
MOST_KEYS = 12
SHORT_COUNT = 10_000
FOUR = number(4)


def one_row(trace: Trace, i: int, every_product: bool, head: Head | None = None) -> Iterator[Block]:
    """Yield query i's arithmetic: q, the products of q.k, then scaled, exp and weight of every key.

    With `every_product` the products of each key are written out, else those of its strongest key.
    """
    head = head or trace.shown
    row = trace.row(i, head)
    if row is None:
        mean, head = head.name, trace.heads[0]
        row = trace.row(i, head)
    else:
        mean = ""
    token = trace.query_tokens[i]
    query = quoted(token) + (f" ({i})" if trace.query_tokens.count(token) > 1 else "")
    yield Heading(f"One row by hand: what does {query} look at?")
    assert row is not None
    if mean:
        yield Say(f"The {mean} of the heads has weights but no scores of its own. This is head {head.name}.")
    if row.total == 0:
        yield Say(f"{query} may look at nothing: its weights and its output are zeros.")
        return
    keys = _keys(row, every_product)
    if head.q is not None:
        yield from _vectors(trace, head, i)
    for j in keys if every_product else _worth_spelling(trace, row):
        yield Formula(_products(trace, head, i, j, row), f"{query} with {_in_words(trace, j)}:")
        if head.position_vectors is not None:
            yield Formula(_position(trace, head, i, j, row), f"{_distance(head, i, j)}:")
    yield row_table(trace, row, keys)
    yield from _sentences(trace, row, query)
    if head.output is not None:
        yield Formula(_vector("output", head.output[i].tolist()))


def _vectors(trace: Trace, head: Head, i: int) -> Iterator[Block]:
    """Yield the query's x and q; where W is the identity they are one."""
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
    count = f" ({len(numbers)} numbers)" if len(numbers) > ALL_FACTORS else ""
    return f"{name} = [{_some(numbers)}]{count}"


def _some(numbers: list[float]) -> str:
    if len(numbers) <= ALL_FACTORS:
        return "  ".join(plain(x) for x in numbers)
    first = "  ".join(plain(x) for x in numbers[:FIRST_FACTORS])
    return f"{first}  …  {plain(numbers[-1])}"


def _keys(row: Row, every: bool) -> list[int]:
    """Return the keys to list: all, or the strongest few in the order of the text."""
    most = MOST_KEYS * 3 if every else MOST_KEYS
    n_k = len(row.masked)
    return list(range(n_k)) if n_k <= most else sorted(_strongest(row)[:most])


def _strongest(row: Row) -> list[int]:
    found = [j for j, score in enumerate(row.masked) if score != float("-inf")]
    return sorted(found, key=lambda j: -row.weights[j])


def _worth_spelling(trace: Trace, row: Row) -> list[int]:
    """Return the strongest key, and the strongest that is another word."""
    order = _strongest(row)
    own = trace.query_tokens[row.query].casefold()
    others = [j for j in order if trace.key_tokens[j].casefold() != own]
    return list(dict.fromkeys([*order[:1], *others[:1]]))


def _products(trace: Trace, head: Head, i: int, j: int, row: Row) -> str:
    """Write a score as the sum that it is: all up to eight, else the first four, the last, and the rest."""
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


def _position(trace: Trace, head: Head, i: int, j: int, row: Row) -> str:
    """Write what the distance adds: (q.r + b), divided as the score is."""
    assert head.q is not None and head.position_vectors is not None and head.position_biases is not None
    assert row.position is not None
    reach = len(head.position_biases) // 2
    place = max(-reach, min(reach, j - i)) + reach
    q, r = head.q[i].tolist(), head.position_vectors[place].tolist()
    along = sum(a * b for a, b in zip(q, r, strict=True))
    b = float(head.position_biases[place])
    divided = f" / √{d_k(trace)}" if score_named(trace.score).is_position_scaled else ""
    warm = f" / {warmth(trace)}" if trace.temperature != 1 else ""
    sums = f"({plain(along)} + {_factor(b)})"
    return f"position = (q·r + b){divided}{warm} = {sums}{divided}{warm} = {plain(row.position[j])}"


def _distance(head: Head, i: int, j: int) -> str:
    """Return how far key j stands from query i, in words."""
    assert head.position_biases is not None
    reach, apart = len(head.position_biases) // 2, abs(j - i)
    if apart == 0:
        return "at distance 0"
    count = "1 word" if apart == 1 else f"{min(apart, reach)} {'or more ' if apart >= reach else ''}words"
    return f"{count} {'back' if j < i else 'on'}"


def _factor(x: float) -> str:
    return plain(x) if x >= 0 else f"({plain(x)})"


def row_table(trace: Trace, row: Row, keys: list[int]) -> Columns:
    """Return these keys of one query as a table: score, scaled score, exp, weight; the others summed up.

    What is masked is counted by itself, and has no numbers.
    """
    score = score_named(trace.score)
    divided = [f"/ √{d_k(trace)}"] if score.is_scaled else []
    if trace.temperature != 1:
        divided.append(f"/ {warmth(trace)}")
    header = ["key", score.column]
    if divided:
        header.append(" ".join(divided))
    if row.position is not None:
        header += ["position", "sum"]
    header += ["exp" if not row.shift else "exp(s - max)", f"/ {_weight(row.total)}"]
    rows = []
    for j in keys:
        shut = row.masked[j] == float("-inf")
        line = [_key(trace, j), FOUR(row.scores[j])]
        if divided:
            line.append(FOUR(row.scaled[j]))
        if row.position is not None:
            line += [FOUR(row.position[j]), "masked" if shut else FOUR(row.masked[j])]
        line += ["masked", "–"] if shut else [_weight(row.exps[j]), _weight(row.weights[j])]
        rows.append(line)
    listed = set(keys)
    rest = [j for j in range(len(row.weights)) if j not in listed]
    others = [j for j in rest if row.masked[j] != float("-inf")]
    masked = len(rest) - len(others)
    blank = [""] * (len(header) - 3)
    if others:
        exps, weights = (sum(part[j] for j in others) for part in (row.exps, row.weights))
        rows.append([_counted(len(others), "others"), *(["…"] * len(blank)), _weight(exps), _weight(weights)])
    if masked:
        rows.append([_counted(masked, "masked"), *(["…"] * len(blank)), "masked", "–"])
    rows.append(["sum", *(["…"] * len(blank)), _weight(row.total), FOUR(sum(row.weights))])
    return Columns(header, rows)


def _key(trace: Trace, j: int) -> str:
    """Return key j for a label; in a large text it has its place where others are written alike."""
    return placed(trace.key_tokens, j) if is_large(trace) else short(trace.key_tokens[j])


def _in_words(trace: Trace, j: int) -> str:
    """Return key j for a sentence, told apart in a large text from others that are written alike."""
    return told_apart(trace.key_tokens, j) if is_large(trace) else short(trace.key_tokens[j])


def _counted(n: int, what: str) -> str:
    """Return how many more keys there are, shortly: a label is cut, a number never."""
    return f"{n:,} {what if n < SHORT_COUNT else 'more'}"


def _sentences(trace: Trace, row: Row, query: str) -> Iterator[Block]:
    if row.shift:
        yield Say(
            f"Before exp, the largest score ({plain(row.shift)}) is subtracted from every score: this keeps the "
            "numbers small, and cancels out."
        )
    allowed = _strongest(row)
    order = allowed[:3]
    tokens = [told_apart(trace.key_tokens, j) for j in order]
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
    """Return a weight, or an exp, with four decimals; beyond what those can tell, with five digits or three."""
    if weight >= 10_000:
        return f"{weight:.4e}"
    return FOUR(weight) if weight == 0 or weight >= 0.001 else f"{weight:.2e}"
