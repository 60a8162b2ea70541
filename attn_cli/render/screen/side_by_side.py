"""Several matrices next to each other: with their numbers, or as small maps of shades; one scale, one legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Beside, Maps
from attn_cli.render.numbers import NUMBERED, Rung, bars, rungs
from attn_cli.render.palette import BOLD, SHADES, styles_on
from attn_cli.render.screen import text as texts
from attn_cli.render.screen.grid import Grid, shade_line, shade_patch
from attn_cli.render.shade_scale import all_values, legend, shading, sharing_scale
from attn_cli.settings.output import View

APART = 3  # cells between two
FINE = 2  # rungs with digits that are worth reading beside each other; coarser ones go below each other
LABEL, SHORT, LONGEST, WIDTH = 10, 5, 16, 100  # of maps
NUMBERED_EVERY = (5, 10, 20)  # columns between two numbers above a map of blocks
CLOSE = 1  # cells between two thumbnails
UPPER, LOWER, UNSEEN = "▀", "▄", "·"  # halves of a cell; where both are masked


def draw_several(block: Beside | Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield matrices with their numbers, thumbnails in bands, or maps."""
    if isinstance(block, Beside):
        return draw_beside(block, view, terminal)
    return (draw_thumbnails if block.bands else draw_maps)(block, view, terminal)


def draw_beside(block: Beside, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the matrices side by side where all fit with two digits or more, else one below the other.

    All are written alike, with as many digits as the one that needs most room allows.
    """
    parts = [part.fixed(view.precision) for part in sharing_scale(block.parts)]
    ways = rungs(parts[0]._replace(values=all_values(parts)))

    def written(way: Rung) -> list[Grid]:
        return [Grid(part, view.palette, (way,)) for part in parts]

    room = terminal
    if terminal.width is not None:
        room = terminal._replace(width=(terminal.width - APART * (len(parts) - 1)) // len(parts))
    for way in ways[:FINE]:
        grids = written(way)
        if (room.width is None or room.width > 1) and all(grid.fits(room, named=True) for grid in grids):
            yield from _abreast(block.titles, grids, room, terminal)
            yield from _legend_grid(grids).legend(terminal, room)
            return
    tried = ((named, written(way)) for named in (True, False) for way in ways)
    fitting = (grids for named, grids in tried if all(grid.fits(terminal, named) for grid in grids))
    grids = next(fitting, written(ways[-1]))
    for title, grid in zip(block.titles, grids, strict=True):
        yield []
        yield from texts.wrapped(terminal.text(title), terminal.width, style=BOLD)
        yield from grid.body(terminal)
    yield from _legend_grid(grids).legend(terminal)


def _legend_grid(grids: Sequence[Grid]) -> Grid:
    """Return the grid whose legend holds for all: one with masked cells, if there is one."""
    return next((grid for grid in grids if np.isnan(grid.block.values).any()), grids[0])


def _abreast(
    titles: Sequence[str], grids: Sequence[Grid], room: Terminal, terminal: Terminal
) -> Iterator[Line]:
    """Yield the lines of all grids joined, each under its title."""
    bodies = [list(grid.body(room)) for grid in grids]
    heads = []
    for title, body in zip(titles, bodies, strict=True):
        width = max([room.width, *map(texts.line_width, body)]) if room.width else None
        heads.append(texts.wrapped(terminal.text(title), width, style=BOLD))
    widths = [max(map(texts.line_width, [*head, *body])) for head, body in zip(heads, bodies, strict=True)]
    height = max(map(len, heads))
    empty: Line = []
    columns = [[empty] * (height - len(head)) + head + body for head, body in zip(heads, bodies, strict=True)]
    yield []
    for lines in zip_longest(*columns, fillvalue=empty):
        joined: Line = []
        for line, width in zip(lines, widths, strict=True):
            joined += [*line, Segment(" " * (width - texts.line_width(line) + APART))]
        yield joined[:-1]


def draw_maps(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield bands of maps, each with its head's name above it and the queries at its left.

    Where even cells one column wide do not fit, each head is drawn as a matrix of its own.
    """
    layout = _layout(block, terminal)
    if layout is None:
        for name, matrix in block.matrices():
            yield []
            if name:
                yield from texts.wrapped(terminal.text(f"Head {name}"), terminal.width, style=BOLD)
            yield from Grid(matrix, view.palette).lines(terminal)
        return
    margin, spare = " " * layout.edge, layout.wide - layout.cell * len(block.columns)
    across = max(1, ((terminal.width or WIDTH) - layout.edge) // (layout.wide + APART))
    heads = [Segment(texts.padded(label, layout.edge), BOLD) for label in layout.rows]
    numbers = " " * APART + _numbers(block, layout.cell) + " " * spare
    styles = styles_on(terminal, view.palette, is_ink=not terminal.is_picture)
    for start in range(0, len(block.names), across):
        span = range(start, min(start + across, len(block.names)))
        yield []
        if any(block.names):
            named = " " * APART + (" " * APART).join(_names(block, span, layout.wide, terminal))
            yield [Segment((margin + named).rstrip(), BOLD)]
        yield [Segment((margin + numbers * len(span)).rstrip())]
        yield from _rows(block, span, heads, (APART, APART + spare), layout.cell, styles, terminal)
    if block.column_numbers is None:
        named = ", ".join(f"{j} {key}" for j, key in enumerate(texts.labels(block.columns, terminal, LABEL)))
        is_square = list(block.rows) == list(block.columns)
        yield from texts.wrapped(NUMBERED if is_square else f"columns: {named}", terminal.width)
    yield from shade_line(legend(block), bars(terminal), styles, terminal)


class _Layout(NamedTuple):
    rows: list[str]  # labels
    edge: int  # their width
    cell: int  # a cell's width
    wide: int  # a map's width: all cells, or its head's name where there is room


def _layout(block: Maps, terminal: Terminal) -> _Layout | None:
    """Return the widest cells and labels with which one map fits; None where none does."""
    width = terminal.width or WIDTH
    n = len(block.columns)
    digits = len(str(max([*block.row_numbers, n - 1])))
    ways = ((2, LABEL), (1, LABEL), (1, SHORT))
    for cell, most in ways if block.column_numbers is None else ways[1:]:
        names = texts.labels(block.rows, terminal, most)
        rows = [f"{i:>{digits}} {name}".rstrip() for i, name in zip(block.row_numbers, names, strict=True)]
        edge = max(map(texts.cells, rows))
        if edge + APART + cell * n <= width:
            name = max(texts.cells(terminal.text(name)) for name in block.names)
            return _Layout(rows, edge, cell, max(cell * n, min(name, width - edge - APART, LONGEST)))
    return None


def _numbers(block: Maps, cell: int) -> str:
    """Return the line above a map: each column's number, or the numbers of as many blocks as there is room for."""
    if block.column_numbers is None:
        return "".join(str(j % 10).rjust(cell) for j in range(len(block.columns)))
    wide = len(str(block.column_numbers[-1]))
    apart = next((n for n in NUMBERED_EVERY if n >= wide + 2), wide + 2)
    line = ""
    for j in range(0, len(block.column_numbers), apart):
        if j + wide <= len(block.column_numbers):
            line = f"{line:{j}}{block.column_numbers[j]}"
    return f"{line:{len(block.column_numbers)}}"


def draw_thumbnails(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the maps of each band on as few lines as fit it, of like length, and the legend of all.

    In colour two rows share a line, as the upper and lower halves of its cells.
    """
    is_halved = terminal.has_halves
    styles = styles_on(terminal, view.palette, is_ink=not (terminal.is_picture or is_halved))
    edge = max(map(texts.cells, block.bands)) + 1 if any(block.bands) else 0
    width = terminal.width or texts.UNLIMITED
    n, each = len(block.columns), len(block.names) // len(block.bands)
    wide = max([n, *(texts.cells(terminal.text(name)) for name in block.names)])
    wide = max(n, min(wide, width - edge))
    across = max(1, (width - edge + CLOSE) // (wide + CLOSE))
    across = -(-each // -(-each // across))  # no line is nearly empty
    for band, title in enumerate(block.bands):
        start, stop = band * each, (band + 1) * each
        for first in range(start, stop, across):
            span = range(first, min(first + across, stop))
            label = texts.padded(title if first == start else "", edge)
            yield []
            yield [Segment((label + (" " * CLOSE).join(_names(block, span, wide, terminal))).rstrip(), BOLD)]
            if is_halved:
                yield from _halved_rows(block, span, edge, wide - n + CLOSE, styles, terminal)
                continue
            heads = [Segment(" " * edge)] * len(block.rows)
            yield from _rows(block, span, heads, (0, wide - n + CLOSE), 1, styles, terminal)
    patches = [shade_patch(style) for style in styles] if is_halved else styles
    mark = UNSEEN if is_halved else texts.masked_mark(terminal)
    yield from shade_line(legend(block), bars(terminal), patches, terminal, mark)


def _halved_rows(
    block: Maps, span: range, edge: int, gap: int, styles: Sequence[Style | None], terminal: Terminal
) -> Iterator[Line]:
    """Yield the rows of some maps beside each other, two on a line: the upper as ink, the lower as background."""
    colors = [style.bgcolor if style else None for style in styles]
    made: dict[tuple[int, int], Segment] = {(-1, -1): Segment(UNSEEN, texts.LOOKS["dim"])}

    def pair(upper: int, lower: int) -> Segment:
        if (upper, lower) not in made:
            ink, back = (lower, -1) if upper < 0 else (upper, lower)
            style = Style(color=colors[ink], bgcolor=None if back < 0 else colors[back])
            made[upper, lower] = Segment(LOWER if upper < 0 else UPPER, style)
        return made[upper, lower]

    shade = [shading(block.values[m], block.scale).tolist() for m in span]
    for i in range(0, len(block.rows), 2):
        line = [Segment(" " * edge)]
        for m, rows in enumerate(shade):
            below = rows[i + 1] if i + 1 < len(rows) else [-1] * len(rows[i])
            line += [Segment(" " * gap)] * (m > 0) + list(map(pair, rows[i], below))
        yield line


def _names(block: Maps, span: range, wide: int, terminal: Terminal) -> list[str]:
    return [texts.padded(texts.cut(terminal.text(block.names[m]), wide), wide) for m in span]


def _rows(
    block: Maps,
    span: range,
    heads: Sequence[Segment],
    gaps: tuple[int, int],
    cell: int,
    styles: Sequence[Style | None],
    terminal: Terminal,
) -> Iterator[Line]:
    """Yield the rows of some maps beside each other: their heads, a gap before the first map and before the others."""
    ramp, masked = bars(terminal), texts.masked_mark(terminal).rjust(cell)
    shade = [shading(block.values[m], block.scale).tolist() for m in span]
    for i, head in enumerate(heads):
        line = [head]
        for m, places in enumerate(shade):
            line.append(Segment(" " * gaps[m > 0]))
            for place in places[i]:
                text = masked if place < 0 else ramp[place * len(ramp) // SHADES] * cell
                line.append(Segment(text, None if place < 0 else styles[place]))
        yield line
