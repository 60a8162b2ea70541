"""Word vectors: tables, lookup, neighbours, training.

Here is a table: its words as one block of text, its rows as one array, in memory or in the user's file. That file is
refused if it changes in use, and never mapped, for one that shrinks then kills attn.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from attn_cli.errors import AttnError, FileError, InputError, shell_quote, visible
from attn_cli.io import array_files, files
from attn_cli.io.types import Array, Ints, NamedTuple, NDArray, OnPart, no_report

BUNDLED = "word2vec"
FINGERPRINT_ROWS = 64
BLOCK = 2048
SAFETENSORS = {"format": "safetensors"}
NGRAMS, DIRECTIONS = "ngrams", "ngrams.directions"
MOST_AT_ONCE = 1 << 25  # bytes
LONGEST_WORD = 4096
MOST_BYTES = 1 << 24  # of the vectors that are kept
MOST_WORDS = 1 << 23  # bytes of all words together, up to which an index of them is made
# Some words of a file, in its order: where each stands, the words, and a function to the vectors of a slice of them.
WordBlock: TypeAlias = "tuple[Ints, list[bytes], Callable[[slice], Array]]"


class SourceFile(NamedTuple):
    """A regular file as it was when first looked at: its path, printable name, bytes, and time of change."""

    path: str
    name: str
    size: int
    changed: int

    @staticmethod
    def at(path: str | Path, name: str | None = None) -> SourceFile:
        """Return the file at `path` as it is now; FileError if it is not a readable regular file."""
        files.check_regular(path)
        with files.system_errors(FileError, f"Cannot read {visible(str(path))}"):
            found = os.stat(path)
        return SourceFile(str(path), name or visible(str(path)), found.st_size, found.st_mtime_ns)

    def quoted(self) -> str:
        """Return the path as one types it in a shell, printable, and taken for no option."""
        return shell_quote(f"./{self.path}" if self.path.startswith("-") else self.path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file unbuffered; InputError if it is not, or does not stay, what it was."""
        files.check_regular(self.path)
        with files.system_errors(FileError, f"Cannot read {self.name}"):
            file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed below
        with file:
            self._check(file)
            try:
                yield file
            except OSError as error:
                if isinstance(error, AttnError):
                    raise  # of what is written meanwhile
                raise InputError(f"{self.name} cannot be read: {error.strerror}.") from None
            self._check(file)

    def _check(self, file: IO[bytes]) -> None:
        now = os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise InputError(f"{self.name} changed while it was read.", "Try again when it is complete.")


def read_exactly(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    """Return `count` bytes from `offset`; InputError if the file ends before."""
    file.seek(offset)
    parts = []
    while count > 0:
        part = file.read(min(count, 1 << 30))
        if not part:
            raise InputError(f"{name} ends {count:,} bytes too early, at byte {file.tell():,}.")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class FileRows:
    """A matrix in a file; indexed like an array's rows (by a number, a slice, an array), it reads only those."""

    ndim = 2

    def __init__(self, source: SourceFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
        self.source, self.offset, self.dtype, self.shape = source, offset, dtype, shape

    @staticmethod
    def of(source: SourceFile, entry: array_files.Entry) -> FileRows:
        """Return the matrix that an entry of a safetensors file places."""
        return FileRows(source, entry.offset, entry.dtype, (entry.shape[0], entry.shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Ints) -> Array:
        with self.source.opened() as file:
            if isinstance(rows, slice):
                start, stop, step = rows.indices(len(self))
                return self._read(file, start, max(0, stop - start))[::step]
            none = np.empty((0, self.shape[1]), self.dtype)
            found = np.concatenate([none, *(self._read(file, int(row), 1) for row in np.atleast_1d(rows))])
        return found if isinstance(rows, np.ndarray) else found[0]

    def _read(self, file: IO[bytes], start: int, count: int) -> Array:
        width = self.shape[1] * self.dtype.itemsize
        data = read_exactly(file, self.offset + start * width, count * width, self.source.name)
        return np.frombuffer(data, self.dtype).reshape(count, self.shape[1])


def npy_rows(source: SourceFile) -> FileRows | Array:
    """Return the matrix of a .npy file, its rows unread; one in columns is read whole."""
    with source.opened() as file:
        shape, is_fortran, dtype = array_files.npy_header(file, source.size, source.name)
        offset = file.tell()
        if len(shape) != 2 or not 0 < min(shape) <= max(shape) <= source.size:
            raise InputError(f"{source.name} holds an array of shape {shape}, not a row for each word.")
        if offset + shape[0] * shape[1] * dtype.itemsize > source.size:
            raise InputError(f"{source.name} is cut off: its header claims the shape {shape}.")
        if is_fortran:
            data = read_exactly(file, offset, source.size - offset, source.name)
            return np.frombuffer(data, dtype, shape[0] * shape[1]).reshape(shape, order="F")
    return FileRows(source, offset, dtype, (shape[0], shape[1]))


class Rows(NamedTuple):
    """Some words, as bytes, and their vectors (words, dim)."""

    words: list[bytes]
    matrix: Array


def as_bytes(word: str) -> bytes:
    """Return a word as UTF-8; bytes that were no UTF-8 when it was typed are those bytes again."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


def as_text(word: bytes) -> str:
    """Return a word's text; bytes that are not UTF-8 stay, as surrogates."""
    return word.decode("utf-8", "surrogateescape")


def require_finite(vector: Array, word: str, name: str) -> Array:
    """Return the vector; InputError if it holds NaN or infinity."""
    if not np.isfinite(vector).all():
        said = f"{name}: the vector of {visible(word)!r} holds NaN or infinity."
        raise InputError(said, "Replace or remove its row.")
    return vector


def as_float64(numbers: Array) -> Array:
    """Return numbers as float64, without a warning for a signalling NaN."""
    with np.errstate(invalid="ignore"):
        return numbers.astype(np.float64)


def fingerprint_of(shape: tuple[int, ...], words: bytes, rows: Array) -> str:
    """Return a hash of the shape, the words between newlines and some rows as float32: the same in every format."""
    from _blake2 import blake2b  # hashlib's own; hashlib itself takes two milliseconds, for OpenSSL

    digest = blake2b(f"{shape}".encode(), digest_size=16)
    digest.update(words)
    with np.errstate(all="ignore"):
        digest.update(np.ascontiguousarray(rows, dtype="<f4").tobytes())
    return digest.hexdigest()


def fingerprint_rows(count: int) -> NDArray[np.intp]:
    """Return which of `count` rows go into a fingerprint."""
    return np.linspace(0, count - 1, FINGERPRINT_ROWS).astype(np.intp)


class NGrams(NamedTuple):
    """Numbers of parts of words, in a file beside the words' vectors: `attn_cli.vectors.spelling` guesses with them."""

    rows: Array | FileRows  # (buckets, r), int8
    directions: Array | FileRows  # (r + 1, dim), floats, the last row the mean of all vectors


class Vectors(ABC):
    """Word vectors: a table, or a large text or binary file. What was looked up is kept, MOST_BYTES of it at most.

    `size` is the bytes of their files, `about` what is known of them, `length` the one Euclidean length that all have,
    where the file states one. Unknown words are guessed from `ngrams`, where there are some.
    """

    source: str
    name: str
    size: int
    dtype: str
    about: dict[str, str]
    length: float | None = None
    ngrams: NGrams | None = None

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.most = MOST_BYTES // max(1 << 9, 8 * dim)  # a word without a vector takes bytes, too
        self.known: dict[str, Array | None] = {}

    def find(self, words: Iterable[str], report: OnPart = no_report) -> dict[str, Array]:
        """Return the float64 vectors (dim,) of those words that there are, of each the first; they may hold NaN."""
        wanted = dict.fromkeys(words)
        found = {word: self.known[word] for word in wanted if word in self.known}
        if missing := [word for word in wanted if word not in found]:
            fresh = self._found(missing, report)
            found |= fresh
            if len(self.known) + len(missing) > self.most:
                self.known.clear()
            kept = [word for word in missing if len(word) <= 64]  # longer ones are rarely repeated
            self.known |= {word: fresh.get(word) for word in kept[: self.most]}
        return {word: vector for word, vector in found.items() if vector is not None}

    @abstractmethod
    def _found(self, words: list[str], report: OnPart) -> dict[str, Array]:
        """Return the vectors of words that were not kept; of each the first."""

    @property
    @abstractmethod
    def n_words(self) -> int:
        """How many words there are; doubled ones count once."""

    @abstractmethod
    def rows(self, report: OnPart = no_report) -> Iterator[Rows]:
        """Yield the words and vectors (n, dim), some after the other, in order; doubles are left out."""

    @abstractmethod
    def word_blocks(self, report: OnPart = no_report) -> Iterator[list[bytes]]:
        """Yield all words, some after the other, in order; those of a file more than once where they are doubled."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return what tells these vectors from others, in whatever format they are."""


class VectorTable(Vectors):
    """Word vectors, most frequent word first where the maker ordered them so.

    `block` is the words as UTF-8, each between two newlines; `matrix` is (words, dim), of which only the rows that are
    asked for are read.
    """

    def __init__(
        self, source: str, name: str, block: bytes, matrix: Array | FileRows, about: dict[str, str],
        size: int = 0, ngrams: NGrams | None = None,
    ) -> None:  # fmt: skip
        super().__init__(matrix.shape[1])
        self.source, self.name, self.block, self.matrix = source, name, block, matrix
        self.about, self.size, self.ngrams = about, size, ngrams
        self.dtype, self.length = matrix.dtype.newbyteorder("=").name, _length(about)
        self.places: dict[bytes, int] = {}  # of all words, once many have been looked up

    @property
    def n_words(self) -> int:  # noqa: D102
        return len(self.matrix) - int(self.about.get("doubled", 0))

    def fingerprint(self) -> str:  # noqa: D102
        rows = self.matrix[fingerprint_rows(len(self.matrix))]
        return fingerprint_of(self.matrix.shape, self.block, rows)

    def words(self) -> list[str]:
        """Return every word, in order."""
        return as_text(self.block[1:-1]).split("\n")

    def rows(self, report: OnPart = no_report) -> Iterator[Rows]:  # noqa: D102
        lines = BytesIO(self.block)  # read as far as rows are asked for, without a copy
        lines.readline()
        seen: set[bytes] = set()
        step = max(1, min(BLOCK, MOST_AT_ONCE // (self.dim * self.matrix.dtype.itemsize)))
        for start in range(0, len(self.matrix), step):
            words = b"".join(islice(lines, step)).removesuffix(b"\n").split(b"\n")
            rows = Rows(words, self.matrix[start : start + step])
            if "doubled" in self.about:
                first = {word: at for at, word in reversed([*enumerate(rows.words)]) if word not in seen}
                kept = sorted(first.values())
                rows = Rows([rows.words[at] for at in kept], rows.matrix[kept])
                seen.update(first)
            yield rows
            report(min(1.0, (start + step) / len(self.matrix)))

    def word_blocks(self, report: OnPart = no_report) -> Iterator[list[bytes]]:  # noqa: D102
        yield self.block[1:-1].split(b"\n")

    def _found(self, words: list[str], report: OnPart) -> dict[str, Array]:
        if len(self.known) + len(words) > 200 and len(self.block) <= MOST_WORDS:
            self.places = self.places or self.word_rows()
        rows = {word: row for word in words if (row := self.row_of(word)) is not None}
        vectors = as_float64(self.matrix[np.array([*rows.values()], np.intp)])
        return dict(zip(rows, vectors, strict=True))

    def row_of(self, word: str) -> int | None:
        """Return the row of a word, of doubled ones the first; None where the table does not have it."""
        name = as_bytes(word)
        if self.places:
            return self.places.get(name)
        at = self.block.find(b"\n%b\n" % name)
        return self.block.count(b"\n", 0, at) if at >= 0 and word and "\n" not in word else None

    def word_rows(self) -> dict[bytes, int]:
        """Return each word's row, of doubled ones the first: quicker than a search for whoever looks up many."""
        words = self.block[1:-1].split(b"\n")
        return dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))


def _length(about: dict[str, str]) -> float | None:
    try:
        length = float(about["length"])
    except (KeyError, ValueError):
        return None
    return length if 0 < length < float("inf") else None


def bundled() -> VectorTable:
    """Return the vectors that come with the program."""
    path = str(files.data_path("word2vec.safetensors"))
    arrays, about = array_files.read_safetensors(path, mapped=True)
    block, ngrams = b"\n%b\n" % arrays["words"].tobytes(), NGrams(arrays[NGRAMS], arrays[DIRECTIONS])
    about, size = {**about, **SAFETENSORS}, os.path.getsize(path)
    return VectorTable("word2vec", BUNDLED, block, arrays["vectors"], about, size, ngrams)


def table_of(
    name: str, words: list[bytes], matrix: Array | FileRows, about: dict[str, str], size: int,
    ngrams: NGrams | None = None,
) -> VectorTable:  # fmt: skip
    """Return a table of words and their rows.

    InputError for words that are empty, too long or hold a newline, for another number of rows, and for rows that hold
    no floats.
    """
    for number, word in enumerate(words):
        if not word or b"\n" in word or len(word) > LONGEST_WORD:
            is_long = len(word) > LONGEST_WORD
            reason = f"is longer than {LONGEST_WORD:,} bytes" if is_long else "holds a newline"
            raise InputError(f"{name}: word {number:,} {reason if word else 'is empty'}.", "Leave it out.")
    if not words or len(words) != len(matrix):
        raise InputError(f"{name} has {len(words):,} words but {len(matrix):,} vectors.")
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.dtype.kind != "f":
        raise InputError(f"{name}: its vectors hold no decimal numbers, a row for each word.")
    about = {key: value for key, value in about.items() if isinstance(value, str)}
    if doubled := len(words) - len(set(words)):
        about["doubled"] = str(doubled)
    return VectorTable("file", name, b"\n%b\n" % b"\n".join(words), matrix, about, size, ngrams)


def kept_about(about: dict[str, str]) -> dict[str, str]:
    """Return what a copy of vectors keeps of what is known of them."""
    return {key: value for key, value in about.items() if key not in ("format", "doubled")}


def write_table(
    stream: IO[bytes], words: Sequence[str | bytes], matrix: Array, about: dict[str, str],
    ngrams: NGrams | None = None,
) -> None:  # fmt: skip
    """Write a table: safetensors with the arrays `vectors` and `words`, one a line, n-grams if any, and metadata."""
    block = b"\n".join(word if isinstance(word, bytes) else word.encode() for word in words)
    arrays = {"vectors": matrix, "words": np.frombuffer(block, np.uint8)}
    if ngrams:
        arrays |= {NGRAMS: np.asarray(ngrams.rows[:]), DIRECTIONS: np.asarray(ngrams.directions[:])}
    array_files.write_safetensors(stream, arrays, {"format": "attn-vectors/1", **about})
