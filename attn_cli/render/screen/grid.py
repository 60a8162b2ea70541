"""A matrix that fits its terminal: shaded cells, headers that can be read, a legend, pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.array_types import Ints
from attn_cli.io.classes import NamedTuple
from attn_cli.io.escape import visible
from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Matrix
from attn_cli.render.numbers import SIGNS, Drawn, Rung, bars, drawn, rungs
from attn_cli.render.palette import BOLD, SHADES, styles_on
from attn_cli.render.screen import text as texts
from attn_cli.render.shade_scale import Legend, legend, shade_range, shading

LABEL = 12
SUM = "sum"


class _Page(NamedTuple):
    start: int
    stop: int
    edge: int  # the width of the row labels
    widths: list[int]
    room: int
    numbered: bool
    rows: list[str]
    names: list[str]


class Grid(NamedTuple):
    """A matrix to draw on a terminal, in the shades of a palette."""

    block: Matrix
    palette: str | None = None
    ways: tuple[Rung, ...] = ()  # the rungs to choose from; the usual ones if there are none

    def lines(self, terminal: Terminal) -> Iterator[Line]:
        """Yield the matrix, its legend and what was condensed; no line is wider than the terminal."""
        matrix, pages = self._fitted(terminal)
        yield from self._body(matrix, pages, terminal)
        yield from self._legend(matrix, pages, terminal)

    def fits(self, terminal: Terminal, named: bool = False) -> bool:
        """Tell whether all columns stand beside each other, with the rows' labels whole; `named`: and their own."""
        return self._fits(self._fitted(terminal)[1], named)

    def _fits(self, pages: list[_Page], named: bool = False) -> bool:
        is_named = not pages[0].numbered or self.block.marks is not None
        return len(pages) == 1 and pages[0].edge >= self._edge(pages[0].rows) and (is_named or not named)

    def parts(self, terminal: Terminal) -> tuple[list[Line], list[Line], bool]:
        """Return the matrix, what stands under it, and whether it fits: laid out once for all three."""
        matrix, pages = self._fitted(terminal)
        body, below = self._body(matrix, pages, terminal), self._legend(matrix, pages, terminal)
        return list(body), list(below), self._fits(pages)

    def body(self, terminal: Terminal) -> Iterator[Line]:
        """Yield the matrix alone."""
        yield from self._body(*self._fitted(terminal), terminal)

    def legend(self, terminal: Terminal, room: Terminal | None = None) -> Iterator[Line]:
        """Yield what stands under the matrix: names of numbered columns, shades, and what was done to fit `room`."""
        yield from self._legend(*self._fitted(room or terminal), terminal)

    def _body(self, matrix: Drawn, pages: list[_Page], terminal: Terminal) -> Iterator[Line]:
        styles = self._styles(matrix, terminal)
        for number, page in enumerate(pages):
            if number:
                yield []
            if len(pages) > 1:
                span = f"columns {page.start} to {page.stop - 1} of {len(self.block.columns)}"
                yield [Segment(texts.cut(span, page.room))]
            yield from self._page(matrix, page, styles, terminal)

    def _legend(self, matrix: Drawn, pages: list[_Page], terminal: Terminal) -> Iterator[Line]:
        block = self.block
        if pages[0].numbered and list(block.rows) != list(block.columns):
            named = [f"{j} {name}" for j, name in enumerate(texts.labels(block.columns, terminal, LABEL))]
            yield from texts.wrapped(f"columns: {', '.join(named)}", terminal.width)
        if block.shaded and block.marks is None:
            ramp = SIGNS if block.is_difference else bars(terminal)
            styles = self._styles(matrix, terminal)
            patches = styles if block.is_difference else [shade_patch(style) for style in styles]
            yield from shade_line(legend(block), ramp, patches, terminal)
        condensed = [matrix.rung.name] if matrix.rung.name else []
        if pages[0].numbered and not matrix.rung.block:
            condensed.append("numbered columns")
        if len(pages) > 1:
            condensed.append(f"{len(pages)} pages of columns")
        if condensed:
            more = ", -q or --top" if block.row_numbers is not None else ""
            text = f"To fit: {', '.join(condensed)}. A wider terminal{more} shows more."
            yield from texts.wrapped(text, terminal.width)

    def _fitted(self, terminal: Terminal) -> tuple[Drawn, list[_Page]]:
        """Return the first rung on which all columns fit beside each other, else one in pages.

        No label is broken: columns whose labels leave no room for all of them are numbered as the rows are.
        """
        shade = shading(self.block.values, shade_range(self.block))
        ways = self.ways or rungs(self.block)
        can_number = self.block.row_numbers is not None
        if can_number:  # else the last rung with room for words is looked for below
            ways = (*(rung for rung in ways[:-1] if self._may_fit(rung, shade, terminal)), ways[-1])
        made: list[Drawn] = []
        for numbered in (False, True) if can_number else (False,):
            for place, rung in enumerate(ways):
                if place == len(made):
                    made.append(drawn(rung, self.block.values, shade, terminal))
                pages = self._pages(made[place], terminal, numbered)
                if len(pages) == 1 and (numbered or self._has_room(made[place])):
                    return made[place], pages
        if not can_number:  # narrow columns have no room for a word
            made = [one for one in made if self._has_room(one)] or made
        numbered = can_number and (bool(self.block.marks) or not self._has_room(made[-1]))
        return made[-1], self._pages(made[-1], terminal, numbered)

    def _may_fit(self, rung: Rung, shade: Ints, terminal: Terminal) -> bool:
        """Tell whether the columns can stand beside each other as far as the first row tells; no rung needs less."""
        least = drawn(rung, self.block.values[:1], shade[:1], terminal).width + rung.gap
        return len(self.block.columns) * least < (terminal.width or texts.UNLIMITED)

    def _has_room(self, matrix: Drawn) -> bool:
        """Tell whether columns are headed by whole labels; numbers may stand in narrow ones digit below digit."""
        is_wide = not matrix.rung.block or self._heads_are_numbers
        return is_wide or all(texts.cells(visible(name)) <= matrix.width for name in self.block.columns)

    @property
    def _heads_are_numbers(self) -> bool:
        return all(name.isdecimal() for name in self.block.columns)

    def _edge(self, names: Sequence[str]) -> int:
        return max([len(self.block.corner), *map(texts.cells, names)])

    def _tail(self) -> int:
        """Return the width of the column of sums, with the gap before it."""
        return max(map(texts.cells, [*self.block.sums, SUM])) + 2 if self.block.sums else 0

    def _pages(self, matrix: Drawn, terminal: Terminal, numbered: bool) -> list[_Page]:
        """Return the columns in pages; each is as wide as its numbers, and as its label where it is not numbered."""
        room = texts.UNLIMITED if terminal.width is None else terminal.width
        gap, tail = matrix.rung.gap, self._tail() + len(matrix.margin)
        rows = self._row_names(numbered, terminal)
        # On a narrow terminal the labels of a row and of a column share what the numbers leave.
        most = min(LABEL, max(matrix.width, (room - tail - gap) // 2))
        names = texts.labels(self.block.columns, terminal, most)
        least = max(matrix.width, len(str(len(names) - 1)) if numbered and gap else 0)
        if numbered or matrix.rung.block or (not gap and self._heads_are_numbers):
            needed = [least + gap] * len(names)
        else:
            needed = [max(least, texts.cells(name)) + gap for name in names]
        edge = self._edge(rows)
        if edge + max(needed) + tail > room:
            edge = max(1, room - tail - max(needed))
        pages = []
        for start, stop in spans_within(needed, room - edge - tail):
            some = names[start:stop]
            widths = [least] * len(some) if numbered else _widths(some, matrix, room - edge - tail)
            pages.append(_Page(start, stop, edge, widths, room, numbered, rows, some))
        return pages

    def _row_names(self, numbered: bool, terminal: Terminal) -> list[str]:
        names = texts.labels(self.block.rows, terminal, LABEL)
        if not numbered or self.block.row_numbers is None:
            return names
        digits = len(str(max(self.block.row_numbers)))
        return [f"{i:>{digits}} {name}" for i, name in zip(self.block.row_numbers, names, strict=True)]

    def _page(
        self, matrix: Drawn, page: _Page, styles: Sequence[Style | None], terminal: Terminal
    ) -> Iterator[Line]:
        tail, heads = self._tail(), _headers(matrix, page)
        for n, header in enumerate(heads, 1):
            corner, end = (self.block.corner, SUM) if n == len(heads) else ("", "")
            end = texts.padded_left(end, tail) if end and self.block.sums else ""
            edge = texts.padded(texts.cut(corner, page.edge), page.edge) + matrix.margin
            yield [Segment(edge), Segment(header, BOLD), Segment(end)]
        masked = texts.masked_mark(terminal)
        full = [width + matrix.rung.gap for width in page.widths]
        inked = [*styles, None]  # the last, -1, is a masked cell's
        span = slice(page.start, page.stop)
        for i, name in enumerate(page.rows):
            places = matrix.shade[i, span].tolist()
            numbers = matrix.texts[i][span]
            if -1 in places:
                placed = zip(numbers, places, strict=True)
                numbers = [text if place >= 0 else masked for text, place in placed]
            line = [Segment(texts.padded(texts.cut(name, page.edge), page.edge) + matrix.margin, BOLD)]
            line += _segments(map(str.rjust, numbers, full), map(inked.__getitem__, places))
            if self.block.sums:
                line.append(Segment(texts.padded_left(self.block.sums[i], tail)))
            yield line

    def _styles(self, matrix: Drawn, terminal: Terminal) -> Sequence[Style | None]:
        if not self.block.shaded:
            return [None] * SHADES
        is_ink = bool(matrix.rung.block) and not self.block.is_difference and not terminal.is_picture
        return styles_on(terminal, self.palette, is_ink, self.block.is_difference)


def _segments(texts: Iterable[str], styles: Iterable[Style | None]) -> Iterator[Segment]:
    """Return segments of these texts and styles; a named tuple's own constructor is Python, and takes twice as long."""
    return map(partial(tuple.__new__, Segment), zip(texts, styles, repeat(None)))


def _headers(matrix: Drawn, page: _Page) -> list[str]:
    """Return the header lines: labels, or numbers, cut into pieces as wide as their columns."""
    names = [str(j) for j in range(page.start, page.stop)] if page.numbered else page.names
    most = 4 if min(page.widths) > 2 else LABEL
    stacks = [_stacked(name, width, most) for name, width in zip(names, page.widths, strict=True)]
    height, gap = max(map(len, stacks)), " " * matrix.rung.gap
    columns = [
        [gap + texts.padded_left(piece, width) for piece in [""] * (height - len(stack)) + stack]
        for stack, width in zip(stacks, page.widths, strict=True)
    ]
    return ["".join(pieces) for pieces in zip(*columns, strict=True)]


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
    if matrix.rung.block:
        return [matrix.width] * len(names)
    lengths = [texts.cells(name) for name in names]
    widest = max(matrix.width, *lengths)
    if (widest + matrix.rung.gap) * len(names) <= room:
        return [widest] * len(names)
    for most in range(LABEL, matrix.width, -1):
        widths = [max(matrix.width, min(length, most)) for length in lengths]
        if sum(widths) + matrix.rung.gap * len(widths) <= room:
            return widths
    return [matrix.width] * len(names)


def _stacked(name: str, width: int, most: int) -> list[str]:
    """Cut a label into pieces of `width` cells, one below the other, `most` at the most."""
    pieces = [""]
    for char in name:
        if pieces[-1] and texts.cells(pieces[-1] + char) > width:
            pieces.append("")
        pieces[-1] += char
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], texts.cut("".join(pieces[most - 1 :]), width)]
    return [piece if texts.cells(piece) <= width else "?" for piece in pieces]


def shade_line(
    legend: Legend, ramp: str, styles: Sequence[Style | None], terminal: Terminal, mark: str = ""
) -> Iterator[Line]:
    """Yield the legend of shades: a patch of each, from the least value to the largest, where there is room.

    `mark` is that of a masked cell, where it is not the usual one.
    """
    masked = f"{mark or texts.masked_mark(terminal)} masked" if legend.has_masked else ""
    if not legend.low:
        yield from texts.wrapped(masked, terminal.width)
        return
    tail = "".join(f"   {part}" for part in (legend.more, masked) if part)
    if legend.low == legend.high:
        yield from texts.wrapped(f"shades: all are {legend.low}{tail}", terminal.width)
        return
    inks = [styles[i * (SHADES - 1) // (len(ramp) - 1)] for i in range(len(ramp))]
    patches = map(Segment, ramp, inks)
    line = [Segment(f"shades: {legend.low} "), *patches, Segment(f" {legend.high}{tail}")]
    if terminal.width is None or texts.line_width(line) <= terminal.width:
        yield line
    else:
        yield from texts.wrapped(f"shades: {legend.low} to {legend.high}{tail}", terminal.width)


def shade_patch(style: Style | None) -> Style | None:
    """Return the style of a patch in the legend: a cell's background, without its text."""
    if style is None or style.bgcolor is None:
        return style
    return Style(color=style.bgcolor, bgcolor=style.bgcolor)
