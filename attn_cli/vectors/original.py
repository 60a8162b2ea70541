"""The user's file of vectors: opened when it is needed, never mapped, and refused if it changes meanwhile.

A memory map would be no quicker here, and a file that shrinks under a map kills the process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.files import check_regular
from attn_cli.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from attn_cli.arrays import Array, Ints

PIECE = 1 << 22
MOST_GROWTH = 100  # text of numbers packs to a tenth at best
GROWTH_COUNTS_FROM = 1 << 26
XZ_MEMORY = 1 << 27  # twice what xz -9 needs
PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz"}


class Original(NamedTuple):
    """A regular file as it was when first looked at: its path, printable name, bytes, and time of change."""

    path: str
    name: str
    size: int
    changed: int

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file unbuffered; InputError if it is not, or does not stay, what it was."""
        check_regular(self.path)
        with open(self.path, "rb", buffering=0) as file:
            self._check(file)
            try:
                yield file
            except OSError as error:
                if isinstance(error, InputError) or not error.strerror:
                    raise
                raise InputError(f"{self.name} cannot be read: {error.strerror}.") from None
            self._check(file)

    def _check(self, file: IO[bytes]) -> None:
        now = os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise InputError(f"{self.name} changed while it was read.", "Try again when it is complete.")


def look_at(path: str | Path, name: str | None = None) -> Original:
    """Return the file at `path` as it is now; FileError if it is no readable regular file."""
    check_regular(path)
    found = os.stat(path)
    return Original(str(path), name or visible(str(path)), found.st_size, found.st_mtime_ns)


def exactly(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    """Return `count` bytes from `offset`; InputError if the file ends before."""
    file.seek(offset)
    parts = []
    while count > 0:
        part = file.read(min(count, 1 << 30))
        if not part:
            raise InputError(f"{name} ends {count:,} bytes too early, at byte {file.tell():,}.")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def packing(start: bytes) -> str:
    """Tell from its first bytes how a file is packed: gzip, xz, or not at all (an empty string)."""
    return next((kind for magic, kind in PACKED.items() if start.startswith(magic)), "")


def pieces(file: IO[bytes], packed: str, name: str) -> Iterator[bytes]:
    """Yield what the open file holds, unpacked, in pieces of at most PIECE bytes."""
    file.seek(0)
    if not packed:
        while piece := file.read(PIECE):
            yield piece
        return
    import lzma  # only those who read packed text pay for these
    import zlib

    grown = 0
    try:
        for piece in _unpacked(file, packed):
            grown += len(piece)
            if grown > GROWTH_COUNTS_FROM and grown > MOST_GROWTH * file.tell():
                raise InputError(
                    f"{name} unpacks to more than {MOST_GROWTH} times its size: that is no text of numbers.",
                    "Unpack it yourself if it is sound.",
                )
            yield piece
    except (EOFError, zlib.error, lzma.LZMAError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} cannot be unpacked: {visible(reason)}.", f"Test it with {packed} -t, and fetch it again."
        ) from None


def _unpacked(file: IO[bytes], packed: str) -> Iterator[bytes]:
    """Yield pieces of one packed stream after another."""
    raw = b""
    while raw or (raw := file.read(PIECE)):
        stream = _Stream(packed)
        while not stream.eof:
            piece, hungry = stream.feed(raw)
            raw = b""
            if piece:
                yield piece
            if hungry and not stream.eof and not (raw := file.read(PIECE)):
                raise EOFError("it is cut off")
        raw = stream.spare.lstrip(b"\0") or file.read(PIECE).lstrip(b"\0")


class _Stream:
    """One gzip member or xz stream, unpacked in bounded pieces."""

    def __init__(self, packed: str) -> None:
        import lzma
        import zlib

        self.gzip = zlib.decompressobj(wbits=31) if packed == "gzip" else None
        self.xz = None if self.gzip else lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)

    @property
    def eof(self) -> bool:
        return bool((self.gzip or self.xz).eof)  # type: ignore[union-attr]

    @property
    def spare(self) -> bytes:
        """The bytes behind the stream's end."""
        return bytes((self.gzip or self.xz).unused_data)  # type: ignore[union-attr]

    def feed(self, raw: bytes) -> tuple[bytes, bool]:
        """Return the next piece, and whether more raw bytes are needed for another."""
        if self.gzip:
            piece = self.gzip.decompress(self.gzip.unconsumed_tail + raw, PIECE)
            return piece, not self.gzip.unconsumed_tail and len(piece) < PIECE
        assert self.xz is not None
        piece = self.xz.decompress(raw, PIECE)
        return piece, self.xz.needs_input


class FileRows:
    """A matrix in a file, row after row: what is asked for is read, the rest is not.

    It is indexed as an array's rows are: by a number, a slice, or an array of numbers.
    """

    ndim = 2

    def __init__(self, original: Original, offset: int, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
        self.original = original
        self.offset = offset
        self.dtype = dtype
        self.shape = shape
        self.nbytes = shape[0] * shape[1] * dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def __getitem__(self, rows: int | slice | Ints) -> Array:
        with self.original.opened() as file:
            if isinstance(rows, slice):
                start, stop, step = rows.indices(len(self))
                return self._read(file, start, max(0, stop - start))[::step]
            if isinstance(rows, np.ndarray):
                parts = [self._read(file, int(row), 1) for row in rows]
                return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), self.dtype)
            if not 0 <= rows < len(self):
                raise IndexError(rows)
            one: Array = self._read(file, int(rows), 1)[0]
            return one

    def _read(self, file: IO[bytes], start: int, count: int) -> Array:
        width = self.shape[1] * self.dtype.itemsize
        data = exactly(file, self.offset + start * width, count * width, self.original.name)
        return np.frombuffer(data, self.dtype).reshape(count, self.shape[1])
