"""Open word vectors: a table, or a large text or binary file, whose words are found through an index.

The index holds the hashes of the words, sorted, and where each stands: the reader compares the word there. It is a
safetensors file with a checksum, so damage is not taken for a word that is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import IO
from zlib import crc32

import numpy as np

from attn_cli.errors import AttnError, CreateError, WriteError, visible
from attn_cli.io import array_files, atomic, files
from attn_cli.io.types import Array, Ints, NamedTuple, NDArray, OnPart, no_report
from attn_cli.vectors import (
    Rows,
    SourceFile,
    Vectors,
    as_bytes,
    as_float64,
    fingerprint_of,
    fingerprint_rows,
    word2vec,
)

INDEXED_FROM = 1 << 22  # bytes; a smaller file is read through faster than an index is opened
# FNV-1a (Fowler, Noll, Vo), 64 bits.
BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3


def hash_words(words: list[bytes]) -> NDArray[np.uint64]:
    """Return the words' hashes, FNV-1a of their bytes."""
    data = np.frombuffer(b"".join(words), np.uint8)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    order = np.argsort(-lengths)  # the longest first
    at, shrinking = (np.cumsum(lengths) - lengths)[order], -lengths[order]
    h = np.full(len(words), BASIS, np.uint64)
    for length in range(int(lengths.max(initial=0))):
        left = int(np.searchsorted(shrinking, -length))  # words longer than this
        h[:left] = (h[:left] ^ data[at[:left] + length]) * np.uint64(PRIME)
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


class WordIndex(NamedTuple):
    """The hashes (words,) of the words, ascending, the offset of each one's first row, and those of all other rows."""

    hashes: NDArray[np.uint64]
    offsets: Ints
    repeats: Ints  # ascending

    @staticmethod
    def of(source: SourceFile, kind: str) -> WordIndex | None:
        """Return the kept index of a file as it is now; None if there is none, or it is damaged."""
        path = index_path(source.path)
        if not os.path.isfile(path):
            return None
        try:
            arrays, about = array_files.read_safetensors(path, mapped=True)
            index = WordIndex(*(arrays[name] for name in WordIndex._fields))
        except (AttnError, OSError, ValueError, KeyError):
            return None
        return index if about == index.about(source, kind) else None

    def about(self, source: SourceFile, kind: str) -> dict[str, str]:
        """Return what the kept index says of its very file and of its own arrays."""
        check = crc32(repr([(array.dtype.str, array.shape) for array in self]).encode())
        for array in self:
            check = crc32(array.data, check)
        of = f"{source.size} {source.changed} {kind} {os.path.realpath(source.path)}"
        return {"of": of, "check": str(check)}

    def find(self, words: Iterable[bytes]) -> dict[bytes, int]:
        """Return, for those words that may stand in the file, the offset of their first row."""
        named = list(words)
        wanted = hash_words(named)
        places = np.searchsorted(self.hashes[:-1], wanted)
        is_there = self.hashes[places] == wanted
        return dict(zip(compress(named, is_there), self.offsets[places[is_there]].tolist(), strict=True))


def build(parts: Iterable[tuple[NDArray[np.uint64], Ints]]) -> WordIndex:
    """Return the index of words in the file's order; one hash is one word: of 3 million, a risk of 1 in 4 million."""
    hashes, offsets = (np.concatenate(some) for some in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes, offsets = hashes[order], offsets[order]
    is_first = np.append(True, hashes[1:] != hashes[:-1])
    return WordIndex(hashes[is_first], offsets[is_first], np.sort(offsets[~is_first]))


def usable_folder(kind: str) -> str:
    """Return the folder of vectors in the user's `cache` or `data`, made and swept; CreateError if not writable."""
    folder, variable = vectors_folder(kind), files.USER_FOLDERS[kind][0]
    what = "The cache" if kind == "cache" else "The folder of names"
    if folder is None:
        raise CreateError(f"{what} has no place: there is no home folder.", f"Set {variable} to a folder.")
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True, mode=0o700)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        said = f"{what} {visible(folder)} cannot be written to."
        raise CreateError(said, f"Set {variable} to a folder that can.")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for left in entries:
            if left.name.startswith(".") and left.name.endswith(".part"):
                atomic.remove_unlocked(left.path)
    return folder


def vectors_folder(kind: str) -> str | None:
    """Return attn's folder of vectors in the user's `cache` or `data`; None where the user has no home."""
    folder = files.user_folder(kind)
    return folder and os.path.join(folder, "vectors")


def index_path(path: str) -> str:
    """Return where the index of a file is kept, an empty text where there is no home."""
    folder = vectors_folder("cache")
    (named,) = hash_words([os.fsencode(os.path.realpath(path))]).tolist()
    return os.path.join(folder, f"{named:016x}.index") if folder else ""


def forget_index(of: str) -> None:
    """Remove the index of a file."""
    with contextlib.suppress(OSError):
        os.unlink(index_path(of))


class FileVectors(Vectors):
    """Vectors in a text or a word2vec binary, found through an index where there is one, else by a search."""

    source = "file"

    def __init__(self, form: word2vec.TextFormat | word2vec.BinaryFormat, name: str | None = None) -> None:
        super().__init__(form.dim)
        self.form, self.size, self.name = form, form.source.size, name or form.source.name
        self.dtype = "float32" if isinstance(form, word2vec.BinaryFormat) else "float64"
        self._use(None if form.packed else WordIndex.of(form.source, form.kind))

    def _use(self, index: WordIndex | None) -> None:
        self.index, packed = index, self.form.packed
        self.about = {"format": self.form.kind + (f", {packed}" if packed else "")}
        if index is not None and len(index.repeats):
            self.about["doubled"] = str(len(index.repeats))

    @property
    def n_words(self) -> int:  # noqa: D102
        return len(self.indexed().hashes)

    def _found(self, words: list[str], report: OnPart) -> dict[str, Array]:
        wanted = {as_bytes(word): word for word in words if word}
        if self.index is None and not self.form.packed and self.size < INDEXED_FROM:
            self.indexed()
        with self.form.source.opened() as file:
            if self.index is not None and not self.form.packed:
                places = self.index.find(wanted).items()
                found = {
                    word: vector
                    for word, at in places
                    if (vector := self.form.at(file, at, word)) is not None
                }
                if len(found) < len(places):  # it is of another file of the same size and time
                    forget_index(self.form.source.path)
                    self._use(None)
            if self.index is None or self.form.packed:
                found = self.search(file, wanted, report)
        return {wanted[word]: as_float64(vector) for word, vector in found.items()}

    def search(
        self, file: IO[bytes], wanted: Iterable[bytes], report: OnPart = no_report
    ) -> dict[bytes, Array]:
        """Return the vectors of those wanted words that the file has, each from its first row, without an index."""
        found: dict[bytes, Array] = {}
        left = set(wanted)
        for _, words, vectors in self.form.blocks(file, report):
            for word in left.intersection(words):
                row = words.index(word)
                found[word] = vectors(slice(row, row + 1))[0]
            left -= found.keys()
            if not left:
                break
        return found

    def indexed(self, report: OnPart = no_report) -> WordIndex:
        """Return the index; where there is none yet, read the file through and build it, in memory."""
        if self.index is None:
            with self.form.source.opened() as file:
                blocks = self.form.blocks(file, report)
                self._use(build((hash_words(words), offsets) for offsets, words, _ in blocks))
        assert self.index is not None  # it was built
        return self.index

    def rows(self, report: OnPart = no_report) -> Iterator[Rows]:  # noqa: D102
        repeats = self.indexed().repeats
        with self.form.source.opened() as file:
            for offsets, words, vectors in self.form.blocks(file, report):
                kept = np.flatnonzero(~np.isin(offsets, repeats))
                with np.errstate(over="ignore"):  # what is too large becomes infinity, told where it matters
                    matrix = vectors(slice(None)).astype(np.float32, copy=False)
                if len(kept):
                    yield Rows([words[at] for at in kept.tolist()], matrix[kept])

    def word_blocks(self, report: OnPart = no_report) -> Iterator[list[bytes]]:  # noqa: D102
        with self.form.source.opened() as file:
            yield from (words for _, words, _ in self.form.blocks(file, report))

    def fingerprint(self) -> str:  # noqa: D102
        wanted, before = fingerprint_rows(self.n_words), 0
        blocks, parts = [], []
        for words, matrix in self.rows():
            blocks.append(b"\n".join(words))
            parts.append(matrix[wanted[(wanted >= before) & (wanted < before + len(words))] - before])
            before += len(words)
        lines = b"\n%b\n" % b"\n".join(blocks)
        return fingerprint_of((before, self.dim), lines, np.concatenate(parts))


def describe(vectors: Vectors) -> dict[str, object]:
    """Return what is known of vectors: their size and what their maker noted; `bytes` are those of their files."""
    import json  # those who look words up do without

    words = vectors.n_words  # counts the doubled words, which `about` tells
    about = {key: value for key, value in vectors.about.items() if key != "length"}
    try:
        settings = json.loads(about.pop("settings", "null"))
        json.dumps(settings, allow_nan=False)
    except (ValueError, RecursionError):
        settings = None
    size = {"words": words, "dim": vectors.dim, "dtype": vectors.dtype, "length": vectors.length}
    of = {"source": vectors.source, "name": vectors.name, **size, "bytes": vectors.size}
    return {**of, "settings": settings, "about": about}


def keep_index(vectors: Vectors, report: OnPart = no_report) -> str:
    """Build and keep the index of a large file that has none; return a sentence on it or on why not, or nothing."""
    if not isinstance(vectors, FileVectors):
        return ""
    source = vectors.form.source
    if vectors.form.packed:
        again = f"attn vectors import {source.quoted()}"
        return f"{vectors.name} is packed, so each use unpacks it; {again} does so once."
    if vectors.index is not None or vectors.size < INDEXED_FROM:
        return ""
    try:
        usable_folder("cache")
        index = vectors.indexed(report)
        with atomic.written(index_path(source.path)) as stream:
            array_files.write_safetensors(stream, index._asdict(), index.about(source, vectors.form.kind))
    except (CreateError, WriteError) as error:
        return f"No index of {vectors.name} is kept, so each use searches the file. {error.message}"
    repeats = len(index.repeats)
    doubled = f"; {repeats:,} doubled, the first of each counts" if repeats else ""
    return f"Indexed {vectors.name}: {len(index.hashes):,} words of {vectors.dim:,} numbers{doubled}."
