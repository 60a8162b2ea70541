"""The protocol of word vectors, which lookup, neighbours and export use.

Table (a matrix in memory or in a file), FileVectors (text and word2vec binary files) and VectorMemo implement it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.store.table import OnProgress, Rows


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
