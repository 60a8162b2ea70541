"""Word vectors of every kind, and a cache of looked-up ones: many texts use the same words again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from attn_cli.vectors.store.table import OnProgress, Table, as_bytes, as_float64, no_progress

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.formats.on_disk import FileVectors

OpenVectors: TypeAlias = "Table | FileVectors"  # a matrix, in memory or in a file; text or a word2vec binary
Vectors: TypeAlias = "Table | FileVectors | VectorMemo"

MOST_BYTES = 1 << 24
LEAST_BYTES = 1 << 9  # of an entry, also of a word without a vector
SINGLY = 200  # words up to which each is searched for by itself
MOST_WORDS = 1 << 23  # bytes of all words together, up to which an index of them is made
LONGEST = 64  # letters; longer words are rarely repeated


class VectorMemo:
    """The vectors of `table`, with a cache of at most MOST_BYTES that is emptied when it is full."""

    def __init__(self, table: OpenVectors) -> None:
        self.table = table
        self.most = MOST_BYTES // max(LEAST_BYTES, 8 * table.dim)
        self.known: dict[str, Array | None] = {}
        self.searched = 0
        self.places: dict[bytes, int] = {}  # of all words, once many have been looked up
        self.source, self.name, self.dim, self.length = table.source, table.name, table.dim, table.length
        self.ngrams = table.ngrams
        self.rows, self.word_blocks, self.fingerprint = table.rows, table.word_blocks, table.fingerprint

    @property
    def about(self) -> dict[str, str]:
        """What else is known of them."""
        return self.table.about

    def find(self, words: Iterable[str], report: OnProgress = no_progress) -> dict[str, Array]:
        """Return the float64 vectors (dim,) of those words that have one; they may hold NaN or infinity."""
        wanted = dict.fromkeys(words)
        found = {word: self.known[word] for word in wanted if word in self.known}
        missing = [word for word in wanted if word not in found]
        if missing:
            fresh = self._fresh(missing, report)
            found |= fresh
            if len(self.known) + len(missing) > self.most:
                self.known.clear()
            kept = [word for word in missing if len(word) <= LONGEST]
            self.known |= {word: fresh.get(word) for word in kept[: self.most]}
        return {word: vector for word, vector in found.items() if vector is not None}

    def _fresh(self, words: list[str], report: OnProgress) -> dict[str, Array]:
        """Return the vectors of words that are not in the cache."""
        self.searched += len(words)
        if isinstance(self.table, Table) and self.searched > SINGLY and not self.places:
            self.places = self.table.word_rows() if len(self.table.block) <= MOST_WORDS else {}
        if not self.places or not isinstance(self.table, Table):
            return self.table.find(words, report)
        rows = {word: self.places[name] for word in words if (name := as_bytes(word)) in self.places}
        vectors = as_float64(self.table.matrix[np.array(list(rows.values()), dtype=np.intp)])
        return dict(zip(rows, vectors, strict=True))
