"""A heat map: a shaded matrix, or several beside each other, with tokens at its edges and a bar of shades."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attn_cli.render.blocks import Matrix
from attn_cli.render.figures.cells import Key, draw_cells, draw_key, draw_numbers, key_of
from attn_cli.render.figures.pen import INCH, LINE, Pen
from attn_cli.render.figures.sheet import (
    EDGE,
    GAP,
    SMALL,
    Area,
    Box,
    Labels,
    Sheet,
    column_labels,
    draw_columns,
    draw_rows,
    note_step,
    row_labels,
    title_height,
    title_lines,
    too_small,
)
from attn_cli.render.shade_scale import shade_range

WIDEST_CELL, LEAST_CELL = 0.55, 0.085  # inches of a cell, where the size is free
WANTED, LONGEST = 8.0, 17.0  # inches of a matrix: of one of middling size, and at most
LEAST_FITTED, FEW = 0.04, 20  # inches of a cell in a given size; of many cells, as many are so large
NARROWEST = 3.4
BETWEEN = 0.3
ROUNDS = 8  # of fitting cells and labels into a given size
NAME = LINE * SMALL / INCH + GAP


class Heat(NamedTuple):
    """Matrices with the same number of rows; `names` stand above them where they are several."""

    title: str
    parts: Sequence[Matrix]
    names: Sequence[str] = ()
    measure: str = "weight"
    axes: tuple[str, str] = ("query", "key")

    def texts(self) -> Iterable[str]:
        """Return the tokens at the edges."""
        return [token for part in self.parts for token in (*part.rows, *part.columns)]

    def plan(self, pen: Pen, area: Area) -> _Plan:
        """Return where everything stands."""
        return _plan(self, pen, area)

    def draw(self, sheet: Sheet, plan: _Plan) -> None:
        """Draw the matrices, their labels and what explains the shades."""
        spare = max(0.0, sheet.width - plan.width) / 2
        x, bottom, right = spare + plan.left, plan.top, spare + plan.right
        for n, (part, labels) in enumerate(zip(self.parts, plan.columns, strict=True)):
            box = Box(x, plan.top, plan.cell * len(part.columns), plan.cell * len(part.rows))
            shades = draw_cells(sheet, part.values, shade_range(part), box, part.is_difference)
            draw_numbers(sheet, part, shades, box)
            draw_columns(sheet, labels, x, plan.top)
            above = plan.top - labels.extent - NAME / 2
            sheet.text(x + box.width / 2, above, self.axes[1], SMALL, "center", color=sheet.pen.faint)
            if self.names:
                sheet.text(x + box.width / 2, above - NAME, self.names[n], SMALL + 1, "center", weight="bold")
            x += box.width + BETWEEN + labels.overhang
            bottom = plan.top + box.height
        draw_rows(sheet, plan.rows, spare + plan.left - GAP, plan.top)
        middle = (plan.top + bottom) / 2
        sheet.text(spare + EDGE + NAME / 2, middle, self.axes[0], SMALL, "center", 90, sheet.pen.faint)
        room = sheet.height - EDGE - plan.top
        for key in plan.keys:
            draw_key(sheet, key, right, plan.top, max(bottom - plan.top, min(key.height(), room)))
            right += key.width(sheet.pen) + BETWEEN
        note_step(sheet, max(plan.rows.step, *(labels.step for labels in plan.columns)), "token")


class _Plan(NamedTuple):
    cell: float
    rows: Labels
    columns: Sequence[Labels]
    keys: Sequence[Key]  # what explains the shades: of all parts that share a scale, and of a difference
    title: Sequence[str]
    left: float
    top: float
    right: float
    width: float
    height: float


def _plan(heat: Heat, pen: Pen, area: Area) -> _Plan:
    """Return where everything stands, with cells as large as the area lets them be."""
    rows, columns = len(heat.parts[0].rows), sum(len(part.columns) for part in heat.parts)
    most = max(rows, columns / len(heat.parts))
    cell = min(WIDEST_CELL, max(WANTED / most, LEAST_CELL), LONGEST / most)
    keys = _keys(heat)
    plan = _placed(heat, pen, area, cell, keys)
    if area.width is None or area.height is None:
        return plan
    plan = _placed(heat, pen, area, cell, keys, is_fitted=True)
    for _ in range(ROUNDS):
        across = (area.width - (plan.width - cell * columns)) / columns
        down = (area.height - (plan.height - cell * rows)) / rows
        cell = max(LEAST_FITTED, (cell + min(across, down)) / 2)
        plan = _placed(heat, pen, area, cell, keys, is_fitted=True)
    while plan.width > area.width or plan.height > area.height:
        cell *= 0.97
        if cell < LEAST_FITTED / most * min(most, FEW):
            raise too_small(area)
        plan = _placed(heat, pen, area, cell, keys, is_fitted=True)
    return plan


def _keys(heat: Heat) -> list[Key]:
    """Return what explains the shades: once for all parts that share a scale, and for a difference."""
    return [
        key_of(part, "difference" if part.is_difference else heat.measure)
        for n, part in enumerate(heat.parts)
        if n == 0 or part.is_difference
    ]


def _placed(
    heat: Heat, pen: Pen, area: Area, cell: float, keys: Sequence[Key], is_fitted: bool = False
) -> _Plan:
    """Return where everything stands with cells of so many inches; a given area may cut the bar of shades short."""
    rows = row_labels(pen, [pen.shown(token) for token in heat.parts[0].rows], cell)
    columns = [column_labels(pen, [pen.shown(token) for token in part.columns], cell) for part in heat.parts]
    left = EDGE + NAME + rows.extent
    body = sum(cell * len(part.columns) for part in heat.parts) + BETWEEN * (len(heat.parts) - 1)
    right = left + body + sum(labels.overhang for labels in columns[:-1]) + 2 * GAP
    explained = sum(key.width(pen) for key in keys) + BETWEEN * (len(keys) - 1)
    width = max(right + max(explained, columns[-1].overhang) + EDGE, 0.0 if is_fitted else NARROWEST)
    title = title_lines(pen, heat.title, area.width or width)
    top = EDGE + title_height(title) + NAME * (2 if heat.names else 1) + max(one.extent for one in columns)
    high = cell * len(heat.parts[0].rows)
    if not is_fitted:
        high = max(high, *(key.height() for key in keys))
    return _Plan(cell, rows, columns, keys, title, left, top, right, width, top + high + EDGE)
