"""An input cut into parts of lines without reading all of it here: where each part starts, in files of any size.

Blocks are scanned by whoever has time: their hashes make the fingerprint, their ends of lines tell where parts start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple

from attn_cli.batch import LINES, UTF_8, Chunk, Line, check_text, chunks_of, manifest, split_lines, storage
from attn_cli.errors import FileError, refuse_input
from attn_cli.io.files import packing

BLOCK = 1 << 26  # bytes that are scanned together: a fingerprint can be made of many at once
PIECE = 1 << 20  # bytes between two places that are known; a block is a multiple
MOST_SENT = 1 << 28  # bytes of the lines of a part that are sent to a worker


class Scan(NamedTuple):
    """What was found in a block: its hash, how many lines end in each piece of it, its first bytes and its last."""

    hash: str
    ends: tuple[int, ...]
    start: bytes
    end: bytes


class Place(NamedTuple):
    """Where lines start: so many line ends behind a byte of a file. They go on to the file's end, or the part's."""

    file: storage.Input
    start: int
    skip: int

    def lines(self) -> Iterator[Line]:
        """Yield the lines from here on."""
        with self.file.open() as stream:
            found = split_lines(self.file.pieces(stream, self.start), self.file.name, not self.start)
            yield from islice(chain.from_iterable(found), self.skip, None)


class Cut(NamedTuple):
    """One part: its number, its lines, and where they are, or they themselves."""

    number: int
    size: int
    pieces: tuple[Place | list[Line], ...]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the lines in chunks; FileError where there are fewer."""
        pieces = (piece.lines() if isinstance(piece, Place) else piece for piece in self.pieces)
        lines = islice(chain.from_iterable(pieces), self.size)
        groups = iter(lambda: list(islice(lines, LINES)), [])
        left = self.size
        for chunk in chunks_of(groups, 1 + self.number * manifest.LINES):
            left -= len(chunk.lines)
            yield chunk
        if left:
            raise FileError(f"The input has {left:,} fewer lines than it had.", "Rerun when it is complete.")


def blocks_of(files: Sequence[storage.Input]) -> list[tuple[storage.Input, int, int]]:
    """Return the blocks of files, in order: the file, where the block starts in it, and how many bytes it has."""
    starts = [(file, start) for file in files for start in range(0, file.size, BLOCK)]
    return [(file, start, min(BLOCK, file.size - start)) for file, start in starts]


def scan_block(file: storage.Input, start: int, size: int) -> Scan:
    """Return what a block of a file holds."""
    digest, ends, head, last = blake2b(digest_size=16), list[int](), b"", b""
    with file.open() as stream:
        for piece in file.pieces(stream, start, size, PIECE):
            digest.update(piece)
            ends.append(piece.count(b"\n"))
            head, last = head or piece[: storage.LONGEST_MAGIC], piece[-1:]
    return Scan(digest.hexdigest(), tuple(ends), head, last)


class Plan:
    """Files whose blocks were scanned: their fingerprint, and their parts."""

    def __init__(self, files: Sequence[storage.Input], scans: Sequence[Scan]) -> None:
        self.files, left = files, iter(scans)
        self.scans = [list(islice(left, len(blocks_of([file])))) for file in files]
        starts = [found[0].start if found else b"" for found in self.scans]
        for file, start in zip(files, starts, strict=True):
            check_text(start, file.name)
        self.is_packed = [bool(packing(start)) for start in starts]
        # How many lines end before each piece of a file.
        self.ends = [[0, *accumulate(n for scan in found for n in scan.ends)] for found in self.scans]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The bytes of the files, and their hash: a block's, or of several blocks or files the hash of their hashes."""
        about: dict[str, Any] = {"bytes": sum(file.size for file in self.files)}
        whole = [_joined([scan.hash for scan in found]) for found in self.scans]
        return about | ({"files": len(whole)} if len(whole) > 1 else {}) | {"blake2b": _joined(whole)}

    @property
    def lines(self) -> int | None:
        """How many lines there are; None where a packed file hides them."""
        return None if any(self.is_packed) else self.count()

    def count(self) -> int:
        """Return how many lines there are; packed files are unpacked for it."""
        return sum(count for n in range(len(self.files)) for count, _ in self._pieces(n, manifest.LINES))

    def parts(self, done: Collection[int]) -> Iterator[Cut]:
        """Yield the parts that are not done, in order."""
        number, left = 0, manifest.LINES
        pieces: list[Place | list[Line]] = []
        for n in range(len(self.files)):
            for count, piece in self._pieces(n, left):
                pieces.append(piece)
                left -= count
                if not left:
                    if number not in done:
                        yield Cut(number, manifest.LINES, tuple(pieces))
                    number, left, pieces = number + 1, manifest.LINES, []
        if pieces and number not in done:
            yield Cut(number, manifest.LINES - left, tuple(pieces))

    def _pieces(self, n: int, left: int) -> Iterator[tuple[int, Place | list[Line]]]:
        """Yield the pieces of a file, and how many lines are in each; the first has up to `left`, others a part's."""
        file, scans, ends = self.files[n], self.scans[n], self.ends[n]
        if self.is_packed[n]:
            with file.open() as stream:
                lines = chain.from_iterable(split_lines(file.unpacked(stream), file.name))
                while found := _limited(islice(lines, left), file.name):
                    yield len(found), found
                    left = manifest.LINES
            return
        is_empty = not scans or scans[0].start == UTF_8  # nothing but a byte-order mark
        at, count = 0, 0 if is_empty else ends[-1] + (scans[-1].end != b"\n")
        while at < count:
            taken = min(left, count - at)
            piece = max(0, bisect_left(ends, at) - 1)  # the one that has the end of the line before
            yield taken, Place(file, piece * PIECE, at - ends[piece])
            at, left = at + taken, manifest.LINES


def _limited(lines: Iterator[Line], name: str) -> list[Line]:
    """Return lines as a list; InputError where they are too long to be sent."""
    found: list[Line] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line or b"")
        hint = "Unpack it: parts of plain files are read where they are computed."
        refuse_input(size > MOST_SENT, f"{name} has too long lines for a packed file.", hint)
    return found


def _joined(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else blake2b("".join(hashes).encode(), digest_size=16).hexdigest()
