"""Word vectors that somebody typed: a word and its numbers on each line."""

from __future__ import annotations

import numpy as np

from attn_cli.errors import InputError
from attn_cli.files import read_bytes
from attn_cli.vectors.table import Table
from attn_cli.visible import visible

LONGEST_WORD = 4096


def read_text(path: str) -> Table:
    """Read a text file of vectors: `she 0.2 0.9 0.1 0.5` a line, with or without a `words dim` header.

    Spaces or tabs, CRLF, a byte-order mark and a missing last newline are all fine. Rows must have
    equally many finite numbers; the first of doubled words wins, and the count is kept.
    """
    name = visible(path)
    lines = read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise InputError(f"{name} is empty.", "Type a word and its numbers on each line.")
    claimed = _header(rows)
    if claimed:
        rows = rows[1:]
    dim = claimed[1] if claimed else len(rows[0][1]) - 1
    if claimed and not rows:
        raise InputError(f"{name}, line 1: the header claims {claimed[0]:,} words; there are none below.")
    if dim < 1:
        raise InputError(f"{name}, line {rows[0][0]}: a word without numbers.", "Type them after the word.")
    if claimed and claimed[0] != len(rows):
        raise InputError(f"{name}, line 1: the header claims {claimed[0]:,} words; there are {len(rows):,}.")
    vectors: dict[bytes, list[float]] = {}
    claim = " by line 1" if claimed else ""
    for number, fields in rows:
        word = _word(fields, dim, f"{name}, line {number}", claim)
        vectors.setdefault(word, _numbers(fields[-dim:], f"{name}, line {number}"))
    doubled = len(rows) - len(vectors)
    about = {"doubled": str(doubled)} if doubled else {}
    return Table("file", name, b"\n" + b"\n".join(vectors) + b"\n", np.array(list(vectors.values())), about)


def _header(rows: list[tuple[int, list[bytes]]]) -> tuple[int, int] | None:
    """Return (words, dim) if the first row is a header: two whole numbers, unlike the rows below."""
    first = rows[0][1]
    if len(first) != 2 or not all(field.isdigit() and len(field) < 16 for field in first):
        return None
    words, dim = int(first[0]), int(first[1])
    if len(rows) < 2:
        return words, dim  # a header, and nothing below it
    below = len(rows[1][1])
    return (words, dim) if dim > 0 and (below > 2 or (dim == 1 and words == len(rows) - 1)) else None


def _word(fields: list[bytes], dim: int, where: str, claim: str) -> bytes:
    spare = len(fields) - dim
    if spare < 1 or (spare > 1 and any(_is_number(field) for field in fields[1:spare])):
        raise InputError(
            f"{where}: {len(fields) - 1} numbers; {dim} were expected{claim}.",
            "Give every word equally many numbers.",
        )
    word = b" ".join(fields[:spare])
    if len(word) > LONGEST_WORD:
        raise InputError(f"{where}: a word of {len(word):,} bytes; {LONGEST_WORD:,} are the limit.")
    return word


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _numbers(fields: list[bytes], where: str) -> list[float]:
    for field in fields:
        if not _is_number(field):
            shown = visible(field[:40].decode("utf-8", "replace"))
            raise InputError(f"{where}: {shown!r} is not a number.", "Write numbers as 0.25, with a point.")
    numbers = [float(field) for field in fields]
    if not np.isfinite(numbers).all():
        raise InputError(f"{where}: a number is not finite.", "Replace NaN and infinity.")
    return numbers
