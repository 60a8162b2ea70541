"""A heat map: a shaded matrix, or several beside each other, with tokens at its edges and a bar of shades."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.render.blocks import Matrix
from attn_cli.render.figures.cells import Key, draw_cells, draw_numbers
from attn_cli.render.figures.pen import EDGE, GAP, INCH, LINE, SMALL, Pen
from attn_cli.render.figures.sheet import (
    Area,
    Box,
    Drawing,
    Plan,
    Sheet,
    fitted,
    head_title,
    natural,
    refuse_long,
    refuse_top,
)
from attn_cli.render.shade_scale import FULL, FULL_DIFFERENCE, legend, shade_range, sharing_scale
from attn_cli.render.views.comparison import names_of
from attn_cli.render.views.overview import weight_matrix
from attn_cli.render.views.wording import kind_of
from attn_cli.settings.output import View
from attn_cli.teach.compare import Comparison
from attn_cli.trace.trace import Trace

WIDEST_CELL, LEAST_FITTED = 0.55, 0.04  # inches of a cell: where the size is free, and in a given one
FEW = 20  # cells that are so large at least; of more, as many are
NARROWEST, BETWEEN = 3.4, 0.3  # inches
NAME = LINE * SMALL / INCH + GAP


class _Heat(NamedTuple):
    """Matrices with the same number of rows; `names` stand above them where they are several."""

    parts: Sequence[Matrix]
    names: Sequence[str] = ()
    measure: str = "weight"
    axes: tuple[str, str] = ("query", "key")

    def drawing(self, title: str) -> Drawing:
        texts = [token for part in self.parts for token in (*part.rows, *part.columns)]
        return Drawing(title, texts, partial(_plan, self))


def heatmap(trace: Trace, view: View) -> Drawing:
    """Return the weights of the shown head; of a text too long for them, the means of blocks."""
    refuse_top(trace, "heatmap")
    title = f"{kind_of(trace)}{head_title(trace, trace.shown)}"
    if not trace.condensed or trace.asked:
        matrix = weight_matrix(trace, trace.shown).fixed(view.precision)
        return _Heat([matrix._replace(scale=FULL) if view.shades == "full" else matrix]).drawing(title)
    found = trace.long_view
    if found is None:
        raise UsageError("There are too many weights for a heat map.", "Give fewer tokens.", "--figure")
    edges = (found.query_edges, found.key_edges)
    rows, columns = ([f"{edge:,}" for edge in some[:-1]] for some in edges)
    query, key = (f"in blocks of up to {int(np.diff(some).max()):,}" for some in edges)
    scale = shade_range(Matrix((), (), found.means, is_weights=True))
    means = Matrix(rows, columns, found.means, shaded=True, scale=scale)
    return _Heat([means], measure="mean weight", axes=(f"query, {query}", f"key, {key}")).drawing(title)


def compared(comparison: Comparison, view: View) -> Drawing:
    """Return the sides of a comparison beside each other, in one scale of shades, and the difference of two."""
    first = comparison.traces[0]
    if not comparison.same_cells:
        raise UsageError("The tokens differ between the sides.", "Draw one attn self for each.", "--figure")
    refuse_top(first, "heatmap")
    refuse_long("heatmap of a comparison", len(first.listed), len(first.key_tokens))
    if first.condensed:
        raise UsageError("There are too many weights for a heat map.", "Give fewer tokens.", "--figure")
    sides = [weight_matrix(trace, trace.shown).fixed(view.precision) for trace in comparison.traces]
    sides = [side._replace(scale=FULL) for side in sides] if view.shades == "full" else sharing_scale(sides)
    names = list(names_of(comparison))
    if len(sides) == 2:
        change = sides[0]._replace(values=comparison.changes[0].difference, is_difference=True)
        sides.append(change._replace(scale=FULL_DIFFERENCE if view.shades == "full" else None))
        names.append(f"{names[1]} minus {names[0]}")
    return _Heat(sides, names).drawing(f"{kind_of(first)} by {comparison.option.replace('_', '-')}")


def _plan(heat: _Heat, title: str, pen: Pen, area: Area | None) -> Plan:
    rows, columns = len(heat.parts[0].rows), sum(len(part.columns) for part in heat.parts)
    most = max(rows, columns / len(heat.parts))
    # What explains the shades: once for all parts that share a scale, and for a difference.
    keys = [
        Key("difference" if part.is_difference else heat.measure, legend(part), part.is_difference)
        for n, part in enumerate(heat.parts)
        if n == 0 or part.is_difference
    ]
    place = partial(_placed, heat, title, pen, area, keys)
    smallest = LEAST_FITTED / most * min(most, FEW)
    return fitted(place, natural(most, WIDEST_CELL), (columns, rows), LEAST_FITTED, smallest, area)


def _placed(
    heat: _Heat, title: str, pen: Pen, area: Area | None, keys: Sequence[Key], cell: float, is_fitted: bool
) -> Plan:
    """Return where everything stands with cells of so many inches; a given area may cut the bar of shades short."""
    rows = pen.rows(heat.parts[0].rows, cell)
    columns = [pen.columns(part.columns, cell) for part in heat.parts]
    left = EDGE + NAME + rows.extent
    body = sum(cell * len(part.columns) for part in heat.parts) + BETWEEN * (len(heat.parts) - 1)
    right = left + body + sum(labels.overhang for labels in columns[:-1]) + 2 * GAP
    explained = sum(key.width(pen) for key in keys) + BETWEEN * (len(keys) - 1)
    width = max(right + max(explained, columns[-1].overhang) + EDGE, 0.0 if is_fitted else NARROWEST)
    lines, top = pen.headed(title, area.width if area else width)
    top = top + NAME * (2 if heat.names else 1) + max(one.extent for one in columns)
    bottom = top + cell * len(heat.parts[0].rows)
    high = bottom - top
    least = 0.0 if is_fitted else max(key.height() for key in keys)

    def draw(sheet: Sheet) -> None:
        spare = max(0.0, sheet.width - width) / 2
        x, beside = spare + left, spare + right
        for n, (part, labels) in enumerate(zip(heat.parts, columns, strict=True)):
            box = Box(x, top, cell * len(part.columns), cell * len(part.rows))
            shades = draw_cells(sheet, part.values, shade_range(part), box, part.is_difference)
            draw_numbers(sheet, part, shades, box)
            sheet.columns(labels, x, top)
            middle, above = x + box.width / 2, top - labels.extent - NAME / 2
            sheet.text(middle, above, heat.axes[1], SMALL, "center", color=pen.faint)
            if heat.names:
                sheet.text(middle, above - NAME, heat.names[n], SMALL + 1, "center", weight="bold")
            x += box.width + BETWEEN + labels.overhang
        sheet.rows(rows, spare + left - GAP, top)
        sheet.text(spare + EDGE + NAME / 2, (top + bottom) / 2, heat.axes[0], SMALL, "center", 90, pen.faint)
        for key in keys:
            key.draw(sheet, beside, top, max(high, min(key.height(), sheet.height - EDGE - top)))
            beside += key.width(pen) + BETWEEN
        sheet.note_step(max(rows.step, *(labels.step for labels in columns)), "token")

    return Plan(lines, width, top + max(high, least) + EDGE, draw)
