"""A tensor in an open file: numbers read at their positions, and a matrix multiplied while it is read.

All numbers become float32. A matrix is never held whole: some rows are read, multiplied and let go, by each thread
into memory of its own. So the peak is that of the words' numbers, whatever the size of the matrix.
"""

from __future__ import annotations

import math
import os
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.errors import InputError
from attn_cli.io.array_files import BFLOAT16, Entry, from_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attn_cli.io.array_types import Array

    Activation = Callable[[Array], Array]

PART = 1 << 21  # numbers of a matrix that a thread holds at once
SMALL = (
    1 << 18
)  # numbers of a matrix that one thread multiplies alone, or of a product that it finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache
SUMS = 2  # parts of a matrix in-out, whose products are added: fixed, so that threads do not change the sum

_file_position = Lock()


class Stored(NamedTuple):
    """A tensor in an open file; `where` names it in errors."""

    file: IO[bytes]  # unbuffered
    entry: Entry
    where: str

    def read(self) -> Array:
        """Return the whole tensor."""
        return self.part(0, math.prod(self.entry.shape)).reshape(self.entry.shape)

    def rows(self, start: int, count: int, room: NDArray[np.uint8] | None = None) -> Array:
        """Return rows of a matrix; they may lie in `room`, which has place for them."""
        width = self.entry.shape[1]
        return self.part(start * width, count * width, room).reshape(count, width)

    def part(self, start: int, count: int, room: NDArray[np.uint8] | None = None) -> Array:
        """Return `count` numbers from number `start` on; they may lie in `room`."""
        dtype = self.entry.dtype
        data = np.empty(count * dtype.itemsize, np.uint8) if room is None else room[: count * dtype.itemsize]
        view, done = data.data, 0
        while done < len(view):
            got = _read_at(self.file, view[done:], self.entry.offset + start * dtype.itemsize + done)
            if not got:
                raise InputError(f"{self.where} changed while it was read.", "Try again when it is complete.")
            done += got
        return _as_float(data, dtype)


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
    return (_times_in_out if in_out else _times_out_in)(x, matrix, b, activation)


def _times_out_in(x: Array, matrix: Stored, b: Array | None, activation: Activation | None) -> Array:
    rows, width = matrix.entry.shape
    found = np.empty((rows, len(x)), np.float32)
    step = _rows_at_once(rows, width)

    def multiply(start: int, room: NDArray[np.uint8]) -> None:
        W = matrix.rows(start, min(step, rows - start), room)
        part = np.matmul(W, x.T, out=found[start : start + len(W)])
        _finish(part, None if b is None else b[start : start + len(W), None], activation)

    _in_threads(range(0, rows, step), multiply, step * width * matrix.entry.dtype.itemsize)
    return found.T


def _times_in_out(x: Array, matrix: Stored, b: Array | None, activation: Activation | None) -> Array:
    rows, width = matrix.entry.shape
    step = _rows_at_once(rows, width)
    each = max(step, math.ceil(rows / SUMS))
    sums = np.zeros((math.ceil(rows / each), len(x), width), np.float32)

    def multiply(number: int, room: NDArray[np.uint8]) -> None:
        end = min((number + 1) * each, rows)
        for start in range(number * each, end, step):
            W = matrix.rows(start, min(step, end - start), room)
            sums[number] += x[:, start : start + len(W)] @ W

    def add(start: int, _: NDArray[np.uint8]) -> None:
        part = sums[0, start : start + several]
        for other in sums[1:]:
            part += other[start : start + several]
        _finish(part, b, activation)

    _in_threads(range(len(sums)), multiply, step * width * matrix.entry.dtype.itemsize)
    several = math.ceil(len(x) / min(math.ceil(sums[0].size / SMALL), len(x)))
    _in_threads(range(0, len(x), several), add, 0)
    found: Array = sums[0]
    return found


def _finish(part: Array, b: Array | None, activation: Activation | None) -> None:
    """Add b, (m, 1) or (n,), to a part (m, n) and activate it, some rows at a time."""
    several = max(1, NEAR // part.shape[1])
    for start in range(0, len(part), several):
        near = slice(start, start + several)
        if b is not None:
            part[near] += b[near] if b.ndim == 2 else b
        if activation is not None:
            part[near] = activation(part[near])


def _rows_at_once(rows: int, width: int) -> int:
    """Return how many rows are a part: parts are alike, and of a matrix that is not small there are at least two."""
    parts = math.ceil(rows * width / PART)
    if rows * width > SMALL:
        parts += parts % 2
    return math.ceil(rows / min(parts, rows))


def _in_threads(tasks: range, do: Callable[[int, NDArray[np.uint8]], None], size: int) -> None:
    """Do every task, each thread with `size` bytes of room; a single one at once."""

    def quietly(task: int, room: NDArray[np.uint8]) -> None:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # which is each thread's own
            do(task, room)

    def worker() -> Callable[[int], None]:
        room = np.empty(size, np.uint8)
        return lambda task: quietly(task, room)

    if len(tasks) == 1:
        worker()(tasks[0])
    else:
        run(tasks, worker, processors())


def _read_at(file: IO[bytes], view: memoryview, offset: int) -> int:
    """Read into `view` from a place in the file; return how many bytes there were."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [view], offset)
    with _file_position:
        file.seek(offset)
        got: int = file.readinto(view)  # type: ignore[attr-defined]  # a raw file has it
        return got


def _as_float(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    if dtype == BFLOAT16:
        return from_bfloat16(data)
    return data.view(dtype).astype(np.float32, copy=False)
