"""All heads, or all layers and heads, as small heat maps that share one scale of shades."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attn_cli.render.blocks import Maps
from attn_cli.render.figures.cells import Key, draw_cells, draw_key, key_for
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
    font_of,
    row_labels,
    title_height,
    title_lines,
    too_small,
)
from attn_cli.render.numbers import map_format
from attn_cli.render.shade_scale import legend

LARGEST_MAP, LEAST_MAP, ACROSS = 2.0, 0.75, 13.0  # inches of a map; of all of them beside each other
WIDEST_CELL, BETWEEN, NARROWEST = 0.3, 0.16, 3.4
LEAST_FITTED = 0.25  # inches of a map in a given size
ROUNDS = 8
NAME = LINE * SMALL / INCH


class Multiples(NamedTuple):
    """Small maps, and how they stand: so many across, each line of them with a name at its left or none."""

    title: str
    maps: Maps
    across: int
    measure: str = "weight"
    has_tokens: bool = True  # whether rows and columns are tokens, and not blocks of them

    def texts(self) -> Iterable[str]:
        """Return the tokens at the edges."""
        return [*self.maps.rows, *self.maps.columns] if self.has_tokens else []

    def plan(self, pen: Pen, area: Area) -> _Plan:
        """Return where everything stands."""
        return _plan(self, pen, area)

    def draw(self, sheet: Sheet, plan: _Plan) -> None:
        """Draw the maps, their names and what explains the shades."""
        spare = max(0.0, sheet.width - plan.width) / 2
        for n, (name, values) in enumerate(zip(self.maps.names, self.maps.values, strict=True)):
            down, across = divmod(n, self.across)
            box = Box(
                spare + plan.left + across * (plan.box.width + BETWEEN),
                plan.top + down * (NAME + plan.box.height + BETWEEN) + NAME,
                plan.box.width,
                plan.box.height,
            )
            draw_cells(sheet, values, self.maps.scale, box)
            sheet.text(box.x, box.y - NAME / 2, _cut(sheet.pen, name, box.width), SMALL)
            if across == 0 and plan.rows is not None:
                draw_rows(sheet, plan.rows, box.x - GAP, box.y)
            if across == 0 and self.maps.bands:
                sheet.text(spare + EDGE, box.y + box.height / 2, self.maps.bands[down], SMALL, weight="bold")
            if n + self.across >= len(self.maps.names) and plan.columns is not None:
                _draw_foot(sheet, plan.columns, box)
        top = plan.top + NAME
        room = sheet.height - EDGE - top
        draw_key(sheet, plan.key, spare + plan.right, top, max(plan.box.height, min(plan.key.height(), room)))


class _Plan(NamedTuple):
    box: Box  # the size of a map
    rows: Labels | None
    columns: Labels | None
    key: Key
    title: Sequence[str]
    left: float
    top: float
    right: float
    width: float
    height: float


def _plan(of: Multiples, pen: Pen, area: Area) -> _Plan:
    """Return where everything stands, with cells as large as the area lets them be."""
    rows, columns = of.maps.values[0].shape
    lines = math.ceil(len(of.maps.names) / of.across)
    most = max(rows, columns)
    wanted = min(LARGEST_MAP, max(LEAST_MAP, ACROSS / of.across))
    cell = min(WIDEST_CELL, wanted / most)
    key = _key(of)
    plan = _placed(of, pen, area, cell, key)
    if area.width is None or area.height is None:
        return plan
    plan = _placed(of, pen, area, cell, key, is_fitted=True)
    for _ in range(ROUNDS):
        wide = (area.width - (plan.width - of.across * columns * cell)) / (of.across * columns)
        high = (area.height - (plan.height - lines * rows * cell)) / (lines * rows)
        cell = max(LEAST_FITTED / most, (cell + min(wide, high)) / 2)
        plan = _placed(of, pen, area, cell, key, is_fitted=True)
    while plan.width > area.width or plan.height > area.height:
        cell *= 0.97
        if cell * most < LEAST_FITTED:
            raise too_small(area)
        plan = _placed(of, pen, area, cell, key, is_fitted=True)
    return plan


def _placed(of: Multiples, pen: Pen, area: Area, cell: float, key: Key, is_fitted: bool = False) -> _Plan:
    """Return where everything stands with cells of so many inches; a given area may cut the bar of shades short."""
    rows, columns = of.maps.values[0].shape
    lines = math.ceil(len(of.maps.names) / of.across)
    box = Box(0, 0, columns * cell, rows * cell)
    beside = below = None
    if of.has_tokens and font_of(cell) >= LEAST_FONT:
        beside = row_labels(pen, [pen.shown(token) for token in of.maps.rows], cell)
        below = row_labels(pen, [pen.shown(token) for token in of.maps.columns], cell)
    left = EDGE + (beside.extent if beside else 0.0)
    left += max((pen.width(band, SMALL, "bold") + 2 * GAP for band in of.maps.bands), default=0.0)
    right = left + of.across * (box.width + BETWEEN) + GAP
    width = max(right + key.width(pen) + EDGE, 0.0 if is_fitted else NARROWEST)
    title = title_lines(pen, of.title, area.width or width)
    top = EDGE + title_height(title)
    foot = below.extent if below else 0.0
    height = top + lines * (NAME + box.height + BETWEEN) - BETWEEN + foot + EDGE
    least = 0.0 if is_fitted else top + NAME + key.height() + EDGE
    return _Plan(box, beside, below, key, title, left, top, right, width, max(height, least))


def _key(of: Multiples) -> Key:
    said = legend(of.maps)._replace(has_masked=any(np.isnan(values).any() for values in of.maps.values))
    middle = map_format(of.maps)((of.maps.scale.least + of.maps.scale.most) / 2)
    ticks = (said.low, middle, said.high) if said.low != said.high else (said.low,)
    return key_for(said, of.measure, ticks)


def _cut(pen: Pen, name: str, width: float) -> str:
    """Return a name that is no wider than its map."""
    name = pen.drawable(name)
    if pen.width(name, SMALL) <= width + BETWEEN / 2:
        return name
    while len(name) > 1 and pen.width(f"{name}…", SMALL) > width + BETWEEN / 2:
        name = name[:-1]
    return f"{name}…"


def _draw_foot(sheet: Sheet, labels: Labels, box: Box) -> None:
    """Write the columns' tokens below a map, upright."""
    for j in labels.places():
        x = box.x + (j + 0.5) * labels.pitch
        sheet.text(x, box.y + box.height + GAP, labels.texts[j], labels.font, "right", turned=90)
