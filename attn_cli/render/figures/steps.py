"""The steps of one row: from its query, score by score, to its weights and its output, from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.render.blocks import Matrix
from attn_cli.render.figures.cells import draw_cells, draw_numbers
from attn_cli.render.figures.pen import INCH, LINE, Pen
from attn_cli.render.figures.sheet import (
    EDGE,
    GAP,
    LEAST_FONT,
    SMALL,
    Area,
    Box,
    Labels,
    Sheet,
    draw_rows,
    folded,
    note_step,
    row_labels,
    title_height,
    title_lines,
    too_small,
)
from attn_cli.render.shade_scale import shade_range

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

HIGHEST_ROW, LEAST_ROW, WANTED, LONGEST = 0.34, 0.085, 8.0, 17.0  # inches
LEAST_HIGH, COLUMN, BETWEEN = 1.4, 0.78, 0.22
LEAST_COLUMN, LEAST_FITTED = 0.15, 0.01  # inches of a column and of a row in a given size
LABEL = 0.2  # of a given width, for the tokens
HEAD = LINE * SMALL / INCH


class Step(NamedTuple):
    """One column: its name and its formula above, its numbers (n,), NaN where masked, and what stands below."""

    name: str
    formula: str
    values: Array
    below: str = ""
    is_weights: bool = False

    def matrix(self) -> Matrix:
        """Return the numbers as a matrix of one column."""
        rows = [""] * len(self.values)
        return Matrix(rows, [""], self.values[:, None], is_weights=self.is_weights)


class Stepped(NamedTuple):
    """The steps of one row; those of `keyed` have a number for each key."""

    title: str
    keys: Sequence[str]
    before: Sequence[Step]  # of the query, left of the keys
    keyed: Sequence[Step]
    after: Sequence[Step]  # of the output
    remarks: Sequence[str] = ()

    def texts(self) -> Iterable[str]:
        """Return the keys."""
        return self.keys

    def plan(self, pen: Pen, area: Area) -> _Plan:
        """Return where everything stands."""
        return _plan(self, pen, area)

    def draw(self, sheet: Sheet, plan: _Plan) -> None:
        """Draw the columns, each with its formula above it."""
        x = EDGE
        for step in self.before:
            x = _draw_step(sheet, step, x, plan, plan.high) + BETWEEN
        x += plan.keys.extent
        draw_rows(sheet, plan.keys, x - GAP, plan.top)
        sheet.text(x - GAP, plan.top - HEAD * 0.7, "key", SMALL, "right", color=sheet.pen.faint)
        for step in self.keyed:
            x = _draw_step(sheet, step, x, plan, len(self.keys) * plan.keys.pitch) + BETWEEN
        for step in self.after:
            x = _draw_step(sheet, step, x, plan, plan.high) + BETWEEN
        for n, line in enumerate(plan.remarks):
            y = plan.top + plan.high + HEAD * (1.6 + n + 0.5)
            sheet.text(EDGE, y, line, SMALL, color=sheet.pen.faint)
        note_step(sheet, plan.keys.step, "key")


class _Plan(NamedTuple):
    keys: Labels
    column: float
    font: float  # of what stands above and below a column
    top: float
    high: float  # of the columns that are not of keys
    title: Sequence[str]
    remarks: Sequence[str]
    width: float
    height: float


def _plan(of: Stepped, pen: Pen, area: Area) -> _Plan:
    """Return where everything stands."""
    n = len(of.keys)
    pitch = min(HIGHEST_ROW, max(WANTED / n, LEAST_ROW), LONGEST / n)
    steps = [*of.before, *of.keyed, *of.after]
    column = max(COLUMN, *(pen.widest([step.name, step.formula, step.below], SMALL) for step in steps))
    for _ in range(2):  # once the height of the title is known, that of a row is
        most = LABEL * area.width if area.width else None
        keys = row_labels(pen, [pen.shown(token) for token in of.keys], pitch, pen.width("key", SMALL), most)
        fixed = 2 * EDGE + keys.extent + BETWEEN * (len(steps) - 1)
        width = area.width or fixed + column * len(steps)
        column = (width - fixed) / len(steps)
        title = title_lines(pen, of.title, width)
        remarks = [line for text in of.remarks for line in folded(pen, text, width, SMALL)]
        top = EDGE + title_height(title) + 2 * HEAD + GAP
        foot = HEAD * (1.6 + len(remarks)) + EDGE
        if area.height is not None:
            pitch = (area.height - top - foot) / n
        if column < LEAST_COLUMN or pitch < LEAST_FITTED:
            raise too_small(area)
    high = n * pitch if area.height is not None else max(n * pitch, LEAST_HIGH)
    widest = max(pen.widest([step.name, step.formula, step.below], 1.0) for step in steps)
    font = min(SMALL, (column + BETWEEN * 0.8) / widest)
    if font < LEAST_FONT:
        raise too_small(area)
    return _Plan(keys, column, font, top, high, title, remarks, width, top + high + foot)


def _draw_step(sheet: Sheet, step: Step, x: float, plan: _Plan, height: float) -> float:
    """Draw a column; return where it ends."""
    box = Box(x, plan.top, plan.column, height)
    matrix = step.matrix()
    shades = draw_cells(sheet, matrix.values, shade_range(matrix), box)
    draw_numbers(sheet, matrix, shades, box)
    middle = x + plan.column / 2
    size = plan.font
    sheet.text(middle, plan.top - HEAD * 1.7, step.name, size, "center", weight="bold")
    sheet.text(middle, plan.top - HEAD * 0.7, step.formula, size, "center")
    sheet.text(middle, plan.top + height + HEAD * 0.8, step.below, size, "center", color=sheet.pen.faint)
    return x + plan.column
