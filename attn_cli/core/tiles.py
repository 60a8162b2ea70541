"""One head's exponentials of scores, a tile at a time: what streams through a processor's cache in fast.py.

softmax does not change when a number is taken from all scores of a row, and no score exceeds the length of the query
times that of the longest key (Cauchy and Schwarz). So as much as would make exponentials too large is taken from a
row before anybody has looked for its largest score, and in the same matrix product: Q gets a column that holds minus
that number, K one of ones. It is mostly 0: what is taken costs a score its last digits. A row whose scores all lie so
far below the bound that their exponentials vanish is done again with its own largest score.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.masks import Mask

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools, Ints

LOWEST = -1e30  # the score of what is masked, while strongest links are looked for
QUICKER = 1.25  # so much quicker exp2 must be than exp to be taken
# By a number's bytes:
FAINT = {4: 1e-20, 8: 1e-150}  # a row whose exponentials sum to less is done again
ROOM = {4: 60.0, 8: 300.0}  # e to this, times a value, times as many keys as there are, is still finite
DEEPEST = {4: -87.0, 8: -708.0}  # e to less is no normal number, and takes a hundred times as long
LAST_BITS = 8  # that a score may lose
SAMPLE, ROUNDS = 4096, 5


class Power(NamedTuple):
    """An exponential to work with: `of` raises its base to a score times `unit`; exp 1, exp2 log2 e."""

    of: np.ufunc
    unit: float

    @property
    def bits(self) -> float:
        """How many bits one unit of its scores is."""
        return math.log2(math.e) / self.unit


@cache
def quickest(itemsize: int) -> Power:
    """Return exp, or exp2 where this process runs it clearly quicker, for numbers of so many bytes.

    Which kernels NumPy has for a processor does not tell: on one machine the same exp2 ran, from one process to the
    next, at 4 numbers a nanosecond or at 1.3, with exp at 2.5. A race of 50 microseconds tells. In float64 neither
    was ever quicker: there it is exp, and a command gives the same digits each time that it is run.
    """
    natural = Power(np.exp, 1.0)
    if itemsize == 8:
        return natural
    x = np.linspace(-20, 0, SAMPLE, dtype=np.float32)
    room = np.empty_like(x)

    def best(power: np.ufunc) -> float:
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            power(x, room)
            times.append(time.perf_counter() - start)
        return min(times)

    return Power(np.exp2, math.log2(math.e)) if best(np.exp2) * QUICKER < best(np.exp) else natural


class Piece(NamedTuple):
    """Keys from `low` up to `high`, and where they lie from a block of queries: far left -1, near 0, far right 1."""

    low: int
    high: int
    side: int


class Tiles:
    """What all blocks of rows of one head share; `keys`, K beside a column of ones, are made at their first use."""

    def __init__(
        self,
        Q: Array,
        K: Array,
        scale: float,
        mask: Mask | None,
        bias: Array | None,
        by_distance: Array | None,
    ) -> None:
        self.Q, self.mask, self.bias, self.by_distance = Q, mask, bias, by_distance
        self.n_q, self.n_k = len(Q), len(K)
        self._given = K
        self._beside_ones: Array | None = None
        self.power = quickest(Q.dtype.itemsize)
        self.factor = Q.dtype.type(scale * self.power.unit)
        self.unit = Q.dtype.type(self.power.unit)
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
        """Give back the room that `keys` take, until it is used again."""
        self._beside_ones = None

    def block(self, start: int, stop: int) -> Block:
        """Return the rows from `start` up to `stop`, ready for the scores of any keys."""
        return Block(self, start, stop)


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
        lowest = -highest
        bias, by_distance = tiles.bias, tiles.by_distance
        self.by_distance = None if by_distance is None else by_distance[start:stop] * tiles.unit
        if self.by_distance is not None:
            highest += self.by_distance.max(axis=1)
            lowest += self.by_distance.min(axis=1)
        if bias is not None:
            highest += np.maximum(bias[start:stop].max(axis=1), LOWEST) * tiles.unit
        self.shift = highest - np.clip(highest, 0, ROOM[q.dtype.itemsize] * tiles.unit)
        self.deepest = q.dtype.type(DEEPEST[q.dtype.itemsize] * tiles.unit)
        self.is_deep = bias is not None or bool((lowest - self.shift).min() < self.deepest)
        self.side: int | None = None  # for which side the last column of q is set
        self.low, self.high = (0, tiles.n_k) if tiles.mask is None else tiles.mask.span(start, stop)

    def score_tolerance(self, rows: Ints, keys: Ints, scores: Array) -> Array:
        """Return how far these scores, of one key a row, may lie from those of keys that are the same.

        BLAS adds up in other orders here and there in a product, and loses last bits of what it has added up so far.
        Where that goes up and down, it goes to about both lengths over the square root of how many numbers there are.
        """
        on_the_way = self.length[rows] * self.tiles.lengths[keys] * (2 / math.sqrt(self.q.shape[1]))
        size = np.abs(scores) + np.abs(self.shift[rows]) + on_the_way
        tolerance: Array = LAST_BITS * np.finfo(scores.dtype).eps * size
        return tolerance

    def pieces(self, width: int | None = None) -> Iterator[Piece]:
        """Yield the keys that these rows may see, in order, at most `width` at a time."""
        ends = {self.low, self.high}
        if self.tiles.mask is not None:
            ends |= set(self.tiles.mask.cuts(self.start, self.stop))
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
            self._turn(side)
        np.matmul(self.q, self.keys[low:high].T, out=out)
        if self.by_distance is not None and not side:
            reach = self.by_distance.shape[1] // 2
            distance = np.arange(low, high) - np.arange(self.start, self.stop)[:, np.newaxis]
            out += np.take_along_axis(self.by_distance, np.clip(distance, -reach, reach) + reach, axis=1)
        mask, bias = self.tiles.mask, self.tiles.bias
        hidden = None if mask is None else mask.hidden(self.start, self.stop, low, high)
        if bias is None:
            return hidden
        part = bias[self.start : self.stop, low:high]
        out += part * self.tiles.unit
        shut = np.isneginf(part)
        if not shut.any():
            return hidden
        return shut if hidden is None else shut | hidden

    def _turn(self, side: int) -> None:
        """Set what is added to each row's scores: minus its shift, and the term of keys that are far to one side."""
        np.negative(self.shift, out=self.q[:, -1])
        if self.by_distance is not None and side:
            self.q[:, -1] += self.by_distance[:, 0 if side < 0 else -1]
        self.side = side

    def power(self, scores: Array, out: Array, hidden: Bools | None) -> None:
        """Fill `out`, which may be the same tile, with the exponentials of what `scores` made; 0 where masked."""
        if hidden is not None:
            np.copyto(scores, 0, where=hidden)
        if self.is_deep:
            scores = np.maximum(scores, self.deepest, out=out)
        self.tiles.power.of(scores, out=out)
        if hidden is not None:
            np.copyto(out, 0, where=hidden)

    def rescale_faint_rows(self, total: Array, tile: Array) -> bool:
        """Take from rows whose exponentials sum to nearly nothing their largest score instead; tell whether any did.

        `tile` is room for scores, with a column for each key of a piece. A row that may see nothing keeps its zeros.
        """
        faint = np.flatnonzero(total < FAINT[tile.dtype.itemsize])
        if not len(faint):
            return False
        self.shift[faint] = 0
        self.side = None
        largest = np.full(len(self.q), LOWEST, tile.dtype)
        for piece in self.pieces(tile.shape[1]):
            part = tile[: len(self.q), : piece.high - piece.low]
            hidden = self.scores(piece, part)
            if hidden is not None:
                np.copyto(part, LOWEST, where=hidden)
            np.maximum(largest, part.max(axis=1), out=largest)
        seen = faint[largest[faint] > LOWEST / 2]
        self.shift[seen] = largest[seen]
        self.side, self.is_deep = None, True
        return bool(len(seen))
