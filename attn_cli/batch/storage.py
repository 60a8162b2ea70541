"""Files that are named by URLs (s3://, gs://, hdfs://), through fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
LONGEST = 300  # characters of what a library says
ERRORS: dict[str, type[AttnError]] = {"read": FileError, "create": CreateError, "write": WriteError}


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
        hint = "Give a path that all processes can see."
        raise UsageError(f"{name} is in the memory of one process.", hint)
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError:
        package = PACKAGES.get(protocol, f"the package of {visible(protocol)}:// for fsspec")
        hint = f"pip install {package}" if protocol in PACKAGES else f"Install {package}."
        raise MissingExtra(f"{visible(protocol)}:// needs {package}.", hint) from None
    except ValueError as error:
        hint = "Of URLs, s3://, gs://, hdfs:// and file:// are usual."
        raise UsageError(f"{name} cannot be used: {visible(str(error))}.", hint) from None
    except Exception as error:  # what the file system's library raises: no credentials, no such host
        hint = "Check the address and the credentials."
        raise FileError(f"Cannot reach {name}: {_message(error)}.", hint) from None
    return system, path


@contextmanager
def storage_errors(url: str, verb: str = "read") -> Iterator[None]:
    """Say of whatever a file system's library raises that the URL cannot be read (FileError), or written."""
    try:
        yield
    except (AttnError, MemoryError):
        raise
    except FileNotFoundError:
        said = f"Cannot {verb} {visible(url)}: there is no such file."
        raise ERRORS[verb](said, "Check the path.") from None
    except Exception as error:  # each library has its own
        hint = "Check the path and the credentials."
        raise ERRORS[verb](f"Cannot {verb} {visible(url)}: {_message(error)}.", hint) from None


def _message(error: Exception) -> str:
    """Return what an error says, in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return visible(text[:LONGEST]).rstrip(".")
