"""A tensor in an open file, read at positions and unpacked: whole, by rows, or by numbers."""

from __future__ import annotations

import math
import os
from threading import Lock
from typing import IO, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_files import BFLOAT16, Entry, from_bfloat16
from attn_cli.io.array_types import Array, Ints, NDArray
from attn_cli.models.checkpoints.quantized import Quantized

_file_position = Lock()


class Scaled(NamedTuple):
    """The scales of a quantized matrix, and offsets where it has them: one of each for every group of numbers."""

    scales: Stored
    offsets: Stored | None
    group: int

    def apply(self, q: Array, start: int) -> Array:
        """Return numbers from number `start` on, of whole groups."""
        first, count = start // self.group, len(q) // self.group
        found: Array = self.scales.part(first, count)[:, None] * q.reshape(count, self.group)
        if self.offsets is not None:
            found += self.offsets.part(first, count)[:, None]
        return found.reshape(-1)


class Stored(NamedTuple):
    """A tensor in an open file; `where` names it in errors."""

    file: IO[bytes]  # unbuffered
    entry: Entry
    where: str
    packing: Quantized | None = None  # of blocks that lie within a row
    order: Ints | None = None  # of its rows: where each lies
    scaled: Scaled | None = None
    is_in_out: bool = False  # whether it stands as in x W
    held: Array | None = None  # the whole of it, where it is in memory

    def read(self) -> Array:
        """Return the whole tensor."""
        if self.held is not None:
            return self.held
        found = self.part(0, math.prod(self.entry.shape)).reshape(self.entry.shape)
        return found if self.order is None else found[self.order]

    def bytes_of(self, count: int) -> int:
        """Return how many bytes so many numbers take."""
        return count // (1 if self.packing is None else self.packing.numbers) * self.entry.dtype.itemsize

    def rows(self, start: int, count: int, room: NDArray[np.uint8] | None = None) -> Array:
        """Return rows of a matrix; they may lie in `room`, which has place for them."""
        width = self.entry.shape[1]
        if self.held is not None:
            return self.held[start : start + count]
        if self.order is not None:
            rows = self.order[start : start + count].tolist()
            return np.array([self.part(row * width, width) for row in rows])
        return self.part(start * width, count * width, room).reshape(count, width)

    def part(self, start: int, count: int, room: NDArray[np.uint8] | None = None) -> Array:
        """Return `count` numbers from number `start` on; they may lie in `room`."""
        size = self.bytes_of(count)
        data = np.empty(size, np.uint8) if room is None else room[:size]
        view, done = data.data, 0
        while done < size:
            got = _read_at(self.file, view[done:], self.entry.offset + self.bytes_of(start) + done)
            if not got:
                raise InputError(f"{self.where} changed while it was read.", "Try again when it is complete.")
            done += got
        if self.packing is not None:
            found = self.packing.unpack(data.view(self.entry.dtype)).reshape(-1)
            return found if self.scaled is None else self.scaled.apply(found, start)
        if self.entry.dtype == BFLOAT16:
            return from_bfloat16(data)
        return data.view(self.entry.dtype).astype(np.float32, copy=False)


def _read_at(file: IO[bytes], view: memoryview, offset: int) -> int:
    """Read into `view` from a place in the file; return how many bytes there were."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [view], offset)
    with _file_position:
        file.seek(offset)
        got: int = file.readinto(view)  # type: ignore[attr-defined]  # a raw file has it
        return got
