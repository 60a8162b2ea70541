"""Where the parts of a run lie: a folder of this machine, or a place with a URL. Files are put there as a whole."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Any

from attn_cli.batch.manifest import ANEW, BESIDE, PART, PartEntry, hash_of
from attn_cli.batch.storage import OBJECT_STORES, file_system, is_url, protocol_of, storage_errors
from attn_cli.errors import CreateError, InputError, WriteError, refuse_input, visible
from attn_cli.io.atomic import locked_folder, sweep, sync_folder, written
from attn_cli.io.files import open_regular, system_errors

PATIENCE = 5.0  # seconds that another run may take to leave the folder
UNFINISHED = re.compile(rf"\.({PART.pattern})\.[0-9a-f]{{8}}\.part")
BLOCK = 1 << 20
Write = Callable[[IO[bytes]], object]


class LocalFolder:
    """A folder of this machine, which one run at a time writes."""

    def __init__(self, path: str) -> None:
        self.path, self.name = path, visible(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; CreateError where one is in, or where the folder cannot be made."""
        with system_errors(CreateError, f"Cannot create {self.name}", "Choose another place."):
            os.makedirs(self.path, exist_ok=True)
        end = time.monotonic() + PATIENCE

        def busy() -> None:
            if time.monotonic() > end:
                raise CreateError(f"Another run is writing into {self.name}.", "Wait for its end.")

        with locked_folder(self.path, busy):
            yield

    def names(self) -> dict[str, bool]:
        """Return the names of what is in it, and of each whether it is a regular file."""
        with system_errors(CreateError, f"Cannot write into {self.name}"), os.scandir(self.path) as entries:
            return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}

    def read(self, name: str, most: int) -> bytes | None:
        """Return what a regular file holds; None if it is not there, InputError if it is more than so many bytes."""
        with suppress(FileNotFoundError), open_regular(self._at(name)) as stream:
            found = stream.read(most + 1)
            _check_size(len(found), most, visible(self._at(name)))
            return found
        return None

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file beside its place, sync and rename it; return its bytes and their hash."""
        with written(self._at(name), follow=False) as stream:
            write(stream)
        try:
            with open_regular(self._at(name)) as stream:
                return hash_of(stream)
        except OSError:
            said = f"{visible(self._at(name))} was written, and cannot be read."
            raise WriteError(said, "Try again.") from None

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; none of them where one is a folder."""
        for name in names:
            is_folder = os.path.isdir(self._at(name)) and not os.path.islink(self._at(name))
            _refuse_folder(is_folder, self._at(name))
        for name in names:
            with system_errors(CreateError, f"Cannot remove {visible(self._at(name))}"):
                os.unlink(self._at(name))
        with system_errors(CreateError, f"Cannot write into {self.name}"):
            sync_folder(self.path)

    def size(self, name: str) -> int | None:
        """Return the bytes of a regular file; None for what is none."""
        with suppress(OSError):
            about = os.lstat(self._at(name))
            return about.st_size if stat.S_ISREG(about.st_mode) else None
        return None

    def holds(self, part: PartEntry) -> bool:
        """Tell whether a part is there, as it was written."""
        if self.size(part.file) != part.bytes:
            return False
        with open_regular(self._at(part.file)) as stream:
            return hash_of(stream) == (part.bytes, part.blake2b)

    def tidy(self) -> None:
        """Remove what workers that were ended have left: unfinished files of parts, which nobody holds locked."""
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        for part in {found[1] for found in map(UNFINISHED.fullmatch, names) if found}:
            sweep(self._at(part))

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)


class RemoteFolder:
    """What LocalFolder is, with a URL. Two runs may write at once: the same bytes. What no manifest names is void."""

    def __init__(self, url: str) -> None:
        self.path, self.name = url, visible(url)
        self.system, path = file_system(url)
        self.root = path.rstrip("/")
        self.is_store = protocol_of(url) in OBJECT_STORES

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, where the store has folders; CreateError where that is not possible."""
        with storage_errors(self.path, "create"):
            if not self.is_store:
                self.system.makedirs(self.root, exist_ok=True)
            self.system.invalidate_cache()
        yield

    def names(self) -> dict[str, bool]:  # noqa: D102
        with storage_errors(self.path):
            return {name: _is_file(about) for name, about in self._listed().items()}

    def read(self, name: str, most: int) -> bytes | None:  # noqa: D102
        url = self._url(name)
        with storage_errors(url):
            # A run may have ended between two renamings.
            for path in (self._at(name), self._at(name) + BESIDE):
                with suppress(FileNotFoundError):
                    size = self._size(path)
                    if size is None:
                        raise InputError(f"{visible(url)} is not a regular file.", ANEW)
                    _check_size(size, most, visible(url))
                    return self.system.cat_file(path, start=0, end=size) if size else b""
        return None

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file here, then send it there; return its bytes and their hash."""
        path = self._at(name)
        at = path if self.is_store else path + BESIDE
        with TemporaryFile() as stream:
            with system_errors(WriteError, "Cannot write a temporary file", "TMPDIR may name another place."):
                write(stream)
                stream.seek(0)
                size, found = hash_of(stream)
                stream.seek(0)
            with storage_errors(self._url(name), "write"):
                if not self.is_store:  # a link that lies there would be followed
                    self._drop(at)
                with self.system.open(at, "wb") as remote:
                    shutil.copyfileobj(stream, remote, BLOCK)
                if not self.is_store:
                    self._drop(path)
                    self.system.mv(at, path)
        return size, found

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; none of them where one is a folder."""
        with storage_errors(self.path, "write"):
            there = {} if self.is_store else self._listed()
            for name in names:
                _refuse_folder(name in there and there[name]["type"] == "directory", self._url(name))
            for name in names:
                self._drop(self._at(name), self._at(name) + BESIDE)

    def size(self, name: str) -> int | None:  # noqa: D102
        with storage_errors(self._url(name)), suppress(FileNotFoundError):
            return self._size(self._at(name))
        return None

    def holds(self, part: PartEntry) -> bool:
        """Tell whether a part is there with all its bytes; to hash them they would have to come here."""
        return self.size(part.file) == part.bytes

    def tidy(self) -> None:
        """Do nothing: unfinished files are temporary ones of the machines that wrote them."""

    def _listed(self) -> dict[str, Mapping[str, Any]]:
        """Return what fsspec says of each file and folder, by its name."""
        try:
            found = self.system.ls(self.root, detail=True, refresh=True)
        except FileNotFoundError:  # a store has no folder where there is no file
            return {}
        about = {str(one["name"]).rstrip("/"): one for one in found}
        return {path.rpartition("/")[2]: one for path, one in about.items() if path != self.root}

    def _size(self, path: str) -> int | None:
        about = self.system.info(path)
        return int(about["size"]) if _is_file(about) else None

    def _drop(self, *paths: str) -> None:
        """Remove files that are there."""
        for path in paths:
            with suppress(FileNotFoundError):
                self.system.rm_file(path)

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _url(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


Folder = LocalFolder | RemoteFolder


def folder_of(path: str) -> Folder:
    """Return the folder of a path or a URL."""
    return RemoteFolder(path) if is_url(path) else LocalFolder(path)


def absolute(path: str) -> str:
    """Return a path as processes in another folder know it."""
    return path if is_url(path) else os.path.abspath(path)


def _is_file(about: Mapping[str, Any]) -> bool:
    """Tell whether what fsspec says of a name is of a regular file, and not of a link to one."""
    return about["type"] == "file" and not about.get("islink")


def _check_size(size: int, most: int, name: str) -> None:
    """Raise InputError for a file that is larger than what attn writes."""
    refuse_input(size > most, f"{name} is not a file of attn batch: it has more than {most:,} bytes.", ANEW)


def _refuse_folder(is_folder: bool, path: str) -> None:
    """Raise CreateError where a folder lies in the place of a file that is to be removed."""
    if is_folder:
        said = f"{visible(path)} is a folder, which attn batch does not remove."
        raise CreateError(said, "Remove it yourself, or write into another folder.")
