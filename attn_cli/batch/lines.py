"""The files that a run reads, on this machine or by URLs, and their lines, without waiting for more than there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import accumulate, chain
from typing import IO, NamedTuple

from attn_cli.batch.storage import file_system, is_url, storage_errors
from attn_cli.errors import FileError, InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import check_regular, packing, pieces, reason

PIECE = 1 << 16  # bytes that are read at a time
LONGEST_MAGIC = 6  # bytes that tell how a file is packed
WILD = "*?["
LONGEST_LINE = 1 << 20  # bytes
LINES = 512  # of a chunk
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UTF_8 = b"\xef\xbb\xbf"
BYTES = 4  # of a word, or fewer than most have
MOST_WEIGHTS = 1 << 22  # of the lines of a chunk

Line = bytes | None  # without its end; None for one that is longer than LONGEST_LINE


class Input(NamedTuple):
    """A file of lines, and its size in bytes."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """The path as messages show it."""
        return visible(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it; FileError where it cannot be opened."""
        with self._errors():
            if is_url(self.path):
                system, path = file_system(self.path)
                stream: IO[bytes] = system.open(path, "rb")
            else:
                check_regular(self.path)
                stream = open(self.path, "rb")  # noqa: SIM115  # closed below
        with stream:
            yield stream

    def packing(self, stream: IO[bytes]) -> str:
        """Tell how the file is packed: gzip, xz, or not at all (an empty string)."""
        with self._errors():
            stream.seek(0)
            return packing(stream.read(LONGEST_MAGIC))

    def pieces(
        self, stream: IO[bytes], start: int = 0, size: int | None = None, at_a_time: int | None = None
    ) -> Iterator[bytes]:
        """Yield the bytes that lie in the file from `start` on, at most `size` of them; FileError where fewer do."""
        with self._errors():
            stream.seek(start)
            most = at_a_time or PIECE
            while size != 0 and (piece := stream.read(min(most, size or most))):
                size = None if size is None else size - len(piece)
                yield piece
        if size:
            hint = "Rerun when it is complete."
            raise FileError(f"Cannot read {self.name}: it was truncated during the run.", hint)

    def unpacked(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield the bytes of the file, unpacked where it is packed; InputError where the packing is damaged."""
        packed = self.packing(stream)
        with self._errors():
            yield from pieces(stream, packed, self.name) if packed else self.pieces(stream)

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors(self.path) if is_url(self.path) else read_errors(self.name)


@contextmanager
def read_errors(name: str) -> Iterator[None]:
    """Raise FileError for a file of this machine that cannot be read."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"Cannot read {name}: {reason(error)}.") from None


def inputs_of(names: Sequence[str]) -> list[Input]:
    """Return the files that paths and patterns name, each pattern's in the order of their names."""
    return [found for name in names for found in (_remote(name) if is_url(name) else _local(name))]


def _local(name: str) -> list[Input]:
    paths = [name]
    if any(sign in name for sign in WILD) and not os.path.lexists(name):
        from glob import glob  # only for patterns

        paths = sorted(path for path in glob(name, recursive=True) if not os.path.isdir(path))
        _check_found(paths, name)
    for path in paths:
        check_regular(path)
    return [Input(path, os.path.getsize(path)) for path in paths]


def _remote(name: str) -> list[Input]:
    with storage_errors(name):
        system, path = file_system(name)
        if any(sign in path for sign in WILD):
            about = system.glob(path, detail=True).values()
            found = sorted((one for one in about if one["type"] == "file"), key=lambda one: str(one["name"]))
            _check_found(found, name)
        else:
            found = [system.info(path)]
            if found[0]["type"] != "file":
                raise FileError(f"Cannot read {visible(name)}: it is a directory.", "Give its files: DIR/*")
        # The protocol, with a host where one is named.
        before = name.removesuffix(path) if name.endswith(path) else ""
        urls = [before + one["name"] if before else system.unstrip_protocol(one["name"]) for one in found]
        return [Input(url, int(one["size"])) for url, one in zip(urls, found, strict=True)]


def _check_found(paths: Sequence[object], name: str) -> None:
    if not paths:
        raise FileError(f"Cannot read {visible(name)}: no file is named like that.", "Check the pattern.")


# Lines


class Chunk(NamedTuple):
    """Some lines of an input: the number of the first line, from 1, and the lines."""

    first: int
    lines: Sequence[Line]


class Feed:
    """The lines of a run's files, or of standard input where there is none."""

    def __init__(self, files: Sequence[Input]) -> None:
        self.files = files
        self.size = sum(file.size for file in files)
        self.read = 0  # bytes of these

    @property
    def done(self) -> float | None:
        """The share of the bytes that is read; None for a pipe."""
        return min(1.0, self.read / self.size) if self.size else None

    def groups(self) -> Iterator[list[Line]]:
        """Yield the lines as they are read, some at a time."""
        if not self.files:
            assert sys.stdin is not None  # there is a text
            yield from split_lines(_piped(sys.stdin.buffer), "standard input")
        before = 0
        for file in self.files:
            with file.open() as stream:
                for lines in split_lines(file.unpacked(stream), file.name):
                    self.read = before + stream.tell()
                    yield lines
            before += file.size

    def is_ready(self) -> bool:
        """Tell whether more can be read without waiting."""
        if self.files:
            return True
        try:
            import select  # only for a pipe

            return bool(select.select([sys.stdin], [], [], 0)[0])
        except (OSError, ValueError):  # no descriptor of a system's own
            return True


def _piped(stream: IO[bytes]) -> Iterator[bytes]:
    with read_errors("standard input"):
        yield from iter(partial(stream.read1, PIECE), b"")  # type: ignore[attr-defined]


def split_lines(pieces: Iterable[bytes], name: str, is_start: bool = True) -> Iterator[list[Line]]:
    """Yield the lines of a file's bytes, some at a time. A byte-order mark and line ends are dropped.

    InputError where the bytes are no text; they are looked at where they are those of the file's start.
    """
    rest, is_long = b"", False
    for piece in _checked(iter(pieces), name) if is_start else pieces:
        *whole, rest = (rest + piece).split(b"\n")
        lines = [None if len(line) >= LONGEST_LINE else line.removesuffix(b"\r") for line in whole]
        if lines and is_long:
            lines[0], is_long = None, False
        if len(rest) > LONGEST_LINE:
            rest, is_long = b"", True
        yield lines
    if rest or is_long:
        yield [None if is_long else rest.removesuffix(b"\r")]


def _checked(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the bytes of a file without a byte-order mark; InputError where they are no text."""
    start = b""
    while len(start) < LONGEST_MAGIC and b"\n" not in start and (piece := next(pieces, b"")):
        start += piece
    check_text(start, name)
    if packed := packing(start):
        raise InputError(f"{name} is packed.", f"Unpack it: {packed} -dc FILE | attn batch")
    yield from chain([start.removeprefix(UTF_8)], pieces)


def check_text(start: bytes, name: str) -> None:
    """Raise InputError for a file that begins as UTF-16 does."""
    if start[:2] in UTF_16:
        raise InputError(f"{name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")


def chunks_of(
    groups: Iterable[Sequence[Line]], first: int = 1, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[Chunk]:
    """Yield the lines of groups in chunks of up to LINES lines; those of a pipe are not waited for to be so many.

    Long lines, whose weights are the square, are fewer at a time.
    """
    groups, waiting = iter(groups), list[Line]()
    while True:
        while len(waiting) < LINES and (not waiting or is_ready()):
            group = next(groups, None)
            if group is None:
                break
            waiting += group
        if not waiting:
            return
        count = _at_a_time(waiting[:LINES])
        yield Chunk(first, waiting[:count])
        del waiting[:count]
        first += count


def _at_a_time(lines: Sequence[Line]) -> int:
    """Return how many of some lines are computed at a time: one at least."""
    sizes = [len(line or b"") // BYTES for line in lines]
    if max(sizes) * sum(sizes) <= MOST_WEIGHTS:  # no sum of squares is larger than this product
        return len(lines)
    return max(1, sum(square <= MOST_WEIGHTS for square in accumulate(size**2 for size in sizes)))
