"""Files of gensim's .save() (.kv, .model): words and vectors are taken from the pickle, and nothing in it is run."""

from __future__ import annotations

import math
import os
from contextlib import suppress

import numpy as np

from attn_cli.errors import FileError, InputError, refuse_input, visible
from attn_cli.io.types import Array, NamedTuple
from attn_cli.vectors import FileRows, SourceFile, VectorTable, npy_rows, read_exactly, spelling, table_of
from attn_cli.vectors.safe_unpickle import SAVE_AGAIN, Name, StandIn, safe_unpickle

MAX_PICKLE_BYTES = 8 << 30  # bytes of a file


def read_gensim(source: SourceFile) -> VectorTable:
    """Return the vectors of gensim's .kv or .model, running nothing in it; InputError or FileError where it fails."""
    if source.size > MAX_PICKLE_BYTES:
        size = f"{source.size:,} bytes is above the limit of {MAX_PICKLE_BYTES:,}"
        raise FileError(f"Cannot read {source.name}: {size}.", SAVE_AGAIN)
    try:
        with source.opened() as file:
            data = read_exactly(file, 0, source.size, source.name)
        made = safe_unpickle(data, source.name)
        fields, prefix = _fields(made), source.path
        if isinstance(fields.get("wv"), StandIn):  # a model holds its vectors as an object of their own
            fields, prefix = _fields(fields["wv"]), f"{prefix}.wv"
        saved = _SavedObject(fields, prefix, source.name, data)
        words = _words(saved)
        matrix = _vectors(saved, words)
    except MemoryError:
        raise InputError(f"{source.name} is larger than the memory that is free.", SAVE_AGAIN) from None
    beside = matrix.source.size if isinstance(matrix, FileRows) else 0
    about = {"format": "gensim", "class": _class_of(made)}
    return table_of(source.name, words, matrix, about, source.size + beside)


_MOST_FIELDS = 10_000
_WORDS = ("index_to_key", "index2word", "index2entity")


class _SavedObject(NamedTuple):
    """The fields of a saved object, what the files beside it are called up to the field, its name and its file."""

    fields: dict[str, object]
    prefix: str
    name: str
    data: bytes


def _fields(made: object) -> dict[str, object]:
    """Return the fields of an object: its state, where keys and values take turns or come as pairs."""
    state = made.state if isinstance(made, StandIn) else None
    if not isinstance(state, list) or len(state) > _MOST_FIELDS:
        return {}
    fields: dict[str, object] = {}
    items = iter(state)
    for item in items:
        key, value = item if isinstance(item, tuple) and len(item) == 2 else (item, next(items, None))
        if isinstance(key, str):
            fields[key] = value
    return fields


def _class_of(made: object) -> str:
    name: object = made.name if isinstance(made, StandIn) else ""
    if isinstance(made, StandIn) and made.name.endswith("._reconstructor"):
        name = made.first
    return name.rpartition(".")[2] if isinstance(name, Name) else ""


def _words(saved: _SavedObject) -> list[bytes]:
    name, words = saved.name, next((saved.fields[field] for field in _WORDS if field in saved.fields), None)
    if not isinstance(words, list):
        raise InputError(f"{name} holds no word vectors: it has no list of words.", SAVE_AGAIN)
    refuse_input(not words, f"{name} holds no words.", "Give vectors of one word at least.")
    if set(map(type, words)) != {str}:
        words = [_key(word, row, name) for row, word in enumerate(words)]
    # The same word can stand in a list a million times and in the file once: count before they are copied.
    if sum(map(len, words)) + 3 * len(words) > len(saved.data):  # a file spends 3 bytes besides its letters
        raise InputError(f"{name}: its list of words repeats them and is larger than the file.", SAVE_AGAIN)
    return [word.encode("utf-8", "surrogatepass") for word in words]


def _key(word: object, row: int, name: str) -> str:
    if isinstance(word, str):
        return word
    if type(word) is int and -(1 << 63) <= word < 1 << 64:
        return str(word)
    if word is None:
        hint = "gensim leaves such holes after a word that came twice: remove doubles and save it again."
        raise InputError(f"{name}: word {row:,} is missing (None).", hint)
    raise InputError(f"{name}: word {row:,} is neither text nor a whole number.", SAVE_AGAIN)


def _vectors(saved: _SavedObject, words: list[bytes]) -> Array | FileRows:
    for field in ("vectors", "syn0"):
        if (found := _numbers(saved, field)) is not None:
            return found
    if (own := _numbers(saved, "vectors_vocab")) is not None or "vectors_vocab" in saved.fields:
        return _composed(saved, words, own)
    raise InputError(f"{saved.name} holds words but no vectors.", SAVE_AGAIN)


def _numbers(saved: _SavedObject, field: str) -> Array | FileRows | None:
    """Return an array, or where it lies in a file of its own; None if there is none of that name."""
    if saved.fields.get(field) is not None:
        return _array(saved.fields[field], saved)
    apart = saved.fields.get("__numpys")
    is_apart = isinstance(apart, list) and field in apart[:_MOST_FIELDS]
    return npy_rows(SourceFile.at(_beside(saved, field))) if is_apart else None


def _beside(saved: _SavedObject, field: str) -> str:
    path = f"{saved.prefix}.{field}.npy"
    if os.path.isfile(path):
        return path
    for packed in ("", ".gz", ".bz2"):
        if os.path.isfile(other := f"{saved.prefix}{packed}.{field}.npz"):
            raise InputError(f"{visible(other)} is compressed, which attn does not unpack.", SAVE_AGAIN)
    said = f"{visible(path)} is missing: it holds the vectors of {saved.name} and belongs beside it."
    raise FileError(said, "gensim saves both together: copy both, and rename neither.")


def _array(made: object, saved: _SavedObject) -> Array:
    name = saved.name
    unsound = InputError(f"{name}: its vectors are not a sound array of decimal numbers.", SAVE_AGAIN)
    if not isinstance(made, StandIn):
        raise unsound
    match made.state, made.args:
        case (int(), tuple(shape), dtype, fortran, raw), _ if made.name.endswith(".multiarray._reconstruct"):
            order = "F" if fortran is True else "C"
        case None, (raw, dtype, tuple(shape), ("C" | "F") as order) if made.name.endswith("._frombuffer"):
            pass
        case _:
            raise unsound
    code, numbers = _dtype(dtype), _raw(raw, saved.data)
    if code is None or numbers is None:
        raise InputError(f"{name}: its vectors are not of float16, float32 or float64.", SAVE_AGAIN)
    if len(shape) != 2 or not all(type(n) is int and 0 < n < 1 << 48 for n in shape):
        raise unsound
    if (claimed := math.prod(shape) * code.itemsize) != len(numbers):
        claim = f"its vectors claim {claimed:,} bytes; there are {len(numbers):,}"
        raise InputError(f"{name}: {claim}.", SAVE_AGAIN)
    return np.frombuffer(numbers, code).reshape(shape, order="F" if order == "F" else "C")


def _dtype(made: object) -> np.dtype[np.floating] | None:
    if not isinstance(made, StandIn) or made.name != "numpy.dtype":
        return None
    code = made.first
    order = made.state[1] if isinstance(made.state, tuple) and len(made.state) > 1 else "<"
    if not isinstance(code, str) or code not in {"f2", "f4", "f8"}:
        return None
    return np.dtype((">" if order == ">" else "<") + code)


def _raw(held: object, data: bytes) -> bytes | memoryview | None:
    """Return an array's bytes, which protocol 2 and Python 2 write as text of one character a byte."""
    if isinstance(held, slice):
        return memoryview(data)[held]
    if isinstance(held, StandIn) and held.name == "_codecs.encode":
        held = held.first
    if isinstance(held, str):
        with suppress(UnicodeEncodeError):
            return held.encode("latin1")
    return held if isinstance(held, bytes) else None


def _composed(saved: _SavedObject, words: list[bytes], own_rows: Array | FileRows | None) -> Array:
    """Return each FastText word's mean of its own vector and its n-grams', as gensim 4's adjust_vectors has it."""
    own = _floats(saved, "vectors_vocab", own_rows)
    bucket, least, most = (saved.fields.get(field) for field in ("bucket", "min_n", "max_n"))
    if bucket == 0 or len(own) != len(words):
        return own
    grams = _floats(saved, "vectors_ngrams", _numbers(saved, "vectors_ngrams"))
    if not isinstance(bucket, int) or not isinstance(least, int) or not isinstance(most, int):
        raise InputError(f"{saved.name}: it does not say how long its n-grams are.", SAVE_AGAIN)
    said = f"{saved.name} is of a gensim before 3.8, which hashed n-grams otherwise."
    refuse_input(saved.fields.get("compatible_hash") is not True, said, SAVE_AGAIN)
    if grams.shape != (bucket, own.shape[1]) or bucket >= 1 << 32:
        raise InputError(f"{saved.name}: its n-grams' vectors do not fit its words'.", SAVE_AGAIN)
    letters = sum(map(len, words))
    work = letters * most * (own.shape[1] + 16)  # to hash an n-gram takes as long as 16 additions
    if work > (letters + own.nbytes + grams.nbytes) * 100 + spelling.BLOCK:  # a hundred additions to a byte
        raise InputError(f"{saved.name}: its words have too many n-grams.", SAVE_AGAIN)
    with np.errstate(all="ignore"):  # whoever uses a vector checks that it is finite
        return spelling.with_ngrams(own, grams, words, (least, most))


def _floats(saved: _SavedObject, field: str, rows: Array | FileRows | None) -> Array:
    if rows is None or rows.dtype.kind != "f":
        raise InputError(f"{saved.name}: its {field} are not a sound array of decimal numbers.", SAVE_AGAIN)
    return rows[:]
