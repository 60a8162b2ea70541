"""One row of an exercise in full: every product and every quotient, as they are written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attn_cli.render.blocks import Heading, Say
from attn_cli.render.numbers import Format, number
from attn_cli.render.views.wording import quoted
from attn_cli.teach.exercises import DIGITS, OUTPUT_DIGITS, Exercise
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Row, Trace

WHOLE, ROUNDED, MIXED = number(0), number(DIGITS), number(OUTPUT_DIGITS)


def one_row(exercise: Exercise, trace: Trace) -> Iterator[Heading | Say]:
    """Yield the arithmetic of the row that the questions ask for; formulas stand between backticks."""
    i = trace.focus[0]
    row, head = trace.row(i), trace.shown
    assert row is not None and head.q is not None and head.k is not None
    yield Heading(f"One row in full: {quoted(exercise.tokens[i])}")
    q = [products(exercise.X[i], column) for column in zip(*exercise.W_q, strict=True)]
    yield Say(f"`q = [{', '.join(q)}] = [{', '.join(WHOLE.row(head.q[i].tolist()))}]`")
    for j, token in enumerate(exercise.tokens):
        product = products(head.q[i].tolist(), head.k[j].tolist())
        yield Say(
            f"with {quoted(token)}: `q·k = {product} = {WHOLE(row.scores[j])}`{_power(exercise, row, j)}."
        )
    yield from _weights_and_output(row, head)


def _power(exercise: Exercise, row: Row, j: int) -> str:
    """Return what scaling makes of key j's score, and e to its power."""
    if not math.isfinite(row.masked[j]):
        return ", crossed out"
    power = score = WHOLE(row.scores[j])
    scaled = ""
    if exercise.score == "scaled":
        power = ROUNDED(row.scaled[j])
        scaled = f"; `x = {score} / √{exercise.dim} {about(row.scaled[j])}`"
    return f"{scaled}; `e^{power} {about(row.exps[j])}`"


def _weights_and_output(row: Row, head: Head) -> Iterator[Say]:
    """Yield the sum of the row, its weights, and the values mixed by them."""
    assert head.v is not None and head.output is not None
    kept = [j for j, score in enumerate(row.masked) if math.isfinite(score)]
    exps, total = ROUNDED.row([row.exps[j] for j in kept]), ROUNDED(row.total)
    if len(kept) > 1:
        yield Say(f"sum: `{' + '.join(exps)} {about(row.total)}`.")
    quotients = [f"`{exp} / {total} {about(row.weights[j])}`" for exp, j in zip(exps, kept, strict=True)]
    yield Say(f"weights: {', '.join(quotients)}.")
    weights = [row.weights[j] for j in kept]
    columns = zip(head.v[kept].T.tolist(), head.output[row.query].tolist(), strict=True)
    mixtures = [f"`{products(weights, column, ROUNDED)} {about(value, MIXED)}`" for column, value in columns]
    yield Say(f"output: {', '.join(mixtures)}.")


def products(left: Sequence[float], right: Sequence[float], form: Format = WHOLE) -> str:
    """Return a sum of products as it is written by hand; `form` is that of the left factors.

    >>> products([2, -1], [0, -3])
    '2×0 + (-1)×(-3)'
    """
    pairs = [(form(a), WHOLE(b)) for a, b in zip(left, right, strict=True)]
    return " + ".join("×".join(f"({x})" if x[0] == "-" else x for x in pair) for pair in pairs)


def about(value: float, form: Format = ROUNDED) -> str:
    """Return `= 0.500` where that is all of the number, else `≈ 1.414`.

    >>> about(0.5), about(2**0.5)
    ('= 0.500', '≈ 1.414')
    """
    shown = form(value)
    return f"{'=' if float(shown) == value else '≈'} {shown}"
