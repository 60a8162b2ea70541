"""Lines of word vectors as text: a word, and its numbers counted from the right; what a header claims.

Fields are parted by spaces and tabs, and by nothing else that looks like space: a word may hold anything but a newline.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.vectors.table import LONGEST_WORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_NUMBERS = 100_000
FIRST_ROWS = 100
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r"
Row: TypeAlias = tuple[int, list[bytes]]  # a line's number, and its fields


def fields_of(line: bytes) -> list[bytes]:
    """Return what stands between spaces and tabs."""
    return [field for field in line.rstrip(BLANK).replace(b"\t", b" ").split(b" ") if field]


def first_rows(lines: list[bytes]) -> list[Row]:
    """Return the first lines that are not blank, as fields, with their numbers."""
    filled = ((number, fields_of(line)) for number, line in enumerate(lines, 1) if line.strip(BLANK))
    return list(islice(filled, FIRST_ROWS))


def measured(rows: list[Row], name: str, is_all: bool) -> tuple[int | None, int]:
    """Return (words claimed by a header, numbers in a vector) as the first rows have them."""
    if not rows:
        raise InputError(f"{name} is empty.", "Type a word and its numbers on each line.")
    header = _header(rows, name)
    if header:
        if header[1] > MOST_NUMBERS:
            raise InputError(f"{name}, line 1: {header[1]:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
        if len(rows) == 1 and is_all:
            raise InputError(f"{name}, line 1: the header claims {header[0]:,} words; there are none below.")
        return header
    lengths = [len(fields) for _, fields in rows]
    usual = max(lengths, key=lengths.count)
    count = lengths.count(usual)
    if count == 1 or usual < 2:
        usual = len(rows[0][1])
    if usual < 2:
        hint = "Type them after the word."
        if b"," in rows[0][1][0]:
            hint = "Part the word and its numbers by spaces, not by commas."
        raise InputError(f"{name}, line {rows[0][0]}: a word without numbers.", hint)
    if usual > MOST_NUMBERS + 1:
        raise InputError(f"{name}: {usual - 1:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    return None, usual - 1


def _header(rows: list[Row], name: str) -> tuple[int, int] | None:
    """Return (words, dim) if the first row is a header: two whole numbers, unlike the rows below."""
    first = rows[0][1]
    if len(first) != 2:
        return None
    below = len(rows[1][1]) if len(rows) > 1 else 0
    plain = all(field.isdigit() and len(field) < 16 for field in first)
    if below > 2 and not plain and all(is_number(field, underscore=True) for field in first):
        raise bad_header(b" ".join(first), name)
    if not plain:
        return None
    words, dim = int(first[0]), int(first[1])
    if (below > 2 or not below) and (words < 1 or dim < 1):
        raise bad_header(b" ".join(first), name)
    is_many = len(rows) == FIRST_ROWS and words >= FIRST_ROWS  # there are more rows than were looked at
    is_header = not below or below > 2 or (dim == 1 and (is_many or words == len(rows) - 1))
    return (words, dim) if is_header else None


def bad_header(line: bytes, name: str) -> InputError:
    """Return the error for a first line that is meant as a header and is none."""
    shown = visible(line[:40].decode("utf-8", "replace"))
    return InputError(
        f"{name}, line 1: the header {shown!r} is not two whole numbers above 0.",
        "Write how many words there are, and how many numbers each has, as 400000 50.",
    )


def is_plain(data: NDArray[np.uint8], n_lines: int) -> bool:
    """Tell whether whole lines hold no control characters but tabs, and newlines of one kind."""
    controls = np.count_nonzero(data < 32)
    if controls == n_lines:
        return True
    returns = np.flatnonzero(data == 13)
    if len(returns) not in (0, n_lines) or (data[np.minimum(returns + 1, len(data) - 1)] != 10).any():
        return False
    return bool(controls == n_lines + len(returns) + np.count_nonzero(data == 9))


def parsed_block(
    block: bytes, dim: int, dtype: type[np.floating]
) -> tuple[list[bytes], NDArray[np.floating]] | None:
    """Return words and matrix of whole lines in which all is usual; None if a closer look is needed.

    Usual are one space or tab before each number, words without spaces, and a newline of one kind behind each line.
    """
    data = np.frombuffer(block, np.uint8)
    if not is_plain(data, int(np.count_nonzero(data == 10))):
        return None
    for white, usual in ((b"\t", b" "), (b"\r", b"")):
        block = block.replace(white, usual) if white in block else block
    if block.endswith(b" \n"):  # as fastText writes every line
        block = block.replace(b" \n", b"\n")
    lines = block.decode("latin-1").split("\n")[:-1]
    # With a word and its numbers as one type, NumPy insists that every line has as many fields.
    row = np.dtype([("word", "S1"), ("numbers", dtype, (dim,))])
    try:
        ends = [line.index(" ") for line in lines]  # before NumPy, which warns of lines that are blank
        with np.errstate(over="ignore"):  # what is too large becomes infinity, which is told where it matters
            rows = np.loadtxt(lines, dtype=row, comments=None, delimiter=" ", ndmin=1)
    except ValueError:
        return None
    # NumPy takes some letters that are not English for space: none may stand behind a word.
    odd = not block.isascii() and any(
        not line.isascii() and not line[end:].isascii() for line, end in zip(lines, ends, strict=True)
    )
    if odd or len(rows) != len(lines) or not 0 < min(ends) <= max(ends) <= LONGEST_WORD:
        return None
    words = [line[:end].encode("latin-1") for line, end in zip(lines, ends, strict=True)]
    return words, np.ascontiguousarray(rows["numbers"])


def is_number(field: bytes, underscore: bool = False) -> bool:
    """Tell whether a field is a number; with `underscore` also one that only Python writes, as 1_0 or 0x5."""
    try:
        float(field)
    except ValueError:
        return field[:2].lower() == b"0x" and underscore
    return underscore or b"_" not in field
