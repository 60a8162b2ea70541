"""One matrix from CSV or TSV; labels are what is no number, and an empty cell, NaN or -inf what a mask leaves."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from attn_cli.errors import InputError, count, refuse_input, visible
from attn_cli.io.files import read_bytes

T = TypeVar("T")
SUFFIXES = (".csv", ".tsv")
BLANKS = dict.fromkeys(("", "nan", "null", "none", "na"), "nan") | {
    sign + word: f"{sign}inf" for sign in ("", "+", "-") for word in ("inf", "infinity", "∞")
}
CORNERS = ("query", "query\\key")  # what attn writes above its labels
ONE_MATRIX = "A file holds one matrix: numbers alone, or with labels in the first row and column."

# Signs with which a spreadsheet begins a formula; fullwidth ones count in Japanese and Chinese.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([-+]?[0-9]+))?\s*")


class Line(NamedTuple):
    """A row of a table: the number of its line, its cells, and whether commas may stand for decimal points."""

    number: int
    cells: list[str]
    has_commas: bool


class Sheet(NamedTuple):
    """The body of a file as texts that float() takes, and the labels beside and above it, where there are any."""

    cells: list[list[str]]
    rows: list[str] | None
    columns: list[str] | None


def is_csv(name: str | Path) -> bool:
    """Tell by its name whether a file holds one matrix as CSV or TSV."""
    return os.path.splitext(name)[1].lower() in SUFFIXES


def read_sheet(path: str | Path) -> Sheet:
    """Return a file's numbers as they are written, `nan` for an empty cell, and its labels.

    A .csv may also be separated by semicolons, with decimal commas, as spreadsheets of some countries write it. Raises
    InputError where a cell is not a number or the rows differ in length.
    """
    name = visible(str(path))
    return by_separator(read_bytes(path), name, partial(sheet_of, name=name))


def by_separator(data: bytes, name: str, parse: Callable[[list[Line]], T]) -> T:
    """Return what `parse` makes of a table's lines, under the first separator with which it succeeds.

    A name on .tsv means tabs; else commas come first, then semicolons and tabs. Raises the first InputError.
    """
    refuse_input(data[:2] in (b"\xff\xfe", b"\xfe\xff"), f"{name} looks like UTF-16.", "Save it as UTF-8.")
    text = data.decode("utf-8-sig", "replace")
    problems = list[InputError]()
    for separator in "\t" if name.lower().endswith(".tsv") else ",;\t":
        if not problems or separator in text:
            try:
                return parse(_lines(text, separator, name))
            except InputError as problem:
                problems.append(problem)
    raise problems[0] from None


def _lines(text: str, separator: str, name: str) -> list[Line]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if len(cells) > 1 or any(cells):
                lines.append(Line(reader.line_num, cells, separator != ","))
    except csv.Error as error:
        said = f"{name}, line {reader.line_num}: {error}."
        raise InputError(said, "Look for a quote without end.") from None
    refuse_input(not lines, f"{name} holds no numbers.", ONE_MATRIX)
    return lines


def sheet_of(table: list[Line], name: str) -> Sheet:
    """Return the numbers of a table's lines as they are written, and its labels."""
    lines = [line._replace(cells=[_with_point(cell, line) for cell in line.cells]) for line in table]
    header = lines[0].cells if _is_header([line.cells for line in lines]) else None
    body = lines[1:] if header is not None else lines
    refuse_input(not body, f"{name} holds no numbers.", ONE_MATRIX)
    start, width = body[0].number, len(body[0].cells)
    for line in body:
        if len(line.cells) != width:
            held = count(len(line.cells), "cell", "cells")
            said = f"{name}, line {line.number}: the row has {held}, line {start} has {width}."
            raise InputError(said, "Give rows of equally many numbers.")
    is_named = header is not None and (header[0] in ("", *CORNERS) or len(header) == width - 1)
    first = int(is_named or not all(_is_plain(line.cells[0]) for line in body))
    if width == first:
        raise InputError(f"{name}, line {start}: {_quoted(body[0].cells[0])} is not a number.", ONE_MATRIX)
    cells = [[_checked(line.cells[n], line, n, name) for n in range(first, width)] for line in body]
    if header is not None and len(header) not in (width, width - first):
        said = f"{name}, line {lines[0].number}: there are {len(header)} headings over {width} columns."
        raise InputError(said, ONE_MATRIX)
    columns = None if header is None else [*map(unguarded, table[0].cells[len(header) - width + first :])]
    beside = [unguarded(line.cells[0]) for line in table[len(lines) - len(body) :]] if first else None
    return Sheet(cells, beside, columns)


def number_in(line: Line, column: int, name: str) -> float:
    """Return the number in a cell, NaN in an empty one; InputError, with the place, where it is none."""
    return float(_checked(_with_point(line.cells[column], line), line, column, name))


def _checked(cell: str, line: Line, column: int, name: str) -> str:
    if not _is_plain(cell):
        place = f"{name}, line {line.number}, column {column + 1}"
        raise InputError(f"{place}: {_quoted(cell)} is not a number.", ONE_MATRIX)
    return BLANKS.get(cell.lower(), cell)


def _with_point(cell: str, line: Line) -> str:
    pointed = cell.replace(",", ".", 1) if line.has_commas else cell
    return pointed if is_number(pointed) else cell


def _is_plain(cell: str) -> bool:
    return is_number(cell) or cell.lower() in BLANKS


def _is_header(rows: list[list[str]]) -> bool:
    """Tell whether the first row names the columns: a word in it, or attn's or pandas' corner above labels."""
    first = rows[0]
    if len(rows) == 1:
        return False
    if not all(map(_is_plain, first[1:] or first)) or first[0] in CORNERS:
        return True
    if first[0] == "":  # a masked cell, or nothing above a column of numbers 0, 1, 2 that pandas writes
        return first[1:] == list(map(str, range(len(first) - 1))) and all(row[0] for row in rows[1:])
    # Words below, a number above and one fewer in all: the labels' column has no heading.
    return 1 < len(first) == len(rows[1]) - 1 and not any(_is_plain(row[0]) for row in rows[1:])


def as_cell(value: object) -> object:
    """Return text as a cell that nothing obeys: control characters spelled out, and no formula."""
    if not isinstance(value, str):
        return value
    return ("'" if value[:1] in FORMULA_STARTS else "") + visible(value)


def unguarded(label: str) -> str:
    """Take away the apostrophe that keeps a spreadsheet from reading a label as a formula."""
    return label[1:] if label[:1] == "'" and label[1:2] in FORMULA_STARTS else label


def _quoted(cell: str) -> str:
    return repr(visible(cell[:40]))


def is_number(text: str) -> bool:
    """Tell whether a text is a number in figures; `nan`, `inf` and `1_000` are none.

    >>> is_number("-1.5e3"), is_number(".5"), is_number("inf"), is_number("1_000")
    (True, True, False, False)
    """
    return _NUMBER.fullmatch(text) is not None


class WrittenNumber(float):
    """A number with the decimals that its text shows; none where it is not written in figures.

    >>> [WrittenNumber(text).decimals for text in ("0.30", "12", "1.5e-3", "1.25e1", "NaN")]
    [2, 0, 4, 1, 0]
    """

    __slots__ = ("decimals",)
    decimals: int

    def __new__(cls, text: str) -> WrittenNumber:
        """Read a number from its text; ValueError where it is none."""
        made, found = super().__new__(cls, text), _NUMBER.fullmatch(text)
        fraction, exponent = ("", "0") if found is None else (found[1] or found[2] or "", found[3] or "0")
        power = int(exponent[:6])  # of a longer one all digits would be too many
        made.decimals = min(400, max(0, len(fraction) - power))  # a double has no more worth counting
        return made
