"""A matrix in a pane: the part around one cell that fits, that cell marked, and which cell stands at a place."""

from __future__ import annotations

from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Matrix
from attn_cli.render.screen.grid import Grid
from attn_cli.render.screen.text import cells
from attn_cli.render.shade_scale import shade_range
from attn_cli.render.width_ladder import rungs

MARKED = Style(reverse=True)
COARSEST = 3  # rungs with numbers: a part of a matrix is drawn with these
LONGEST_HEAD = 5  # lines of column labels


class MatrixPart(NamedTuple):
    """The lines of a part of a matrix, its heads first, and the rows and columns that it shows."""

    lines: list[Line]
    rows: range
    columns: range
    legend: list[Line]
    tall: int = 1  # lines of a row

    @property
    def top(self) -> int:
        """The line of the first row."""
        return len(self.lines) - self.tall * len(self.rows)

    def cell_at(self, line: int, x: int) -> tuple[int, int] | None:
        """Return the row and the column of the cell at a line and a place in it; None where there is none."""
        if not self.top <= line < len(self.lines):
            return None
        at = 0
        for n, segment in enumerate(self.lines[line][: len(self.columns) + 1]):
            at += cells(segment.text)
            if x < at:
                return (self.rows[(line - self.top) // self.tall], self.columns[n - 1]) if n else None
        return None


def matrix_part(
    block: Matrix, terminal: Terminal, palette: str | None, chosen: tuple[int, int] | None, height: int
) -> MatrixPart:
    """Return as much of a matrix around the chosen cell as fits the terminal's width and that many lines.

    Shades are those of the whole matrix.
    """
    row, column = chosen or (0, 0)
    block = block._replace(scale=shade_range(block), sums=())
    columns = range(block.values.shape[1])
    grid, body = _drawn(block, palette, terminal)
    if not grid.fits(terminal):
        columns, grid, body = _narrowed(block, palette, terminal, column)
    heads = len(body) - len(block.rows)
    rows = _window(len(block.rows), max(1, height - heads), row)
    lines = body[:heads] + body[heads + rows.start : heads + rows.stop]
    part = MatrixPart(lines, rows, columns, list(grid.legend(terminal)))
    return part if chosen is None else part._replace(lines=_marked(part, row, column))


def _drawn(block: Matrix, palette: str | None, terminal: Terminal) -> tuple[Grid, list[Line]]:
    grid = Grid(block, palette)
    return grid, list(grid.body(terminal))


def _narrowed(
    block: Matrix, palette: str | None, terminal: Terminal, column: int
) -> tuple[range, Grid, list[Line]]:
    """Return the columns around one that stand on one page with as many digits as fit, and how they are drawn."""
    numbered = [way for way in rungs(block) if way.format is not None][:COARSEST]
    narrow = block._replace(row_numbers=None)
    n = block.values.shape[1]
    across = n - 1
    while True:
        columns = _window(n, across, column)
        few = narrow._replace(
            columns=block.columns[columns.start : columns.stop],
            values=block.values[:, columns.start : columns.stop],
        )
        grid = Grid(few, palette, (numbered[min(1, len(numbered) - 1)],))
        if across == 1 or grid.fits(terminal):
            return columns, grid, list(grid.body(terminal))
        across = max(1, min(across - 1, _pages_width(grid, terminal)))


def _pages_width(grid: Grid, terminal: Terminal) -> int:
    """Return how many columns stand on the first page."""
    first = list(grid.body(terminal))
    return max(len(line) for line in first[: len(grid.block.rows)]) - 1


def _window(n: int, most: int, around: int) -> range:
    """Return at most so many places of n, around one of them."""
    start = max(0, min(around - most // 2, n - most))
    return range(start, min(n, start + most))


def _marked(part: MatrixPart, row: int, column: int) -> list[Line]:
    """Return the lines with the chosen cell and the label of its row reversed."""
    lines = list(part.lines)
    if row in part.rows and column in part.columns:
        at = part.top + row - part.rows.start
        line = list(lines[at])
        for place in (0, 1 + column - part.columns.start):
            segment = line[place]
            style = segment.style + MARKED if segment.style else MARKED
            line[place] = Segment(segment.text, style)
        lines[at] = line
    return lines
