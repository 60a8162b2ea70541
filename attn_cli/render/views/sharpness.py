"""How sharp the weights are: entropy and its maximum, what sharpens a row, and where length decided."""

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
    """Yield each row's entropy, and the temperature at which its strongest key would have 95 %."""
    rows = trace.listed if not trace.condensed else trace.focus
    if len(trace.key_tokens) < 2 or not rows:
        return
    diagnosed = list(zip(rows, trace.diagnoses(rows), strict=True))
    yield Heading("How sharp are the weights?")
    lines = [_line(trace, i, diagnosis) for i, diagnosis in diagnosed[:MOST_ROWS]]
    yield Columns(["query", "entropy", "at most", "95 % at -t"], lines)
    if len(diagnosed) > MOST_ROWS:
        yield Say(f"{len(diagnosed) - MOST_ROWS:,} more rows: -q WORD shows one.", quiet=True)
    yield Say(
        "Entropy is in bits: 0 where one key has all, log2 of the number of keys where all have the same. At the "
        "temperature in the last column (-t) the strongest key would have 95 %."
    )
    yield from map(Say, remarks(trace, diagnosed))


def _line(trace: Trace, i: int, diagnosis: Diagnosis) -> list[str]:
    query, t = short(trace.query_tokens[i]), diagnosis.temperature_95
    if diagnosis.entropy is None or diagnosis.most is None:
        return [query, "masked", "–", "–"]
    return [query, TWO(diagnosis.entropy), TWO(diagnosis.most), "–" if t is None else f"{t:.3g}"]


def remarks(trace: Trace, diagnosed: list[tuple[int, Diagnosis]], least: int = 1) -> Iterator[str]:
    """Yield remarks: rows that are nearly uniform, and, if at least `least`, rows decided by a key's length."""
    uniform = [i for i, d in diagnosed if d.nearly_uniform]
    if uniform:
        yield f"{_rows(trace, uniform, len(diagnosed))} nearly uniform: all keys get almost the same."
    found = [(i, d.longer, d.nearer) for i, d in diagnosed if d.longer is not None and d.nearer is not None]
    if found and len(found) >= least:
        yield from _lengths(trace, found)


def _rows(trace: Trace, some: list[int], of: int) -> str:
    """Return `The row of "she" is`, `Every row is` or `3 of 9 rows are`, with the first few named."""
    if len(some) == 1:
        return f"The row of {quoted(trace.query_tokens[some[0]])} is"
    if len(some) == of:
        return "Every row is"
    named = ", ".join(quoted(trace.query_tokens[i]) for i in some[:MOST_NAMED])
    more = ", ..." if len(some) > MOST_NAMED else ""
    return f"{len(some):,} of {of:,} rows ({named}{more}) are"


def _lengths(trace: Trace, found: list[tuple[int, int, int]]) -> Iterator[str]:
    """Yield a sentence on the first of these (query, longer key, nearer key)."""
    K = trace.shown.k
    if K is None:
        return
    i, longer, nearer = found[0]
    times = math.hypot(*K[longer].tolist()) / math.hypot(*K[nearer].tolist())
    others = (
        f" The same holds in {count(len(found) - 1, 'other row', 'other rows')}." if len(found) > 1 else ""
    )
    query, far = quoted(trace.query_tokens[i]), quoted(trace.key_tokens[longer])
    near = "itself" if trace.is_self and nearer == i else quoted(trace.key_tokens[nearer])
    yield (
        f"Vector length decides here: {query} has the smaller angle to {near}, but the key of {far} is "
        f"{plain(times, 2)} times as long and scores higher. --score cosine compares directions alone.{others}"
    )
