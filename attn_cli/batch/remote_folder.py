"""A folder of parts with a URL. What no manifest names does not count: a half written part is written again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from attn_cli.batch.folder import check_size
from attn_cli.batch.manifest import ANEW, BESIDE, hash_of
from attn_cli.batch.storage import BLOCK, OBJECT_STORES, file_system, protocol_of, reached
from attn_cli.errors import InputError, WriteError
from attn_cli.io.escape import visible
from attn_cli.io.files import reason

if TYPE_CHECKING:
    from attn_cli.batch.folder import Write
    from attn_cli.batch.manifest import Part


class RemoteFolder:
    """A folder with a URL. Nothing keeps two runs of the same input apart there; they write the same bytes."""

    def __init__(self, url: str) -> None:
        self.path, self.name = url, visible(url)
        self.system, path = file_system(url)
        self.root = path.rstrip("/")
        self.is_store = protocol_of(url) in OBJECT_STORES

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, where the store has folders; CreateError where that is not possible."""
        with reached(self.path, "create"):
            if not self.is_store:
                self.system.makedirs(self.root, exist_ok=True)
            self.system.invalidate_cache()
        yield

    def names(self) -> dict[str, bool]:
        """Return the names of what is in it, and of each whether it is a regular file."""
        with reached(self.path):
            try:
                found = self.system.ls(self.root, detail=True, refresh=True)
            except FileNotFoundError:  # a store has no folder where there is no file
                return {}
        about = {str(one["name"]).rstrip("/"): one for one in found}
        return {path.rpartition("/")[2]: _is_file(one) for path, one in about.items() if path != self.root}

    def read(self, name: str, most: int) -> bytes | None:
        """Return what a regular file holds; None if it is not there, InputError if it is more than so many bytes."""
        url = f"{self.path.rstrip('/')}/{name}"
        with reached(url):
            for path in (
                self._at(name),
                self._at(name) + BESIDE,
            ):  # a run may have ended between two renamings
                with suppress(FileNotFoundError):
                    size = self._size(path)
                    if size is None:
                        raise InputError(f"{visible(url)} is not a regular file.", ANEW)
                    check_size(size, most, visible(url))
                    found: bytes = self.system.cat_file(path, start=0, end=size) if size else b""
                    return found
        return None

    def put(self, name: str, write: Write) -> tuple[int, str]:
        """Write a file here, then send it there; return its bytes and their hash."""
        with TemporaryFile() as stream:
            try:
                write(stream)
                stream.flush()
                stream.seek(0)
                size, found = hash_of(stream)
                stream.seek(0)
            except OSError as error:
                raise WriteError(
                    f"Cannot write a temporary file: {reason(error)}.", "TMPDIR may name another place."
                ) from None
            with reached(f"{self.path.rstrip('/')}/{name}", "write"):
                self._send(stream, self._at(name))
        return size, found

    def _send(self, stream: IO[bytes], path: str) -> None:
        at = path if self.is_store else path + BESIDE
        if not self.is_store:  # a link that lies there would be followed
            self._drop(at)
        with self.system.open(at, "wb") as remote:
            shutil.copyfileobj(stream, remote, BLOCK)
        if not self.is_store:
            self._drop(path)
            self.system.mv(at, path)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        with reached(self.path, "write"):
            for name in names:
                self._drop(self._at(name))
                self._drop(self._at(name) + BESIDE)

    def size(self, name: str) -> int | None:
        """Return the bytes of a regular file; None for what is none."""
        with reached(f"{self.path.rstrip('/')}/{name}"), suppress(FileNotFoundError):
            return self._size(self._at(name))
        return None

    def holds(self, part: Part) -> bool:
        """Tell whether a part is there with all its bytes; to hash them they would have to come here."""
        return self.size(part.file) == part.bytes

    def _size(self, path: str) -> int | None:
        about = self.system.info(path)
        return int(about["size"]) if _is_file(about) else None

    def _drop(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self.system.rm_file(path)

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}"


def _is_file(about: Mapping[str, Any]) -> bool:
    """Tell whether what fsspec says of a name is of a regular file, and not of a link to one."""
    return about["type"] == "file" and not about.get("islink")
