"""Files of word2vec (.bin): a header, then records of a word, a space, float32 numbers, perhaps a newline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import IO

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.files import PIECE
from attn_cli.io.types import Array, NamedTuple
from attn_cli.vectors.source_file import SourceFile, read_exactly
from attn_cli.vectors.table import LONGEST_WORD, OnProgress, WordBlock, as_float64, no_progress

MOST_NUMBERS = 100_000
FIRST_ROWS = 100  # of a text, which tell whether it has a header
LONGEST_HEADER = 64
WORD = rb"\n?([^ \n]{1,%d}+) " % LONGEST_WORD
_WORD = re.compile(WORD)


class BinaryFormat(NamedTuple):
    """How a binary file is laid out: `start` is where the first record stands."""

    source: SourceFile
    start: int
    dim: int
    claimed: int
    packed: str = ""
    kind: str = "word2vec binary"

    @property
    def size(self) -> int:
        """Bytes of a record's numbers."""
        return 4 * self.dim

    def blocks(self, file: IO[bytes], report: OnProgress = no_progress) -> Iterator[WordBlock]:
        """Yield all words with their offsets; InputError if the records are not what the header claims."""
        record, rows = re.compile(rb"%s(?s:.{%d})" % (WORD, self.size)), 0
        file.seek(self.start)
        buffer = bytearray(max(PIECE, 2 * (LONGEST_WORD + 2 + self.size)))  # holds one whole record at least
        view, offset, left = memoryview(buffer), self.start, 0
        while rows <= self.claimed and (came := file.readinto(view[left:])):  # type: ignore[attr-defined]
            filled, used, spans = left + came, 0, list[tuple[int, int]]()
            while one := record.match(buffer, used, filled):
                spans.append(one.span(1))
                used = one.end()
            if filled - used > LONGEST_WORD + 1 and not _WORD.match(buffer, used, filled):
                said = f"no word of 1 to {LONGEST_WORD:,} bytes stands here."  # whatever bytes follow
                said = f"{self.source.name}, byte {offset + used:,}: {said}"
                raise InputError(said, f"The header says {self.dim:,} numbers a word: is that so?")
            rows += len(spans)
            if spans and rows <= self.claimed:
                words = [bytes(view[start:end]) for start, end in spans]
                yield offset + np.array(spans)[:, 0], words, partial(self._vectors, view, spans)
                report(file.tell() / max(1, self.source.size))
            offset, left = offset + used, filled - used
            view[:left] = view[used:filled]
        if rows <= self.claimed and bytes(view[:left]) not in (b"", b"\n"):
            said = f"{self.source.name}, byte {offset:,}: the last record is cut off, or is none."
            hint = f"The header says {self.dim:,} numbers a word: is that so? Or fetch the file again."
            raise InputError(said, hint)
        if rows != self.claimed:
            there = "more" if rows > self.claimed else f"{rows:,}"
            said = f"{self.source.name}, line 1: the header claims {self.claimed:,} words; there are {there}."
            hint = "Is the file complete, and are there as many numbers a word as the header says?"
            raise InputError(said, hint)

    def _vectors(self, view: memoryview, spans: list[tuple[int, int]], rows: slice) -> Array:
        numbers = b"".join([view[end + 1 : end + 1 + self.size] for _, end in spans[rows]])
        return np.frombuffer(numbers, "<f4").reshape(-1, self.dim)

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the record at `offset` if the wanted word stands there."""
        count = len(wanted) + 1 + self.size
        if offset + count > self.source.size:
            return None
        data = read_exactly(file, offset, count, self.source.name)
        if not data.startswith(wanted + b" "):
            return None
        return as_float64(np.frombuffer(data, "<f4", self.dim, len(wanted) + 1))


def binary_format(source: SourceFile, start: bytes) -> BinaryFormat:
    """Return how a binary file is laid out, from its first bytes."""
    line, newline, _ = start[:LONGEST_HEADER].partition(b"\n")
    claimed, dim = _whole(line.split()) or (0, 0)
    if not newline or not claimed or not dim:
        raise bad_header(line, source.name)
    if dim > MOST_NUMBERS:
        raise InputError(f"{source.name}, line 1: {dim:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    room = (source.size - len(line) - 1) // (4 * dim + 2)
    if claimed > room:
        claim = f"{source.name}, line 1: the header claims {claimed:,} words of {dim:,} numbers"
        raise InputError(f"{claim}; the file has room for {room:,} at most.", "Is the file complete?")
    return BinaryFormat(source, len(line) + 1, dim, claimed)


def bad_header(line: bytes, name: str) -> InputError:
    """Return the error for a first line that is meant as a header and is none."""
    shown = visible(line[:40].decode("utf-8", "replace"))
    said = f"{name}, line 1: the header {shown!r} is not two whole numbers above 0."
    return InputError(said, "Write how many words there are, and how many numbers each has, as 400000 50.")


def header_of(rows: list[list[bytes]], name: str) -> tuple[int, int] | None:
    """Return (words, dim) if the first row of a text is a header: two whole numbers, unlike the rows below."""
    first, below = rows[0], len(rows[1]) if len(rows) > 1 else 0
    found = _whole(first)
    if found is None:
        if len(first) == 2 and below > 2 and all(is_number(field, underscore=True) for field in first):
            raise bad_header(b" ".join(first), name)
        return None
    words, dim = found
    if (below > 2 or not below) and not min(found):
        raise bad_header(b" ".join(first), name)
    is_many = len(rows) == FIRST_ROWS and words >= FIRST_ROWS  # there are more rows than were looked at
    is_header = not below or below > 2 or (dim == 1 and (is_many or words == len(rows) - 1))
    return found if is_header else None


def _whole(fields: list[bytes]) -> tuple[int, int] | None:
    is_whole = len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields)
    return (int(fields[0]), int(fields[1])) if is_whole else None


def is_number(field: bytes, underscore: bool = False) -> bool:
    """Tell whether a field is a number; with `underscore` also one that only Python writes, as 1_0 or 0x5."""
    try:
        float(field)
    except ValueError:
        return field[:2].lower() == b"0x" and underscore
    return underscore or b"_" not in field
