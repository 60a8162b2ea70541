"""The folders of attn's cache and data, and the indexes kept in the cache.

The cache may be emptied at any time. Files are written beside and renamed: a kill leaves the old one or the new one.
"""

from __future__ import annotations

import contextlib
import os
import sys

from attn_cli.errors import CreateError
from attn_cli.io.atomic import remove_unlocked, written
from attn_cli.io.escape import visible
from attn_cli.vectors.store.source_file import SourceFile
from attn_cli.vectors.store.word_index import Index, StaleIndex, word_hash


def _folder(kind: str, variable: str, usual: str) -> str | None:
    """Return attn's folder for this kind of file; None where the user has no home."""
    if not sys.platform.startswith("linux"):
        import platformdirs  # on Linux its answer is these few lines, without ten milliseconds of import

        return os.path.join(getattr(platformdirs, f"user_{kind}_dir")("attn", False), "vectors")
    given = os.environ.get(variable, "")
    base = given if os.path.isabs(given) else os.path.expanduser(usual)
    return os.path.join(base, "attn", "vectors") if os.path.isabs(base) else None


def cache_folder() -> str | None:
    """Return where indexes are kept."""
    return _folder("cache", "XDG_CACHE_HOME", "~/.cache")


def data_folder() -> str | None:
    """Return where names of imported files are kept, and what was unpacked for them."""
    return _folder("data", "XDG_DATA_HOME", "~/.local/share")


def check_usable() -> None:
    """Raise CreateError if no index can be kept; call it before a file is read through."""
    usable_folder(cache_folder(), "The cache", "XDG_CACHE_HOME")


def usable_folder(folder: str | None, what: str, variable: str) -> str:
    """Return `folder`, created if missing; CreateError if it cannot be written to."""
    if folder is None:
        raise CreateError(f"{what} has no place: there is no home folder.", f"Set {variable} to a folder.")
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True, mode=0o700)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise CreateError(
            f"{what} {visible(folder)} cannot be written to.", f"Set {variable} to a folder that can."
        )
    _remove_abandoned(folder)
    return folder


def identity(source: SourceFile, kind: str) -> dict[str, str]:
    """Return what the header of an index must say to be of this very file."""
    path = os.fsencode(os.path.realpath(source.path)).hex()
    return {"path": path, "size": str(source.size), "changed": str(source.changed), "format": kind}


def index_path(path: str) -> str | None:
    """Return where the index of a file is kept."""
    folder = cache_folder()
    named = word_hash(os.fsencode(os.path.realpath(path)))
    return None if folder is None else os.path.join(folder, f"{named:016x}.index")


def index_of(source: SourceFile, kind: str) -> Index | None:
    """Return the kept index of a file as it is now; None if there is none."""
    path = index_path(source.path)
    try:
        stored = _IndexFile(path) if path else None
        index = Index(stored.read, stored.size) if stored else None
    except (StaleIndex, OSError, ValueError, KeyError, TypeError):  # a damaged one fails in many ways
        return None
    wanted = identity(source, kind)
    return index if index and {key: index.about.get(key) for key in wanted} == wanted else None


def keep_index(source: SourceFile, encoded: bytes) -> None:
    """Keep an index; CreateError or WriteError where that is not possible."""
    check_usable()
    with written(str(index_path(source.path))) as stream:
        stream.write(encoded)


def forget_index(of: str) -> None:
    """Remove the index of a file."""
    path = index_path(of)
    with contextlib.suppress(OSError):
        if path:
            os.unlink(path)


def _remove_abandoned(folder: str) -> None:
    """Remove unfinished files of a killed run: those that no process holds locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for left in entries:
            if left.name.startswith(".") and left.name.endswith(".part"):
                remove_unlocked(left.path)


class _IndexFile:
    """An open file that lives as long as its index, even when another replaces it on disk."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        self.size = os.fstat(self.file).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes from `offset`."""
        os.lseek(self.file, offset, os.SEEK_SET)
        return os.read(self.file, count)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.file)
