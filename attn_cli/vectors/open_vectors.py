"""Open word vectors: a table, or a large text or binary file, whose words are found without reading the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, TypeAlias

import numpy as np

from attn_cli.errors import CreateError, WriteError
from attn_cli.io.array_types import Array
from attn_cli.vectors import table as tables
from attn_cli.vectors import word_index as cache
from attn_cli.vectors.text_file import TextFormat
from attn_cli.vectors.word2vec_binary import BinaryFormat
from attn_cli.vectors.word_index import WordIndex, build, hash_words

INDEXED_FROM = 1 << 22  # bytes; a smaller file is read through faster than an index is opened


class FileVectors(tables.CachedVectors):
    """Vectors in a text or a word2vec binary, found through an index where there is one, else by a search."""

    source = "file"
    length = None
    ngrams = None

    def __init__(self, form: TextFormat | BinaryFormat, name: str | None = None) -> None:
        super().__init__(form.dim)
        self.form, self.size, self.name = form, form.source.size, name or form.source.name
        self.dtype = "float32" if isinstance(form, BinaryFormat) else "float64"
        self.index: WordIndex | None = None if form.packed else WordIndex.of(form.source, form.kind)

    @property
    def n_words(self) -> int:
        """How many words there are; doubled ones count once."""
        return len(self.indexed().hashes)

    @property
    def about(self) -> dict[str, str]:
        """What is known of the file."""
        doubled = 0 if self.index is None else len(self.index.repeats)
        packed = f", {self.form.packed}" if self.form.packed else ""
        return {"format": self.form.kind + packed, **({"doubled": str(doubled)} if doubled else {})}

    def _found(self, words: list[str], report: tables.OnProgress) -> dict[str, Array]:
        wanted = {tables.as_bytes(word): word for word in words if word}
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
                    cache.forget_index(self.form.source.path)
                    self.index = None
            if self.index is None or self.form.packed:
                found = self.search(file, wanted, report)
        return {wanted[word]: tables.as_float64(vector) for word, vector in found.items()}

    def search(
        self, file: IO[bytes], wanted: Iterable[bytes], report: tables.OnProgress = tables.no_progress
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

    def indexed(self, report: tables.OnProgress = tables.no_progress) -> WordIndex:
        """Return the index; where there is none yet, read the file through and build it, in memory."""
        if self.index is None:
            with self.form.source.opened() as file:
                blocks = self.form.blocks(file, report)
                self.index = build((hash_words(words), offsets) for offsets, words, _ in blocks)
        return self.index

    def rows(self, report: tables.OnProgress = tables.no_progress) -> Iterator[tables.Rows]:
        """Yield the words and vectors (n, dim), some after the other, in the file's order; doubles are left out."""
        repeats = self.indexed().repeats
        with self.form.source.opened() as file:
            for offsets, words, vectors in self.form.blocks(file, report):
                kept = np.flatnonzero(~np.isin(offsets, repeats))
                with np.errstate(over="ignore"):  # what is too large becomes infinity, told where it matters
                    matrix = vectors(slice(None)).astype(np.float32, copy=False)
                if len(kept):
                    yield tables.Rows([words[at] for at in kept.tolist()], matrix[kept])

    def word_blocks(self, report: tables.OnProgress = tables.no_progress) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in the file's order; doubled ones more than once."""
        with self.form.source.opened() as file:
            yield from (words for _, words, _ in self.form.blocks(file, report))

    def fingerprint(self) -> str:
        """Return what tells these vectors from others, as a table of the same words and numbers would."""
        wanted, before = tables.fingerprint_rows(self.n_words), 0
        blocks, parts = [], []
        for words, matrix in self.rows():
            blocks.append(b"\n".join(words))
            parts.append(matrix[wanted[(wanted >= before) & (wanted < before + len(words))] - before])
            before += len(words)
        lines = b"\n%b\n" % b"\n".join(blocks)
        return tables.fingerprint_of((before, self.dim), lines, np.concatenate(parts))


# A matrix, in memory or in a file; or text, or a word2vec binary.
Vectors: TypeAlias = "tables.VectorTable | FileVectors"


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


def keep_index(vectors: Vectors, report: tables.OnProgress = tables.no_progress) -> str:
    """Build and keep the index of a large file that has none; return a sentence on it, or nothing.

    Where it cannot be kept, the sentence says why; a packed file can have none.
    """
    if not isinstance(vectors, FileVectors):
        return ""
    source = vectors.form.source
    if vectors.form.packed:
        again = f"attn vectors import {source.quoted()}"
        return f"{vectors.name} is packed, so each use unpacks it; {again} does so once."
    if vectors.index is not None or vectors.size < INDEXED_FROM:
        return ""
    try:
        cache.usable_folder("cache")
        index = vectors.indexed(report)
        cache.keep_index(source, vectors.form.kind, index)
    except (CreateError, WriteError) as error:
        return f"No index of {vectors.name} is kept, so each use searches the file. {error.message}"
    repeats = len(index.repeats)
    doubled = f"; {repeats:,} doubled, the first of each counts" if repeats else ""
    return f"Indexed {vectors.name}: {len(index.hashes):,} words of {vectors.dim:,} numbers{doubled}."
