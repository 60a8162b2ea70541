"""The index of a file of vectors: the hashes of its words, sorted, and where each word stands.

It holds no word and no vector. A hash only proposes an offset: the reader compares the word in the file.

    hashes | offsets | offsets of words that came before | CRC of each page of these | of which file | tail, its CRC
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import IO
from zlib import crc32

import numpy as np

from attn_cli.errors import CreateError
from attn_cli.io.array_types import Ints, NDArray
from attn_cli.io.atomic import remove_unlocked, written
from attn_cli.io.escape import visible
from attn_cli.vectors.source_file import SourceFile

PAGE = 512  # numbers of eight bytes that one checksum is of
TAIL = struct.Struct("=QQQII")  # magic, words, repeats, bytes that tell which file, checksum
MAGIC = 0x6174746E69647832  # read back as another number on a machine of another byte order
MOST_COLLISIONS = 16  # different words of one hash that are compared

# FNV-1a (Fowler, Noll, Vo), 64 bits.
BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3

# The user's folders: the variable that names where they lie, where they lie without it, what they are called.
FOLDERS = {
    "cache": ("XDG_CACHE_HOME", "~/.cache", "The cache"),
    "data": ("XDG_DATA_HOME", "~/.local/share", "The folder of names"),
}


class StaleIndex(Exception):
    """The index is damaged, or is of another file, another time, another version."""


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


class WordIndex:
    """An index as `build` returned it, in an open file or in memory, of which only what is asked for is read.

    Raises StaleIndex where its bytes are not what they were.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        size = file.seek(0, os.SEEK_END)
        if size < TAIL.size:
            raise StaleIndex("no index")
        magic, self.entries, self.doubled, length, checksum = TAIL.unpack(self._read(size - TAIL.size, size))
        self._count = 2 * self.entries + self.doubled
        sums, about = 8 * self._count, 8 * self._count + 4 * -(-self._count // PAGE)
        if magic != MAGIC or size != about + length + TAIL.size:
            raise StaleIndex("of another version, machine or length")
        end = self._read(sums, size)
        if crc32(end[:-4]) != checksum:
            raise StaleIndex("a damaged end")
        self._sums = memoryview(end)[: about - sums].cast("I")
        self.about = end[about - sums : -TAIL.size]

    def __del__(self) -> None:
        self._file.close()

    @staticmethod
    def of(source: SourceFile, kind: str) -> WordIndex | None:
        """Return the kept index of a file as it is now; None if there is none."""
        path = index_path(source.path)
        try:
            if path is None or not os.path.isfile(path):
                return None
            index = WordIndex(open(path, "rb", buffering=0))  # noqa: SIM115 - closed with the index
        except (StaleIndex, OSError):
            return None
        return index if index.about == identity(source, kind) else None

    def offsets(self, words: Iterable[bytes]) -> dict[bytes, list[int]]:
        """Return, for those words that may stand in the file, their offsets, ascending; StaleIndex on damage."""
        named, hashes = list(words), range(self.entries)
        found = {}
        for word, wanted in zip(named, hash_words(named).tolist(), strict=True):
            low = high = bisect_left(hashes, wanted, key=self._number)
            while high < self.entries and self._number(high) == wanted:
                high += 1
            # With the numbers around them sound, none of the word's own can be elsewhere.
            self._checked(max(0, low - 1), min(self.entries, high + 1))
            if low < high:
                found[word] = self._checked(self.entries + low, self.entries + high).tolist()
        return found

    def repeats(self) -> Ints:
        """Return the offsets, ascending, of the rows whose word stood in an earlier row."""
        return np.array(self._checked(2 * self.entries, self._count), np.int64)

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return self._file.read(stop - start)

    def _number(self, at: int) -> int:
        return int.from_bytes(self._read(8 * at, 8 * at + 8), sys.byteorder)

    def _checked(self, start: int, stop: int) -> memoryview:
        """Return the numbers from `start` to `stop`, once the checksums of their pages are right."""
        pages = range(start // PAGE, -(-stop // PAGE))
        data = memoryview(self._read(8 * PAGE * pages.start, 8 * min(PAGE * pages.stop, self._count)))
        for at, page in enumerate(pages):
            if crc32(data[8 * PAGE * at : 8 * PAGE * (at + 1)]) != self._sums[page]:
                raise StaleIndex("a damaged page")
        return data.cast("Q")[start - PAGE * pages.start : stop - PAGE * pages.start]


def build(
    parts: Iterable[tuple[NDArray[np.uint64], Ints]], word_at: Callable[[int], bytes], about: bytes
) -> bytes:
    """Return the index of a file's words, given their hashes and offsets, some after the other, in the file's order.

    `word_at` returns the word at an offset, to find repeated ones.
    """
    collected = [(np.empty(0, np.uint64), np.empty(0, np.int64)), *parts]
    hashes, offsets = (np.concatenate(some) for some in zip(*collected, strict=True))
    del collected
    order = np.argsort(hashes)
    hashes, offsets, repeated = hashes[order], offsets[order], np.empty(0, np.int64)
    if (hashes[1:] == hashes[:-1]).any():
        offsets = offsets[np.lexsort((offsets, hashes))]
        kept = np.ones(len(hashes), bool)
        kept[_repeats(hashes, offsets, word_at)] = False
        hashes, offsets, repeated = hashes[kept], offsets[kept], np.sort(offsets[~kept])
    entries, numbers = len(hashes), np.concatenate([hashes.view(np.int64), offsets, repeated])
    del hashes, offsets, order  # of millions of words
    data = numbers.data.cast("B")
    sums = [crc32(data[at : at + 8 * PAGE]) for at in range(0, len(data), 8 * PAGE)]
    end = struct.pack(f"={len(sums)}I", *sums) + about
    end += TAIL.pack(MAGIC, entries, len(repeated), len(about), 0)[:-4]
    return b"".join([data, end, struct.pack("=I", crc32(end))])


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


def user_folder(kind: str) -> str | None:
    """Return attn's folder of vectors in the user's `cache` or `data`; None where the user has no home."""
    if not sys.platform.startswith("linux"):
        import platformdirs  # on Linux its answer is these few lines, without ten milliseconds of import

        return os.path.join(getattr(platformdirs, f"user_{kind}_dir")("attn", False), "vectors")
    variable, usual, _ = FOLDERS[kind]
    given = os.environ.get(variable, "")
    base = given if os.path.isabs(given) else os.path.expanduser(usual)
    return os.path.join(base, "attn", "vectors") if os.path.isabs(base) else None


def usable_folder(kind: str) -> str:
    """Return the user's folder of that kind, made if missing, without what killed runs left in it.

    Raises CreateError if it cannot be written to.
    """
    folder, (variable, _, what) = user_folder(kind), FOLDERS[kind]
    if folder is None:
        raise CreateError(f"{what} has no place: there is no home folder.", f"Set {variable} to a folder.")
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True, mode=0o700)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise CreateError(
            f"{what} {visible(folder)} cannot be written to.", f"Set {variable} to a folder that can."
        )
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for left in entries:
            if left.name.startswith(".") and left.name.endswith(".part"):
                remove_unlocked(left.path)
    return folder


def identity(source: SourceFile, kind: str) -> bytes:
    """Return what an index must say to be of this very file."""
    return os.fsencode(f"{source.size} {source.changed} {kind} {os.path.realpath(source.path)}")


def index_path(path: str) -> str | None:
    """Return where the index of a file is kept."""
    folder = user_folder("cache")
    (named,) = hash_words([os.fsencode(os.path.realpath(path))]).tolist()
    return None if folder is None else os.path.join(folder, f"{named:016x}.index")


def keep_index(source: SourceFile, encoded: bytes) -> None:
    """Keep an index; CreateError or WriteError where that is not possible."""
    usable_folder("cache")
    with written(str(index_path(source.path))) as stream:
        stream.write(encoded)


def forget_index(of: str) -> None:
    """Remove the index of a file."""
    path = index_path(of)
    with contextlib.suppress(OSError):
        if path:
            os.unlink(path)
