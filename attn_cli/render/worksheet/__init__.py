"""The worksheet of an exercise, and its key: what stands on them, for Markdown, LaTeX and HTML alike.

In a sentence, what stands between backticks is a formula, or a command where it begins with attn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attn_cli.render import Heading, Say, quoted, walk
from attn_cli.render.numbers import Format, number
from attn_cli.teach.exercises import DIGITS, OUTPUT_DIGITS, Exercise, solve
from attn_cli.trace import Trace

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


class Question(NamedTuple):
    """A question, and its answer; without one there is room to write."""

    number: int
    text: str
    answer: str | None


SheetPart = Heading | Say | list[WorkTable] | Question  # tables in a list may stand beside each other


class _Sheet(NamedTuple):
    """What the parts are made from: the exercise, all of its steps, and whether to show them."""

    exercise: Exercise
    trace: Trace
    key: bool

    def title(self, name: str) -> str:
        """Return a step's title with its number on this worksheet."""
        scaled, masked = self.exercise.score == "scaled", self.exercise.mask != "none"
        names = ["q", "k", "v", "scores", *["scaled_scores"] * scaled, *["masked_scores"] * masked]
        title = next(step.title for step in walk.STEPS if step.name == name)
        return f"{[*names, 'weights', 'output'].index(name) + 1}. {title}"

    def table(self, name: str, formula: str, form: Format = WHOLE, across: bool = False) -> WorkTable:
        """Return a step's matrix as a table: blank, or in the key filled in; `across` has one column per word."""
        rows = rows_of(self.exercise.tokens, getattr(self.trace.shown, name), form if self.key else None)
        columns = self.exercise.tokens if across else list(map(str, range(self.exercise.dim)))
        return WorkTable(self.title(name), formula, columns, rows)


def parts(exercise: Exercise, key: bool = False) -> Iterator[SheetPart]:
    """Yield the worksheet from top to bottom, or its key: the same with every blank filled in."""
    exercise = exercise._replace(tokens=tuple(token.replace("`", "'") for token in exercise.tokens))
    sheet = _Sheet(exercise, solve(exercise), key)
    yield Heading(f"Attention by hand: exercise {exercise.seed}{', the key' if key else ''}", 1)
    yield from _projections(sheet)
    yield from _scores(sheet)
    yield from _softmax(sheet)
    if key:
        yield Heading(f"One row in full: {quoted(exercise.tokens[sheet.trace.focus[0]])}")
        yield from map(Say, _one_row(exercise, sheet.trace))
    rounding = (
        "Every number was computed in full precision and rounded for the eye, so a sum may differ in its last "
        "digit. Weights and output are the same if each step is rounded as asked. "
    )
    yield from ending(questions(exercise), exercise.command, key, rounding)


def ending(
    asked: Iterator[tuple[str, str]], command: str, key: bool, rounding: str = ""
) -> Iterator[SheetPart]:
    """Yield the questions, in the key with their answers, and how numbers are checked, or what the key is."""
    yield Heading("Questions")
    for n, (question, answer) in enumerate(asked, 1):
        yield Question(n, question, answer if key else None)
    told = (
        f"To have it checked, run `{command} -o FOLDER`, type your numbers into FOLDER/answer.json, and run "
        "`attn check FOLDER/answer.json --expect FOLDER/inputs.json`."
    )
    yield Say(f"{rounding}Made by `{command} --key`." if key else told, quiet=True)


def rows_of(labels: Sequence[str], matrix: ArrayLike, form: Format | None) -> Rows:
    """Return labelled rows of a table, blank where no form is given."""
    cells = [form.row(row) if form else [""] * len(row) for row in np.asarray(matrix).tolist()]
    return [[label, *texts] for label, texts in zip(labels, cells, strict=True)]


def _projections(sheet: _Sheet) -> Iterator[SheetPart]:
    """Yield what is given, and Q, K and V, with the first cell worked out as an example."""
    exercise = sheet.exercise
    yield Say(
        f'Compute {"masked " * (exercise.mask != "none")}self-attention of "{" ".join(exercise.tokens)}" by hand. Each '
        "word is a row of `X`; rows are queries, columns are keys. Write rounded numbers with "
        f"{DIGITS} digits after the point, the output with {OUTPUT_DIGITS}."
    )
    d = list(map(str, range(exercise.dim)))
    labels = {"X": list(exercise.tokens), "W_q": d, "W_k": d, "W_v": d}
    given = {name: rows_of(tokens, getattr(exercise, name), WHOLE) for name, tokens in labels.items()}
    yield [WorkTable("", name, d, rows, is_given=True) for name, rows in given.items()]
    tables = [sheet.table(name, f"{name.upper()} = X W_{name}") for name in "qkv"]
    column = [row[0] for row in exercise.W_q]
    tables[0].rows[0][1] = result = WHOLE(sum(x * w for x, w in zip(exercise.X[0], column, strict=True)))
    yield tables
    product = f"{products(exercise.X[0], column)} = {result}"
    yield Say(f"Example: the query of {quoted(exercise.tokens[0])} begins with `{product}`.")


def _scores(sheet: _Sheet) -> Iterator[SheetPart]:
    exercise, d = sheet.exercise, sheet.exercise.dim
    tables = [sheet.table("scores", "Q Kᵀ", across=True)]
    divided = "These scores are not divided by anything: `x = Q Kᵀ`."
    if exercise.score == "scaled":
        tables.append(sheet.table("scaled_scores", f"x = Q Kᵀ / √{d}", ROUNDED, across=True))
        how = "dividing by 2" if d == 4 else f"multiplying by `{d**-0.5:.{ROOT_DIGITS}f}`"
        divided = f"Dividing by `√{d}` is {how}."
    yield from (tables, Say(divided))
    if exercise.mask != "none":
        yield Heading(sheet.title("masked_scores"))
        words = list(map(quoted, exercise.tokens))
        later = [f"{word} to {', '.join(words[i:])}" for i, word in enumerate(words[:-1], 1)]
        crossed_out = f" Crossed out: {'; '.join(later)}." if sheet.key else ""
        yield Say(
            "A word may look at itself and at words before it: cross out the other cells of `x`. They have no `e^x`; "
            f"their weights are 0.{crossed_out}"
        )


def _softmax(sheet: _Sheet) -> Iterator[SheetPart]:
    trace, tokens = sheet.trace, sheet.exercise.tokens
    scores = trace.shown.scores
    assert scores is not None
    ladder = [trace.scale * n for n in range(int(scores.min()), int(scores.max()) + 1)]
    xs = (WHOLE if trace.scale == 1 else ROUNDED).row(ladder)
    yield Heading(sheet.title("weights"))
    yield Say("`e^x` for every score from the smallest to the largest:")
    yield [WorkTable("", "x", xs, rows_of(["`e^x`"], [np.exp(ladder)], ROUNDED), is_given=True)]
    yield Say("Each `e^x`, divided by the sum of its row, is a weight; then mix the values:")
    found = [row for row in map(trace.row, range(len(tokens))) if row is not None]
    tables = []
    for formula, numbers in (
        ("e^x", [[*row.exps, row.total] for row in found]),
        ("weights = e^x / sum", [[*row.weights, sum(row.weights)] for row in found]),
    ):
        cells = rows_of(tokens, numbers, ROUNDED if sheet.key else None)
        if trace.mask is not None and sheet.key:
            for i, j in np.argwhere(~trace.mask):
                cells[i][j + 1] = MASKED
        tables.append(WorkTable("", formula, (*tokens, "sum"), cells))
    yield [*tables, sheet.table("output", "weights V", MIXED)]


def _one_row(exercise: Exercise, trace: Trace) -> Iterator[str]:
    """Yield the arithmetic of the row that the questions ask for; formulas stand between backticks."""
    i, head, is_scaled = trace.focus[0], trace.shown, exercise.score == "scaled"
    row = trace.row(i)
    assert row is not None and head.q is not None and head.k is not None
    assert head.v is not None and head.output is not None
    q = [products(exercise.X[i], column) for column in zip(*exercise.W_q, strict=True)]
    yield f"`q = [{', '.join(q)}] = [{', '.join(WHOLE.row(head.q[i].tolist()))}]`"
    kept = [j for j, score in enumerate(row.masked) if np.isfinite(score)]
    for j, token in enumerate(exercise.tokens):
        score, exp, power = WHOLE(row.scores[j]), _about(row.exps[j]), ", crossed out"
        if j in kept:
            x = ROUNDED(row.scaled[j]) if is_scaled else score
            divided = f"; `x = {score} / √{exercise.dim} {_about(row.scaled[j])}`" * is_scaled
            power = f"{divided}; `e^{x} {exp}`"
        product = f"q·k = {products(head.q[i].tolist(), head.k[j].tolist())} = {score}"
        yield f"with {quoted(token)}: `{product}`{power}."
    exps, weights = ROUNDED.row([row.exps[j] for j in kept]), [row.weights[j] for j in kept]
    if len(kept) > 1:
        yield f"sum: `{' + '.join(exps)} {_about(row.total)}`."
    quotients = [f"`{e} / {ROUNDED(row.total)} {_about(w)}`" for e, w in zip(exps, weights, strict=True)]
    yield f"weights: {', '.join(quotients)}."
    columns = zip(head.v[kept].T.tolist(), head.output[i].tolist(), strict=True)
    mixtures = [f"`{products(weights, column, ROUNDED)} {_about(x, MIXED)}`" for column, x in columns]
    yield f"output: {', '.join(mixtures)}."


def products(left: Sequence[float], right: Sequence[float], form: Format = WHOLE) -> str:
    """Return a sum of products as it is written by hand; `form` is that of the left factors.

    >>> products([2, -1], [0, -3])
    '2×0 + (-1)×(-3)'
    """
    pairs = [(form(a), WHOLE(b)) for a, b in zip(left, right, strict=True)]
    return " + ".join("×".join(f"({x})" if x[0] == "-" else x for x in pair) for pair in pairs)


def _about(value: float, form: Format = ROUNDED) -> str:
    """Return `= 0.500` where that is all of the number, else `≈ 1.414`."""
    shown = form(value)
    return f"{'=' if float(shown) == value else '≈'} {shown}"


def questions(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """Yield what is asked at the end, each question with its answer."""
    trace = solve(exercise)
    i = trace.focus[0]
    j = int(trace.shown.links.keys[i, 0])
    word, strongest, first, last = (quoted(exercise.tokens[n]) for n in (i, j, 0, -1))
    weight, is_scaled = ROUNDED(trace.weights[i, j]), exercise.score == "scaled"
    other = ROUNDED(solve(exercise, "dot" if is_scaled else "scaled").weights[i, j])
    without = "without the division" if is_scaled else "if the scores were divided"
    apart = "Larger: {}. Undivided, the scores lie further apart."
    apart = apart if is_scaled else "Smaller: {}. Divided, the scores lie closer together."
    yield (
        f"Which word does {word} attend to most, and with which weight?",
        f"{'Itself' if i == j else strongest}: {weight}.",
    )
    yield (
        f"Would that weight be larger or smaller {without} by `√{exercise.dim}`? Why?",
        apart.format(f"{other} instead of {weight}"),
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
