"""Bars of one row: a bar for each key, as long as its weight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attn_cli.render.blocks import Bars
from attn_cli.render.figures.pen import Pen, on_paper
from attn_cli.render.figures.sheet import (
    EDGE,
    GAP,
    Area,
    Labels,
    Sheet,
    draw_rows,
    note_step,
    row_labels,
    title_height,
    title_lines,
    too_small,
)
from attn_cli.render.numbers import bar_numbers
from attn_cli.render.palette import SHADES

HIGHEST_ROW, LEAST_ROW, WANTED, LONGEST = 0.34, 0.085, 8.0, 17.0  # inches
SPAN, LEAST_SPAN, LEAST_FITTED = 4.0, 0.5, 0.01
LABEL = 0.4  # of a given width, for the tokens
THICK = 0.72  # of a row


class Rowed(NamedTuple):
    """One row's bars."""

    title: str
    bars: Bars
    precision: int | None = None

    def texts(self) -> Iterable[str]:
        """Return the keys."""
        return [token for token, _ in self.bars.items]

    def plan(self, pen: Pen, area: Area) -> _Plan:
        """Return where everything stands."""
        return _plan(self, pen, area)

    def draw(self, sheet: Sheet, plan: _Plan) -> None:
        """Draw the keys, the bars and their numbers; a masked key is said to be."""
        from matplotlib.patches import Rectangle

        draw_rows(sheet, plan.keys, plan.left - GAP, plan.top)
        colors, pitch = sheet.pen.strong(), plan.keys.pitch
        for n, ((_, value), number) in enumerate(zip(self.bars.items, plan.numbers, strict=True)):
            length, middle = self.bars.length(value), plan.top + (n + 0.5) * pitch
            color = on_paper(colors[int(length * (SHADES - 1))])
            corner = (plan.left, middle - THICK * pitch / 2)
            bar = Rectangle(corner, length * plan.span, THICK * pitch, facecolor=color, linewidth=0)
            sheet.axes.add_patch(bar)
            if n % plan.keys.step == 0 or value is None:
                ink = sheet.pen.faint if value is None else sheet.pen.ink
                sheet.text(plan.left + length * plan.span + GAP, middle, number, plan.keys.font, color=ink)
        foot = plan.top + len(self.bars.items) * pitch
        sheet.axes.plot([plan.left, plan.left], [plan.top, foot], color=sheet.pen.faint, linewidth=0.8)
        note_step(sheet, plan.keys.step, "key")


class _Plan(NamedTuple):
    keys: Labels
    numbers: Sequence[str]
    left: float
    span: float  # inches of the longest bar
    top: float
    title: Sequence[str]
    width: float
    height: float


def _plan(of: Rowed, pen: Pen, area: Area) -> _Plan:
    """Return where everything stands."""
    n = len(of.bars.items)
    pitch = min(HIGHEST_ROW, max(WANTED / n, LEAST_ROW), LONGEST / n)
    numbers = bar_numbers(of.bars, of.precision)
    for _ in range(2):  # once the height of the title is known, that of a row is
        most = LABEL * area.width if area.width else None
        keys = row_labels(pen, [pen.shown(token) for token, _ in of.bars.items], pitch, most=most)
        fixed = keys.extent + pen.widest(numbers, keys.font) + GAP + 2 * EDGE
        width = area.width or fixed + SPAN
        title = title_lines(pen, of.title, width)
        top = EDGE + title_height(title)
        if area.height is not None:
            pitch = (area.height - top - EDGE) / n
        if width - fixed < LEAST_SPAN or pitch < LEAST_FITTED:
            raise too_small(area)
    span = width - fixed
    return _Plan(keys, numbers, EDGE + keys.extent, span, top, title, width, top + n * pitch + EDGE)
