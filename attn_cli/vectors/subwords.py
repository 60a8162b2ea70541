"""Vectors of words that a table does not have, guessed from their spelling.

A word's vector is the mean of all vectors and the sum of those of its n-grams over the square root of how many they
are. The n-grams' vectors are what least squares makes of the words that the table has (Zhao, Mudgal and Liang 2018,
"Generalizing Word Embeddings using Bag of Subwords"). They share rows by a hash, as in fastText, and are kept in the
few directions in which guesses differ most, in a byte a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.vectors.formats.fasttext_ngrams import ngrams
from attn_cli.vectors.store.table import as_bytes, require_finite

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.store.vectors import Vectors

SHORTEST, LONGEST = 2, 5  # characters of an n-gram; a word stands in angle brackets


def check_has_ngrams(table: Vectors) -> None:
    """Refuse vectors that no word can be guessed with."""
    if table.ngrams is None:
        raise UsageError(
            f"--oov subword needs n-grams, and {table.name} has none.",
            "Add them with attn vectors subwords, or choose zero, random, nearest, skip or error.",
            "--oov",
        )


def guess(words: Sequence[str], table: Vectors) -> dict[str, Array]:
    """Return a float64 vector (dim,) for each word, of the table's one length if it has one.

    Raises UsageError where the table has no n-grams, InputError where they hold NaN or infinity.
    """
    from attn_cli.vectors.lookup import forms

    check_has_ngrams(table)
    assert table.ngrams is not None
    rows, directions = table.ngrams
    sums = np.zeros((len(words), rows.shape[1]))
    counts = np.zeros(len(words))
    for owner, row in ngrams([as_bytes(forms(word)[-1]) for word in words], SHORTEST, LONGEST, len(rows)):
        np.add.at(sums, owner, rows[row])
        counts += np.bincount(owner, minlength=len(words))
    out = np.asarray(directions[:], np.float64)
    vectors = (sums / np.sqrt(counts)[:, None]) @ out[:-1] + out[-1]
    if table.length is not None:
        vectors *= table.length / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return {
        word: require_finite(vector, word, table.name) for word, vector in zip(words, vectors, strict=True)
    }
