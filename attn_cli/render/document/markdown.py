"""Blocks to Markdown (GitHub's): tables, headings, code for formulas; tokens shown as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_cli.io.escape import visible
from attn_cli.render.blocks import (
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
    digits_of,
    fitting_columns,
)
from attn_cli.render.document.page_tables import map_sheets
from attn_cli.render.width_ladder import rungs
from attn_cli.settings.output import View

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
    """Escape a sentence; its full stops, commas and brackets cannot do harm inside a line."""
    return re.sub(r"(?<=.)\\([().:+\-])", r"\1", escape(text))


def _lines(block: Block, view: View) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"{'#' * level} {prose(text)}"
            yield ""
        case Say(text, quiet):
            if text:
                yield f"*{prose(text)}*" if quiet else prose(text)
                yield ""
        case Formula(text, before):
            shown = visible(text.strip()).replace("`", "'")
            yield f"{prose(before)} `{shown}`" if before else f"`{shown}`"
            yield ""
        case Matrix():
            yield from _matrix(block, view)
        case Beside(titles, parts):
            for title, part in zip(titles, parts, strict=True):
                yield f"### {prose(title)}"
                yield ""
                yield from _matrix(part, view)
        case Maps() if block.column_numbers is not None:
            for sheet in map_sheets(block):
                texts = [["–" if text == "nan" else text for text in row] for row in sheet.texts]
                rows = [[name, *row] for name, row in zip(sheet.rows, texts, strict=True)]
                yield from _table(["query\\key", *sheet.columns], rows)
        case Maps():
            for name, values in zip(block.names, block.values, strict=True):
                yield f"### {prose(name)}"
                yield ""
                yield from _matrix(Matrix(block.rows, block.columns, values, is_weights=True), view)
        case Columns(header, rows):
            yield from _table(header, rows)
        case Links(rows, none):
            most = max([1, *(len(links) for _, links in rows)])
            texts = [[f"{key} {weight}" for key, weight in links] for _, links in rows]
            filled = [
                [query, *(line or [none]), *(["–"] * (most - max(1, len(line))))]
                for (query, _), line in zip(rows, texts, strict=True)
            ]
            yield from _table(["query", *(f"{n + 1}." for n in range(most))], filled)
        case Bars(title, items, _):
            digits = 3 if view.precision is None else view.precision
            shown_items = [(name, "masked" if v is None else f"{v:.{digits}f}") for name, v in items]
            yield from _table([title or "link", "weight"], shown_items)


def _matrix(block: Matrix, view: View) -> Iterator[str]:
    precision = digits_of(block, view.precision)
    show = rungs(block.values, block.is_weights, precision, block.is_difference, block.marks)[0].format
    assert show is not None  # the first rung has digits
    across = MOST_COLUMNS if block.fits and block.values.shape[1] > MOST_COLUMNS else block.values.shape[1]
    few = fitting_columns(block, across)
    sums = list(block.sums)
    header = [block.corner, *block.columns[few], *(["sum"] if sums else [])]
    rows = []
    for i, (name, values) in enumerate(zip(block.rows, block.values[:, few].tolist(), strict=True)):
        numbers = [show(value) if value == value else "–" for value in values]
        rows.append([name, *numbers, *(sums[i : i + 1])])
    yield from _table(header, rows)
    hidden = block.values.shape[1] - across
    more = ", ".join(filter(None, [f"{hidden} more columns" if hidden else "", block.more]))
    if more:
        yield f"… {prose(more)}"
        yield ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(escape(text) for text in header) + " |"
    yield "|:--" + "|--:" * (len(header) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join([escape(row[0]), *map(_cell, row[1:])]) + " |"
    yield ""


def _cell(text: str) -> str:
    return text if re.fullmatch(r"[-+]?[0-9.]+(e[-+][0-9]+)?", text) else escape(text)
