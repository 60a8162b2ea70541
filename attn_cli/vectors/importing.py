"""Vectors made quick to use: an index of a large file, a name for it, and a packed one unpacked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import CreateError, InputError, UsageError
from attn_cli.files import SUFFIXES, looks_like_file, written
from attn_cli.vectors import cache
from attn_cli.vectors.formats import open_file
from attn_cli.vectors.index import index_in_memory
from attn_cli.vectors.onfile import FileVectors, Report
from attn_cli.vectors.original import look_at, packing, pieces
from attn_cli.vectors.table import nobody
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.vectors.interface import Vectors

TAKEN = ("word2vec", "random")
UNPACKED = ".vectors"


class Imported(NamedTuple):
    """What an import did: the name, the file that it now stands for, its vectors, what it stood for before."""

    name: str
    path: str
    vectors: Vectors
    before: str | None


def keep_index(vectors: Vectors, report: Report = nobody) -> str:
    """Build and keep the index of a large file that has none; return a sentence on it, or nothing.

    Raises CreateError or WriteError where it cannot be kept; the vectors have it then all the same.
    """
    if not isinstance(vectors, FileVectors) or not vectors.wants_index:
        return ""
    cache.check_usable()
    encoded = vectors.encoded_index(report)
    vectors.index = index = index_in_memory(encoded)
    cache.keep_index(vectors.form.original, encoded)
    doubled = f"; {index.doubled:,} doubled, the first of each counts" if index.doubled else ""
    return f"Indexed {vectors.name}: {index.entries:,} words of {vectors.dim:,} numbers{doubled}."


def import_file(path: str, name: str | None = None, report: Report = nobody) -> Imported:
    """Give a file of vectors a name, with its index made; a packed one is unpacked beside the user's data."""
    original = look_at(path)
    name = _checked(_stem(path) if name is None else name, given=name is not None)
    before = cache.named_path(name)
    with original.opened() as file:
        packed = packing(file.read(6))
    target = _unpacked(path, packed, name, report) if packed else path
    vectors = open_file(target, name)
    keep_index(vectors, report)
    cache.keep_name(name, target)
    ours = os.path.realpath(os.path.join(cache.data_folder() or "", f"{name}{UNPACKED}"))
    if before == ours != os.path.realpath(target) and os.path.exists(ours):
        os.unlink(ours)  # nothing else knows of it
    return Imported(name, target, vectors, before if before and not _is_same(before, target) else None)


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _stem(path: str) -> str:
    """Return a file's name without the suffixes that tell its format."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    while suffix.lower() in SUFFIXES:
        stem, suffix = os.path.splitext(stem)
    return stem + suffix


def _checked(name: str, given: bool) -> str:
    if cache.is_name(name) and name not in TAKEN and not looks_like_file(name):
        return name
    raise UsageError(
        f"{visible(name[:60])!r} cannot be the name of imported vectors.",
        ("Choose another" if given else "Choose one with --name")
        + ": letters, digits, - _ . and no file's suffix.",
        "--name",
    )


def _unpacked(path: str, packed: str, name: str, report: Report) -> str:
    """Unpack a file beside the user's data, all or nothing, and return where."""
    folder = cache.data_folder()
    if folder is None:
        raise CreateError(
            f"There is no home folder to unpack {visible(path)} in.", f"Unpack it: {packed} -dk FILE"
        )
    cache.make_folder(folder)
    cache.tidy(folder)
    original = look_at(path)
    target = os.path.join(folder, f"{name}{UNPACKED}")
    with original.opened() as file, written(target) as stream:
        for piece in pieces(file, packed, original.name):
            stream.write(piece)
            report(file.tell() / max(1, original.size))
    try:
        open_file(target, original.name)  # what cannot be read is not kept
    except InputError:
        os.unlink(target)
        raise
    return target
