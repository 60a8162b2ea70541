"""Arrays from files, without ever running what a file holds: safetensors, .npy and .npz.

Every size is checked against the file's own before memory is taken. The safetensors format is that of
its README: 8 bytes of header length, a JSON header, then the arrays.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import AttnError, InputError
from attn_cli.files import regular
from attn_cli.visible import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.arrays import Arrays

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_HEADER_LIMIT = 100_000_000
MOST_AXES = 32


def read_safetensors(path: str | Path) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a safetensors file, as views of its memory map, and its metadata."""
    name = visible(str(path))
    with regular(path).open("rb") as file:
        size = file.seek(0, 2)
        if size < 8:
            raise InputError(f"{name} is too short for a safetensors file: {size} bytes.")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack_from("<Q", mapped)
    if length > min(size - 8, _HEADER_LIMIT):
        raise InputError(f"{name}, byte 0: the header claims {length:,} bytes; the file has {size:,}.")
    try:
        header = json.loads(mapped[8 : 8 + length], object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InputError(f"{name}, byte 8: the header is not JSON, or names an array twice.") from None
    if not isinstance(header, dict):
        raise InputError(f"{name}, byte 8: the header is not a JSON object.")
    metadata = header.pop("__metadata__", {})
    arrays: Arrays = {}
    taken: list[tuple[int, int]] = []
    for key, entry in header.items():
        start, stop, dtype, shape = _entry(entry, f"{name}: array {visible(key)!r}", size - 8 - length)
        taken.append((start, stop))
        flat = np.frombuffer(mapped, dtype, math.prod(shape), 8 + length + start)
        arrays[key] = flat.reshape(shape)
    edges = sorted([(0, 0), *taken, (size - 8 - length, size - 8 - length)])
    if any(stop != start for (_, stop), (start, _) in pairwise(edges)):
        raise InputError(f"{name}: its arrays overlap, or leave bytes over.")
    return arrays, metadata if isinstance(metadata, dict) else {}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a dict of a JSON object's pairs; a name that comes twice is a ValueError."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def is_safetensors(start: bytes) -> bool:
    """Tell by its first bytes whether a file is a safetensors file: a header below 4 GB, which is JSON."""
    return start[4:9] == b"\0\0\0\0{"


def _entry(entry: object, where: str, available: int) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    malformed = InputError(f"{where} has a malformed header entry.")
    if not isinstance(entry, dict):
        raise malformed
    code, shape, offsets = (entry.get(name) for name in ("dtype", "shape", "data_offsets"))
    if (
        not isinstance(code, str)
        or code not in DTYPES
        or not isinstance(shape, list)
        or not isinstance(offsets, list)
        or len(offsets) != 2
    ):
        raise malformed
    if len(shape) > MOST_AXES or not all(type(n) is int and 0 <= n < 1 << 48 for n in (*shape, *offsets)):
        raise malformed
    dtype = np.dtype(DTYPES[code])
    start, stop = offsets
    if not start <= stop <= available or stop - start != math.prod(shape) * dtype.itemsize:
        raise InputError(
            f"{where} claims bytes {start:,} to {stop:,}, which do not fit its shape or the file."
        )
    return start, stop, dtype, tuple(shape)


def write_safetensors(stream: IO[bytes], arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata as a safetensors file; the same content gives the same bytes."""
    names = {np.dtype(code): name for name, code in DTYPES.items()}
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for key, array in arrays.items():
        header[key] = {
            "dtype": names[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    encoded += b" " * (-len(encoded) % 8)
    stream.write(struct.pack("<Q", len(encoded)) + encoded)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).tobytes())


def read_npy(path: str | Path) -> NDArray[Any]:
    """Return the array of a .npy file; object arrays (pickles) are refused."""
    with regular(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        return _npy(file, size, visible(str(path)))


def read_npz(path: str | Path, limit: int = 1 << 29) -> Arrays:
    """Return the arrays of a .npz file whose unpacked size is at most `limit` bytes."""
    # Only this format needs these.
    import zipfile
    import zlib

    unsound = (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
        ValueError,
    )
    name = visible(str(path))
    try:
        with zipfile.ZipFile(regular(path)) as archive:
            total = sum(item.file_size for item in archive.infolist())
            if total > limit:
                raise InputError(f"{name} unpacks to {total:,} bytes, above the limit of {limit:,}.")
            arrays: Arrays = {}
            for item in archive.infolist():
                with archive.open(item) as member:
                    key = item.filename.removesuffix(".npy")
                    arrays[key] = _npy(member, item.file_size, f"{name}: array {visible(key)!r}")
            return arrays
    except unsound as error:
        if isinstance(error, AttnError):
            raise
        raise InputError(f"{name} is not a sound .npz file: {visible(str(error))[:200]}.") from None


def _npy(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read[version](stream)
    except Exception:  # a header is parsed as Python's literals, and a bad one fails in a dozen ways
        raise InputError(f"{where} is not a sound .npy file.") from None
    if dtype.hasobject:
        raise InputError(f"{where} holds Python objects, which could run code.", "Save plain numbers.")
    sound = len(shape) <= MOST_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not sound or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise InputError(f"{where} is not a sound .npy file: its shape or its type makes no array.")
    claimed = math.prod(shape) * dtype.itemsize
    data = stream.read(claimed) if claimed <= size else b""
    if len(data) != claimed:
        raise InputError(f"{where} claims {claimed:,} bytes of numbers; the file has {size:,} bytes in all.")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
