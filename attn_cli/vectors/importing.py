"""Vectors made quick to use: an index of a large file, a name for it, and a packed one unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from attn_cli.errors import AttnError, CreateError, InputError, UsageError
from attn_cli.files import SUFFIXES, looks_like_file, written
from attn_cli.vectors import cache
from attn_cli.vectors.formats import open_file
from attn_cli.vectors.index import index_in_memory
from attn_cli.vectors.onfile import FileVectors, Report
from attn_cli.vectors.original import look_at, packing, pieces
from attn_cli.vectors.table import Vectors, nobody
from attn_cli.visible import visible

TAKEN = ("word2vec", "random")
UNPACKED = ".vectors"


class Imported(NamedTuple):
    """What an import did: the name, the file that it now stands for, its vectors, what it stood for before."""

    name: str
    path: Path
    vectors: Vectors
    before: Path | None


def keep_index(vectors: Vectors, report: Report = nobody) -> str:
    """Build and keep the index of a large file that has none; return a sentence on it, or nothing."""
    if not isinstance(vectors, FileVectors) or not vectors.wants_index:
        return ""
    if not cache.is_usable():
        return f"No index of {vectors.name} can be kept ({cache.shown()}): each use searches the file."
    encoded = vectors.encoded_index(report)
    vectors.index = index = index_in_memory(encoded)
    try:
        cache.keep_index(vectors.form.original, encoded)
    except AttnError as error:
        return f"No index is kept: {error.message}"
    doubled = f"; {index.doubled:,} doubled, the first of each counts" if index.doubled else ""
    return f"Indexed {vectors.name}: {index.entries:,} words of {vectors.dim:,} numbers{doubled}."


def import_file(path: str, name: str | None = None, report: Report = nobody) -> Imported:
    """Give a file of vectors a name, with its index made; a packed one is unpacked beside the user's data."""
    original = look_at(path)
    name = _checked(_stem(path) if name is None else name, given=name is not None)
    before = cache.named_path(name)
    with original.opened() as file:
        packed = packing(file.read(6))
    target = _unpacked(path, packed, name, report) if packed else Path(path)
    vectors = open_file(str(target), name)
    sentence = keep_index(vectors, report)
    if sentence.startswith("No index"):
        raise CreateError(sentence)
    cache.keep_name(name, target)
    if before and before.suffix == UNPACKED and before.parent == cache.data_folder() and before != target:
        before.unlink(missing_ok=True)  # nothing else knows of it
    return Imported(name, target, vectors, before if before and not _is_same(before, target) else None)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _stem(path: str) -> str:
    """Return a file's name without the suffixes that tell its format."""
    stem = Path(path)
    while stem.suffix.lower() in SUFFIXES:
        stem = stem.with_suffix("")
    return stem.name


def _checked(name: str, given: bool) -> str:
    if cache.is_name(name) and name not in TAKEN and not looks_like_file(name):
        return name
    raise UsageError(
        f"{visible(name[:60])!r} cannot be the name of imported vectors.",
        ("Choose another" if given else "Choose one with --name")
        + ": letters, digits, - _ . and no file's suffix.",
        "--name",
    )


def _unpacked(path: str, packed: str, name: str, report: Report) -> Path:
    """Unpack a file beside the user's data, all or nothing, and return where."""
    folder = cache.data_folder()
    if folder is None:
        raise CreateError(
            f"There is no home folder to unpack {visible(path)} in.", f"Unpack it: {packed} -dk FILE"
        )
    cache.make_folder(folder)
    cache.tidy(folder)
    original = look_at(path)
    target = folder / f"{name}{UNPACKED}"
    with original.opened() as file, written(target) as stream:
        for piece in pieces(file, packed, original.name):
            stream.write(piece)
            report(file.tell() / max(1, original.size))
    try:
        open_file(str(target), original.name)  # what cannot be read is not kept
    except InputError:
        target.unlink(missing_ok=True)
        raise
    return target
