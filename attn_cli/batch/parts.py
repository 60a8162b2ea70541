"""A run whose output is a folder of parts with a manifest, so that a run that was ended can be continued.

A part is written as a whole, and only then named in the manifest, which is replaced as a whole. After a kill there are
complete parts, of which the manifest does not name the last ones; these are computed again, and are the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, Protocol

from attn_cli.batch import manifest as manifests
from attn_cli.batch.forms import FORMS
from attn_cli.batch.manifest import (
    ANEW,
    BESIDE,
    LARGEST,
    MANIFEST,
    OURS,
    OWNER,
    Manifest,
    Part,
    most_bytes,
    part_name,
    read_manifest,
    run_of,
)
from attn_cli.batch.storage import is_url
from attn_cli.errors import AttnError, InputError, UsageError, WriteError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from attn_cli.batch.folder import Folder
    from attn_cli.batch.inputs import Input
    from attn_cli.batch.job import Job
    from attn_cli.batch.write import Written

OWNER_BYTES = 16
OWNER_NAME = re.compile(rb"[0-9a-f]{%d}" % OWNER_BYTES)
SHARE = 0.05  # of the time, at most, goes into writing the manifest


class AnyRun(Protocol):
    """A run into a folder, here or by a cluster; `lines` and `refused` count what is written."""

    job: Job
    lines: int
    refused: int

    @property
    def files(self) -> Sequence[Input]:
        """The input."""
        ...

    @property
    def done(self) -> float | None:
        """The share that is done."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the input."""
        ...

    def count(self) -> int:
        """Return how many lines the input has."""
        ...

    def check(self, folder: Folder, parts: list[Part]) -> Sequence[bool]:
        """Return of each part whether it is there as it was written."""
        ...

    def write_parts(self, folder: Folder, manifest: Manifest, report: Callable[[int], None]) -> None:
        """Write the parts of a folder that are missing."""
        ...


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


def open_run(folder: Folder, run: AnyRun, force: bool) -> Manifest:
    """Return the manifest of a run to go on with, or of a new one; parts that are not as they were written go.

    What is in the folder may be anybody's. Raises InputError, and changes nothing, where it holds anything that this
    run has not written, unless `force`, which starts anew.
    """
    source, about = run.fingerprint(), run_of(run.job)
    names = folder.names()
    ours = [name for name in names if OURS.fullmatch(name)]
    found = None if force else _manifest(folder, names, run, source, about)
    if found is None or not (found.parts or found.complete):
        # The manifest goes last: until then the folder is known to be a run's.
        folder.remove(sorted(ours, key=lambda name: (name.startswith(MANIFEST), name)))
        return Manifest(source, about)
    disown(folder)
    parts = list(found.parts.values())
    whole = {part.number: part for part, holds in zip(parts, run.check(folder, parts), strict=True) if holds}
    return found if len(whole) == len(parts) else Manifest(source, about, whole)


def _manifest(
    folder: Folder,
    names: Mapping[str, bool],
    run: AnyRun,
    source: Mapping[str, Any],
    about: Mapping[str, Any],
) -> Manifest | None:
    """Return the manifest of a folder, all of it checked, or None for an empty folder; InputError for any other."""
    place = folder.name.rstrip("/")
    for name, is_regular in names.items():
        if OURS.fullmatch(name) and not is_regular:
            raise InputError(f"{place}/{name} is not a regular file: attn batch did not write it.", ANEW)
    if OWNER in names and not OWNER_NAME.fullmatch(folder.read(OWNER, OWNER_BYTES) or b""):
        raise InputError(f"{place}/{OWNER} is not attn's.", ANEW)
    is_run = MANIFEST in names or MANIFEST + BESIDE in names
    lines = run.count() if is_run else 0
    text = folder.read(MANIFEST, most_bytes(lines)) if is_run else None
    if text is not None:
        return read_manifest(text, folder.name, source, about, lines)
    if any(not name.startswith(".") for name in names):
        raise InputError(
            f"{folder.name} is not empty and holds no attn batch run.",
            "Give another folder, or --force to write into this one.",
        )
    return None


def own(folder: Folder) -> str:
    """Let the parts of a run that begins now, and of no other, come into the folder; return its name."""
    owner = os.urandom(OWNER_BYTES // 2).hex()
    folder.put(OWNER, lambda stream: stream.write(owner.encode()))
    return owner


def disown(folder: Folder) -> None:
    """Let no more parts come into the folder from the workers of a run that has gone."""
    if folder.read(OWNER, OWNER_BYTES) is not None:
        folder.remove([OWNER])


def check_owner(folder: Folder, owner: str) -> None:
    """Raise WriteError where the folder is another run's now, or nobody's."""
    if folder.read(OWNER, OWNER_BYTES) != owner.encode():
        raise WriteError(
            f"{folder.name} is no longer this run's: it has ended, or another has begun.",
            "Give each run a folder of its own.",
        )


class Keeper:
    """Writes the manifest of a folder; of many parts not after each, for it grows with them."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.next = 0.0  # when it is to be written again
        self.is_behind = False  # whether it was not written after the last part

    def add(self, part: Part) -> None:
        """Name a part that is there."""
        self.manifest.add(part)
        self.is_behind = True
        if time.monotonic() >= self.next:
            self.store()

    def store(self) -> None:
        """Write the manifest: what it names is there."""
        start = time.monotonic()
        text = self.manifest.text().encode()
        if len(text) > LARGEST:
            raise InputError(
                "A manifest cannot name so many parts.", "Cut the input, and give each a folder."
            )
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

    def finish(self) -> None:
        """Write that all parts are there."""
        self.manifest.complete = True
        self.store()


def write_parts(folder: Folder, job: Job, keeper: Keeper, chunks: Iterable[Written]) -> None:
    """Write chunks into the parts that they belong to; a part counts when the manifest names it.

    Raises the error of a bad line; the part that it is in is not written.
    """
    try:
        with cleaned_up(keeper.end):
            keeper.store()  # from now on the folder is known to be a run's
            for number, found in groupby(chunks, lambda chunk: (chunk.first - 1) // manifests.LINES):
                keeper.add(write_part(folder, job, number, found))
    except BaseException:
        keeper.leave()
        raise
    keeper.finish()


def write_part(
    folder: Folder, job: Job, number: int, chunks: Iterable[Written], check: Callable[[], None] | None = None
) -> Part:
    """Write the chunks of one part, and return what the manifest says of it; raise the error of a bad line.

    `check` is called before the part takes its place, and may raise.
    """
    lines = refused = 0

    def write(stream: IO[bytes]) -> None:
        nonlocal lines, refused
        sink = FORMS[job.form].sink(stream, job)
        try:
            for chunk in chunks:
                if chunk.error is not None:
                    raise chunk.error
                sink.write(chunk.data)
                lines, refused = lines + chunk.lines, refused + chunk.refused
            sink.close()
            if check is not None:
                check()
        except BaseException:
            sink.drop()
            raise

    name = part_name(number, job.form)
    size, found = folder.put(name, write)
    return Part(name, 1 + number * manifests.LINES, lines, refused, size, found)
