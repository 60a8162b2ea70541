"""An input cut into parts of lines without reading all of it here: where each part starts, in files of any size.

Blocks of the files are scanned, by whoever has time: their hashes are those of the fingerprint, and the places of some
of their lines tell where a part starts. A packed file has no such places: it is read here, and its lines are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.batch import manifest as manifests
from attn_cli.batch.inputs import Block, Input, blocks_of, joined, pieces_of
from attn_cli.batch.lines import LINES, LONGEST_START, UTF_8, UTF_16, Feed, Line, LineReader, open_lines
from attn_cli.errors import InputError
from attn_cli.io.files import packing

if TYPE_CHECKING:
    from attn_cli.io.array_types import Ints

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


class Cut(NamedTuple):
    """One part: its number, its lines, and where they are, or they themselves."""

    number: int
    lines: int
    pieces: tuple[Place | list[Line], ...]


def scan_block(file: Input, block: Block) -> Scan:
    """Return what a block of a file holds."""
    digest, ends, places = blake2b(digest_size=16), 0, []
    at, start, last = block.start, b"", b""
    for piece in pieces_of(file, block):
        digest.update(piece)
        found = np.flatnonzero(np.frombuffer(piece, np.uint8) == LINE_END)
        places.append(at + 1 + found[STRIDE - 1 - ends % STRIDE :: STRIDE])
        ends += len(found)
        at += len(piece)
        start, last = start or piece[:LONGEST_START], piece[-1:]
    return Scan(digest.hexdigest(), ends, np.concatenate(places), start, last)


class Plan:
    """Files whose blocks were scanned: their fingerprint, and their parts."""

    def __init__(self, files: Sequence[Input], scans: Sequence[Sequence[Scan]]) -> None:
        self.files, self.scans = files, scans
        self.is_packed = [bool(found) and bool(packing(found[0].start)) for found in scans]
        for file, found in zip(files, scans, strict=True):
            if found and found[0].start[:2] in UTF_16:
                raise InputError(f"{file.name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The bytes of the files, and their hash."""
        return joined(self.files, [[scan.hash for scan in found] for found in self.scans])

    @property
    def lines(self) -> int | None:
        """How many lines there are; None where a packed file hides them."""
        return None if any(self.is_packed) else sum(self._count(n) for n in range(len(self.files)))

    def parts(self, done: Collection[int]) -> Iterator[Cut]:
        """Yield the parts that are not done, in order."""
        number, left = 0, manifests.LINES
        pieces: list[Place | list[Line]] = []
        for n in range(len(self.files)):
            for count, piece in self._pieces(n, left):
                pieces.append(piece)
                left -= count
                if not left:
                    if number not in done:
                        yield Cut(number, manifests.LINES, tuple(pieces))
                    number, left, pieces = number + 1, manifests.LINES, []
        if pieces and number not in done:
            yield Cut(number, manifests.LINES - left, tuple(pieces))

    def _pieces(self, n: int, left: int) -> Iterator[tuple[int, Place | list[Line]]]:
        """Yield the pieces of a file, and how many lines are in each; the first has up to `left`, others a part's."""
        if self.is_packed[n]:
            yield from _unpacked(self.files[n], left)
            return
        at, count = 0, self._count(n)
        while at < count:
            taken = min(left, count - at)
            yield taken, self._place(n, at)
            at, left = at + taken, manifests.LINES

    def _count(self, n: int) -> int:
        """Return how many lines a plain file has."""
        found = self.scans[n]
        if not found or (self.files[n].size == len(UTF_8) and found[0].start == UTF_8):
            return 0
        return sum(scan.ends for scan in found) + (found[-1].end != b"\n")

    def _place(self, n: int, line: int) -> Place:
        """Return where a line of a plain file is, counted from 0: in the block that has the end of the one before."""
        file = self.files[n]
        if not line:
            return Place(file, 0, 0)
        before = [0, *accumulate(scan.ends for scan in self.scans[n])]
        block = int(np.searchsorted(before, line)) - 1
        skip = line - before[block]
        known, skip = divmod(skip, STRIDE)
        start = int(self.scans[n][block].places[known - 1]) if known else blocks_of(file)[block].start
        return Place(file, start, skip)


def _unpacked(file: Input, left: int) -> Iterator[tuple[int, list[Line]]]:
    """Yield the lines of a packed file, up to `left` of them and then a part's."""
    with open_lines(file) as source:
        reader = LineReader(Feed([source], file.size))
        while True:
            lines: list[Line] = []
            size = 0
            while len(lines) < left and (found := reader.read(min(LINES, left - len(lines)))):
                lines += found
                size += sum(len(line or b"") for line in found)
                if size > MOST_SENT:
                    hint = "Unpack it: parts of plain files are read where they are computed."
                    raise InputError(f"{file.name} has too long lines for a packed file.", hint)
            if not lines:
                return
            yield len(lines), lines
            left = manifests.LINES
