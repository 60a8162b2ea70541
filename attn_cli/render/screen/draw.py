"""Blocks to lines of segments, for a terminal of a given width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from rich.segment import Segment

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render import Bars, Beside, Block, Columns, Formula, Heading, Links, Maps, Matrix, Say
from attn_cli.render.numbers import bar_numbers, fitting, largest
from attn_cli.render.ramps import BOLD, SHADES, on_scale, styles_on
from attn_cli.render.screen import text as texts
from attn_cli.render.screen.grid import LABEL, Grid, spans_within
from attn_cli.settings import View

_ASCII = str.maketrans({"×": "x", "–": "-", "…": "...", "·": ".", "ᵀ": "^T"})
LONGEST_BAR, LONGEST_NAME = 40, 28
UNFITTED = 12  # columns of a wide matrix, where there is no width to fit


def draw(blocks: Iterable[Block], view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the lines of all blocks."""
    for block in on_scale(blocks, view):
        match block:
            case Heading(text, level):
                if level > 1:
                    yield []
                yield from texts.wrapped(terminal.text(text), terminal.width, style=BOLD)
            case Say(text):
                if not terminal.unicode:  # the symbols of formulas; tokens stay as they are
                    text = re.sub(r"√(d_k|\d+)", r"sqrt(\1)", text).replace("q·k", "q.k")
                yield from texts.wrapped(terminal.text(text), terminal.width)
            case Formula(text, before):
                shown = _written(text, terminal)
                joined = f"{terminal.text(before)} {shown}" if before else shown
                yield from texts.wrapped(joined, terminal.width, "  ", hanging=4)
            case Matrix():
                yield from _matrix(block, view, terminal)
            case Beside() | Maps():
                from attn_cli.render.screen.side_by_side import draw_several  # rarely needed

                yield from draw_several(block, view, terminal)
            case Columns():
                yield from _columns(block, terminal)
            case Links():
                yield from _links(block, terminal)
            case Bars():
                yield from _bars(block, view, terminal)


def _written(text: str, terminal: Terminal) -> str:
    if not terminal.unicode:
        text = re.sub(r"√(\w+)", r"sqrt(\1)", text).translate(_ASCII)
    return terminal.text(text)


def _matrix(block: Matrix, view: View, terminal: Terminal) -> Iterator[Line]:
    block = block.fixed(view.precision)._replace(corner=terminal.text(block.corner))
    if block.fits:  # with as many columns as stand beside the labels with all their digits
        some, across = block.nearby(64), UNFITTED
        if terminal.width is not None:
            values = block.values[:, some]
            numbers = fitting(largest(values), block.digits)[0].row(values.ravel().tolist())
            names = [min(LABEL, texts.cells(name)) for name in block.columns[some]]
            edge = max(map(texts.cells, [block.corner, *texts.labels(block.rows, terminal, LABEL)]))
            tail = max(map(len, block.sums)) + 2 if block.sums else 0
            across = max(1, (terminal.width - edge - tail) // (max(*map(len, numbers), *names) + 1))
        block = block.narrowed(across)
    yield from Grid(block, terminal, view.palette).lines()
    if block.more:
        yield from texts.wrapped(f"{'…' if terminal.unicode else '...'} {block.more}", terminal.width, "  ")


def _columns(block: Columns, terminal: Terminal) -> Iterator[Line]:
    """Draw a small table; where it is too wide, its later columns go below, under the same labels."""
    header, *rows = ([*map(partial(_written, terminal=terminal), row)] for row in (block.header, *block.rows))
    widths = [max(map(texts.cells, column)) for column in zip(header, *rows, strict=True)]
    most = LABEL if terminal.width is None else max(2, min(LABEL, terminal.width - 2 - max(widths[1:])))
    names = texts.labels([row[0] for row in block.rows], terminal, most)
    edge = max(map(texts.cells, [*names, texts.cut(header[0], most)]))
    room = (texts.UNLIMITED if terminal.width is None else terminal.width) - edge
    for start, stop in spans_within([width + 2 for width in widths[1:]], room):
        if start:
            yield []
        span = slice(1 + start, 1 + stop)
        for name, row in zip([texts.cut(header[0], edge), *names], [header, *rows], strict=True):
            text = "".join(f"  {one}" for one in map(texts.padded_left, row[span], widths[span]))
            style, text = (None, text) if row is header else (BOLD, text.rstrip())
            yield [Segment(texts.padded(name, edge), style), Segment(text)]


def _links(block: Links, terminal: Terminal) -> Iterator[Line]:
    """Draw each query's strongest keys, as many on a line as fit; the others go below."""
    width = terminal.width or texts.UNLIMITED
    found = [link for _, links in block.rows for link in links]
    tail = max([len(weight) for _, weight in found], default=1) + 1
    names = texts.labels([query for query, _ in block.rows], terminal, max(4, min(LABEL, width - tail - 6)))
    edge = max(map(texts.cells, names))
    most = max(1, min(LONGEST_NAME, width - edge - tail - 2))
    keys = iter(texts.labels([key for key, _ in found], terminal, most))
    written = [[(next(keys), weight) for _, weight in links] for _, links in block.rows]
    wide = max((texts.cells(key) for links in written for key, _ in links), default=1)
    across = max(1, (width - edge) // (2 + wide + tail))
    for name, links in zip(names, written, strict=True):
        shown = [f"  {texts.padded(key, wide)} {texts.padded_left(w, tail - 1)}" for key, w in links]
        shown = shown or [f"  {block.none}"]
        for start in range(0, len(shown), across):
            label = "" if start else name
            yield [Segment(texts.padded(label, edge), BOLD), Segment("".join(shown[start : start + across]))]


def _bars(block: Bars, view: View, terminal: Terminal) -> Iterator[Line]:
    if block.title:
        yield from texts.wrapped(terminal.text(block.title), terminal.width, style=BOLD)
    numbers, width = bar_numbers(block, view.precision), terminal.width or 80
    widest = max(map(len, numbers), default=1)
    most = max(4, min(LONGEST_NAME, width - widest - 10))
    names = texts.labels([name for name, _ in block.items], terminal, most)
    edge = max(map(texts.cells, names), default=1)
    room = max(1, min(LONGEST_BAR, width - edge - widest - 4))
    styles = styles_on(terminal, view.palette)
    for name, text, (_, value) in zip(names, numbers, block.items, strict=True):
        part = block.length(value)
        whole, eighths = divmod(round(part * room * 8), 8)
        bar = "█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip() if terminal.unicode else "#" * round(part * room)
        numbered = Segment(f"  {texts.padded(name, edge)} {texts.padded_left(text, widest)}")
        yield [numbered, Segment(f" {bar}" if bar else "", styles[round(part * (SHADES - 1))])]


def parts_of(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Cut a screen at its headings; a title with one paragraph, or none, stands with the part that follows."""
    part: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading):
            match part:  # headings alone, or a title with a sentence, are too little for a cleared screen
                case [Heading(level=1), Say(text=text)] if text.endswith("."):
                    pass
                case _ if not all(isinstance(one, Heading) for one in part):
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
        heights = [max(1, -(-texts.line_width(line) // columns)) for line in piece]  # in rows of the terminal
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
