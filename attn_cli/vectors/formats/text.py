"""Word vectors as text: a word and its numbers on each line; word2vec's header, GloVe's none, fastText's .vec.

A word may hold spaces: its numbers are counted from the right. Spaces or tabs, CRLF, a byte-order mark and
a missing last newline are all fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.compressed import pieces
from attn_cli.vectors.formats.text_lines import (
    BLANK,
    BOM,
    fields_of,
    first_rows,
    is_plain,
    measured,
    numbers_of,
    parsed_block,
    word_of,
)
from attn_cli.vectors.store.source_file import Original, exactly
from attn_cli.vectors.store.table import LONGEST_WORD, Report, nobody
from attn_cli.vectors.store.word_index import Entries, hash_words, word_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.array_types import Array, Ints

LONGEST_LINE = 1 << 22
FEW = 3  # so many words are sought one by one; for more, every line's word is hashed


class TextFormat(NamedTuple):
    """How a text of vectors is laid out: `start` is where the first row stands, `claimed` what a header says."""

    original: Original
    packed: str
    start: int
    dim: int
    claimed: int | None

    @property
    def kind(self) -> str:
        """What people call it."""
        return "text" if self.claimed is None else "word2vec text"

    @property
    def claim(self) -> str:
        """Who said how many numbers a word has."""
        return "" if self.claimed is None else " by line 1"

    def blocks(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, whole lines) until the end; every line ends in a newline."""
        rest, at = b"", 0
        for piece in pieces(file, self.packed, self.original.name):
            cut = piece.rfind(b"\n") + 1
            if cut > 0:
                block = b"".join([rest, memoryview(piece)[:cut]])
                yield from self._behind_start(at, block)
                rest, at = b"", at + len(block)
            rest += piece[cut:]
            if len(rest) > LONGEST_LINE:
                raise InputError(
                    f"{self.where(at)}: a line of more than {LONGEST_LINE:,} bytes.",
                    "Is this a text of word vectors?",
                )
        if rest:
            yield from self._behind_start(at, rest + b"\n")

    def _behind_start(self, at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield a block without what stands before the first row."""
        skip = max(0, self.start - at)
        if skip < len(block):
            yield at + skip, block[skip:] if skip else block

    def search(self, file: IO[bytes], wanted: set[bytes], report: Report = nobody) -> dict[bytes, Array]:
        """Return the vectors of those wanted words that the file has, each from its first line."""
        found: dict[bytes, Array] = {}
        left = {word for word in wanted if _may_stand(word)}
        lines = 0
        for offset, block in self.blocks(file):
            for at in _beginning_with(block, left):
                line = block[at : block.find(b"\n", at)]
                word = self.word(line, offset + at) if line.strip(BLANK) else b""
                if word in left:
                    found[word] = self.vector(line, offset + at)
                    left.discard(word)
            if not left:
                return found
            if self.claimed is not None:
                lines += _filled(block)
            report(file.tell() / max(1, self.original.size))
        if self.claimed is not None:
            self.check_count(lines)
        return found

    def scan(self, file: IO[bytes], report: Report) -> Iterator[Entries]:
        """Yield every word's hash and offset; InputError where a line has too few or too many numbers."""
        rows = 0
        for offset, block in self.blocks(file):
            entries = self._entries(offset, block)
            rows += len(entries.hashes)
            yield entries
            report(file.tell() / max(1, self.original.size))
        self.check_count(rows)

    def check_count(self, rows: int) -> None:
        """Refuse another number of rows than a header claims, and none."""
        if self.claimed is not None and rows != self.claimed:
            raise InputError(
                f"{self.original.name}, line 1: the header claims {self.claimed:,} words; there are {rows:,}.",
                "Is the header right, and the file complete?",
            )
        if rows == 0:
            raise InputError(f"{self.original.name} holds no words.")

    def _entries(self, offset: int, block: bytes) -> Entries:
        found = self._words_of(block)
        if found is not None:
            data, starts, lengths = found
            return Entries(hash_words(data, starts, lengths), starts + offset)
        return self._entries_one_by_one(offset, block)

    def _words_of(self, block: bytes) -> tuple[NDArray[np.uint8], Ints, Ints] | None:
        """Return a block's bytes, and where its words start and how long they are; None unless all is usual.

        Usual is that every line has the same marks: a space or a tab before each number, one at a time.
        """
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == 10)
        marks = _marks(data, block)
        each = self.dim + (block[int(ends[0]) - 1 : int(ends[0])] == b" ")
        if len(marks) != each * len(ends) or not is_plain(data, len(ends)):
            return None
        starts, rows = _starts(ends), marks.reshape(len(ends), each)
        lengths = rows[:, 0] - starts
        if not (np.diff(marks) > 1).all() or not (rows[:, -1] < ends).all():
            return None
        return (data, starts, lengths) if 0 < lengths.min() <= lengths.max() <= LONGEST_WORD else None

    def _entries_one_by_one(self, offset: int, block: bytes) -> Entries:
        hashes, offsets = [], []
        for at, line in _lines(offset, block):
            hashes.append(word_hash(self.word(line, at)))
            offsets.append(at)
        return Entries(np.array(hashes, np.uint64), np.array(offsets, np.int64))

    def word_at(self, file: IO[bytes], offset: int) -> bytes:
        """Return the word of the line at an offset."""
        return self.word(self._line(file, offset), offset)

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the line at `offset` if the wanted word stands there."""
        line = self._line(file, offset)
        if not line.lstrip(b" \t").startswith(_first_field(wanted)) or self.word(line, offset) != wanted:
            return None
        return self.vector(line, offset)

    def _line(self, file: IO[bytes], offset: int) -> bytes:
        line, size = b"", 256 + 16 * self.dim
        while b"\n" not in line and len(line) <= LONGEST_LINE and offset + len(line) < self.original.size:
            count = min(size, self.original.size - offset - len(line))
            line += exactly(file, offset + len(line), count, self.original.name)
        return line.partition(b"\n")[0]

    def rows(
        self, file: IO[bytes], dtype: type[np.floating]
    ) -> Iterator[tuple[NDArray[np.int64], list[bytes], Array]]:
        """Yield (offsets, words, matrix) of some rows after the other, in order."""
        for offset, block in self.blocks(file):
            quick = parsed_block(block, self.dim, dtype)
            if quick is None:
                yield from self._rows_one_by_one(offset, block, dtype)
            else:
                starts = _starts(np.flatnonzero(np.frombuffer(block, np.uint8) == 10))
                yield starts + offset, *quick

    def _rows_one_by_one(
        self, offset: int, block: bytes, dtype: type[np.floating]
    ) -> Iterator[tuple[NDArray[np.int64], list[bytes], Array]]:
        offsets, words, vectors = [], [], []
        for at, line in _lines(offset, block):
            offsets.append(at)
            words.append(self.word(line, at))
            vectors.append(self.vector(line, at))
        if words:
            with np.errstate(over="ignore"):
                matrix = np.array(vectors, dtype)
            yield np.array(offsets), words, matrix

    def words(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order."""
        for offset, block in self.blocks(file):
            found = self._words_of(block)
            if found is None:
                yield [self.word(line, at) for at, line in _lines(offset, block)]
            else:
                yield _cut(block, *found[1:])

    def word(self, line: bytes, offset: int) -> bytes:
        """Return the word of a line, which stands at `offset`."""
        fields = fields_of(line)
        if len(fields) == self.dim + 1 and len(fields[0]) <= LONGEST_WORD:
            return fields[0]
        return word_of(line, fields, self.dim, lambda: self.where(offset), self.claim)

    def vector(self, line: bytes, offset: int) -> Array:
        """Return the numbers of a line, float64 (dim,); NaN and infinity are numbers here."""
        return np.array(numbers_of(fields_of(line)[-self.dim :], lambda: self.where(offset), finite=False))

    def where(self, offset: int) -> str:
        """Return file and line of an offset, for an error."""
        lines, at = 1, 0
        with self.original.opened() as file:
            for piece in pieces(file, self.packed, self.original.name):
                lines += piece[: max(0, offset - at)].count(b"\n")
                at += len(piece)
                if at >= offset:
                    break
        return f"{self.original.name}, line {lines}"


def text_format(original: Original, packed: str, start: bytes) -> TextFormat:
    """Return how a text is laid out, from its first bytes (`start`, cut off anywhere)."""
    name = original.name
    lines = start.split(b"\n")
    is_all = len(start) == original.size and not packed
    if len(lines) > 1 and not is_all:
        lines = lines[:-1]  # it may be cut off
    if len(lines) == 1 and len(lines[0]) >= LONGEST_LINE:
        raise InputError(
            f"{name}, line 1: a line of more than {LONGEST_LINE:,} bytes.", "Is this a text of vectors?"
        )
    bom = len(BOM) if start.startswith(BOM) else 0
    lines[0] = lines[0][bom:]
    rows = first_rows(lines)
    claimed, dim = measured(rows, name, is_all)
    if claimed is None:
        return TextFormat(original, packed, bom, dim, None)
    room = original.size // (2 * dim + 1) if not packed else claimed
    if claimed > room + 1:
        raise InputError(
            f"{name}, line 1: the header claims {claimed:,} words; the file has room for {room:,} at most.",
            "Is the file complete?",
        )
    header = start.find(b"\n", start.find(rows[0][1][0]))
    return TextFormat(original, packed, header + 1 if header >= 0 else len(start), dim, claimed)


def _lines(offset: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that are not blank, each with the place where it starts."""
    for line in block.split(b"\n")[:-1]:
        if line.strip(BLANK):
            yield offset, line
        offset += len(line) + 1


def _cut(block: bytes, starts: Ints, lengths: Ints) -> list[bytes]:
    """Return the words that stand at these starts."""
    return [block[start:end] for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]


def _starts(ends: Ints) -> Ints:
    """Return where lines start, from where they end."""
    return np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1])


def _marks(data: NDArray[np.uint8], block: bytes) -> Ints:
    """Return where spaces and tabs stand."""
    is_mark = data == 32
    if b"\t" in block:
        is_mark |= data == 9
    return np.flatnonzero(is_mark)


def _may_stand(word: bytes) -> bool:
    return 0 < len(word) <= LONGEST_WORD and b"\n" not in word and bool(word.strip(b" \t"))


def _beginning_with(block: bytes, wanted: set[bytes]) -> list[int]:
    """Return the starts of those lines that may hold a wanted word, ascending."""
    data = np.frombuffer(block, np.uint8)
    starts = _starts(np.flatnonzero(data == 10))
    first = data[starts]
    indented = (first == 32) | (first == 9)
    if len(wanted) > FEW:
        ends = np.flatnonzero((data == 10) | (data == 32) | (data == 9))
        lengths = ends[np.searchsorted(ends, starts)] - starts
        hashes = hash_words(data, starts, np.minimum(lengths, LONGEST_WORD))
        may = np.isin(hashes, np.array([word_hash(_first_field(word)) for word in wanted], np.uint64))
        return [int(at) for at in starts[may | indented]]
    may = np.isin(first, np.array([word[0] for word in wanted], np.uint8)) | indented
    some = [int(at) for at in starts[may]]
    return [at for at in some if any(_stands(block, at, word) for word in wanted)]


def _stands(block: bytes, at: int, word: bytes) -> bool:
    """Tell whether the line at `at` begins with the word, or is indented."""
    end = at + len(word)
    return block[at] in b" \t" or (block.startswith(word, at) and block[end] in b" \t")


def _first_field(word: bytes) -> bytes:
    return word.replace(b"\t", b" ").partition(b" ")[0]


def _filled(block: bytes) -> int:
    """Count the lines that are not blank."""
    data = np.frombuffer(block, np.uint8)
    starts = _starts(np.flatnonzero(data == 10))
    if not np.isin(data[starts], np.frombuffer(BLANK + b"\n", np.uint8)).any():
        return len(starts)
    return sum(1 for _ in _lines(0, block))
