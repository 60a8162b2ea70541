"""An input cut into parts of lines without reading all of it here: where each part starts, in files of any size.

Blocks of the files are scanned, by whoever has time: their hashes are those of the fingerprint, and the places of some
of their lines tell where a part starts. A packed file has no such places: it is read here, and its lines are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.batch import manifest
from attn_cli.batch.inputs import LONGEST_MAGIC, Input
from attn_cli.batch.lines import LINES, UTF_8, Chunk, Line, check_text, chunks_of, split_lines
from attn_cli.errors import FileError, InputError
from attn_cli.io.files import packing

if TYPE_CHECKING:
    from attn_cli.io.array_types import Ints

BLOCK = 1 << 26  # bytes that are scanned together: a fingerprint can be made of many at once
STRIDE = 1024  # lines between two places that are known
LINE_END = ord("\n")
MOST_SENT = 1 << 28  # bytes of the lines of a part that are sent to a worker


class Scan(NamedTuple):
    """What was found in a block: its hash, its lines' ends, the places behind every STRIDEth of them.

    `start` and `end` are its first bytes and its last.
    """

    hash: str
    ends: int
    places: Ints
    start: bytes
    end: bytes


class Place(NamedTuple):
    """Where lines start: so many line ends behind a byte of a file. They go on to the file's end, or the part's."""

    file: Input
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
        found = 0
        for chunk in chunks_of(_groups(lines), 1 + self.number * manifest.LINES):
            found += len(chunk.lines)
            yield chunk
        if found < self.size:
            said = f"The input has {self.size - found:,} fewer lines than it had."
            raise FileError(said, "Start again when it is as it should be.")


def _groups(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while group := list(islice(lines, LINES)):
        yield group


def blocks_of(files: Sequence[Input]) -> list[tuple[Input, int, int]]:
    """Return the blocks of files, in order: the file, where the block starts in it, and how many bytes it has."""
    starts = [(file, start) for file in files for start in range(0, file.size, BLOCK)]
    return [(file, start, min(BLOCK, file.size - start)) for file, start in starts]


def scan_block(file: Input, start: int, size: int) -> Scan:
    """Return what a block of a file holds."""
    digest, ends, places = blake2b(digest_size=16), 0, []
    at, head, last = start, b"", b""
    with file.open() as stream:
        for piece in file.pieces(stream, start, size):
            digest.update(piece)
            found = np.flatnonzero(np.frombuffer(piece, np.uint8) == LINE_END)
            places.append(at + 1 + found[STRIDE - 1 - ends % STRIDE :: STRIDE])
            ends += len(found)
            at += len(piece)
            head, last = head or piece[:LONGEST_MAGIC], piece[-1:]
    return Scan(digest.hexdigest(), ends, np.concatenate(places), head, last)


class Plan:
    """Files whose blocks were scanned: their fingerprint, and their parts."""

    def __init__(self, files: Sequence[Input], scans: Sequence[Scan]) -> None:
        self.files = files
        left = iter(scans)
        self.scans = [list(islice(left, len(blocks_of([file])))) for file in files]
        self.is_packed = [bool(found) and bool(packing(found[0].start)) for found in self.scans]
        for file, found in zip(files, self.scans, strict=True):
            check_text(found[0].start if found else b"", file.name)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The bytes of the files, and their hash: a block's, or of several blocks or files the hash of their hashes."""
        about: dict[str, Any] = {"bytes": sum(file.size for file in self.files)}
        whole = [_joined([scan.hash for scan in found] or [_hash("")]) for found in self.scans]
        return about | ({"files": len(whole)} if len(whole) > 1 else {}) | {"blake2b": _joined(whole)}

    @property
    def lines(self) -> int | None:
        """How many lines there are; None where a packed file hides them."""
        return None if any(self.is_packed) else sum(self._count(n) for n in range(len(self.files)))

    def count(self) -> int:
        """Return how many lines there are, of packed files, too."""
        if self.lines is not None:
            return self.lines
        return sum(
            sum(count for count, _ in _unpacked(file, manifest.LINES)) if is_packed else self._count(n)
            for n, (file, is_packed) in enumerate(zip(self.files, self.is_packed, strict=True))
        )

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
        if self.is_packed[n]:
            yield from _unpacked(self.files[n], left)
            return
        at, count = 0, self._count(n)
        while at < count:
            taken = min(left, count - at)
            yield taken, self._place(n, at)
            at, left = at + taken, manifest.LINES

    def _count(self, n: int) -> int:
        """Return how many lines a plain file has."""
        found = self.scans[n]
        if not found or (self.files[n].size == len(UTF_8) and found[0].start == UTF_8):
            return 0
        return sum(scan.ends for scan in found) + (found[-1].end != b"\n")

    def _place(self, n: int, line: int) -> Place:
        """Return where a line of a plain file is, counted from 0: in the block that has the end of the one before."""
        if not line:
            return Place(self.files[n], 0, 0)
        before = [0, *accumulate(scan.ends for scan in self.scans[n])]
        block = int(np.searchsorted(before, line)) - 1
        known, skip = divmod(line - before[block], STRIDE)
        start = int(self.scans[n][block].places[known - 1]) if known else block * BLOCK
        return Place(self.files[n], start, skip)


def _unpacked(file: Input, left: int) -> Iterator[tuple[int, list[Line]]]:
    """Yield the lines of a packed file, up to `left` of them and then a part's."""
    with file.open() as stream:
        lines = chain.from_iterable(split_lines(file.unpacked(stream), file.name))
        while found := _limited(islice(lines, left), file.name):
            yield len(found), found
            left = manifest.LINES


def _limited(lines: Iterator[Line], name: str) -> list[Line]:
    """Return lines as a list; InputError where they are too long to be sent."""
    found: list[Line] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line or b"")
        if size > MOST_SENT:
            hint = "Unpack it: parts of plain files are read where they are computed."
            raise InputError(f"{name} has too long lines for a packed file.", hint)
    return found


def _joined(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else _hash("".join(hashes))


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
