"""Products of words and stored matrices: a matrix is read some rows at a time, and multiplied while it is read."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.io.array_types import Array, NDArray
from attn_cli.models.checkpoints.stored import Stored

Activation = Callable[[Array], Array]

PART = 1 << 21  # numbers of a matrix that a thread holds at once
SMALL = 1 << 18  # numbers of a matrix, or of a product, that one thread multiplies or finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache
SUMS = 2  # parts of a matrix in-out, whose products are added: fixed, so that threads do not change the sum


def product(
    x: Array,
    matrix: Stored,
    in_out: bool = False,
    b: Array | None = None,
    activation: Activation | None = None,
) -> Array:
    """Return activation(x W + b), (n, made), for x (n, in) and W stored as (made, in), or as (in, made) if `in_out`.

    Each thread finishes what it has multiplied, while that is in its processor's cache.
    """
    rows, width = matrix.entry.shape
    # Parts are alike, and of a matrix that is not small there are at least two.
    parts = math.ceil(rows * width / PART)
    parts += parts % 2 if rows * width > SMALL else 0
    step = math.ceil(rows / min(parts, rows))
    size = matrix.bytes_of(step * width)
    if not in_out:
        found = np.empty((rows, len(x)), np.float32)

        def multiply(start: int, room: NDArray[np.uint8]) -> None:
            W = matrix.rows(start, min(step, rows - start), room)
            part = np.matmul(W, x.T, out=found[start : start + len(W)])
            _finish(part, None if b is None else b[start : start + len(W), None], activation)

        _in_threads(range(0, rows, step), multiply, size)
        return found.T
    each = max(step, math.ceil(rows / SUMS))
    sums = np.zeros((math.ceil(rows / each), len(x), width), np.float32)

    def add_up(number: int, room: NDArray[np.uint8]) -> None:
        end = min((number + 1) * each, rows)
        for start in range(number * each, end, step):
            W = matrix.rows(start, min(step, end - start), room)
            sums[number] += x[:, start : start + len(W)] @ W

    def finish(start: int, _: NDArray[np.uint8]) -> None:
        part = sums[0, start : start + several]
        for other in sums[1:]:
            part += other[start : start + several]
        _finish(part, b, activation)

    _in_threads(range(len(sums)), add_up, size)
    several = math.ceil(len(x) / min(math.ceil(sums[0].size / SMALL), len(x)))
    _in_threads(range(0, len(x), several), finish, 0)
    made: Array = sums[0]
    return made


def _finish(part: Array, b: Array | None, activation: Activation | None) -> None:
    """Add b, (m, 1) or (n,), to a part (m, n) and activate it, some rows at a time."""
    several = max(1, NEAR // part.shape[1])
    for start in range(0, len(part), several):
        near = slice(start, start + several)
        if b is not None:
            part[near] += b[near] if b.ndim == 2 else b
        if activation is not None:
            part[near] = activation(part[near])


def _in_threads(tasks: range, do: Callable[[int, NDArray[np.uint8]], None], size: int) -> None:
    """Do every task, each thread with `size` bytes of room; a single one at once."""

    def worker() -> Callable[[int], None]:
        room = np.empty(size, np.uint8)

        def quietly(task: int) -> None:
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # which is each thread's own
                do(task, room)

        return quietly

    if len(tasks) == 1:
        worker()(tasks[0])
    else:
        run(tasks, worker, processors())
