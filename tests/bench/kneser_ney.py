"""An interpolated Kneser-Ney n-gram model, to measure a language model against.

    P_n(w | h) = (c(hw) - D(c(hw))) / c(h.) + left(h) P_(n-1)(w | h without its first word)

Below the highest order an n-gram counts once for each word that it follows; one that opens a sentence keeps its count.
Below the words stands 1 / vocabulary (Chen and Goodman 1998, sections 2.7 and 3).
"""

from typing import NamedTuple

import numpy as np

NONE = -1


class Order(NamedTuple):
    """The n-grams of one length: sorted keys (context's number x base + word), and what each context shares out."""

    keys: np.ndarray
    counts: np.ndarray
    total: np.ndarray  # by the context's number
    left: np.ndarray  # the part of the probability that goes to the shorter context
    discounts: np.ndarray  # of a count of nought, one, two, and three or more


class KneserNey:
    """The model of some sentences of word numbers from 0 to `words` - 1; `modified` has three discounts an order."""

    def __init__(self, sentences, words: int, n: int = 5, modified: bool = True) -> None:
        self.words, self.base = words, words + 1  # the last number opens a sentence, and is never predicted
        text = np.concatenate([part for one in sentences for part in ([words], one)]).astype(np.int64)
        opens, at = text == words, np.arange(len(text))
        place = at - np.maximum.accumulate(np.where(opens, at, 0))  # of a word in its sentence
        ids = text
        found = [(np.arange(self.base), np.bincount(text[~opens], minlength=self.base), None)]
        for length in range(2, n + 1):
            before = np.where(place >= length - 1, np.roll(ids, 1), NONE)
            at = np.flatnonzero(before >= 0)
            keys, where, numbers, raw = np.unique(before[at] * self.base + text[at], True, True, True)
            found.append((keys, raw, ids[at[where]]))  # the number of each n-gram without its first word
            ids = np.full(len(text), NONE)
            ids[at] = numbers
        self.orders = []
        for length, (keys, raw, _) in enumerate(found):
            counts = raw.astype(np.float64)
            if length + 1 < len(found):
                follows = np.bincount(found[length + 1][2], minlength=len(keys))
                counts = np.where(follows > 0, follows, counts)
            size = len(found[length - 1][0]) if length else 1
            discounts = _discounts(counts, modified)
            taken = discounts[_capped(counts)]
            total, taken = (np.bincount(keys // self.base, one, minlength=size) for one in (counts, taken))
            self.orders.append(Order(keys, counts, total, taken / np.maximum(total, 1), discounts))

    @property
    def size(self) -> tuple[int, int]:
        """How many n-grams there are, and how many bytes their words and counts take at 32 bits each."""
        n_grams = [int((order.counts > 0).sum()) for order in self.orders]
        return sum(n_grams), sum(8 * count for count in n_grams)

    def probabilities(self, sentence: np.ndarray) -> np.ndarray:
        """Return the probability of each word of a sentence, given those before it, (n,)."""
        p = np.full(len(sentence), 1 / self.words)
        before, first = np.zeros(len(sentence), np.int64), self.words
        for order in self.orders:
            is_context = before >= 0
            total = np.where(is_context, order.total[before], 0)
            keys = np.where(is_context, before * self.base + sentence, 0)
            at = np.minimum(order.keys.searchsorted(keys), len(order.keys) - 1)
            is_seen = is_context & (order.keys[at] == keys)
            counts = np.where(is_seen, order.counts[at], 0.0)
            own = (counts - order.discounts[_capped(counts)]) / np.maximum(total, 1)
            p = np.where(total > 0, own + order.left[before] * p, p)
            before, first = np.concatenate([[first], np.where(is_seen, at, NONE)[:-1]]), NONE
        return p


def _discounts(counts: np.ndarray, modified: bool) -> np.ndarray:
    """Return what is taken from each count (Chen and Goodman, equation 17)."""
    n = [float((counts == k).sum()) for k in range(1, 5)]
    if not n[0] or not n[1]:
        return np.array([0, 0.5, 0.5, 0.5])
    y = n[0] / (n[0] + 2 * n[1])
    if not modified or not n[2] or not n[3]:
        return np.array([0, y, y, y])
    return np.array([0, *(k - (k + 1) * y * n[k] / n[k - 1] for k in (1, 2, 3))])


def _capped(counts: np.ndarray) -> np.ndarray:
    return np.minimum(counts, 3).astype(int)


def perplexity(model: KneserNey, sentences) -> float:
    logs = np.concatenate([np.log(model.probabilities(one)) for one in sentences if len(one)])
    return float(np.exp(-logs.mean()))
