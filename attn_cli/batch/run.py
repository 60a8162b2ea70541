"""A run over an input, into a stream or into a folder of parts with a manifest, where it can be continued.

A part is written as a whole, then named in the manifest, which is replaced as a whole; after a kill, what is not named
is computed again, and is the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from attn_cli.batch import Feed, Job, chunks_of, cut, forms, manifest as manifests, storage
from attn_cli.batch.folder import Folder, absolute, folder_of
from attn_cli.batch.workers import OWNER_BYTES, Local, outputs, release
from attn_cli.errors import AttnError, InputError, count, refuse, refuse_input
from attn_cli.io.console import say

if TYPE_CHECKING:
    from attn_cli.batch.cluster import Dask

    Engine = Local | Dask  # who computes the parts of a folder
    LinesReport = Callable[[int, float | None], None]  # gets the lines that are written, and the share done

OWNER_NAME = re.compile(rb"[0-9a-f]{%d}" % OWNER_BYTES)
SHARE = 0.05  # of the time, at most, goes into writing the manifest


def write_stream(
    job: Job, files: Sequence[storage.Input], workers: int, stream: IO[bytes], report: LinesReport
) -> tuple[int, int]:
    """Write all records, up to a bad line, to a stream; return how many lines there were, and how many were refused."""
    feed, lines, refused = Feed(files), 0, 0
    with forms.FORMS[job.form].sink(stream, job) as write:
        for chunk in outputs(job, chunks_of(feed.groups(), 1, feed.is_ready), workers, feed.is_ready):
            if chunk.data:
                write(chunk.data)
            lines, refused = lines + chunk.lines, refused + chunk.refused
            report(lines, feed.done)
            if chunk.error is not None:
                raise chunk.error
    return lines, refused


def write_folder(
    job: Job, files: Sequence[storage.Input], folder: Folder, engine: Engine, force: bool, report: LinesReport
) -> tuple[int, int]:
    """Write the parts of a folder that are missing; return how many lines it has now, and how many were refused."""
    _check_inputs(folder, files)
    with folder.locked():
        plan = cut.Plan(files, engine.map(cut.scan_block, cut.blocks_of(files)))
        manifest = _open_run(folder, job, plan, engine, force)
        done = f"{count(manifest.lines, 'line', 'lines')} in {count(len(manifest.parts), 'part', 'parts')}"
        if manifest.complete:
            bad = f", {manifest.refused:,} of them refused" if manifest.refused else ""
            say(f"attn: {folder.name} is complete: {done}{bad}. --force writes it anew.")
            return 0, 0
        if manifest.parts:
            say(f"attn: {folder.name} already holds {done}: resuming.")
        written, total, due = manifest.lines, plan.lines, 0.0

        def add_lines(more: int) -> None:
            nonlocal written
            written += more
            report(written, written / total if total else None)

        _store(folder, manifest)  # from now on the folder is known to be a run's
        try:
            for part in engine.parts(job, folder, plan, manifest, add_lines):
                manifest.parts[part.number] = part
                start = time.monotonic()
                if start >= due:  # it grows with its parts: of many it is not written after each
                    _store(folder, manifest)
                    due = time.monotonic() + (time.monotonic() - start) / SHARE
        except BaseException:
            with suppress(AttnError):  # it would hide why the run ends
                _store(folder, manifest)
            raise
        manifest.complete = True
        _store(folder, manifest)
    return manifest.lines, manifest.refused


def _check_inputs(folder: Folder, files: Sequence[storage.Input]) -> None:
    """Refuse to write into a folder where a file that is read has the name of one that is written."""
    named = [one.path.removeprefix("file://") for one in (folder, *files)]
    place, *paths = [path.rstrip("/") if storage.is_url(path) else os.path.realpath(path) for path in named]
    for file, path in zip(files, paths, strict=True):
        at, name = os.path.split(path)
        said = f"{file.name} is a file that is read: it would be replaced."
        refuse(at == place and manifests.OURS.fullmatch(name), said, "Write into another folder.", "--output")


def _open_run(folder: Folder, job: Job, plan: cut.Plan, engine: Engine, force: bool) -> manifests.Manifest:
    """Return the manifest of a run to go on with, or of a new one; parts that are not as they were written go.

    The folder may be anybody's: InputError, and no change, where it holds what this run did not write, unless `force`.
    """
    new = manifests.Manifest(plan.fingerprint, manifests.output_identity(job))
    names = folder.names()
    found = None if force else _manifest(folder, names, new, plan)
    if found is None or not (found.parts or found.complete):
        # The manifest goes last: until then the folder is known to be a run's.
        ours = filter(manifests.OURS.fullmatch, names)
        folder.remove(sorted(ours, key=lambda name: (name.startswith(manifests.MANIFEST), name)))
        return new
    release(folder)
    parts = list(found.parts.values())
    are_there = engine.map(folder_of(absolute(folder.path)).holds, [(part,) for part in parts])
    if all(are_there):
        return found
    new.parts |= {part.number: part for part, is_there in zip(parts, are_there, strict=True) if is_there}
    return new


def _manifest(
    folder: Folder, names: Mapping[str, bool], new: manifests.Manifest, plan: cut.Plan
) -> manifests.Manifest | None:
    """Return the manifest of a folder, all of it checked, or None for an empty folder; InputError for any other."""
    place = folder.name.rstrip("/")
    for name, is_regular in names.items():
        said = f"{place}/{name} is not a regular file: attn batch did not write it."
        refuse_input(manifests.OURS.fullmatch(name) and not is_regular, said, manifests.ANEW)
    owner = folder.read(manifests.OWNER, OWNER_BYTES) or b"" if manifests.OWNER in names else None
    if owner is not None and not OWNER_NAME.fullmatch(owner):
        raise InputError(f"{place}/{manifests.OWNER} is not attn's.", manifests.ANEW)
    if manifests.MANIFEST in names or manifests.MANIFEST + manifests.BESIDE in names:
        lines = plan.count()
        text = folder.read(manifests.MANIFEST, manifests.most_bytes(lines))
        if text is not None:
            return manifests.read_manifest(text, folder.name, new.input, new.run, lines)
    if any(not name.startswith(".") for name in names):
        hint = "Give another folder, or --force to write into this one."
        raise InputError(f"{folder.name} is not empty and holds no attn batch run.", hint)
    return None


def _store(folder: Folder, manifest: manifests.Manifest) -> None:
    """Write the manifest: what it names is there."""
    text = manifest.text().encode()
    if len(text) > manifests.MAX_MANIFEST_BYTES:
        raise InputError("A manifest cannot name so many parts.", "Cut the input, and give each a folder.")
    folder.put(manifests.MANIFEST, lambda stream: stream.write(text))
