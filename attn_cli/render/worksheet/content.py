"""The worksheet of an exercise, and its key: what stands on them, for Markdown and LaTeX alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.render.numbers import Format
from attn_cli.render.views.wording import quoted
from attn_cli.render.worksheet.by_hand import MIXED, ROUNDED, WHOLE, one_row, products
from attn_cli.render.worksheet.parts import Ask, Code, Heading, Math, Part, Say, Table, Tables, Title, Words
from attn_cli.teach.exercises import DIGITS, OUTPUT_DIGITS, Exercise, solve
from attn_cli.trace.steps import STEPS
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MASKED = "–"
ROOT_DIGITS = 5  # of 1/√d: enough for three digits after the point of any score on these sheets


def parts(exercise: Exercise, key: bool = False) -> Iterator[Part]:
    """Yield the worksheet from top to bottom, or its key: the same with every blank filled in."""
    sheet = Sheet(exercise, solve(exercise), key)
    yield Title(f"Attention by hand: exercise {exercise.seed}{', the key' if key else ''}")
    yield from _given(exercise)
    yield from _projections(sheet)
    yield from _scores(sheet)
    yield from _softmax(sheet)
    if key:
        yield from one_row(exercise, sheet.trace)
    yield Heading("Questions")
    for n, (question, answer) in enumerate(questions(exercise, sheet.trace), 1):
        yield Ask(n, question, answer if key else None)
    yield from _closing(exercise, key)


class Sheet(NamedTuple):
    """What the parts of a sheet draw on: the exercise, all of its steps, and whether to show them."""

    exercise: Exercise
    trace: Trace
    key: bool

    def title(self, name: str) -> str:
        """Return a step's title with its number on this sheet."""
        scaled, masked = self.exercise.score == "scaled", self.exercise.mask != "none"
        names = ["q", "k", "v", "scores", *["scaled_scores"] * scaled, *["masked_scores"] * masked]
        title = next(step.title for step in STEPS if step.name == name)
        return f"{[*names, 'weights', 'output'].index(name) + 1}. {title}"

    def table(self, name: str, formula: str, form: Format = WHOLE, across: bool = False) -> Table:
        """Return a step's matrix as a table: blank, or in the key filled in; `across` has a column a word."""
        cells = rows_of(self.exercise.tokens, getattr(self.trace.shown, name), form if self.key else None)
        d = [str(n) for n in range(self.exercise.dim)]
        return Table(self.title(name), formula, self.exercise.tokens if across else d, cells)


def rows_of(
    labels: Sequence[str], matrix: ArrayLike, form: Format | None
) -> list[tuple[str, list[str | None]]]:
    """Return the rows of a matrix with their labels, as text, or blank without a form."""
    rows = np.asarray(matrix).tolist()
    return [
        (label, [None if form is None else form(value) for value in row])
        for label, row in zip(labels, rows, strict=True)
    ]


def _given(exercise: Exercise) -> Iterator[Part]:
    sentence = " ".join(exercise.tokens)
    kind = "masked self-attention" if exercise.mask != "none" else "self-attention"
    yield Say(
        (
            f'Compute {kind} of "{sentence}" by hand. Each word is a row of ',
            Math("X"),
            "; rows are queries, columns are keys. "
            f"Write rounded numbers with {DIGITS} digits after the point, the output with {OUTPUT_DIGITS}.",
        )
    )
    d = [str(n) for n in range(exercise.dim)]
    weights = [("W_q", exercise.W_q), ("W_k", exercise.W_k), ("W_v", exercise.W_v)]
    tables = [Table("", "X", d, rows_of(exercise.tokens, exercise.X, WHOLE), is_given=True)]
    yield Tables(tables + [Table("", name, d, rows_of(d, W, WHOLE), is_given=True) for name, W in weights])


def _projections(sheet: Sheet) -> Iterator[Part]:
    """Yield Q, K and V, with the first cell worked out as an example."""
    exercise = sheet.exercise
    q, k, v = (sheet.table(name, f"{name.upper()} = X W_{name}") for name in "qkv")
    column = [row[0] for row in exercise.W_q]
    result = WHOLE(sum(x * w for x, w in zip(exercise.X[0], column, strict=True)))
    (label, (_, *others)), *below = q.rows
    yield Tables([q._replace(rows=[(label, [result, *others]), *below]), k, v])
    worked = Math(f"{products(exercise.X[0], column)} = {result}")
    yield Say((f"Example: the query of {quoted(exercise.tokens[0])} begins with ", worked, "."))


def _scores(sheet: Sheet) -> Iterator[Part]:
    """Yield the scores, scaled where they are, and what the mask takes away."""
    exercise = sheet.exercise
    d = exercise.dim
    tables = [sheet.table("scores", "Q Kᵀ", across=True)]
    if exercise.score == "scaled":
        tables.append(sheet.table("scaled_scores", f"x = Q Kᵀ / √{d}", ROUNDED, across=True))
    yield Tables(tables)
    if exercise.score == "dot":
        yield Say(("These scores are not divided by anything: ", Math("x = Q Kᵀ"), "."))
    elif d == 4:
        yield Say(("Dividing by ", Math("√4"), " is dividing by 2."))
    else:
        yield Say(
            ("Dividing by ", Math(f"√{d}"), " is multiplying by ", Math(f"{d**-0.5:.{ROOT_DIGITS}f}"), ".")
        )
    if exercise.mask != "none":
        yield Heading(sheet.title("masked_scores"))
        rule = "A word may look at itself and at words before it: cross out the other cells of "
        shut = f"; their weights are 0.{_crossed_out(exercise.tokens) if sheet.key else ''}"
        yield Say((rule, Math("x"), ". They have no ", Math("e^x"), shut))


def _crossed_out(tokens: Sequence[str]) -> str:
    later = [", ".join(map(quoted, tokens[i + 1 :])) for i in range(len(tokens) - 1)]
    return (
        " Crossed out: "
        + "; ".join(f"{quoted(t)} to {keys}" for t, keys in zip(tokens, later, strict=False))
        + "."
    )


def _softmax(sheet: Sheet) -> Iterator[Part]:
    """Yield the table of e^x, the row sums, the weights and the output."""
    exercise, trace = sheet.exercise, sheet.trace
    scores, scale = trace.shown.scores, trace.scale
    assert scores is not None
    ladder = [scale * n for n in range(int(scores.min()), int(scores.max()) + 1)]
    form = WHOLE if scale == 1 else ROUNDED
    table = [(Math("e^x"), [ROUNDED(np.exp(x)) for x in ladder])]
    yield Heading(sheet.title("weights"))
    yield Say((Math("e^x"), " for every score from the smallest to the largest:"))
    yield Tables([Table("", "x", [form(x) for x in ladder], table, is_given=True)])
    yield Say(("Each ", Math("e^x"), ", divided by the sum of its row, is a weight; then mix the values:"))
    tokens = exercise.tokens
    found = [trace.row(i) for i in range(len(tokens))]
    exps = [[*row.exps, row.total] for row in found if row is not None]
    weights = [[*row.weights, sum(row.weights)] for row in found if row is not None]
    yield Tables(
        [
            Table("", "e^x", (*tokens, "sum"), _masked(sheet, exps)),
            Table("", "weights = e^x / sum", (*tokens, "sum"), _masked(sheet, weights)),
            sheet.table("output", "weights V", MIXED),
        ]
    )


def _masked(sheet: Sheet, rows: Sequence[Sequence[float]]) -> list[tuple[str, list[str | None]]]:
    """Return rows as rounded numbers or blanks, a dash where the key has a masked cell."""
    cells = rows_of(sheet.exercise.tokens, rows, ROUNDED if sheet.key else None)
    mask = sheet.trace.mask
    if mask is not None and sheet.key:
        for i, j in np.argwhere(~mask):
            cells[i][1][j] = MASKED
    return cells


def questions(exercise: Exercise, trace: Trace) -> Iterator[tuple[Words, Words]]:
    """Yield what is asked at the end, each question with its answer."""
    i = trace.focus[0]
    j = int(trace.shown.links.keys[i, 0])
    word, strongest, first, last = (quoted(exercise.tokens[n]) for n in (i, j, 0, -1))
    weight = ROUNDED(trace.weights[i, j])
    yield (
        (f"Which word does {word} attend to most, and with which weight?",),
        (f"{'Itself' if i == j else strongest}: {weight}.",),
    )
    root = Math(f"√{exercise.dim}")
    if exercise.score == "scaled":
        other = ROUNDED(solve(exercise, "dot").weights[i, j])
        yield (
            ("Would that weight be larger or smaller without the division by ", root, "? Why?"),
            (f"Larger: {other} instead of {weight}. Undivided, the scores lie further apart.",),
        )
    else:
        other = ROUNDED(solve(exercise, "scaled").weights[i, j])
        yield (
            ("Would that weight be larger or smaller if the scores were divided by ", root, "? Why?"),
            (f"Smaller: {other} instead of {weight}. Divided, the scores lie closer together.",),
        )
    yield (
        ("Add 5 to every score of one row: what becomes of its weights?",),
        ("Nothing: every ", Math("e^x"), " of the row, and so their sum, is multiplied by the same number."),
    )
    if exercise.mask == "causal":
        yield (
            (f"The weights of {first} are known before anything is computed. Why?",),
            (f"{first} may look at itself alone: its weight is 1, and its output is its own value.",),
        )
    else:
        yield (
            (f"Let {first} and {last} change places in the sentence: what becomes of the weights?",),
            ("They move with their words, and none changes: attention alone does not see the order.",),
        )


def _closing(exercise: Exercise, key: bool) -> Iterator[Part]:
    """Yield how to have the sheet checked, or what the numbers of the key are."""
    if key:
        rounding = (
            "Every number was computed in full precision and rounded for the eye, so a sum may differ in its last "
            "digit. Weights and output are the same if each step is rounded as asked. Made by "
        )
        yield Say((rounding, Code(f"{exercise.command} --key"), "."), quiet=True)
        return
    yield Say(
        (
            "To have it checked, run ",
            Code(f"{exercise.command} -o FOLDER"),
            ", type your numbers into FOLDER/answer.json, and run ",
            Code("attn check FOLDER/answer.json --expect FOLDER/inputs.json"),
            ".",
        ),
        quiet=True,
    )
