"""Loops over the rows of one or several heads, block by block: what is kept of each tile of scores.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory", and Dao et al. 2022, "FlashAttention", stream so
too; with a bound on the scores no running maximum is needed. Blocks depend on shapes alone, so the results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.threads import Report, run
from attn_cli.core.tiles import LOWEST, Block, Tiles

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools, Ints

TILE = 1 << 19  # bytes of a tile of scores
WIDE = 512  # keys in it
WHOLE = 1 << 21  # bytes of a block of whole rows
MOST_ROWS, FEWEST_ROWS = 256, 32
LONGEST = 8192  # terms summed at once: float32 loses digits with each addition
Task = tuple[int, int]  # a head, and where a block of its rows starts


def weigh(
    heads: Sequence[Tiles], values: Sequence[Array], weights: Array, output: Array, threads: int,
    report: Report | None, wanted: range,
) -> None:  # fmt: skip
    """Fill weights (heads, rows, n_k), zeros where nothing is allowed, and output (heads, rows, d_v).

    The rows are those that are `wanted`.
    """
    _, n_q, n_k = weights.shape
    rows = min(MOST_ROWS, max(FEWEST_ROWS, WHOLE // (n_k * weights.itemsize)), n_q)

    def worker() -> Callable[[Task], None]:
        ones = np.ones((n_k, 1), weights.dtype)
        spare = np.empty((rows, min(WIDE, n_k)), weights.dtype)

        def do(task: Task) -> None:
            head, start = task
            stop = min(start + rows, n_q)
            block = heads[head].block(wanted.start + start, wanted.start + stop)
            held = weights[head, start:stop]

            def fill() -> Array:
                for piece in block.pieces():
                    part = held[:, piece.low : piece.high]
                    block.power(part, part, block.scores(piece, part))
                return _products(held, ones, block)[:, 0]

            total = fill()
            if block.rescale_faint_rows(total, spare):
                total = fill()
            held[:, block.low : block.high] *= _inverse(total)
            output[head, start:stop] = _products(held, values[head], block)

        return do

    _run(heads, n_q, rows, worker, threads, report, is_last=wanted.stop == heads[0].n_q)


def _products(held: Array, V: Array, block: Block) -> Array:
    """Return a block's exponentials or weights (rows, n_k) times V (n_k, d_v), a run of keys after the other."""
    low, high = block.low, block.high
    runs = [slice(at, min(at + LONGEST, high)) for at in range(low, high, LONGEST)] or [slice(low, low)]
    total: Array = held[:, runs[0]] @ V[runs[0]]
    for keys in runs[1:]:
        total += held[:, keys] @ V[keys]
    return total


def stream(
    heads: Sequence[Tiles], values: Sequence[Array], output: Array, threads: int, report: Report | None
) -> None:
    """Fill output (heads, n_q, d_v), in memory for a tile alone."""
    _, n_q, d_v = output.shape
    rows, wide = _tile(n_q, output.itemsize)

    def worker() -> Callable[[Task], None]:
        tile, part = np.empty((rows, wide), output.dtype), np.empty((rows, d_v), output.dtype)
        ones = np.ones(wide, output.dtype)

        def do(task: Task) -> None:
            head, start = task
            block = heads[head].block(start, min(start + rows, n_q))
            total = _accumulate_output(
                block, values[head], output[head, start : block.stop], tile, part, ones
            )
            if block.rescale_faint_rows(total, tile):
                total = _accumulate_output(
                    block, values[head], output[head, start : block.stop], tile, part, ones
                )
            output[head, start : block.stop] *= _inverse(total)

        return do

    _run(heads, n_q, rows, worker, threads, report)


def _accumulate_output(block: Block, V: Array, output: Array, tile: Array, part: Array, ones: Array) -> Array:
    """Add to output (rows, d_v), from zero, exponentials times values; return the sums of the exponentials."""
    rows = len(output)
    total = np.zeros(rows, output.dtype)
    output[:] = 0
    for piece in block.pieces(tile.shape[1]):
        exps = tile[:rows, : piece.high - piece.low]
        block.power(exps, exps, block.scores(piece, exps))
        np.matmul(exps, V[piece.low : piece.high], out=part[:rows])
        output += part[:rows]
        total += exps @ ones[: exps.shape[1]]
    return total


class SurveyRequest(NamedTuple):
    """What a survey is to look for: each row's k strongest links, its entropy, a map of blocks (of rows, of keys)."""

    k: int
    entropy: bool = False
    blocks: tuple[int, int] | None = None


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


class Workspace(NamedTuple):
    """One thread's buffers: a tile of scores, its exponentials (the same array unless entropy is wanted), outputs."""

    scores: Array
    exps: Array
    part: Array
    ones: Array


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


def survey(tiles: Tiles, V: Array, wanted: SurveyRequest, threads: int, report: Report | None) -> Survey:
    """Return what is requested of one head, with memory for one tile and the result."""
    n_q, n_k, d_v, dtype = tiles.n_q, tiles.n_k, V.shape[1], V.dtype
    rows, wide = _tile(n_q, dtype.itemsize)
    k, blocks = min(wanted.k, n_k), wanted.blocks or (1, 1)
    kept = Survey(
        np.empty((n_q, k), np.intp),
        np.empty((n_q, k), dtype),
        np.empty((n_q, d_v), dtype),
        np.zeros(n_q if wanted.entropy else 0),
        np.zeros(n_q if wanted.blocks else 0),
        np.zeros(blocks),
        np.zeros(blocks),
    )
    parts: dict[int, tuple[Array, Array]] = {}

    def worker() -> Callable[[Task], None]:
        scores = np.empty((rows, wide), dtype)
        exps = np.empty((rows, wide), dtype) if wanted.entropy else scores
        workspace = Workspace(scores, exps, np.empty((rows, d_v), dtype), np.ones(wide, dtype))

        def do(task: Task) -> None:
            start = task[1]
            block = tiles.block(start, min(start + rows, n_q))
            output = kept.output[start : block.stop]
            found = _found(block, V, wanted, output, workspace)
            if block.rescale_faint_rows(found.total, workspace.scores):
                found = _found(block, V, wanted, output, workspace)
            parts[start] = _put(found, block, kept)

        return do

    _run([tiles], n_q, rows, worker, threads, report)
    for start in sorted(parts):  # in order, so that the sums do not depend on which thread was first
        first = start * blocks[0] // n_q
        for whole, part in zip((kept.sums, kept.counts), parts[start], strict=True):
            whole[first : first + len(part)] += part
    return kept


def _found(
    block: Block, V: Array, wanted: SurveyRequest, output: Array, workspace: Workspace
) -> BlockFindings:
    n_k, rows = block.tiles.n_k, len(output)
    _, blocks = wanted.blocks or (1, 1)
    k = min(wanted.k, n_k)
    found = BlockFindings(
        np.full((rows, k), -1, np.intp),
        np.full((rows, k), LOWEST, V.dtype),
        np.zeros(rows),
        np.zeros((rows, blocks)),
        np.zeros((rows, blocks)),
    )
    output[:] = 0
    for piece in block.pieces(workspace.scores.shape[1]):
        low, high, _ = piece
        scores, exps = workspace.scores[:rows, : high - low], workspace.exps[:rows, : high - low]
        hidden = block.scores(piece, scores)
        if k:
            if hidden is not None:
                np.copyto(scores, LOWEST, where=hidden)
            _keep_strongest(scores, low, found, block)
        block.power(scores, exps, hidden)
        np.matmul(exps, V[low:high], out=workspace.part[:rows])
        output += workspace.part[:rows]
        if wanted.blocks:
            _add_to_map(exps, hidden, low * blocks // n_k, np.arange(low, high) * blocks // n_k, found)
        else:
            found.sums[:, 0] += exps @ workspace.ones[: high - low]
        if wanted.entropy:
            scores *= exps
            found.spread[:] += scores @ workspace.ones[: high - low]
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
    start, stop, power = block.start, block.stop, block.tiles.power
    inverse = _inverse(found.total)
    kept.output[start:stop] *= inverse
    kept.keys[start:stop] = found.keys
    none = found.keys < 0
    kept.weights[start:stop] = np.where(none, 0, power.of(np.where(none, 0, found.scores)) * inverse)
    if len(kept.entropy):
        # -sum w log w, where w = e^s / total, is log total - sum e^s s / total
        total = found.total
        log = np.log2(np.where(total > 0, total, 1)) - found.spread * inverse[:, 0] * power.bits
        kept.entropy[start:stop] = np.maximum(log, 0)
    if len(kept.allowed):
        kept.allowed[start:stop] = found.counts.sum(axis=1)
    which = rows_of_map(start, stop, block.tiles.n_q, len(kept.sums))
    return which @ (found.sums * inverse), which @ found.counts


def rows_of_map(start: int, stop: int, n_q: int, blocks: int) -> Array:
    """Return which of the map's rows, from the first touched on, each of these queries lies in: ones and zeros."""
    in_block = np.arange(start, stop) * blocks // n_q
    which: Array = (np.arange(in_block[0], in_block[-1] + 1)[:, np.newaxis] == in_block).astype(np.float64)
    return which


def _tile(n_q: int, itemsize: int) -> tuple[int, int]:
    """Return the rows and keys of a tile: few rows leave room for more keys."""
    rows = min(n_q, TILE // (WIDE * itemsize))
    return rows, min(TILE // (rows * itemsize), LONGEST)


def _run(
    heads: Sequence[Tiles], n_q: int, rows: int, worker: Callable[[], Callable[[Task], None]],
    threads: int, report: Report | None, is_last: bool = True,
) -> None:  # fmt: skip
    """Run all blocks of rows of all heads, head by head; a head releases its buffers after its last block."""
    tasks = [(head, start) for head in range(len(heads)) for start in range(0, n_q, rows)]
    left = Counter(head for head, _ in tasks)
    counting = Lock()

    def tidy_worker() -> Callable[[Task], None]:
        do = worker()

        def do_and_tidy(task: Task) -> None:
            with np.errstate(under="ignore"):  # exponentials may underflow to 0
                do(task)
            head = task[0]
            with counting:
                left[head] -= 1
            if is_last and not left[head]:
                heads[head].release()

        return do_and_tidy

    run(tasks, tidy_worker, threads, report)


def _inverse(total: Array) -> Array:
    """Return 1 / total as a column; 0 where a row may see nothing."""
    inverse: Array = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    return inverse[:, np.newaxis]
