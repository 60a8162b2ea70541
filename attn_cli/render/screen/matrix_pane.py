"""A matrix in a pane: the part around one cell that fits, that cell marked, and which cell stands at a place."""

from __future__ import annotations

from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render import Matrix, ramps, window
from attn_cli.render.numbers import PERCENT, bars, rungs, signed, weight
from attn_cli.render.screen.grid import LABEL, Grid
from attn_cli.render.screen.text import UNLIMITED, cells, labels, line_width, masked_mark, padded, padded_left

MARKED = Style(reverse=True, bold=True)  # in no shade, so that it stands out from all of them
NARROWEST = 4  # cells of a column with two digits
LEAST, MOST = 5, 16  # cells of a large block's width
TALLEST = 5
DECIMAL = 7  # cells from which a large block has two decimals


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

    Shades are those of the whole matrix. Columns that do not all fit are those around the cell, with two digits.
    """
    row, column = chosen or (0, 0)
    near = window(len(block.rows), max(1, height), row)  # no more rows than these can be seen
    numbers = None if block.row_numbers is None else block.row_numbers[near]
    block = block._replace(scale=ramps.shade_range(block), sums=(), row_numbers=numbers)
    block = block._replace(rows=block.rows[near], values=block.values[near])
    n, width = block.values.shape[1], terminal.width or UNLIMITED
    some, grid = slice(0, n), Grid(block, terminal, palette) if n < width else None
    if grid is None or not grid.fits():
        *_, way = [way for way in rungs(block) if way.format is not None][:2]
        across = min(n - 1, width // NARROWEST) or 1
        while True:
            some = window(n, across, column)
            few = block._replace(columns=block.columns[some], values=block.values[:, some], row_numbers=None)
            grid = Grid(few, terminal, palette, (way,))
            if grid.fits() or across == 1:
                break
            first, *_ = grid.pages
            across = max(1, min(across - 1, first.stop))
    body, legend = list(grid.body()), list(grid.legend(terminal))
    heads = len(body) - len(block.rows)
    seen = window(len(block.rows), max(1, height - heads), row - near.start)
    lines = body[:heads] + body[heads + seen.start : heads + seen.stop]
    rows = range(near.start + seen.start, near.start + seen.stop)
    part = MatrixPart(lines, rows, range(some.start, some.stop), legend)
    return part if chosen is None else part._replace(lines=_marked(part, row, column))


def _marked(part: MatrixPart, row: int, column: int) -> list[Line]:
    lines = list(part.lines)
    if row not in part.rows or column not in part.columns:
        return lines
    at, place = part.top + row - part.rows.start, 1 + column - part.columns.start
    lines[at] = line = list(lines[at])
    for marked in (0, place):
        line[marked] = Segment(line[marked].text, MARKED)
    # Its head, too, but not the gap before that.
    edge, heads, *rest = lines[part.top - 1]
    before, after = heads.split_cells(line_width(line[:place]) - cells(edge.text))
    head, after = after.split_cells(cells(line[place].text))
    name = head.text.lstrip()
    gap = Segment(head.text[: len(head.text) - len(name)], head.style)
    lines[part.top - 1] = [edge, before, gap, Segment(name, MARKED), after, *rest]
    return lines


def large_blocks(
    block: Matrix, terminal: Terminal, palette: str | None, chosen: tuple[int, int], height: int
) -> MatrixPart | None:
    """Return the matrix in blocks that fill the screen; None where there are too many words for that."""
    n_q, n_k = block.values.shape
    rows = labels(block.rows, terminal, LABEL)
    edge = max(map(cells, rows)) + 1
    wide = min(MOST, ((terminal.width or 80) - edge) // n_k)
    tall = min(TALLEST, (height - 1) // n_q)
    if wide < LEAST or tall < 1:
        return None
    heads = [padded_left(name, wide) for name in labels(block.columns, terminal, wide - 1)]
    lines: list[Line] = [[Segment(padded("", edge)), *(Segment(name, ramps.BOLD) for name in heads)]]
    # The last, -1, is a masked cell's.
    styles = [*ramps.styles_on(terminal, palette, False, block.is_difference), None]
    form, filling = weight(2) if wide >= DECIMAL else PERCENT, bars(terminal)
    form = signed(form) if block.is_difference else form
    shades = ramps.shading(block.values, ramps.shade_range(block)).tolist()
    for i, (name, values) in enumerate(zip(rows, block.values.tolist(), strict=True)):
        for line in range(tall):
            is_middle = line == tall // 2  # which has the numbers
            is_marked = is_middle and i == chosen[0]
            made = [Segment(padded(name if is_middle else "", edge), MARKED if is_marked else ramps.BOLD)]
            for j, (text, place) in enumerate(zip(form.row(values), shades[i], strict=True)):
                fill = " " if terminal.colors or place < 0 else filling[place * len(filling) // ramps.SHADES]
                style = MARKED if (i, j) == chosen else styles[place] or Style()
                shown = f" {text if place >= 0 else masked_mark(terminal)} " if is_middle else ""
                left = fill * ((wide - 1 - len(shown)) // 2)  # so that there is a space at the left of each
                made.append(Segment(" " + (left + shown).ljust(wide - 1, fill), style))
            lines.append(made)
    return MatrixPart(lines, range(n_q), range(n_k), [], tall)
