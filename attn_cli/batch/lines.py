"""The lines of an input: read some at a time, without waiting for more than there is."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, NamedTuple

from attn_cli.errors import FileError, InputError
from attn_cli.io.compressed import packing, pieces
from attn_cli.io.escape import visible
from attn_cli.io.files import regular

LONGEST_LINE = 1 << 20  # bytes
LINES = 512  # of a chunk
PIECE = 1 << 16
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UTF_8 = b"\xef\xbb\xbf"
BYTES = 4  # of a word, or fewer than most have
MOST_WEIGHTS = 1 << 22  # of the lines that are read at a time
LONGEST_START = 6  # bytes that tell how a file is packed

Line = bytes | None  # without its end; None for one that is longer than LONGEST_LINE


class Source(NamedTuple):
    """An open input: its lines, the file as it lies on the disk, and that file's bytes (0 for a pipe)."""

    stream: IO[bytes]
    raw: IO[bytes]
    size: int
    name: str

    @property
    def done(self) -> float | None:
        """The share of the file that is read; None for a pipe."""
        return min(1.0, self.raw.tell() / self.size) if self.size else None


class _Unpacked(io.RawIOBase):
    """Pieces of bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self.rest:
            self.rest = memoryview(next(self.pieces, b""))
        part = self.rest[: len(buffer)]
        buffer[: len(part)] = part
        self.rest = self.rest[len(part) :]
        return len(part)


@contextmanager
def open_lines(path: str) -> Iterator[Source]:
    """Open a regular file of lines, packed or not."""
    name = visible(path)
    with regular(path).open("rb") as raw:
        try:
            packed = packing(raw.read(LONGEST_START))
            raw.seek(0)
        except OSError as error:
            raise FileError(f"Cannot read {name}: {error.strerror or error}.") from None
        stream: IO[bytes] = io.BufferedReader(_Unpacked(pieces(raw, packed, name))) if packed else raw
        yield Source(stream, raw, os.path.getsize(path), name)


class LineReader:
    """Reads lines in chunks. A byte-order mark and line ends are dropped; what is no text is refused."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[Line] = []
        self.rest = b""
        self.is_long = self.is_started = self.has_ended = False

    def read(self, most: int) -> list[Line]:
        """Return up to `most` lines: those that are there, and one at least; none at the end.

        Of a pipe, only the first is waited for. Long lines, whose weights are the square, are fewer at a time.
        """
        while len(self.lines) < most and not self.has_ended and (not self.lines or self._is_filled()):
            self._fill()
        weights = accumulate((len(line or b"") // BYTES) ** 2 for line in self.lines[:most])
        count = max(1, sum(sum_ <= MOST_WEIGHTS for sum_ in weights))
        found, self.lines = self.lines[:count], self.lines[count:]
        return found

    def is_ready(self) -> bool:
        """Tell whether more can be read without waiting."""
        return bool(self.lines) or self.has_ended or self._is_filled()

    def _is_filled(self) -> bool:
        """Tell whether the input has more to give at once."""
        if self.source.size:
            return True
        try:
            import select  # only for a pipe

            return bool(select.select([self.source.raw], [], [], 0)[0])
        except (OSError, ValueError):  # no descriptor of a system's own
            return True

    def _fill(self) -> None:
        """Read another piece, and take the lines that are whole out of it."""
        try:
            piece = self.source.stream.read1(PIECE)  # type: ignore[attr-defined]
        except OSError as error:
            raise FileError(f"Cannot read {self.source.name}: {error.strerror or error}.") from None
        data = self.rest + piece
        self.has_ended = not piece
        if not self.is_started and (len(data) >= LONGEST_START or self.has_ended):
            data = self._start(data)
        *whole, self.rest = data.split(b"\n")
        for line in whole:
            self._take(line, len(line) + 1)
        if len(self.rest) > LONGEST_LINE:
            self.is_long, self.rest = True, b""
        if self.has_ended and (self.rest or self.is_long):
            self._take(self.rest, len(self.rest))

    def _start(self, data: bytes) -> bytes:
        """Check the first bytes, and return them without a byte-order mark."""
        self.is_started = True
        if data[:2] in UTF_16:
            raise InputError(f"{self.source.name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
        if packed := packing(data[:LONGEST_START]):
            raise InputError(f"{self.source.name} is packed.", f"Unpack it: {packed} -dc FILE | attn batch")
        return data.removeprefix(UTF_8)

    def _take(self, line: bytes, size: int) -> None:
        is_long = self.is_long or size > LONGEST_LINE
        self.lines.append(None if is_long else line.removesuffix(b"\r"))
        self.is_long = False


class Chunk(NamedTuple):
    """Some lines of an input: which of its chunks they are, from 0, the number of the first line, from 1, the lines."""

    number: int
    first: int
    lines: Sequence[Line]


class Chunks(Iterator[Chunk]):
    """The chunks of an input."""

    def __init__(self, source: Source, lines: int = LINES, first: int = 1) -> None:
        self.reader, self.most = LineReader(source), lines
        self.number, self.first = 0, first

    def __next__(self) -> Chunk:
        found = self.reader.read(self.most)
        if not found:
            raise StopIteration
        chunk = Chunk(self.number, self.first, found)
        self.number, self.first = self.number + 1, self.first + len(found)
        return chunk

    def skip(self, lines: int) -> None:
        """Leave out so many lines."""
        end = self.first + lines
        while self.first < end and (found := self.reader.read(min(self.most, end - self.first))):
            self.first += len(found)

    def is_ready(self) -> bool:
        """Tell whether the next can be read without waiting."""
        return self.reader.is_ready()
