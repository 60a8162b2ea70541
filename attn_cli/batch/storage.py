"""Files on this machine, or named by URLs (s3://, gs://, hdfs://) and reached through fsspec: what a run reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from attn_cli.errors import AttnError, CreateError, FileError, MissingExtra, UsageError, WriteError, visible
from attn_cli.io.files import check_regular, packing, pieces, reason

# Stores in which a file is there as a whole or not at all; elsewhere it is written beside its place and renamed.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
LONGEST = 300  # characters of what a library says
ERRORS: dict[str, type[AttnError]] = {"read": FileError, "create": CreateError, "write": WriteError}
PIECE = 1 << 16  # bytes that are read at a time
LONGEST_MAGIC = 6  # bytes that tell how a file is packed
WILD = "*?["


def is_url(path: str) -> bool:
    """Tell whether a path is a URL, as s3://texts/a.txt is."""
    return "://" in path


def protocol_of(url: str) -> str:
    """Return what stands before ://, in small letters."""
    return url.partition("://")[0].lower()


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it; MissingExtra says what is to be installed."""
    protocol, name = protocol_of(url), visible(url)
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"{name} needs fsspec.", "pip install 'attn-cli[dask]'") from None
    if protocol == "memory":
        what = f"{name} is in the memory of one process."
        raise UsageError(what, "Give a path that all processes can see.")
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError as error:  # it says which package
        said = f"{visible(protocol)}:// needs a package that is not installed."
        raise MissingExtra(said, f"{one_line(error)}.") from None
    except ValueError as error:
        hint = "Of URLs, s3://, gs://, hdfs:// and file:// are usual."
        raise UsageError(f"{name} cannot be used: {visible(str(error))}.", hint) from None
    except Exception as error:  # what the file system's library raises: no credentials, no such host
        hint = "Check the address and the credentials."
        raise FileError(f"Cannot reach {name}: {one_line(error)}.", hint) from None
    return system, path


@contextmanager
def storage_errors(path: str, verb: str = "read") -> Iterator[None]:
    """Say of whatever the system, or a file system's library, raises that the path cannot be read, or written."""
    said = f"Cannot {verb} {visible(path)}"
    try:
        yield
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # each library has its own
        if not is_url(path):
            if isinstance(error, OSError):
                raise FileError(f"{said}: {reason(error)}.") from None
            raise
        if isinstance(error, FileNotFoundError):
            raise ERRORS[verb](f"{said}: there is no such file.", "Check the path.") from None
        raise ERRORS[verb](f"{said}: {one_line(error)}.", "Check the path and the credentials.") from None


def one_line(error: BaseException, longest: int = LONGEST) -> str:
    """Return what an error says, in one short line."""
    return visible(" ".join(str(error).split())[:longest]).rstrip(".") or type(error).__name__


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
        with storage_errors(self.path):
            if is_url(self.path):
                system, path = file_system(self.path)
                stream: IO[bytes] = system.open(path, "rb")
            else:
                check_regular(self.path)
                stream = open(self.path, "rb")  # noqa: SIM115  # closed below
        with stream:
            yield stream

    def pieces(
        self, stream: IO[bytes], start: int = 0, size: int | None = None, most: int | None = None
    ) -> Iterator[bytes]:
        """Yield the bytes that lie in the file from `start` on, at most `size` of them; FileError where fewer do."""
        most = most or PIECE
        with storage_errors(self.path):
            stream.seek(start)
            while size != 0 and (piece := stream.read(min(most, size or most))):
                size = None if size is None else size - len(piece)
                yield piece
        if size:
            hint = "Rerun when it is complete."
            raise FileError(f"Cannot read {self.name}: it was truncated during the run.", hint)

    def unpacked(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield the bytes of the file, unpacked where it is packed; InputError where the packing is damaged."""
        with storage_errors(self.path):
            stream.seek(0)
            packed = packing(stream.read(LONGEST_MAGIC))
            yield from pieces(stream, packed, self.name) if packed else self.pieces(stream)


def inputs_of(names: Sequence[str]) -> list[Input]:
    """Return the files that paths and patterns name, each pattern's in the order of their names."""
    found: list[Input] = []
    for name in names:
        some = _remote(name) if is_url(name) else _local(name)
        if not some:
            raise FileError(f"Cannot read {visible(name)}: no file is named like that.", "Check the pattern.")
        found += some
    return found


def _local(name: str) -> list[Input]:
    paths = [name]
    if any(sign in name for sign in WILD) and not os.path.lexists(name):
        from glob import glob  # only for patterns

        paths = sorted(path for path in glob(name, recursive=True) if not os.path.isdir(path))
    for path in paths:
        check_regular(path)
    return [Input(path, os.path.getsize(path)) for path in paths]


def _remote(name: str) -> list[Input]:
    with storage_errors(name):
        system, path = file_system(name)
        if any(sign in path for sign in WILD):
            about = system.glob(path, detail=True).values()
            found = sorted((one for one in about if one["type"] == "file"), key=lambda one: str(one["name"]))
        else:
            found = [system.info(path)]
            if found[0]["type"] != "file":
                raise FileError(f"Cannot read {visible(name)}: it is a directory.", "Give its files: DIR/*")
        # The protocol, with a host where one is named.
        before = name.removesuffix(path) if name.endswith(path) else ""
        urls = [before + one["name"] if before else system.unstrip_protocol(one["name"]) for one in found]
        return [Input(url, int(one["size"])) for url, one in zip(urls, found, strict=True)]
