"""The loop over the rows of one or several heads, block by block and tile by tile, and what is kept of each tile.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory", and Dao et al. 2022, "FlashAttention", stream so
too; with a bound on the scores no running maximum is needed. Blocks depend on shapes alone, so the results do not
depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from threading import local
from typing import Any, NamedTuple

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.core.tiles import LOWEST, Block, Piece, Tiles
from attn_cli.io.array_types import Array, Bools, Ints
from attn_cli.io.progress import OnPart

TILE = 1 << 20  # bytes of a tile of scores
TILE_KEYS = 256  # keys in it at least
BLOCKS = 8  # of rows, at least, where they have more than MOST_MASKED_ROWS: as many threads have work
ROW_BLOCK_BYTES = 1 << 22  # bytes of a block of whole rows
MOST_ROWS, FEWEST_ROWS = 512, 32
MOST_MASKED_ROWS = 256  # of more rows, less could be skipped
LONGEST = 8192  # terms summed at once: float32 loses digits with each addition
MIN_THREADED_SCORES = 2048 * 2048  # scores of all heads from which a second thread pays


class Keeper:
    """What one thread keeps of each tile: here nothing, which leaves the output alone."""

    def __init__(self, rows: int, wide: int, dtype: np.dtype[Any], by_rows: bool) -> None:
        self.tile = _spare(rows * wide, dtype).reshape((rows, wide), order="C" if by_rows else "F")

    def begin(self, head: int, block: Block) -> None:
        """Begin with the first tile of a block, or once more."""
        self.head, self.block = head, block

    def part(self, piece: Piece) -> Array:
        """Return the tile (rows, keys) that scores and exponentials of a piece go into."""
        return self.tile[: len(self.block.q), : piece.high - piece.low]

    def exps(self, piece: Piece) -> Array:
        """Return the exponentials of the scores of a piece."""
        tile = self.part(piece)
        self.block.power(tile, tile, self.block.scores(piece, tile))
        return tile

    def end(self, inverse: Array) -> None:
        """End a block; its exponentials times `inverse` (rows, 1) are weights."""


class WeightsKeeper(Keeper):
    """Keeps the weights (heads, rows, n_k), of rows from `start` on: each tile is a part of them."""

    def __init__(self, weights: Array, start: int) -> None:
        self.weights, self.start = weights, start

    def begin(self, head: int, block: Block) -> None:
        """Take the block's rows of the weights as its tile."""
        super().begin(head, block)
        self.tile = self.weights[head, block.start - self.start : block.stop - self.start]

    def part(self, piece: Piece) -> Array:
        """Return the place of a piece among the weights."""
        return self.tile[:, piece.low : piece.high]

    def end(self, inverse: Array) -> None:
        """Make weights of the exponentials."""
        self.tile[:, self.block.low : self.block.high] *= inverse


def attended(
    heads: Sequence[Tiles], values: Sequence[Array], threads: int | None = None, rows: range | None = None
) -> tuple[Array, Array]:
    """Return weights (heads, n_q, n_k), zeros where nothing is allowed, and output (heads, n_q, d_v); or some rows."""
    one = heads[0]
    wanted, n_k, dtype = rows or range(one.n_q), one.n_k, one.Q.dtype
    is_masked = any(head.mask is not None for head in heads)
    weights = (np.zeros if is_masked else np.empty)((len(heads), len(wanted), n_k), dtype)
    most = MOST_MASKED_ROWS if is_masked else MOST_ROWS
    size = min(most, max(FEWEST_ROWS, ROW_BLOCK_BYTES // (n_k * dtype.itemsize)), len(wanted))
    keeper = WeightsKeeper(weights, wanted.start)
    return weights, _run(heads, values, wanted, (size, LONGEST), lambda: copy(keeper), threads, None)


def output(
    heads: Sequence[Tiles], values: Sequence[Array], threads: int | None = None, report: OnPart | None = None
) -> Array:
    """Return the output (heads, n_q, d_v) alone, with memory for it and a tile."""
    dtype, n_q = heads[0].Q.dtype, heads[0].n_q
    is_masked = any(head.mask is not None for head in heads)
    shape = _tile(n_q, dtype.itemsize, MOST_MASKED_ROWS if is_masked else len(heads) * n_q // BLOCKS)
    # BLAS is quickest with short runs of memory; but what is added to a tile, or hides some of it, lies row by row.
    has_array = any(head.bias is not None or (head.mask and head.mask.array is not None) for head in heads)
    by_rows = has_array or shape[1] < shape[0]
    return _run(heads, values, range(n_q), shape, lambda: Keeper(*shape, dtype, by_rows), threads, report)


def _run(
    heads: Sequence[Tiles], values: Sequence[Array], rows: range, shape: tuple[int, int],
    keeper_of_thread: Callable[[], Keeper], threads: int | None, report: OnPart | None,
) -> Array:  # fmt: skip
    """Return the output of these rows of all heads, (heads, rows, d_v); tiles have `shape`, rows and keys, at most."""
    size, wide = shape
    d_v, dtype = values[0].shape[1], heads[0].Q.dtype
    output = np.empty((len(heads), len(rows), d_v), dtype)

    def worker() -> Callable[[tuple[int, int]], None]:
        keeper, part, ones = (
            keeper_of_thread(),
            np.empty((size, d_v), dtype),
            np.ones(min(wide, heads[0].n_k), dtype),
        )

        def fill(head: int, block: Block, held: Array) -> Array:
            """Sum up exponentials times values; return the sums of the exponentials."""
            keeper.begin(head, block)
            V, total, products = values[head], np.zeros(len(held), dtype), held
            for piece in block.pieces(wide):
                exps = keeper.exps(piece)
                np.matmul(exps, V[piece.low : piece.high], out=products)
                total += exps @ ones[: piece.high - piece.low]
                if products is held:  # the first
                    products = part[: len(held)]
                else:
                    held += products
            if products is held:  # no row may see anything
                held[:] = 0
            return total

        def do(task: tuple[int, int]) -> None:
            head, start = task
            block = Block(heads[head], start, min(start + size, rows.stop))
            held = output[head, block.start - rows.start : block.stop - rows.start]
            with np.errstate(under="ignore"):  # exponentials may underflow to 0
                total = fill(head, block, held)
                if block.underflows(total):
                    total = fill(head, block, held)
                total[total == 0] = np.inf  # a row that may see nothing gets zeros
                inverse: Array = (1 / total)[:, np.newaxis]
                held *= inverse
                keeper.end(inverse)

        return do

    tasks = [(head, start) for head in range(len(heads)) for start in range(rows.start, rows.stop, size)]
    is_small = len(heads) * heads[0].n_q * heads[0].n_k < MIN_THREADED_SCORES
    run(tasks, worker, 1 if is_small else threads or processors(), report)
    return output


_of_thread = local()


def _spare(size: int, dtype: np.dtype[Any]) -> Array:
    """Return memory for a tile, which the thread keeps: to be given new pages at each call takes as long as exp."""
    held = getattr(_of_thread, "held", np.empty(0))
    if held.size < size or held.dtype != dtype:
        held = _of_thread.held = np.empty(size, dtype)
    return held[:size]


def _tile(n_q: int, itemsize: int, most_rows: int) -> tuple[int, int]:
    """Return the rows and keys of a tile: few rows leave room for more keys."""
    rows = min(n_q, max(most_rows, MOST_MASKED_ROWS), TILE // (TILE_KEYS * itemsize))
    return rows, min(TILE // (rows * itemsize), LONGEST)


class Survey(NamedTuple):
    """What streaming leaves of one head: everything but the matrix.

    keys and weights are (n_q, k), strongest first, key -1 and weight 0 where there is none; output (n_q, d_v);
    entropy (n_q,) in bits, 0 in a row that may see nothing; allowed (n_q,), how many keys each may see. sums and
    counts, of the map's shape, are the weights in each of its blocks together, and how many links are allowed there;
    key j lies in the column of blocks j * columns // n_k, and rows likewise.
    """

    keys: Ints
    weights: Array
    output: Array
    entropy: Array
    allowed: Array
    sums: Array
    counts: Array


def survey(
    tiles: Tiles, V: Array, k: int, blocks: tuple[int, int] | None = None,
    threads: int | None = None, report: OnPart | None = None,
) -> Survey:  # fmt: skip
    """Return each row's k strongest links and the output of one head, with memory for one tile and the result.

    With `blocks`, the rows and columns of a map, also the map, each row's entropy, and how many keys it may see.
    """
    n_q, dtype = tiles.n_q, V.dtype
    shape, k = _tile(n_q, dtype.itemsize, MOST_MASKED_ROWS), min(k, tiles.n_k)
    made = Survey(
        np.empty((n_q, k), np.intp),
        np.empty((n_q, k), dtype),
        np.empty(0),
        *np.zeros((2, n_q if blocks else 0)),
        *np.zeros((2, *(blocks or (0, 0)))),
    )
    parts: dict[int, tuple[Array, Array]] = {}
    output = _run([tiles], [V], range(n_q), shape, lambda: SurveyKeeper(*shape, made, parts), threads, report)
    for start in sorted(parts):  # in order, so that the sums do not depend on which thread was first
        first = start * len(made.sums) // n_q
        for whole, one in zip((made.sums, made.counts), parts[start], strict=True):
            whole[first : first + len(one)] += one
    return made._replace(output=output[0])


class SurveyKeeper(Keeper):
    """Keeps each row's strongest links, and parts of the map: by a block's first row, its rows' sums and counts."""

    def __init__(self, rows: int, wide: int, made: Survey, parts: dict[int, tuple[Array, Array]]) -> None:
        self.tile = np.empty((rows, wide), made.weights.dtype)
        self.made, self.parts, self.has_map = made, parts, len(made.entropy) > 0
        self.second = np.empty_like(self.tile) if self.has_map else self.tile

    def begin(self, head: int, block: Block) -> None:
        """Begin with nothing found."""
        super().begin(head, block)
        rows, k, columns = len(block.q), self.made.keys.shape[1], self.made.sums.shape[1]
        self.keys = np.full((rows, k), -1, np.intp)
        self.scores = np.full((rows, k), LOWEST, self.tile.dtype)
        self.spread = np.zeros(rows)  # exponentials times scores
        # Of exponentials, and of keys that may be seen, in each column of the map:
        self.sums, self.counts = np.zeros((2, rows, columns))

    def exps(self, piece: Piece) -> Array:
        """Return the exponentials; keep the strongest of the scores, and sums for the map."""
        low, high, _ = piece
        scores, exps = (tile[: len(self.keys), : high - low] for tile in (self.tile, self.second))
        hidden = self.block.scores(piece, scores)
        if self.keys.size:
            if hidden is not None:
                np.copyto(scores, LOWEST, where=hidden)
            self._keep_strongest(scores, low)
        self.block.power(scores, exps, hidden)
        if self.has_map:
            self._add_to_map(exps, hidden, low, high)
            scores *= exps
            self.spread += scores.sum(axis=1)
        return exps

    def end(self, inverse: Array) -> None:
        """Put what was found, divided by the rows' sums, in its place."""
        made, tiles, rows = self.made, self.block.tiles, slice(self.block.start, self.block.stop)
        none = self.keys < 0
        made.keys[rows] = self.keys
        made.weights[rows] = np.where(none, 0, tiles.exp(np.where(none, 0, self.scores)) * inverse)
        if not self.has_map:
            return
        made.allowed[rows] = self.counts.sum(axis=1)
        # -sum w log w, where w = e^s / total, is log total - sum e^s s / total; a row that sees nothing has no weights
        log = -np.log2(np.where(inverse > 0, inverse, 1))[:, 0]
        spread = self.spread * inverse[:, 0] * (math.log2(math.e) / tiles.e)
        made.entropy[rows] = np.maximum(log - spread, 0)
        in_block = np.arange(rows.start, rows.stop) * len(made.sums) // tiles.n_q
        which = (np.arange(in_block[0], in_block[-1] + 1)[:, np.newaxis] == in_block).astype(np.float64)
        self.parts[rows.start] = which @ (self.sums * inverse), which @ self.counts

    def _add_to_map(self, exps: Array, hidden: Bools | None, low: int, high: int) -> None:
        """Add a tile to the columns of the map that its keys lie in."""
        in_block = np.arange(low, high) * self.sums.shape[1] // self.block.tiles.n_k
        columns = slice(int(in_block[0]), int(in_block[-1]) + 1)
        which = (in_block[:, np.newaxis] == np.arange(columns.start, columns.stop)).astype(exps.dtype)
        self.sums[:, columns] += exps @ which
        self.counts[:, columns] += which.sum(axis=0) if hidden is None else ~hidden @ which

    def _keep_strongest(self, scores: Array, low: int) -> None:
        """Insert the stronger scores of a tile among each row's strongest; on a tie the earlier key stays.

        Scores tie if they differ by no more than those of identical keys may.
        """
        places = scores.argmax(axis=1)
        rows = np.flatnonzero(scores[np.arange(len(scores)), places] > self.scores[:, -1])
        places, left = places[rows], scores[rows]
        for _ in range(self.scores.shape[1]):
            best = left[np.arange(len(rows)), places]
            close = self.block.score_tolerance(rows, low + places, best)
            more = best > self.scores[rows, -1] + close
            if not more.all():
                rows, best, left, close = rows[more], best[more], left[more], close[more]
            if not len(rows):
                return
            at = np.arange(len(rows))
            places = (left >= (best - close)[:, np.newaxis]).argmax(axis=1)
            self._insert(rows, low + places, left[at, places], close)
            left[at, places] = LOWEST
            places = left.argmax(axis=1)

    def _insert(self, rows: Ints, keys: Ints, scores: Array, close: Array) -> None:
        """Put one key into each of these rows, behind those that are stronger or tie; the last one drops out.

        A score that ties with the one ahead is not kept as more than that: strongest stays first.
        """
        held_keys, held = self.keys[rows], self.scores[rows]
        weaker = held < (scores - close)[:, np.newaxis]
        moved_keys, moved = np.empty_like(held_keys), np.empty_like(held)
        moved_keys[:, 1:], moved[:, 1:] = held_keys[:, :-1], held[:, :-1]
        moved[:, 0] = np.inf
        is_here = weaker.copy()
        is_here[:, 1:] &= ~weaker[:, :-1]
        np.copyto(moved_keys, keys[:, np.newaxis], where=is_here)
        self.keys[rows] = np.where(weaker, moved_keys, held_keys)
        self.scores[rows] = np.where(weaker, np.minimum(moved, scores[:, np.newaxis]), held)
