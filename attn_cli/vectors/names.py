"""Names of sets of word vectors: bundled, downloaded, or given to a file at its import (each a small JSON file)."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache as once
from typing import NamedTuple

from attn_cli.errors import AttnError, FileError, InputError, UsageError, WriteError, did_you_mean, visible
from attn_cli.io.atomic import lock, locked_folder, remove_unlocked, sync_folder, written
from attn_cli.io.files import SUFFIXES, looks_like_file, packing, pieces, system_errors
from attn_cli.io.signals import cleaned_up
from attn_cli.io.types import OnPart, no_report
from attn_cli.vectors import catalogue as gensim_data
from attn_cli.vectors.detect import open_file, start_of
from attn_cli.vectors.open_vectors import (
    FileVectors,
    forget_index,
    index_path,
    keep_index,
    usable_folder,
    vectors_folder,
)
from attn_cli.vectors.table import BUNDLED, SourceFile, Vectors, bundled

UNPACKED = ".vectors"
TAKEN = (BUNDLED, "random")
OnText = Callable[[str], None]


class Record(NamedTuple):
    """The file that a name stands for, and its size when it was imported."""

    path: str
    words: int | None
    dim: int | None


class ListEntry(NamedTuple):
    """One line of the list; words and dim are None where only reading the file through would tell."""

    name: str
    source: str
    words: int | None
    dim: int | None
    format: str
    path: str | None


def imported() -> list[str]:
    """Return the names under which files were imported."""
    try:
        found = os.listdir(vectors_folder("data") or "")
    except OSError:
        return []
    stems = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return sorted(name for name in stems if gensim_data.is_name(name))


def _record_path(name: str) -> str:
    folder = vectors_folder("data")
    return os.path.join(folder, f"{name}.json") if folder and gensim_data.is_name(name) else ""


def read_record(name: str) -> Record | None:
    """Return the record of an imported name, None if there is none; InputError if it is damaged."""
    path = _record_path(name)
    try:
        with open(path, "rb") as file:
            kept = json.loads(file.read(1 << 16))
        words, dim = (kept.get(key) if type(kept.get(key)) is int else None for key in ("words", "dim"))
        if not isinstance(kept["path"], str):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):
        said = f"The name {name} is damaged: {visible(path)}."
        raise InputError(said, f"Import its file again, or: attn vectors remove {name}") from None
    return Record(kept["path"], words, dim)


def _stood_for(name: str) -> str:
    """Return the file that a name stands for until now, an empty text if there is none, or that cannot be read."""
    with contextlib.suppress(AttnError):
        if record := read_record(name):
            return record.path
    return ""


def import_file(
    path: str, name: str | None = None, report: OnPart = no_report, say: OnText = lambda _: None
) -> tuple[str, Vectors, list[str]]:
    """Give a file of vectors a name, and index it; a packed one is unpacked into the user's data folder.

    Return the name, the vectors, and sentences on what the user may not expect; `say` is told when it waits for another
    import. The name is changed last: after an error it stands for the same file as before.
    """
    source = SourceFile.at(path)
    name = _new_name(path, name)
    with source.opened() as file:
        packed = packing(file.read(6))
    before, notes, folder = _stood_for(name), [], usable_folder("data")
    busy = once(lambda: say("Another attn is importing: waiting for it."))
    with locked_folder(folder, busy), contextlib.ExitStack() as until_named:
        target = until_named.enter_context(_unpacked(source, packed, name, report)) if packed else path
        vectors = open_file(target, name)
        note = keep_index(vectors, report)
        record = Record(os.path.realpath(target), vectors.n_words, vectors.dim)
        with written(_record_path(name)) as stream:
            stream.write(json.dumps(record._asdict()).encode())
        _remove_unpacked(name, record.path)
    if packed:
        notes.append(f"unpacked to {visible(target)}, {os.path.getsize(target):,} bytes.")
    if before not in ("", record.path):
        notes.append(f"{name} stood for {visible(before)} before.")
    if note.startswith("No index"):
        notes.append(note)
    return name, vectors, notes


def _new_name(path: str, given: str | None) -> str:
    stem, suffix = os.path.splitext(os.path.basename(path))
    while suffix.lower() in SUFFIXES:
        stem, suffix = os.path.splitext(stem)
    name = stem + suffix if given is None else given
    if gensim_data.is_name(name) and name not in TAKEN and not looks_like_file(name):
        return name
    reason = "is taken" if name in TAKEN else "cannot be the name of imported vectors"
    rule = ": letters from A to z, digits, - _ . + and no file's suffix."
    choose = "Choose one with --name" if given is None else "Choose another"
    raise UsageError(f"{visible(name[:60])!r} {reason}.", choose + rule, "--name")


@contextlib.contextmanager
def _unpacked(source: SourceFile, packed: str, name: str, report: OnPart) -> Iterator[str]:
    """Unpack a file into the user's data, read it through, and give its path; after an error or a signal it goes."""
    start_of(source, packed)  # refuses what is neither text nor binary
    target = os.path.join(usable_folder("data"), f"{name}.{os.urandom(4).hex()}{UNPACKED}")

    def undo() -> None:
        if _stood_for(name) != os.path.realpath(target):
            forget_index(target)
            with contextlib.suppress(OSError):
                os.unlink(target)

    with cleaned_up(undo):
        try:
            with source.opened() as file, written(target) as stream:
                for piece in pieces(file, packed, source.name):
                    stream.write(piece)
                    report(file.tell() / max(1, source.size))
            _hold(target)
            _ = open_file(target, source.name).n_words  # reads all of it
            yield target
        except BaseException:
            undo()
            raise


def _remove_unpacked(name: str, but: str = "") -> list[str]:
    """Remove what was unpacked for a name, all files but one and those in use, and return their paths."""
    folder = vectors_folder("data") or ""
    ours = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{8}}{re.escape(UNPACKED)}")
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for path in (os.path.join(folder, file) for file in os.listdir(folder) if ours.fullmatch(file)):
            if os.path.realpath(path) == but:
                continue
            if path in _held:
                os.close(_held.pop(path))
            remove_unlocked(path)
            if not os.path.exists(path):
                forget_index(path)
                removed.append(path)
    return removed


def remove(name: str) -> list[str]:
    """Remove an imported name, its index and its unpacked file (never the user's); return the removed paths."""
    path = _record_path(name)
    if name not in imported():
        if there := gensim_data.local(name):
            hint = f"It was downloaded, and lies in {visible(str(there.parent))}."
        else:
            hint = f"{did_you_mean(name, imported())}See attn vectors list."
        raise UsageError(f"There is no imported name {visible(name)!r}.", hint)
    with locked_folder(os.path.dirname(path)):
        # The name goes first: what is left after an error stands for nothing, and the next import takes it away.
        before, removed = _stood_for(name), list[str]()
        for one in (path, index_path(before) if before else None):
            if one and os.path.exists(one):
                kept = f"The name {name} is gone." if removed else "Nothing was changed."
                with system_errors(WriteError, f"Cannot remove {visible(one)}", kept):
                    os.unlink(one)
                removed.append(one)
        removed += _remove_unpacked(name)
        why = f"The name {name} is gone, but its folder cannot be synced"
        with system_errors(WriteError, why, "It may come back after a loss of power."):
            sync_folder(os.path.dirname(path))
    return removed


def path_of(name: str) -> str | None:
    """Return the file that a name stands for: imported, else downloaded; None if there is no such name."""
    record, tried = read_record(name), None
    while record and record != tried and not _hold(record.path):
        tried, record = record, read_record(name)  # it is gone, or was replaced meanwhile
    if record is None:
        there = gensim_data.local(name)
        return str(there) if there else None
    if not os.path.exists(record.path):
        what = f"{name} stands for {visible(record.path)}, which is gone."
        raise FileError(what, f"Import it anew: attn vectors import FILE --name {name}")
    return record.path


_held: dict[str, int] = {}  # descriptors of unpacked files in use, by path


def _hold(path: str) -> bool:
    """Keep an unpacked file from being removed for as long as this process runs; return whether it is there."""
    if not path.endswith(UNPACKED):
        return True
    with contextlib.suppress(OSError):
        if path not in _held:
            _held[path] = os.open(path, os.O_RDONLY)
            lock(_held[path], is_shared=True)
        return os.fstat(_held[path]).st_nlink > 0
    return os.path.exists(path)


def all_names() -> list[str]:
    """Return all names that stand for a file."""
    return sorted({*imported(), *gensim_data.installed()})


def listing() -> list[ListEntry]:
    """Return the bundled set and every named one, without reading any of them through."""
    table, ours = bundled(), set(imported())
    first = ListEntry(BUNDLED, "bundled", table.n_words, table.dim, "safetensors", None)
    return [first, *(_listed(name, "imported" if name in ours else "downloaded") for name in all_names())]


def _listed(name: str, source: str) -> ListEntry:
    path = None
    try:
        record = read_record(name)
        path = record.path if record else str(gensim_data.local(name))
        vectors = open_file(path, name)
    except AttnError as error:
        return ListEntry(name, source, None, None, f"unreadable: {error.message}", path)
    if isinstance(vectors, FileVectors) and vectors.index is None:
        words = record.words if record and record.dim == vectors.dim else vectors.form.claimed
    else:
        words = vectors.n_words
    return ListEntry(name, source, words, vectors.dim, vectors.about.get("format", ""), path)
