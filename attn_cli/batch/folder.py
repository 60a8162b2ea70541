"""Where the parts of a run lie: a folder of this machine, or a place with a URL."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from attn_cli.batch.manifest import ANEW, PART, Part, hash_of
from attn_cli.batch.storage import is_url
from attn_cli.errors import CreateError, InputError, WriteError
from attn_cli.io.atomic import sweep, sync_folder, written
from attn_cli.io.escape import visible
from attn_cli.io.files import open_regular, reason

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

    def names(self) -> dict[str, bool]:
        """Return the names of what is in it, and of each whether it is a regular file."""
        ...

    def read(self, name: str, most: int) -> bytes | None:
        """Return what a regular file holds; None if it is not there, InputError if it is more than so many bytes."""
        ...

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file as a whole, and return its bytes and their hash."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        ...

    def size(self, name: str) -> int | None:
        """Return the bytes of a regular file; None for what is none."""
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

    def names(self) -> dict[str, bool]:
        """Return the names of what is in it, and of each whether it is a regular file."""
        try:
            with os.scandir(self.path) as entries:
                return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        except OSError as error:
            raise CreateError(f"Cannot write into {self.name}: {reason(error)}.") from None

    def read(self, name: str, most: int) -> bytes | None:
        """Return what a regular file holds; None if it is not there, InputError if it is more than so many bytes."""
        try:
            with open_regular(self._at(name)) as stream:
                found = stream.read(most + 1)
        except FileNotFoundError:
            return None
        check_size(len(found), most, visible(self._at(name)))
        return found

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file beside its place, sync and rename it; return its bytes and their hash."""
        with written(self._at(name), follow=False) as stream:
            write(stream)
        try:
            with open_regular(self._at(name)) as stream:
                return hash_of(stream)
        except OSError:
            name = visible(self._at(name))
            raise WriteError(f"{name} was written, and cannot be read.", "Try again.") from None

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; none of them where one is a folder."""
        for name in names:
            if os.path.isdir(self._at(name)) and not os.path.islink(self._at(name)):
                raise CreateError(
                    f"{visible(self._at(name))} is a folder, which attn batch does not remove.",
                    "Remove it yourself, or write into another folder.",
                )
        for name in names:
            try:
                os.unlink(self._at(name))
            except OSError as error:
                raise CreateError(f"Cannot remove {visible(self._at(name))}: {reason(error)}.") from None
        try:
            sync_folder(self.path)
        except OSError as error:
            raise CreateError(f"Cannot write into {self.name}: {reason(error)}.") from None

    def size(self, name: str) -> int | None:
        """Return the bytes of a regular file; None for what is none."""
        try:
            about = os.lstat(self._at(name))
        except OSError:
            return None
        return about.st_size if stat.S_ISREG(about.st_mode) else None

    def holds(self, part: Part) -> bool:
        """Tell whether a part is there, as it was written."""
        if self.size(part.file) != part.bytes:
            return False
        with open_regular(self._at(part.file)) as stream:
            return hash_of(stream) == (part.bytes, part.blake2b)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)


def check_size(size: int, most: int, name: str) -> None:
    """Raise InputError for a file that is larger than what attn writes."""
    if size > most:
        raise InputError(f"{name} is not a file of attn batch: it has more than {most:,} bytes.", ANEW)


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
