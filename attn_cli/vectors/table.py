"""A table of word vectors: its words as one block of text, its rows as one array, neither parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.files import data_path
from attn_cli.tensors import read_safetensors, write_safetensors
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Array

BUNDLED = "word2vec"
FINGERPRINT_ROWS = 64


class Table(NamedTuple):
    """Word vectors, most frequent word first where the maker ordered them so.

    `block` is the words as UTF-8, each between two newlines; `matrix` is (words, dim), often a view of
    a memory map: only the rows that are asked for are ever read.
    """

    source: str
    name: str
    block: bytes
    matrix: Array
    about: dict[str, str]

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return int(self.matrix.shape[1])

    @property
    def length(self) -> float | None:
        """The one Euclidean length that all vectors have, where the file states one."""
        try:
            return float(self.about["length"])
        except (KeyError, ValueError):
            return None

    def fingerprint(self) -> str:
        """Return what tells this table from others: a hash of its words, its shape, and rows spread over it.

        Rows count as float32, so that the same vectors in another file have the same fingerprint.
        """
        import hashlib  # only learned models ask

        spread = np.linspace(0, len(self.matrix) - 1, FINGERPRINT_ROWS).astype(np.intp)
        rows = np.ascontiguousarray(self.matrix[spread], dtype="<f4")
        told = hashlib.blake2b(f"{self.matrix.shape}".encode(), digest_size=16)
        told.update(self.block)
        told.update(rows.tobytes())
        return told.hexdigest()

    def words(self) -> list[str]:
        """Return every word, in order."""
        return self.block[1:-1].decode("utf-8", "surrogateescape").split("\n")

    def find(self, words: Iterable[str]) -> dict[str, Array]:
        """Return the float64 vectors (dim,) of those words that the table has; the first of doubles wins."""
        found = {}
        for word in words:
            at = self.block.find(b"\n" + word.encode("utf-8", "surrogatepass") + b"\n")
            if at >= 0 and word and "\n" not in word:
                vector = self.matrix[self.block.count(b"\n", 0, at)].astype(np.float64)
                if not np.isfinite(vector).all():
                    raise InputError(f"{self.name}: the vector of {visible(word)!r} holds NaN or infinity.")
                found[word] = vector
        return found


def bundled() -> Table:
    """Return the vectors that come with the program."""
    return read_table(str(data_path("word2vec.safetensors")), source="word2vec", name=BUNDLED)


def read_table(path: str, source: str = "file", name: str | None = None) -> Table:
    """Read a table that `attn vectors train` wrote: safetensors with `vectors` and `words`."""
    arrays, about = read_safetensors(path)
    shown = name or visible(path)
    if (
        set(arrays) != {"vectors", "words"}
        or arrays["vectors"].ndim != 2
        or arrays["words"].dtype != np.uint8
    ):
        raise InputError(f"{shown} is not a table of word vectors: it needs the arrays vectors and words.")
    block = b"\n" + arrays["words"].tobytes() + b"\n"
    if block.count(b"\n") != len(arrays["vectors"]) + 1:
        raise InputError(f"{shown} has {block.count(10) - 1} words but {len(arrays['vectors'])} vectors.")
    if arrays["vectors"].shape[1] == 0 or arrays["vectors"].dtype.kind != "f":
        raise InputError(f"{shown}: its vectors hold no decimal numbers.")
    about = {key: value for key, value in about.items() if isinstance(value, str)}
    return Table(source, shown, block, arrays["vectors"], about)


def write_table(stream: IO[bytes], words: list[str], matrix: Array, about: dict[str, str]) -> None:
    """Write words and vectors as read_table reads them, with what is to be known of them."""
    block = "\n".join(words).encode()
    arrays = {"vectors": matrix, "words": np.frombuffer(block, np.uint8)}
    write_safetensors(stream, arrays, {"format": "attn-vectors/1", **about})


def describe(table: Table) -> dict[str, object]:
    """Return what is known of a table: its size and what its maker noted."""
    noted = {key: value for key, value in table.about.items() if key not in ("format", "length")}
    try:
        settings = json.loads(noted.pop("settings", "null"))
    except ValueError:
        settings = None
    return {
        "source": table.source,
        "name": table.name,
        "words": len(table.matrix),
        "dim": table.dim,
        "dtype": str(table.matrix.dtype),
        "length": table.length,
        "bytes": int(table.matrix.nbytes + len(table.block)),
        "settings": settings,
        "about": noted,
    }
