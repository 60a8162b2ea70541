"""The lines of an input: read some at a time, without waiting for more than there is."""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, NamedTuple

from attn_cli.batch.inputs import Input
from attn_cli.errors import FileError, InputError
from attn_cli.io.files import packing, pieces

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
    """An open input: its lines, the file as it lies on the disk, and its name."""

    stream: IO[bytes]
    raw: IO[bytes]
    name: str
    is_inside: bool = False  # whether it is read from a place behind its start


class Feed:
    """The inputs of a run, opened one after the other; each is a source, or lines that were read already."""

    def __init__(self, sources: Iterable[Source | Sequence[Line]], size: int = 0) -> None:
        self._sources = iter(sources)
        self.size = size  # bytes of all of them; 0 for a pipe
        self._passed = 0
        self.source = next(self._sources, None)

    @property
    def done(self) -> float | None:
        """The share of the bytes that is read; None for a pipe."""
        if not self.size:
            return None
        now = self.source.raw.tell() if isinstance(self.source, Source) else 0
        return min(1.0, (self._passed + now) / self.size)

    def move(self) -> None:
        """Close the source, and open the next; after the last, `source` is None."""
        if isinstance(self.source, Source) and self.size:
            self._passed += self.source.raw.tell()
        self.source = next(self._sources, None)


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
def open_lines(file: Input, start: int = 0) -> Iterator[Source]:
    """Open a file of lines, packed or not; a plain one may be read from a place behind its start."""
    with file.open() as raw:
        try:
            packed = "" if start else packing(raw.read(LONGEST_START))
            raw.seek(start)
        except OSError as error:
            raise FileError(f"Cannot read {file.name}: {error.strerror or error}.") from None
        stream: IO[bytes] = io.BufferedReader(_Unpacked(pieces(raw, packed, file.name))) if packed else raw
        yield Source(stream, raw, file.name, start > 0)


@contextmanager
def open_feed(files: Sequence[Input]) -> Iterator[Feed]:
    """Open files, each when its turn comes and the first at once."""
    sources = _opened(files)
    try:
        yield Feed(sources, sum(file.size for file in files))
    finally:
        sources.close()


def _opened(files: Sequence[Input]) -> Generator[Source]:
    for file in files:
        with open_lines(file) as source:
            yield source


class LineReader:
    """Reads lines in chunks. A byte-order mark and line ends are dropped; what is not text is refused."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.lines: list[Line] = []
        self.rest = b""
        self.is_long = self.is_started = False
        self.has_ended = feed.source is None

    def read(self, most: int) -> list[Line]:
        """Return up to `most` lines: those that are there, and one at least; none at the end.

        Of a pipe, only the first is waited for. Long lines, whose weights are the square, are fewer at a time.
        """
        while len(self.lines) < most and not self.has_ended and (not self.lines or self._is_filled()):
            self._fill()
        found = self.lines[:most]
        sizes = [len(line or b"") // BYTES for line in found]
        if max(sizes, default=0) * sum(sizes) > MOST_WEIGHTS:  # no sum of squares is larger than this product
            squares = accumulate(size**2 for size in sizes)
            found = found[: max(1, sum(square <= MOST_WEIGHTS for square in squares))]
        del self.lines[: len(found)]
        return found

    def is_ready(self) -> bool:
        """Tell whether more can be read without waiting."""
        return bool(self.lines) or self.has_ended or self._is_filled()

    def _is_filled(self) -> bool:
        """Tell whether the input has more to give at once."""
        source = self.feed.source
        if self.feed.size or not isinstance(source, Source):
            return True
        try:
            import select  # only for a pipe

            return bool(select.select([source.raw], [], [], 0)[0])
        except (OSError, ValueError):  # no descriptor of a system's own
            return True

    def _fill(self) -> None:
        """Read another piece, and take the lines that are whole out of it."""
        source = self.feed.source
        if not isinstance(source, Source):
            self.lines += source or ()
            self._move()
            return
        try:
            piece = source.stream.read1(PIECE)  # type: ignore[attr-defined]
        except OSError as error:
            raise FileError(f"Cannot read {source.name}: {error.strerror or error}.") from None
        data = self.rest + piece
        if not self.is_started and (len(data) >= LONGEST_START or not piece):
            data = self._start(data, source)
        *whole, self.rest = data.split(b"\n")
        if self.is_long or len(data) > LONGEST_LINE:
            for line in whole:
                self._take(line, len(line) + 1)
        else:
            self.lines += [line.removesuffix(b"\r") for line in whole]
        if len(self.rest) > LONGEST_LINE:
            self.is_long, self.rest = True, b""
        if not piece:
            if self.rest or self.is_long:
                self._take(self.rest, len(self.rest))
            self._move()

    def _move(self) -> None:
        """Go on to the next source: lines do not run from one into another."""
        self.feed.move()
        self.rest, self.is_long, self.is_started = b"", False, False
        self.has_ended = self.feed.source is None

    def _start(self, data: bytes, source: Source) -> bytes:
        """Check the first bytes, and return them without a byte-order mark."""
        self.is_started = True
        if source.is_inside:
            return data
        if data[:2] in UTF_16:
            raise InputError(f"{source.name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
        if packed := packing(data[:LONGEST_START]):
            raise InputError(f"{source.name} is packed.", f"Unpack it: {packed} -dc FILE | attn batch")
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
    """The chunks of an input.

    With `part`, none reaches over a multiple of so many lines, and parts that are `done`, by their numbers, are left
    out.
    """

    def __init__(
        self, feed: Feed, first: int = 1, part: int | None = None, done: Collection[int] = frozenset()
    ) -> None:
        self.reader, self.most = LineReader(feed), LINES
        self.number, self.first, self.part, self.done = 0, first, part, done

    def __next__(self) -> Chunk:
        most = self.most
        if self.part is not None:
            inside = (self.first - 1) % self.part
            while not inside and (self.first - 1) // self.part in self.done and self.skip(self.part):
                pass
            most = min(most, self.part - inside)
        found = self.reader.read(most)
        if not found:
            raise StopIteration
        chunk = Chunk(self.number, self.first, found)
        self.number, self.first = self.number + 1, self.first + len(found)
        return chunk

    def skip(self, lines: int) -> int:
        """Leave out so many lines, or all that there are; return how many."""
        start = self.first
        end = start + lines
        while self.first < end and (found := self.reader.read(min(self.most, end - self.first))):
            self.first += len(found)
        return self.first - start

    def is_ready(self) -> bool:
        """Tell whether the next can be read without waiting."""
        return self.reader.is_ready()


def count_lines(files: Sequence[Input]) -> int:
    """Return how many lines files have."""
    with open_feed(files) as feed:
        return Chunks(feed).skip(sys.maxsize)
