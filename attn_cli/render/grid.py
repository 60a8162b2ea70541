"""A matrix that fits its terminal: the width ladder, shades, headers that can be read, pages.

At every width, numbers lose digits before they lose themselves: digits, then percent, then heat blocks of
two cells and of one, then pages of columns. The reader is told which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.segment import Segment
from rich.style import Style

from attn_cli.render.numbers import Format, fitting, percent, weight
from attn_cli.render.palette import BOLD, DIM, SHADES, inks, ramp_name, shades
from attn_cli.render.text import cells, cut, labels, padded, padded_left, wrapped
from attn_cli.terminal import Line, Terminal

if TYPE_CHECKING:
    from attn_cli.arrays import Array, Ints

LABEL = 12
BARS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"


class Rung(NamedTuple):
    """One way to draw a cell: a format for numbers, or `block` cells of a bar."""

    told: str
    format: Format | None
    block: int = 0


class Grid(NamedTuple):
    """A matrix to draw: values (rows, columns), NaN where masked, with its labels.

    `sums` is a last column of text. Shades run from the least to the largest value in `low` .. `high`.
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

    def lines(self, terminal: Terminal) -> Iterator[Line]:
        """Yield the lines of the matrix, its legend and what was condensed, none wider than the terminal."""
        rung, pages = self._fitted(terminal)
        for number_of_page, page in enumerate(pages):
            if len(pages) > 1:
                first, last = page.start, page.stop - 1
                yield [Segment(cut(f"columns {first} to {last} of {self.values.shape[1]}", page.room), DIM)]
            yield from self._page(rung, page, terminal)
            if number_of_page < len(pages) - 1:
                yield []
        yield from self._legend(rung, terminal, len(pages))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Segment]:
        """Draw the matrix in any Rich console."""
        colors = {"standard": 16, "256": 256, "truecolor": 1 << 24}.get(console.color_system or "", 0)
        for line in self.lines(Terminal(options.max_width, colors, options.encoding)):
            yield from line
            yield Segment.line()

    def _rungs(self) -> list[Rung]:
        blocks = [Rung("heat blocks of two cells", None, 2), Rung("heat blocks of one cell", None, 1)]
        if self.is_weights and self.precision is not None:
            return [Rung("", weight(self.precision))]
        if self.is_weights:
            return [
                Rung("", weight(3)),
                Rung("two digits", weight(2)),
                Rung("weights in whole percent", percent),
                *blocks,
            ]
        formats = [Rung("", form) for form in self._formats()]
        return formats if self.precision is not None else formats + blocks

    def _formats(self) -> list[Format]:
        known = self.values[np.isfinite(self.values)]
        return fitting(float(np.abs(known).max()) if known.size else 0.0, self.precision)

    def _fitted(self, terminal: Terminal) -> tuple[_Drawn, list[_Page]]:
        """Return the first rung on which all columns fit beside each other, else the last one in pages."""
        drawn: _Drawn
        for rung in self._rungs():
            drawn = _Drawn.of(rung, self.values)
            pages = self._pages(drawn, terminal)
            if len(pages) == 1:
                return drawn, pages
        return drawn, pages

    def _pages(self, drawn: _Drawn, terminal: Terminal) -> list[_Page]:
        n = self.values.shape[1]
        edge = max([len(self.corner), *map(cells, labels(self.row_labels, terminal, LABEL))])
        tail = (max(map(cells, [*self.sums, self.sums_label])) + 2 if self.sums else 0) + len(drawn.margin)
        room = 1 << 30 if terminal.width is None else terminal.width
        if edge + drawn.width + drawn.gap + tail > room:
            edge = max(1, room - tail - drawn.width - drawn.gap)
        across = max(1, (room - edge - tail) // (drawn.width + drawn.gap))
        pages = []
        for start in range(0, n, across):
            stop = min(start + across, n)
            names = labels(self.column_labels[start:stop], terminal, LABEL)
            widths = _widths(names, drawn, room - edge - tail)
            pages.append(_Page(start, stop, edge, widths, room))
        return pages

    def _page(self, drawn: _Drawn, page: _Page, terminal: Terminal) -> Iterator[Line]:
        head, numbered = self._headers(drawn, page, terminal)
        tail = max(map(cells, [*self.sums, self.sums_label])) if self.sums else 0
        for i, header in enumerate(head):
            last = i == len(head) - 1
            edge = padded(cut(self.corner, page.edge) if last else "", page.edge) + drawn.margin
            end = "  " + padded_left(self.sums_label, tail) if last and self.sums else ""
            yield [Segment(edge, DIM), Segment(header, BOLD), Segment(end, DIM)]
        styles, low, high = self._styles(drawn, terminal)
        span = slice(page.start, page.stop)
        shade = _shade(self.values[:, span], low, high)
        names = labels(self.row_labels, terminal, page.edge)
        if numbered:
            names = [cut(f"{i} {name}", page.edge) for i, name in enumerate(names)]
        texts = drawn.texts(self.values[:, span], shade, terminal)
        masked = padded_left("–" if terminal.unicode else "-", drawn.width)
        widths = page.widths
        plain = all(width == widths[0] for width in widths)
        stretch = [" " * (width - drawn.width + drawn.gap) for width in widths]
        gap = stretch[0]
        for name, row, places, end in zip(names, texts, shade.tolist(), self._ends(tail), strict=True):
            line = [Segment(padded(name, page.edge) + drawn.margin, BOLD)]
            if plain:
                line += [
                    Segment(gap + text, styles[place]) if place >= 0 else Segment(gap + masked)
                    for text, place in zip(row, places, strict=True)
                ]
            else:
                line += [
                    Segment(space + text, styles[place]) if place >= 0 else Segment(space + masked)
                    for space, text, place in zip(stretch, row, places, strict=True)
                ]
            if end:
                line.append(Segment(end, DIM))
            yield line

    def _ends(self, tail: int) -> list[str]:
        if not self.sums:
            return [""] * len(self.values)
        return ["  " + padded_left(text, tail) for text in self.sums]

    def _headers(self, drawn: _Drawn, page: _Page, terminal: Terminal) -> tuple[list[str], bool]:
        """Return the header lines, labels cut into pieces as wide as their columns; and whether numbered."""
        names = labels(self.column_labels[page.start : page.stop], terminal, LABEL)
        narrowest = min(page.widths)
        numbered = narrowest == 1 and any(cells(char) > 1 for name in names for char in name)
        if numbered:
            names = [str(i) for i in range(page.start, page.stop)]
        most = 4 if narrowest > 2 else LABEL
        stacks = [_stacked(name, width, most) for name, width in zip(names, page.widths, strict=True)]
        height = max(map(len, stacks))
        lines = []
        for level in range(height):
            line = ""
            for stack, width in zip(stacks, page.widths, strict=True):
                at = level - (height - len(stack))
                line += " " * drawn.gap + padded_left(stack[at] if at >= 0 else "", width)
            lines.append(line)
        return lines, numbered

    def _styles(self, drawn: _Drawn, terminal: Terminal) -> tuple[Sequence[Style | None], float, float]:
        known = self.values[~np.isnan(self.values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        if not terminal.colors or not self.shaded:
            return [None] * SHADES, low, high
        name = ramp_name(self.palette, terminal)
        return (inks if drawn.rung.block else shades)(name, terminal.colors), low, high

    def _legend(self, drawn: _Drawn, terminal: Terminal, pages: int) -> Iterator[Line]:
        if self.shaded:
            styles, low, high = self._styles(drawn, terminal)
            form = weight(3) if self.is_weights else self._formats()[0]
            ramp = BARS if terminal.unicode else DIGITS
            steps = [(i * (SHADES - 1)) // (len(ramp) - 1) for i in range(len(ramp))]
            line = [Segment(f"shades: {form(low)} ", DIM)]
            line += [Segment(char, styles[step]) for char, step in zip(ramp, steps, strict=True)]
            line.append(Segment(f" {form(high)}", DIM))
            if np.isnan(self.values).any():
                line.append(Segment(f"   {'–' if terminal.unicode else '-'} masked", DIM))
            if terminal.width is None or sum(cells(part.text) for part in line) <= terminal.width:
                yield line
            else:
                yield from wrapped(f"shades: {form(low)} to {form(high)}", terminal.width, style=DIM)
        told = [drawn.rung.told] if drawn.rung.told else []
        if pages > 1:
            told.append(f"{pages} pages of columns")
        if told:
            text = f"To fit: {', '.join(told)}. A wider terminal, -q or --top shows more."
            yield from wrapped(text, terminal.width, style=DIM)


class _Page(NamedTuple):
    start: int
    stop: int
    edge: int
    widths: list[int]
    room: int


class _Drawn(NamedTuple):
    """A rung with the width that its widest cell needs, and the gap before each."""

    rung: Rung
    width: int
    gap: int
    formatted: list[list[str]]

    @property
    def margin(self) -> str:
        """What stands between the row labels and the first cell besides the gap."""
        return " " if self.rung.block else ""

    @classmethod
    def of(cls, rung: Rung, values: Array) -> _Drawn:
        if rung.block:
            return cls(rung, rung.block, 0, [])
        show = rung.format
        assert show is not None
        known = {value: show(value) for value in set(values[~np.isnan(values)].tolist())}
        width = max(map(len, known.values()), default=1)
        texts = [[padded_left(known.get(value, ""), width) for value in row] for row in values.tolist()]
        return cls(rung, width, 1, texts)

    def texts(self, values: Array, shade: Ints, terminal: Terminal) -> list[list[str]]:
        if self.formatted:
            if len(self.formatted[0]) == values.shape[1]:
                return self.formatted
            show = self.rung.format
            assert show is not None
            return [
                [padded_left(show(v), self.width) if v == v else "" for v in row] for row in values.tolist()
            ]
        ramp = BARS if terminal.unicode else DIGITS
        marks = [ramp[i * len(ramp) // SHADES] * self.width for i in range(SHADES)]
        return [[marks[place] for place in row] for row in shade.tolist()]


def _shade(values: Array, low: float, high: float) -> Ints:
    """Return each value's shade, 0 to SHADES - 1; -1 where masked."""
    span = high - low or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.rint((values - low) / span * (SHADES - 1))
    return np.where(np.isnan(values), -1, np.nan_to_num(places)).astype(np.intp)


def _widths(names: Sequence[str], drawn: _Drawn, room: int) -> list[int]:
    """Return the columns' widths: as wide as their labels where there is room, evenly less where not."""
    if drawn.rung.block:
        return [drawn.width] * len(names)
    lengths = [cells(name) for name in names]
    widest = max(drawn.width, *lengths)
    if (widest + drawn.gap) * len(names) <= room:
        return [widest] * len(names)
    for most in range(LABEL, drawn.width, -1):
        widths = [max(drawn.width, min(length, most)) for length in lengths]
        if sum(widths) + drawn.gap * len(widths) <= room:
            return widths
    return [drawn.width] * len(names)


def _stacked(name: str, width: int, most: int) -> list[str]:
    """Cut a label into pieces of `width` cells, one below the other, `most` at the most."""
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
