"""A safe unpickler: it reads a pickle without calling, importing or hashing anything in it.

A pickle is a program for a stack machine. One pass over its opcodes checks every length against the file and rewrites
the program so that it calls and hashes nothing: dicts and sets become lists, a call becomes the pair (name, arguments),
long bytes stay in the file. The standard unpickler then runs the rewritten program, with inert stand-ins for names and
calls. Deeply nested objects are never walked.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from typing import NamedTuple

from attn_cli.errors import AttnError, InputError, visible

SAVE_AGAIN = "Save it again with KeyedVectors.save_word2vec_format('vectors.bin', binary=True)."
NEVER_RUN = f"attn never runs it. {SAVE_AGAIN}"

_FRAME, _STOP = 0x95, ord(".")
# What replaces an opcode: dicts and sets become lists (some keys would take forever to hash), and a call becomes
# persistent_load((name, arguments)), which only stores them.
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


class _Program(NamedTuple):
    """A pickle without calls, and where the long bytes stand in the file that it refers to by number."""

    code: bytearray
    parts: list[slice]


def _plain(highest: int) -> re.Pattern[bytes]:
    """Return a pattern of short opcodes that need no change, memo indexes up to `highest`: a loop is far slower."""
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
    program = _Program(bytearray(data[:2]), [])
    view = memoryview(data)
    # A list or a call costs up to a hundred bytes of memory and as little as one of the file: there must be no more
    # than one to five bytes of it. gensim writes no more than one to nine.
    most = max(1000, len(data) // 5)
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
    """Rewrite the opcode at `at`, which a length follows, and return the offset of the next one."""
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
        program.parts.append(slice(start, start + length))
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


class Name(str):
    """The full name of a function or class, never looked up."""

    __slots__ = ()


class StandIn:
    """Stands for the result of calling `name` with `args`, and holds the state that it would get."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: Name, args: object) -> None:
        self.name, self.args = name, args
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    @property
    def first(self) -> object:
        """The first argument, where there is one."""
        return self.args[0] if isinstance(self.args, tuple) and self.args else None

    def append(self, item: object) -> None:
        """Drop an item of a special list or dict: no field that matters is one."""

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
_KNOWN = {(module, n): Name(f"{module}.{n}") for module, names in _NAMES.items() for n in names.split()}


class _SafeUnpickler(pickle.Unpickler):
    """Runs a program without calls: names stay names, and objects become StandIns."""

    def __init__(self, program: _Program, name: str) -> None:
        # latin1 is how gensim itself reads the text of Python 2; a buffered reader is what is fast here.
        super().__init__(io.BufferedReader(io.BytesIO(program.code), 1 << 17), encoding="latin1")
        self._parts = program.parts
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> Name:
        """Return the name if gensim's files use it; InputError if not."""
        known = _KNOWN.get((module_name, global_name))
        if known is None:
            full = visible(f"{module_name[:200]}.{global_name[:200]}")
            raise InputError(f"{self._name} holds code: {full}.", NEVER_RUN)
        return known

    def persistent_load(self, pid: object) -> slice | StandIn:
        """Return where the bytes of that number stand, or a stand-in for a call."""
        if isinstance(pid, int):
            return self._parts[pid]
        if isinstance(pid, tuple) and isinstance(pid[0], Name):
            return StandIn(pid[0], pid[1])
        raise InputError(f"{self._name} is damaged: it calls what is not a function.", SAVE_AGAIN)


def safe_unpickle(data: bytes, name: str) -> object:
    """Return what a pickle holds, in stand-ins; InputError where it is damaged or holds code."""
    try:
        return _SafeUnpickler(_without_calls(data, name), name).load()
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle fails in a dozen ways
        reason = visible(str(error)[:200])
        raise InputError(f"{name} is damaged: {reason}.", "Copy or download the file again.") from None
