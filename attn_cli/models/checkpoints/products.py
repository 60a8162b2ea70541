"""Products of words and stored matrices, of which some rows at a time are read and multiplied."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.io.array_types import Array
from attn_cli.models.checkpoints.quantized import Stored

Activation = Callable[[Array], Array]

PART = 3 << 20  # numbers of a matrix that are held at once
SMALL = 1 << 18  # numbers that one thread reads, multiplies or finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache


def product(
    x: Array, matrix: Stored, in_out: bool = False, b: Array | None = None, activation: Activation | None = None,
) -> Array:  # fmt: skip
    """Return activation(x W + b), (n, made), for x (n, in) and W stored as (made, in), or as (in, made) if `in_out`.

    Threads read rows of W together, and then multiply by half of them, or of their columns, each. The parts are the
    same for any number of threads, and so are the sums.
    """
    rows, width = matrix.entry.shape
    found = np.empty((len(x), width) if in_out else (rows, len(x)), np.float32)
    room = np.empty((min(rows, max(1, PART // width)), width), np.float32)
    for start in range(0, rows, len(room)):
        W = _read_together(matrix, start, room[: rows - start])
        X, own = (x[:, start : start + len(W)], found) if in_out else (x.T, found[start : start + len(W)])
        _multiply_together(X, W, own, in_out, start > 0)
    several = max(1, NEAR // found.shape[1])

    def finish(at: int) -> None:
        near = found[at : at + several]
        if b is not None:
            near += b if in_out else b[at : at + several, None]
        if activation is not None:
            near[:] = activation(near)

    _in_threads(range(0, len(found), several), finish, found.size <= SMALL)
    return found if in_out else found.T


def _read_together(matrix: Stored, start: int, room: Array) -> Array:
    """Return as many rows as `room` has, from row `start` on, which threads read into it."""
    if matrix.held is not None:
        return matrix.held[start : start + len(room)]
    step = math.ceil(len(room) / (1 if room.size <= SMALL else 2))

    def read(at: int) -> None:
        part = room[at : at + step]
        own = part.reshape(-1).view(np.uint8) if matrix.entry.dtype.itemsize <= 4 else None
        made = matrix.rows(start + at, len(part), own)
        if not np.may_share_memory(made, part):
            part[:] = made

    _in_threads(range(0, len(room), step), read)
    return room


def _multiply_together(X: Array, W: Array, found: Array, in_out: bool, adds: bool) -> None:
    """Make `found` X W where W stands in-out, or add it; else W X, half of W's columns or rows at a time."""
    size = W.shape[1] if in_out else len(W)
    step = math.ceil(size / (1 if W.size <= SMALL else 2))

    def multiply(at: int) -> None:
        own = slice(at, at + step)
        if not in_out:
            np.matmul(W[own], X, out=found[own])
        elif adds:
            found[:, own] += X @ W[:, own]
        else:
            np.matmul(X, W[:, own], out=found[:, own])

    _in_threads(range(0, size, step), multiply)


def _in_threads(tasks: range, do: Callable[[int], None], alone: bool = False) -> None:
    """Do every task; one thread does a single one, and all if it is `alone`."""

    def quietly(task: int) -> None:
        with np.errstate(all="ignore"):  # which is each thread's own
            do(task)

    if alone or len(tasks) == 1:
        for task in tasks:
            quietly(task)
    else:
        run(tasks, lambda: quietly, processors())
