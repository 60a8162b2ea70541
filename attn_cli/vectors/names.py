"""The names of sets of word vectors: bundled, imported, downloaded. An imported name is a small JSON file."""

from __future__ import annotations

import contextlib
import json
import os
from typing import NamedTuple

from attn_cli.errors import AttnError, FileError, InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import written
from attn_cli.vectors.download import catalogue as gensim_data
from attn_cli.vectors.formats.detect import open_file
from attn_cli.vectors.formats.on_disk import FileVectors
from attn_cli.vectors.store import index_cache as cache
from attn_cli.vectors.store.table import BUNDLED, bundled

LARGEST = 1 << 16
UNPACKED = ".vectors"


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
    folder = cache.data_folder()
    try:
        found = os.listdir(folder) if folder else []
    except OSError:
        return []
    stems = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return sorted(name for name in stems if gensim_data.is_name(name))


def read_record(name: str) -> Record | None:
    """Return the record of an imported name, None if there is none; InputError if it is damaged."""
    path = _path(name) if gensim_data.is_name(name) else None
    if path is None or not os.path.exists(path):
        return None
    try:
        with open(path, "rb") as file:
            kept = json.loads(file.read(LARGEST))
        words, dim = (kept.get(key) if type(kept.get(key)) is int else None for key in ("words", "dim"))
        if not isinstance(kept["path"], str):
            raise ValueError
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):
        raise InputError(
            f"The name {name} is damaged: {visible(path)}.",
            f"Import its file again, or: attn vectors remove {name}",
        ) from None
    return Record(kept["path"], words, dim)


def store(name: str, record: Record) -> None:
    """Store a file's name; CreateError or WriteError where that is not possible."""
    folder = folder_of_names()
    with written(os.path.join(folder, f"{name}.json")) as stream:
        stream.write(json.dumps({**record._asdict(), "path": os.path.realpath(record.path)}).encode())


def folder_of_names() -> str:
    """Return the folder of names, made where it is missing; CreateError where that is not possible."""
    return cache.usable_folder(cache.data_folder(), "The folder of names", "XDG_DATA_HOME")


def remove(name: str) -> list[str]:
    """Remove an imported name, its index and its unpacked file (never the user's); return the removed paths."""
    path = _path(name) if name in imported() else None
    if path is None:
        there = gensim_data.local(name)
        hint = (
            f"It was downloaded, and lies in {visible(str(there.parent))}."
            if there
            else "See attn vectors list."
        )
        raise UsageError(f"There is no imported name {visible(name)!r}.", hint)
    unpacked = path.removesuffix(".json") + UNPACKED
    paths: list[str | None] = [unpacked, path]
    with contextlib.suppress(AttnError):
        record = read_record(name)
        paths.append(cache.index_path(record.path) if record else None)
    removed = [one for one in paths if one and os.path.exists(one)]
    for one in removed:
        try:
            os.unlink(one)
        except OSError as error:
            raise FileError(f"Cannot remove {visible(one)}: {error.strerror}.") from None
    return removed


def path_of(name: str) -> str | None:
    """Return the file that a name stands for: imported, else downloaded; None if there is no such name."""
    record = read_record(name)
    if record is None:
        there = gensim_data.local(name)
        return None if there is None else str(there)
    if not os.path.exists(record.path):
        raise FileError(
            f"{name} stands for {visible(record.path)}, which is gone.",
            f"Import it anew: attn vectors import FILE --name {name}",
        )
    return record.path


def all_names() -> list[str]:
    """Return all names that stand for a file."""
    return sorted({*imported(), *gensim_data.installed()})


def listing() -> list[ListEntry]:
    """Return the bundled set and every named one, without reading any of them through."""
    table = bundled()
    listed = [ListEntry(BUNDLED, "bundled", table.n_words, table.dim, "safetensors", None)]
    ours = set(imported())
    return listed + [_listed(name, "imported" if name in ours else "downloaded") for name in all_names()]


def _listed(name: str, source: str) -> ListEntry:
    path = None
    try:
        record = read_record(name)
        path = record.path if record else str(gensim_data.local(name))
        vectors = open_file(path, name)
    except AttnError as error:
        return ListEntry(name, source, None, None, f"unreadable: {error.message}", path)
    form = vectors.about.get("format", "")
    if not isinstance(vectors, FileVectors):
        return ListEntry(name, source, vectors.n_words, vectors.dim, form, path)
    counted = record.words if record and record.dim == vectors.dim else vectors.form.claimed
    return ListEntry(
        name, source, vectors.index.entries if vectors.index else counted, vectors.dim, form, path
    )


def _path(name: str) -> str | None:
    folder = cache.data_folder()
    return None if folder is None else os.path.join(folder, f"{name}.json")
