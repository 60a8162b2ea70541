"""The loop over the rows of one or several heads, block by block and tile by tile, so that tiles stay in the cache.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory", and Dao et al. 2022, "FlashAttention", stream so
too. No score exceeds the length of the query times that of the longest key (Cauchy-Schwarz): what of this bound would
make exponentials overflow, mostly nothing, is subtracted from the row's scores, which does not change its softmax. A
row whose scores are so far below the bound that their exponentials underflow is computed again, the readable way.

Where NumPy is quicker with powers of 2 than with those of e, scores are to the base 2: the scale has log2(e) in it.
Blocks depend on shapes alone, so the results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from threading import local

import numpy as np

from attn_cli.core.heads import BLOCK_CELLS, HeadInput, spread
from attn_cli.core.threads import processors, run
from attn_cli.io.types import Array, OnPart

TILE = 1 << 20  # bytes of a tile of scores
TILE_KEYS = 256  # keys in it at least
BLOCKS = 8  # of rows, at least, where they have more than MOST_MASKED_ROWS: as many threads have work
ROW_BLOCK_BYTES = 1 << 22  # bytes of a block of whole rows
MOST_ROWS, FEWEST_ROWS = 512, 32
MOST_MASKED_ROWS = 256  # of more rows, less could be skipped
LONGEST = 8192  # terms summed at once: float32 loses digits with each addition
MIN_THREADED_SCORES = 2048 * 2048  # scores of all heads from which a second thread pays
LOWEST = -1e30  # the least that a bias adds to the bound
# By a number's bytes; the exponents are of e:
UNDERFLOW_SUM = {4: 1e-20, 8: 1e-150}  # a row whose exponentials sum to less is computed again
MAX_EXPONENT = {4: 60.0, 8: 300.0}  # exp of this, times a value, summed over all keys, is still finite
MIN_EXPONENT = {4: -87.0, 8: -708.0}  # exp of less is a denormal number, which is a hundred times slower
OnRows = Callable[[range, Array, Array], None]


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
    """What all tiles of one head share. The head has a scale, by which dot products are multiplied."""

    def __init__(self, head: HeadInput) -> None:
        self.head, dtype = head, head.Q.dtype
        is_base_2 = head.bias is None and has_quick_exp2()  # a bias is to the base e
        self.exp = np.exp2 if is_base_2 else np.exp
        self.e = math.log2(math.e) if is_base_2 else 1.0  # the exponential of this score is e
        self.factor = dtype.type((head.scale or 0.0) * self.e)
        self.cap = None if head.softcap is None else dtype.type(head.softcap * self.e)
        self.least = dtype.type(MIN_EXPONENT[dtype.itemsize] * self.e)
        highest: Array = _lengths(head.Q) * (_lengths(head.K).max() * abs(self.factor))
        highest = highest if self.cap is None else np.minimum(highest, self.cap)
        lowest, self.by_distance = -highest, head.by_distance
        if head.by_distance is not None:
            self.by_distance = by_distance = (head.by_distance * self.e).astype(dtype, copy=False)
            highest, lowest = highest + by_distance.max(axis=1), lowest + by_distance.min(axis=1)
        if head.bias is not None:
            highest = highest + np.maximum(head.bias.max(axis=1), LOWEST)
        shift = highest - np.clip(highest, 0, MAX_EXPONENT[dtype.itemsize] * self.e)
        self.shift = shift if shift.any() else None
        self.is_deep = head.bias is not None or bool((lowest - shift).min() < self.least)

    def fill(self, tile: Array, q: Array, block: range, low: int, high: int, seen: range) -> None:
        """Fill a tile (rows, keys) with exponentials of scores less the rows' shift; 0 where masked.

        The rows are a block of queries, which are q (rows, d_k) times the factor; the keys are those from `low` up to
        `high`, of which all of the block may look at those in `seen`.
        """
        head, rows, bias = self.head, slice(block.start, block.stop), None
        np.matmul(q, head.K[low:high].T, out=tile)
        if self.cap is not None:
            tile /= self.cap
            np.tanh(tile, out=tile)
            tile *= self.cap
        if self.shift is not None:
            tile -= self.shift[rows, np.newaxis]
        if self.by_distance is not None:  # of keys far to one side it is one number for each row
            term, reach = self.by_distance[rows], self.by_distance.shape[1] // 2
            left = min(max(block.start - reach + 1, low), high) - low
            right = max(min(block.stop - 1 + reach, high) - low, left)
            tile[:, :left] += term[:, :1]
            tile[:, left:right] += spread(term, np.arange(rows.start, rows.stop) - low - left, right - left)
            tile[:, right:] += term[:, -1:]
        if head.bias is not None:
            bias = head.bias[rows, low:high]
            tile += bias
        if self.is_deep:
            np.maximum(tile, self.least, out=tile)
        self.exp(tile, out=tile)
        if bias is not None:
            np.copyto(tile, 0, where=np.isneginf(bias))
        if head.mask is not None:
            for columns, hidden in head.mask.hidden(block, low, high, seen):
                np.copyto(tile[:, columns], 0, where=hidden)


def _lengths(M: Array) -> Array:
    """Return the length of each row."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", M, M))
    return lengths


def attended(
    heads: Sequence[Tiles], with_weights: bool, threads: int | None = None, report: OnPart | None = None,
    rows: range | None = None, each: OnRows | None = None,
) -> tuple[Array | None, Array]:  # fmt: skip
    """Return weights (heads, n_q, n_k), zeros where nothing is allowed, and output (heads, n_q, d_v); or some rows.

    Where no weights are wanted, there is memory for the output and a tile alone. `each` gets some rows of one head at a
    time, their weights (rows, n_k), which are overwritten afterwards, and their output (rows, d_v), from several
    threads, in any order.
    """
    one = heads[0].head
    rows, n_k, dtype = rows or range(len(one.Q)), len(one.K), one.Q.dtype
    is_masked = any(tiles.head.mask is not None for tiles in heads)
    make = np.zeros if is_masked else np.empty
    weights = make((len(heads), len(rows), n_k), dtype) if with_weights else None
    if with_weights or each is not None:  # whole rows
        fitting = ROW_BLOCK_BYTES // (n_k * dtype.itemsize)
        size = min(MOST_MASKED_ROWS if is_masked else MOST_ROWS, max(FEWEST_ROWS, fitting), len(rows))
        wide = LONGEST
    else:  # few rows leave room for more keys
        size = MOST_MASKED_ROWS if is_masked else max(len(heads) * len(rows) // BLOCKS, MOST_MASKED_ROWS)
        size = min(len(rows), size, TILE // (TILE_KEYS * dtype.itemsize))
        wide = min(TILE // (size * dtype.itemsize), LONGEST)
    return weights, _run(heads, rows, (size, wide), threads, report, weights, each)


def _run(
    heads: Sequence[Tiles], rows: range, shape: tuple[int, int], threads: int | None,
    report: OnPart | None, weights: Array | None, each: OnRows | None,
) -> Array:  # fmt: skip
    """Return the output of these rows of all heads, (heads, rows, d_v); tiles have `shape`, rows and keys, at most.

    Tiles are parts of whole rows that end as weights, where there is room for these, (heads, rows, n_k), or where
    `each` is to see them; else they overwrite each other.
    """
    (size, wide), one = shape, heads[0].head
    n_k, d_v, dtype = len(one.K), one.V.shape[1], one.Q.dtype
    keeps_rows = weights is not None or each is not None
    output = np.zeros((len(heads), len(rows), d_v), dtype)

    def worker() -> Callable[[tuple[int, int]], None]:
        part, ones = np.empty((size, d_v), dtype), np.ones(min(wide, n_k), dtype)
        spare = part  # where no other is needed, as tiles lie in the weights
        if weights is None:
            spare = np.empty((size, n_k), dtype) if keeps_rows else _spare(heads, shape)

        def do(task: tuple[int, int]) -> None:
            number, start = task
            block, tiles = range(start, min(start + size, rows.stop)), heads[number]
            head, at = tiles.head, slice(block.start - rows.start, block.stop - rows.start)
            tile, held = spare[: len(block)] if weights is None else weights[number, at], output[number, at]
            low, high, seen = head.mask.spans(start, block.stop) if head.mask else (0, n_k, range(n_k))
            total, q = np.zeros(len(block), dtype), head.Q[start : block.stop] * tiles.factor
            with np.errstate(under="ignore"):  # exponentials may underflow to 0
                for first in range(low, high, wide):
                    last = min(first + wide, high)
                    exps = tile[:, first:last] if keeps_rows else tile[:, : last - first]
                    tiles.fill(exps, q, block, first, last, seen)
                    held += np.matmul(exps, head.V[first:last], out=part[: len(block)])
                    total += exps @ ones[: last - first]
                far = np.flatnonzero((total > 0) & (total < UNDERFLOW_SUM[dtype.itemsize]))
                total[total == 0] = np.inf  # a row that may see nothing gets zeros
                inverse: Array = (1 / total)[:, np.newaxis]
                held *= inverse
                if keeps_rows:
                    tile[:, low:high] *= inverse
                for some in np.array_split(far, 1 + len(far) * n_k // BLOCK_CELLS) if len(far) else ():
                    steps = head.steps(start + some)
                    held[some] = steps.output
                    if keeps_rows:
                        tile[some] = steps.weights
                if each:
                    tile[:, :low] = tile[:, high:] = 0
                    each(block, tile, held)

        return do

    tasks = [(head, start) for head in range(len(heads)) for start in range(rows.start, rows.stop, size)]
    is_small = len(heads) * len(one.Q) * n_k < MIN_THREADED_SCORES
    run(tasks, worker, 1 if is_small else threads or processors(), report)
    return output


_of_thread = local()


def _spare(heads: Sequence[Tiles], shape: tuple[int, int]) -> Array:
    """Return memory for a tile, which the thread keeps: to be given new pages at each call takes as long as exp.

    BLAS is quickest with short runs of memory; but what is added to a tile, or hides some of it, lies row by row.
    """
    dtype, size = heads[0].head.Q.dtype, math.prod(shape)
    own = [one.head for one in heads]
    has_array = any(head.bias is not None or (head.mask and head.mask.array is not None) for head in own)
    held = getattr(_of_thread, "held", np.empty(0))
    if held.size < size or held.dtype != dtype:
        held = _of_thread.held = np.empty(size, dtype)
    return held[:size].reshape(shape, order="C" if has_array or shape[1] < shape[0] else "F")
