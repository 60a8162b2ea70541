"""What a language model has above its heads: the rest of its last layer, and the scores of the next word.

A word w is scored by its vector, v_w + c_w, and a bias: h P (v_w + c_w) + b_w. Inputs and outputs share the vectors v
of the table and what is learned beside them, c, of the commonest words. All words without a vector are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.core.masks import Mask, named
from attn_cli.errors import InputError
from attn_cli.vectors.spelling import forms
from attn_cli.vectors.table import as_bytes

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.open_vectors import Vectors

    Take = Callable[..., Array]

UNKNOWN = "[unknown]"  # how the words without a vector are shown, as one word
BLOCK = 2048
MASK = "causal"  # under which it is trained


class WordLayer(NamedTuple):
    """What makes scores of the last layer's output: d numbers a word, V words."""

    P: Array  # (width, d)
    bias: Array  # (V + 1,); the last is that of all words without a vector
    unknown: Array  # (d,), the vector of these
    first: Array  # (width,), from which the first word is told
    corrections: Array  # (commonest words, d)

    def scores(self, H: Array, vectors: Array) -> Array:
        """Return the score of each word after each row of H (m, width): (m, V + 1), float32.

        `vectors` (V, d) are those that the model reads.
        """
        V, common = len(vectors), len(self.corrections)
        if len(self.bias) != V + 1 or vectors.shape[1] != self.P.shape[1] or common > V:
            raise InputError(f"The model scores {len(self.bias) - 1:,} words, and there are {V:,} vectors.")
        rows = (H @ self.P).astype(np.float32)
        found = np.empty((len(rows), V + 1), np.float32)
        for start in range(0, V, BLOCK):  # a small copy of halves at a time is twice as quick
            stop = min(start + BLOCK, V)
            found[:, start:stop] = rows @ np.asarray(vectors[start:stop], np.float32).T
        found[:, :common] += rows @ self.corrections.astype(np.float32).T
        found[:, V] = rows @ self.unknown.astype(np.float32)
        found += self.bias
        return found

    def probabilities(self, H: Array, vectors: Array) -> Array:
        """Return the probability of each word after each row of H (m, width): (m, V + 1), float64."""
        scores = self.scores(H, vectors).astype(np.float64)
        if not np.isfinite(scores).all():
            raise InputError("The scores of the next word are more than a number can hold.")
        return softmax(scores)


def read_word_layer(take: Take, width: int, names: list[str], vectors: Array) -> WordLayer:
    """Return what a file has of it, checked; a feature's vector is a correction where its name is `=word`."""
    dim = vectors.shape[1]
    common = sum(name.startswith("=") for name in names)
    is_last = all(name.startswith("=") for name in names[len(names) - common :])
    return WordLayer(
        take("out.W", 2, width=width, dim=dim),
        take("out.bias", 1),
        take("out.unknown", 1, dim=dim),
        take("out.first", 1, width=width),
        vectors[len(names) - common :] if is_last else vectors[:0],
    )


def causal(n: int) -> Mask | None:
    """Return the mask under which a language model was trained, over n words."""
    return named(MASK, n, n)


def matrix_of(table: Vectors) -> Array:
    """Return all vectors of a table, (V, d): without a copy where they lie in memory."""
    table = getattr(table, "table", table)  # what is behind a cache
    found = getattr(table, "matrix", None)
    return (
        found if isinstance(found, np.ndarray) else np.concatenate([block.matrix for block in table.rows()])
    )


def word_number(word: str, rows: Mapping[bytes, int]) -> int:
    """Return which word a token is, as a lookup has it; the number after the last where it has no vector."""
    return next((rows[form] for one in forms(word) if (form := as_bytes(one)) in rows), len(rows))
