"""Products of words and stored matrices: a matrix is read some rows at a time, and multiplied while it is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.io.array_types import Array, NDArray
from attn_cli.models.checkpoints.stored import Stored

Activation = Callable[[Array], Array]

PART = 1 << 21  # numbers of a matrix that a thread holds at once
SMALL = 1 << 18  # numbers of a matrix, or of a product, that one thread multiplies or finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache


def product(
    x: Array,
    matrix: Stored,
    in_out: bool = False,
    b: Array | None = None,
    activation: Activation | None = None,
) -> Array:
    """Return activation(x W + b), (n, made), for x (n, in) and W stored as (made, in), or as (in, made) if `in_out`.

    Each thread finishes what it has multiplied, while that is in its processor's cache. The parts are the same for
    any number of threads, and so are the sums: of a matrix that is not small there are at least two.
    """
    return (_by_rows if in_out else _by_parts)(x, matrix, b, activation)


def _by_parts(x: Array, matrix: Stored, b: Array | None, activation: Activation | None) -> Array:
    """Return what rows of W (made, in) make each by themselves."""
    rows, width = matrix.entry.shape
    parts = math.ceil(rows * width / PART)
    parts += parts % 2 if rows * width > SMALL else 0
    step = math.ceil(rows / min(parts, rows))
    found = np.empty((rows, len(x)), np.float32)

    def multiply(start: int, room: NDArray[np.uint8]) -> None:
        W = matrix.rows(start, min(step, rows - start), room)
        part = np.matmul(W, x.T, out=found[start : start + len(W)])
        _finish(part, None if b is None else b[start : start + len(W), None], activation)

    _in_threads(range(0, rows, step), multiply, matrix.bytes_of(step * width))
    return found.T


def _by_rows(x: Array, matrix: Stored, b: Array | None, activation: Activation | None) -> Array:
    """Return the sum of what some rows of W (in, made) at a time add to it: threads share its columns."""
    rows, width = matrix.entry.shape
    found = np.empty((len(x), width), np.float32)
    room = np.empty((min(rows, max(1, 2 * PART // width)), width), np.float32)
    step = width if rows * width <= SMALL else math.ceil(width / 2)

    def multiply(W: Array, start: int, at: int, _: NDArray[np.uint8]) -> None:
        columns = slice(at, at + step)
        part, X = found[:, columns], x[:, start : start + len(W)]
        if start == 0:
            np.matmul(X, W[:, columns], out=part)
        else:
            part += X @ W[:, columns]

    def finish(at: int, _: NDArray[np.uint8]) -> None:
        _finish(found[at : at + several], b, activation)

    for start in range(0, rows, len(room)):
        W = _read_together(matrix, start, room[: rows - start])
        _in_threads(range(0, width, step), partial(multiply, W, start), 0)
    several = math.ceil(len(x) / min(math.ceil(found.size / SMALL), len(x)))
    _in_threads(range(0, len(x), several), finish, 0)
    return found


def _read_together(matrix: Stored, start: int, room: Array) -> Array:
    """Return as many rows as `room` has, from row `start` on, which threads read into it."""
    if matrix.held is not None:
        return matrix.held[start : start + len(room)]
    step = len(room) if room.size <= SMALL else math.ceil(len(room) / 2)

    def read(at: int, _: NDArray[np.uint8]) -> None:
        part = room[at : at + step]
        own = part.reshape(-1).view(np.uint8) if matrix.entry.dtype.itemsize <= 4 else None
        made = matrix.rows(start + at, len(part), own)
        if not np.may_share_memory(made, part):
            part[:] = made

    _in_threads(range(0, len(room), step), read, 0)
    return room


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
