"""Arrays of safetensors, .npy and .npz, sizes checked before memory is taken, and nothing in a file run."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any

import numpy as np

from attn_cli.errors import AttnError, InputError, refuse_input, visible
from attn_cli.io.files import regular
from attn_cli.io.types import Arrays, NamedTuple, NDArray

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
UNREAD = ("BF16", "F8_E4M3", "F8_E5M2", "C64")
BFLOAT16 = np.dtype([("upper half of a float32", "<u2")])  # NumPy has none of its own
MOST_AXES = 32

# Of an archive's size, and from what size on: a matrix may be all zeros, which packs more tightly than text.
MOST_GROWTH, GROWTH_COUNTS_FROM = 100, 1 << 26


class Entry(NamedTuple):
    """Where an array lies in its file."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_safetensors(path: str | Path, mapped: bool = False) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a safetensors file, bfloat16 as float32, and its metadata.

    `mapped` makes them views of a memory map: for files of our own alone, because a file that shrinks under a map kills
    the process.
    """
    name = visible(str(path))
    with regular(path).open("rb") as file:
        if not mapped:
            return safetensors_in(file, name)
        entries, metadata = safetensors_entries(file, name)
        whole = mmap(file.fileno(), 0, access=ACCESS_READ)
        arrays = {key: _array(whole, entry, entry.offset) for key, entry in entries.items()}
    return arrays, metadata


def safetensors_in(file: IO[bytes], name: str) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of an open safetensors file, bfloat16 as float32, and its metadata."""
    entries, metadata = safetensors_entries(file, name, bfloat16=True)
    arrays = {}
    for key, entry in entries.items():
        file.seek(entry.offset)
        if len(data := file.read(entry.size)) != entry.size:
            raise InputError(f"{name} changed while it was read.", "Try again when it is complete.")
        arrays[key] = _array(data, entry, 0)
    return arrays, metadata


def _array(data: bytes | mmap, entry: Entry, offset: int) -> NDArray[Any]:
    found: NDArray[Any] = np.frombuffer(data, entry.dtype, math.prod(entry.shape), offset)
    return (from_bfloat16(found) if entry.dtype == BFLOAT16 else found).reshape(entry.shape)


def from_bfloat16(halves: NDArray[Any]) -> NDArray[Any]:
    """Return the float32 numbers whose upper halves these are."""
    wide = halves.view("<u2").astype("<u4")
    wide <<= 16
    return wide.view("<f4")


def safetensors_entries(
    file: IO[bytes], name: str, most_header: int = 100_000_000, bfloat16: bool = False
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return where a safetensors file's arrays lie, and its metadata; BFLOAT16 is refused, unless `bfloat16`."""
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(8)
    refuse_input(len(start) < 8, f"{name} is too short for a safetensors file: {size} bytes.")
    (length,) = struct.unpack("<Q", start)
    claim = f"{name}, byte 0: the header claims {length:,} bytes"
    refuse_input(length > size - 8, f"{claim}; the file has {size:,}.")
    refuse_input(length > most_header, f"{claim}, above the limit of {most_header:,}.")
    import json  # a lookup in a text file does without

    try:
        header = json.loads(file.read(length), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InputError(f"{name}, byte 8: the header is not JSON, or names an array twice.") from None
    if not isinstance(header, dict):
        raise InputError(f"{name}, byte 8: the header is not a JSON object.")
    metadata = header.pop("__metadata__", {})
    dtypes = {code: np.dtype(written) for code, written in DTYPES.items()}
    if bfloat16:
        dtypes["BF16"] = BFLOAT16
    begin = 8 + length
    entries = {key: _entry(about, key, name, begin, size - begin, dtypes) for key, about in header.items()}
    taken = [(entry.offset, entry.offset + entry.size) for entry in entries.values()]
    edges = sorted([(begin, begin), *taken, (size, size)])
    if any(stop != start for (_, stop), (start, _) in pairwise(edges)):
        raise InputError(f"{name}: its arrays overlap, or leave bytes over.")
    return entries, metadata if isinstance(metadata, dict) else {}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object's pairs as a dict; a name that occurs twice is a ValueError."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def is_safetensors(start: bytes) -> bool:
    """Tell by its first bytes whether a file is a safetensors file: a header below 4 GB, which is JSON."""
    return start[4:9] == b"\0\0\0\0{"


def _entry(
    described: object, key: str, name: str, begin: int, available: int, dtypes: Mapping[str, np.dtype[Any]]
) -> Entry:
    """Return where an array lies. A header may have thousands: its name is spelled only where it is refused."""
    about = described if isinstance(described, dict) else {}
    parts: list[Any] = [about.get(part) for part in ("dtype", "shape", "data_offsets")]
    code, shape, offsets = parts
    is_sound = isinstance(code, str) and isinstance(shape, list) and len(shape) <= MOST_AXES
    if is_sound and code in UNREAD and code not in dtypes:
        said = f"{_where(key, name)} holds numbers of the type {code}."
        raise InputError(said, "Save it again as F32 (float32).")
    is_sound = is_sound and code in dtypes and isinstance(offsets, list) and len(offsets) == 2
    if not is_sound or not all(type(n) is int and 0 <= n < 1 << 48 for n in (*shape, *offsets)):
        raise InputError(f"{_where(key, name)} has a malformed header entry.")
    dtype, (start, stop) = dtypes[code], offsets
    if stop > available or stop - start != math.prod(shape) * dtype.itemsize:
        claim = f"{_where(key, name)} claims bytes {start:,} to {stop:,}"
        raise InputError(f"{claim}, which do not fit its shape or the file.")
    return Entry(begin + start, dtype, tuple(shape))


def _where(key: str, name: str) -> str:
    return f"{name}: array {visible(key)!r}"


def write_safetensors(stream: IO[bytes], arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata as a safetensors file; the same content gives the same bytes."""
    import json

    names = {np.dtype(code): name for name, code in DTYPES.items()}
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for key, array in arrays.items():
        end = offset + array.nbytes
        header[key] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    encoded += b" " * (-len(encoded) % 8)
    stream.write(struct.pack("<Q", len(encoded)) + encoded)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).tobytes())


def npy_in(file: IO[bytes], name: str, size: int | None = None) -> NDArray[Any]:
    """Return the array of an open .npy file, of `size` bytes if it has no end of its own; pickles are refused."""
    if size is None:
        size = file.seek(0, 2)
        file.seek(0)
    shape, is_fortran, dtype = npy_header(file, size, name)
    claimed = math.prod(shape) * dtype.itemsize
    data = file.read(claimed)
    if len(data) != claimed:
        raise _too_little(name, claimed, size)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def npz_in(file: IO[bytes], name: str, limit: int = 1 << 29) -> Arrays:
    """Return the arrays of an open .npz file whose unpacked size is at most `limit` bytes."""
    # Only this format needs these.
    import zipfile
    import zlib

    packed = file.seek(0, 2)
    try:
        with zipfile.ZipFile(file) as archive:
            total = sum(item.file_size for item in archive.infolist())
            said = f"{name} unpacks to {total:,} bytes, above the limit of {limit:,}."
            refuse_input(total > limit, said, "Save its arrays one by one, as .npy.")
            if total > GROWTH_COUNTS_FROM and total > MOST_GROWTH * packed:
                said = f"{name} unpacks from {packed:,} to {total:,} bytes, more than {MOST_GROWTH} times its size."
                raise InputError(said, "Save it again with numpy.savez, without compression, if it is sound.")
            arrays: Arrays = {}
            for item in archive.infolist():
                with archive.open(item) as member:
                    key = item.filename.removesuffix(".npy")
                    arrays[key] = npy_in(member, _where(key, name), item.file_size)
            return arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, AttnError):
            raise
        raise InputError(f"{name} is not a sound .npz file: {visible(str(error))[:200]}.") from None


def npy_header(stream: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return a .npy file's shape, whether columns come first, and type; InputError if unsound or above `size`."""
    import warnings

    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 2's headers, which are read
            shape, is_fortran, dtype = read[version](stream)
    except Exception:  # a header is parsed as Python's literals, and a bad one fails in a dozen ways
        raise InputError(f"{where} is not a sound .npy file.") from None
    if dtype.hasobject:
        raise InputError(f"{where} holds Python objects, which could run code.", "Save plain numbers.")
    said = f"{where} holds numbers of {dtype.itemsize} bytes."
    refuse_input(dtype.kind == "f" and dtype.itemsize > 8, said, "Save it again as float32 or float64.")
    sound = len(shape) <= MOST_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not sound or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise InputError(f"{where} is not a sound .npy file: its shape or its type makes no array.")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > size:
        raise _too_little(where, claimed, size)
    return shape, is_fortran, dtype


def _too_little(where: str, claimed: int, size: int) -> InputError:
    return InputError(f"{where} claims {claimed:,} bytes of numbers; the file has {size:,} bytes in all.")
