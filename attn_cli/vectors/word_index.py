"""The index of a file of vectors: the hashes of its words, sorted, and where each word stands.

It holds no word and no vector. A hash only proposes an offset: the reader compares the word in the file. It is kept as
a safetensors file with a checksum, so damage is not taken for a word that is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple
from zlib import crc32

import numpy as np

from attn_cli.errors import AttnError, CreateError
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.io.array_types import Ints, NDArray
from attn_cli.io.atomic import remove_unlocked, written
from attn_cli.io.escape import visible
from attn_cli.io.files import USER_FOLDERS, user_folder
from attn_cli.vectors.source_file import SourceFile

# FNV-1a (Fowler, Noll, Vo), 64 bits.
BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3


def hash_words(words: list[bytes]) -> NDArray[np.uint64]:
    """Return the words' hashes, FNV-1a of their bytes."""
    data = np.frombuffer(b"".join(words), np.uint8)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    order = np.argsort(-lengths)  # the longest first
    at, shrinking = (np.cumsum(lengths) - lengths)[order], -lengths[order]
    h = np.full(len(words), BASIS, np.uint64)
    for length in range(int(lengths.max(initial=0))):
        left = int(np.searchsorted(shrinking, -length))  # words longer than this
        h[:left] = (h[:left] ^ data[at[:left] + length]) * np.uint64(PRIME)
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


class WordIndex(NamedTuple):
    """The hashes (words,) of the words, ascending, the offset of each one's first row, and those of all other rows."""

    hashes: NDArray[np.uint64]
    offsets: Ints
    repeats: Ints  # ascending

    @staticmethod
    def of(source: SourceFile, kind: str) -> WordIndex | None:
        """Return the kept index of a file as it is now; None if there is none, or it is damaged."""
        path = index_path(source.path)
        if path is None or not os.path.isfile(path):
            return None
        try:
            arrays, about = read_safetensors(path, mapped=True)
            index = WordIndex(*(arrays[name] for name in WordIndex._fields))
        except (AttnError, OSError, ValueError, KeyError):
            return None
        return index if about == index.about(source, kind) else None

    def about(self, source: SourceFile, kind: str) -> dict[str, str]:
        """Return what the kept index says of its very file and of its own arrays."""
        check = crc32(repr([(array.dtype.str, array.shape) for array in self]).encode())
        for array in self:
            check = crc32(array.data, check)
        of = f"{source.size} {source.changed} {kind} {os.path.realpath(source.path)}"
        return {"of": of, "check": str(check)}

    def find(self, words: Iterable[bytes]) -> dict[bytes, int]:
        """Return, for those words that may stand in the file, the offset of their first row."""
        named = list(words)
        wanted = hash_words(named)
        places = np.searchsorted(self.hashes[:-1], wanted)
        is_there = self.hashes[places] == wanted
        return dict(zip(compress(named, is_there), self.offsets[places[is_there]].tolist(), strict=True))


def build(parts: Iterable[tuple[NDArray[np.uint64], Ints]]) -> WordIndex:
    """Return the index of a file's words, given their hashes and offsets, some after the other, in the file's order.

    Words of one hash are taken for one: of three million words, two have one hash with a chance of 2 in ten million.
    """
    hashes, offsets = (np.concatenate(some) for some in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes, offsets = hashes[order], offsets[order]
    is_first = np.append(True, hashes[1:] != hashes[:-1])
    return WordIndex(hashes[is_first], offsets[is_first], np.sort(offsets[~is_first]))


def usable_folder(kind: str) -> str:
    """Return the folder of vectors in the user's `cache` or `data`, made if missing, without what killed runs left.

    Raises CreateError if it cannot be written to.
    """
    folder, variable = vectors_folder(kind), USER_FOLDERS[kind][0]
    what = "The cache" if kind == "cache" else "The folder of names"
    if folder is None:
        raise CreateError(f"{what} has no place: there is no home folder.", f"Set {variable} to a folder.")
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True, mode=0o700)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        said = f"{what} {visible(folder)} cannot be written to."
        raise CreateError(said, f"Set {variable} to a folder that can.")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for left in entries:
            if left.name.startswith(".") and left.name.endswith(".part"):
                remove_unlocked(left.path)
    return folder


def vectors_folder(kind: str) -> str | None:
    """Return attn's folder of vectors in the user's `cache` or `data`; None where the user has no home."""
    folder = user_folder(kind)
    return folder and os.path.join(folder, "vectors")


def index_path(path: str) -> str | None:
    """Return where the index of a file is kept."""
    folder = vectors_folder("cache")
    (named,) = hash_words([os.fsencode(os.path.realpath(path))]).tolist()
    return None if folder is None else os.path.join(folder, f"{named:016x}.index")


def keep_index(source: SourceFile, kind: str, index: WordIndex) -> None:
    """Keep an index; CreateError or WriteError where that is not possible."""
    usable_folder("cache")
    with written(str(index_path(source.path))) as stream:
        write_safetensors(stream, index._asdict(), index.about(source, kind))


def forget_index(of: str) -> None:
    """Remove the index of a file."""
    path = index_path(of)
    with contextlib.suppress(OSError):
        if path:
            os.unlink(path)
