"""Where the parts of a run lie: a folder of this machine, or a place with a URL."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from attn_cli.batch.manifest import PART, Part, hash_of_file
from attn_cli.batch.storage import is_url
from attn_cli.errors import CreateError, FileError
from attn_cli.io.atomic import sweep, sync_folder, written
from attn_cli.io.escape import visible
from attn_cli.io.files import reason

PATIENCE = 5.0  # seconds that another run may take to leave the folder
UNFINISHED = re.compile(rf"\.({PART.pattern})\.[0-9a-f]{{8}}\.part")
Write = Callable[[IO[bytes]], object]


class Folder(Protocol):
    """A place of parts. Files are put there as a whole."""

    path: str
    name: str

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out, where that is possible; CreateError where the folder cannot be made."""
        ...

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return what a file holds; None if it is not there."""
        ...

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file as a whole, and return its bytes and their hash."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        ...

    def holds(self, part: Part) -> bool:
        """Tell whether a part is there, as it was written."""
        ...


def folder_of(path: str) -> Folder:
    """Return the folder of a path or a URL."""
    if is_url(path):
        from attn_cli.batch.remote_folder import RemoteFolder  # only for URLs

        return RemoteFolder(path)
    return LocalFolder(path)


class LocalFolder:
    """A folder of this machine, which one run at a time writes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = visible(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; CreateError where one is in, or where the folder cannot be made."""
        try:
            os.makedirs(self.path, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise CreateError(
                f"Cannot create {self.name}: {reason(error)}.", "Choose another place."
            ) from None
        try:
            _lock(descriptor, self.name)
            yield
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        try:
            return os.listdir(self.path)
        except OSError as error:
            raise CreateError(f"Cannot write into {self.name}: {reason(error)}.") from None

    def read(self, name: str) -> bytes | None:
        """Return what a file holds; None if it is not there."""
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"Cannot read {visible(path)}: {reason(error)}.") from None

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file beside its place, sync and rename it; return its bytes and their hash."""
        path = os.path.join(self.path, name)
        with written(path) as stream:
            write(stream)
        return hash_of_file(path)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        try:
            for name in names:
                os.unlink(os.path.join(self.path, name))
            sync_folder(self.path)
        except OSError as error:
            raise CreateError(f"Cannot write into {self.name}: {reason(error)}.") from None

    def holds(self, part: Part) -> bool:
        """Tell whether a part is there, as it was written."""
        path = os.path.join(self.path, part.file)
        return os.path.isfile(path) and hash_of_file(path) == (part.bytes, part.blake2b)


def tidy(folder: str) -> None:
    """Remove what workers that were ended have left: unfinished files of parts, which nobody holds locked."""
    if is_url(folder) or not os.path.isdir(folder):
        return
    unfinished = (UNFINISHED.fullmatch(name) for name in os.listdir(folder))
    for part in {found[1] for found in unfinished if found}:
        sweep(os.path.join(folder, part))


def _lock(descriptor: int, name: str) -> None:
    """Lock a folder; a run that was killed may hold it for another moment."""
    try:
        import fcntl
    except ImportError:  # a system without locks
        return
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise CreateError(f"Another run is writing into {name}.", "Wait for its end.") from None
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return
