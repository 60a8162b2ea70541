"""The index of a file of vectors: the hashes of its words, sorted, and where each word stands.

It holds no word and no vector. A hash only proposes an offset: the reader compares the word in the file. It is kept as
a safetensors file, of which a search reads the blocks where its words' hashes belong. Each block has a checksum, so
damage is not taken for a word that is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
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

MOST_COLLISIONS = 16  # different words of one hash that are compared
BLOCK = 512  # hashes that have a checksum of their own

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
    """The hashes (words,) of the words, ascending, the offsets (words,) of these, and those of doubled words.

    Of each block, its first hash and a checksum (blocks,).
    """

    hashes: NDArray[np.uint64]
    offsets: Ints
    repeats: Ints  # ascending: of the rows whose word stands in an earlier row
    firsts: NDArray[np.uint64]
    checks: Ints

    @staticmethod
    def made(hashes: NDArray[np.uint64], offsets: Ints, repeats: Ints) -> WordIndex:
        """Return an index of these, with its checksums."""
        firsts = hashes[::BLOCK].copy()
        bare = WordIndex(hashes, offsets, repeats, firsts, np.zeros(len(firsts), np.int64))
        return bare._replace(checks=np.array([bare._check(block) for block in range(len(firsts))], np.int64))

    @staticmethod
    def of(source: SourceFile, kind: str) -> WordIndex | None:
        """Return the kept index of a file as it is now; None if there is none, or its small arrays are damaged."""
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
        """Return what the kept index says of its file and of its own arrays, the blocks apart."""
        shapes = repr([(array.dtype.str, array.shape) for array in self]).encode()
        check = crc32(self.checks.data, crc32(self.firsts.data, crc32(self.repeats.data, crc32(shapes))))
        return {"of": identity(source, kind), "check": str(check)}

    def _check(self, block: int) -> int:
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        return crc32(self.offsets[part].data, crc32(self.hashes[part].data))

    def find(self, words: Iterable[bytes]) -> dict[bytes, list[int]]:
        """Return, for those words that may stand in the file, their offsets, ascending; none where it is damaged."""
        named = list(words)
        wanted = hash_words(named)
        lows = np.maximum(np.searchsorted(self.firsts, wanted), 1) - 1  # a hash may go on in the next block
        highs = np.searchsorted(self.firsts, wanted, "right")
        found = {}
        for word, h, low, high in zip(named, wanted, lows.tolist(), highs.tolist(), strict=True):
            part = slice(low * BLOCK, high * BLOCK)
            is_sound = all(self._check(block) == self.checks[block] for block in range(low, high))
            places = self.offsets[part][self.hashes[part] == h].tolist() if is_sound else []
            if places or not is_sound:
                found[word] = places
        return found


def build(parts: Iterable[tuple[NDArray[np.uint64], Ints]], word_at: Callable[[int], bytes]) -> WordIndex:
    """Return the index of a file's words, given their hashes and offsets, some after the other, in the file's order.

    `word_at` returns the word at an offset, to find repeated ones.
    """
    collected = [(np.empty(0, np.uint64), np.empty(0, np.int64)), *parts]
    hashes, offsets = (np.concatenate(some) for some in zip(*collected, strict=True))
    del collected  # of millions of words
    order = np.argsort(hashes)
    hashes, offsets, repeated = hashes[order], offsets[order], np.empty(0, np.int64)
    if (hashes[1:] == hashes[:-1]).any():
        offsets = offsets[np.lexsort((offsets, hashes))]
        kept = np.ones(len(hashes), bool)
        kept[_repeats(hashes, offsets, word_at)] = False
        hashes, offsets, repeated = hashes[kept], offsets[kept], np.sort(offsets[~kept])
    return WordIndex.made(hashes, offsets, repeated)


def _repeats(hashes: NDArray[np.uint64], offsets: Ints, word_at: Callable[[int], bytes]) -> list[int]:
    """Return the positions of words that also stand at an earlier offset."""
    found: list[int] = []
    words: list[bytes] = []  # the different words of one hash
    same, of = np.flatnonzero(hashes[1:] == hashes[:-1]), None
    for position in np.union1d(same, same + 1).tolist():
        if hashes[position] != of:
            of, words = hashes[position], []
        word = word_at(int(offsets[position]))
        if word in words:
            found.append(position)
        elif len(words) < MOST_COLLISIONS:
            words.append(word)
    return found


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


def identity(source: SourceFile, kind: str) -> str:
    """Return what an index must say to be of this very file."""
    return f"{source.size} {source.changed} {kind} {os.path.realpath(source.path)}"


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
