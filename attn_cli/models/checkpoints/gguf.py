"""A GGUF file: its metadata and its table of tensors, read within the bounds of the file (llama.cpp's docs/gguf.md).

Whatever a header claims is compared with the bytes that are left before anything is made of it: no count, length
or offset of a stranger's file decides how much memory is taken.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, cast

import numpy as np

from attn_cli.errors import FileError, InputError, refuse_input, visible
from attn_cli.io.array_files import BFLOAT16, Entry
from attn_cli.io.files import regular
from attn_cli.models.checkpoints.quantized import QUANTIZED, Quantized

MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
PLAIN: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 28: np.dtype("<f8"), 30: BFLOAT16}
# Types that attn does not unpack, by name, so that an error can say which it is
OTHERS = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}  # fmt: skip
CHUNK = 1 << 20
LONGEST_NAME, MOST_KEYS, MOST_TENSORS, MOST_STRINGS = 1 << 16, 1 << 16, 1 << 16, 1 << 21
MOST_AXES = 4


class Packed(NamedTuple):
    """An array in the metadata, not yet unpacked: that of a vocabulary has a hundred thousand words."""

    kind: int
    length: int
    data: bytes

    def values(self) -> list[Any]:
        """Return its values."""
        if self.kind != STRING:
            return list(struct.unpack(f"<{self.length}{NUMBERS[self.kind]}", self.data))
        at, texts = 0, list[str]()
        for _ in range(self.length):
            (length,) = struct.unpack_from("<Q", self.data, at)
            at += 8 + length
            texts.append(self.data[at - length : at].decode("utf-8", "replace"))
        return texts


class Gguf(NamedTuple):
    """An open GGUF file."""

    file: IO[bytes]  # unbuffered
    path: str
    metadata: Mapping[str, Any]  # numbers, strings and Packed
    tensors: Mapping[str, Entry]  # shapes as NumPy has them: the axis that lies together in the file last
    packings: Mapping[str, Quantized]  # of tensors that are quantized

    @property
    def where(self) -> str:
        """Its path, to be shown."""
        return visible(self.path)


def is_gguf(path: str) -> bool:
    """Tell whether a file begins as GGUF files do."""
    try:
        with regular(path).open("rb") as file:
            return file.read(4) == MAGIC
    except (OSError, FileError):
        return False


def open_gguf(path: str) -> Gguf:
    """Open a GGUF file; raise InputError where it is damaged, or of a kind that attn does not read."""
    file = regular(path).open("rb", buffering=0)
    try:
        return _Header(file, path).read()
    except BaseException:
        file.close()
        raise


class _Header:
    """Reads a header from front to back, and knows how many bytes are left."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.file, self.path, self.where = file, path, visible(path)
        self.size, self.at = file.seek(0, 2), 0
        self.ahead = io.BufferedReader(cast(io.RawIOBase, file), CHUNK)  # an unbuffered file is a raw one
        self.ahead.seek(0)

    def read(self) -> Gguf:
        refuse_input(self._take(4) != MAGIC, f"{self.where} is not a GGUF file.")
        if (version := self._number("I")) not in (2, 3):
            old = "big-endian, or of a version" if version > 1 << 15 else f"of version {version},"
            raise InputError(f"{self.where} is {old} that attn does not read.", "It reads versions 2 and 3.")
        tensors, keys = self._count("tensors", MOST_TENSORS, 8), self._count("keys", MOST_KEYS, 12)
        metadata = {self._text(LONGEST_NAME): self._value() for _ in range(keys)}
        table = [self._tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 8 <= alignment <= 1 << 20 or alignment % 8:
            raise self._damaged(f"general.alignment is {visible(str(alignment))[:40]}")
        begin = math.ceil(self.at / alignment) * alignment
        placed = {name: entry._replace(offset=begin + entry.offset) for name, entry, _, _ in table}
        if len(placed) < len(table):
            raise self._damaged("two of its tensors have one name")
        for name, entry, size, _ in table:
            if entry.offset % alignment or begin + entry.offset + size > self.size:
                raise self._damaged(f"{visible(name)[:80]} lies outside the file, which may not be complete")
        packings = {name: packing for name, _, _, packing in table if packing is not None}
        self.ahead.detach()
        return Gguf(self.file, self.path, metadata, placed, packings)

    def _tensor(self) -> tuple[str, Entry, int, Quantized | None]:
        """Return a tensor's name, where it lies behind the header, its bytes, and how it is quantized."""
        name, axes = self._text(LONGEST_NAME), self._number("I")
        shown = visible(name)[:80]
        if not 1 <= axes <= MOST_AXES:
            raise self._damaged(f"{shown} has {axes} axes")
        shape = tuple(self._number("Q") for _ in range(axes))[::-1]
        kind, offset = self._number("I"), self._number("Q")
        packing = QUANTIZED[kind][1] if kind in QUANTIZED else None
        if packing is None and kind not in PLAIN:
            said = f"is stored as {OTHERS.get(kind, f'type {kind}')}, which attn does not unpack."
            hint = f"It unpacks F32, F16, BF16, {', '.join(one for one, _ in QUANTIZED.values())}."
            raise InputError(f"{self.where}: {shown} {said}", hint)
        dtype, each = (PLAIN[kind], 1) if packing is None else (packing.dtype, packing.numbers)
        numbers = math.prod(shape)
        if not numbers or shape[-1] % each:
            raise self._damaged(f"{shown} has shape {shape}")
        return name, Entry(offset, dtype, shape), numbers // each * dtype.itemsize, packing

    def _value(self) -> Any:
        kind = self._number("I")
        if kind != ARRAY:
            return self._text(self.size) if kind == STRING else self._number(self._kind(kind))
        of = self._number("I")
        if of != STRING:
            count = self._count("values", self.size, each := struct.calcsize(self._kind(of)))
            return Packed(of, count, self._take(count * each))
        count, start = self._count("strings", MOST_STRINGS, 8), self.at
        for _ in range(count):
            self._take(self._number("Q"))
        end, self.at = self.at, start
        self.ahead.seek(start)
        return Packed(of, count, self._take(end - start))

    def _kind(self, kind: int) -> str:
        if kind not in NUMBERS:
            raise self._damaged(f"it has a value of type {kind}")
        return NUMBERS[kind]

    def _count(self, what: str, most: int, each: int) -> int:
        """Return a count of things that take `each` bytes at least, if there is room for so many."""
        count: int = self._number("Q")
        if count > most or count * each > self.size - self.at:
            raise self._damaged(f"it claims {count:,} {what}")
        return count

    def _text(self, most: int) -> str:
        if (length := self._number("Q")) > most:
            raise self._damaged(f"it has a name of {length:,} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._take(struct.calcsize(kind)))[0]

    def _take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise self._damaged("its header ends in the middle")
        taken = self.ahead.read(count)
        if len(taken) < count:
            raise self._damaged("it changed while it was read")
        self.at += count
        return taken

    def _damaged(self, why: str) -> InputError:
        return InputError(f"{self.where} is not a sound GGUF file: {why}.", "Get the file anew.")
