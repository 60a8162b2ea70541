"""A screen in parts, one below each heading, and a part in screenfuls of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Block, Heading
from attn_cli.render.screen.draw import draw
from attn_cli.render.screen.text import cells
from attn_cli.settings.output import View


def parts_of(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Cut a screen at its headings; headings that follow each other begin one part."""
    part: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading) and any(not isinstance(held, Heading) for held in part):
            yield part
            part = []
        part.append(block)
    if part:
        yield part


def screenfuls(part: Iterable[Block], view: View, terminal: Terminal, columns: int, rows: int) -> list[str]:
    """Return a part as texts of at most `rows` lines of `columns` cells; a table that fits stays whole if it can."""
    screens: list[list[Line]] = [[]]
    used = 0
    for piece in _pieces(part, view, terminal):
        heights = [_rows(line, columns) for line in piece]
        starts_anew = rows // 2 < used and sum(heights) <= rows < used + sum(heights)
        for line, height in zip(piece, heights, strict=True):
            if used and (starts_anew or used + height > rows):
                screens.append([])
                used = 0
            starts_anew = False
            if line or used:  # a cleared screen begins with no empty line
                screens[-1].append(line)
                used += height
    return [terminal.paint(lines) for lines in screens]


def _pieces(part: Iterable[Block], view: View, terminal: Terminal) -> Iterator[list[Line]]:
    """Yield the lines of each block; those of a wide table, which goes on below an empty line, table by table."""
    for block in part:
        piece: list[Line] = []
        for line in draw([block], view, terminal):
            if piece and not line:
                yield piece
                piece = []
            piece.append(line)
        yield piece


def _rows(line: Line, columns: int) -> int:
    """Return how many rows of the terminal a line takes."""
    return max(1, -(-sum(cells(segment.text) for segment in line) // columns))
