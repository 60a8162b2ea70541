"""Several matrices next to each other: with their numbers, or as small maps of shades; one scale, one legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest

import numpy as np
from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render import Beside, Maps
from attn_cli.render.numbers import NUMBERED, bars, rungs
from attn_cli.render.ramps import BOLD, SHADES, all_values, legend, shading, sharing_scale, styles_on
from attn_cli.render.screen import text as texts
from attn_cli.render.screen.grid import Grid, shade_line, shade_patch
from attn_cli.settings import View

APART = 3  # cells between two
FINE = 2  # rungs with digits that are worth reading beside each other; coarser ones go below each other
LABEL, SHORT, LONGEST, WIDTH = 10, 5, 16, 100  # of maps
NUMBERED_EVERY = (5, 10, 20)  # columns between two numbers above a map of blocks
CLOSE = 1  # cells between two thumbnails
UPPER, LOWER, UNSEEN = "▀", "▄", "·"  # halves of a cell; where both are masked

Shades = list[list[int]]  # of a map, by row and column
Painted = Callable[[Shades, int], Iterable[Segment]]  # a line of it


def draw_several(block: Beside | Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield matrices with their numbers, thumbnails in bands, or maps."""
    if isinstance(block, Beside):
        return _beside(block, view, terminal)
    return (_thumbnails if block.bands else _maps)(block, view, terminal)


def _beside(block: Beside, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the matrices side by side where all fit with two digits or more, else below each other; all alike."""
    parts = [part.fixed(view.precision) for part in sharing_scale(block.parts)]
    ways = rungs(parts[0]._replace(values=all_values(parts)))
    room = terminal
    if terminal.width is not None:
        room = terminal._replace(width=(terminal.width - APART * (len(parts) - 1)) // len(parts))
    near = [(room, True, way) for way in ways[:FINE] if room.width is None or room.width > 1]
    below = [(terminal, named, way) for named in (True, False) for way in ways]
    for where, named, way in [*near, *below]:
        grids = [Grid(part, where, view.palette, (way,)) for part in parts]
        if all(grid.fits(named) for grid in grids):
            break
    if where is room:
        yield from _abreast(block.titles, grids)
    else:
        for title, grid in zip(block.titles, grids, strict=True):
            yield from ([], *texts.wrapped(terminal.text(title), terminal.width, style=BOLD), *grid.body())
    # The legend of one with masked cells, if there is one, holds for all.
    yield from next((grid for grid in grids if np.isnan(grid.block.values).any()), grids[0]).legend(terminal)


def _abreast(titles: Sequence[str], grids: Sequence[Grid]) -> Iterator[Line]:
    pairs = []
    for title, grid in zip(titles, grids, strict=True):
        body, room = list(grid.body()), grid.terminal.width
        width = max([room, *map(texts.line_width, body)]) if room else None
        pairs.append((texts.wrapped(grid.terminal.text(title), width, style=BOLD), body))
    height, empty = max(len(head) for head, _ in pairs), list[Segment]()
    columns = [[empty] * (height - len(head)) + head + body for head, body in pairs]
    widths = [max(map(texts.line_width, column)) for column in columns]
    yield []
    for lines in zip_longest(*columns, fillvalue=empty):
        joined: Line = []
        for line, width in zip(lines, widths, strict=True):
            joined += [*line, Segment(" " * (width - texts.line_width(line) + APART))]
        yield joined[:-1]


def _maps(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield lines of maps with the widest cells and labels that fit; where none do, a matrix for each head."""
    width, n = terminal.width or WIDTH, len(block.columns)
    digits = len(str(max([*block.row_numbers, n - 1])))
    ways = ((2, LABEL), (1, LABEL), (1, SHORT))
    for cell, most in ways if block.column_numbers is None else ways[1:]:
        names = texts.labels(block.rows, terminal, most)
        rows = [f"{i:>{digits}} {name}".rstrip() for i, name in zip(block.row_numbers, names, strict=True)]
        edge = max(map(texts.cells, rows))
        if edge + APART + cell * n <= width:
            break
    else:
        for name, matrix in block.matrices():
            yield []
            if name:
                yield from texts.wrapped(terminal.text(f"Head {name}"), terminal.width, style=BOLD)
            yield from Grid(matrix, terminal, view.palette).lines()
        return
    longest = max(texts.cells(terminal.text(name)) for name in block.names)
    # All cells, or a name where there is room.
    wide = max(cell * n, min(longest, width - edge - APART, LONGEST))
    across = max(1, (width - edge) // (wide + APART))
    numbers, spare = f"{' ' * APART}{_numbers(block, cell):{wide}}", wide - cell * n
    styles = styles_on(terminal, view.palette, is_ink=not terminal.is_picture)
    heads = [Segment(texts.padded(label, edge), BOLD) for label in rows]
    for start in range(0, len(block.names), across):
        span = range(start, min(start + across, len(block.names)))
        yield []
        if any(block.names):
            yield _names(block, span, " " * (edge + APART), wide, APART, terminal)
        yield [Segment((" " * edge + numbers * len(span)).rstrip())]
        yield from _rows(block, span, heads, (APART, APART + spare), _cells(cell, styles, terminal))
    if block.column_numbers is None:
        named = ", ".join(f"{j} {key}" for j, key in enumerate(texts.labels(block.columns, terminal, LABEL)))
        is_square = list(block.rows) == list(block.columns)
        yield from texts.wrapped(NUMBERED if is_square else f"columns: {named}", terminal.width)
    yield from shade_line(legend(block), bars(terminal), styles, terminal)


def _numbers(block: Maps, cell: int) -> str:
    """Return the line above a map: each column's number, or the numbers of as many blocks as there is room for."""
    if block.column_numbers is None:
        return "".join(str(j % 10).rjust(cell) for j in range(len(block.columns)))
    wide, line = len(str(block.column_numbers[-1])), ""
    apart = next((n for n in NUMBERED_EVERY if n >= wide + 2), wide + 2)
    for j in range(0, len(block.column_numbers) - wide + 1, apart):
        line = f"{line:{j}}{block.column_numbers[j]}"
    return line


def _thumbnails(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the maps of each band on as few lines as fit it; in colour two rows share a line, as halves of cells."""
    is_halved = terminal.has_halves
    styles = styles_on(terminal, view.palette, is_ink=not (terminal.is_picture or is_halved))
    edge = max(map(texts.cells, block.bands)) + 1 if any(block.bands) else 0
    width = terminal.width or texts.UNLIMITED
    n, each = len(block.columns), len(block.names) // len(block.bands)
    wide = max([n, *(texts.cells(terminal.text(name)) for name in block.names)])
    wide = max(n, min(wide, width - edge))
    across = max(1, (width - edge + CLOSE) // (wide + CLOSE))
    across = -(-each // -(-each // across))  # no line is nearly empty
    painted = _halves(styles) if is_halved else _cells(1, styles, terminal)
    heads = [Segment(" " * edge)] * (-(-len(block.rows) // 2) if is_halved else len(block.rows))
    for band, title in enumerate(block.bands):
        start, stop = band * each, (band + 1) * each
        for first in range(start, stop, across):
            span = range(first, min(first + across, stop))
            yield []
            label = texts.padded(title if first == start else "", edge)
            yield _names(block, span, label, wide, CLOSE, terminal)
            yield from _rows(block, span, heads, (0, wide - n + CLOSE), painted)
    patches = [shade_patch(style) for style in styles] if is_halved else styles
    yield from shade_line(legend(block), bars(terminal), patches, terminal, UNSEEN * is_halved)


def _names(block: Maps, span: range, before: str, wide: int, gap: int, terminal: Terminal) -> Line:
    names = [texts.padded(texts.cut(terminal.text(block.names[m]), wide), wide) for m in span]
    return [Segment((before + (" " * gap).join(names)).rstrip(), BOLD)]


def _rows(
    block: Maps, span: range, heads: Sequence[Segment], gaps: tuple[int, int], painted: Painted
) -> Iterator[Line]:
    """Yield the rows of some maps beside each other: their heads, a gap before the first map and before the others."""
    shades = [shading(block.values[m], block.scale).tolist() for m in span]
    for i, head in enumerate(heads):
        line = [head]
        for m, rows in enumerate(shades):
            line += [Segment(" " * gaps[m > 0]), *painted(rows, i)]
        yield line


def _cells(cell: int, styles: Sequence[Style | None], terminal: Terminal) -> Painted:
    """Return how a row of shades is drawn: a character of the ramp, `cell` times, in its style."""
    ramp = bars(terminal)
    made = [Segment(ramp[place * len(ramp) // SHADES] * cell, styles[place]) for place in range(SHADES)]
    made.append(Segment(texts.masked_mark(terminal).rjust(cell)))  # the last, -1, is a masked cell's
    return lambda rows, i: map(made.__getitem__, rows[i])


def _halves(styles: Sequence[Style | None]) -> Painted:
    """Return how two rows of shades are drawn on a line: the upper as ink, the lower as background."""
    colors = [*(style.bgcolor if style else None for style in styles), None]  # the last is a masked cell's

    @cache
    def pair(upper: int, lower: int) -> Segment:
        if upper < 0 and lower < 0:
            return Segment(UNSEEN, texts.LOOKS["dim"])
        ink, back = (lower, upper) if upper < 0 else (upper, lower)
        return Segment(LOWER if upper < 0 else UPPER, Style(color=colors[ink], bgcolor=colors[back]))

    def painted(rows: Shades, i: int) -> Iterable[Segment]:
        upper, *below = rows[2 * i : 2 * i + 2]
        return map(pair, upper, *(below or [[-1] * len(upper)]))

    return painted
