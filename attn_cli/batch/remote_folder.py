"""A folder of parts with a URL. What no manifest names does not count: a half written part is written again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from attn_cli.batch.manifest import hash_of
from attn_cli.batch.storage import BLOCK, OBJECT_STORES, file_system, protocol_of, reached
from attn_cli.errors import WriteError
from attn_cli.io.escape import visible
from attn_cli.io.files import reason

if TYPE_CHECKING:
    from attn_cli.batch.folder import Write
    from attn_cli.batch.manifest import Part

BESIDE = ".new"  # behind the name of a file that is not in its place yet


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

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        with reached(self.path):
            try:
                found = self.system.ls(self.root, detail=False, refresh=True)
            except FileNotFoundError:  # a store has no folder where there is no file
                return []
        return [
            str(path).rstrip("/").rpartition("/")[2] for path in found if str(path).rstrip("/") != self.root
        ]

    def read(self, name: str) -> bytes | None:
        """Return what a file holds; None if it is not there."""
        with reached(f"{self.path.rstrip('/')}/{name}"):
            for path in (
                self._at(name),
                self._at(name) + BESIDE,
            ):  # a run may have ended between two renamings
                with suppress(FileNotFoundError):
                    found: bytes = self.system.cat_file(path)
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
        with self.system.open(at, "wb") as remote:
            shutil.copyfileobj(stream, remote, BLOCK)
        if not self.is_store:
            with suppress(FileNotFoundError):
                self.system.rm_file(path)
            self.system.mv(at, path)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        with reached(self.path, "write"):
            for name in names:
                for path in (self._at(name), self._at(name) + BESIDE):
                    with suppress(FileNotFoundError):
                        self.system.rm_file(path)

    def holds(self, part: Part) -> bool:
        """Tell whether a part is there with all its bytes; to hash them they would have to come here."""
        with reached(f"{self.path.rstrip('/')}/{part.file}"):
            try:
                return int(self.system.info(self._at(part.file))["size"]) == part.bytes
            except FileNotFoundError:
                return False

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}"
