"""Vectors of words that a table does not have, guessed from their spelling.

A word's vector is m + s / sqrt(n): m is the mean of all vectors, s the sum of the vectors of the n n-grams of the word
in small letters; where the table's vectors have one length, it is scaled to that. The n-grams' vectors are what least
squares makes of the words that the table has (Zhao, Mudgal and Liang 2018, "Generalizing Word Embeddings using Bag of
Subwords"). They share rows by a hash, as in fastText, and are kept in the few directions in which guesses differ most,
in a byte a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.vectors.formats.fasttext_ngrams import ngrams
from attn_cli.vectors.store.table import as_bytes, as_text

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


def normal(word: str) -> bytes:
    """Return a word as its n-grams are taken from it: in small letters, with composed accents."""
    from attn_cli.vectors.lookup import forms

    return as_bytes(forms(word)[-1])


def letters(words: Iterable[bytes]) -> str:
    """Return the distinct characters of words, sorted."""
    return "".join(sorted(set(as_text(b"".join(words)))))


def guessable(words: Iterable[str], table: Vectors) -> list[str]:
    """Return the words that share a character with those that n-grams were learned from: of others they say nothing."""
    try:
        known = set(json.loads(table.about.get("ngrams", "null"))["letters"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return list(words)
    return [word for word in words if known & set(as_text(normal(word)))]


def guess(words: Sequence[str], table: Vectors) -> dict[str, Array]:
    """Return a float64 vector (dim,) for each word, of the table's one length if it has one.

    Words are multiplied one by one: in one product, a word's last bits would depend on the words beside it.
    Raises UsageError where the table has no n-grams, InputError where they hold NaN or infinity.
    """
    check_has_ngrams(table)
    assert table.ngrams is not None
    rows, directions = table.ngrams
    sums = np.zeros((len(words), rows.shape[1]))
    counts = np.zeros(len(words))
    for owner, row in ngrams([normal(word) for word in words], SHORTEST, LONGEST, len(rows)):
        np.add.at(sums, owner, rows[row])
        counts += np.bincount(owner, minlength=len(words))
    out = np.asarray(directions[:], np.float64)
    if not np.isfinite(out).all():
        raise InputError(
            f"The n-grams of {table.name} hold NaN or infinity.", "Make them anew with attn vectors subwords."
        )
    vectors = np.empty((len(words), out.shape[1]))
    for n, total in enumerate(sums / np.sqrt(counts)[:, None]):
        vectors[n] = total @ out[:-1] + out[-1]
    if table.length is not None:
        vectors *= table.length / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return dict(zip(words, vectors, strict=True))
