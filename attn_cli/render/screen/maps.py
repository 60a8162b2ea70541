"""Small multiples: the weights of several heads as small maps of shades, as many beside each other as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Maps, Matrix
from attn_cli.render.palette import BOLD, SHADES, styles_on
from attn_cli.render.screen.grid import Grid, shade_line
from attn_cli.render.screen.text import cells, cut, labels, masked_mark, padded, wrapped
from attn_cli.render.width_ladder import NUMBERED, bars, map_scale, shading
from attn_cli.settings.output import View

if TYPE_CHECKING:
    from rich.style import Style

LABEL, SHORT, LONGEST, GAP, WIDTH = 10, 5, 16, 3, 100
APART = (5, 10, 20)  # columns between two numbers above a map of blocks


def draw_maps(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield bands of maps, each with its head's name above it and the queries at its left.

    Where even cells one column wide do not fit, each head is drawn as a matrix of its own.
    """
    layout = _layout(block, terminal)
    if layout is None:
        yield from _matrices(block, view, terminal)
        return
    across = max(1, (layout.width - layout.edge) // (layout.wide + GAP))
    styles = styles_on(terminal, view.palette)
    for start in range(0, len(block.names), across):
        yield []
        yield from _band(block, range(start, min(start + across, len(block.names))), layout, styles, terminal)
    yield from _legend(block, styles, terminal)


class _Layout(NamedTuple):
    width: int
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
        names = labels(block.rows, terminal, most)
        rows = [f"{i:>{digits}} {name}".rstrip() for i, name in zip(block.row_numbers, names, strict=True)]
        edge = max(map(cells, rows))
        if edge + GAP + cell * n <= width:
            name = max(cells(terminal.text(name)) for name in block.names)
            return _Layout(width, rows, edge, cell, max(cell * n, min(name, width - edge - GAP, LONGEST)))
    return None


def _band(
    block: Maps, span: range, layout: _Layout, styles: Sequence[Style | None], terminal: Terminal
) -> Iterator[Line]:
    """Yield the maps of one band, side by side."""
    ramp, masked = bars(terminal), masked_mark(terminal)
    cell, wide, spare = layout.cell, layout.wide, layout.wide - layout.cell * len(block.columns)
    names = [padded(cut(terminal.text(block.names[m]), wide), wide) for m in span]
    margin = " " * layout.edge
    if any(block.names):
        yield [Segment((margin + "".join(f"{'':{GAP}}{name}" for name in names)).rstrip(), BOLD)]
    numbers = _numbers(block, cell)
    yield [Segment(margin + "".join(" " * GAP + numbers + " " * spare for _ in span).rstrip())]
    shade = [shading(block.values[m], block.least, block.largest).tolist() for m in span]
    for i, label in enumerate(layout.rows):
        line = [Segment(padded(label, layout.edge), BOLD)]
        for m, places in enumerate(shade):
            line.append(Segment(" " * (GAP + (spare if m else 0))))
            for place in places[i]:
                if place < 0:
                    line.append(Segment(masked.rjust(cell)))
                else:
                    line.append(Segment(ramp[place * len(ramp) // SHADES] * cell, styles[place]))
        yield line


def _numbers(block: Maps, cell: int) -> str:
    """Return the line above a map: each column's number, or the numbers of as many blocks as there is room for."""
    if block.column_numbers is None:
        return "".join(str(j % 10).rjust(cell) for j in range(len(block.columns)))
    wide = len(str(block.column_numbers[-1]))
    apart = next((n for n in APART if n >= wide + 2), wide + 2)
    line = ""
    for j in range(0, len(block.column_numbers), apart):
        if j + wide <= len(block.column_numbers):
            line = f"{line:{j}}{block.column_numbers[j]}"
    return f"{line:{len(block.column_numbers)}}"


def _legend(block: Maps, styles: Sequence[Style | None], terminal: Terminal) -> Iterator[Line]:
    if block.column_numbers is None:
        named = [f"{j} {name}" for j, name in enumerate(labels(block.columns, terminal, LABEL))]
        is_square = list(block.rows) == list(block.columns)
        text = NUMBERED if is_square else f"columns: {', '.join(named)}"
        yield from wrapped(text, terminal.width)
    yield from shade_line(map_scale(block), bars(terminal), styles, terminal)


def _matrices(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    for name, values in zip(block.names, block.values, strict=True):
        yield []
        if name:
            yield from wrapped(terminal.text(f"Head {name}"), terminal.width, style=BOLD)
        matrix = Matrix(
            block.rows,
            block.columns,
            values,
            "query\\key",
            is_weights=True,
            shaded=True,
            row_numbers=block.row_numbers,
        )
        yield from Grid(matrix, view.palette).lines(terminal)
