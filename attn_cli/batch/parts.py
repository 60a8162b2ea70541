"""A run whose output is a folder of parts with a manifest, so that a run that was ended can be continued.

A part is written as a whole, and only then named in the manifest, which is replaced as a whole. After a kill there are
complete parts, of which the manifest does not name the last ones; these are computed again, and are the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any

from attn_cli.batch import manifest as manifests
from attn_cli.batch.forms import FORMS
from attn_cli.batch.manifest import MANIFEST, PART, Manifest, Part, differences, part_name, read_manifest
from attn_cli.batch.storage import is_url
from attn_cli.errors import AttnError, InputError, WriteError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from attn_cli.batch.folder import Folder
    from attn_cli.batch.job import Job
    from attn_cli.batch.write import Written

OWNER = ".run"  # which run's parts may come into the folder: those of a run that has gone may still be on their way
SHARE = 0.05  # of the time, at most, goes into writing the manifest

Check = Callable[["Folder", list[Part]], Iterable[bool]]


def open_run(
    folder: Folder, source: dict[str, Any], run: dict[str, Any], force: bool, check: Check
) -> Manifest:
    """Return the manifest of a run to go on with, or of a new one; parts that are not as they were written go.

    Raises InputError where the folder holds something else, unless `force`, which starts anew.
    """
    disown(folder)
    text = None if force else folder.read(MANIFEST)
    if text is None:
        _clear(folder, force)
        return Manifest(source, run)
    found = read_manifest(text, f"{folder.name.rstrip('/')}/{MANIFEST}")
    if what := differences(found, source, run):
        raise InputError(
            f"{folder.name} holds another run: {what}.", "Give another folder, or --force to start anew."
        )
    parts = list(found.parts.values())
    whole = {part.number: part for part, holds in zip(parts, check(folder, parts), strict=True) if holds}
    return found if len(whole) == len(parts) else Manifest(source, run, whole)


def _clear(folder: Folder, force: bool) -> None:
    """Remove what an earlier run has left, the manifest first; refuse a folder of other files, unless `force`."""
    names = folder.names()
    ours = [name for name in names if PART.fullmatch(name)]
    if not force and any(not name.startswith(".") for name in names if name not in ours):
        raise InputError(
            f"{folder.name} is no empty folder, and holds no run of attn batch.",
            "Give another folder, or --force to write into this one.",
        )
    folder.remove([MANIFEST] * (MANIFEST in names) + ours)


def own(folder: Folder) -> str:
    """Let the parts of a run that begins now, and of no other, come into the folder; return its name."""
    owner = os.urandom(8).hex()
    folder.put(OWNER, lambda stream: stream.write(owner.encode()))
    return owner


def disown(folder: Folder) -> None:
    """Let no more parts come into the folder from the workers of a run that has gone."""
    if folder.read(OWNER) is not None:
        folder.remove([OWNER])


def check_owner(folder: Folder, owner: str) -> None:
    """Raise WriteError where the folder is another run's now, or nobody's."""
    if folder.read(OWNER) != owner.encode():
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
        self.folder.put(MANIFEST, lambda stream: stream.write(text))
        end = time.monotonic()
        self.next, self.is_behind = end + (end - start) / SHARE, False

    def leave(self) -> None:
        """Write what is there before a run ends early; that it cannot be written is not why it ends."""
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
