"""Loops over the rows of one or several heads, block by block: what is kept of each tile of scores.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory", and Dao et al. 2022, "FlashAttention", stream so
too; with a bound on the scores no running maximum is needed. Blocks depend on shapes alone, so the results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.core.tiles import LOWEST, Block, Tiles
from attn_cli.io.array_types import Array, Bools, Ints
from attn_cli.io.progress import OnPart

TILE = 1 << 19  # bytes of a tile of scores
TILE_KEYS = 512  # keys in it
ROW_BLOCK_BYTES = 1 << 21  # bytes of a block of whole rows
MOST_ROWS, FEWEST_ROWS = 256, 32
LONGEST = 8192  # terms summed at once: float32 loses digits with each addition
MIN_THREADED_SCORES = 2048 * 2048  # scores of all heads from which a second thread pays
Task = tuple[int, int]  # a head, and where a block of its rows starts
Do = Callable[[int, Block], None]  # what becomes of a block of a head's rows


def attended(
    heads: Sequence[Tiles], values: Sequence[Array], threads: int | None = None, rows: range | None = None
) -> tuple[Array, Array]:
    """Return weights (heads, n_q, n_k), zeros where nothing is allowed, and output (heads, n_q, d_v).

    With `rows`, of these alone: the heads keep their buffers, because more rows will follow.
    """
    one = heads[0]
    wanted, n_k, dtype = rows or range(one.n_q), one.n_k, one.Q.dtype
    make = np.empty if all(head.mask is None for head in heads) else np.zeros
    weights = make((len(heads), len(wanted), n_k), dtype)
    output = np.empty((len(heads), len(wanted), values[0].shape[1]), dtype)
    size = min(MOST_ROWS, max(FEWEST_ROWS, ROW_BLOCK_BYTES // (n_k * dtype.itemsize)), len(wanted))

    def worker() -> Do:
        ones = np.ones((n_k, 1), dtype)
        spare = np.empty((size, min(TILE_KEYS, n_k)), dtype)

        def do(head: int, block: Block) -> None:
            at = slice(block.start - wanted.start, block.stop - wanted.start)
            held = weights[head, at]

            def fill() -> Array:
                for piece in block.pieces():
                    part = held[:, piece.low : piece.high]
                    block.power(part, part, block.scores(piece, part))
                return _products(held, ones, block)[:, 0]

            total = fill()
            if block.rescale_underflowed_rows(total, spare):
                total = fill()
            held[:, block.low : block.high] *= _inverse(total)
            output[head, at] = _products(held, values[head], block)

        return do

    _run(heads, wanted, size, worker, threads, None)
    return weights, output


def _products(held: Array, V: Array, block: Block) -> Array:
    """Return a block's exponentials or weights (rows, n_k) times V (n_k, d_v), a run of keys after the other."""
    low, high = block.low, block.high
    runs = [slice(at, min(at + LONGEST, high)) for at in range(low, high, LONGEST)] or [slice(low, low)]
    total: Array = held[:, runs[0]] @ V[runs[0]]
    for keys in runs[1:]:
        total += held[:, keys] @ V[keys]
    return total


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


class BlockFindings(NamedTuple):
    """What streaming over one block of rows finds, before it is divided by the rows' sums."""

    keys: Ints  # (rows, k)
    scores: Array  # (rows, k)
    spread: Array  # (rows,), exponentials times scores
    sums: Array  # (rows, blocks), exponentials
    counts: Array  # (rows, blocks)

    @property
    def total(self) -> Array:
        """The sums of the exponentials, (rows,)."""
        total: Array = self.sums.sum(axis=1)
        return total


def output(
    heads: Sequence[Tiles], values: Sequence[Array], threads: int | None = None, report: OnPart | None = None
) -> Array:
    """Return the output (heads, n_q, d_v) alone, with memory for it and a tile."""
    n_q, d_v, dtype = heads[0].n_q, values[0].shape[1], heads[0].Q.dtype
    made = np.empty((len(heads), n_q, d_v), dtype)
    rows, wide = _tile(n_q, dtype.itemsize)

    def worker() -> Do:
        tile, part, ones = np.empty((rows, wide), dtype), np.empty((rows, d_v), dtype), np.ones(wide, dtype)

        def do(head: int, block: Block) -> None:
            held, V = made[head, block.start : block.stop], values[head]

            def fill() -> Array:
                """Sum up exponentials times values; return the sums of the exponentials."""
                total = np.zeros(len(held), dtype)
                held[:] = 0
                for piece in block.pieces(wide):
                    exps = tile[: len(held), : piece.high - piece.low]
                    block.power(exps, exps, block.scores(piece, exps))
                    held[:] += np.matmul(exps, V[piece.low : piece.high], out=part[: len(held)])
                    np.add(total, exps @ ones[: exps.shape[1]], out=total)
                return total

            total = fill()
            if block.rescale_underflowed_rows(total, tile):
                total = fill()
            held *= _inverse(total)

        return do

    _run(heads, range(n_q), rows, worker, threads, report)
    return made


def survey(
    tiles: Tiles, V: Array, k: int, blocks: tuple[int, int] | None = None,
    threads: int | None = None, report: OnPart | None = None,
) -> Survey:  # fmt: skip
    """Return each row's k strongest links and the output of one head, with memory for one tile and the result.

    With `blocks`, the rows and columns of a map, also the map, each row's entropy, and how many keys it may see.
    """
    n_q, d_v, dtype, shape = tiles.n_q, V.shape[1], V.dtype, blocks or (1, 1)
    rows, wide = _tile(n_q, dtype.itemsize)
    k = min(k, tiles.n_k)
    kept = Survey(
        np.empty((n_q, k), np.intp),
        np.empty((n_q, k), dtype),
        np.empty((n_q, d_v), dtype),
        *np.zeros((2, n_q if blocks else 0)),
        *np.zeros((2, *shape)),
    )
    parts: dict[int, tuple[Array, Array]] = {}

    def worker() -> Do:
        scores, part = np.empty((rows, wide), dtype), np.empty((rows, d_v), dtype)
        buffers = scores, np.empty((rows, wide), dtype) if blocks else scores, part, np.ones(wide, dtype)

        def do(head: int, block: Block) -> None:
            found = _found(block, V, kept, buffers)
            if block.rescale_underflowed_rows(found.total, scores):
                found = _found(block, V, kept, buffers)
            parts[block.start] = _put(found, block, kept)

        return do

    _run([tiles], range(n_q), rows, worker, threads, report)
    for start in sorted(parts):  # in order, so that the sums do not depend on which thread was first
        first = start * shape[0] // n_q
        for whole, one in zip((kept.sums, kept.counts), parts[start], strict=True):
            whole[first : first + len(one)] += one
    return kept


def _found(block: Block, V: Array, kept: Survey, buffers: tuple[Array, Array, Array, Array]) -> BlockFindings:
    """Go over a block's tiles; the output, before it is divided, goes into `kept`.

    The buffers are for a tile of scores, its exponentials (the same array unless entropy is wanted), a part of the
    output, and ones.
    """
    output = kept.output[block.start : block.stop]
    n_k, rows, k, columns = block.tiles.n_k, len(output), kept.keys.shape[1], kept.sums.shape[1]
    found = BlockFindings(
        np.full((rows, k), -1, np.intp),
        np.full((rows, k), LOWEST, V.dtype),
        np.zeros(rows),
        *np.zeros((2, rows, columns)),
    )
    output[:] = 0
    for piece in block.pieces(buffers[0].shape[1]):
        low, high, _ = piece
        scores, exps = (tile[:rows, : high - low] for tile in buffers[:2])
        part, ones = buffers[2][:rows], buffers[3][: high - low]
        hidden = block.scores(piece, scores)
        if k:
            if hidden is not None:
                np.copyto(scores, LOWEST, where=hidden)
            _keep_strongest(scores, low, found, block)
        block.power(scores, exps, hidden)
        output += np.matmul(exps, V[low:high], out=part)
        if len(kept.entropy):
            _add_to_map(exps, hidden, low * columns // n_k, np.arange(low, high) * columns // n_k, found)
            scores *= exps
            found.spread[:] += scores @ ones
        else:
            found.sums[:, 0] += exps @ ones
    return found


def _add_to_map(exps: Array, hidden: Bools | None, first: int, in_block: Ints, found: BlockFindings) -> None:
    """Add a tile to the map's columns, from the `first` one it touches on; its keys lie `in_block`."""
    columns = slice(first, int(in_block[-1]) + 1)
    which = (in_block[:, np.newaxis] == np.arange(columns.start, columns.stop)).astype(exps.dtype)
    found.sums[:, columns] += exps @ which
    found.counts[:, columns] += which.sum(axis=0) if hidden is None else ~hidden @ which


def _keep_strongest(scores: Array, low: int, found: BlockFindings, block: Block) -> None:
    """Insert the stronger scores of a tile among each row's strongest; on a tie the earlier key stays.

    Scores tie if they differ by no more than those of identical keys may.
    """
    places = scores.argmax(axis=1)
    rows = np.flatnonzero(scores[np.arange(len(scores)), places] > found.scores[:, -1])
    places, left = places[rows], scores[rows]
    for _ in range(found.scores.shape[1]):
        best = left[np.arange(len(rows)), places]
        close = block.score_tolerance(rows, low + places, best)
        more = best > found.scores[rows, -1] + close
        if not more.all():
            rows, best, left, close = rows[more], best[more], left[more], close[more]
        if not len(rows):
            return
        at = np.arange(len(rows))
        places = (left >= (best - close)[:, np.newaxis]).argmax(axis=1)
        _insert(found, rows, low + places, left[at, places], close)
        left[at, places] = LOWEST
        places = left.argmax(axis=1)


def _insert(found: BlockFindings, rows: Ints, keys: Ints, scores: Array, close: Array) -> None:
    """Put one key into each of these rows, behind those that are stronger or tie; the last one drops out.

    A score that ties with the one ahead is not kept as more than that: strongest stays first.
    """
    held_keys, held = found.keys[rows], found.scores[rows]
    weaker = held < (scores - close)[:, np.newaxis]
    moved_keys, moved = np.empty_like(held_keys), np.empty_like(held)
    moved_keys[:, 1:], moved[:, 1:] = held_keys[:, :-1], held[:, :-1]
    moved[:, 0] = np.inf
    is_here = weaker.copy()
    is_here[:, 1:] &= ~weaker[:, :-1]
    np.copyto(moved_keys, keys[:, np.newaxis], where=is_here)
    found.keys[rows] = np.where(weaker, moved_keys, held_keys)
    found.scores[rows] = np.where(weaker, np.minimum(moved, scores[:, np.newaxis]), held)


def _put(found: BlockFindings, block: Block, kept: Survey) -> tuple[Array, Array]:
    """Divide by the rows' sums, and put into `kept`; return the map's rows that this block touches."""
    start, stop, total = block.start, block.stop, found.total
    inverse = _inverse(total)
    kept.output[start:stop] *= inverse
    kept.keys[start:stop] = found.keys
    none = found.keys < 0
    kept.weights[start:stop] = np.where(none, 0, np.exp(np.where(none, 0, found.scores)) * inverse)
    if len(kept.entropy):
        kept.allowed[start:stop] = found.counts.sum(axis=1)
        # -sum w log w, where w = e^s / total, is log total - sum e^s s / total
        log = np.log2(np.where(total > 0, total, 1)) - found.spread * inverse[:, 0] * np.log2(np.e)
        kept.entropy[start:stop] = np.maximum(log, 0)
    in_block = np.arange(start, stop) * len(kept.sums) // block.tiles.n_q
    which = (np.arange(in_block[0], in_block[-1] + 1)[:, np.newaxis] == in_block).astype(np.float64)
    return which @ (found.sums * inverse), which @ found.counts


def _tile(n_q: int, itemsize: int) -> tuple[int, int]:
    """Return the rows and keys of a tile: few rows leave room for more keys."""
    rows = min(n_q, TILE // (TILE_KEYS * itemsize))
    return rows, min(TILE // (rows * itemsize), LONGEST)


def _run(
    heads: Sequence[Tiles], rows: range, size: int, worker: Callable[[], Do],
    threads: int | None, report: OnPart | None,
) -> None:  # fmt: skip
    """Do these rows of all heads, `size` at a time, head by head; a head releases its buffers after its last row."""
    tasks = [(head, start) for head in range(len(heads)) for start in range(rows.start, rows.stop, size)]
    left = Counter(head for head, _ in tasks)
    counting = Lock()
    n_q, n_k = heads[0].n_q, heads[0].n_k

    def tidy_worker() -> Callable[[Task], None]:
        do = worker()

        def do_and_tidy(task: Task) -> None:
            head, start = task
            with np.errstate(under="ignore"):  # exponentials may underflow to 0
                do(head, Block(heads[head], start, min(start + size, rows.stop)))
            with counting:
                left[head] -= 1
            if rows.stop == n_q and not left[head]:
                heads[head].release()

        return do_and_tidy

    if len(heads) * n_q * n_k < MIN_THREADED_SCORES:
        threads = 1
    run(tasks, tidy_worker, threads or processors(), report)


def _inverse(total: Array) -> Array:
    """Return 1 / total as a column; 0 where a row may see nothing."""
    inverse: Array = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    return inverse[:, np.newaxis]
