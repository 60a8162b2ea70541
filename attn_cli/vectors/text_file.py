"""Files of GloVe, word2vec (text) and fastText (.vec): a word and its numbers on each line, with a header or without.

Fields are parted by spaces and tabs alone. A word may hold spaces: its numbers are counted from the right. CRLF, a
byte-order mark and a missing last newline are all fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import IO

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.files import pieces
from attn_cli.io.types import Array, NamedTuple
from attn_cli.vectors.source_file import SourceFile, read_exactly
from attn_cli.vectors.table import LONGEST_WORD, OnProgress, WordBlock, no_progress
from attn_cli.vectors.word2vec_binary import FIRST_ROWS, MOST_NUMBERS, header_of, is_number

LONGEST_LINE = 1 << 22
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r"
PLAIN = bytes(range(0x20, 0x7F))


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

    def blocks(self, file: IO[bytes], report: OnProgress = no_progress) -> Iterator[WordBlock]:
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
        if rows == 0:
            raise InputError(f"{self.source.name} holds no words.")

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
        if not line.lstrip(b" \t").startswith(wanted.replace(b"\t", b" ").partition(b" ")[0]):
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
    if not rows:
        raise InputError(f"{name} is empty.", "Type a word and its numbers on each line.")
    header = header_of([fields for _, fields in rows], name)
    if header is None:
        return TextFormat(source, packed, bom, _usual_numbers(rows, name), None)
    claimed, dim = header
    if dim > MOST_NUMBERS:
        raise InputError(f"{name}, line 1: {dim:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    if len(rows) == 1 and is_all:
        raise InputError(f"{name}, line 1: the header claims {claimed:,} words; there are none below.")
    room = source.size // (2 * dim + 1) if not packed else claimed
    if claimed > room + 1:
        said = f"{name}, line 1: the header claims {claimed:,} words; the file has room for {room:,} at most."
        raise InputError(said, "Is the file complete?")
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
