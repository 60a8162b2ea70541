"""The exponentials of one head's scores, tile by tile, so that a tile stays in the processor's cache.

Subtracting a number from all scores of a row does not change the softmax, and no score exceeds the length of the query
times the length of the longest key (Cauchy-Schwarz). So the part of this bound that would make exponentials overflow
is subtracted before the largest score is known. It is usually 0, and nothing is subtracted. A row whose scores are so
far below the bound that their exponentials underflow is computed again with its own largest score.

Where NumPy is quicker with powers of 2 than with those of e, scores are to the base 2: the scale has log2(e) in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attn_cli.core.heads import HeadInput, spread
from attn_cli.io.array_types import Array, Bools

LOWEST = -1e30  # the score of masked keys in the search for the largest score
# By a number's bytes; the exponents are of e:
UNDERFLOW_SUM = {4: 1e-20, 8: 1e-150}  # a row whose exponentials sum to less is computed again
MAX_EXPONENT = {4: 60.0, 8: 300.0}  # exp of this, times a value, summed over all keys, is still finite
MIN_EXPONENT = {4: -87.0, 8: -708.0}  # exp of less is a denormal number, which is a hundred times slower
WIDTH = 512  # keys at a time in the search for the largest score


class Piece(NamedTuple):
    """Keys from `low` up to `high`, and where they lie from a block of queries: far left -1, near 0, far right 1."""

    low: int
    high: int
    side: int


@cache
def has_quick_exp2() -> bool:
    """Tell whether NumPy's exp2 is made for this processor: with AVX-512 it takes half as long as exp, else twice."""
    try:
        from numpy.lib.introspect import opt_func_info  # not in NumPy 1
    except ImportError:
        return False
    target = opt_func_info("^exp2$").get("exp2", {}).get("ff", {}).get("current", "")
    return "AVX512" in target or "X86_V4" in target


class Tiles:
    """What all blocks of rows of one head share. The head has a scale, by which it multiplies dot products."""

    def __init__(self, head: HeadInput) -> None:
        Q, K, bias, by_distance = head.Q, head.K, head.bias, head.by_distance
        dtype, scale = Q.dtype, head.scale or 0.0
        self.K, self.n_q, self.n_k, self.mask, self.bias = K, len(Q), len(K), head.mask, bias
        is_base_2 = bias is None and has_quick_exp2()  # a bias is to the base e
        self.exp = np.exp2 if is_base_2 else np.exp
        self.e = math.log2(math.e) if is_base_2 else 1.0  # the exponential of this score is e
        self.Q, self.factor = Q, dtype.type(scale * self.e)
        self.by_distance = None if by_distance is None else (by_distance * self.e).astype(dtype, copy=False)
        self.cap = None if head.softcap is None else dtype.type(head.softcap * self.e)
        self.min_exponent = dtype.type(MIN_EXPONENT[dtype.itemsize] * self.e)
        most = MAX_EXPONENT[dtype.itemsize] * self.e
        lengths, longest = _lengths(Q), _lengths(K).max() * abs(self.factor)
        self.shift: Array | None = None
        self.is_deep = False
        if bias is by_distance is None and lengths.max() * longest <= most:
            return
        highest = lengths * longest
        if self.cap is not None:
            highest = np.minimum(highest, self.cap)
        lowest = -highest
        if self.by_distance is not None:
            highest = highest + self.by_distance.max(axis=1)
            lowest += self.by_distance.min(axis=1)
        if bias is not None:
            highest = highest + np.maximum(bias.max(axis=1), LOWEST)
        shift = highest - np.clip(highest, 0, most)
        self.shift = shift if shift.any() else None
        self.is_deep = bias is not None or bool((lowest - shift).min() < self.min_exponent)


def _lengths(M: Array) -> Array:
    """Return the length of each row."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", M, M))
    return lengths


class Block:
    """Some rows of one head; `scores` and `power` fill a tile of them."""

    def __init__(self, tiles: Tiles, start: int, stop: int) -> None:
        self.tiles, self.start, self.stop = tiles, start, stop
        self.q, self.is_deep = tiles.Q[start:stop] * tiles.factor, tiles.is_deep
        self.shift = None if tiles.shift is None else tiles.shift[start:stop]
        self.by_distance = None if tiles.by_distance is None else tiles.by_distance[start:stop]
        self.low, self.high = (0, tiles.n_k) if tiles.mask is None else tiles.mask.span(start, stop)

    def pieces(self, width: int) -> Iterator[Piece]:
        """Yield the keys that these rows may see, in order, at most `width` at a time."""
        ends, left, right = {self.low, self.high}, self.low, self.high
        if self.tiles.mask is not None:
            ends |= set(self.tiles.mask.range_ends(self.start, self.stop))
        if self.by_distance is not None:
            reach = self.by_distance.shape[1] // 2
            left, right = self.start - reach + 1, self.stop - 1 + reach
            ends |= {left, right}
        for low, high in pairwise(sorted(end for end in ends if self.low <= end <= self.high)):
            side = 0 if self.by_distance is None else -1 if high <= left else 1 if low >= right else 0
            for at in range(low, high, width):
                yield Piece(at, min(high, at + width), side)

    def scores(self, piece: Piece, out: Array) -> Bools | None:
        """Fill `out` (rows, keys) with scores less the rows' shift; return what the mask hides, None for nothing."""
        low, high, side = piece
        np.matmul(self.q, self.tiles.K[low:high].T, out=out)
        if self.tiles.cap is not None:
            out /= self.tiles.cap
            np.tanh(out, out=out)
            out *= self.tiles.cap
        if self.shift is not None:
            out -= self.shift[:, np.newaxis]
        if self.by_distance is not None and side:  # keys far to one side
            out += self.by_distance[:, :1] if side < 0 else self.by_distance[:, -1:]
        elif self.by_distance is not None:
            out += spread(self.by_distance, np.arange(self.start, self.stop) - low, high - low)
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
            scores = np.maximum(scores, self.tiles.min_exponent, out=out)
        self.tiles.exp(scores, out=out)
        if hidden is not None:
            np.copyto(out, 0, where=hidden)

    def underflows(self, total: Array) -> bool:
        """Tell whether exponentials of some rows that may see something sum to nearly 0; those rows' shift is set.

        It is their largest score then. A fully masked row keeps its zeros.
        """
        least = UNDERFLOW_SUM[total.dtype.itemsize]
        if total.min() >= least:
            return False
        underflowed = np.flatnonzero(total < least)
        self.shift = np.zeros_like(total) if self.shift is None else self.shift.copy()
        self.shift[underflowed] = 0
        largest = np.full_like(total, LOWEST)
        for piece in self.pieces(WIDTH):
            tile = np.empty((len(total), piece.high - piece.low), total.dtype)
            hidden = self.scores(piece, tile)
            if hidden is not None:
                np.copyto(tile, LOWEST, where=hidden)
            np.maximum(largest, tile.max(axis=1), out=largest)
        seen = underflowed[largest[underflowed] > LOWEST / 2]
        self.shift[seen] = largest[seen]
        self.is_deep = True
        return bool(len(seen))
