"""Word vectors as text: a word and its numbers on each line; word2vec's header, GloVe's none, fastText's .vec.

A word may hold spaces: its numbers are counted from the right. Spaces or tabs, CRLF, a byte-order mark and
a missing last newline are all fine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.vectors.index import Entries, hash_words, word_hash
from attn_cli.vectors.original import PIECE, Original, exactly, pieces
from attn_cli.vectors.table import LONGEST_WORD
from attn_cli.visible import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.arrays import Array

LONGEST_LINE = PIECE
MOST_NUMBERS = 100_000
FIRST_ROWS = 100
FEW = 3  # so many words are sought one by one; for more, every line's word is hashed
BOM = b"\xef\xbb\xbf"
Row = tuple[int, list[bytes]]  # a line's number, and its fields


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
            data = rest + piece
            cut = data.rfind(b"\n") + 1
            if len(data) - cut > LONGEST_LINE:
                raise InputError(
                    f"{self.where(at + cut)}: a line of more than {LONGEST_LINE:,} bytes.",
                    "Is this a text of word vectors?",
                )
            skip = max(0, min(cut, self.start - at))
            if cut > skip:
                yield at + skip, data[skip:cut]
            rest, at = data[cut:], at + cut
        if rest and at + len(rest) > self.start:
            yield max(at, self.start), rest[max(0, self.start - at) :] + b"\n"

    def search(self, file: IO[bytes], wanted: set[bytes]) -> dict[bytes, Array]:
        """Return the vectors of those wanted words that the file has, each from its first line."""
        found: dict[bytes, Array] = {}
        left = {word for word in wanted if _may_stand(word)}
        lines = 0
        for offset, block in self.blocks(file):
            for at in _beginning_with(block, left):
                line = block[at : block.find(b"\n", at)]
                word = self.word(line, offset + at)
                if word in left:
                    found[word] = self.vector(line, offset + at)
                    left.discard(word)
            if not left:
                return found
            if self.claimed is not None:
                lines += _filled(block)
        if self.claimed is not None:
            self._check_count(lines)
        return found

    def scan(self, file: IO[bytes], report: Callable[[float], None]) -> Iterator[Entries]:
        """Yield every word's hash and offset; InputError where a line has too few or too many numbers."""
        rows = 0
        for offset, block in self.blocks(file):
            entries = self._entries(offset, block)
            rows += len(entries.hashes)
            yield entries
            report(file.tell() / max(1, self.original.size))
        self._check_count(rows)

    def _check_count(self, rows: int) -> None:
        if self.claimed is not None and rows != self.claimed:
            raise InputError(
                f"{self.original.name}, line 1: the header claims {self.claimed:,} words; there are {rows:,}.",
                "Is the file complete?",
            )
        if rows == 0:
            raise InputError(f"{self.original.name} holds no words.")

    def _entries(self, offset: int, block: bytes) -> Entries:
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == 10)
        starts = np.concatenate([[0], ends[:-1] + 1])
        marks = np.count_nonzero(data == 32) + np.count_nonzero(data == 9)
        each = self.dim + (block[int(ends[0]) - 1 : int(ends[0])] == b" ")
        if marks == each * len(starts):
            hashes, lengths = hash_words(data, starts, LONGEST_WORD)
            if lengths.min() > 0 and lengths.max() <= LONGEST_WORD:
                return Entries(hashes, starts + offset)
        return self._entries_one_by_one(offset, block, starts.tolist())

    def _entries_one_by_one(self, offset: int, block: bytes, starts: list[int]) -> Entries:
        hashes, offsets = [], []
        for at in starts:
            line = block[at : block.find(b"\n", at)]
            if line.strip():
                hashes.append(word_hash(self.word(line, offset + at)))
                offsets.append(offset + at)
        return Entries(np.array(hashes, np.uint64), np.array(offsets, np.int64))

    def same(self, file: IO[bytes], one: int, other: int) -> bool:
        """Tell whether the words of the lines at two offsets are the same."""
        return self.word(self._line(file, one), one) == self.word(self._line(file, other), other)

    def at(self, file: IO[bytes], offset: int, wanted: bytes) -> Array | None:
        """Return the vector of the line at `offset` if the wanted word stands there."""
        line = self._line(file, offset)
        first = line.split(None, 1)[:1]
        if not first or not wanted.startswith(first[0]) or self.word(line, offset) != wanted:
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
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
            lines = block.split(b"\n")[:-1]
            starts = np.concatenate([[0], ends[:-1] + 1]) + offset
            full = [i for i, line in enumerate(lines) if line.strip()]
            if len(full) < len(lines):
                lines, starts = [lines[i] for i in full], starts[full]
            if not lines:
                continue
            quick = _parsed(lines, self.dim, dtype)
            if quick is not None:
                yield starts, *quick
                continue
            words, vectors = [], []
            for at, line in zip(starts.tolist(), lines, strict=True):
                words.append(self.word(line, at))
                vectors.append(self.vector(line, at, finite=False))
            yield starts, words, np.array(vectors, dtype)

    def words(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order."""
        for offset, block in self.blocks(file):
            words, at = [], offset
            for line in block.split(b"\n")[:-1]:
                if line.strip():
                    words.append(self.word(line, at))
                at += len(line) + 1
            yield words

    def word(self, line: bytes, offset: int) -> bytes:
        """Return the word of a line, which stands at `offset`."""
        fields = line.split()
        if len(fields) == self.dim + 1 and len(fields[0]) <= LONGEST_WORD:
            return fields[0]
        return _word(line, fields, self.dim, lambda: self.where(offset), self.claim)

    def vector(self, line: bytes, offset: int, finite: bool = True) -> Array:
        """Return the numbers of a line, float64 (dim,)."""
        return np.array(_numbers(line.split()[-self.dim :], lambda: self.where(offset), finite))

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
            f"{name}, line 1: a line of more than {PIECE:,} bytes.", "Is this a text of vectors?"
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


def first_rows(lines: list[bytes]) -> list[Row]:
    """Return the first lines that are not blank, as fields, with their numbers."""
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows.append((number, line.split()))
            if len(rows) == FIRST_ROWS:
                break
    return rows


def measured(rows: list[Row], name: str, is_all: bool) -> tuple[int | None, int]:
    """Return (words claimed by a header, numbers in a vector) as the first rows have them."""
    if not rows:
        raise InputError(f"{name} is empty.", "Type a word and its numbers on each line.")
    header = _header(rows, name)
    if header:
        if header[1] > MOST_NUMBERS:
            raise InputError(f"{name}, line 1: {header[1]:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
        if len(rows) == 1 and is_all:
            raise InputError(f"{name}, line 1: the header claims {header[0]:,} words; there are none below.")
        return header
    (usual, count), *_ = Counter(len(fields) for _, fields in rows).most_common(1)
    if count == 1 or usual < 2:
        usual = len(rows[0][1])
    if usual < 2:
        raise InputError(f"{name}, line {rows[0][0]}: a word without numbers.", "Type them after the word.")
    if usual > MOST_NUMBERS + 1:
        raise InputError(f"{name}: {usual - 1:,} numbers a word; {MOST_NUMBERS:,} are the limit.")
    return None, usual - 1


def _header(rows: list[Row], name: str) -> tuple[int, int] | None:
    """Return (words, dim) if the first row is a header: two whole numbers, unlike the rows below."""
    first = rows[0][1]
    if len(first) != 2:
        return None
    below = len(rows[1][1]) if len(rows) > 1 else 0
    plain = all(field.isdigit() and len(field) < 16 for field in first)
    if below > 2 and not plain and all(_is_number(field, underscore=True) for field in first):
        raise bad_header(b" ".join(first), name)
    if not plain:
        return None
    words, dim = int(first[0]), int(first[1])
    if (below > 2 or not below) and (words < 1 or dim < 1):
        raise bad_header(b" ".join(first), name)
    is_header = not below or below > 2 or (dim == 1 and words == len(rows) - 1)
    return (words, dim) if is_header else None


def bad_header(line: bytes, name: str) -> InputError:
    """Return the error for a first line that is meant as a header and is none."""
    shown = visible(line[:40].decode("utf-8", "replace"))
    return InputError(
        f"{name}, line 1: the header {shown!r} is not two whole numbers above 0.",
        "Write how many words there are, and how many numbers each has, as 400000 50.",
    )


def _may_stand(word: bytes) -> bool:
    return 0 < len(word) <= LONGEST_WORD and b"\n" not in word and bool(word.strip())


def _beginning_with(block: bytes, wanted: set[bytes]) -> list[int]:
    """Return the starts of those lines that may hold a wanted word, ascending."""
    if len(wanted) > FEW:
        data = np.frombuffer(block, np.uint8)
        starts = np.concatenate([[0], np.flatnonzero(data == 10)[:-1] + 1])
        hashes, lengths = hash_words(data, starts, LONGEST_WORD)
        firsts = np.array([word_hash(_first_field(word)) for word in wanted], np.uint64)
        # A line that starts with a space, or with a word that does not end, is looked at as well.
        may = np.isin(hashes, firsts) | (lengths == 0) | (lengths > LONGEST_WORD)
        return [int(at) for at in starts[may]]
    found = set()
    for word in wanted:
        if block.startswith(word):
            found.add(0)
        needle, at = b"\n" + word, -1
        while (at := block.find(needle, at + 1)) >= 0:
            if block[at + len(needle)] in b" \t":
                found.add(at + 1)
    return sorted(found)


def _first_field(word: bytes) -> bytes:
    return word.replace(b"\t", b" ").partition(b" ")[0]


def _filled(block: bytes) -> int:
    """Count the lines that are not blank."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == 10)
    shortest = np.diff(ends, prepend=-1).min()
    if shortest > FEW:  # not even a word and a number fit into less
        return len(ends)
    return sum(1 for line in block.split(b"\n")[:-1] if line.strip())


def _parsed(
    lines: list[bytes], dim: int, dtype: type[np.floating]
) -> tuple[list[bytes], NDArray[np.floating]] | None:
    """Return words and matrix of lines in which all is usual; None if a closer look is needed."""
    words, numbers = [], []
    for line in lines:
        parts = line.split(None, 1)
        if len(parts) != 2 or len(parts[0]) > LONGEST_WORD:
            return None
        words.append(parts[0])
        numbers.append(parts[1].decode("latin-1"))
    try:
        matrix = np.loadtxt(numbers, dtype=dtype, comments=None, ndmin=2)
    except ValueError:
        return None
    return (words, matrix) if matrix.shape == (len(lines), dim) else None


def _word(line: bytes, fields: list[bytes], dim: int, where: Callable[[], str], claim: str) -> bytes:
    """Return the word of a line whose word may hold spaces: what is left of the last `dim` fields."""
    spare = len(fields) - dim
    if spare < 1 or (spare > 1 and any(_is_number(field) for field in fields[1:spare])):
        raise InputError(
            f"{where()}: {len(fields) - 1} numbers; {dim} were expected{claim}.",
            "Give every word equally many numbers.",
        )
    word = line.rsplit(None, dim)[0].strip()
    if len(word) > LONGEST_WORD:
        raise InputError(f"{where()}: a word of {len(word):,} bytes; {LONGEST_WORD:,} are the limit.")
    return word


def _is_number(field: bytes, underscore: bool = False) -> bool:
    try:
        float(field)
    except ValueError:
        return field[:2].lower() == b"0x" and underscore
    return underscore or b"_" not in field


def _numbers(fields: list[bytes], where: Callable[[], str], finite: bool = True) -> list[float]:
    for field in fields:
        if not _is_number(field):
            shown = visible(field[:40].decode("utf-8", "replace"))
            raise InputError(f"{where()}: {shown!r} is not a number.", "Write numbers as 0.25, with a point.")
    numbers = [float(field) for field in fields]
    if finite and not np.isfinite(numbers).all():
        raise InputError(f"{where()}: a number is not finite.", "Replace NaN and infinity.")
    return numbers


def read_rows(
    data: bytes, name: str, dtype: type[np.floating] = np.float64
) -> tuple[list[bytes], Array, int | None]:
    """Return words, matrix and the header's claim of a whole text; every row must be sound."""
    lines = data.removeprefix(BOM).split(b"\n")
    claimed, dim = measured(first_rows(lines), name, True)
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if claimed is not None:
        numbered = numbered[1:]
    claim = "" if claimed is None else " by line 1"
    quick = _parsed([line for _, line in numbered], dim, dtype)
    if quick is None or not np.isfinite(quick[1]).all():
        words, vectors = [], []
        for number, line in numbered:
            where = f"{name}, line {number}".__str__
            words.append(_word(line, line.split(), dim, where, claim))
            vectors.append(_numbers(line.split()[-dim:], where))
        quick = words, np.array(vectors, dtype)
    if claimed is not None and claimed != len(numbered):
        raise InputError(f"{name}, line 1: the header claims {claimed:,} words; there are {len(numbered):,}.")
    return *quick, claimed
