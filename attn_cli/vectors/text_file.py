"""Files of GloVe, word2vec (text) and fastText (.vec): a word and its numbers on each line, with a header or without.

Fields are parted by spaces and tabs, and by nothing else that looks like space. A word may hold spaces: its numbers
are counted from the right. CRLF, a byte-order mark and a missing last newline are all fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import IO, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_types import Array, Ints, NDArray
from attn_cli.io.escape import visible
from attn_cli.io.files import pieces
from attn_cli.vectors.source_file import SourceFile, read_exactly
from attn_cli.vectors.table import LONGEST_WORD, OnProgress, WordBlock, no_progress
from attn_cli.vectors.word2vec_binary import FIRST_ROWS, MOST_NUMBERS, header_of, is_number

LONGEST_LINE = 1 << 22
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r"


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

    def blocks(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, whole lines) from the first row to the end; every line ends in a newline."""
        rest, at = b"", 0
        for piece in pieces(file, self.packed, self.source.name):
            cut = piece.rfind(b"\n") + 1
            if cut > 0:
                block = b"".join([rest, memoryview(piece)[:cut]])
                yield from self._behind_start(at, block)
                rest, at = b"", at + len(block)
            rest += piece[cut:]
            if len(rest) > LONGEST_LINE:
                size = f"a line of more than {LONGEST_LINE:,} bytes"
                raise InputError(f"{self.where(at)}: {size}.", "Is this a text of word vectors?")
        if rest:
            yield from self._behind_start(at, rest + b"\n")

    def _behind_start(self, at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        skip = max(0, self.start - at)
        if skip < len(block):
            yield at + skip, block[skip:]

    def words(self, file: IO[bytes], report: OnProgress = no_progress) -> Iterator[WordBlock]:
        """Yield all words with their offsets.

        InputError where a line has too few or too many numbers, or a header claims another count.
        """
        rows = 0
        for offset, block in self.blocks(file):
            offsets, words = self._words(offset, block)
            rows += len(words)
            yield offsets, words, partial(self._vector_in, block, offset)
            report(file.tell() / max(1, self.source.size))
        self.check_count(rows)

    def check_count(self, rows: int) -> None:
        """Refuse another number of rows than a header claims, and none."""
        if self.claimed is not None and rows != self.claimed:
            raise InputError(
                f"{self.source.name}, line 1: the header claims {self.claimed:,} words; there are {rows:,}.",
                "Is the header right, and the file complete?",
            )
        if rows == 0:
            raise InputError(f"{self.source.name} holds no words.")

    def _words(self, offset: int, block: bytes) -> tuple[Ints, list[bytes]]:
        if (cuts := self._cuts(block)) is None:
            lines = list(_lines(offset, block))
            return np.array([at for at, _ in lines], np.int64), [self.word(line, at) for at, line in lines]
        starts, ends, _ = cuts
        return starts + offset, _slices(block, starts, ends)

    def _cuts(self, block: bytes) -> tuple[Ints, Ints, Ints] | None:
        """Return where each line's word starts and ends, and where the line's last number ends.

        None where they have not all the same marks: a space or a tab before each number, one at a time.
        """
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == 10)
        is_mark = data == 32
        if b"\t" in block:
            is_mark |= data == 9
        marks = np.flatnonzero(is_mark)
        starts = np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1])
        stops = ends - (b"\r" in block)
        is_trailing = bool(is_mark[stops[0] - 1])  # as fastText writes every line
        each = self.dim + is_trailing
        if len(marks) != each * len(ends) or not _is_plain(data, len(ends)):
            return None
        rows = marks.reshape(len(ends), each)
        lengths = rows[:, 0] - starts
        is_usual = (
            (np.diff(marks) > 1).all()
            and ((rows[:, -1] == stops - 1) == is_trailing).all()
            and (rows[:, -1] < stops).all()
            and 0 < lengths.min() <= lengths.max() <= LONGEST_WORD
        )
        return (starts, rows[:, 0], stops) if is_usual else None

    def _vector_in(self, block: bytes, offset: int, at: int) -> Array:
        start = at - offset
        return self.vector(block[start : block.find(b"\n", start)], at)

    def word_at(self, file: IO[bytes], offset: int) -> bytes:
        """Return the word of the line at an offset."""
        return self.word(self._line(file, offset), offset)

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the line at `offset` if the wanted word stands there."""
        line = self._line(file, offset)
        first = wanted.replace(b"\t", b" ").partition(b" ")[0]
        if not line.lstrip(b" \t").startswith(first) or self.word(line, offset) != wanted:
            return None
        return self.vector(line, offset)

    def _line(self, file: IO[bytes], offset: int) -> bytes:
        line, size = b"", 256 + 16 * self.dim
        while b"\n" not in line and len(line) <= LONGEST_LINE and offset + len(line) < self.source.size:
            count = min(size, self.source.size - offset - len(line))
            line += read_exactly(file, offset + len(line), count, self.source.name)
        return line.partition(b"\n")[0]

    def rows(self, file: IO[bytes], dtype: type[np.floating]) -> Iterator[tuple[Ints, list[bytes], Array]]:
        """Yield (offsets, words, matrix) block by block, in order."""
        for offset, block in self.blocks(file):
            cuts = self._cuts(block)
            matrix = cuts and self._matrix(block, cuts[1], cuts[2], dtype)
            if cuts and matrix is not None:
                yield cuts[0] + offset, _slices(block, cuts[0], cuts[1]), matrix
            elif lines := list(_lines(offset, block)):
                read = [(self.word(line, at), self.vector(line, at)) for at, line in lines]
                with np.errstate(over="ignore"):
                    matrix = np.array([vector for _, vector in read], dtype)
                yield np.array([at for at, _ in lines]), [word for word, _ in read], matrix

    def _matrix(self, block: bytes, starts: Ints, stops: Ints, dtype: type[np.floating]) -> Array | None:
        """Return the numbers between these places of each line; None if a closer look is needed."""
        lines = _slices(block, starts, stops)
        if not block.isascii() and not all(map(bytes.isascii, lines)):  # NumPy takes some letters for space
            return None
        try:
            with np.errstate(over="ignore"):  # what is too large becomes infinity, told where it matters
                matrix = np.loadtxt(lines, dtype, comments=None, ndmin=2)
        except ValueError:
            return None
        return matrix if matrix.shape == (len(lines), self.dim) else None

    def word(self, line: bytes, offset: int) -> bytes:
        """Return the word of a line, which stands at `offset`: what is left of its numbers; it may hold spaces."""
        fields = _fields(line)
        spare = len(fields) - self.dim
        if spare == 1 and len(fields[0]) <= LONGEST_WORD:
            return fields[0]
        if spare < 1 or any(map(is_number, fields[1:spare])):
            numbers = sum(map(is_number, fields[1:]))
            claim = "" if self.claimed is None else " by line 1"
            raise InputError(
                f"{self.where(offset)}: {numbers} number{'s' * (numbers != 1)}; {self.dim} were expected{claim}.",
                "Give every word equally many numbers.",
            )
        word = line.rstrip(BLANK).replace(b"\t", b" ").lstrip(b" ")
        for _ in range(self.dim):
            word = word[: word.rindex(b" ")].rstrip(b" ")
        if len(word) > LONGEST_WORD:
            size = f"a word of {len(word):,} bytes; {LONGEST_WORD:,} are the limit"
            raise InputError(f"{self.where(offset)}: {size}.")
        return word

    def vector(self, line: bytes, offset: int) -> Array:
        """Return the numbers of a line, float64 (dim,); NaN and infinity are numbers here."""
        fields = _fields(line)[-self.dim :]
        for field in fields:
            if not is_number(field):
                raise InputError(
                    f"{self.where(offset)}: {visible(field[:40].decode('utf-8', 'replace'))!r} is not a number.",
                    "Write numbers as 0.25, with a point.",
                )
        return np.array([float(field) for field in fields])

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
    if len(lines) > 1 and not is_all:
        lines.pop()  # it may be cut off
    if len(lines) == 1 and len(lines[0]) >= LONGEST_LINE:
        size = f"a line of more than {LONGEST_LINE:,} bytes"
        raise InputError(f"{name}, line 1: {size}.", "Is this a text of vectors?")
    bom = len(BOM) if start.startswith(BOM) else 0
    lines[0] = lines[0][bom:]
    filled = ((number, _fields(line)) for number, line in enumerate(lines, 1) if line.strip(BLANK))
    rows = list(islice(filled, FIRST_ROWS))
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
        is_csv = b"," in rows[0][1][0]
        hint = (
            "Part the word and its numbers by spaces, not by commas."
            if is_csv
            else "Type them after the word."
        )
        raise InputError(f"{name}, line {rows[0][0]}: a word without numbers.", hint)
    if usual > MOST_NUMBERS + 1:
        raise InputError(f"{name}: {usual - 1:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    return usual - 1


def _lines(offset: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that are not blank, each with the place where it starts."""
    for line in block.split(b"\n")[:-1]:
        if line.strip(BLANK):
            yield offset, line
        offset += len(line) + 1


def _slices(text: bytes, starts: Ints, ends: Ints) -> list[bytes]:
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _is_plain(data: NDArray[np.uint8], n_lines: int) -> bool:
    """Tell whether whole lines hold no control characters but tabs, and newlines of one kind."""
    controls = np.count_nonzero(data < 32)
    if controls == n_lines:
        return True
    returns = np.flatnonzero(data == 13)
    if len(returns) not in (0, n_lines) or (data[returns + 1] != 10).any():
        return False
    return bool(controls == n_lines + len(returns) + np.count_nonzero(data == 9))


def _fields(line: bytes) -> list[bytes]:
    return [field for field in line.rstrip(BLANK).replace(b"\t", b" ").split(b" ") if field]
