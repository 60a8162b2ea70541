"""How sharp the weights are: entropy beside its most, what sharpens a row, and where length decided."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_cli.io.plural import count
from attn_cli.render.blocks import Block, Columns, Heading, Say
from attn_cli.render.numbers import number, plain
from attn_cli.render.views.wording import quoted, short
from attn_cli.trace.diagnostics import Diagnosis
from attn_cli.trace.trace import Trace

MOST_ROWS = 12
MOST_NAMED = 3
TWO = number(2)


def sharpness(trace: Trace) -> Iterator[Block]:
    """Yield how far each row's attention is spread, and at which temperature it would be sure."""
    rows = trace.listed if not trace.condensed else trace.focus
    if len(trace.key_tokens) < 2 or not rows:
        return
    told = list(zip(rows, trace.diagnoses(rows), strict=True))
    yield Heading("How sharp are the weights?")
    yield Columns(
        ["query", "entropy", "at most", "95 % at -t"], [_line(trace, i, d) for i, d in told[:MOST_ROWS]]
    )
    if len(told) > MOST_ROWS:
        yield Say(f"{len(told) - MOST_ROWS:,} more rows: -q WORD shows one.", quiet=True)
    yield Say(
        "Entropy is in bits: 0 where one key has all, log2 of the number of keys where all have the same. At the "
        "temperature in the last column (-t) the strongest key would have 95 %."
    )
    for sentence in remarks(trace, told):
        yield Say(sentence)


def _line(trace: Trace, i: int, told: Diagnosis) -> list[str]:
    if told.entropy is None or told.most is None:
        return [short(trace.query_tokens[i]), "masked", "–", "–"]
    hot = "–" if told.temperature_95 is None else _temperature(told.temperature_95)
    return [short(trace.query_tokens[i]), TWO(told.entropy), TWO(told.most), hot]


def _temperature(t: float) -> str:
    """Return a temperature with three digits that count: enough to type it after -t."""
    return f"{t:.3g}"


def remarks(trace: Trace, told: list[tuple[int, Diagnosis]], least: int = 1) -> Iterator[str]:
    """Yield what stands out: rows that are nearly uniform, and those (`least` of them) that a key's length decided."""
    flat = [i for i, d in told if d.nearly_uniform]
    if flat:
        yield f"{_rows(trace, flat, len(told))} nearly uniform: all keys get almost the same."
    if sum(d.longer is not None for _, d in told) >= least:
        yield from _lengths(trace, told)


def _rows(trace: Trace, some: list[int], of: int) -> str:
    """Return `The row of "she" is`, `Every row is` or `3 of 9 rows are`, with the first few named."""
    if len(some) == 1:
        return f"The row of {quoted(trace.query_tokens[some[0]])} is"
    if len(some) == of:
        return "Every row is"
    named = ", ".join(quoted(trace.query_tokens[i]) for i in some[:MOST_NAMED])
    more = ", ..." if len(some) > MOST_NAMED else ""
    return f"{len(some):,} of {of:,} rows ({named}{more}) are"


def _lengths(trace: Trace, told: list[tuple[int, Diagnosis]]) -> Iterator[str]:
    found = [(i, d.longer, d.nearer) for i, d in told if d.longer is not None and d.nearer is not None]
    K = trace.shown.k
    if not found or K is None:
        return
    i, longer, nearer = found[0]
    times = math.hypot(*K[longer].tolist()) / math.hypot(*K[nearer].tolist())
    others = f" The same holds in {count(len(found) - 1, 'other row', 'other rows')}." if len(found) > 1 else ""
    query, far = quoted(trace.query_tokens[i]), quoted(trace.key_tokens[longer])
    near = "itself" if trace.is_self and nearer == i else quoted(trace.key_tokens[nearer])
    yield (
        f"Vector length decides here: {query} has the smaller angle to {near}, but the key of {far} is "
        f"{plain(times, 2)} times as long and scores higher. --score cosine compares directions alone.{others}"
    )
