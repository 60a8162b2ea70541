"""The worksheet of an exercise, and its key: what stands on them, for Markdown and LaTeX alike.

In a sentence, what stands between backticks is a formula, or a command where it begins with attn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.render.blocks import Heading, Say
from attn_cli.render.numbers import Format, number
from attn_cli.render.views.wording import quoted
from attn_cli.teach.exercises import DIGITS, OUTPUT_DIGITS, Exercise, solve
from attn_cli.trace.row import Row
from attn_cli.trace.steps import STEPS
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

WHOLE, ROUNDED, MIXED = number(0), number(DIGITS), number(OUTPUT_DIGITS)
MASKED = "–"
ROOT_DIGITS = 5  # of 1/√d: enough for three digits after the point of any score on these worksheets

Rows = list[list[str]]  # each a label, then its cells, "" where one is to be filled in


class WorkTable(NamedTuple):
    """A matrix with its title: one that is given, to read, or one to write in."""

    title: str
    formula: str
    columns: Sequence[str]
    rows: Rows
    is_given: bool = False


class Tables(NamedTuple):
    """Tables that may stand beside each other."""

    tables: Sequence[WorkTable]


class Question(NamedTuple):
    """A question, and its answer; without one there is room to write."""

    number: int
    text: str
    answer: str | None


SheetPart = Heading | Say | Tables | Question


def parts(exercise: Exercise, key: bool = False) -> Iterator[SheetPart]:
    """Yield the worksheet from top to bottom, or its key: the same with every blank filled in."""
    exercise = exercise._replace(tokens=tuple(token.replace("`", "'") for token in exercise.tokens))
    worksheet = Worksheet(exercise, solve(exercise), key)
    yield Heading(f"Attention by hand: exercise {exercise.seed}{', the key' if key else ''}", 1)
    yield from _given(exercise)
    yield from _projections(worksheet)
    yield from _scores(worksheet)
    yield from _softmax(worksheet)
    if key:
        yield from _one_row(exercise, worksheet.trace)
    yield Heading("Questions")
    for n, (question, answer) in enumerate(questions(exercise, worksheet.trace), 1):
        yield Question(n, question, answer if key else None)
    yield _closing(exercise, key)


class Worksheet(NamedTuple):
    """What the parts are made from: the exercise, all of its steps, and whether to show them."""

    exercise: Exercise
    trace: Trace
    key: bool

    def title(self, name: str) -> str:
        """Return a step's title with its number on this worksheet."""
        scaled, masked = self.exercise.score == "scaled", self.exercise.mask != "none"
        names = ["q", "k", "v", "scores", *["scaled_scores"] * scaled, *["masked_scores"] * masked]
        title = next(step.title for step in STEPS if step.name == name)
        return f"{[*names, 'weights', 'output'].index(name) + 1}. {title}"

    def table(self, name: str, formula: str, form: Format = WHOLE, across: bool = False) -> WorkTable:
        """Return a step's matrix as a table: blank, or in the key filled in; `across` has one column per word."""
        rows = rows_of(self.exercise.tokens, getattr(self.trace.shown, name), form if self.key else None)
        columns = self.exercise.tokens if across else list(map(str, range(self.exercise.dim)))
        return WorkTable(self.title(name), formula, columns, rows)


def rows_of(labels: Sequence[str], matrix: ArrayLike, form: Format | None) -> Rows:
    """Return the rows of a matrix with their labels, as text, or blank without a form."""
    rows = np.asarray(matrix).tolist()
    cells = [form.row(row) if form else [""] * len(row) for row in rows]
    return [[label, *texts] for label, texts in zip(labels, cells, strict=True)]


def _given(exercise: Exercise) -> Iterator[SheetPart]:
    kind = "masked self-attention" if exercise.mask != "none" else "self-attention"
    yield Say(
        f'Compute {kind} of "{" ".join(exercise.tokens)}" by hand. Each word is a row of `X`; rows are '
        f"queries, columns are keys. Write rounded numbers with {DIGITS} digits after the point, the output with "
        f"{OUTPUT_DIGITS}."
    )
    d = list(map(str, range(exercise.dim)))
    given = [(exercise.tokens, "X", exercise.X), (d, "W_q", exercise.W_q)]
    given += [(d, "W_k", exercise.W_k), (d, "W_v", exercise.W_v)]
    yield Tables(
        [WorkTable("", name, d, rows_of(labels, M, WHOLE), is_given=True) for labels, name, M in given]
    )


def _projections(worksheet: Worksheet) -> Iterator[SheetPart]:
    """Yield Q, K and V, with the first cell worked out as an example."""
    exercise = worksheet.exercise
    tables = [worksheet.table(name, f"{name.upper()} = X W_{name}") for name in "qkv"]
    column = [row[0] for row in exercise.W_q]
    result = WHOLE(sum(x * w for x, w in zip(exercise.X[0], column, strict=True)))
    tables[0].rows[0][1] = result
    yield Tables(tables)
    product = _products(exercise.X[0], column)
    yield Say(f"Example: the query of {quoted(exercise.tokens[0])} begins with `{product} = {result}`.")


def _scores(worksheet: Worksheet) -> Iterator[SheetPart]:
    """Yield the scores, scaled where they are, and what the mask takes away."""
    exercise = worksheet.exercise
    d = exercise.dim
    tables = [worksheet.table("scores", "Q Kᵀ", across=True)]
    if exercise.score == "scaled":
        tables.append(worksheet.table("scaled_scores", f"x = Q Kᵀ / √{d}", ROUNDED, across=True))
    yield Tables(tables)
    if exercise.score == "dot":
        yield Say("These scores are not divided by anything: `x = Q Kᵀ`.")
    elif d == 4:
        yield Say("Dividing by `√4` is dividing by 2.")
    else:
        yield Say(f"Dividing by `√{d}` is multiplying by `{d**-0.5:.{ROOT_DIGITS}f}`.")
    if exercise.mask != "none":
        yield Heading(worksheet.title("masked_scores"))
        rule = "A word may look at itself and at words before it: cross out the other cells of `x`."
        words = list(map(quoted, exercise.tokens))
        later = [f"{word} to {', '.join(words[i:])}" for i, word in enumerate(words[:-1], 1)]
        crossed_out = f" Crossed out: {'; '.join(later)}." if worksheet.key else ""
        yield Say(f"{rule} They have no `e^x`; their weights are 0.{crossed_out}")


def _softmax(worksheet: Worksheet) -> Iterator[SheetPart]:
    """Yield the table of e^x, the row sums, the weights and the output."""
    trace, tokens = worksheet.trace, worksheet.exercise.tokens
    scores, scale = trace.shown.scores, trace.scale
    assert scores is not None
    ladder = [scale * n for n in range(int(scores.min()), int(scores.max()) + 1)]
    xs = (WHOLE if scale == 1 else ROUNDED).row(ladder)
    yield Heading(worksheet.title("weights"))
    yield Say("`e^x` for every score from the smallest to the largest:")
    yield Tables([WorkTable("", "x", xs, rows_of(["`e^x`"], [np.exp(ladder)], ROUNDED), is_given=True)])
    yield Say("Each `e^x`, divided by the sum of its row, is a weight; then mix the values:")
    found = [row for row in map(trace.row, range(len(tokens))) if row is not None]
    exps = _masked(worksheet, [[*row.exps, row.total] for row in found])
    weights = _masked(worksheet, [[*row.weights, sum(row.weights)] for row in found])
    yield Tables(
        [
            WorkTable("", "e^x", (*tokens, "sum"), exps),
            WorkTable("", "weights = e^x / sum", (*tokens, "sum"), weights),
            worksheet.table("output", "weights V", MIXED),
        ]
    )


def _masked(worksheet: Worksheet, rows: Sequence[Sequence[float]]) -> Rows:
    """Return rows as rounded numbers or blanks, a dash where the key has a masked cell."""
    cells = rows_of(worksheet.exercise.tokens, rows, ROUNDED if worksheet.key else None)
    mask = worksheet.trace.mask
    if mask is not None and worksheet.key:
        for i, j in np.argwhere(~mask):
            cells[i][j + 1] = MASKED
    return cells


def _one_row(exercise: Exercise, trace: Trace) -> Iterator[Heading | Say]:
    """Yield the arithmetic of the row that the questions ask for; formulas stand between backticks."""
    i = trace.focus[0]
    row, head = trace.row(i), trace.shown
    assert row is not None and head.q is not None and head.k is not None
    assert head.v is not None and head.output is not None
    yield Heading(f"One row in full: {quoted(exercise.tokens[i])}")
    q = [_products(exercise.X[i], column) for column in zip(*exercise.W_q, strict=True)]
    yield Say(f"`q = [{', '.join(q)}] = [{', '.join(WHOLE.row(head.q[i].tolist()))}]`")
    for j, token in enumerate(exercise.tokens):
        product = _products(head.q[i].tolist(), head.k[j].tolist())
        yield Say(
            f"with {quoted(token)}: `q·k = {product} = {WHOLE(row.scores[j])}`{_power(exercise, row, j)}."
        )
    kept = [j for j, score in enumerate(row.masked) if math.isfinite(score)]
    exps, total = ROUNDED.row([row.exps[j] for j in kept]), ROUNDED(row.total)
    if len(kept) > 1:
        yield Say(f"sum: `{' + '.join(exps)} {_about(row.total)}`.")
    quotients = [f"`{exp} / {total} {_about(row.weights[j])}`" for exp, j in zip(exps, kept, strict=True)]
    yield Say(f"weights: {', '.join(quotients)}.")
    weights = [row.weights[j] for j in kept]
    columns = zip(head.v[kept].T.tolist(), head.output[row.query].tolist(), strict=True)
    mixtures = [
        f"`{_products(weights, column, ROUNDED)} {_about(value, MIXED)}`" for column, value in columns
    ]
    yield Say(f"output: {', '.join(mixtures)}.")


def _power(exercise: Exercise, row: Row, j: int) -> str:
    """Return what scaling makes of key j's score, and e to its power."""
    if not math.isfinite(row.masked[j]):
        return ", crossed out"
    power = score = WHOLE(row.scores[j])
    scaled = ""
    if exercise.score == "scaled":
        power = ROUNDED(row.scaled[j])
        scaled = f"; `x = {score} / √{exercise.dim} {_about(row.scaled[j])}`"
    return f"{scaled}; `e^{power} {_about(row.exps[j])}`"


def _products(left: Sequence[float], right: Sequence[float], form: Format = WHOLE) -> str:
    """Return a sum of products as it is written by hand; `form` is that of the left factors.

    >>> _products([2, -1], [0, -3])
    '2×0 + (-1)×(-3)'
    """
    pairs = [(form(a), WHOLE(b)) for a, b in zip(left, right, strict=True)]
    return " + ".join("×".join(f"({x})" if x[0] == "-" else x for x in pair) for pair in pairs)


def _about(value: float, form: Format = ROUNDED) -> str:
    """Return `= 0.500` where that is all of the number, else `≈ 1.414`.

    >>> _about(0.5), _about(2**0.5)
    ('= 0.500', '≈ 1.414')
    """
    shown = form(value)
    return f"{'=' if float(shown) == value else '≈'} {shown}"


def questions(exercise: Exercise, trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield what is asked at the end, each question with its answer."""
    i = trace.focus[0]
    j = int(trace.shown.links.keys[i, 0])
    word, strongest, first, last = (quoted(exercise.tokens[n]) for n in (i, j, 0, -1))
    weight = ROUNDED(trace.weights[i, j])
    yield (
        f"Which word does {word} attend to most, and with which weight?",
        f"{'Itself' if i == j else strongest}: {weight}.",
    )
    other = ROUNDED(solve(exercise, "dot" if exercise.score == "scaled" else "scaled").weights[i, j])
    if exercise.score == "scaled":
        yield (
            f"Would that weight be larger or smaller without the division by `√{exercise.dim}`? Why?",
            f"Larger: {other} instead of {weight}. Undivided, the scores lie further apart.",
        )
    else:
        yield (
            f"Would that weight be larger or smaller if the scores were divided by `√{exercise.dim}`? Why?",
            f"Smaller: {other} instead of {weight}. Divided, the scores lie closer together.",
        )
    yield (
        "Add 5 to every score of one row: what becomes of its weights?",
        "Nothing: every `e^x` of the row, and so their sum, is multiplied by the same number.",
    )
    if exercise.mask == "causal":
        yield (
            f"The weights of {first} are known before anything is computed. Why?",
            f"{first} may look at itself alone: its weight is 1, and its output is its own value.",
        )
    else:
        yield (
            f"Let {first} and {last} change places in the sentence: what becomes of the weights?",
            "They move with their words, and none changes: attention alone does not see the order.",
        )


def _closing(exercise: Exercise, key: bool) -> Say:
    """Return how to have the worksheet checked, or what the numbers of the key are."""
    if key:
        return Say(
            "Every number was computed in full precision and rounded for the eye, so a sum may differ in its last "
            "digit. Weights and output are the same if each step is rounded as asked. "
            f"Made by `{exercise.command} --key`.",
            quiet=True,
        )
    return Say(
        f"To have it checked, run `{exercise.command} -o FOLDER`, type your numbers into FOLDER/answer.json, and run "
        "`attn check FOLDER/answer.json --expect FOLDER/inputs.json`.",
        quiet=True,
    )
