"""A folder of parts with a manifest, so that a run that was ended can be continued.

A part is written as a whole, and only then named in the manifest, which is replaced as a whole. After a kill there are
complete parts, of which the manifest does not name the last ones; these are computed again, and are the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from attn_cli.batch.folder import Folder, absolute, folder_of
from attn_cli.batch.manifest import (
    ANEW,
    BESIDE,
    LARGEST,
    MANIFEST,
    OURS,
    OWNER,
    Manifest,
    PartEntry,
    most_bytes,
    output_identity,
    read_manifest,
)
from attn_cli.batch.storage import is_url
from attn_cli.errors import AttnError, InputError, UsageError, WriteError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from attn_cli.batch.cut import Plan
    from attn_cli.batch.inputs import Input
    from attn_cli.batch.job import Job

OWNER_BYTES = 16
OWNER_NAME = re.compile(rb"[0-9a-f]{%d}" % OWNER_BYTES)
SHARE = 0.05  # of the time, at most, goes into writing the manifest
Map = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], list[Any]]


def check_inputs(folder: Folder, files: Iterable[Input]) -> None:
    """Refuse to write into a folder where a file that is read has the name of one that is written."""
    place = _real(folder.path)
    for file in files:
        at, name = os.path.split(_real(file.path))
        if at == place and OURS.fullmatch(name):
            said = f"{file.name} is a file that is read: it would be replaced."
            raise UsageError(said, "Write into another folder.", "--output")


def _real(path: str) -> str:
    path = path.removeprefix("file://")
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def open_run(folder: Folder, job: Job, plan: Plan, compute: Map, force: bool) -> Manifest:
    """Return the manifest of a run to go on with, or of a new one; parts that are not as they were written go.

    What is in the folder may be anybody's. Raises InputError, and changes nothing, where it holds anything that this
    run has not written, unless `force`, which starts anew.
    """
    new = Manifest(plan.fingerprint, output_identity(job))
    names = folder.names()
    found = None if force else _manifest(folder, names, new, plan)
    if found is None or not (found.parts or found.complete):
        # The manifest goes last: until then the folder is known to be a run's.
        ours = filter(OURS.fullmatch, names)
        folder.remove(sorted(ours, key=lambda name: (name.startswith(MANIFEST), name)))
        return new
    release(folder)
    parts = list(found.parts.values())
    are_there = compute(holds, [(absolute(folder.path), part) for part in parts])
    if all(are_there):
        return found
    new.parts |= {part.number: part for part, is_there in zip(parts, are_there, strict=True) if is_there}
    return new


def holds(folder: str, part: PartEntry) -> bool:
    """Tell whether a part is there as it was written."""
    return folder_of(folder).holds(part)


def _manifest(folder: Folder, names: Mapping[str, bool], new: Manifest, plan: Plan) -> Manifest | None:
    """Return the manifest of a folder, all of it checked, or None for an empty folder; InputError for any other."""
    place = folder.name.rstrip("/")
    for name, is_regular in names.items():
        if OURS.fullmatch(name) and not is_regular:
            raise InputError(f"{place}/{name} is not a regular file: attn batch did not write it.", ANEW)
    if OWNER in names and not OWNER_NAME.fullmatch(folder.read(OWNER, OWNER_BYTES) or b""):
        raise InputError(f"{place}/{OWNER} is not attn's.", ANEW)
    is_run = MANIFEST in names or MANIFEST + BESIDE in names
    lines = plan.count() if is_run else 0
    text = folder.read(MANIFEST, most_bytes(lines)) if is_run else None
    if text is not None:
        return read_manifest(text, folder.name, new.input, new.run, lines)
    if any(not name.startswith(".") for name in names):
        hint = "Give another folder, or --force to write into this one."
        raise InputError(f"{folder.name} is not empty and holds no attn batch run.", hint)
    return None


def claim(folder: Folder) -> str:
    """Let the parts of a run that begins now, and of no other, come into the folder; return its name."""
    owner = os.urandom(OWNER_BYTES // 2).hex()
    folder.put(OWNER, lambda stream: stream.write(owner.encode()))
    return owner


def release(folder: Folder) -> None:
    """Let no more parts come into the folder from the workers of a run that has gone."""
    if folder.read(OWNER, OWNER_BYTES) is not None:
        folder.remove([OWNER])


def check_owner(folder: Folder, owner: str) -> None:
    """Raise WriteError where the folder is another run's now, or nobody's."""
    if folder.read(OWNER, OWNER_BYTES) != owner.encode():
        said = f"{folder.name} is no longer this run's: it has ended, or another has begun."
        raise WriteError(said, "Give each run a folder of its own.")


class ManifestWriter:
    """Writes the manifest of a folder; of many parts not after each, for it grows with them."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.next = 0.0  # when it is to be written again
        self.is_behind = False  # whether it was not written after the last part

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Write the manifest at the start, complete at the end, and with the parts that are there after an error."""
        try:
            with cleaned_up(self.end):
                self.store()  # from now on the folder is known to be a run's
                yield
        except BaseException:
            self.leave()
            raise
        self.manifest.complete = True
        self.store()

    def add(self, part: PartEntry) -> None:
        """Name a part that is there."""
        self.manifest.parts[part.number] = part
        self.is_behind = True
        if time.monotonic() >= self.next:
            self.store()

    def store(self) -> None:
        """Write the manifest: what it names is there."""
        start = time.monotonic()
        text = self.manifest.text().encode()
        if len(text) > LARGEST:
            hint = "Cut the input, and give each a folder."
            raise InputError("A manifest cannot name so many parts.", hint)
        self.folder.put(MANIFEST, lambda stream: stream.write(text))
        end = time.monotonic()
        self.next, self.is_behind = end + (end - start) / SHARE, False

    def leave(self) -> None:
        """Write the manifest before a run ends early, ignoring write errors: they must not hide why it ends."""
        if self.is_behind:
            with suppress(AttnError):
                self.store()

    def end(self) -> None:
        """Write what is there before a signal ends the process; not into a store, which may let it wait."""
        if not is_url(self.folder.path):
            self.leave()
