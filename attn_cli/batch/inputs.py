"""The files that a run reads: named one by one or by patterns, on this machine or by URLs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, NamedTuple

from attn_cli.batch.storage import file_system, is_url, storage_errors
from attn_cli.errors import FileError
from attn_cli.io.escape import visible
from attn_cli.io.files import check_regular, packing, pieces, reason

PIECE = 1 << 16  # bytes that are read at a time
LONGEST_MAGIC = 6  # bytes that tell how a file is packed
WILD = "*?["


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

    def pieces(self, stream: IO[bytes], start: int = 0, size: int | None = None) -> Iterator[bytes]:
        """Yield the bytes that lie in the file from `start` on, at most `size` of them; FileError where fewer do."""
        with self._errors():
            stream.seek(start)
            while size != 0 and (piece := stream.read(min(PIECE, size or PIECE))):
                size = None if size is None else size - len(piece)
                yield piece
        if size:
            hint = "Start again when it is as it should be."
            raise FileError(f"Cannot read {self.name}: it has become shorter.", hint)

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
