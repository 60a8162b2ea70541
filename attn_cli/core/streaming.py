"""The loop over the rows of one or several heads, block by block and tile by tile.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory", and Dao et al. 2022, "FlashAttention", stream so
too; with a bound on the scores no running maximum is needed. Blocks depend on shapes alone, so the results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import Any

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.core.tiles import Block, Tiles
from attn_cli.io.array_types import Array
from attn_cli.io.progress import OnPart

TILE = 1 << 20  # bytes of a tile of scores
TILE_KEYS = 256  # keys in it at least
BLOCKS = 8  # of rows, at least, where they have more than MOST_MASKED_ROWS: as many threads have work
ROW_BLOCK_BYTES = 1 << 22  # bytes of a block of whole rows
MOST_ROWS, FEWEST_ROWS = 512, 32
MOST_MASKED_ROWS = 256  # of more rows, less could be skipped
LONGEST = 8192  # terms summed at once: float32 loses digits with each addition
MIN_THREADED_SCORES = 2048 * 2048  # scores of all heads from which a second thread pays
Place = Callable[[int, Block], Array]  # by the number of a head
Finish = Callable[[Block, Array, Array, Array], None]
OnRows = Callable[[range, Array, Array], None]


def attended(
    heads: Sequence[Tiles], values: Sequence[Array], threads: int | None = None, rows: range | None = None
) -> tuple[Array, Array]:
    """Return weights (heads, n_q, n_k), zeros where nothing is allowed, and output (heads, n_q, d_v); or some rows."""
    wanted, dtype = rows or range(heads[0].n_q), heads[0].Q.dtype
    make = np.zeros if any(head.mask is not None for head in heads) else np.empty
    weights = make((len(heads), len(wanted), heads[0].n_k), dtype)

    def place(head: int, block: Block) -> Array:
        found: Array = weights[head, block.start - wanted.start : block.stop - wanted.start]
        return found

    return weights, _run(
        heads, values, wanted, _whole_rows(heads, len(wanted)), lambda: place, _divide, threads
    )


def go_over(
    tiles: Tiles, V: Array, each: OnRows, threads: int | None = None, report: OnPart | None = None
) -> None:
    """Call `each` with some rows of one head at a time, their weights (rows, n_k), and their output (rows, d_v).

    Several threads call it, in any order. The weights are overwritten afterwards.
    """
    size, wide = _whole_rows([tiles], tiles.n_q)

    def places() -> Place:
        spare = np.empty((size, tiles.n_k), V.dtype)

        def place(head: int, block: Block) -> Array:
            weights = spare[: block.stop - block.start]
            weights[:, : block.low] = weights[:, block.high :] = 0
            return weights

        return place

    def finish(block: Block, weights: Array, inverse: Array, output: Array) -> None:
        _divide(block, weights, inverse, output)
        each(range(block.start, block.stop), weights, output)

    _run([tiles], [V], range(tiles.n_q), (size, wide), places, finish, threads, report)


def _whole_rows(heads: Sequence[Tiles], n_q: int) -> tuple[int, int]:
    """Return the rows of a block that holds all their weights, and the keys that are worked on at once."""
    most = MOST_MASKED_ROWS if any(head.mask is not None for head in heads) else MOST_ROWS
    fitting = ROW_BLOCK_BYTES // (heads[0].n_k * heads[0].Q.itemsize)
    return min(most, max(FEWEST_ROWS, fitting), n_q), LONGEST


def _divide(block: Block, tile: Array, inverse: Array, output: Array) -> None:
    """Make weights of the exponentials in a tile of whole rows."""
    tile[:, block.low : block.high] *= inverse


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

    def places() -> Place:
        tile = _spare(shape[0] * shape[1], dtype).reshape(shape, order="C" if by_rows else "F")
        return lambda head, block: tile[: block.stop - block.start]

    return _run(heads, values, range(n_q), shape, places, lambda *_: None, threads, report)


def _run(
    heads: Sequence[Tiles], values: Sequence[Array], rows: range, shape: tuple[int, int],
    places: Callable[[], Place], finish: Finish, threads: int | None, report: OnPart | None = None,
) -> Array:  # fmt: skip
    """Return the output of these rows of all heads, (heads, rows, d_v); tiles have `shape`, rows and keys, at most.

    Each thread calls `places`; what it returns gives the tile for a block: (rows, n_k), or fewer keys, whose
    exponentials then overwrite each other. `finish` gets the block, its tile, the inverse (rows, 1) of the sums of its
    exponentials, and its output.
    """
    size, wide = shape
    d_v, n_k, dtype = values[0].shape[1], heads[0].n_k, heads[0].Q.dtype
    output = np.empty((len(heads), len(rows), d_v), dtype)

    def worker() -> Callable[[tuple[int, int]], None]:
        place, part, ones = places(), np.empty((size, d_v), dtype), np.ones(min(wide, n_k), dtype)

        def fill(block: Block, V: Array, tile: Array, held: Array) -> Array:
            """Sum up exponentials times values; return the sums of the exponentials."""
            total, products = np.zeros(len(held), dtype), held
            for piece in block.pieces(wide):
                at = piece.low if tile.shape[1] >= n_k else 0
                exps = tile[:, at : at + piece.high - piece.low]
                block.power(exps, exps, block.scores(piece, exps))
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
            given = block, values[head], place(head, block), held
            with np.errstate(under="ignore"):  # exponentials may underflow to 0
                total = fill(*given)
                if block.underflows(total):
                    total = fill(*given)
                total[total == 0] = np.inf  # a row that may see nothing gets zeros
                inverse: Array = (1 / total)[:, np.newaxis]
                held *= inverse
                finish(block, given[2], inverse, held)

        return do

    tasks = [(head, start) for head in range(len(heads)) for start in range(rows.start, rows.stop, size)]
    is_small = len(heads) * heads[0].n_q * n_k < MIN_THREADED_SCORES
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
