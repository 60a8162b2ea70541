"""A matrix that fits its terminal: shaded cells, headers that can be read, a legend, pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from attn_cli.errors import visible
from attn_cli.io.terminal import Line, Terminal
from attn_cli.io.types import Array, Ints, NamedTuple
from attn_cli.render import Matrix
from attn_cli.render.numbers import SIGNS, Rung, bars, rungs
from attn_cli.render.ramps import BOLD, SHADES, Legend, legend, shade_range, shading, styles_on
from attn_cli.render.screen import text as texts

LABEL = 12
SUM = "sum"


class Drawn(NamedTuple):
    """A matrix written on one rung: its texts, and the width that the widest needs."""

    rung: Rung
    width: int
    texts: list[list[str]]
    shade: Ints


def drawn(rung: Rung, values: Array, shade: Ints, terminal: Terminal) -> Drawn:
    """Write every number of `values` on this rung; a masked one (NaN) is written as nan and not shown."""
    if rung.format is None:
        ramp = rung.ramp or bars(terminal)
        marks = [ramp[i * len(ramp) // SHADES] * rung.block for i in range(SHADES)]
        return Drawn(rung, rung.block, [[marks[place] for place in row] for row in shade.tolist()], shade)
    texts = [rung.format.row(row) for row in values.tolist()]
    widest = max((len(text) for row in texts for text in row if not text.endswith("nan")), default=1)
    return Drawn(rung, widest, texts, shade)


class _Page(NamedTuple):
    start: int
    stop: int
    edge: int  # the width of the row labels
    widths: list[int]
    numbered: bool
    rows: list[str]
    names: list[str]


class Grid:
    """A matrix laid out for a terminal, in the shades of a palette, on the first of some rungs with room for it."""

    def __init__(
        self, block: Matrix, terminal: Terminal, palette: str | None = None, ways: Sequence[Rung] = ()
    ) -> None:
        self.block, self.terminal = block, terminal
        self.room = texts.UNLIMITED if terminal.width is None else terminal.width
        self.heads_are_numbers = all(name.isdecimal() for name in block.columns)
        # The width of the column of sums, with the gap before it.
        self.tail = max(map(texts.cells, [*block.sums, SUM])) + 2 if block.sums else 0
        self.matrix, self.pages = self._fitted(ways or rungs(block))
        self.styles: Sequence[Style | None] = [None] * SHADES
        if block.shaded:
            is_ink = bool(self.matrix.rung.block) and not block.is_difference and not terminal.is_picture
            self.styles = styles_on(terminal, palette, is_ink, block.is_difference)

    def lines(self) -> Iterator[Line]:
        """Yield the matrix, its legend and what was condensed; no line is wider than the terminal."""
        yield from self.body()
        yield from self.legend(self.terminal)

    def fits(self, named: bool = False) -> bool:
        """Tell whether all columns stand beside each other, with the rows' labels whole; `named`: and their own."""
        page, *more = self.pages
        is_named = not page.numbered or self.block.marks is not None
        return not more and page.edge >= self._edge(page.rows) and (is_named or not named)

    def body(self) -> Iterator[Line]:
        """Yield the matrix alone."""
        for number, page in enumerate(self.pages):
            if number:
                yield []
            if len(self.pages) > 1:
                span = f"columns {page.start} to {page.stop - 1} of {len(self.block.columns)}"
                yield [Segment(texts.cut(span, self.room))]
            yield from self._page(page)

    def legend(self, terminal: Terminal) -> Iterator[Line]:
        """Yield what stands under the matrix: names of numbered columns, shades, and what was done to fit."""
        block, rung, numbered = self.block, self.matrix.rung, self.pages[0].numbered
        if numbered and list(block.rows) != list(block.columns):
            named = [f"{j} {name}" for j, name in enumerate(texts.labels(block.columns, terminal, LABEL))]
            yield from texts.wrapped(f"columns: {', '.join(named)}", terminal.width)
        if block.shaded and block.marks is None:
            ramp = SIGNS if block.is_difference else bars(terminal)
            patches = self.styles if block.is_difference else [shade_patch(style) for style in self.styles]
            yield from shade_line(legend(block), ramp, patches, terminal)
        condensed = [rung.name] * bool(rung.name) + ["numbered columns"] * (numbered and not rung.block)
        condensed += [f"{len(self.pages)} pages of columns"] * (len(self.pages) > 1)
        if condensed:
            more = ", -q or --top" if block.row_numbers is not None else ""
            text = f"To fit: {', '.join(condensed)}. A wider terminal{more} shows more."
            yield from texts.wrapped(text, terminal.width)

    def _fitted(self, ways: Sequence[Rung]) -> tuple[Drawn, list[_Page]]:
        """Return the first rung on which all columns fit beside each other, else one in pages.

        No label is broken: columns whose labels leave no room for all of them are numbered as the rows are.
        """
        values, shade = self.block.values, shading(self.block.values, shade_range(self.block))
        can_number = self.block.row_numbers is not None
        if can_number:  # else the last rung with room for words is looked for below
            first = [drawn(rung, values[:1], shade[:1], self.terminal) for rung in ways]  # no row needs less
            is_narrow = [
                len(self.block.columns) * (one.width + one.rung.gap) < self.room for one in first[:-1]
            ]
            ways = (*itertools.compress(ways, is_narrow), ways[-1])
        made: list[Drawn] = []
        for numbered in (False, True)[: 1 + can_number]:
            for place, rung in enumerate(ways):
                if place == len(made):
                    made.append(drawn(rung, values, shade, self.terminal))
                pages = self._pages(made[place], numbered)
                if len(pages) == 1 and (numbered or self._has_room(made[place])):
                    return made[place], pages
        if not can_number:  # narrow columns have no room for a word
            made = [one for one in made if self._has_room(one)] or made
        numbered = can_number and (bool(self.block.marks) or not self._has_room(made[-1]))
        return made[-1], self._pages(made[-1], numbered)

    def _has_room(self, matrix: Drawn) -> bool:
        """Tell whether columns are headed by whole labels; numbers may stand in narrow ones digit below digit."""
        is_wide = not matrix.rung.block or self.heads_are_numbers
        return is_wide or all(texts.cells(visible(name)) <= matrix.width for name in self.block.columns)

    def _edge(self, names: Sequence[str]) -> int:
        return max([len(self.block.corner), *map(texts.cells, names)])

    def _pages(self, matrix: Drawn, numbered: bool) -> list[_Page]:
        """Return the columns in pages; each is as wide as its numbers, and as its label where it is not numbered."""
        gap, tail = matrix.rung.gap, self.tail + (not matrix.rung.gap)
        rows = texts.labels(self.block.rows, self.terminal, LABEL)
        if numbered and self.block.row_numbers is not None:
            digits = len(str(max(self.block.row_numbers)))
            rows = [f"{i:>{digits}} {name}" for i, name in zip(self.block.row_numbers, rows, strict=True)]
        # On a narrow terminal the labels of a row and of a column share what the numbers leave.
        most = min(LABEL, max(matrix.width, (self.room - tail - gap) // 2))
        names = texts.labels(self.block.columns, self.terminal, most)
        least = max(matrix.width, len(str(len(names) - 1)) if numbered and gap else 0)
        needed = [least + gap] * len(names)
        if not (numbered or matrix.rung.block or (not gap and self.heads_are_numbers)):
            needed = [max(least, texts.cells(name)) + gap for name in names]
        edge = self._edge(rows)
        if edge + max(needed) + tail > self.room:
            edge = max(1, self.room - tail - max(needed))
        pages = []
        for start, stop in spans_within(needed, self.room - edge - tail):
            some = names[start:stop]
            widths = [least] * len(some) if numbered else _widths(some, matrix, self.room - edge - tail)
            pages.append(_Page(start, stop, edge, widths, numbered, rows, some))
        return pages

    def _page(self, page: _Page) -> Iterator[Line]:
        matrix, sums, span = self.matrix, self.block.sums, slice(page.start, page.stop)
        margin = " " * (not matrix.rung.gap)  # before the first cell, where there is no gap
        *above, last = _headers(matrix, page)
        for header, corner, end in (*((one, "", "") for one in above), (last, self.block.corner, SUM)):
            edge = texts.padded(texts.cut(corner, page.edge), page.edge) + margin
            total = texts.padded_left(end, self.tail) if end and sums else ""
            yield [Segment(edge), Segment(header, BOLD), Segment(total)]
        masked, full = texts.masked_mark(self.terminal), [width + matrix.rung.gap for width in page.widths]
        inked = [*self.styles, None]  # the last, -1, is a masked cell's
        for i, name in enumerate(page.rows):
            line = [Segment(texts.padded(texts.cut(name, page.edge), page.edge) + margin, BOLD)]
            places = matrix.shade[i, span].tolist()
            for text, place, width in zip(matrix.texts[i][span], places, full, strict=True):
                line.append(Segment((text if place >= 0 else masked).rjust(width), inked[place]))
            if sums:
                line.append(Segment(texts.padded_left(sums[i], self.tail)))
            yield line


def _headers(matrix: Drawn, page: _Page) -> list[str]:
    """Return the header lines: labels, or numbers, cut into pieces as wide as their columns, `most` at the most."""
    names = [str(j) for j in range(page.start, page.stop)] if page.numbered else page.names
    most, stacks = 4 if min(page.widths) > 2 else LABEL, list[list[str]]()
    for name, width in zip(names, page.widths, strict=True):
        pieces = [""]
        for char in name:
            if pieces[-1] and texts.cells(pieces[-1] + char) > width:
                pieces.append("")
            pieces[-1] += char
        if len(pieces) > most:
            pieces[most - 1 :] = [texts.cut("".join(pieces[most - 1 :]), width)]
        stacks.append([piece if texts.cells(piece) <= width else "?" for piece in pieces])
    gap, lines = " " * matrix.rung.gap, itertools.zip_longest(*map(reversed, stacks), fillvalue="")
    padded = (map(texts.padded_left, line, page.widths) for line in lines)  # the lowest line first
    return ["".join(gap + piece for piece in line) for line in padded][::-1]


def spans_within(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Cut columns into spans that take at most `room` cells, but one column at least."""
    start, used = 0, 0
    for place, width in enumerate(widths):
        if place > start and used + width > room:
            yield start, place
            start, used = place, 0
        used += width
    yield start, len(widths)


def _widths(names: Sequence[str], matrix: Drawn, room: int) -> list[int]:
    """Return the columns' widths: as wide as their labels where there is room, evenly less where not."""
    lengths = [0 if matrix.rung.block else texts.cells(name) for name in names]
    room -= matrix.rung.gap * len(names)
    widest = max(matrix.width, *lengths)
    if widest * len(names) <= room:
        return [widest] * len(names)
    for most in range(LABEL, matrix.width, -1):
        widths = [max(matrix.width, min(length, most)) for length in lengths]
        if sum(widths) <= room:
            return widths
    return [matrix.width] * len(names)


def shade_line(
    legend: Legend, ramp: str, styles: Sequence[Style | None], terminal: Terminal, mark: str = ""
) -> Iterator[Line]:
    """Yield the legend of shades: a patch of each, from the least value to the largest, where there is room.

    `mark` is that of a masked cell, where it is not the usual one.
    """
    masked = f"{mark or texts.masked_mark(terminal)} masked" if legend.has_masked else ""
    tail = "".join(f"   {part}" for part in (legend.more, masked) if part)
    text = f"shades: {legend.low} to {legend.high}{tail}" if legend.low else masked
    if legend.low and legend.low == legend.high:
        text = f"shades: all are {legend.low}{tail}"
    elif legend.low:
        inks = [styles[i * (SHADES - 1) // (len(ramp) - 1)] for i in range(len(ramp))]
        ends = Segment(f"shades: {legend.low} "), Segment(f" {legend.high}{tail}")
        line = [ends[0], *map(Segment, ramp, inks), ends[1]]
        if terminal.width is None or texts.line_width(line) <= terminal.width:
            yield line
            return
    yield from texts.wrapped(text, terminal.width)


def shade_patch(style: Style | None) -> Style | None:
    """Return the style of a patch in the legend: a cell's background, without its text."""
    back = style.bgcolor if style else None
    return Style(color=back, bgcolor=back) if back else style
