"""Matrices next to each other: the same rows and columns, one scale of shades, one legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.segment import Segment

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Beside
from attn_cli.render.palette import BOLD
from attn_cli.render.screen.grid import Grid
from attn_cli.render.screen.text import cells, wrapped
from attn_cli.render.width_ladder import rungs, sharing_scale
from attn_cli.settings.output import View

GAP = 3
FINE = 2  # rungs with digits that are worth reading beside each other; coarser ones go below each other


def draw_beside(block: Beside, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the matrices side by side where all fit with two digits or more, else one below the other.

    All are written alike, with as many digits as the one that needs most room allows.
    """
    parts = [part.fixed(view.precision) for part in sharing_scale(block.parts)]
    ways = rungs(parts[0]._replace(values=np.concatenate([part.values for part in parts])))
    grids = [Grid(part, view.palette, ways) for part in parts]
    room = terminal
    if terminal.width is not None:
        room = terminal._replace(width=(terminal.width - GAP * (len(grids) - 1)) // len(grids))
    for rung in ways[:FINE]:
        tried = [grid._replace(ways=(rung,)) for grid in grids]
        if (room.width is None or room.width > 1) and all(grid.fits(room) for grid in tried):
            yield from _abreast(block.titles, tried, room, terminal)
            yield from _legend_grid(tried).legend(terminal, room)
            return
    together = next(
        (w for w in ways if all(grid._replace(ways=(w,)).fits(terminal) for grid in grids)), ways[-1]
    )
    for title, grid in zip(block.titles, grids, strict=True):
        yield []
        yield from wrapped(terminal.text(title), terminal.width, style=BOLD)
        yield from grid._replace(ways=(together,)).body(terminal)
    yield from _legend_grid(grids)._replace(ways=(together,)).legend(terminal)


def _legend_grid(grids: Sequence[Grid]) -> Grid:
    """Return the grid whose legend holds for all: one with masked cells, if there is one."""
    return next((grid for grid in grids if np.isnan(grid.block.values).any()), grids[0])


def _abreast(
    titles: Sequence[str], grids: Sequence[Grid], room: Terminal, terminal: Terminal
) -> Iterator[Line]:
    """Yield the lines of all grids joined, each under its title."""
    bodies = [list(grid.body(room)) for grid in grids]
    widths = [max(_width(line) for line in body) for body in bodies]
    heads = [
        wrapped(terminal.text(title), max(width, room.width or 0) if room.width else None, style=BOLD)
        for title, width in zip(titles, widths, strict=True)
    ]
    widths = [max([width, *map(_width, head)]) for width, head in zip(widths, heads, strict=True)]
    height = max(map(len, heads))
    empty: Line = []
    columns = [[empty] * (height - len(head)) + head + body for head, body in zip(heads, bodies, strict=True)]
    yield []
    for lines in zip(*columns, strict=True):
        joined: Line = []
        for line, width in zip(lines, widths, strict=True):
            joined += [*line, Segment(" " * (width - _width(line) + GAP))]
        yield joined[:-1]


def _width(line: Line) -> int:
    return sum(cells(segment.text) for segment in line)
