"""A matrix that fits its terminal: shaded cells, headers that can be read, a legend, pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.palette import BOLD, SHADES, diverging, inks, ramp_name, shades
from attn_cli.render.screen.text import cells, cut, labels, padded, padded_left, wrapped
from attn_cli.render.width_ladder import BARS, DIGITS, SIGNS, Drawn, Rung, drawn, largest, rungs, shading

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

LABEL = 12


class Grid(NamedTuple):
    """A matrix to draw: values (rows, columns), NaN where masked, with its labels.

    `sums` is a last column of text. Shades run from the least value to the largest, or over `scale`; those of a
    difference from its largest size below zero to the same above, with zero in the middle.
    """

    row_labels: Sequence[str]
    column_labels: Sequence[str]
    values: Array
    corner: str = ""
    sums: Sequence[str] = ()
    sums_label: str = "sum"
    is_weights: bool = True
    shaded: bool = True
    precision: int | None = None
    palette: str | None = None
    row_numbers: Sequence[int] | None = None  # the rows' places in the text, where columns may be numbered
    is_difference: bool = False
    marks: tuple[str, str] | None = None  # what 0 and 1 are written as
    scale: tuple[float, float] | None = None
    ways: tuple[Rung, ...] = ()  # the rungs to choose from; the usual ones if there are none

    def lines(self, terminal: Terminal) -> Iterator[Line]:
        """Yield the matrix, its legend and what was condensed; no line is wider than the terminal."""
        shade = self._shade()
        matrix, pages = self._fitted(shade, terminal)
        yield from self._body(matrix, pages, shade, terminal)
        yield from self._legend(matrix, pages, terminal)

    def fits(self, terminal: Terminal) -> bool:
        """Tell whether all columns stand beside each other, with their labels whole."""
        pages = self._fitted(self._shade(), terminal)[1]
        return len(pages) == 1 and pages[0].edge >= max([len(self.corner), *map(cells, pages[0].rows)])

    def body(self, terminal: Terminal) -> Iterator[Line]:
        """Yield the matrix alone."""
        shade = self._shade()
        yield from self._body(*self._fitted(shade, terminal), shade, terminal)

    def legend(self, terminal: Terminal, room: Terminal | None = None) -> Iterator[Line]:
        """Yield what stands under the matrix: names of numbered columns, shades, and what was done to fit `room`."""
        yield from self._legend(*self._fitted(self._shade(), room or terminal), terminal)

    def _body(self, matrix: Drawn, pages: list[_Page], shade: Ints, terminal: Terminal) -> Iterator[Line]:
        styles = self._styles(matrix, terminal)
        for number, page in enumerate(pages):
            if number:
                yield []
            if len(pages) > 1:
                told = f"columns {page.start} to {page.stop - 1} of {self.values.shape[1]}"
                yield [Segment(cut(told, page.room))]
            yield from self._page(matrix, page, shade, styles, terminal)

    def _legend(self, matrix: Drawn, pages: list[_Page], terminal: Terminal) -> Iterator[Line]:
        styles = self._styles(matrix, terminal)
        if pages[0].numbered and list(self.row_labels) != list(self.column_labels):
            named = [f"{j} {name}" for j, name in enumerate(labels(self.column_labels, terminal, LABEL))]
            yield from wrapped(f"columns: {', '.join(named)}", terminal.width)
        if self.shaded and self.marks is None:
            yield from self._shade_line(styles, terminal)
        told = [matrix.rung.told] if matrix.rung.told else []
        if len(pages) > 1:
            told.append(f"{len(pages)} pages of columns")
        if told:
            text = f"To fit: {', '.join(told)}. A wider terminal, -q or --top shows more."
            yield from wrapped(text, terminal.width)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Segment]:
        """Draw the matrix in any Rich console."""
        colors = {"standard": 16, "256": 256, "truecolor": 1 << 24}.get(console.color_system or "", 0)
        for line in self.lines(Terminal(options.max_width, colors, options.encoding)):
            yield from line
            yield Segment.line()

    def _range(self) -> tuple[float, float]:
        if self.scale is not None:
            return self.scale
        known = self.values[~np.isnan(self.values)]
        if self.is_difference:
            size = largest(known)
            return -size, size
        return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)

    def _shade(self) -> Ints:
        return shading(self.values, *self._range())

    def _rungs(self) -> tuple[Rung, ...]:
        return self.ways or rungs(
            self.values, self.is_weights, self.precision, self.is_difference, self.marks
        )

    def _fitted(self, shade: Ints, terminal: Terminal) -> tuple[Drawn, list[_Page]]:
        """Return the first rung on which all columns fit beside each other, else the last one in pages."""
        for rung in self._rungs():
            matrix = drawn(rung, self.values, shade, terminal)
            pages = self._pages(matrix, terminal)
            if len(pages) == 1:
                break
        return matrix, pages

    def _tail(self) -> int:
        return max(map(cells, [*self.sums, self.sums_label])) if self.sums else 0

    def _pages(self, matrix: Drawn, terminal: Terminal) -> list[_Page]:
        room = 1 << 30 if terminal.width is None else terminal.width
        numbered = self._needs_numbers(matrix, terminal)
        rows = self._row_names(numbered, terminal)
        n = self.values.shape[1]
        least = max(matrix.width, len(str(n - 1))) if numbered and matrix.gap else matrix.width
        step = least + matrix.gap
        edge = max([len(self.corner), *map(cells, rows)])
        tail = (self._tail() + 2 if self.sums else 0) + len(matrix.margin)
        if edge + step + tail > room:
            edge = max(1, room - tail - step)
        across = max(1, (room - edge - tail) // step)
        pages = []
        for start in range(0, n, across):
            stop = min(start + across, n)
            names = labels(self.column_labels[start:stop], terminal, LABEL)
            widths = [least] * len(names) if numbered else _widths(names, matrix, room - edge - tail)
            pages.append(_Page(start, stop, edge, widths, room, numbered, rows, names))
        return pages

    def _needs_numbers(self, matrix: Drawn, terminal: Terminal) -> bool:
        """Tell whether narrow columns would cut a label into more than two pieces: then numbers read better."""
        if matrix.width > 3 or self.row_numbers is None:
            return False
        names = labels(self.column_labels, terminal, LABEL)
        room = 1 << 30 if terminal.width is None else terminal.width
        edge = max([len(self.corner), *map(cells, labels(self.row_labels, terminal, LABEL))])
        spare = room - edge - (self._tail() + 2 if self.sums else 0)
        widths = _widths(names, matrix, spare)
        return any(cells(name) > 2 * width for name, width in zip(names, widths, strict=True))

    def _row_names(self, numbered: bool, terminal: Terminal) -> list[str]:
        names = labels(self.row_labels, terminal, LABEL)
        if not numbered or self.row_numbers is None:
            return names
        digits = len(str(max(self.row_numbers)))
        return [f"{i:>{digits}} {name}" for i, name in zip(self.row_numbers, names, strict=True)]

    def _page(
        self, matrix: Drawn, page: _Page, shade: Ints, styles: Sequence[Style | None], terminal: Terminal
    ) -> Iterator[Line]:
        yield from self._head_lines(self._headers(matrix, page), matrix, page)
        names = [cut(name, page.edge) for name in page.rows]
        masked = "–" if terminal.unicode else "-"
        full = [width + matrix.gap for width in page.widths]
        inked = [*styles, None]  # the last, -1, is what is masked
        span = slice(page.start, page.stop)
        tail = self._tail()
        for i, name in enumerate(names):
            places = shade[i, span].tolist()
            texts = matrix.texts[i][span]
            if -1 in places:
                texts = [text if place >= 0 else masked for text, place in zip(texts, places, strict=True)]
            line = [Segment(padded(name, page.edge) + matrix.margin, BOLD)]
            line += _segments(map(str.rjust, texts, full), map(inked.__getitem__, places))
            if self.sums:
                line.append(Segment("  " + padded_left(self.sums[i], tail)))
            yield line

    def _head_lines(self, heads: list[str], matrix: Drawn, page: _Page) -> Iterator[Line]:
        for i, header in enumerate(heads):
            last = i == len(heads) - 1
            edge = padded(cut(self.corner, page.edge) if last else "", page.edge) + matrix.margin
            end = "  " + padded_left(self.sums_label, self._tail()) if last and self.sums else ""
            yield [Segment(edge), Segment(header, BOLD), Segment(end)]

    def _headers(self, matrix: Drawn, page: _Page) -> list[str]:
        """Return the header lines: labels, or numbers, cut into pieces as wide as their columns."""
        names = [str(j) for j in range(page.start, page.stop)] if page.numbered else page.names
        most = 4 if min(page.widths) > 2 else LABEL
        stacks = [_stacked(name, width, most) for name, width in zip(names, page.widths, strict=True)]
        height = max(map(len, stacks))
        lines = []
        for level in range(height):
            line = ""
            for stack, width in zip(stacks, page.widths, strict=True):
                at = level - (height - len(stack))
                line += " " * matrix.gap + padded_left(stack[at] if at >= 0 else "", width)
            lines.append(line)
        return lines

    def _styles(self, matrix: Drawn, terminal: Terminal) -> Sequence[Style | None]:
        if not terminal.colors or not self.shaded:
            return [None] * SHADES
        name = ramp_name(self.palette, terminal)
        if self.is_difference:
            return diverging(name, terminal.colors)
        return (inks if matrix.rung.block else shades)(name, terminal.colors)

    def _shade_line(self, styles: Sequence[Style | None], terminal: Terminal) -> Iterator[Line]:
        form = rungs(self.values, self.is_weights, None, self.is_difference)[0].format
        assert form is not None
        masked = f"{'–' if terminal.unicode else '-'} masked" if np.isnan(self.values).any() else ""
        low, high = form.row(self._range())
        if np.isnan(self.values).all():
            yield from wrapped(masked, terminal.width)
            return
        if low == high:
            yield from wrapped(f"shades: all are {low}" + (f"   {masked}" if masked else ""), terminal.width)
            return
        ramp = BARS if terminal.unicode else DIGITS
        ramp = SIGNS if self.is_difference else ramp
        steps = [(i * (SHADES - 1)) // (len(ramp) - 1) for i in range(len(ramp))]
        line = [Segment(f"shades: {low} ")]
        for char, step in zip(ramp, steps, strict=True):
            style = styles[step]
            if style is not None and style.bgcolor is not None and not self.is_difference:
                style = Style(color=style.bgcolor, bgcolor=style.bgcolor)  # a patch of what the cells have
            line.append(Segment(char, style))
        line.append(Segment(f" {high}" + (f"   {masked}" if masked else "")))
        if terminal.width is None or sum(cells(part.text) for part in line) <= terminal.width:
            yield line
        else:
            yield from wrapped(f"shades: {low} to {high}", terminal.width)


def _segments(texts: Iterable[str], styles: Iterable[Style | None]) -> Iterator[Segment]:
    """Return segments of these texts and styles; a named tuple's own constructor is Python, and takes twice as long."""
    return map(partial(tuple.__new__, Segment), zip(texts, styles, repeat(None)))


class _Page(NamedTuple):
    start: int
    stop: int
    edge: int
    widths: list[int]
    room: int
    numbered: bool
    rows: list[str]
    names: list[str]


def _widths(names: Sequence[str], matrix: Drawn, room: int) -> list[int]:
    """Return the columns' widths: as wide as their labels where there is room, evenly less where not."""
    if matrix.rung.block:
        return [matrix.width] * len(names)
    lengths = [cells(name) for name in names]
    widest = max(matrix.width, *lengths)
    if (widest + matrix.gap) * len(names) <= room:
        return [widest] * len(names)
    for most in range(LABEL, matrix.width, -1):
        widths = [max(matrix.width, min(length, most)) for length in lengths]
        if sum(widths) + matrix.gap * len(widths) <= room:
            return widths
    return [matrix.width] * len(names)


def _stacked(name: str, width: int, most: int) -> list[str]:
    """Cut a label into pieces of `width` cells, one below the other, `most` at the most."""
    if cells(name) <= width:
        return [name]
    pieces, piece = [], ""
    for char in name:
        if cells(piece + char) > width and piece:
            pieces.append(piece)
            piece = ""
        piece += char
    pieces.append(piece)
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], cut("".join(pieces[most - 1 :]), width)]
    return [piece if cells(piece) <= width else "?" for piece in pieces]
