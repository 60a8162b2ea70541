"""An interpolated Kneser-Ney n-gram model, to measure a language model against.

    P_n(w | h) = (c(hw) - D(c(hw))) / c(h.) + left(h) P_(n-1)(w | h without its first word)

The counts of the highest order are those of the text. Below, an n-gram counts once for each word that it follows; one
that opens a sentence follows none and keeps its count. Below the words stands 1 / vocabulary (Chen and Goodman 1998,
"An Empirical Study of Smoothing Techniques for Language Modeling", sections 2.7 and 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

NONE = -1


class Order(NamedTuple):
    """The n-grams of one length: sorted keys (context's number x base + word), and what each context shares out."""

    keys: Ints
    counts: Floats
    total: Floats  # by the context's number
    left: Floats  # the part of the probability that goes to the shorter context
    discounts: tuple[float, ...]


class KneserNey:
    """The model of some sentences of word numbers from 0 to `words` - 1; `modified` has three discounts an order."""

    def __init__(self, sentences: Sequence[Ints], words: int, n: int = 5, modified: bool = True) -> None:
        self.words, self.base = words, words + 1  # the last number opens a sentence, and is never predicted
        text, place = self._joined(sentences)
        ids, found = text.copy(), []
        for length in range(2, n + 1):
            before = np.where(place >= length - 1, np.roll(ids, 1), NONE)
            at = np.flatnonzero(before >= 0)
            keys, where, numbers, raw = np.unique(
                before[at] * self.base + text[at], return_index=True, return_inverse=True, return_counts=True
            )
            found.append((keys, raw, ids[at[where]]))  # the number of each n-gram without its first word
            ids = np.full(len(text), NONE)
            ids[at] = numbers
        opened = text[place > 0]
        single = (np.arange(self.base), np.bincount(opened, minlength=self.base), None)
        self.orders = self._orders([single, *found], modified)

    def _joined(self, sentences: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Return all sentences, each opened, one after the other, and each word's place in its own."""
        lengths = np.array([len(one) + 1 for one in sentences])
        text = np.full(lengths.sum(), self.words, np.int64)
        place = np.arange(len(text)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        text[place > 0] = np.concatenate(sentences)
        return text, place

    def _orders(self, found: list[tuple[Ints, Ints, Ints | None]], modified: bool) -> list[Order]:
        made = []
        for length, (keys, raw, _) in enumerate(found, 1):
            counts = raw.astype(np.float64)
            if length < len(found):
                suffixes = found[length][2]
                assert suffixes is not None
                follows = np.bincount(suffixes, minlength=len(keys))
                counts = np.where(follows > 0, follows, counts)
            contexts = keys // self.base if length > 1 else np.zeros(len(keys), np.int64)
            size = len(found[length - 2][0]) if length > 1 else 1
            discounts = _discounts(counts, modified)
            taken = np.array([0.0, *discounts])[np.minimum(counts, 3).astype(int)]
            total = np.bincount(contexts, counts, minlength=size)
            left = np.bincount(contexts, taken, minlength=size) / np.maximum(total, 1)
            made.append(Order(keys, counts, total, left, discounts))
        return made

    @property
    def size(self) -> tuple[int, int]:
        """How many n-grams there are, and how many bytes their words and counts take at 32 bits each."""
        n_grams = [int((order.counts > 0).sum()) for order in self.orders]
        return sum(n_grams), sum(8 * count for count in n_grams)

    def probabilities(self, sentence: Ints) -> Floats:
        """Return the probability of each word of a sentence, given those before it, (n,)."""
        text = np.concatenate([[self.words], sentence]).astype(np.int64)
        first = self.orders[0]
        counts = first.counts[text[1:]]
        discounted = counts - _discount(first, counts)
        p: Floats = discounted / first.total[0] + first.left[0] / self.words
        ids = text
        for order in self.orders[1:]:
            before = ids[:-1]
            is_context = before >= 0
            total = np.where(is_context, order.total[before], 0)
            keys = np.where(is_context, before * self.base + text[1:], 0)
            at = np.minimum(order.keys.searchsorted(keys), len(order.keys) - 1)
            is_seen = is_context & (order.keys[at] == keys)
            counts = np.where(is_seen, order.counts[at], 0.0)
            own = (counts - _discount(order, counts)) / np.maximum(total, 1) + order.left[before] * p
            p = np.where(total > 0, own, p)
            ids = np.concatenate([[NONE], np.where(is_seen, at, NONE)])
        return p


def _discounts(counts: Floats, modified: bool) -> tuple[float, ...]:
    """Return what is taken from a count of one, of two, and of three or more (Chen and Goodman, equation 17)."""
    n = [float((counts == k).sum()) for k in range(1, 5)]
    if not n[0] or not n[1]:
        return (0.5, 0.5, 0.5)
    y = n[0] / (n[0] + 2 * n[1])
    if not modified or not n[2] or not n[3]:
        return (y, y, y)
    return (1 - 2 * y * n[1] / n[0], 2 - 3 * y * n[2] / n[1], 3 - 4 * y * n[3] / n[2])


def _discount(order: Order, counts: Floats) -> Floats:
    found: Floats = np.array([0.0, *order.discounts])[np.minimum(counts, 3).astype(int)]
    return found


def perplexity(model: KneserNey, sentences: Sequence[Ints]) -> float:
    """Return the perplexity per word of some sentences."""
    logs = np.concatenate([np.log(model.probabilities(one)) for one in sentences if len(one)])
    return float(np.exp(-logs.mean()))
