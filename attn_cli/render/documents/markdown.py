"""Blocks to Markdown (GitHub's): tables, headings, code for formulas; tokens shown as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from attn_cli.errors import visible
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
    documents,
    numbers,
)
from attn_cli.settings import View

MOST_COLUMNS = 12
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-!|~:.@$])")


def markdown(blocks: Iterable[Block], view: View) -> str:
    """Return the blocks as a Markdown document."""
    return "\n".join(line for block in blocks for line in _lines(block, view)).strip("\n") + "\n"


def escape(text: str) -> str:
    """Return text that Markdown and HTML show and do not obey."""
    shown = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", shown)


def prose(text: str) -> str:
    r"""Escape a sentence; its full stops, commas and brackets cannot do harm inside a line.

    >>> print(prose("+ 1 (a+b)."))
    \+ 1 (a+b).
    """
    return re.sub(r"(?<=.)\\([().:+\-])", r"\1", escape(text))


def code(text: str) -> str:
    """Return a formula or a command as code."""
    return f"`{visible(text.strip()).replace('`', chr(39))}`"


def cell(text: str) -> str:
    """Return a cell of a table: a number as it is, other text escaped."""
    return text if re.fullmatch(r"[-+]?[0-9.]+(e[-+][0-9]+)?", text) else escape(text)


def table(
    header: Iterable[str],
    rows: Iterable[Sequence[str]],
    label: Callable[[str], str] = escape,
    cell: Callable[[str], str] = cell,
) -> Iterator[str]:
    """Yield the lines of a table; `label` writes the first cell of each line, `cell` the others."""
    for n, (name, *texts) in enumerate([header, *rows]):
        yield f"| {' | '.join([label(name), *map(cell, texts)])} |"
        if n == 0:
            yield "|:--" + "|--:" * len(texts) + "|"
    yield ""


def _lines(block: Block, view: View) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield from (f"{'#' * level} {prose(text)}", "")
        case Say(text, quiet) if text:
            yield from (f"*{prose(text)}*" if quiet else prose(text), "")
        case Formula(text, before):
            yield from (f"{prose(before)} {code(text)}" if before else code(text), "")
        case Matrix():
            yield from _matrix(block.fixed(view.precision))
        case Maps() if block.column_numbers is not None:
            for sheet in documents.map_tables(block):
                shown = [["–" if text == "nan" else text for text in row] for row in sheet.texts]
                rows = [[name, *row] for name, row in zip(sheet.rows, shown, strict=True)]
                yield from table(["query\\key", *sheet.columns], rows)
        case Beside() | Maps():
            titled = (
                block.matrices() if isinstance(block, Maps) else zip(block.titles, block.parts, strict=True)
            )
            for title, part in titled:
                yield from _lines(Heading(title, 3), view)
                yield from _lines(part._replace(corner="") if isinstance(block, Maps) else part, view)
        case Columns(header, rows):
            yield from table(header, rows)
        case Links():
            yield from _links(block)
        case Bars(title, items, _, measure):
            show = numbers.number(3 if view.precision is None else view.precision)
            texts = [(name, "masked" if value is None else show(value)) for name, value in items]
            yield from table([title or "link", measure], texts)


def _matrix(block: Matrix) -> Iterator[str]:
    show = numbers.exact(block)
    block = block.narrowed(MOST_COLUMNS) if block.fits else block
    rows = [
        [name, *("–" if value != value else show(value) for value in values), *block.sums[i : i + 1]]
        for i, (name, values) in enumerate(zip(block.rows, block.values.tolist(), strict=True))
    ]
    yield from table([block.corner, *block.columns, *(["sum"] if block.sums else [])], rows)
    if block.more:
        yield from (f"… {prose(block.more)}", "")


def _links(block: Links) -> Iterator[str]:
    most = max([1, *(len(links) for _, links in block.rows)])
    filled = []
    for query, links in block.rows:
        cells = [f"{key} {weight}" for key, weight in links] or [block.none]
        filled.append([query, *cells, *["–"] * (most - len(cells))])
    yield from table(["query", *(f"{n + 1}." for n in range(most))], filled)
