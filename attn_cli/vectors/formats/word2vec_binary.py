"""Word vectors in word2vec's binary format: a header line, then records of a word, a space, and float32 numbers.

Some writers put a newline after each record, some do not: both are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.compressed import PIECE
from attn_cli.vectors.formats.text_lines import MOST_NUMBERS, bad_header
from attn_cli.vectors.store.source_file import Original, exactly
from attn_cli.vectors.store.table import LONGEST_WORD, Report, doubles, nobody
from attn_cli.vectors.store.word_index import Entries, hash_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.array_types import Array

LONGEST_HEADER = 64
FEW = 16  # so many words are sought by one expression; for more, every word is looked up
WORD = rb"\n?([^ \n]{1,%d}+) " % LONGEST_WORD
_WORD = re.compile(WORD)


class BinaryFormat(NamedTuple):
    """How a binary file is laid out: `start` is where the first record stands."""

    original: Original
    start: int
    dim: int
    claimed: int
    packed: str = ""
    kind: str = "word2vec binary"

    @property
    def size(self) -> int:
        """Bytes of a record's numbers."""
        return 4 * self.dim

    def search(self, file: IO[bytes], wanted: set[bytes], report: Report = nobody) -> dict[bytes, Array]:
        """Return the vectors of those wanted words that the file has, each from its first record.

        One regular expression skips whole records until a wanted word comes; it never goes back.
        """
        found: dict[bytes, Array] = {}
        left = {word for word in wanted if _WORD.fullmatch(word + b" ") and word[:1] != b"\n"}
        if len(left) > FEW:
            return self._search_many(file, left, report)
        skip = self._skip(left)
        window, used = _Window(file, self.start, self.size), 0
        while left and window.slide(used):
            used = skip.match(window.buffer, 0, window.end).end()  # type: ignore[union-attr]
            while left and (record := self._record(window, used)):
                word, numbers, used = record
                found.setdefault(word, numbers)
                left.discard(word)
                used = skip.match(window.buffer, used, window.end).end()  # type: ignore[union-attr]
            self._check(window, used)
            report((window.offset + used) / max(1, self.original.size))
        if left:
            self._check_end(window)
        return found

    def _search_many(self, file: IO[bytes], left: set[bytes], report: Report) -> dict[bytes, Array]:
        """Do the same by looking every word up among those that are left."""
        found: dict[bytes, Array] = {}
        for window, end in self._windows(file):
            words = self._words.findall(window.buffer, 0, end)
            report((window.offset + end) / max(1, self.original.size))
            if left.isdisjoint(words):
                continue
            offsets = self._offsets(window, end, np.fromiter(map(len, words), np.int64, len(words)))
            for at in [at for at, word in enumerate(words) if word in left]:
                start = int(offsets[at]) + len(words[at]) + 1
                numbers = np.frombuffer(bytes(window.buffer[start : start + self.size]), "<f4")
                found.setdefault(words[at], doubles(numbers))
            left = left.difference(found)
            if not left:
                break
        return found

    def _skip(self, wanted: set[bytes]) -> re.Pattern[bytes]:
        """Return what matches whole records up to one of a wanted word."""
        stop = rb"(?!\n?(?:%s) )" % b"|".join(map(re.escape, sorted(wanted))) if wanted else b""
        return re.compile(rb"(?:%s%s(?s:.{%d}))*+" % (stop, WORD, self.size))

    def _record(self, window: _Window, at: int) -> tuple[bytes, Array, int] | None:
        """Return (word, numbers, where the record ends) of the record at `at`, if it is all there."""
        start = _WORD.match(window.buffer, at, window.end)
        if start is None or start.end() + self.size > window.end:
            return None
        numbers = bytes(window.buffer[start.end() : start.end() + self.size])
        return start[1], doubles(np.frombuffer(numbers, "<f4")), start.end() + self.size

    def _check(self, window: _Window, used: int) -> None:
        """Refuse what cannot become a record whatever bytes follow."""
        start = _WORD.match(window.buffer, used, window.end)
        if start is None and window.end - used > LONGEST_WORD + 1:
            raise InputError(
                f"{self.original.name}, byte {window.offset + used:,}: no word of 1 to {LONGEST_WORD:,} bytes "
                f"stands here.",
                f"The header says {self.dim:,} numbers a word: is that so?",
            )

    def _check_end(self, window: _Window) -> None:
        if bytes(window.buffer[: window.end]) not in (b"", b"\n"):
            raise InputError(
                f"{self.original.name}, byte {window.offset:,}: the last record is cut off, or is none.",
                f"The header says {self.dim:,} numbers a word: is that so? Or fetch the file again.",
            )

    def scan(self, file: IO[bytes], report: Report) -> Iterator[Entries]:
        """Yield every word's hash and offset; InputError if the records are not what the header claims."""
        rows = 0
        for window, end in self._windows(file):
            words = self._words.findall(window.buffer, 0, end)
            rows += len(words)
            if rows > self.claimed:
                break
            if words:
                yield self._entries(window, end, words)
            report((window.offset + end) / max(1, self.original.size))
        self.check_count(rows)

    def check_count(self, rows: int) -> None:
        """Refuse another number of records than the header claims."""
        if rows != self.claimed:
            raise InputError(
                f"{self.original.name}, line 1: the header claims {self.claimed:,} words; "
                f"there are {'more' if rows > self.claimed else f'{rows:,}'}.",
                "Is the file complete, and are there as many numbers a word as the header says?",
            )

    def words(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order."""
        for window, end in self._windows(file):
            yield self._words.findall(window.buffer, 0, end)

    @property
    def _words(self) -> re.Pattern[bytes]:
        return re.compile(rb"%s(?s:.{%d})" % (WORD, self.size))

    def _windows(self, file: IO[bytes]) -> Iterator[tuple[_Window, int]]:
        """Yield a window over the file again and again, and where in it whole records end."""
        skip = self._skip(set())
        window, used = _Window(file, self.start, self.size), 0
        while window.slide(used):
            used = skip.match(window.buffer, 0, window.end).end()  # type: ignore[union-attr]
            self._check(window, used)
            yield window, used
        self._check_end(window)

    def _entries(self, window: _Window, end: int, words: list[bytes]) -> Entries:
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        return Entries(hash_list(words), self._offsets(window, end, lengths) + window.offset)

    def _offsets(self, window: _Window, end: int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in the window its words stand."""
        sizes = lengths + 1 + self.size
        before = np.full(len(sizes), end > sizes.sum())
        before[0] = window.buffer[0] == 10
        if end != sizes.sum() + before.sum():  # some have a newline, some have none
            return np.array(
                [found.start(1) for found in self._words.finditer(window.buffer, 0, end)], np.int64
            )
        return np.cumsum(sizes + before) - sizes

    def word_at(self, file: IO[bytes], offset: int) -> bytes:
        """Return the word of the record at an offset."""
        count = min(LONGEST_WORD + 1, self.original.size - offset)
        return exactly(file, offset, count, self.original.name).partition(b" ")[0]

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the record at `offset` if the wanted word stands there."""
        count = len(wanted) + 1 + self.size
        if offset + count > self.original.size:
            return None
        data = exactly(file, offset, count, self.original.name)
        if not data.startswith(wanted + b" "):
            return None
        return doubles(np.frombuffer(data, "<f4", self.dim, len(wanted) + 1))

    def rows(
        self, file: IO[bytes], dtype: type[np.floating]
    ) -> Iterator[tuple[NDArray[np.int64], list[bytes], Array]]:
        """Yield (offsets, words, matrix) of some records after the other, in order."""
        both = re.compile(rb"%s((?s:.{%d}))" % (WORD, self.size))
        for window, end in self._windows(file):
            pairs = both.findall(window.buffer, 0, end)
            if pairs:
                words = [word for word, _ in pairs]
                lengths = np.fromiter(map(len, words), np.int64, len(words))
                matrix = np.frombuffer(b"".join([numbers for _, numbers in pairs]), "<f4")
                offsets = self._offsets(window, end, lengths) + window.offset
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


def binary_format(original: Original, start: bytes) -> BinaryFormat:
    """Return how a binary file is laid out, from its first bytes."""
    line, newline, _ = start[:LONGEST_HEADER].partition(b"\n")
    fields = line.split()
    plain = len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields)
    if not newline or not plain or not all(map(int, fields)):
        raise bad_header(line, original.name)
    claimed, dim = map(int, fields)
    if dim > MOST_NUMBERS:
        raise InputError(f"{original.name}, line 1: {dim:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    room = (original.size - len(line) - 1) // (4 * dim + 2)
    if claimed > room:
        raise InputError(
            f"{original.name}, line 1: the header claims {claimed:,} words of {dim:,} numbers; "
            f"the file has room for {room:,} at most.",
            "Is the file complete?",
        )
    return BinaryFormat(original, len(line) + 1, dim, claimed)
