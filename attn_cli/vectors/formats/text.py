"""Files of GloVe, word2vec (text) and fastText (.vec): a word and its numbers on each line, with a header or without.

A word may hold spaces: its numbers are counted from the right. Spaces or tabs, CRLF, a byte-order mark and
a missing last newline are all fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import pieces
from attn_cli.vectors.formats.text_lines import (
    BLANK,
    BOM,
    fields_of,
    first_rows,
    is_number,
    is_plain,
    measured,
    parsed_block,
)
from attn_cli.vectors.source_file import SourceFile, read_exactly
from attn_cli.vectors.table import LONGEST_WORD, OnProgress, WordBlock, no_progress

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

LONGEST_LINE = 1 << 22
FEW = 3  # with so many wanted words, blocks without them are skipped


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
        """Yield (offset, whole lines) until the end; every line ends in a newline."""
        rest, at = b"", 0
        for piece in pieces(file, self.packed, self.source.name):
            cut = piece.rfind(b"\n") + 1
            if cut > 0:
                block = b"".join([rest, memoryview(piece)[:cut]])
                yield from self._behind_start(at, block)
                rest, at = b"", at + len(block)
            rest += piece[cut:]
            if len(rest) > LONGEST_LINE:
                raise InputError(
                    f"{self.where(at)}: a line of more than {LONGEST_LINE:,} bytes.",
                    "Is this a text of word vectors?",
                )
        if rest:
            yield from self._behind_start(at, rest + b"\n")

    def _behind_start(self, at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield a block without what stands before the first row."""
        skip = max(0, self.start - at)
        if skip < len(block):
            yield at + skip, block[skip:] if skip else block

    def words(
        self, file: IO[bytes], report: OnProgress = no_progress, wanted: set[bytes] | None = None
    ) -> Iterator[WordBlock]:
        """Yield all words with their offsets; blocks of lines that hold none of `wanted` may be left out.

        InputError where a line of the others has too few or too many numbers, or a header claims another count.
        """
        rows = 0
        for offset, block in self.blocks(file):
            if wanted is not None and not _may_hold(block, wanted):
                rows += (
                    1 if self.claimed is None else _count_filled(block)
                )  # without a header, any count is right
            else:
                offsets, words = self._split(offset, block)
                rows += len(words)
                yield WordBlock(offsets, words, partial(self._vector_in, block, offset))
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

    def _split(self, offset: int, block: bytes) -> tuple[Ints, list[bytes]]:
        """Return where the rows of a block stand in the file, and their words.

        Quick where every line has the same marks: a space or a tab before each number, one at a time.
        """
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == 10)
        is_mark = data == 32
        if b"\t" in block:
            is_mark |= data == 9
        marks = np.flatnonzero(is_mark)
        is_trailing = block[int(ends[0]) - 1 : int(ends[0])] == b" "
        each = self.dim + is_trailing
        if len(marks) == each * len(ends) and is_plain(data, len(ends)):
            starts, rows = _starts(ends), marks.reshape(len(ends), each)
            lengths = rows[:, 0] - starts
            if (
                (np.diff(marks) > 1).all()
                and ((rows[:, -1] == ends - 1) == is_trailing).all()
                and (rows[:, -1] < ends).all()
                and 0 < lengths.min() <= lengths.max() <= LONGEST_WORD
            ):
                cuts = zip(starts.tolist(), rows[:, 0].tolist(), strict=True)
                return starts + offset, [block[start:end] for start, end in cuts]
        lines = list(_lines(offset, block))
        return np.array([at for at, _ in lines], np.int64), [self.word(line, at) for at, line in lines]

    def _vector_in(self, block: bytes, offset: int, at: int) -> Array:
        """Return the numbers of the line at `at` in the file, of a block that stands at `offset`."""
        start = at - offset
        return self.vector(block[start : block.find(b"\n", start)], at)

    def word_at(self, file: IO[bytes], offset: int) -> bytes:
        """Return the word of the line at an offset."""
        return self.word(self._line(file, offset), offset)

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the line at `offset` if the wanted word stands there."""
        line = self._line(file, offset)
        if not line.lstrip(b" \t").startswith(_first_field(wanted)) or self.word(line, offset) != wanted:
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
            if (quick := parsed_block(block, self.dim, dtype)) is not None:
                starts = _starts(np.flatnonzero(np.frombuffer(block, np.uint8) == 10))
                yield starts + offset, *quick
            elif lines := list(_lines(offset, block)):
                read = [(self.word(line, at), self.vector(line, at)) for at, line in lines]
                with np.errstate(over="ignore"):
                    matrix = np.array([vector for _, vector in read], dtype)
                yield np.array([at for at, _ in lines]), [word for word, _ in read], matrix

    def word(self, line: bytes, offset: int) -> bytes:
        """Return the word of a line, which stands at `offset`: what is left of its numbers; it may hold spaces."""
        fields = fields_of(line)
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
        fields = fields_of(line)[-self.dim :]
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


def text_format(source: SourceFile, packed: str, start: bytes, is_all: bool = False) -> TextFormat:
    """Return how a text is laid out, from its first bytes: `start`, cut off anywhere, or all of it."""
    name = source.name
    lines = start.split(b"\n")
    is_all = is_all or (len(start) == source.size and not packed)
    if len(lines) > 1 and not is_all:
        lines = lines[:-1]  # it may be cut off
    if len(lines) == 1 and len(lines[0]) >= LONGEST_LINE:
        raise InputError(
            f"{name}, line 1: a line of more than {LONGEST_LINE:,} bytes.", "Is this a text of vectors?"
        )
    bom = len(BOM) if start.startswith(BOM) else 0
    lines[0] = lines[0][bom:]
    rows = first_rows(lines)
    claimed, dim = measured(rows, name, is_all)
    if claimed is None:
        return TextFormat(source, packed, bom, dim, None)
    room = source.size // (2 * dim + 1) if not packed else claimed
    if claimed > room + 1:
        raise InputError(
            f"{name}, line 1: the header claims {claimed:,} words; the file has room for {room:,} at most.",
            "Is the file complete?",
        )
    header = start.find(b"\n", start.find(rows[0][1][0]))
    return TextFormat(source, packed, header + 1 if header >= 0 else len(start), dim, claimed)


def _lines(offset: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that are not blank, each with the place where it starts."""
    for line in block.split(b"\n")[:-1]:
        if line.strip(BLANK):
            yield offset, line
        offset += len(line) + 1


def _starts(ends: Ints) -> Ints:
    """Return where lines start, from where they end."""
    return np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1])


def _may_hold(block: bytes, wanted: set[bytes]) -> bool:
    """Tell whether a line of the block may begin with a wanted word; True where a closer look is as quick."""
    if len(wanted) > FEW:
        return True
    fields = b"|".join(re.escape(_first_field(word)) for word in wanted)
    start = rb"(?:%s)?[ \t]" % fields  # indented lines are looked at too
    return bool(re.match(start, block) or re.search(rb"\n" + start, block))


def _first_field(word: bytes) -> bytes:
    return word.replace(b"\t", b" ").partition(b" ")[0]


def _count_filled(block: bytes) -> int:
    """Count the lines that are not blank."""
    data = np.frombuffer(block, np.uint8)
    starts = _starts(np.flatnonzero(data == 10))
    if not np.isin(data[starts], np.frombuffer(BLANK + b"\n", np.uint8)).any():
        return len(starts)
    return sum(1 for _ in _lines(0, block))
