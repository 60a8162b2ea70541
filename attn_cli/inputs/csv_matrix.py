"""One matrix from a CSV or TSV file, with or without labels in its first row and its first column.

Labels are recognised because they are not numbers. An empty cell, NaN and -inf are what a mask leaves.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.escape import count, visible
from attn_cli.io.files import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from attn_cli.io.array_types import Array

T = TypeVar("T")
SUFFIXES = (".csv", ".tsv")
BLANKS = {"": "nan", "nan": "nan", "null": "nan", "none": "nan", "na": "nan"} | {
    sign + word: f"{sign}inf" for sign in ("", "+", "-") for word in ("inf", "infinity", "∞")
}
CORNERS = ("query", "query\\key")  # what attn writes above its labels
ONE_MATRIX = "A file holds one matrix: numbers alone, or with labels in the first row and column."

# Signs with which a spreadsheet begins a formula; fullwidth ones count in Japanese and Chinese.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "＝", "＋", "－", "＠")


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


def is_csv(path: str | Path) -> bool:
    """Tell by its name whether a file holds one matrix as CSV or TSV."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def read_csv(path: str | Path) -> tuple[Array, list[str] | None, list[str] | None]:
    """Return a file's matrix (rows, columns), its row labels and its column labels; NaN is an empty cell.

    Raises InputError where a cell is not a number or the rows differ in length.
    """
    cells, rows, columns = read_sheet(path)
    return np.array([[float(cell) for cell in row] for row in cells]), rows, columns


def read_sheet(path: str | Path) -> Sheet:
    """Return a file's numbers as they are written, and its labels.

    A .csv may also be separated by semicolons, with decimal commas, as spreadsheets of some countries write it.
    """
    name = visible(str(path))
    return by_separator(read_bytes(path), name, partial(sheet_of, name=name))


def by_separator(data: bytes, name: str, parse: Callable[[list[Line]], T]) -> T:
    """Return what `parse` makes of a table's lines, under the first separator with which it succeeds.

    A name on .tsv means tabs; else commas come first, then semicolons and tabs. Raises the first InputError.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name} looks like UTF-16.", "Save it as UTF-8.")
    text = data.decode("utf-8-sig", "replace")
    is_tsv = os.path.splitext(name)[1].lower() == ".tsv"
    problem = None
    for separator in "\t" if is_tsv else ",;\t":
        if problem is not None and separator not in text:
            continue
        try:
            return parse(_lines(text, separator, name))
        except InputError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _lines(text: str, separator: str, name: str) -> list[Line]:
    """Return the rows that are not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if len(cells) > 1 or any(cells):
                lines.append(Line(reader.line_num, cells, separator != ","))
    except csv.Error as error:
        raise InputError(
            f"{name}, line {reader.line_num}: {error}.", "Look for a quote without end."
        ) from None
    if not lines:
        raise InputError(f"{name} holds no numbers.", ONE_MATRIX)
    return lines


def sheet_of(table: list[Line], name: str) -> Sheet:
    """Return the numbers of a table's lines as they are written, and its labels."""
    lines = [(line.number, [_with_point(cell, line) for cell in line.cells]) for line in table]
    header = lines[0][1] if _is_header([cells for _, cells in lines]) else None
    body = lines[1:] if header is not None else lines
    if not body:
        raise InputError(f"{name} holds no numbers.", ONE_MATRIX)
    width = len(body[0][1])
    for number, cells in body:
        if len(cells) != width:
            held = count(len(cells), "cell", "cells")
            raise InputError(
                f"{name}, line {number}: the row has {held}, line {body[0][0]} has {width}.",
                "Give rows of equally many numbers.",
            )
    labelled = _has_labels(header, [cells for _, cells in body])
    first = 1 if labelled else 0
    if width == first:
        raise InputError(f"{name}, line {body[0][0]}: {_quoted(body[0][1][0])} is not a number.", ONE_MATRIX)
    for number, cells in body:
        for column, cell in enumerate(cells[first:], first):
            if not _is_plain(cell):
                place = f"{name}, line {number}, column {column + 1}"
                raise InputError(f"{place}: {_quoted(cell)} is not a number.", ONE_MATRIX)
    columns = None if header is None else [unguarded(cell) for cell in header[len(header) - width + first :]]
    if header is not None and len(header) not in (width, width - first):
        raise InputError(
            f"{name}, line {lines[0][0]}: there are {len(header)} headings over {width} columns.", ONE_MATRIX
        )
    return Sheet(
        [[BLANKS.get(cell.lower(), cell) for cell in cells[first:]] for _, cells in body],
        [unguarded(cells[0]) for _, cells in body] if labelled else None,
        columns,
    )


def number_in(line: Line, column: int, name: str) -> float:
    """Return the number in a cell, NaN in an empty one; InputError, with the place, where it is none."""
    cell = _with_point(line.cells[column], line)
    if not _is_plain(cell):
        place = f"{name}, line {line.number}, column {column + 1}"
        raise InputError(f"{place}: {_quoted(cell)} is not a number.", ONE_MATRIX)
    return float(BLANKS.get(cell.lower(), cell))


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
    if any(not _is_plain(cell) for cell in first[1:]) or first[0] in CORNERS:
        return True
    if len(first) == 1:
        return not _is_plain(first[0])
    if first[0] == "":  # a masked cell, or nothing above a column of numbers 0, 1, 2 that pandas writes
        return first[1:] == [str(n) for n in range(len(first) - 1)] and all(row[0] != "" for row in rows[1:])
    # Words below, a number above and one fewer in all: the labels' column has no heading.
    return len(first) == len(rows[1]) - 1 and all(not _is_plain(row[0]) for row in rows[1:])


def _has_labels(header: list[str] | None, body: list[list[str]]) -> bool:
    if header is not None and (header[0] in ("", *CORNERS) or len(header) == len(body[0]) - 1):
        return True
    return any(not _is_plain(cells[0]) for cells in body)


def unguarded(label: str) -> str:
    """Take away the apostrophe that keeps a spreadsheet from reading a label as a formula."""
    return label[1:] if label[:1] == "'" and label[1:2] in FORMULA_STARTS else label


def _quoted(cell: str) -> str:
    return repr(visible(cell[:40]))


_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([-+]?[0-9]+))?\s*")
MOST = 400  # a double has no more decimals worth counting


class WrittenNumber(float):
    """A number with the decimals that it was written with."""

    __slots__ = ("decimals",)
    decimals: int

    def __new__(cls, text: str) -> WrittenNumber:
        """Read a number from its text; ValueError where it is none."""
        made = super().__new__(cls, text)
        made.decimals = decimals(text)
        return made


def is_number(text: str) -> bool:
    """Tell whether a text is a number in figures; `nan`, `inf` and `1_000` are none.

    >>> is_number("-1.5e3"), is_number(".5"), is_number("inf"), is_number("1_000")
    (True, True, False, False)
    """
    return _NUMBER.fullmatch(text) is not None


def decimals(text: str) -> int:
    """Return how many decimals the text of a number shows; none where it is not written in figures.

    >>> decimals("0.30"), decimals("12"), decimals("1.5e-3"), decimals("1.25e1"), decimals("NaN")
    (2, 0, 4, 1, 0)
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return 0
    exponent = found[3] or "0"
    power = int(exponent) if len(exponent) < 6 else (-MOST if exponent[0] == "-" else MOST)
    return min(MOST, max(0, len(found[1] or found[2] or "") - power))
