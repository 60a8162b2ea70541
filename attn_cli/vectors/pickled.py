"""Word vectors that gensim saved with .save(), read without ever running what the pickle holds.

A pickle is a program for a small machine with a stack. It is read here in three steps. One pass over its opcodes
checks every length against the file and writes the program anew with nothing left in it to call or to hash:
dicts and sets become lists, a call becomes the pair (name, arguments), long bytes stay where they are. The
standard unpickler then runs what was written; for names and calls it gets stand-ins that hold and do nothing.
At last the few fields that matter are read, one level at a time: what is nested deeper is never walked.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.files import regular
from attn_cli.tensors import read_npy
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Array, Ints

LARGEST = 8 << 30  # bytes of a file
LONGEST_WORD = 4096  # bytes
SAVE_AGAIN = "Save it again with KeyedVectors.save_word2vec_format('vectors.bin', binary=True)."
NEVER_RUN = f"attn never runs it. {SAVE_AGAIN}"


class Pickled(NamedTuple):
    """Word vectors as gensim saved them.

    `words` are UTF-8, in the order of the rows. The vectors are `matrix` (words, dim), often a view of the
    file's bytes, or lie in the .npy file `matrix_path`; one of the two is None.
    """

    words: list[bytes]
    matrix_path: str | None
    matrix: Array | None
    about: dict[str, str]


def is_pickle(start: bytes) -> bool:
    """Tell by its first bytes whether a file is a pickle of protocol 2 to 5."""
    return len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5


def read_pickled(path: str | Path) -> Pickled:
    """Read a .kv or .model file that gensim wrote, running nothing that it holds.

    Raises InputError where the file holds code, is damaged or has no word vectors, and FileError where it
    or a file that belongs beside it cannot be read.
    """
    name = visible(str(path))
    try:
        return _read(path, name)
    except AttnError:
        raise
    except MemoryError:
        raise InputError(f"{name} is larger than the memory that is free.", SAVE_AGAIN) from None
    except OSError as error:
        raise FileError(f"Cannot read {name}: {error.strerror}.") from None


def _read(path: str | Path, name: str) -> Pickled:
    data = _whole(path, name)
    made = _unpickled(data, name)
    fields, prefix = _fields(made), str(path)
    if isinstance(fields.get("wv"), _Made):  # a model holds its vectors as an object of their own
        fields, prefix = _fields(fields["wv"]), f"{path}.wv"
    saved = _Saved(fields, prefix, name, data)
    words = _words(saved)
    matrix_path, matrix = _vectors(saved, words)
    if matrix is not None and len(matrix) != len(words):
        raise InputError(f"{name} has {len(words):,} words but {len(matrix):,} vectors.", SAVE_AGAIN)
    return Pickled(words, matrix_path, matrix, {"class": _class_of(made)})


# The file ---------------------------------------------------------------------------------------------------


def _whole(path: str | Path, name: str) -> bytes:
    """Return the bytes of a pickle. They are read, not mapped: a mapped file that shrinks ends the process."""
    with regular(path).open("rb") as file:
        before = os.fstat(file.fileno())
        if before.st_size > LARGEST:
            size = f"{before.st_size:,} bytes is above the limit of {LARGEST:,}"
            raise FileError(f"Cannot read {name}: {size}.", SAVE_AGAIN)
        _check_start(file.read(3), name)
        file.seek(0)
        data = file.read(before.st_size)
        after = os.fstat(file.fileno())
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if not same or len(data) != before.st_size:
        raise InputError(f"{name} changed while it was read.", "Read it again when it is finished.")
    return data


def _check_start(start: bytes, name: str) -> None:
    if is_pickle(start):
        return
    if start[:2] == b"\x1f\x8b" or start == b"BZh":
        raise InputError(f"{name} is compressed, which attn does not unpack.", SAVE_AGAIN)
    raise InputError(f"{name}, byte 0: this is not the start of a file that gensim saved.", SAVE_AGAIN)


# The program, written anew ----------------------------------------------------------------------------------

_FRAME, _STOP = 0x95, ord(".")
# What is written in place of an opcode: dicts and sets become lists (nothing is hashed, so that no key can make
# hashing endless), and a call becomes persistent_load((name, arguments)), which only holds them.
_IN_PLACE = {
    **dict.fromkeys(b"]}\x8f", b"]"),  # EMPTY_LIST, EMPTY_DICT, EMPTY_SET
    **dict.fromkeys(b"u\x90", b"e"),  # SETITEMS, ADDITEMS: APPENDS
    ord("s"): b"\x86a",  # SETITEM: TUPLE2, APPEND
    **dict.fromkeys(b"t\x91", b"t"),  # TUPLE, FROZENSET
    **{opcode: bytes([opcode]) for opcode in b"\x85\x86\x87"},  # TUPLE1 to TUPLE3
    **dict.fromkeys(b"R\x81", b"\x86Q"),  # REDUCE, NEWOBJ: TUPLE2, BINPERSID
    0x92: b"\x87Q",  # NEWOBJ_EX: TUPLE3, BINPERSID
}
# Opcodes that a length follows, in so many bytes: text, which is copied, and bytes, which stay where they are.
_TEXT = {ord("X"): 4, ord("T"): 4, 0x8D: 8}
_BYTES = {ord("B"): 4, 0x8E: 8, 0x96: 8}
_SOUND = frozenset(b"\x8cCU\x8aXBT\x8d\x8e\x96\x95N\x88\x89)(01aeb\x94\x93KhqMJjrGc")
_ELSEWHERE = {
    **dict.fromkeys(b"PQ", "refers to objects that lie elsewhere"),
    **dict.fromkeys(b"\x82\x83\x84", "refers to the extension registry"),
    **dict.fromkeys(b"\x97\x98", "refers to buffers that lie elsewhere"),
}
# A list or a call costs up to a hundred bytes of memory and as little as one of the file: there must be no more
# than one to so many bytes. gensim writes no more than one to nine.
_BYTES_TO_A_LIST = 5
_LISTS_AT_LEAST = 1000


class _Part(NamedTuple):
    """Bytes of the file, which stay where they are."""

    start: int
    stop: int


class _Program(NamedTuple):
    """A pickle without calls; it names the parts of the file by number."""

    code: bytearray
    parts: list[_Part]


def _plain(highest: int) -> re.Pattern[bytes]:
    """Return a pattern of any number of short opcodes that need no change; memo indexes up to about `highest`.

    A loop over opcodes in Python takes many times as long.
    """
    short = b"|".join(rb"\x%02x.{%d}" % (n, n) for n in range(256))
    long = b"|".join(rb"\x%02x\0\0\0.{%d}" % (n, n) for n in range(256))
    free = (highest.bit_length() - 1) // 8  # bytes of an index that may have any value, the lowest first
    index = rb".{%d}[\0-\x%02x]\0{%d}" % (free, highest >> 8 * free, 3 - free)
    opcodes = (
        rb"[\x8cCU\x8a](?:%s)\x94?+" % short,  # SHORT_BINUNICODE, SHORT_BINBYTES, SHORT_BINSTRING, LONG1
        rb"[hKq].",  # BINGET, BININT1, BINPUT
        rb"[jJ].{4}",  # LONG_BINGET, BININT
        rb"M..",  # BININT2
        rb"[XBT](?:%s)" % long,  # BINUNICODE, BINBYTES, BINSTRING
        rb"r%s" % index,  # LONG_BINPUT
        rb"[N\x88\x89)(01aeb\x94\x93]",  # constants, marks, POP, APPEND, APPENDS, BUILD, MEMOIZE, STACK_GLOBAL
        rb"G.{8}",  # BINFLOAT
        rb"c[^\n]{1,200}+\n[^\n]{1,200}+\n",  # GLOBAL
    )
    return re.compile(rb"(?:%s)*+" % b"|".join(opcodes), re.DOTALL)


def _without_calls(data: bytes, name: str) -> _Program:
    """Write the program `data` anew, checking every opcode and every length."""
    program = _Program(bytearray(data[:2]), [])
    view = memoryview(data)
    most = max(_LISTS_AT_LEAST, len(data) // _BYTES_TO_A_LIST)
    plain = _plain(min(max(255, len(data) // 3), 0xFFFFFFFF))  # what is put away takes three bytes or more
    at, made = 2, 0
    while True:
        run = plain.match(data, at)
        end = run.end() if run else at
        program.code.extend(view[at:end])
        at = end
        opcode = data[at] if at < len(data) else None
        if opcode in _IN_PLACE:
            program.code.extend(_IN_PLACE[opcode])
            at, made = at + 1, made + len(_IN_PLACE[opcode])
            if made > most:
                raise InputError(f"{name}, byte {at:,}: it holds more lists than gensim writes.", SAVE_AGAIN)
        elif opcode == _STOP:
            program.code.extend(b".")
            return program
        else:
            at = _long(data, at, program, name)


def _long(data: bytes, at: int, program: _Program, name: str) -> int:
    """Write anew the opcode at `at`, which a length follows, and return where the next one is."""
    opcode = data[at] if at < len(data) else _STOP
    width = _TEXT.get(opcode) or _BYTES.get(opcode) or (8 if opcode == _FRAME else 0)
    start = at + 1 + width
    if not width or start > len(data):
        raise _refused(data, at, name)
    length = int.from_bytes(data[at + 1 : start], "little")
    if length > len(data) - start:
        claim = f"it claims that {length:,} bytes follow; the file has {len(data):,} in all"
        raise InputError(f"{name}, byte {at:,}: {claim}.", "Copy or download the file again.")
    if opcode == _FRAME:  # only says what to read at once
        return start
    if opcode in _TEXT:
        program.code.extend(memoryview(data)[at : start + length])
    else:
        program.code.extend(b"J" + struct.pack("<i", len(program.parts)) + b"Q")  # BININT, BINPERSID
        program.parts.append(_Part(start, start + length))
    return start + length


def _refused(data: bytes, at: int, name: str) -> InputError:
    where = f"{name}, byte {at:,}"
    if at >= len(data):
        return InputError(f"{where}: the file ends too early.", "Copy or download the file again.")
    opcode = data[at]
    if opcode in _ELSEWHERE:
        return InputError(f"{where}: it {_ELSEWHERE[opcode]}.", SAVE_AGAIN)
    if opcode in _SOUND:
        return InputError(f"{where}: the file is damaged or cut short.", "Copy or download the file again.")
    return InputError(f"{where}: gensim never writes the opcode 0x{opcode:02x}.", SAVE_AGAIN)


# What stands in for its objects -----------------------------------------------------------------------------


class _Name(str):
    """The full name of a function or class, which nobody looks up."""

    __slots__ = ()


class _Made:
    """What a function or class would have made of `args`, and the state that it would have been given."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: _Name, args: object) -> None:
        self.name, self.args = name, args
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def append(self, item: object) -> None:
        """Drop an item of a list or a dict of some special kind: no field that matters is one."""

    extend = append


_BUILTINS = (
    "set frozenset object int long float complex bool str unicode bytes bytearray list dict tuple hash"
)
_OLD = "BaseKeyedVectors WordEmbeddingsKeyedVectors Word2VecKeyedVectors EuclideanKeyedVectors Doc2VecKeyedVectors"
# Everything that gensim's files mention, of any version.
_NAMES = {
    "gensim.models.keyedvectors": f"KeyedVectors {_OLD} FastTextKeyedVectors PoincareKeyedVectors"
    " Vocab CompatVocab SimpleVocab",
    "gensim.models.word2vec": "Word2Vec Word2VecVocab Word2VecTrainables Vocab Heapitem",
    "gensim.models.fasttext": "FastText FastTextKeyedVectors FastTextVocab FastTextTrainables",
    "gensim.models.wrappers.fasttext": "FastText FastTextKeyedVectors",
    "gensim.models.doc2vec": "Doc2Vec Doc2VecVocab Doc2VecTrainables Doctag DocvecsArray",
    "gensim.models.poincare": "PoincareKeyedVectors",
    "gensim.models.callbacks": "CallbackAny2Vec",
    "gensim.utils": "call_on_class_only",
    **dict.fromkeys(("numpy._core.multiarray", "numpy.core.multiarray"), "_reconstruct scalar"),
    **dict.fromkeys(("numpy._core.numeric", "numpy.core.numeric"), "_frombuffer"),
    **dict.fromkeys(("numpy._core.memmap", "numpy.core.memmap"), "memmap"),
    "numpy": "ndarray dtype memmap float16 float32 float64 int32 int64 uint32 uint64 bool_",
    "numpy.random": "__RandomState_ctor",
    "numpy.random._pickle": "__randomstate_ctor __bit_generator_ctor __generator_ctor",
    "numpy.random._mt19937": "MT19937",
    "numpy.random._pcg64": "PCG64",
    "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
    "collections": "OrderedDict defaultdict Counter",
    **dict.fromkeys(("builtins", "__builtin__"), _BUILTINS),
    **dict.fromkeys(("copyreg", "copy_reg"), "_reconstructor"),
    "_codecs": "encode",
}
_KNOWN = {(module, n): _Name(f"{module}.{n}") for module, names in _NAMES.items() for n in names.split()}


class _Inert(pickle.Unpickler):
    """Runs a program without calls: names stay names, and what would be made of them is a _Made."""

    def __init__(self, program: _Program, name: str) -> None:
        # latin1 is how gensim itself reads the text of Python 2; a buffered reader is what is fast here.
        super().__init__(io.BufferedReader(io.BytesIO(program.code), 1 << 17), encoding="latin1")
        self._parts = program.parts
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> _Name:
        """Return the name, where gensim's files have it; refuse it where not."""
        known = _KNOWN.get((module_name, global_name))
        if known is None:
            full = visible(f"{module_name[:200]}.{global_name[:200]}")
            raise InputError(f"{self._name} holds code: {full}.", NEVER_RUN)
        return known

    def persistent_load(self, pid: object) -> _Part | _Made:
        """Return the part of that number, or hold a name with its arguments."""
        if isinstance(pid, int):
            return self._parts[pid]
        if isinstance(pid, tuple) and isinstance(pid[0], _Name):
            return _Made(pid[0], pid[1])
        raise InputError(f"{self._name} is damaged: it calls what is no function.", SAVE_AGAIN)


def _unpickled(data: bytes, name: str) -> object:
    try:
        return _Inert(_without_calls(data, name), name).load()
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle fails in a dozen ways
        reason = visible(str(error)[:200]).rstrip(".")
        raise InputError(f"{name} is damaged: {reason}.", "Copy or download the file again.") from None


# What the objects hold --------------------------------------------------------------------------------------

_MOST_FIELDS = 10_000
_WORDS = ("index_to_key", "index2word", "index2entity")
_VECTORS = ("vectors", "syn0")
_BYTES_OF_A_WORD = 3  # that a file spends on a word besides its letters, at least


class _Saved(NamedTuple):
    """The fields of a saved object, what the files beside it are called up to the field, its name and its file."""

    fields: dict[str, object]
    prefix: str
    name: str
    data: bytes


def _fields(made: object) -> dict[str, object]:
    """Return the fields of an object: its state, where keys and values take turns or come as pairs."""
    state = made.state if isinstance(made, _Made) else None
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
    """Return the short name of an object's class."""
    name: object = made.name if isinstance(made, _Made) else ""
    if isinstance(made, _Made) and str(name).endswith("._reconstructor"):
        name = made.args[0] if isinstance(made.args, tuple) and made.args else ""
    return str(name).rpartition(".")[2] if isinstance(name, _Name) else ""


def _words(saved: _Saved) -> list[bytes]:
    name, words = saved.name, next((saved.fields[field] for field in _WORDS if field in saved.fields), None)
    if not isinstance(words, list):
        raise InputError(f"{name} holds no word vectors: it has no list of words.", SAVE_AGAIN)
    if not words:
        raise InputError(f"{name} holds no words.", "Give vectors of one word at least.")
    if set(map(type, words)) != {str}:
        words = [_key(word, row, name) for row, word in enumerate(words)]
    # The same word can stand in a list a million times and in the file once: count before they are copied.
    if sum(map(len, words)) + _BYTES_OF_A_WORD * len(words) > len(saved.data):
        raise InputError(f"{name}: its list of words repeats them and is larger than the file.", SAVE_AGAIN)
    found = [word.encode("utf-8", "surrogatepass") for word in words]
    longest = max(found, key=len)
    if len(longest) > LONGEST_WORD:
        told = f"word {found.index(longest):,} has {len(longest):,} bytes; the most is {LONGEST_WORD:,}"
        raise InputError(f"{name}: {told}.", SAVE_AGAIN)
    return found


def _key(word: object, row: int, name: str) -> str:
    """Return a word as text; gensim takes whole numbers for words too."""
    if isinstance(word, str):
        return word
    if type(word) is int and -(1 << 63) <= word < 1 << 64:
        return str(word)
    if word is None:
        hint = "gensim leaves such holes after a word that came twice: remove doubles and save it again."
        raise InputError(f"{name}: word {row:,} is missing (None).", hint)
    raise InputError(f"{name}: word {row:,} is neither text nor a whole number.", SAVE_AGAIN)


def _vectors(saved: _Saved, words: list[bytes]) -> tuple[str | None, Array | None]:
    """Return the path of the vectors' own file, or the vectors."""
    for field in _VECTORS:
        if saved.fields.get(field) is not None:
            return None, _array(saved.fields[field], saved)
        if _apart(saved, field):
            return _beside(saved, field), None
    if "vectors_vocab" in saved.fields or _apart(saved, "vectors_vocab"):
        return None, _composed(saved, words)
    raise InputError(f"{saved.name} holds words but no vectors.", SAVE_AGAIN)


def _apart(saved: _Saved, field: str) -> bool:
    """Tell whether gensim stored an array in a file of its own."""
    names = saved.fields.get("__numpys")
    return isinstance(names, list) and field in names[:_MOST_FIELDS]


def _beside(saved: _Saved, field: str) -> str:
    """Return the path of the file that holds the array `field`."""
    path = f"{saved.prefix}.{field}.npy"
    shown = visible(path)
    if os.path.isfile(path):
        regular(path)
        return path
    for packed in ("", ".gz", ".bz2"):
        if os.path.isfile(other := f"{saved.prefix}{packed}.{field}.npz"):
            raise InputError(f"{visible(other)} is compressed, which attn does not unpack.", SAVE_AGAIN)
    raise FileError(
        f"{shown} is missing: it holds the vectors of {saved.name} and belongs beside it.",
        "gensim saves both together: copy both, and rename neither.",
    )


# Arrays -----------------------------------------------------------------------------------------------------

_FLOATS = {"f2", "f4", "f8"}


def _array(made: object, saved: _Saved) -> Array:
    """Return the two-dimensional array of floats that numpy would have made."""
    name = saved.name
    unsound = InputError(f"{name}: its vectors are no sound array of decimal numbers.", SAVE_AGAIN)
    if not isinstance(made, _Made):
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
    claimed = math.prod(shape) * code.itemsize
    if claimed != len(numbers):
        raise InputError(
            f"{name}: its vectors claim {claimed:,} bytes; there are {len(numbers):,}.", SAVE_AGAIN
        )
    array: Array = np.frombuffer(numbers, code).reshape(shape, order="F" if order == "F" else "C")
    return array


def _dtype(made: object) -> np.dtype[np.floating] | None:
    """Return the type of numbers that numpy would have made, if it is one of floats."""
    if not isinstance(made, _Made) or made.name != "numpy.dtype":
        return None
    code = made.args[0] if isinstance(made.args, tuple) and made.args else None
    order = made.state[1] if isinstance(made.state, tuple) and len(made.state) > 1 else "<"
    if not isinstance(code, str) or not isinstance(order, str) or code.lstrip("<>=|") not in _FLOATS:
        return None
    big = order == ">" or code[0] == ">"
    return np.dtype((">" if big else "<") + code[-2:])


def _raw(held: object, data: bytes) -> bytes | memoryview | None:
    """Return an array's bytes, which protocol 2 and Python 2 write as text of one character a byte."""
    if isinstance(held, _Part):
        return memoryview(data)[held.start : held.stop]
    if isinstance(held, _Made) and held.name == "_codecs.encode":
        held = held.args[0] if isinstance(held.args, tuple) and held.args else None
    if isinstance(held, str):
        try:
            return held.encode("latin1")
        except UnicodeEncodeError:
            return None
    return held if isinstance(held, bytes) else None


# FastText, whose words' vectors gensim leaves out -----------------------------------------------------------

_BLOCK = 1 << 22  # numbers, or bytes of text, that are worked on at once
_MOST_WORK = 100  # additions to a byte of the file
_HASHING = 16  # additions that the hashing of one n-gram takes the time of


def _composed(saved: _Saved, words: list[bytes]) -> Array:
    """Return the vectors of FastText's words: the mean of a word's own vector and those of its n-grams.

    That is FastTextKeyedVectors.adjust_vectors of gensim 4.
    """
    own = _own_array(saved, "vectors_vocab")
    bucket, least, most = (saved.fields.get(field) for field in ("bucket", "min_n", "max_n"))
    if bucket == 0 or len(own) != len(words):
        return own
    grams = _own_array(saved, "vectors_ngrams")
    if not isinstance(bucket, int) or not isinstance(least, int) or not isinstance(most, int):
        raise InputError(f"{saved.name}: it does not say how long its n-grams are.", SAVE_AGAIN)
    if saved.fields.get("compatible_hash") is not True:
        raise InputError(
            f"{saved.name} is of a gensim before 3.8, which hashed n-grams otherwise.", SAVE_AGAIN
        )
    if grams.shape != (bucket, own.shape[1]) or bucket >= 1 << 32:
        raise InputError(f"{saved.name}: its n-grams' vectors do not fit its words'.", SAVE_AGAIN)
    letters = sum(map(len, words))
    work = letters * min(most, LONGEST_WORD) * (own.shape[1] + _HASHING)
    if work > (letters + own.nbytes + grams.nbytes) * _MOST_WORK + _BLOCK:
        raise InputError(f"{saved.name}: its words have too many n-grams.", SAVE_AGAIN)
    with np.errstate(all="ignore"):  # whoever uses a vector checks that it is finite
        return _means(own, grams, words, (max(least, 1), most))


def _means(own: Array, grams: Array, words: list[bytes], lengths: tuple[int, int]) -> Array:
    vectors = own.astype(np.float32)
    for first, last in _blocks(words):
        part = vectors[first:last]
        counts = np.ones(len(part), np.float32)
        for owner, row in _ngrams(words[first:last], *lengths, len(grams)):
            counts += np.bincount(owner, minlength=len(part)).astype(np.float32)
            _add(part, owner, grams, row)
        part /= counts[:, None]
    return vectors


def _own_array(saved: _Saved, field: str) -> Array:
    if field in saved.fields or not _apart(saved, field):
        return _array(saved.fields.get(field), saved)
    array = read_npy(path := _beside(saved, field))
    if array.ndim != 2 or array.dtype.kind != "f" or array.size == 0:
        raise InputError(f"{visible(path)} is not an array (rows, numbers) of decimal numbers.", SAVE_AGAIN)
    return array


def _blocks(words: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the first and last row, exclusive, of blocks of words with about a _BLOCK of bytes each."""
    ends = np.cumsum([len(word) + 2 for word in words])
    first = 0
    while first < len(words):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        yield first, last
        first = last


def _ngrams(words: list[bytes], least: int, most: int, bucket: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield, for each length from `least` to `most`, the n-grams of that length: each one's word and bucket.

    The n-grams are those of fastText (Bojanowski et al., 2017): characters of the word in angle brackets, hashed
    with FNV-1a, whose bytes fastText takes for signed numbers.
    """
    text = np.frombuffer(b"".join(b"<" + word + b">" for word in words), np.uint8)
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero((text & 0xC0) != 0x80)  # of characters
    ends = np.append(starts[1:], len(text))
    word_of = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    hashes = np.full(len(starts), 2166136261, np.uint32)
    at = np.arange(len(starts))  # the characters that n-grams start with
    for length in range(1, most + 1):
        at = at[at + length <= len(starts)]
        at = at[word_of[at] == word_of[at + length - 1]]
        if not len(at):
            return
        for step in range(4):  # bytes of the last character
            byte = starts[at + length - 1] + step
            more = byte < ends[at + length - 1]
            hashes[at[more]] = (hashes[at[more]] ^ signed[byte[more]]) * np.uint32(16777619)
        found = at if length > 1 else _inner(word_of)
        if length >= least:
            yield word_of[found], (hashes[found] % np.uint32(bucket)).astype(np.intp)


def _inner(word_of: Ints) -> Ints:
    """Return the characters between a word's brackets: a bracket alone is no n-gram."""
    same = word_of[1:] == word_of[:-1]
    inner: Ints = np.flatnonzero(same[1:] & same[:-1]) + 1
    return inner


def _add(vectors: Array, owner: Ints, table: Array, rows: Ints) -> None:
    """Add to the vector of each owner, which ascend, the row of the table that stands beside it."""
    step = max(1, _BLOCK // table.shape[1])
    for start in range(0, len(rows), step):
        owners = owner[start : start + step]
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        vectors[owners[first]] += np.add.reduceat(table[rows[start : start + step]], first, axis=0)
