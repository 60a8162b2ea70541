"""Files of word2vec (binary, .bin): a header line, then records of a word, a space, and float32 numbers.

Some writers put a newline after each record, some do not: both are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.compressed import PIECE
from attn_cli.vectors.formats.text_lines import MOST_NUMBERS, bad_header
from attn_cli.vectors.store.source_file import SourceFile, read_exactly
from attn_cli.vectors.store.table import LONGEST_WORD, NO_WORDS, WordBlock, as_float64

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

LONGEST_HEADER = 64
FEW = 16  # with so many wanted words, records without them are skipped
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

    def words(self, file: IO[bytes], wanted: set[bytes] | None = None) -> Iterator[WordBlock]:
        """Yield all words with their offsets; some records that hold none of `wanted` come as an empty block.

        InputError if the records are not what the header claims.
        """
        rows = 0
        for window, end in self._windows(file, wanted):
            words = self._words.findall(window.buffer, 0, end)
            rows += len(words)
            if rows > self.claimed:
                break
            offsets = self._offsets(window, end, words) + window.offset if words else NO_WORDS.offsets
            yield WordBlock(offsets, words, partial(self._vector_in, window))
        if wanted is None or rows > self.claimed:
            self.check_count(rows)

    def _skip(self, wanted: set[bytes]) -> re.Pattern[bytes]:
        """Return what matches whole records up to one of a wanted word."""
        stop = rb"(?!\n?(?:%s) )" % b"|".join(map(re.escape, sorted(wanted))) if wanted else b""
        return re.compile(rb"(?:%s%s(?s:.{%d}))*+" % (stop, WORD, self.size))

    def _vector_in(self, window: _Window, offset: int) -> Array:
        """Return the vector of the record at an offset of the file, which the window holds."""
        start = window.buffer.index(b" ", offset - window.offset) + 1
        return as_float64(np.frombuffer(bytes(window.buffer[start : start + self.size]), "<f4"))

    def _check(self, window: _Window, used: int) -> None:
        """Refuse what cannot become a record whatever bytes follow."""
        start = _WORD.match(window.buffer, used, window.end)
        if start is None and window.end - used > LONGEST_WORD + 1:
            raise InputError(
                f"{self.source.name}, byte {window.offset + used:,}: no word of 1 to {LONGEST_WORD:,} bytes "
                f"stands here.",
                f"The header says {self.dim:,} numbers a word: is that so?",
            )

    def _check_end(self, window: _Window) -> None:
        if bytes(window.buffer[: window.end]) not in (b"", b"\n"):
            raise InputError(
                f"{self.source.name}, byte {window.offset:,}: the last record is cut off, or is none.",
                f"The header says {self.dim:,} numbers a word: is that so? Or fetch the file again.",
            )

    def check_count(self, rows: int) -> None:
        """Refuse another number of records than the header claims."""
        if rows != self.claimed:
            raise InputError(
                f"{self.source.name}, line 1: the header claims {self.claimed:,} words; "
                f"there are {'more' if rows > self.claimed else f'{rows:,}'}.",
                "Is the file complete, and are there as many numbers a word as the header says?",
            )

    @property
    def _words(self) -> re.Pattern[bytes]:
        return re.compile(rb"%s(?s:.{%d})" % (WORD, self.size))

    def _windows(self, file: IO[bytes], wanted: set[bytes] | None = None) -> Iterator[tuple[_Window, int]]:
        """Yield a window over the file again and again, and where in it whole records end.

        One regular expression skips whole records, and never goes back. With a few `wanted` words it stops before them;
        where it does not, the end is 0.
        """
        every = self._skip(set())
        window, used = _Window(file, self.start, self.size), 0
        while window.slide(used):
            if wanted and len(wanted) <= FEW:
                skipped = self._skip(wanted).match(window.buffer, 0, window.end).end()  # type: ignore[union-attr]
                used = every.match(window.buffer, skipped, window.end).end()  # type: ignore[union-attr]
            else:
                skipped = 0
                used = every.match(window.buffer, 0, window.end).end()  # type: ignore[union-attr]
            self._check(window, used)
            yield window, 0 if 0 < skipped == used else used
        self._check_end(window)

    def _offsets(self, window: _Window, end: int, words: list[bytes]) -> Ints:
        """Return where in the window its words stand."""
        sizes = np.fromiter(map(len, words), np.int64, len(words)) + 1 + self.size
        before = np.full(len(sizes), end > sizes.sum())
        before[0] = window.buffer[0] == 10
        if end != sizes.sum() + before.sum():  # some have a newline, some have none
            found = self._words.finditer(window.buffer, 0, end)
            return np.array([record.start(1) for record in found], np.int64)
        offsets: Ints = np.cumsum(sizes + before) - sizes
        return offsets

    def word_at(self, file: IO[bytes], offset: int) -> bytes:
        """Return the word of the record at an offset."""
        count = min(LONGEST_WORD + 1, self.source.size - offset)
        return read_exactly(file, offset, count, self.source.name).partition(b" ")[0]

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the record at `offset` if the wanted word stands there."""
        count = len(wanted) + 1 + self.size
        if offset + count > self.source.size:
            return None
        data = read_exactly(file, offset, count, self.source.name)
        if not data.startswith(wanted + b" "):
            return None
        return as_float64(np.frombuffer(data, "<f4", self.dim, len(wanted) + 1))

    def rows(self, file: IO[bytes], dtype: type[np.floating]) -> Iterator[tuple[Ints, list[bytes], Array]]:
        """Yield (offsets, words, matrix) of some records after the other, in order."""
        both = re.compile(rb"%s((?s:.{%d}))" % (WORD, self.size))
        for window, end in self._windows(file):
            if pairs := both.findall(window.buffer, 0, end):
                words = [word for word, _ in pairs]
                matrix = np.frombuffer(b"".join([numbers for _, numbers in pairs]), "<f4")
                offsets = self._offsets(window, end, words) + window.offset
                yield offsets, words, matrix.reshape(-1, self.dim).astype(dtype, copy=False)


class _Window:
    """A buffer that slides over a file; it holds at least one whole record."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self.file = file
        self.file.seek(start)
        self.buffer = bytearray(max(PIECE, 2 * (LONGEST_WORD + 2 + size)))
        self.offset, self.end = start, 0

    def slide(self, used: int) -> bool:
        """Let go of the first `used` bytes and fill up; False if nothing more came."""
        view = memoryview(self.buffer)
        left = self.end - used
        view[:left] = view[used : self.end]
        self.offset += used
        came: int = self.file.readinto(view[left:])  # type: ignore[attr-defined]
        self.end = left + came
        return came > 0


def binary_format(source: SourceFile, start: bytes) -> BinaryFormat:
    """Return how a binary file is laid out, from its first bytes."""
    line, newline, _ = start[:LONGEST_HEADER].partition(b"\n")
    fields = line.split()
    plain = len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields)
    if not newline or not plain or not all(map(int, fields)):
        raise bad_header(line, source.name)
    claimed, dim = map(int, fields)
    if dim > MOST_NUMBERS:
        raise InputError(f"{source.name}, line 1: {dim:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    room = (source.size - len(line) - 1) // (4 * dim + 2)
    if claimed > room:
        raise InputError(
            f"{source.name}, line 1: the header claims {claimed:,} words of {dim:,} numbers; "
            f"the file has room for {room:,} at most.",
            "Is the file complete?",
        )
    return BinaryFormat(source, len(line) + 1, dim, claimed)
