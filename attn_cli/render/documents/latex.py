"""Blocks to LaTeX: a file that compiles alone and that a document of one's own can input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_cli.io.files import beside
from attn_cli.render import (
    Bars,
    Beside,
    Block,
    Columns,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Say,
    documents as pages,
    numbers,
)
from attn_cli.render.documents.tex_escape import HELPERS, arithmetic, escape, is_shown, prose
from attn_cli.render.ramps import (
    PAPER,
    RGB,
    SHADES,
    Legend,
    legend,
    on_scale,
    ramp,
    sharing_scale,
    strong,
    text_on,
)
from attn_cli.settings import View

TALL = 36  # rows of a table that fit a page
ACROSS = 5  # links on a line
ABREAST = 24  # columns in all that matrices may have which stand next to each other
BAR = 40.0  # millimetres


def latex(blocks: Iterable[Block], view: View) -> str:
    """Return the blocks as LaTeX, in ASCII, for amsmath, amssymb, booktabs, graphicx and xcolor with `table`."""
    shown = pages.without_maps(on_scale(blocks, view), view)
    lines = [line for block in shown for line in _lines(block, view)]
    # \textwidth is enormous until a class is loaded: so the file knows whether it is a document of its own.
    head, foot = beside(__file__, "document.tex").replace("@helpers@", HELPERS).split("\n@blocks@\n")
    return "\n".join([head, *lines, foot])


def _lines(block: Block, view: View) -> Iterator[str]:
    match block:
        case Heading(text, level):
            kind = {1: r"\attntitle{", 2: r"\attnpart{"}.get(level, r"\attnpart{\itshape ")
            yield f"{kind}{prose(text)}}}"
        case Say(text, quiet) if text:
            yield rf"\attnaside{{{prose(text)}}}" if quiet else f"{prose(text)}\\par"
        case Formula(text, before, latex):
            words = f"{prose(before)} " if before else ""
            paper = rf"\qquad $\displaystyle {latex}$" if latex else ""
            yield rf"{{\leftskip1em\relax {words}{arithmetic(text.strip())}{paper}\par}}\nobreak"
        case Matrix():
            yield from _matrix(block, view)
        case Beside(titles, parts):
            across = len(parts) if len(parts) * len(parts[0].columns) <= ABREAST else 1
            opening = [rf"\begin{{minipage}}[t]{{{0.96 / across:.3f}\linewidth}}"] * (across > 1)
            for title, part in zip(titles, sharing_scale(parts), strict=True):
                yield from (*opening, *_lines(Heading(title, 3), view), *_matrix(part, view))
                yield from [r"\end{minipage}\hfill"] * (across > 1)
            yield r"\par"
        case Maps():
            yield from _maps(block, view)
        case Columns(header, rows):
            heads = _row([_label(header[0]), *map(arithmetic, header[1:])])
            lines = [_row([rf"\textbf{_label(row[0])}", *map(_written, row[1:])]) for row in rows]
            yield from _in_pages(f"l{'r' * (len(header) - 1)}", lines, [heads, r"\midrule"])
        case Links():
            yield from _links(block)
        case Bars():
            yield from _bars(block, view)


def _matrix(block: Matrix, view: View) -> Iterator[str]:
    """Yield the tables of a matrix, each made smaller where it is wider than the line."""
    layout = pages.laid_out(block, view, _width, TALL)
    colours = ramp(view.palette or PAPER, block.is_difference) if pages.is_coloured(block, view) else None
    kind, gap = "c" if layout.bare or block.is_weights else "r", "0pt" if layout.bare else "3pt"
    for table in layout.tables:
        if table.caption:
            yield rf"{{\small {escape(table.caption.capitalize())}:\par}}\nobreak"
        heads = [rf"\attnturn{_label(name)}" if layout.turned else _label(name) for name in table.columns]
        tail = ["sum"] if table.sums else []
        lines = [_row([_label(block.corner), *heads, *tail]), r"\midrule"]
        for name, cells, total in table.lines():
            shown = [_cell(text, place, layout.bare, colours) for text, place in cells]
            lines.append(_row([rf"\textbf{_label(name)}", *shown, *map(_number, total)]))
        yield _tabular(r"l@{\enspace}" + kind * len(heads) + (r"@{\quad}r" if tail else ""), lines, gap)
    if colours and block.marks is None:
        yield _legend(legend(block), colours)
    for note in layout.notes:
        yield rf"\attnaside{{{prose(note)}}}"


def _width(name: str) -> float:
    """Return about how many digits wide a label is set."""
    return sum(1.0 if is_shown(char) else 5.0 for char in pages.label(name))


def _label(name: str) -> str:
    return f"{{{escape(pages.label(name))}}}"  # in braces: after a line's end, [ and * would be commands


def _tabular(spec: str, lines: Sequence[str], gap: str) -> str:
    """Return a booktabs table that is never wider than the line."""
    opening = rf"\attnfit{{\setlength{{\tabcolsep}}{{{gap}}}\begin{{tabular}}{{{spec}}}"
    return "\n".join([opening, r"\toprule", *lines, r"\bottomrule", r"\end{tabular}}\par"])


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(text: str, place: int, bare: bool, colours: Sequence[RGB] | None) -> str:
    if place < 0:
        return "--"
    if colours is None:
        return _number(text)
    back = colours[place]
    if bare:
        return rf"\attnheat{{{_hex(back)}}}"
    return rf"\attncell{{{_hex(back)}}}{{{_hex(text_on(back))}}}{{{_number(text)}}}"


def _number(text: str) -> str:
    return f"$-${text[1:]}" if text.startswith("-") else f"$+${text[1:]}" if text.startswith("+") else text


def _hex(colour: RGB) -> str:
    return bytes(colour).hex().upper()


def _legend(legend: Legend, colours: Sequence[RGB]) -> str:
    masked = f" ({legend.more})" * bool(legend.more) + r"\quad -- masked" * legend.has_masked
    text = f"All are {_number(legend.low)}." * bool(legend.low)
    if legend.low != legend.high:
        steps = [colours[i * (SHADES - 1) // 15] for i in range(16)]
        patches = "".join(rf"\attnbar{{{_hex(colour)}}}{{2}}" for colour in steps)
        text = rf"Shades: {_number(legend.low)} {patches} {_number(legend.high)}"
    return rf"{{\small {text}{masked}\par}}"


def _maps(block: Maps, view: View) -> Iterator[str]:
    colours = ramp(view.palette or PAPER)
    yield r"{\lineskip8pt\lineskiplimit8pt"
    for table in pages.map_tables(block):
        heads = [rf"\tiny {name[-1]}" for name in table.columns]
        if block.column_numbers is not None:
            heads = [rf"\attnturn{{\tiny {name}}}" for name in table.columns]
        title = rf"& \multicolumn{{{len(heads)}}}{{l@{{}}}}{{\bfseries {_label(table.caption)}}} \\"
        lines = [*([title] if table.caption else []), _row(["", *heads])]
        for name, cells, _ in table.lines():
            shown = [_cell("", place, True, colours) for _, place in cells]
            lines.append(_row([rf"\scriptsize {_label(name)}", *shown]))
        setting = r"\scriptsize\setlength{\tabcolsep}{0pt}"
        opening = rf"\attnfit{{{setting}\begin{{tabular}}[t]{{r@{{\enspace}}{'c' * len(heads)}}}"
        yield "\n".join([opening, *lines, r"\end{tabular}}\quad"])
    columns = pages.map_columns(block)
    yield r"\par}" + (rf"{{\small {prose(columns)}\par}}" if columns else "")
    yield _legend(legend(block), colours)


def _in_pages(spec: str, rows: Sequence[str], header: Sequence[str] = ()) -> Iterator[str]:
    for top in range(0, len(rows), TALL):
        yield _tabular(spec, [*header, *rows[top : top + TALL]], "5pt")


def _written(text: str) -> str:
    """Return a cell of a small table: numbers as arithmetic, words (a code, a file's name) as words."""
    is_words = re.search(r"[A-Za-z_]{2}", text) and not re.search(r"\de[-+]\d", text)
    return prose(text) if is_words else arithmetic(text)


def _links(block: Links) -> Iterator[str]:
    """Yield each query's strongest keys; what does not fit a line goes below."""
    across = min(ACROSS, max([1, *(len(links) for _, links in block.rows)]))
    lines: list[str] = []
    for query, links in block.rows:
        cells = [f"{_label(key)} & {_number(weight)}" for key, weight in links] or [f"{escape(block.none)} &"]
        for start in range(0, len(cells), across):
            name = rf"\textbf{_label(query)}" if start == 0 else ""
            filled = cells[start : start + across]
            lines.append(_row([name, *filled, *["&"] * (across - len(filled))]))
    return _in_pages("l" + "@{\\quad}l@{\\enspace}r" * across, lines)


def _bars(block: Bars, view: View) -> Iterator[str]:
    if block.title:
        yield rf"{{\bfseries {prose(block.title)}\par}}\nobreak"
    colours = strong(view.palette or PAPER)
    lines = []
    for (name, value), text in zip(block.items, numbers.bar_numbers(block, view.precision), strict=True):
        part = block.length(value)
        colour = (90, 90, 90) if view.color == "never" else colours[round(part * (SHADES - 1))]
        bar = rf"\attnbar{{{_hex(colour)}}}{{{part * BAR:.2f}}}" if part else ""
        lines.append(_row([rf"\textbf{_label(name)}", _number(text), bar]))
    yield from _in_pages("lrl", lines)
