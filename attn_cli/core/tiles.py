"""The exponentials of one head's scores, tile by tile, so that a tile stays in the processor's cache.

Subtracting a number from all scores of a row does not change the softmax, and no score exceeds the length of the query
times the length of the longest key (Cauchy-Schwarz). So the part of this bound that would make exponentials overflow
is subtracted before the largest score is known, and in the same matrix product: Q gets a column that holds minus that
number, K a column of ones. It is usually 0, because subtracting costs a score its last digits. A row whose scores are
so far below the bound that their exponentials underflow is computed again with its own largest score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.io.array_types import Array, Bools, Ints

LOWEST = -1e30  # the score of masked keys in the search for the strongest links
# By a number's bytes:
UNDERFLOW_SUM = {4: 1e-20, 8: 1e-150}  # a row whose exponentials sum to less is computed again
MAX_EXPONENT = {4: 60.0, 8: 300.0}  # exp of this, times a value, summed over all keys, is still finite
MIN_EXPONENT = {4: -87.0, 8: -708.0}  # exp of less is a denormal number, which is a hundred times slower
LAST_BITS = 8  # how many a score may lose to rounding


class Piece(NamedTuple):
    """Keys from `low` up to `high`, and where they lie from a block of queries: far left -1, near 0, far right 1."""

    low: int
    high: int
    side: int


class Tiles:
    """What all blocks of rows of one head share; `keys`, K beside a column of ones, are made at first use.

    To the scaled scores of Q (n_q, d_k) and K (n_k, d_k) is added `bias` (n_q, n_k), in which -inf masks, and what
    depends on the clipped distance alone: `by_distance` is (n_q, 2 reach + 1), as in `HeadInput`. A `softcap` bounds
    the scaled scores before anything is added or subtracted.
    """

    def __init__(
        self,
        Q: Array,
        K: Array,
        scale: float,
        mask: Mask | None = None,
        bias: Array | None = None,
        by_distance: Array | None = None,
        softcap: float | None = None,
    ) -> None:
        self.Q, self.mask, self.bias, self.by_distance = Q, mask, bias, by_distance
        self.n_q, self.n_k = len(Q), len(K)
        self._given = K
        self._beside_ones: Array | None = None
        self.factor = Q.dtype.type(scale)
        self.cap = None if softcap is None else Q.dtype.type(softcap)
        self.lengths = np.sqrt(np.einsum("ij,ij->i", K, K)) * abs(self.factor)  # of the scaled keys
        self.longest = self.lengths.max()

    @property
    def keys(self) -> Array:
        """The keys and a column of ones, (n_k, d_k + 1); two threads that both make it make the same."""
        made = self._beside_ones
        if made is None:
            made = np.empty((self.n_k, self._given.shape[1] + 1), self.Q.dtype)
            made[:, :-1] = self._given
            made[:, -1] = 1
            self._beside_ones = made
        return made

    def release(self) -> None:
        """Free the memory of `keys`; they are made again at the next use."""
        self._beside_ones = None


class Block:
    """Some rows of one head; `scores` and `power` fill a tile of them."""

    def __init__(self, tiles: Tiles, start: int, stop: int) -> None:
        self.tiles, self.start, self.stop = tiles, start, stop
        self.keys = tiles.keys
        q = tiles.Q[start:stop]
        self.q = np.empty((len(q), q.shape[1] + 1), q.dtype)
        np.multiply(q, tiles.factor, out=self.q[:, :-1])
        self.length = np.sqrt(np.einsum("ij,ij->i", q, q))
        highest = self.length * tiles.longest
        if tiles.cap is not None:
            highest = np.minimum(highest, tiles.cap)
        lowest = -highest
        bias, by_distance = tiles.bias, tiles.by_distance
        self.by_distance = None if by_distance is None else by_distance[start:stop]
        if self.by_distance is not None:
            highest += self.by_distance.max(axis=1)
            lowest += self.by_distance.min(axis=1)
        if bias is not None:
            highest += np.maximum(bias[start:stop].max(axis=1), LOWEST)
        self.shift = highest - np.clip(highest, 0, MAX_EXPONENT[q.dtype.itemsize])
        self.min_exponent = q.dtype.type(MIN_EXPONENT[q.dtype.itemsize])
        self.is_deep = bias is not None or bool((lowest - self.shift).min() < self.min_exponent)
        self.side: int | None = None  # for which side `row_terms` and the last column of q are set
        self.row_terms = self.q[:, -1] if tiles.cap is None else np.empty(len(q), q.dtype)
        self.q[:, -1] = 0
        self.low, self.high = (0, tiles.n_k) if tiles.mask is None else tiles.mask.span(start, stop)

    def score_tolerance(self, rows: Ints, keys: Ints, scores: Array) -> Array:
        """Return by how much these scores, of one key a row, may differ from those of identical keys.

        BLAS adds in different orders in different parts of a product, and each order loses other last bits. The partial
        sums grow to about the product of both lengths over the square root of d_k.
        """
        on_the_way = self.length[rows] * self.tiles.lengths[keys] * (2 / math.sqrt(self.q.shape[1]))
        size = np.abs(scores) + np.abs(self.shift[rows]) + on_the_way
        tolerance: Array = LAST_BITS * np.finfo(scores.dtype).eps * size
        return tolerance

    def pieces(self, width: int | None = None) -> Iterator[Piece]:
        """Yield the keys that these rows may see, in order, at most `width` at a time."""
        ends = {self.low, self.high}
        if self.tiles.mask is not None:
            ends |= set(self.tiles.mask.range_ends(self.start, self.stop))
        left, right = self.low, self.high
        if self.by_distance is not None:
            reach = self.by_distance.shape[1] // 2
            left, right = self.start - reach + 1, self.stop - 1 + reach
            ends |= {left, right}
        inner = sorted(end for end in ends if self.low <= end <= self.high)
        for low, high in pairwise(inner):
            side = 0 if self.by_distance is None else -1 if high <= left else 1 if low >= right else 0
            for at in range(low, high, width or high - low):
                yield Piece(at, min(high, at + (width or high - low)), side)

    def scores(self, piece: Piece, out: Array) -> Bools | None:
        """Fill `out` (rows, keys) with scores less the rows' shift; return what the mask hides, None for nothing."""
        low, high, side = piece
        if side != self.side:
            # The product adds them, as the last column of q; only after a softcap they are added by themselves.
            np.negative(self.shift, out=self.row_terms)
            if self.by_distance is not None and side:  # keys far to one side
                self.row_terms += self.by_distance[:, 0 if side < 0 else -1]
            self.side = side
        np.matmul(self.q, self.keys[low:high].T, out=out)
        if self.tiles.cap is not None:
            out /= self.tiles.cap
            np.tanh(out, out=out)
            out *= self.tiles.cap
            out += self.row_terms[:, np.newaxis]
        if self.by_distance is not None and not side:
            reach = self.by_distance.shape[1] // 2
            distance = np.arange(low, high) - np.arange(self.start, self.stop)[:, np.newaxis]
            out += np.take_along_axis(self.by_distance, np.clip(distance, -reach, reach) + reach, axis=1)
        mask, bias = self.tiles.mask, self.tiles.bias
        hidden = None if mask is None else mask.hidden(self.start, self.stop, low, high)
        if bias is None:
            return hidden
        part = bias[self.start : self.stop, low:high]
        out += part
        shut = np.isneginf(part)
        if not shut.any():
            return hidden
        return shut if hidden is None else shut | hidden

    def power(self, scores: Array, out: Array, hidden: Bools | None) -> None:
        """Fill `out`, which may be the same tile, with the exponentials of the scores; 0 where masked."""
        if hidden is not None:
            np.copyto(scores, 0, where=hidden)
        if self.is_deep:
            scores = np.maximum(scores, self.min_exponent, out=out)
        np.exp(scores, out=out)
        if hidden is not None:
            np.copyto(out, 0, where=hidden)

    def rescale_underflowed_rows(self, total: Array, tile: Array) -> bool:
        """Subtract the largest score from rows whose exponentials sum to nearly 0; tell whether there were any.

        `tile` is a buffer for scores, with a column for each key of a piece. A fully masked row keeps its zeros.
        """
        underflowed = np.flatnonzero(total < UNDERFLOW_SUM[tile.dtype.itemsize])
        if not len(underflowed):
            return False
        self.shift[underflowed] = 0
        self.side = None
        largest = np.full(len(self.q), LOWEST, tile.dtype)
        for piece in self.pieces(tile.shape[1]):
            part = tile[: len(self.q), : piece.high - piece.low]
            hidden = self.scores(piece, part)
            if hidden is not None:
                np.copyto(part, LOWEST, where=hidden)
            np.maximum(largest, part.max(axis=1), out=largest)
        seen = underflowed[largest[underflowed] > LOWEST / 2]
        self.shift[seen] = largest[seen]
        self.side, self.is_deep = None, True
        return bool(len(seen))
