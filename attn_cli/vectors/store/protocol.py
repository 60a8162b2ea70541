"""The protocol of word vectors, which lookup, neighbours and export use, and a cache of looked-up ones.

Table (a matrix in memory or in a file) and FileVectors (text and word2vec binary files) implement it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from attn_cli.vectors.store.table import OnProgress, Rows, no_progress

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_BYTES = 1 << 24
LEAST_BYTES = 1 << 9  # of an entry, also of a word without a vector
LONGEST = 64  # letters; longer words are rarely repeated


class Vectors(Protocol):
    """Word vectors, in memory or in a file."""

    @property
    def source(self) -> str:
        """word2vec for the bundled ones, else file."""

    @property
    def name(self) -> str:
        """What they are called, printable."""

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""

    @property
    def n_words(self) -> int:
        """How many words have one; doubled ones count once."""

    @property
    def length(self) -> float | None:
        """The one Euclidean length that all vectors have, where the file states one."""

    @property
    def about(self) -> dict[str, str]:
        """What else is known of them; `doubled` counts the rows whose word came before."""

    def find(self, words: Iterable[str], report: OnProgress = ...) -> dict[str, Array]:
        """Return the float64 vectors (dim,) of those words that have one; they may hold NaN or infinity."""

    def rows(self, report: OnProgress = ...) -> Iterator[Rows]:
        """Yield all words and vectors, some after the other, in order; a word that came before is left out."""

    def word_blocks(self, report: OnProgress = ...) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order."""

    def fingerprint(self) -> str:
        """Return what tells these vectors from others."""

    def describe(self) -> dict[str, object]:
        """Return what is known of them: size, format, and what their maker noted."""


class VectorMemo:
    """The vectors of `table`, with a cache of at most MOST_BYTES that is emptied when it is full."""

    def __init__(self, table: Vectors) -> None:
        self.table = table
        self.most = MOST_BYTES // max(LEAST_BYTES, 8 * table.dim)
        self.known: dict[str, Array | None] = {}
        self.source, self.name, self.dim, self.length = table.source, table.name, table.dim, table.length

    @property
    def n_words(self) -> int:
        """How many words have a vector; doubled ones count once."""
        return self.table.n_words

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
            fresh = self.table.find(missing, report)
            found |= fresh
            if len(self.known) + len(missing) > self.most:
                self.known.clear()
            kept = [word for word in missing if len(word) <= LONGEST]
            self.known |= {word: fresh.get(word) for word in kept[: self.most]}
        return {word: vector for word, vector in found.items() if vector is not None}

    def rows(self, report: OnProgress = no_progress) -> Iterator[Rows]:
        """Yield all words and vectors, some after the other, in order."""
        return self.table.rows(report)

    def word_blocks(self, report: OnProgress = no_progress) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order."""
        return self.table.word_blocks(report)

    def fingerprint(self) -> str:
        """Return what tells these vectors from others."""
        return self.table.fingerprint()

    def describe(self) -> dict[str, object]:
        """Return what is known of them."""
        return self.table.describe()
