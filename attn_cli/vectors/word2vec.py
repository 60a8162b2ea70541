"""Files of word2vec, GloVe and fastText (.vec).

In binary: a header, then records of a word, a space, float32 numbers, perhaps a newline. In text: a word and its
numbers on each line, with a header or without. Fields are parted by spaces and tabs alone; a word may hold spaces, as
its numbers are counted from the right. CRLF, a byte-order mark and a missing last newline are all fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import IO

import numpy as np

from attn_cli.errors import InputError, refuse_input, visible
from attn_cli.io.files import PIECE, pieces
from attn_cli.io.types import Array, NamedTuple, OnPart, no_report
from attn_cli.vectors import LONGEST_WORD, SourceFile, WordBlock, as_float64, read_exactly

MOST_NUMBERS = 100_000
FIRST_ROWS = 100  # of a text, which tell whether it has a header
LONGEST_HEADER = 64
WORD = rb"\n?([^ \n]{1,%d}+) " % LONGEST_WORD
_WORD = re.compile(WORD)
LONGEST_LINE = 1 << 22
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r"
PLAIN = bytes(range(0x20, 0x7F))


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

    def blocks(self, file: IO[bytes], report: OnPart = no_report) -> Iterator[WordBlock]:
        """Yield all words with their offsets; InputError if the records are not what the header claims."""
        record, rows = re.compile(rb"%s(?s:.{%d})" % (WORD, self.size)), 0
        file.seek(self.start)
        buffer = bytearray(PIECE)  # holds some records of MOST_NUMBERS
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
        said = f"{self.source.name}, byte {offset:,}: the last record is cut off, or is none."
        hint = f"The header says {self.dim:,} numbers a word: is that so? Or fetch the file again."
        refuse_input(rows <= self.claimed and bytes(view[:left]) not in (b"", b"\n"), said, hint)
        there = "more" if rows > self.claimed else f"{rows:,}"
        said = f"{self.source.name}, line 1: the header claims {self.claimed:,} words; there are {there}."
        hint = "Is the file complete, and are there as many numbers a word as the header says?"
        refuse_input(rows != self.claimed, said, hint)

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
    claim = f"{source.name}, line 1: the header claims {claimed:,} words of {dim:,} numbers"
    refuse_input(claimed > room, f"{claim}; the file has room for {room:,} at most.", "Is the file complete?")
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


class TextFormat(NamedTuple):
    """How a text of vectors is laid out: `start` is where the first row stands, `claimed` what a header says."""

    source: SourceFile
    packed: str
    start: int
    dim: int
    claimed: int | None

    @property
    def kind(self) -> str:
        """What people call it."""
        return "text" if self.claimed is None else "word2vec text"

    def blocks(self, file: IO[bytes], report: OnPart = no_report) -> Iterator[WordBlock]:
        """Yield all words with their offsets; InputError for unequal lines, or where a header claims another count."""
        rows = 0
        for at, data in self._whole_lines(file):
            skip = max(0, self.start - at)
            lines = _lines(at + skip, data[skip:])
            rows += len(cut := [(offset, *self._cut(line, offset)) for offset, line in lines])
            if cut:
                offsets = np.array([offset for offset, _, _ in cut], np.int64)
                yield offsets, [word for _, word, _ in cut], partial(self._vectors, cut)
            report(file.tell() / max(1, self.source.size))
        if self.claimed is not None and rows != self.claimed:
            said = f"the header claims {self.claimed:,} words; there are {rows:,}."
            raise InputError(
                f"{self.source.name}, line 1: {said}", "Is the header right, and the file complete?"
            )
        refuse_input(rows == 0, f"{self.source.name} holds no words.")

    def _whole_lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, lines that end in a newline) from the file's start to its end."""
        rest, at = b"", 0
        for piece in pieces(file, self.packed, self.source.name):
            cut = piece.rfind(b"\n") + 1
            if cut > 0:
                block = b"".join([rest, memoryview(piece)[:cut]])
                yield at, block
                rest, at = b"", at + len(block)
            rest += piece[cut:]
            if len(rest) > LONGEST_LINE:
                size = f"a line of more than {LONGEST_LINE:,} bytes"
                raise InputError(f"{self.where(at)}: {size}.", "Is this a text of word vectors?")
        if rest:
            yield at, rest + b"\n"

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the line at `offset` if the wanted word stands there."""
        line, size = b"", 256 + 16 * self.dim
        while b"\n" not in line and len(line) <= LONGEST_LINE and offset + len(line) < self.source.size:
            count = min(size, self.source.size - offset - len(line))
            line += read_exactly(file, offset + len(line), count, self.source.name)
        line = line.partition(b"\n")[0]
        if not line.lstrip(b" \t").startswith(wanted.partition(b" ")[0]):
            return None
        word, numbers = self._cut(line, offset)
        return self._vectors([(offset, word, numbers)], slice(1))[0] if word == wanted else None

    def _cut(self, line: bytes, offset: int) -> tuple[bytes, bytes]:
        """Return the word of a line, which stands at `offset`, and its numbers; the word may hold spaces."""
        line = line.rstrip(BLANK).replace(b"\t", b" ")
        if b"  " in line or line.startswith(b" ") or line.count(b" ") != self.dim:
            fields = [field for field in line.split(b" ") if field]
            spare = len(fields) - self.dim
            if spare < 1 or any(map(is_number, fields[1:spare])):
                numbers = sum(map(is_number, fields[1:]))
                claim = "" if self.claimed is None else " by line 1"
                said = f"{numbers} number{'s' * (numbers != 1)}; {self.dim} were expected{claim}."
                raise InputError(f"{self.where(offset)}: {said}", "Give every word equally many numbers.")
            word = line.lstrip(b" ")
            for _ in range(self.dim):
                word = word[: word.rindex(b" ")].rstrip(b" ")
            line = b" ".join([word, *fields[spare:]])
        else:
            word = line[: line.index(b" ")]
        if len(word) > LONGEST_WORD:
            size = f"a word of {len(word):,} bytes; {LONGEST_WORD:,} are the limit"
            raise InputError(f"{self.where(offset)}: {size}.")
        return word, line[len(word) + 1 :]

    def _vectors(self, cut: list[tuple[int, bytes, bytes]], rows: slice) -> Array:
        """Return the numbers (rows, dim) of some lines, float64; NaN and infinity are numbers here."""
        some = [numbers for _, _, numbers in cut[rows]]
        if not b"".join(some).translate(None, PLAIN):  # NumPy takes some letters and controls for space
            with suppress(ValueError):  # a closer look is needed
                found = np.loadtxt(some, comments=None, ndmin=2)
                if found.shape == (len(some), self.dim):
                    return found
        for offset, _, numbers in cut[rows]:
            for field in filter(lambda field: not is_number(field), numbers.split(b" ")):
                shown = visible(field[:40].decode("utf-8", "replace"))
                said = f"{self.where(offset)}: {shown!r} is not a number."
                raise InputError(said, "Write numbers as 0.25, with a point.")
        return np.array([list(map(float, numbers.split(b" "))) for numbers in some])

    def where(self, offset: int) -> str:
        """Return file and line of an offset, for an error."""
        lines, at = 1, 0
        with self.source.opened() as file:
            for piece in pieces(file, self.packed, self.source.name):
                lines += piece[: max(0, offset - at)].count(b"\n")
                at += len(piece)
                if at >= offset:
                    break
        return f"{self.source.name}, line {lines}"


def text_format(source: SourceFile, packed: str, start: bytes, is_all: bool) -> TextFormat:
    """Return how a text is laid out, from its first bytes: `start`, cut off anywhere, or all of it."""
    name = source.name
    lines = start.split(b"\n")
    if not is_all:
        lines = lines[:-1] or lines  # the last may be cut off
    if len(lines) == 1 and len(lines[0]) >= LONGEST_LINE:
        size = f"a line of more than {LONGEST_LINE:,} bytes"
        raise InputError(f"{name}, line 1: {size}.", "Is this a text of vectors?")
    bom = len(BOM) if start.startswith(BOM) else 0
    lines[0] = lines[0][bom:]
    filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip(BLANK))
    some = [(n, line.rstrip(BLANK).replace(b"\t", b" ")) for n, line in islice(filled, FIRST_ROWS)]
    rows = [(n, [field for field in line.split(b" ") if field]) for n, line in some]
    refuse_input(not rows, f"{name} is empty.", "Type a word and its numbers on each line.")
    header = header_of([fields for _, fields in rows], name)
    if header is None:
        return TextFormat(source, packed, bom, _usual_numbers(rows, name), None)
    claimed, dim = header
    if dim > MOST_NUMBERS:
        raise InputError(f"{name}, line 1: {dim:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    if len(rows) == 1 and is_all:
        raise InputError(f"{name}, line 1: the header claims {claimed:,} words; there are none below.")
    room = source.size // (2 * dim + 1) if not packed else claimed
    said = f"{name}, line 1: the header claims {claimed:,} words; the file has room for {room:,} at most."
    refuse_input(claimed > room + 1, said, "Is the file complete?")
    end = start.find(b"\n", start.find(rows[0][1][0]))
    return TextFormat(source, packed, end + 1 if end >= 0 else len(start), dim, claimed)


def _usual_numbers(rows: list[tuple[int, list[bytes]]], name: str) -> int:
    """Return how many numbers most of the first rows have; those of the first row, where all differ."""
    lengths = [len(fields) for _, fields in rows]
    usual = max(lengths, key=lengths.count)
    if lengths.count(usual) == 1 or usual < 2:
        usual = lengths[0]
    if usual < 2:
        is_csv, hint = b"," in rows[0][1][0], "Part the word and its numbers by spaces, not by commas."
        hint = hint if is_csv else "Type them after the word."
        raise InputError(f"{name}, line {rows[0][0]}: a word without numbers.", hint)
    if usual > MOST_NUMBERS + 1:
        raise InputError(f"{name}: {usual - 1:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    return usual - 1


def _lines(at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    for line in block.split(b"\n")[:-1]:
        if line.strip(BLANK):
            yield at, line
        at += len(line) + 1
