"""The user's file of vectors: refused if it changes in use, and never mapped, for one that shrinks then kills attn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from attn_cli.errors import AttnError, FileError, InputError, shell_quote, visible
from attn_cli.io.array_files import Entry, npy_header
from attn_cli.io.files import check_regular, system_errors
from attn_cli.io.types import Array, Ints, NamedTuple


class SourceFile(NamedTuple):
    """A regular file as it was when first looked at: its path, printable name, bytes, and time of change."""

    path: str
    name: str
    size: int
    changed: int

    @staticmethod
    def at(path: str | Path, name: str | None = None) -> SourceFile:
        """Return the file at `path` as it is now; FileError if it is not a readable regular file."""
        check_regular(path)
        with system_errors(FileError, f"Cannot read {visible(str(path))}"):
            found = os.stat(path)
        return SourceFile(str(path), name or visible(str(path)), found.st_size, found.st_mtime_ns)

    def quoted(self) -> str:
        """Return the path as one types it in a shell, printable, and taken for no option."""
        return shell_quote(f"./{self.path}" if self.path.startswith("-") else self.path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file unbuffered; InputError if it is not, or does not stay, what it was."""
        check_regular(self.path)
        with system_errors(FileError, f"Cannot read {self.name}"):
            file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed below
        with file:
            self._check(file)
            try:
                yield file
            except OSError as error:
                if isinstance(error, AttnError):
                    raise  # of what is written meanwhile
                raise InputError(f"{self.name} cannot be read: {error.strerror}.") from None
            self._check(file)

    def _check(self, file: IO[bytes]) -> None:
        now = os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise InputError(f"{self.name} changed while it was read.", "Try again when it is complete.")


def read_exactly(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
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


class FileRows:
    """A matrix in a file; indexed like an array's rows (by a number, a slice, an array), it reads only those."""

    ndim = 2

    def __init__(self, source: SourceFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
        self.source, self.offset, self.dtype, self.shape = source, offset, dtype, shape

    @staticmethod
    def of(source: SourceFile, entry: Entry) -> FileRows:
        """Return the matrix that an entry of a safetensors file places."""
        return FileRows(source, entry.offset, entry.dtype, (entry.shape[0], entry.shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Ints) -> Array:
        with self.source.opened() as file:
            if isinstance(rows, slice):
                start, stop, step = rows.indices(len(self))
                return self._read(file, start, max(0, stop - start))[::step]
            none = np.empty((0, self.shape[1]), self.dtype)
            found = np.concatenate([none, *(self._read(file, int(row), 1) for row in np.atleast_1d(rows))])
        return found if isinstance(rows, np.ndarray) else found[0]

    def _read(self, file: IO[bytes], start: int, count: int) -> Array:
        width = self.shape[1] * self.dtype.itemsize
        data = read_exactly(file, self.offset + start * width, count * width, self.source.name)
        return np.frombuffer(data, self.dtype).reshape(count, self.shape[1])


def npy_rows(source: SourceFile) -> FileRows | Array:
    """Return the matrix of a .npy file, its rows unread; one in columns is read whole."""
    with source.opened() as file:
        shape, is_fortran, dtype = npy_header(file, source.size, source.name)
        offset = file.tell()
        if len(shape) != 2 or not 0 < min(shape) <= max(shape) <= source.size:
            raise InputError(f"{source.name} holds an array of shape {shape}, not a row for each word.")
        if offset + shape[0] * shape[1] * dtype.itemsize > source.size:
            raise InputError(f"{source.name} is cut off: its header claims the shape {shape}.")
        if is_fortran:
            data = read_exactly(file, offset, source.size - offset, source.name)
            return np.frombuffer(data, dtype, shape[0] * shape[1]).reshape(shape, order="F")
    return FileRows(source, offset, dtype, (shape[0], shape[1]))
