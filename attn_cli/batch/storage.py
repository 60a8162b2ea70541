"""Files that are named by URLs (s3://, gs://, hdfs://), read and written through fsspec."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from attn_cli.errors import AttnError, CreateError, FileError, MissingExtra, UsageError, WriteError
from attn_cli.io.escape import visible

PACKAGES = {  # what fsspec needs for a protocol
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    "hdfs": "pyarrow",
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
}
# Stores in which a file is there as a whole or not at all; elsewhere it is written beside its place and renamed.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
OF_ONE_PROCESS = ("memory",)
BLOCK = 1 << 20


def is_url(path: str) -> bool:
    """Tell whether a path is a URL.

    >>> is_url("s3://texts/a.txt"), is_url("a.txt")
    (True, False)
    """
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
    if protocol in OF_ONE_PROCESS:
        raise UsageError(
            f"{name} is in the memory of one process.", "Give a path that all processes can see."
        )
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError:
        package = PACKAGES.get(protocol, f"the package of {visible(protocol)}:// for fsspec")
        hint = f"pip install {package}" if protocol in PACKAGES else f"Install {package}."
        raise MissingExtra(f"{visible(protocol)}:// needs {package}.", hint) from None
    except ValueError as error:
        known = "s3://, gs://, hdfs:// and file:// are usual"
        raise UsageError(f"{name} cannot be used: {visible(str(error))}.", f"Of URLs, {known}.") from None
    except Exception as error:  # what the file system's library raises: no credentials, no such host
        raise FileError(
            f"Cannot reach {name}: {_said(error)}.", "Check the address and the credentials."
        ) from None
    return system, path


@contextmanager
def reached(url: str, verb: str = "read") -> Iterator[None]:
    """Say of whatever a file system's library raises that the URL cannot be read (FileError), or written."""
    try:
        yield
    except AttnError:
        raise
    except FileNotFoundError:
        raise _failed(verb)(
            f"Cannot {verb} {visible(url)}: there is no such file.", "Check the path."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # each library has its own
        hint = "Check the path and the credentials."
        raise _failed(verb)(f"Cannot {verb} {visible(url)}: {_said(error)}.", hint) from None


def _failed(verb: str) -> type[AttnError]:
    errors: dict[str, type[AttnError]] = {"read": FileError, "create": CreateError, "write": WriteError}
    return errors[verb]


def _said(error: Exception) -> str:
    """Return what an error says, in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return visible(text[:300]).rstrip(".")


class _Remote(io.RawIOBase):
    """An open file of a store, whatever fails in it a FileError."""

    def __init__(self, stream: IO[bytes], url: str) -> None:
        self.stream, self.url = stream, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with reached(self.url):
            return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        with reached(self.url):
            found = self.stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def open_url(url: str) -> Iterator[IO[bytes]]:
    """Open a file by its URL; what fails while it is read is a FileError, too."""
    with reached(url):
        system, path = file_system(url)
        stream = system.open(path, "rb")
    with stream:
        yield io.BufferedReader(_Remote(stream, url), BLOCK)
