"""Shaded cells, hatched where they are masked, and the bar that says what the shades mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.render.blocks import Matrix, ShadeRange
from attn_cli.render.figures.pen import INCH, LINE, Pen, on_paper
from attn_cli.render.figures.sheet import GAP, SMALL, Box, Sheet
from attn_cli.render.numbers import exact, rungs
from attn_cli.render.palette import SHADES, text_on
from attn_cli.render.shade_scale import Legend, legend, shade_range, shading

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools, Ints

MOST_DRAWN = 4096  # cells that are drawn one by one; more are one picture, of the figure's dots
LEAST_NUMBER, LARGEST_NUMBER = 6.0, 10.0  # points of a number in a cell
MOST_NUMBERS = 1600
SHORTEST_BAR = 0.25  # inches, where a small figure has no more
BAR, LEAST_BAR = 0.15, 0.5  # inches


def draw_cells(
    sheet: Sheet,
    values: Array,
    scale: ShadeRange,
    box: Box,
    is_difference: bool = False,
    most_drawn: int = MOST_DRAWN,
) -> Ints:
    """Shade a matrix (rows, columns) into the box, its masked cells (NaN) hatched; return the shades."""
    shades = shading(values, scale)
    colors = np.array([on_paper(rgb) for rgb in sheet.pen.ramp(is_difference)])
    rows, columns = values.shape
    xs, ys = np.linspace(0, box.width, columns + 1) + box.x, np.linspace(0, box.height, rows + 1) + box.y
    painted = np.ones((rows, columns, 4))
    painted[..., :3] = colors[shades.clip(0)]
    painted[shades < 0, 3] = 0.0
    if rows * columns > most_drawn:
        sheet.axes.imshow(
            painted, extent=(xs[0], xs[-1], ys[-1], ys[0]), interpolation="nearest", aspect="auto", zorder=1
        )
    else:
        sheet.axes.pcolormesh(
            xs, ys, painted, edgecolors="face", linewidth=0.2, antialiased=False, snap=False, zorder=1
        )
    _hatch(sheet, shades < 0, xs, ys)
    frame = [(xs[0], ys[0]), (xs[-1], ys[0]), (xs[-1], ys[-1]), (xs[0], ys[-1]), (xs[0], ys[0])]
    sheet.axes.plot(*zip(*frame, strict=True), color=sheet.pen.faint, linewidth=0.5, zorder=2)
    return shades


def _hatch(sheet: Sheet, masked: Bools, xs: Array, ys: Array) -> None:
    """Hatch the masked cells, each run of them in a row as one shape."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    paths = []
    for i, row in enumerate(masked):
        ends = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]])))
        for start, stop in ends.reshape(-1, 2).tolist():
            corners = [(xs[start], ys[i]), (xs[stop], ys[i]), (xs[stop], ys[i + 1]), (xs[start], ys[i + 1])]
            paths.append(Path([*corners, corners[0]], closed=True))
    if paths:
        sheet.axes.add_patch(
            PathPatch(
                Path.make_compound_path(*paths),
                facecolor="none",
                edgecolor=sheet.pen.faint,
                hatch="////",
                linewidth=0,
                zorder=1.5,
            )
        )


def draw_numbers(sheet: Sheet, matrix: Matrix, shades: Ints, box: Box) -> bool:
    """Write the numbers into the cells, with as many digits as fit; return whether any do."""
    rows, columns = matrix.values.shape
    if rows * columns > MOST_NUMBERS:
        return False
    wide, high = box.width / columns, box.height / rows
    colors = sheet.pen.ramp(matrix.is_difference)
    for rung in rungs(matrix):
        if rung.format is None or rung.format.factor != 1:  # a percent would need its sign
            continue
        texts = [rung.format.row(row) for row in matrix.values.tolist()]
        known = [text for row in texts for text in row if not text.endswith("nan")]
        widest = sheet.pen.widest(known, 1.0)
        largest = max(LARGEST_NUMBER, min(high, wide) * INCH / 4)
        size = min(largest, high * INCH * 0.6, wide * 0.8 / widest if widest else largest)
        if size >= LEAST_NUMBER:
            for i, row in enumerate(texts):
                for j, text in enumerate(row):
                    if shades[i, j] >= 0:
                        color = on_paper(text_on(colors[shades[i, j]]))
                        x, y = box.x + (j + 0.5) * wide, box.y + (i + 0.5) * high
                        sheet.text(x, y, text, size, "center", color=color)
            return True
    return False


class Key(NamedTuple):
    """What stands beside a shaded matrix: its name, the numbers along the bar, and what is said below."""

    name: str
    ticks: tuple[str, ...]  # at equal distances, from the least to the largest
    below: tuple[str, ...]
    has_masked: bool
    is_difference: bool

    def width(self, pen: Pen) -> float:
        """Return the inches that it takes."""
        ticks = BAR + GAP + pen.widest(self.ticks, SMALL)
        below = BAR + GAP + pen.widest([*(["masked"] if self.has_masked else []), *self.below], SMALL)
        return max(pen.width(self.name, SMALL), ticks, below)

    def height(self) -> float:
        """Return the inches that it takes at least."""
        return LEAST_BAR + (1 + len(self.below) + self.has_masked) * LINE * SMALL / INCH + 2 * GAP


def key_of(matrix: Matrix, name: str) -> Key:
    """Return what explains the shades of a matrix."""
    said = legend(matrix)
    scale = shade_range(matrix)
    return key_for(said, name, _ticks(said, scale, matrix), matrix.is_difference)


def _ticks(said: Legend, scale: ShadeRange, matrix: Matrix) -> tuple[str, ...]:
    if not said.low or said.low == said.high:
        return (said.low,) if said.low else ()
    middle = exact(matrix._replace(digits=None))((scale.least + scale.most) / 2)
    return (said.low, middle, said.high)


def key_for(said: Legend, name: str, ticks: tuple[str, ...], is_difference: bool = False) -> Key:
    """Return what explains shades, in the words of the screen's legend."""
    below: Sequence[str] = said.more.split(": ") if said.more else ()
    return Key(name, ticks, tuple(below), said.has_masked, is_difference)


def draw_key(sheet: Sheet, key: Key, x: float, y: float, height: float) -> None:
    """Draw the bar of shades, its numbers, and a patch of what is masked, below each other."""
    line = LINE * SMALL / INCH
    sheet.text(x, y + line / 2, key.name, SMALL)
    top = y + line + GAP
    long = max(SHORTEST_BAR, height - key.height() + LEAST_BAR)
    if key.ticks:
        shades = np.linspace(1.0, 0.0, SHADES)[:, None]
        bar = Box(x, top, BAR, long)
        draw_cells(sheet, shades, ShadeRange(0.0, 1.0), bar, key.is_difference, most_drawn=0)
        for n, text in enumerate(key.ticks):
            share = 0.5 if len(key.ticks) == 1 else n / (len(key.ticks) - 1)
            sheet.text(x + BAR + GAP, top + long * (1 - share), text, SMALL)
    below = top + long + GAP
    for text in key.below:
        sheet.text(x, below + line / 2, text, SMALL, color=sheet.pen.faint)
        below += line
    if key.has_masked:
        masked = np.array([[np.nan]])
        draw_cells(sheet, masked, ShadeRange(0.0, 1.0), Box(x, below + 0.02, BAR, line - 0.02))
        sheet.text(x + BAR + GAP, below + line / 2, "masked", SMALL)
