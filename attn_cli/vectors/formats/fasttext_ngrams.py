"""fastText's character n-grams: a word's vector is the mean of its own and those of its n-grams.

Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

BLOCK = 1 << 22  # numbers, or bytes of text, that are worked on at once


def with_ngrams(own: Array, grams: Array, words: list[bytes], lengths: tuple[int, int]) -> Array:
    """Return the mean of each word's own vector and those of its n-grams, (words, dim).

    `own` is (words, dim), `grams` (buckets, dim); `lengths` are the fewest and the most characters of an n-gram.
    """
    vectors = own.astype(np.float32)
    for first, last in _blocks(words):
        part = vectors[first:last]
        counts = np.ones(len(part), np.float32)
        for owner, row in ngrams(words[first:last], *lengths, len(grams)):
            counts += np.bincount(owner, minlength=len(part)).astype(np.float32)
            _add(part, owner, grams, row)
        part /= counts[:, None]
    return vectors


def _blocks(words: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the first and last row, exclusive, of blocks of words with about a BLOCK of bytes each."""
    ends = np.cumsum([len(word) + 2 for word in words])
    first = 0
    while first < len(words):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        yield first, last
        first = last


def ngrams(words: list[bytes], least: int, most: int, bucket: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield, for each length from `least` to `most`, the n-grams of that length: each one's word and bucket.

    The n-grams are those of fastText (Bojanowski et al., 2017): characters of the word in angle brackets, hashed
    with FNV-1a, whose bytes fastText takes for signed numbers.
    """
    text = np.frombuffer(b"".join(b"<" + word + b">" for word in words), np.uint8)
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero((text & 0xC0) != 0x80)  # of characters
    ends = np.append(starts[1:], len(text))
    word_of = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    hashes = np.full(len(starts), 2166136261, np.uint32)
    at = np.arange(len(starts))  # the characters that n-grams start with
    for length in range(1, most + 1):
        at = at[at + length <= len(starts)]
        at = at[word_of[at] == word_of[at + length - 1]]
        if not len(at):
            return
        for step in range(4):  # bytes of the last character
            byte = starts[at + length - 1] + step
            more = byte < ends[at + length - 1]
            hashes[at[more]] = (hashes[at[more]] ^ signed[byte[more]]) * np.uint32(16777619)
        found = at if length > 1 else _inner(word_of)
        if length >= least:
            yield word_of[found], (hashes[found] % np.uint32(bucket)).astype(np.intp)


def _inner(word_of: Ints) -> Ints:
    """Return the characters between a word's brackets: a bracket alone is no n-gram."""
    same = word_of[1:] == word_of[:-1]
    inner: Ints = np.flatnonzero(same[1:] & same[:-1]) + 1
    return inner


def _add(vectors: Array, owner: Ints, table: Array, rows: Ints) -> None:
    """Add to the vector of each owner, which ascend, the row of the table that stands beside it."""
    step = max(1, BLOCK // table.shape[1])
    for start in range(0, len(rows), step):
        owners = owner[start : start + step]
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        vectors[owners[first]] += np.add.reduceat(table[rows[start : start + step]], first, axis=0)
