"""Shaded cells, hatched where they are masked, and the bar that says what the shades mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_cli.io.types import Array, Bools, Ints, NamedTuple
from attn_cli.render import numbers, ramps
from attn_cli.render.blocks import Matrix, ShadeRange
from attn_cli.render.figures.pen import GAP, INCH, ROW, SMALL, Pen, on_paper
from attn_cli.render.figures.sheet import Box, Sheet
from attn_cli.render.ramps import Legend, shading

MOST_DRAWN = 4096  # cells that are drawn one by one; more are one picture, of the figure's dots
LEAST_NUMBER, LARGEST_NUMBER = 6.0, 10.0  # points of a number in a cell
LEAST_WORD = 4.0  # of a word
MOST_NUMBERS = 1600
SHORTEST_BAR = 0.25  # inches, where a small figure has no more
BAR, LEAST_BAR = 0.15, 0.5  # inches
WHOLE = ShadeRange(0.0, 1.0)


def draw_cells(
    sheet: Sheet,
    values: Array,
    scale: ShadeRange,
    box: Box,
    is_difference: bool = False,
    most: int = MOST_DRAWN,
) -> Ints:
    """Shade a matrix (rows, columns) into the box, its masked cells (NaN) hatched; return the shades."""
    shades = shading(values, scale)
    colors = np.array([on_paper(rgb) for rgb in ramps.ramp(sheet.pen.palette, is_difference)])
    rows, columns = values.shape
    xs, ys = np.linspace(0, box.width, columns + 1) + box.x, np.linspace(0, box.height, rows + 1) + box.y
    painted = np.dstack([colors[shades.clip(0)], shades >= 0])  # masked cells are transparent
    if rows * columns > most:
        extent = (xs[0], xs[-1], ys[-1], ys[0])
        sheet.axes.imshow(painted, extent=extent, interpolation="nearest", aspect="auto", zorder=1)
    else:
        cells = sheet.axes.pcolormesh(xs, ys, painted, edgecolors="face", antialiased=False, zorder=1)
        cells.set(linewidth=0.2, snap=False)
    _hatch(sheet, shades < 0, xs, ys)
    frame = xs[[0, -1, -1, 0, 0]], ys[[0, 0, -1, -1, 0]]
    sheet.axes.plot(*frame, color=sheet.pen.faint, linewidth=0.5, zorder=2)
    return shades


def _hatch(sheet: Sheet, masked: Bools, xs: Array, ys: Array) -> None:
    """Hatch the masked cells, each run of them in a row as one shape."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    paths = []
    for row, top, bottom in zip(masked, ys, ys[1:], strict=False):
        ends = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]])))
        for left, right in xs[ends].reshape(-1, 2).tolist():
            corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
            paths.append(Path(corners, closed=True))
    if paths:
        shape, ink = Path.make_compound_path(*paths), sheet.pen.faint
        hatched = PathPatch(shape, facecolor="none", edgecolor=ink, hatch="////", linewidth=0, zorder=1.5)
        sheet.axes.add_patch(hatched)


def draw_numbers(
    sheet: Sheet,
    matrix: Matrix,
    shades: Ints,
    box: Box,
    is_diverging: bool = False,
    words: Sequence[Sequence[str]] = (),
) -> None:
    """Write numbers with as many digits as fit, or words, into the cells; none where they could not be read."""
    rows, columns = matrix.values.shape
    if rows * columns > MOST_NUMBERS:
        return
    wide, high = box.width / columns, box.height / rows
    colors = ramps.ramp(sheet.pen.palette, matrix.is_difference or is_diverging)
    # A percent would need its sign.
    forms = [one.format for one in numbers.rungs(matrix) if one.format is not None and one.format.factor == 1]
    for texts in [words] if words else ([form.row(row) for row in matrix.values.tolist()] for form in forms):
        written = (text for row in texts for text in row if words or not text.endswith("nan"))
        widest = sheet.pen.widest(written, 1.0)
        largest = max(LARGEST_NUMBER, min(high, wide) * INCH / 4)
        size = min(largest, high * INCH * 0.6, wide * 0.8 / widest if widest else largest)
        if size < (LEAST_WORD if words else LEAST_NUMBER):
            continue
        for i, j in np.argwhere(shades >= 0).tolist():
            color = on_paper(ramps.text_on(colors[shades[i, j]]))
            x, y = box.x + (j + 0.5) * wide, box.y + (i + 0.5) * high
            sheet.text(x, y, texts[i][j], size, "center", color=color)
        return


class Key(NamedTuple):
    """What stands beside a shaded matrix: its name, the numbers along the bar, and what is said below."""

    name: str
    said: Legend
    is_difference: bool = False

    @property
    def _ticks(self) -> tuple[str, ...]:
        low, high = self.said.low, self.said.high
        return (low, self.said.middle, high) if low != high else (low,) if low else ()

    @property
    def _below(self) -> list[str]:
        return self.said.more.split(": ") if self.said.more else []

    def width(self, pen: Pen) -> float:
        """Return the inches that it takes."""
        beside = pen.widest([*self._ticks, *["masked"] * self.said.has_masked, *self._below], SMALL)
        return max(pen.width(self.name, SMALL), BAR + GAP + beside)

    def height(self) -> float:
        """Return the inches that it takes at least."""
        return LEAST_BAR + (1 + len(self._below) + self.said.has_masked) * ROW + 2 * GAP

    def draw(self, sheet: Sheet, x: float, y: float, height: float) -> None:
        """Draw the bar of shades, its numbers, and a patch of what is masked, below each other."""
        sheet.text(x, y + ROW / 2, self.name, SMALL)
        top = y + ROW + GAP
        long = max(SHORTEST_BAR, height - self.height() + LEAST_BAR)
        if self._ticks:
            shades = np.linspace(1.0, 0.0, ramps.SHADES)[:, None]
            draw_cells(sheet, shades, WHOLE, Box(x, top, BAR, long), self.is_difference, most=0)
        for n, text in enumerate(self._ticks):  # at equal distances, from the least to the largest
            share = 0.5 if len(self._ticks) == 1 else n / (len(self._ticks) - 1)
            sheet.text(x + BAR + GAP, top + long * (1 - share), text, SMALL)
        below = top + long + GAP
        for text in self._below:
            sheet.text(x, below + ROW / 2, text, SMALL, color=sheet.pen.faint)
            below += ROW
        if self.said.has_masked:
            draw_cells(sheet, np.array([[np.nan]]), WHOLE, Box(x, below + 0.02, BAR, ROW - 0.02))
            sheet.text(x + BAR + GAP, below + ROW / 2, "masked", SMALL)
