"""Names of sets of word vectors: bundled, downloaded, or given to a file at its import (each a small JSON file).

A set is also written for other programs: word2vec's text and binary, which gensim reads, and attn's own table.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache as once
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attn_cli.errors import AttnError, FileError, InputError, UsageError, WriteError, did_you_mean, visible
from attn_cli.io import atomic, files, signals
from attn_cli.io.types import OnPart, no_report
from attn_cli.vectors import (
    BUNDLED,
    Rows,
    SourceFile,
    Vectors,
    as_text,
    bundled,
    catalogue,
    detect,
    kept_about,
    open_vectors,
    write_table,
)

UNPACKED = ".vectors"
TAKEN = (BUNDLED, "random")
TEXTS = (".txt", ".vec")
WRITTEN = (*TEXTS, ".bin", ".safetensors")
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
        found = os.listdir(open_vectors.vectors_folder("data") or "")
    except OSError:
        return []
    stems = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return sorted(name for name in stems if catalogue.is_name(name))


def _record_path(name: str) -> str:
    folder = open_vectors.vectors_folder("data")
    return os.path.join(folder, f"{name}.json") if folder and catalogue.is_name(name) else ""


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
        packed = files.packing(file.read(6))
    before, notes, folder = _stood_for(name), [], open_vectors.usable_folder("data")
    busy = once(lambda: say("Another attn is importing: waiting for it."))
    with atomic.locked_folder(folder, busy), contextlib.ExitStack() as until_named:
        target = until_named.enter_context(_unpacked(source, packed, name, report)) if packed else path
        vectors = detect.open_file(target, name)
        note = open_vectors.keep_index(vectors, report)
        record = Record(os.path.realpath(target), vectors.n_words, vectors.dim)
        with atomic.written(_record_path(name)) as stream:
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
    while suffix.lower() in files.SUFFIXES:
        stem, suffix = os.path.splitext(stem)
    name = stem + suffix if given is None else given
    if catalogue.is_name(name) and name not in TAKEN and not files.looks_like_file(name):
        return name
    reason = "is taken" if name in TAKEN else "cannot be the name of imported vectors"
    rule = ": letters from A to z, digits, - _ . + and no file's suffix."
    choose = "Choose one with --name" if given is None else "Choose another"
    raise UsageError(f"{visible(name[:60])!r} {reason}.", choose + rule, "--name")


@contextlib.contextmanager
def _unpacked(source: SourceFile, packed: str, name: str, report: OnPart) -> Iterator[str]:
    """Unpack a file into the user's data, read it through, and give its path; after an error or a signal it goes."""
    detect.start_of(source, packed)  # refuses what is neither text nor binary
    target = os.path.join(open_vectors.usable_folder("data"), f"{name}.{os.urandom(4).hex()}{UNPACKED}")

    def undo() -> None:
        if _stood_for(name) != os.path.realpath(target):
            open_vectors.forget_index(target)
            with contextlib.suppress(OSError):
                os.unlink(target)

    with signals.cleaned_up(undo):
        try:
            with source.opened() as file, atomic.written(target) as stream:
                for piece in files.pieces(file, packed, source.name):
                    stream.write(piece)
                    report(file.tell() / max(1, source.size))
            _hold(target)
            _ = detect.open_file(target, source.name).n_words  # reads all of it
            yield target
        except BaseException:
            undo()
            raise


def _remove_unpacked(name: str, but: str = "") -> list[str]:
    """Remove what was unpacked for a name, all files but one and those in use, and return their paths."""
    folder = open_vectors.vectors_folder("data") or ""
    ours = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{8}}{re.escape(UNPACKED)}")
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for path in (os.path.join(folder, file) for file in os.listdir(folder) if ours.fullmatch(file)):
            if os.path.realpath(path) == but:
                continue
            if path in _held:
                os.close(_held.pop(path))
            atomic.remove_unlocked(path)
            if not os.path.exists(path):
                open_vectors.forget_index(path)
                removed.append(path)
    return removed


def remove(name: str) -> list[str]:
    """Remove an imported name, its index and its unpacked file (never the user's); return the removed paths."""
    path = _record_path(name)
    if name not in imported():
        if there := catalogue.local(name):
            hint = f"It was downloaded, and lies in {visible(str(there.parent))}."
        else:
            hint = f"{did_you_mean(name, imported())}See attn vectors list."
        raise UsageError(f"There is no imported name {visible(name)!r}.", hint)
    with atomic.locked_folder(os.path.dirname(path)):
        # The name goes first: what is left after an error stands for nothing, and the next import takes it away.
        before, removed = _stood_for(name), list[str]()
        for one in (path, open_vectors.index_path(before) if before else None):
            if one and os.path.exists(one):
                kept = f"The name {name} is gone." if removed else "Nothing was changed."
                with files.system_errors(WriteError, f"Cannot remove {visible(one)}", kept):
                    os.unlink(one)
                removed.append(one)
        removed += _remove_unpacked(name)
        why = f"The name {name} is gone, but its folder cannot be synced"
        with files.system_errors(WriteError, why, "It may come back after a loss of power."):
            atomic.sync_folder(os.path.dirname(path))
    return removed


def path_of(name: str) -> str | None:
    """Return the file that a name stands for: imported, else downloaded; None if there is no such name."""
    record, tried = read_record(name), None
    while record and record != tried and not _hold(record.path):
        tried, record = record, read_record(name)  # it is gone, or was replaced meanwhile
    if record is None:
        there = catalogue.local(name)
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
            atomic.lock(_held[path], is_shared=True)
        return os.fstat(_held[path]).st_nlink > 0
    return os.path.exists(path)


def all_names() -> list[str]:
    """Return all names that stand for a file."""
    return sorted({*imported(), *catalogue.installed()})


def listing() -> list[ListEntry]:
    """Return the bundled set and every named one, without reading any of them through."""
    table, ours = bundled(), set(imported())
    first = ListEntry(BUNDLED, "bundled", table.n_words, table.dim, "safetensors", None)
    return [first, *(_listed(name, "imported" if name in ours else "downloaded") for name in all_names())]


def _listed(name: str, source: str) -> ListEntry:
    path = None
    try:
        record = read_record(name)
        path = record.path if record else str(catalogue.local(name))
        vectors = detect.open_file(path, name)
    except AttnError as error:
        return ListEntry(name, source, None, None, f"unreadable: {error.message}", path)
    if isinstance(vectors, open_vectors.FileVectors) and vectors.index is None:
        words = record.words if record and record.dim == vectors.dim else vectors.form.claimed
    else:
        words = vectors.n_words
    return ListEntry(name, source, words, vectors.dim, vectors.about.get("format", ""), path)


def export(
    vectors: Vectors, output: str, most: int | None = None, report: OnPart = no_report
) -> tuple[int, int]:
    """Write the vectors (the first `most` words, or all), all or nothing, as float32; return its words and bytes.

    The suffix is the format: .txt and .vec are word2vec's text, .bin its binary, .safetensors a table that attn opens
    quickest. InputError for a word with a space in text or binary, where it would be read back as two.
    """
    suffix = Path(output).suffix.lower()
    if suffix not in WRITTEN:
        said = f"Vectors are not written as {visible(Path(output).name)!r}."
        raise UsageError(said, f"{did_you_mean(suffix, WRITTEN)}Use {', '.join(WRITTEN)}.", "--output")
    atomic.creatable(output)
    count = vectors.n_words if most is None else min(most, vectors.n_words)
    parts = _first(vectors, count, report)
    with atomic.written(output) as stream:
        if suffix == ".safetensors":
            words, matrices = zip(*parts, strict=True)
            matrix, about = np.concatenate(matrices), kept_about(vectors.about)
            write_table(stream, [*itertools.chain(*words)], matrix, about, vectors.ngrams)
        else:
            stream.write(b"%d %d\n" % (count, vectors.dim))
            for rows in parts:
                for word in rows.words:
                    if word.translate(None, b" \t\n\r\x0b\x0c") != word:
                        said = f"{vectors.name}: the word {visible(as_text(word))!r} holds a space"
                        hint = "Export to .safetensors, which keeps it."
                        raise InputError(f"{said}, and would be read back as something else.", hint)
                if suffix in TEXTS:  # each number the shortest that is read back as the same float32
                    numbers = [" ".join(row).encode() + b"\n" for row in rows.matrix.astype("U").tolist()]
                else:
                    numbers = [row.tobytes() for row in rows.matrix.astype("<f4")]
                stream.write(b"".join(b"%b %b" % pair for pair in zip(rows.words, numbers, strict=True)))
        size = stream.tell()
    return count, size


def _first(vectors: Vectors, count: int, report: OnPart) -> Iterator[Rows]:
    """Yield the first `count` words and their vectors as float32, which all must hold."""
    for words, matrix in vectors.rows(report):
        kept = min(count, len(words))
        with np.errstate(over="ignore"):
            numbers = matrix[:kept].astype(np.float32)
        for row in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
            what = "is too large for float32" if np.isfinite(matrix[row]).all() else "holds NaN or infinity"
            word = visible(as_text(words[row]))
            raise InputError(f"{vectors.name}: the vector of {word!r} {what}.", "Replace or remove its row.")
        yield Rows(words[:kept], numbers)
        count -= kept
        if not count:
            return
