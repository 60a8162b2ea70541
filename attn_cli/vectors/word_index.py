"""The index of a file of vectors: sorted word hashes with byte offsets, in pages that are checked when read.

It holds no word and no vector. A hash only proposes an offset: the reader compares the word in the file.

    magic | header's length, its CRC | header (key=value) | first hash of each page | CRC of each page | pages | repeats

A page is PAGE hashes, sorted, then their offsets; `repeats` are the offsets of words that came before.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from attn_cli.errors import CreateError
from attn_cli.io.atomic import remove_unlocked, written
from attn_cli.io.escape import visible
from attn_cli.vectors.source_file import SourceFile

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


def _folder(kind: str, variable: str, usual: str) -> str | None:
    """Return attn's folder for this kind of file; None where the user has no home."""
    if not sys.platform.startswith("linux"):
        import platformdirs  # on Linux its answer is these few lines, without ten milliseconds of import

        return os.path.join(getattr(platformdirs, f"user_{kind}_dir")("attn", False), "vectors")
    given = os.environ.get(variable, "")
    base = given if os.path.isabs(given) else os.path.expanduser(usual)
    return os.path.join(base, "attn", "vectors") if os.path.isabs(base) else None


def cache_folder() -> str | None:
    """Return where indexes are kept."""
    return _folder("cache", "XDG_CACHE_HOME", "~/.cache")


def data_folder() -> str | None:
    """Return where names of imported files are kept, and what was unpacked for them."""
    return _folder("data", "XDG_DATA_HOME", "~/.local/share")


def check_usable() -> None:
    """Raise CreateError if no index can be kept; call it before a file is read through."""
    usable_folder(cache_folder(), "The cache", "XDG_CACHE_HOME")


def usable_folder(folder: str | None, what: str, variable: str) -> str:
    """Return `folder`, created if missing; CreateError if it cannot be written to."""
    if folder is None:
        raise CreateError(f"{what} has no place: there is no home folder.", f"Set {variable} to a folder.")
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True, mode=0o700)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise CreateError(
            f"{what} {visible(folder)} cannot be written to.", f"Set {variable} to a folder that can."
        )
    _remove_abandoned(folder)
    return folder


def identity(source: SourceFile, kind: str) -> dict[str, str]:
    """Return what the header of an index must say to be of this very file."""
    path = os.fsencode(os.path.realpath(source.path)).hex()
    return {"path": path, "size": str(source.size), "changed": str(source.changed), "format": kind}


def index_path(path: str) -> str | None:
    """Return where the index of a file is kept."""
    folder = cache_folder()
    named = word_hash(os.fsencode(os.path.realpath(path)))
    return None if folder is None else os.path.join(folder, f"{named:016x}.index")


def index_of(source: SourceFile, kind: str) -> Index | None:
    """Return the kept index of a file as it is now; None if there is none."""
    path = index_path(source.path)
    try:
        stored = _IndexFile(path) if path else None
        index = Index(stored.read, stored.size) if stored else None
    except (StaleIndex, OSError, ValueError, KeyError, TypeError):  # a damaged one fails in many ways
        return None
    wanted = identity(source, kind)
    return index if index and {key: index.about.get(key) for key in wanted} == wanted else None


def keep_index(source: SourceFile, encoded: bytes) -> None:
    """Keep an index; CreateError or WriteError where that is not possible."""
    check_usable()
    with written(str(index_path(source.path))) as stream:
        stream.write(encoded)


def forget_index(of: str) -> None:
    """Remove the index of a file."""
    path = index_path(of)
    with contextlib.suppress(OSError):
        if path:
            os.unlink(path)


def _remove_abandoned(folder: str) -> None:
    """Remove unfinished files of a killed run: those that no process holds locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for left in entries:
            if left.name.startswith(".") and left.name.endswith(".part"):
                remove_unlocked(left.path)


class _IndexFile:
    """An open file that lives as long as its index, even when another replaces it on disk."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        self.size = os.fstat(self.file).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes from `offset`."""
        os.lseek(self.file, offset, os.SEEK_SET)
        return os.read(self.file, count)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.file)
