"""Numbers stored in few bits, in blocks, as GGUF files have them: to float32, bit for bit as llama.cpp has them.

A block is a structured dtype. Most hold small whole numbers q, a scale d, and often a second scale a run of numbers;
a number is then d x scale x q, less an offset. The layouts are those of llama.cpp's ggml-common.h.

A tensor in an open file is read here too, at positions, and unpacked: whole, by rows, or by numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from threading import Lock
from typing import IO, Any

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_files import BFLOAT16, Entry, from_bfloat16
from attn_cli.io.types import Array, Ints, NamedTuple, NDArray

Block = NDArray[Any]  # (n,), of a structured dtype
Small = NDArray[np.uint8]


class Quantized(NamedTuple):
    """How numbers are packed: the dtype of a block, how many numbers it holds, and what unpacks n blocks."""

    dtype: np.dtype[Any]
    numbers: int
    unpack: Callable[[Block], Array]  # (n,) to (n, numbers)


def _parts(packed: Small, bits: int, run: int) -> Small:
    """Return each byte's parts of so many bits, (n, m x 8 / bits): of every `run` bytes the lowest parts come first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(len(packed), -1)


def _signed(q: Small, offset: int) -> Array:
    return (q.view(np.int8) - np.int8(offset)).astype(np.float32)


def _column(b: Block, name: str) -> Array:
    return b[name].astype(np.float32)[:, None]


def _times(scales: Array, q: Array) -> Array:
    """Return q, (n, m), with each of its s equal runs times its own scale, (n, s)."""
    return scales[..., None] * q.reshape(*scales.shape, -1)


def _four_bits(b: Block) -> Small:
    return _parts(b["q"], 4, 16)


def _times_d_plus_m(b: Block, q: Small) -> Array:
    return _column(b, "d") * q.astype(np.float32) + _column(b, "m")


def _five_bits(b: Block) -> Small:
    return _four_bits(b) | np.unpackbits(b["high"], axis=1, bitorder="little") << np.uint8(4)


def _q2_k(b: Block) -> Array:
    scales = _column(b, "d") * (b["scales"] & np.uint8(15)).astype(np.float32)
    offsets = _column(b, "m") * (b["scales"] >> np.uint8(4)).astype(np.float32)
    return _times(scales, _parts(b["q"], 2, 32).astype(np.float32)) - offsets[..., None]


def _q3_k(b: Block) -> Array:
    low, high = _parts(b["scales"][:, :8], 4, 8), _parts(b["scales"][:, 8:], 2, 4)
    q = _parts(b["q"], 2, 32) | _parts(b["high"], 1, 32) << np.uint8(2)
    return _times(_column(b, "d") * _signed(low | high << np.uint8(4), 32), _signed(q, 4))


def _with_offsets(b: Block, q: Small) -> Array:
    """Return q by eight scales and offsets, of six bits each: the last four of both have their upper bits apart."""
    first, second, third = (b["scales"][:, start : start + 4] for start in (0, 4, 8))

    def six(own: Small, low: Small) -> Array:
        return np.hstack([own & np.uint8(63), low | own >> np.uint8(2) & np.uint8(48)]).astype(np.float32)

    offsets = _column(b, "m") * six(second, third >> np.uint8(4))
    scales = _column(b, "d") * six(first, third & np.uint8(15))
    return _times(scales, q.astype(np.float32)) - offsets[..., None]


def _q4_k(b: Block) -> Array:
    return _with_offsets(b, _parts(b["q"], 4, 32))


def _q5_k(b: Block) -> Array:
    return _with_offsets(b, _parts(b["q"], 4, 32) | _parts(b["high"], 1, 32) << np.uint8(4))


def _q6_k(b: Block) -> Array:
    q = _parts(b["q"], 4, 64) | _parts(b["high"], 2, 32) << np.uint8(4)
    return _times(_column(b, "d") * b["scales"].astype(np.float32), _signed(q, 32))


# What four bits stand for where steps are not equal
UNEVEN = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # doubled


def _iq4_xs(b: Block) -> Array:
    scales = _parts(b["scales"], 4, 1) | _parts(b["high"], 2, 1) << np.uint8(4)
    return _times(_column(b, "d") * _signed(scales, 32), UNEVEN[_four_bits(b)])


def _half_power(exponents: Small) -> Array:
    """A power of two for each block: OCP Microscaling Formats 1.0; half of it, for E2M1 is doubled."""
    e = exponents.astype(np.uint32)
    bits = np.where(e < 2, np.uint32(1 << 21) << np.minimum(e, 1), np.maximum(e, 1) - 1 << 23)
    return bits.astype("<u4").view("<f4")


def _packed(numbers: int, unpack: Callable[[Block], Array], *fields: tuple[Any, ...]) -> Quantized:
    return Quantized(np.dtype([*fields]), numbers, unpack)


def packed_words(bits: int) -> Quantized:
    """Return how MLX packs whole numbers of so many bits: in 32-bit words, one after the other, the first lowest."""

    def unpack(b: Block) -> Array:
        packed = b.view(np.uint8).reshape(len(b), -1)
        if 8 % bits == 0:
            return _parts(packed, bits, 1).astype(np.float32)
        apart = np.zeros((len(b), 32, 8), np.uint8)
        apart[..., :bits] = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(b), 32, bits)
        return np.packbits(apart, axis=2, bitorder="little")[..., 0].astype(np.float32)

    return _packed(32, unpack, ("words", "<u4", bits))


# MXFP4 as GPT-OSS ships it: blocks and scales are tensors of their own
MXFP4_BLOCKS = _packed(32, lambda b: E2M1[_parts(b["q"], 4, 1)], ("q", "u1", 16))
MXFP4_SCALES = Quantized(np.dtype("u1"), 1, _half_power)
_D, _M, _Q, _HIGH = ("d", "<f2"), ("m", "<f2"), ("q", "u1", 16), ("high", "u1", 4)

# By the number of their type in a GGUF file; numbers of one size each are plain dtypes, see gguf.py
QUANTIZED: dict[int, tuple[str, Quantized]] = {
    2: ("Q4_0", _packed(32, lambda b: _column(b, "d") * _signed(_four_bits(b), 8), _D, _Q)),
    3: ("Q4_1", _packed(32, lambda b: _times_d_plus_m(b, _four_bits(b)), _D, _M, _Q)),
    6: ("Q5_0", _packed(32, lambda b: _column(b, "d") * _signed(_five_bits(b), 16), _D, _HIGH, _Q)),
    7: ("Q5_1", _packed(32, lambda b: _times_d_plus_m(b, _five_bits(b)), _D, _M, _HIGH, _Q)),
    8: ("Q8_0", _packed(32, lambda b: b["q"].astype(np.float32) * _column(b, "d"), _D, ("q", "i1", 32))),
    10: ("Q2_K", _packed(256, _q2_k, ("scales", "u1", 16), ("q", "u1", 64), _D, _M)),
    11: ("Q3_K", _packed(256, _q3_k, ("high", "u1", 32), ("q", "u1", 64), ("scales", "u1", 12), _D)),
    12: ("Q4_K", _packed(256, _q4_k, _D, _M, ("scales", "u1", 12), ("q", "u1", 128))),
    13: ("Q5_K", _packed(256, _q5_k, _D, _M, ("scales", "u1", 12), ("high", "u1", 32), ("q", "u1", 128))),
    14: ("Q6_K", _packed(256, _q6_k, ("q", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), _D)),
    20: ("IQ4_NL", _packed(32, lambda b: _column(b, "d") * UNEVEN[_four_bits(b)], _D, _Q)),
    23: ("IQ4_XS", _packed(256, _iq4_xs, _D, ("high", "u1", 2), ("scales", "u1", 4), ("q", "u1", 128))),
    39: ("MXFP4", _packed(32, lambda b: _half_power(b["e"])[:, None] * E2M1[_four_bits(b)], ("e", "u1"), _Q)),
}
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
        each = 1 if self.packing is None else self.packing.numbers
        size, at = (numbers // each * self.entry.dtype.itemsize for numbers in (count, start))
        data = np.empty(size, np.uint8) if room is None else room[:size]
        view, done = data.data, 0
        while done < size:
            got = _read_at(self.file, view[done:], self.entry.offset + at + done)
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
