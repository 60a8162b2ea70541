"""Shaded cells, hatched where they are masked, the bar that says what the shades mean; and small maps of all heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_cli.errors import count, refuse
from attn_cli.io.types import Array, Bools, Ints, NamedTuple
from attn_cli.pipeline.every_head import EveryHead
from attn_cli.render import Maps, Matrix, ShadeRange, numbers, ramps
from attn_cli.render.figures.pen import EDGE, GAP, INCH, LEAST_FONT, ROW, SMALL, Pen, font_of, on_paper
from attn_cli.render.figures.sheet import Box, Drawing, Frame, Plan, Sheet, refuse_top
from attn_cli.render.views import overview, wording
from attn_cli.render.views.heads import KINDS, WORDS
from attn_cli.settings import NORM, View
from attn_cli.text.wordpieces import as_text
from attn_cli.trace import Trace

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
    shades = ramps.shading(values, scale)
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
    said: ramps.Legend
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


MOST_ACROSS = 6
LARGEST_MAP, LEAST_MAP, ACROSS = 2.0, 0.75, 13.0  # inches of a map; of all of them beside each other
WIDEST_CELL, BETWEEN, NARROWEST = 0.3, 0.16, 3.4
LEAST_FITTED = 0.25  # inches of a map in a given size


def heads(trace: Trace, view: View) -> Drawing:
    """Return every head's weights."""
    refuse_top(trace, "heads")
    what = "There are too many weights for a figure of all heads."
    refuse(trace.condensed, what, "Give fewer tokens.", "--figure")
    all_heads, hint = len(trace.head_names), 'Compute all of them: --head all, or Settings(head="all").'
    refuse(len(trace.heads) < all_heads, f"One head of {all_heads} was computed.", hint, "--head")
    names = [f"head {head.name}" if head.name.isdigit() else head.name for head in trace.heads]
    values = [trace.visible_weights(head) for head in trace.heads]
    most = [float(np.nan_to_num(one).max()) for one in values]
    largest = max(overview.largest_weight(trace, trace.listed), *most)
    scale = ramps.FULL if view.shades == "full" else ShadeRange(0.0, largest)
    queries = [trace.query_tokens[i] for i in trace.listed]
    layers = list(dict.fromkeys(head.layer for head in trace.heads)) if trace.has_layers else []
    is_norms, of = trace.drawn == NORM, (names, queries, trace.key_tokens, values, scale, list(trace.listed))
    maps = Maps(*of, is_weights=not is_norms, is_norms=is_norms)
    each = count(len(names), "head", "heads")
    across = min(MOST_ACROSS, math.ceil(math.sqrt(len(names) * 1.5)))
    if layers:
        sizes = set(Counter(head.layer for head in trace.heads).values())
        what = f"The layers have {min(sizes)} and {max(sizes)} heads: they do not fit on one map."
        refuse(len(sizes) > 1, what, "Draw one of them: --layer 0.", "--layer")
        maps, across = maps._replace(bands=[f"layer {layer}" for layer in layers]), len(names) // len(layers)
        each = f"{count(across, 'head', 'heads')} in each of {count(len(layers), 'layer', 'layers')}"
    return _multiples(f"{wording.kind_of(trace)}, {each}", maps, across, trace.drawn)


def every_head(found: EveryHead, view: View) -> Drawing:
    """Return all layers and heads, a line for each layer, each named by what it does."""
    heads, values = len(found.layers[0].heads), [one for layer in found.layers for one in layer.maps]
    named = [one for layer in found.layers for one in zip(layer.heads, layer.roles, strict=True)]
    names = [f"{head} {WORDS[role.name][0]}" for head, role in named]
    rows, columns = values[0].shape
    queries, keys = as_text(found.source.query_tokens), as_text(found.source.key_tokens)
    has_tokens = (rows, columns) == (len(queries), len(keys))
    queries, keys = (queries, keys) if has_tokens else ((), ())
    most = max(float(np.nan_to_num(one).max(initial=0.0)) for one in values)
    scale = ramps.FULL if view.shades == "full" else ShadeRange(0.0, most)
    bands = [f"layer {layer.number}" for layer in found.layers]
    maps = Maps(names, queries, keys, values, scale, list(range(rows)), is_weights=has_tokens, bands=bands)
    layers = count(len(found.layers), "layer", "layers")
    title = f"{KINDS[found.source.kind]}: {layers}, {count(heads, 'head', 'heads')} each"
    return _multiples(title, maps, heads, "weight" if has_tokens else "mean weight")


def _multiples(title: str, maps: Maps, across: int, measure: str) -> Drawing:
    """Return small maps, so many across, each line of them with a band's name at its left or none."""
    rows, columns = maps.values[0].shape
    most, key = max(rows, columns), Key(measure, ramps.legend(maps))
    cell = min(WIDEST_CELL, min(LARGEST_MAP, max(LEAST_MAP, ACROSS / across)) / most)
    cells, least = (across * columns, math.ceil(len(maps.names) / across) * rows), LEAST_FITTED / most

    def plan(frame: Frame) -> Plan:
        return frame.fitted(partial(_placed, maps, across, frame, key), cell, cells, least, least)

    return Drawing(title, [*maps.rows, *maps.columns], plan)


def _placed(maps: Maps, across: int, frame: Frame, key: Key, cell: float) -> Plan:
    """Return where everything stands with cells of so many inches; a given size may cut the bar of shades short."""
    pen, (rows, columns) = frame.pen, maps.values[0].shape
    wide, high = columns * cell, rows * cell
    beside = below = None
    if maps.rows and font_of(cell) >= LEAST_FONT:
        beside, below = (pen.rows(tokens, cell) for tokens in (maps.rows, maps.columns))
    left = EDGE + (beside.extent if beside else 0.0)
    left += max((pen.width(band, SMALL, "bold") + 2 * GAP for band in maps.bands), default=0.0)
    right = left + across * (wide + BETWEEN) + GAP
    width = max(right + key.width(pen) + EDGE, 0.0 if frame.size else NARROWEST)
    top, foot = frame.top(width), below.extent if below else 0.0
    height = top + math.ceil(len(maps.names) / across) * (ROW + high + BETWEEN) - BETWEEN + foot + EDGE
    least = 0.0 if frame.size else top + ROW + key.height() + EDGE

    def draw(sheet: Sheet) -> None:
        spare = max(0.0, sheet.width - width) / 2
        for n in range(len(maps.names)):
            line, place = divmod(n, across)
            x, y = spare + left + place * (wide + BETWEEN), top + line * (ROW + high + BETWEEN) + ROW
            draw_cells(sheet, maps.values[n], maps.scale, Box(x, y, wide, high))
            sheet.text(x, y - ROW / 2, _cut(pen, maps.names[n], wide), SMALL)
            if beside is not None and place == 0:
                sheet.rows(beside, x - GAP, y)
            if below is not None and n + across >= len(maps.names):
                for j in below.places():
                    at = x + (j + 0.5) * below.pitch
                    sheet.text(at, y + high + GAP, below.texts[j], below.font, "right", turned=90)
            if place == 0 and maps.bands:
                sheet.text(spare + EDGE, y + high / 2, maps.bands[line], SMALL, weight="bold")
        room = sheet.height - EDGE - (top + ROW)
        key.draw(sheet, spare + right, top + ROW, max(high, min(key.height(), room)))

    return Plan(width, max(height, least), draw)


def _cut(pen: Pen, name: str, width: float) -> str:
    name, most = pen.drawable(name), width + BETWEEN / 2
    if pen.width(name, SMALL) <= most:
        return name
    cuts = [f"{name[:n]}…" for n in range(len(name), 0, -1)]
    return next((cut for cut in cuts if pen.width(cut, SMALL) <= most), cuts[-1])
