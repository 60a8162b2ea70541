"""Import a file of vectors: give it a name, index it if it is large, unpack it if it is packed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import AttnError, CreateError, UsageError, WriteError
from attn_cli.io.compressed import packing, pieces
from attn_cli.io.escape import visible
from attn_cli.io.files import SUFFIXES, looks_like_file, written
from attn_cli.vectors import names
from attn_cli.vectors.download.catalogue import is_name
from attn_cli.vectors.formats.detect import open_file, start_of
from attn_cli.vectors.formats.on_disk import INDEXED_FROM, FileVectors
from attn_cli.vectors.store import index_cache as cache
from attn_cli.vectors.store.source_file import SourceFile
from attn_cli.vectors.store.table import BUNDLED, OnProgress, no_progress
from attn_cli.vectors.store.word_index import index_in_memory

if TYPE_CHECKING:
    from attn_cli.vectors.store.protocol import Vectors

TAKEN = (BUNDLED, "random")


class ImportResult(NamedTuple):
    """An imported name, the file that it stands for now and before, and a note on what could not be done."""

    name: str
    path: str
    vectors: Vectors
    before: str | None
    note: str


def keep_index(vectors: Vectors, report: OnProgress = no_progress) -> str:
    """Build and keep the index of a large file that has none; return a sentence on it, or nothing.

    Where it cannot be kept, the sentence says why; a packed file can have none.
    """
    if not isinstance(vectors, FileVectors):
        return ""
    if vectors.form.packed:
        again = f"attn vectors import {vectors.form.source.quoted()}"
        return f"{vectors.name} is packed, so each use unpacks it; {again} does so once."
    if vectors.index is not None or vectors.form.source.size < INDEXED_FROM:
        return ""
    try:
        cache.check_usable()
        encoded = vectors.encoded_index(report)
        vectors.index = index = index_in_memory(encoded)
        cache.keep_index(vectors.form.source, encoded)
    except (CreateError, WriteError) as error:
        return f"No index of {vectors.name} is kept, so each use searches the file. {error.message}"
    doubled = f"; {index.doubled:,} doubled, the first of each counts" if index.doubled else ""
    return f"Indexed {vectors.name}: {index.entries:,} words of {vectors.dim:,} numbers{doubled}."


def import_file(path: str, name: str | None = None, report: OnProgress = no_progress) -> ImportResult:
    """Give a file of vectors a name, and index it; a packed one is unpacked into the user's data folder.

    The name is changed last: after an error it stands for the same file as before.
    """
    source = SourceFile.at(path)
    name = _checked(_stem(path) if name is None else name, given=name is not None)
    with source.opened() as file:
        packed = packing(file.read(6))
    target = _unpacked(source, packed, name, report) if packed else path
    vectors = open_file(target, name)
    told = keep_index(vectors, report)
    before = None
    with contextlib.suppress(AttnError):
        record = names.read_record(name)
        before = record.path if record else None
    names.store(name, names.Record(target, vectors.n_words, vectors.dim))
    unpacked = os.path.realpath(os.path.join(names.folder_of_names(), f"{name}{names.UNPACKED}"))
    if before == unpacked != os.path.realpath(target) and os.path.exists(unpacked):
        os.unlink(unpacked)  # nothing else knows of it
        cache.forget_index(unpacked)
    is_same = before is None or before == os.path.realpath(target)
    note = told if told.startswith("No index") else ""
    return ImportResult(name, target, vectors, None if is_same else before, note)


def _stem(path: str) -> str:
    """Return a file's name without the suffixes that tell its format."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    while suffix.lower() in SUFFIXES:
        stem, suffix = os.path.splitext(stem)
    return stem + suffix


def _checked(name: str, given: bool) -> str:
    if is_name(name) and name not in TAKEN and not looks_like_file(name):
        return name
    reason = "is taken" if name in TAKEN else "cannot be the name of imported vectors"
    rule = ": letters from A to z, digits, - _ . + and no file's suffix."
    raise UsageError(
        f"{visible(name[:60])!r} {reason}.",
        ("Choose another" if given else "Choose one with --name") + rule,
        "--name",
    )


def _unpacked(source: SourceFile, packed: str, name: str, report: OnProgress) -> str:
    """Unpack a file beside the user's data, all or nothing, and return where; it is read through before it counts."""
    start_of(source, packed)  # refuses what is neither text nor binary
    folder = names.folder_of_names()
    target = os.path.join(folder, f"{name}{names.UNPACKED}")
    beside = os.path.join(folder, f".{name}.{os.getpid()}.part")
    try:
        with source.opened() as file, written(beside) as stream:
            for piece in pieces(file, packed, source.name):
                stream.write(piece)
                report(file.tell() / max(1, source.size))
        open_file(beside, source.name).describe()  # read through
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    return target
