"""A damaged file of vectors is opened, and asked for words; what then must hold is checked."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from random import Random

import numpy as np

from attn_cli.errors import AttnError
from attn_cli.io.json_text import dumps
from attn_cli.vectors import Vectors, VectorTable, as_text, detect, gensim_pickle, lookup, spelling
from attn_cli.vectors.open_vectors import FileVectors, describe
from tests.fuzz.seeds import ABSENT, KNOWN, Reader

PIECES = (96, 128, 200, 400)
MANY = (*KNOWN, "dog", "new york", "the", "I", "")
LONGEST_WORD = 40
_WORD = rb"\n?([^ \n]{1,%d}+) " % LONGEST_WORD
_SIZES = ("PIECE", "LONGEST_LINE", "INDEXED_FROM")  # as large as a block of the file


def _values(piece: int) -> dict[str, object]:
    """Return sizes at which a file of some hundred bytes goes the way of one of a gigabyte."""
    small = {"ENOUGH": piece // 2, "FIRST_ROWS": 8, "BLOCK": 4, "LONGEST_WORD": LONGEST_WORD}
    return {**dict.fromkeys(_SIZES, piece), **small, "WORD": _WORD, "_WORD": re.compile(_WORD)}


# Every size that a module of the readers has, its own or another's, with its real value; all of them are loaded.
assert detect.open_file and gensim_pickle.read_gensim
_MODULES = [name for name in sys.modules if name.startswith(("attn_cli.vectors", "attn_cli.io.files"))]
_NAMED = [(sys.modules[module], name) for module in _MODULES for name in _values(0)]
_FOUND = [(one, name, getattr(one, name)) for one, name in _NAMED if hasattr(one, name)]
_REAL = [found for found in _FOUND if isinstance(found[2], int | bytes | re.Pattern)]
assert {name for _, name, _ in _FOUND} == {*_values(0)}, "the readers have a size no more"


def scale(piece: int | None) -> None:
    """Shrink the readers to blocks of `piece` bytes, or give them back their real sizes."""
    small = {} if piece is None else _values(piece)
    for module, name, value in _REAL:
        setattr(module, name, small.get(name, value))


class Broken(AssertionError):
    """Something that must hold does not."""


def use(path: str, reader: Reader, rng: Random) -> Iterator[None]:
    """Open a file, with blocks of a size that is drawn, stop, and ask it what is drawn; check what comes of it."""
    words = (*KNOWN, ABSENT) if rng.random() < 0.7 else (*MANY, ABSENT)
    piece = rng.choice(PIECES) if rng.random() < reader.share_scaled else None
    more = rng.random()  # than a lookup
    scale(piece)
    vectors = detect.open_file(path)
    yield
    found = vectors.find(words)
    check_found(found, words, vectors)
    for word in words:  # what is used of what was found is finite, or refused
        with contextlib.suppress(AttnError):
            pair = lookup.look_up(word, vectors)
            if pair and not np.isfinite(pair[1]).all():
                raise Broken(f"a vector with NaN or infinity of {word!r}: {pair[1]!r}")
    if more < 0.4 and isinstance(vectors, FileVectors):
        vectors.indexed()
        _check_same(found, vectors.find(words), "the index")
    if more < 0.25:
        check_rows(vectors, found)
        dumps(describe(vectors))
    if more < 0.12 and isinstance(vectors, FileVectors) and piece is not None:
        _check_whole(vectors, words, path, found)
    if 0.12 < more < 0.18:
        vectors.fingerprint()
        spelling.near_words(["cats"], vectors)
        sound = [vector for vector in found.values() if np.isfinite(vector).all()]
        if sound:
            lookup.nearest(vectors, sound[0], 3, ["cat"])


def check_found(found: dict[str, np.ndarray], words: Iterable[str], vectors: Vectors) -> None:
    if not found.keys() <= {*words} - {ABSENT, ""}:
        raise Broken(f"words were found that are not there: {sorted(found)}")
    for word, vector in found.items():
        if vector.shape != (vectors.dim,) or vector.dtype != np.float64:
            raise Broken(f"no sound vector of {word!r}: {vector!r}, dim {vectors.dim}")


def _check_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], what: str) -> None:
    if one.keys() != other.keys():
        raise Broken(f"{what} finds {sorted(other)}, a search {sorted(one)}")
    for word, vector in one.items():
        if not np.array_equal(vector, other[word], equal_nan=True):
            raise Broken(f"{what} gives {word!r} {other[word]!r}, a search {vector!r}")


def check_rows(vectors: Vectors, found: dict[str, np.ndarray]) -> None:
    """The rows are as many as there are words, no word comes twice, and they hold what lookups find."""
    words: list[bytes] = []
    firsts: dict[str, np.ndarray] = {}
    for block, matrix in vectors.rows():
        if len(block) != len(matrix) or matrix.shape[1] != vectors.dim:
            raise Broken(f"{len(block)} words, a matrix of shape {matrix.shape}, dim {vectors.dim}")
        words += block
        for word, row in zip(block, matrix, strict=True):
            firsts.setdefault(as_text(word), row)
    if len(words) != vectors.n_words:
        raise Broken(f"{len(words)} rows, {vectors.n_words} words")
    if len(set(words)) != len(words):
        raise Broken("a word comes twice")
    if missing := found.keys() - firsts.keys():
        raise Broken(f"the rows have no {missing}")
    for word, vector in found.items():
        row = firsts[word]
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.array_equal(row, vector.astype(row.dtype), equal_nan=True):
                raise Broken(f"a lookup gives {word!r} {vector!r}, the rows {row!r}")


def _check_whole(vectors: FileVectors, words: Sequence[str], path: str, found: dict[str, np.ndarray]) -> None:
    """A file that is read whole holds what a search in it finds."""
    scale(None)
    whole = detect.open_file(path)
    is_same = isinstance(whole, VectorTable) and whole.dim == vectors.dim
    if is_same and whole.about["format"] == vectors.form.kind:
        _check_same(found, whole.find(words), "the whole file")
        one, other = ([word for block in kind.rows() for word in block.words] for kind in (vectors, whole))
        if one != other:
            raise Broken(f"the whole file has the words {other!r}, its rows {one!r}")
