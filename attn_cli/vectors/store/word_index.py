"""The index of a file of vectors: sorted word hashes with byte offsets, in pages that are checked when read.

It holds no word and no vector. A hash only proposes an offset: the reader compares the word in the file.

    magic | header's length, its CRC | header (key=value) | first hash of each page | CRC of each page | pages | repeats

A page is PAGE hashes, sorted, then their offsets; `repeats` are the offsets of words that came before.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"attnidx1"
PAGE = 2048
LARGEST_HEADER = 1 << 16
MOST_COLLISIONS = 16  # different words of one hash that are compared
# FNV-1a (Fowler, Noll, Vo), 64 bits.
BASIS, PRIME, ALL = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class StaleIndex(Exception):
    """The index is damaged, or is of another file, another time, another version."""


def word_hash(word: bytes) -> int:
    """Return a word's hash, FNV-1a of its bytes."""
    h = BASIS
    for byte in word:
        h = (h ^ byte) * PRIME & ALL
    return h


def hash_words(words: list[bytes]) -> NDArray[np.uint64]:
    """Return the words' hashes."""
    data = np.frombuffer(b"".join(words), np.uint8)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    order = np.argsort(-lengths)
    at, left = (np.cumsum(lengths) - lengths)[order], len(order)
    shrinking = lengths[order]
    h = np.full(len(order), BASIS, np.uint64)
    for length in range(int(shrinking[0]) if left else 0):
        left = int(np.searchsorted(-shrinking[:left], -length))  # words longer than this
        h[:left] = (h[:left] ^ data[at[:left] + length]) * np.uint64(PRIME)
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


class Index:
    """An index in memory or in a file; `read` returns `count` bytes from `offset`."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        start = read(0, 16)
        if len(start) < 16 or start[:8] != MAGIC:
            raise StaleIndex("no index")
        length, checksum = struct.unpack("<II", start[8:])
        encoded = read(16, length) if length <= LARGEST_HEADER else b""
        if crc32(encoded) != checksum:
            raise StaleIndex("a damaged header")
        self.about = dict(pair.split("=", 1) for pair in encoded.decode().rstrip().split("\0"))
        self.entries, self.rows = int(self.about["entries"]), int(self.about["rows"])
        self.doubled, self.repeated = self.rows - self.entries, int(self.about["repeats"])
        if self.about["byteorder"] != sys.byteorder:
            raise StaleIndex("of another machine")
        self.pages = -(-self.entries // PAGE)
        self.directory = 16 + length
        self.start = self.directory + 12 * self.pages + 4 * (self.pages % 2)
        if size != self.start + 16 * self.entries + 8 * self.doubled:
            raise StaleIndex("of another length")
        self.read = read
        directory = read(self.directory, self.start - self.directory)
        if crc32(directory) != int(self.about["directory"]):
            raise StaleIndex("a damaged directory")
        self.firsts = memoryview(directory)[: 8 * self.pages].cast("Q")
        self.checksums = memoryview(directory)[8 * self.pages : 12 * self.pages].cast("I")

    def offsets(self, word: bytes) -> Iterator[int]:
        """Yield the offsets where the word may stand, ascending; StaleIndex if a page is damaged."""
        wanted = word_hash(word)
        page = max(0, bisect_left(self.firsts, wanted) - 1)
        while page < self.pages and self.firsts[page] <= wanted:
            hashes, offsets = self._page(page)
            low = bisect_left(hashes, wanted)
            yield from offsets[low : bisect_right(hashes, wanted, low)]
            page += 1

    def _page(self, page: int) -> tuple[memoryview, memoryview]:
        count = min(PAGE, self.entries - page * PAGE)
        data = self.read(self.start + 16 * PAGE * page, 16 * count)
        if crc32(data) != self.checksums[page]:
            raise StaleIndex("a damaged page")
        numbers = memoryview(data).cast("Q")
        return numbers[:count], numbers[count:]

    def repeats(self) -> NDArray[np.int64]:
        """Return the offsets, ascending, of the rows whose word stood in an earlier row."""
        data = self.read(self.start + 16 * self.entries, 8 * self.doubled)
        if crc32(data) != self.repeated:
            raise StaleIndex("damaged repeats")
        return np.frombuffer(data, np.int64)


def index_in_memory(encoded: bytes) -> Index:
    """Return an index that was just built."""
    return Index(lambda offset, count: encoded[offset : offset + count], len(encoded))


def build(
    parts: Iterable[tuple[NDArray[np.uint64], NDArray[np.intp]]],
    word_at: Callable[[int], bytes],
    about: dict[str, str],
) -> bytes:
    """Return the encoded index of a file's words, given the hashes and the offsets of some after the other.

    `word_at` returns the word at an offset, to find repeated ones.
    """
    collected = list(parts)
    hashes = np.concatenate([np.empty(0, np.uint64), *(some for some, _ in collected)])
    offsets = np.concatenate([np.empty(0, np.int64), *(some for _, some in collected)])
    del collected
    order = np.argsort(hashes)
    hashes, repeated = hashes[order], np.empty(0, np.int64)
    if (hashes[1:] == hashes[:-1]).any():
        order = order[np.lexsort((offsets[order], hashes))]
        offsets = offsets[order]
        kept = np.ones(len(hashes), bool)
        kept[_repeats(hashes, offsets, word_at)] = False
        repeated = np.sort(offsets[~kept])
        hashes, offsets = hashes[kept], offsets[kept]
    else:
        offsets = offsets[order]
    return _encoded(hashes, offsets, repeated, about)


def _repeats(
    hashes: NDArray[np.uint64], offsets: NDArray[np.int64], word_at: Callable[[int], bytes]
) -> list[int]:
    """Return the positions of words that also stand at an earlier offset."""
    found: list[int] = []
    words: list[bytes] = []  # the different words of one hash
    of = -1  # the position of the first
    for position in (np.flatnonzero(hashes[1:] == hashes[:-1]) + 1).tolist():
        if of < 0 or hashes[of] != hashes[position]:
            of = position - 1
            words = [word_at(int(offsets[of]))]
        word = word_at(int(offsets[position]))
        if word in words:
            found.append(position)
        elif len(words) < MOST_COLLISIONS:
            words.append(word)
    return found


def _encoded(
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    repeated: NDArray[np.int64],
    about: dict[str, str],
) -> bytes:
    pages = [
        hashes[start : start + PAGE].tobytes() + offsets[start : start + PAGE].tobytes()
        for start in range(0, len(hashes), PAGE)
    ]
    directory = hashes[::PAGE].tobytes() + struct.pack(f"={len(pages)}I", *map(crc32, pages))
    directory += b"\0" * (4 * (len(pages) % 2))
    repeats = repeated.tobytes()
    facts = {
        "entries": len(hashes), "rows": len(hashes) + len(repeated), "byteorder": sys.byteorder,
        "directory": crc32(directory), "repeats": crc32(repeats),
    }  # fmt: skip
    header = "\0".join(f"{key}={value}" for key, value in {**about, **facts}.items()).encode()
    header += b" " * (-len(header) % 8)
    return b"".join(
        [MAGIC, struct.pack("<II", len(header), crc32(header)), header, directory, *pages, repeats]
    )
