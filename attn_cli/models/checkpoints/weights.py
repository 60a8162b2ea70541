"""A checkpoint's tensors by name: safetensors files, read piece by piece as they are asked for.

A file is opened when the first of its tensors is wanted, and read at positions; it is not mapped, because a file
that shrinks under a map kills the process.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from threading import Lock
from typing import IO, Any, NamedTuple

import numpy as np

from attn_cli.core.threads import processors, run
from attn_cli.errors import FileError, InputError
from attn_cli.io.array_files import BFLOAT16, Entry, from_bfloat16, safetensors_entries
from attn_cli.io.array_types import Array, Ints, NDArray
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes, regular
from attn_cli.models.checkpoints.config import BITS, Affine, quantised
from attn_cli.models.checkpoints.gguf import Gguf
from attn_cli.models.checkpoints.quantized import Quantized, packed_words

Activation = Callable[[Array], Array]

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_HEADER, MOST_INDEX = 1 << 24, 1 << 25
PICKLES = (".bin", ".pt", ".pth", ".ckpt")

# Older checkpoints of BERT name a norm's gain and shift so.
ELDER = {"weight": "gamma", "bias": "beta"}


class Weights:
    """The tensors in a folder. `prefixes` are what may stand before a name, such as `bert.`.

    Names that end as one of `unread` count as absent.
    """

    # Of a GGUF file: what unpacks a tensor, and the order in which its rows are wanted
    packings: Mapping[str, Quantized] = {}
    orders: Mapping[str, Ints] = {}
    affine: Callable[[str], Affine | None] = staticmethod(lambda name: None)  # of MLX

    def __init__(self, folder: str, prefixes: tuple[str, ...] = (), unread: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.prefixes, self.unread = ("", *prefixes), unread
        self._open: dict[str, tuple[IO[bytes], dict[str, Entry], str]] = {}  # and its path, to be shown
        index = os.path.join(folder, INDEX)
        self._files: dict[str, str] | None = None  # of each tensor, where an index tells
        if os.path.exists(os.path.join(folder, WHOLE)):
            self._entries(WHOLE)
        elif os.path.exists(index):
            self._files = _read_index(index)
        else:
            raise _no_weights(folder)

    def close(self) -> None:
        """Close the files."""
        for file, _, _ in self._open.values():
            file.close()

    def find(self, *names: str) -> str | None:
        """Return the first of these names that is in the folder, as it stands there; None if none is."""
        known = self._entries(WHOLE) if self._files is None else self._files
        for name in names:
            if name.endswith(self.unread):
                continue
            stem, dot, last = name.rpartition(".")
            for spelled in (name, stem + dot + ELDER.get(last, last)):
                found = next((p + spelled for p in self.prefixes if p + spelled in known), None)
                if found is not None:
                    return found
        return None

    def read(self, name: str, *shape: int | None) -> Array:
        """Return a tensor in float32; raise InputError if it is absent or of another shape.

        None in the shape stands for any number.
        """
        return self.stored(name, *shape).read()

    def maybe(self, name: str, *shape: int | None) -> Array | None:
        """Return a tensor as `read` does; None if it is absent."""
        return None if self.find(name) is None else self.read(name, *shape)

    def rows(self, name: str, wanted: Ints, width: int | None, what: str) -> Array:
        """Return these rows of a matrix, (*wanted.shape, width), without reading the others.

        `what` names a row in the error that there is none of that number.
        """
        matrix = self.stored(name, None, width)
        count, d = matrix.entry.shape
        outside = wanted[(wanted < 0) | (wanted >= count)]
        if outside.size:
            raise InputError(
                f"There is no {what} {int(outside[0])}: {matrix.where} has {count:,} rows.",
                f"A {what} is 0 to {count - 1:,}.",
            )
        different, place = np.unique(wanted, return_inverse=True)
        found = np.array([matrix.rows(int(row), 1)[0] for row in different])
        return found[place.reshape(-1)].reshape(*wanted.shape, d)

    def stored(self, name: str, *shape: int | None) -> Stored:
        """Return where a tensor is stored; raise InputError as `read` does."""
        found = self.find(name)
        if found is None:
            if self.find(f"{name.removesuffix('.weight')}.qweight") is not None:
                raise quantised(visible(self.folder), "GPTQ or AWQ")
            raise InputError(
                f"{visible(self.folder)} has no tensor {visible(name)}.",
                "Its config.json is of another model, or the checkpoint is not complete.",
            )
        shard = WHOLE if self._files is None else self._files[found]
        self._entries(shard)
        file, entries, path = self._open[shard]
        if found not in entries:
            raise InputError(f"{path} has no tensor {visible(found)}, which {INDEX} says it has.")
        entry, where = entries[found], f"{path}: {visible(found)}"
        packing, order, scaled = self.packings.get(found), self.orders.get(found), None
        if entry.dtype == WORDS and (affine := self.affine(found)) is not None:
            entry, packing, scaled = self._quantized(found, entry, affine)
        if len(shape) != len(entry.shape) or any(
            n is not None and n != m for n, m in zip(shape, entry.shape, strict=False)
        ):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise InputError(f"{where} has shape {entry.shape}; by config.json it would be ({wanted}).")
        if not entry.size:
            raise InputError(f"{where} has shape {entry.shape}: it holds no numbers.")
        if entry.dtype.kind != "f" and entry.dtype != BFLOAT16 and packing is None:
            raise quantised(where, f"{entry.dtype} numbers")
        return Stored(file, entry, where, packing, order, scaled)

    def _quantized(self, name: str, entry: Entry, affine: Affine) -> tuple[Entry, Quantized, Scaled]:
        """Return a matrix of MLX as it is once unpacked, what unpacks its numbers, and what scales them."""
        packing, stem = PACKED_WORDS[affine.bits], name.removesuffix(".weight")
        *rows, words = entry.shape or (0,)
        groups, left = divmod(32 * words, affine.bits * affine.group)
        if left:
            raise InputError(
                f"{visible(self.folder)}: {visible(name)} has rows of {words} words, which are no groups of "
                f"{affine.group} numbers of {affine.bits} bits.",
                "Is its config.json of another model?",
            )
        scales, offsets = (self.stored(f"{stem}.{part}", *rows, groups) for part in ("scales", "biases"))
        entry = entry._replace(dtype=packing.dtype, shape=(*rows, groups * affine.group))
        return entry, packing, Scaled(scales, offsets, affine.group)

    def _entries(self, shard: str) -> dict[str, Entry]:
        if shard not in self._open:
            path = regular(os.path.join(self.folder, shard))
            file = path.open("rb", buffering=0)
            try:
                shown = visible(str(path))
                entries, _ = safetensors_entries(file, shown, MOST_HEADER, bfloat16=True)
            except BaseException:
                file.close()
                raise
            self._open[shard] = (file, entries, shown)
        return self._open[shard][1]


class GgufWeights(Weights):
    """The tensors of a GGUF file. Rows that stand there in another order than in the model are put right."""

    def __init__(self, gguf: Gguf, unread: tuple[str, ...], orders: Mapping[str, Ints]) -> None:
        self.folder, self.prefixes, self.unread = gguf.path, ("",), unread
        self.packings, self.orders = gguf.packings, orders
        self._files, self._open = None, {WHOLE: (gguf.file, dict(gguf.tensors), gguf.where)}


def _read_index(path: str) -> dict[str, str]:
    """Return the file of each tensor; a file is a plain name, in the index's own folder."""
    where = visible(path)
    try:
        index = json.loads(read_bytes(path, MOST_INDEX))
        files = index["weight_map"]
        sound = isinstance(files, dict) and all(isinstance(file, str) for file in files.values())
    except (ValueError, RecursionError, KeyError, TypeError):
        sound = False
    if not sound:
        raise InputError(f"{where} is not an index: it needs a weight_map, from names to files.")
    for file in dict.fromkeys(files.values()):
        if os.path.basename(file) != file or "\\" in file or not file.endswith(".safetensors"):
            raise InputError(
                f"{where} points to {visible(file)[:200]}.", "Its files must be .safetensors beside it."
            )
    return dict(files)


def _no_weights(folder: str) -> FileError:
    name = visible(folder)
    try:
        pickles = sorted(file for file in os.listdir(folder) if file.endswith(PICKLES))
    except OSError:
        pickles = []
    if not pickles:
        return FileError(f"{name} has no {WHOLE} and no {INDEX}.", "Give the folder of a checkpoint.")
    file = pickles[0] if re.fullmatch(r"[\w.-]+", pickles[0], re.ASCII) else "pytorch_model.bin"
    return FileError(
        f"{name} has its weights in {visible(pickles[0])}, a format that can run code, and attn does not read it.",
        'Convert it there: python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() for k, v in '
        f"torch.load('{file}', weights_only=True).items()}}, '{WHOLE}')\"",
    )


PART = 1 << 21  # numbers of a matrix that a thread holds at once
SMALL = 1 << 18  # numbers of a matrix, or of a product, that one thread multiplies or finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache
SUMS = 2  # parts of a matrix in-out, whose products are added: fixed, so that threads do not change the sum
_file_position = Lock()


WORDS = np.dtype("<u4")
PACKED_WORDS = {bits: packed_words(bits) for bits in BITS}


class Scaled(NamedTuple):
    """The scales and offsets of a quantized matrix: one of each for every group of a row's numbers."""

    scales: Stored
    offsets: Stored
    group: int

    def apply(self, q: Array, start: int) -> Array:
        """Return numbers from number `start` on, of whole groups."""
        first, count = start // self.group, len(q) // self.group
        scales, offsets = (one.part(first, count)[:, None] for one in (self.scales, self.offsets))
        found: Array = (scales * q.reshape(count, self.group) + offsets).reshape(-1)
        return found


class Stored(NamedTuple):
    """A tensor in an open file; `where` names it in errors."""

    file: IO[bytes]  # unbuffered
    entry: Entry
    where: str
    packing: Quantized | None = None  # of blocks that lie within a row
    order: Ints | None = None  # of its rows: where each lies
    scaled: Scaled | None = None

    def read(self) -> Array:
        """Return the whole tensor."""
        found = self.part(0, math.prod(self.entry.shape)).reshape(self.entry.shape)
        return found if self.order is None else found[self.order]

    def bytes_of(self, count: int) -> int:
        """Return how many bytes so many numbers take."""
        return count // (1 if self.packing is None else self.packing.numbers) * self.entry.dtype.itemsize

    def rows(self, start: int, count: int, room: NDArray[np.uint8] | None = None) -> Array:
        """Return rows of a matrix; they may lie in `room`, which has place for them."""
        width = self.entry.shape[1]
        if self.order is not None:
            return np.array(
                [self.part(row * width, width) for row in self.order[start : start + count].tolist()]
            )
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
        return _as_float(data, self.entry.dtype)


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
    step = _rows_at_once(rows, width)
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


def _rows_at_once(rows: int, width: int) -> int:
    """Return how many rows are a part: parts are alike, and of a matrix that is not small there are at least two."""
    parts = math.ceil(rows * width / PART)
    if rows * width > SMALL:
        parts += parts % 2
    return math.ceil(rows / min(parts, rows))


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
