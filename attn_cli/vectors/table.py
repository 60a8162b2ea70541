"""A table of word vectors: its words as one block of text, its rows as one array, neither parsed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.io.escape import visible
from attn_cli.io.files import data_path

if TYPE_CHECKING:
    from hashlib import blake2b

    from numpy.typing import NDArray

    from attn_cli.io.array_types import Array, Ints
    from attn_cli.vectors.source_file import FileRows

BUNDLED = "word2vec"
FINGERPRINT_ROWS = 64
BLOCK = 8192
SAFETENSORS = {"format": "safetensors"}
NGRAMS, DIRECTIONS = "ngrams", "ngrams.directions"
MOST_AT_ONCE = 1 << 25  # bytes
LONGEST_WORD = 4096
INFO = ("source", "name", "words", "dim", "dtype", "length", "bytes", "settings", "about")
OnProgress: TypeAlias = Callable[[float], None]  # gets the share that is done, 0 to 1


def no_progress(done: float) -> None:
    """Report no progress."""


class Rows(NamedTuple):
    """Some words, as bytes, and their vectors (words, dim)."""

    words: list[bytes]
    matrix: Array


class WordBlock(NamedTuple):
    """Some words of a file, in its order, where each stands, and a function from such an offset to its vector."""

    offsets: Ints
    words: list[bytes]
    vector: Callable[[int], Array]


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
        raise InputError(
            f"{name}: the vector of {visible(word)!r} holds NaN or infinity.", "Replace or remove its row."
        )
    return vector


def as_float64(numbers: Array) -> Array:
    """Return numbers as float64, without a warning for a signalling NaN."""
    with np.errstate(invalid="ignore"):
        return numbers.astype(np.float64)


def fingerprint_of(shape: tuple[int, ...]) -> blake2b:
    """Return the hash object of a fingerprint, with the shape already in it."""
    try:
        from _blake2 import blake2b  # hashlib's own; hashlib itself takes two milliseconds, for OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(f"{shape}".encode(), digest_size=16)


def fingerprint_rows(count: int) -> NDArray[np.intp]:
    """Return which of `count` rows go into a fingerprint."""
    return np.linspace(0, count - 1, FINGERPRINT_ROWS).astype(np.intp)


class NGrams(NamedTuple):
    """Numbers of parts of words, in a file beside the words' vectors: `attn_cli.vectors.spelling` guesses with them."""

    rows: Array | FileRows  # (buckets, r), int8
    directions: Array | FileRows  # (r + 1, dim), floats, the last row the mean of all vectors

    def arrays(self) -> dict[str, Array]:
        """Return them by the names that they have in a file."""
        return {NGRAMS: np.asarray(self.rows[:]), DIRECTIONS: np.asarray(self.directions[:])}


class VectorTable(NamedTuple):
    """Word vectors, most frequent word first where the maker ordered them so.

    `block` is the words as UTF-8, each between two newlines; `matrix` is (words, dim), often a view of
    a memory map: only the rows that are asked for are ever read. `size` is the bytes of its files. `ngrams`, where
    the file has them, are what words that are not in the table are guessed from.
    """

    source: str
    name: str
    block: bytes
    matrix: Array | FileRows
    about: dict[str, str]
    size: int = 0
    ngrams: NGrams | None = None

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return int(self.matrix.shape[1])

    @property
    def n_words(self) -> int:
        """How many words there are; doubled ones count once."""
        return len(self.matrix) - int(self.about.get("doubled", 0))

    @property
    def length(self) -> float | None:
        """The one Euclidean length that all vectors have, where the file states one."""
        try:
            length = float(self.about["length"])
        except (KeyError, ValueError):
            return None
        return length if 0 < length < float("inf") else None

    def fingerprint(self) -> str:
        """Return a hash of the shape, the words and some rows as float32: the same in every format."""
        with np.errstate(all="ignore"):
            rows = np.ascontiguousarray(self.matrix[fingerprint_rows(len(self.matrix))], dtype="<f4")
        digest = fingerprint_of(self.matrix.shape)
        digest.update(self.block)
        digest.update(rows.tobytes())
        return digest.hexdigest()

    def words(self) -> list[str]:
        """Return every word, in order."""
        return as_text(self.block[1:-1]).split("\n")

    def rows(self, report: OnProgress = no_progress) -> Iterator[Rows]:
        """Yield all words and vectors, some after the other, in order."""
        words = self.block[1:-1].split(b"\n")
        seen: set[bytes] = set()
        step = max(1, min(BLOCK, MOST_AT_ONCE // (self.dim * self.matrix.dtype.itemsize)))
        for start in range(0, len(self.matrix), step):
            rows = Rows(words[start : start + step], self.matrix[start : start + step])
            yield _without_seen(rows, seen) if "doubled" in self.about else rows
            report(min(1.0, (start + step) / len(self.matrix)))

    def word_blocks(self, report: OnProgress = no_progress) -> Iterator[list[bytes]]:
        """Yield all words at once."""
        yield self.block[1:-1].split(b"\n")

    def find(self, words: Iterable[str], report: OnProgress = no_progress) -> dict[str, Array]:
        """Return the float64 vectors (dim,) of those words that the table has, of each the first; they may hold NaN."""
        found = {}
        for word in words:
            at = self.block.find(b"\n" + as_bytes(word) + b"\n")
            if at >= 0 and word and "\n" not in word:
                found[word] = as_float64(self.matrix[self.block.count(b"\n", 0, at)])
        return found

    def word_rows(self) -> dict[bytes, int]:
        """Return each word's row, of doubled ones the first: quicker than a search for whoever looks up many."""
        words = self.block[1:-1].split(b"\n")
        return dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))

    def describe(self) -> dict[str, object]:
        """Return what is known of the table: its size and what its maker noted."""
        noted = {key: value for key, value in self.about.items() if key != "length"}
        import json  # those who look words up do without

        try:
            settings = json.loads(noted.pop("settings", "null"))
            json.dumps(settings, allow_nan=False)
        except (ValueError, RecursionError):
            settings = None
        dtype = self.matrix.dtype.newbyteorder("=").name
        about = (dtype, self.length, self.size, settings, noted)
        return description(self.source, self.name, self.n_words, self.dim, *about)


def description(*values: object) -> dict[str, object]:
    """Return what `attn vectors info` says of word vectors, by the names of INFO; `bytes` are those of their files."""
    return dict(zip(INFO, values, strict=True))


def _without_seen(rows: Rows, seen: set[bytes]) -> Rows:
    """Return the rows whose word is not in `seen`, and add it."""
    kept = []
    for at, word in enumerate(rows.words):
        if word not in seen:
            seen.add(word)
            kept.append(at)
    return Rows([rows.words[at] for at in kept], rows.matrix[kept])


def bundled() -> VectorTable:
    """Return the vectors that come with the program."""
    path = str(data_path("word2vec.safetensors"))
    arrays, about = read_safetensors(path, mapped=True)
    size = os.path.getsize(path)
    words, matrix = arrays["words"].tobytes(), arrays["vectors"]
    ngrams = NGrams(arrays[NGRAMS], arrays[DIRECTIONS])
    return _table("word2vec", BUNDLED, words, matrix, {**about, **SAFETENSORS}, size, ngrams)


def _table(
    source: str, name: str, words: bytes, matrix: Array | FileRows, about: dict[str, str], size: int,
    ngrams: NGrams | None,
) -> VectorTable:  # fmt: skip
    block = b"\n" + words + b"\n"
    n_words = block.count(b"\n") - 1
    if n_words != len(matrix):
        raise InputError(f"{name} has {n_words:,} words but {len(matrix):,} vectors.")
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.dtype.kind != "f":
        raise InputError(f"{name}: its vectors hold no decimal numbers, a row for each word.")
    about = {key: value for key, value in about.items() if isinstance(value, str)}
    return VectorTable(source, name, block, matrix, about, size, ngrams)


def table_of(
    name: str, words: list[bytes], matrix: Array | FileRows, about: dict[str, str], size: int,
    ngrams: NGrams | None = None,
) -> VectorTable:  # fmt: skip
    """Return a table of words and their rows; InputError for words that are empty, too long or hold a newline."""
    for number, word in enumerate(words):
        if not word or b"\n" in word or len(word) > LONGEST_WORD:
            reason = (
                f"is longer than {LONGEST_WORD:,} bytes" if len(word) > LONGEST_WORD else "holds a newline"
            )
            raise InputError(f"{name}: word {number:,} {reason if word else 'is empty'}.", "Leave it out.")
    if doubled := len(words) - len(set(words)):
        about = {**about, "doubled": str(doubled)}
    return _table("file", name, b"\n".join(words), matrix, about, size, ngrams)


def write_table(
    stream: IO[bytes], words: Sequence[str | bytes], matrix: Array, about: dict[str, str],
    ngrams: NGrams | None = None,
) -> None:  # fmt: skip
    """Write a table: safetensors with the arrays `vectors` and `words`, one a line, n-grams if any, and metadata."""
    block = b"\n".join(word if isinstance(word, bytes) else word.encode() for word in words)
    arrays = {"vectors": matrix, "words": np.frombuffer(block, np.uint8)} | (
        ngrams.arrays() if ngrams else {}
    )
    write_safetensors(stream, arrays, {"format": "attn-vectors/1", **about})
