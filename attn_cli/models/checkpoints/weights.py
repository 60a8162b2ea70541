"""A checkpoint's tensors by name: safetensors files, read piece by piece as they are asked for.

A file is opened when the first of its tensors is wanted, and read at positions; it is not mapped, because a file
that shrinks under a map kills the process.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

import numpy as np

from attn_cli.errors import FileError, InputError, refuse_input, visible
from attn_cli.io.array_files import BFLOAT16, Entry, safetensors_entries
from attn_cli.io.files import read_bytes, regular
from attn_cli.io.types import Array, Ints
from attn_cli.models.checkpoints.config import BITS, Affine, ReadAffine, quantised
from attn_cli.models.checkpoints.gguf import Gguf
from attn_cli.models.checkpoints.quantized import (
    MXFP4_BLOCKS,
    MXFP4_SCALES,
    Quantized,
    Scaled,
    Stored,
    packed_words,
)

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
WORDS = np.dtype("<u4")  # in which MLX packs
PACKED_WORDS = {bits: packed_words(bits) for bits in BITS}
HELD = 1 << 27  # numbers of matrices that are held in memory, because a run needs them again: half a gigabyte
MOST_HEADER, MOST_INDEX = 1 << 24, 1 << 25
PICKLES = (".bin", ".pt", ".pth", ".ckpt")

# How names end: usually, in older checkpoints of BERT, of GPT-OSS, and of its matrices in four bits
ENDINGS = {"weight": (".weight", ".gamma", "", "_blocks"), "bias": (".bias", ".beta", "_bias")}
Names = tuple[str, ...]
OF_STACK = re.compile(r"\[(\d+)\]")  # which matrix of a stack of them


class Weights:
    """The tensors in a folder, or in a GGUF file. `prefixes` are what may stand before a name, such as `bert.`.

    Names that end as one of `unread` count as absent. `orders` has where each row lies of some of a file's tensors.
    """

    room = HELD

    def __init__(
        self, folder: str, prefixes: Names = (), unread: Names = (), affine: ReadAffine | None = None,
        gguf: Gguf | None = None, orders: Mapping[str, Ints] = {},
    ) -> None:  # fmt: skip
        self.folder, self.affine, self.orders = folder, affine, orders
        self.prefixes, self.unread = ("", *prefixes), unread
        self.packings = {} if gguf is None else gguf.packings
        self._open: dict[str, tuple[IO[bytes], dict[str, Entry], str]] = {}  # and its path, to be shown
        self._used: dict[tuple[str, tuple[int | None, ...]], Stored] = {}
        self._files: dict[str, str] | None = None  # of each tensor, where an index tells
        if gguf is not None:
            self._open[WHOLE] = gguf.file, dict(gguf.tensors), gguf.where
        elif os.path.exists(os.path.join(folder, WHOLE)):
            self._entries(WHOLE)
        elif os.path.exists(index := os.path.join(folder, INDEX)):
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
            stem, dot, last = OF_STACK.sub("", name).rpartition(".")
            for ending in ENDINGS.get(last, (dot + last,)):
                found = next((p + stem + ending for p in self.prefixes if p + stem + ending in known), None)
                if found is not None:
                    return found
        return None

    def read(self, name: str, *shape: int | None) -> Array:
        """Return a tensor in float32; raise InputError if it is absent or of another shape (None is any number)."""
        return (self.matrix if len(shape) == 1 else self.stored)(name, *shape).read()

    def maybe(self, name: str, *shape: int | None) -> Array | None:
        """Return a tensor as `read` does; None if it is absent."""
        return self.read(name, *shape) if (name, shape) in self._used or self.find(name) is not None else None

    def matrix(self, name: str, *shape: int | None) -> Stored:
        """Return where a tensor is stored that each pass needs: when it is used again, it is read to stay in memory."""
        found = self._used.get((name, shape))
        if found is None:
            found = self.stored(name, *shape)
        elif found.held is None and self.room >= (size := math.prod(found.entry.shape)):
            held = found.read()
            held.setflags(write=False)
            found = found._replace(held=held)
            self.room -= size
        self._used[name, shape] = found
        return found

    def rows(self, name: str, wanted: Ints, width: int | None, what: str) -> Array:
        """Return these rows of a matrix, (*wanted.shape, width), and read no others; errors call a row `what`."""
        matrix = self.stored(name, None, width)
        count, d = matrix.entry.shape
        if (outside := wanted[(wanted < 0) | (wanted >= count)]).size:
            said = f"There is no {what} {int(outside[0])}: {matrix.where} has {count:,} rows."
            raise InputError(said, f"A {what} is 0 to {count - 1:,}.")
        different, place = np.unique(wanted, return_inverse=True)
        found = np.array([matrix.rows(int(row), 1)[0] for row in different])
        return found[place.reshape(-1)].reshape(*wanted.shape, d)

    def stored(self, name: str, *shape: int | None) -> Stored:
        """Return where a tensor, or `[number]` of a stack, is stored; raise InputError as `read` does."""
        found = self.find(name)
        if found is None:
            if self.find(f"{name.removesuffix('.weight')}.qweight") is not None:
                raise quantised(visible(self.folder), "GPTQ or AWQ")
            said = f"{visible(self.folder)} has no tensor {visible(name)}."
            raise InputError(said, "Its config.json is of another model, or the checkpoint is not complete.")
        shard = WHOLE if self._files is None else self._files[found]
        self._entries(shard)
        file, entries, path = self._open[shard]
        if found not in entries:
            raise InputError(f"{path} has no tensor {visible(found)}, which {INDEX} says it has.")
        entry, where = entries[found], f"{path}: {visible(found)}"
        packing, scaled, is_in_out = self.packings.get(found), None, False
        if entry.dtype == WORDS and self.affine is not None and (affine := self.affine(found)) is not None:
            entry, packing, scaled = self._quantized(found, entry, affine)
        number = OF_STACK.search(name)
        if entry.dtype == np.uint8 and number is not None:
            entry, packing, scaled = self._four_bits(found, entry, number[0])
        if number is not None:
            # transformers' own
            is_in_out = name.endswith(".weight") and not found.endswith((".weight", "_blocks"))
            shape = shape[::-1] if is_in_out else shape
            if len(entry.shape) < 2 or (at := int(number[1])) >= entry.shape[0]:
                raise InputError(f"{where} has shape {entry.shape}: there is no {number[1]} in it.")
            each = 1 if packing is None else packing.numbers
            size = math.prod(entry.shape[1:]) // each * entry.dtype.itemsize
            entry = entry._replace(offset=entry.offset + at * size, shape=entry.shape[1:])
        fits = (n in (None, m) for n, m in zip(shape, entry.shape, strict=False))
        if len(shape) != len(entry.shape) or not all(fits):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise InputError(f"{where} has shape {entry.shape}; by config.json it would be ({wanted}).")
        refuse_input(not entry.size, f"{where} has shape {entry.shape}: it holds no numbers.")
        if entry.dtype.kind != "f" and entry.dtype != BFLOAT16 and packing is None:
            raise quantised(where, f"{entry.dtype} numbers")
        return Stored(file, entry, where, packing, self.orders.get(found), scaled, is_in_out)

    def _quantized(self, name: str, entry: Entry, affine: Affine) -> tuple[Entry, Quantized, Scaled]:
        """Return a matrix of MLX as it is once unpacked, what unpacks its numbers, and what scales them."""
        packing, stem = PACKED_WORDS[affine.bits], name.removesuffix(".weight")
        *rows, words = entry.shape or (0,)
        groups, left = divmod(32 * words, affine.bits * affine.group)
        said = f"which are no groups of {affine.group} numbers of {affine.bits} bits."
        said = f"{visible(self.folder)}: {visible(name)} has rows of {words} words, {said}"
        refuse_input(left, said, "Is its config.json of another model?")
        scales, offsets = (self.stored(f"{stem}.{part}", *rows, groups) for part in ("scales", "biases"))
        entry = entry._replace(dtype=packing.dtype, shape=(*rows, groups * affine.group))
        return entry, packing, Scaled(scales, offsets, affine.group)

    def _four_bits(
        self, name: str, entry: Entry, number: str
    ) -> tuple[Entry, Quantized | None, Scaled | None]:
        """Return the blocks of a stack in MXFP4 as they are once unpacked, with their scales; or these alone."""
        stem, is_blocks, _ = name.rpartition("_blocks")
        if not is_blocks or len(entry.shape) != 4 or entry.shape[-1] != MXFP4_BLOCKS.dtype.itemsize:
            return entry, MXFP4_SCALES if name.endswith("_scales") else None, None
        stack, rows, groups, _ = entry.shape
        scales = self.stored(f"{stem}_scales{number}", rows, groups)
        whole = entry._replace(dtype=MXFP4_BLOCKS.dtype, shape=(stack, rows, groups * MXFP4_BLOCKS.numbers))
        return whole, MXFP4_BLOCKS, Scaled(scales, None, MXFP4_BLOCKS.numbers)

    def _entries(self, shard: str) -> dict[str, Entry]:
        if shard not in self._open:
            path = regular(os.path.join(self.folder, shard))
            file, shown = path.open("rb", buffering=0), visible(str(path))
            try:
                entries, _ = safetensors_entries(file, shown, MOST_HEADER, bfloat16=True)
            except BaseException:
                file.close()
                raise
            self._open[shard] = (file, entries, shown)
        return self._open[shard][1]


def _read_index(path: str) -> dict[str, str]:
    """Return the file of each tensor; a file is a plain name, in the index's own folder."""
    where = visible(path)
    try:
        index = json.loads(read_bytes(path, MOST_INDEX))
        files = index["weight_map"]
        sound = isinstance(files, dict) and all(isinstance(file, str) for file in files.values())
    except (ValueError, RecursionError, KeyError, TypeError):
        sound = False
    refuse_input(not sound, f"{where} is not an index: it needs a weight_map, from names to files.")
    for file in dict.fromkeys(files.values()):
        if os.path.basename(file) != file or "\\" in file or not file.endswith(".safetensors"):
            said = f"{where} points to {visible(file)[:200]}."
            raise InputError(said, "Its files must be .safetensors beside it.")
    return dict(files)


def _no_weights(folder: str) -> FileError:
    name, pickles = visible(folder), list[str]()
    with suppress(OSError):
        pickles = sorted(file for file in os.listdir(folder) if file.endswith(PICKLES))
    if not pickles:
        return FileError(f"{name} has no {WHOLE} and no {INDEX}.", "Give the folder of a checkpoint.")
    file = pickles[0] if re.fullmatch(r"[\w.-]+", pickles[0], re.ASCII) else "pytorch_model.bin"
    return FileError(
        f"{name} has its weights in {visible(pickles[0])}, a format that can run code, and attn does not read it.",
        'Convert it there: python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() for k, v in '
        f"torch.load('{file}', weights_only=True).items()}}, '{WHOLE}')\"",
    )
