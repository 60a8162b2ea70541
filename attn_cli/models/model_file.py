"""Learned models as files: safetensors, every shape checked, bound to the word vectors they were learned on.

A file may hold matrices in half the bytes: a row's numbers are whole numbers of eight bits times one power of two. This
is block floating point (Wilkinson 1963, "Rounding Errors in Algebraic Processes") with one block per row. Because the
factor is a power of two, what is dequantized is exact in float16, and is quantized to the same bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

import numpy as np

from attn_cli.core.heads import HeadWeights, Position
from attn_cli.errors import InputError, UsageError, did_you_mean, visible
from attn_cli.io import array_files, files
from attn_cli.io.types import Array, Arrays, NamedTuple, NDArray
from attn_cli.models.encoder import EncoderLayer, EncoderStack, Norm, read_word_layer
from attn_cli.models.projection import Projection, likeness
from attn_cli.settings import LIKENESS, USUAL, Settings, leaves_projection_open
from attn_cli.trace import Learned, Projected
from attn_cli.vectors.spelling import SpellingFeatures

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given

FORMAT = "attn-model/1"
BUNDLED = ("roles", "roles-deep", "language")
MOST_LAYERS = 100
CASES = "words.case"  # the array that says which words have capitals
EXPONENTS = ".exponents"  # what the name of a matrix ends with where its rows' exponents are
FEWEST = 1000  # numbers in a matrix that is quantized
MOST = 127  # of a row, the largest number
LEAST_EXPONENT, MOST_EXPONENT = -24, 9  # of float16: from its least number above zero, to 127 * 2^9
MAX_PARAMETER = 1e6  # far beyond learned weights, and far below where products overflow
TAKEN = ("all", "mean")  # --head gives these names another meaning


def load_model(settings: Settings) -> EncoderStack | None:
    """Return the learned model that these settings name, or mean by naming nothing; None for none."""
    name = settings.projection
    if leaves_projection_open(settings):
        name = USUAL.projection
    is_named = name in (*BUNDLED, LIKENESS)
    if name is None or not (is_named or (files.looks_like_file(name) and is_model(name))):
        return None
    if settings.heads is not None:
        said = f"{visible(name)} has heads of its own: --heads splits identity, random or given weights."
        raise UsageError(said, "Leave out --heads; --head all shows the model's heads.", "--heads")
    return None if name == LIKENESS else bundled(name) if is_named else read_model(name)


def read_weights(settings: Settings) -> Given | None:
    """Return the matrices in the file that --projection names; None where it names none."""
    name = settings.projection
    if name == LIKENESS and settings.embedding not in (None, "word2vec"):
        said = f"{name} was made for the vectors word2vec and fits no others"
        hint = "Leave out -e, or choose another projection (-p identity)."
        raise UsageError(f"{said}; these are {visible(settings.embedding)}.", hint, "--projection")
    if name in (None, LIKENESS, "identity", "random"):
        return None
    assert name is not None
    if not files.looks_like_file(name):
        names = (*BUNDLED, LIKENESS, "identity", "random")
        hint = f"Projections are {', '.join(names)}, or a file (with a slash or a suffix such as .json)."
        said = f"There is no projection {visible(name)!r}."
        raise UsageError(said, did_you_mean(name, names) + hint, "--projection")
    from attn_cli.inputs.matrices import read_given  # only those who give a file need it

    return read_given(name)


def open_likeness(dim: int) -> tuple[Projection, Learned]:
    """Return the bundled projection likeness, and what is known of its head; `dim` is that of the vectors."""
    arrays, about = array_files.read_safetensors(files.data_path(f"{LIKENESS}.safetensors"))
    if dim != len(U := arrays["U"]):
        said = f"{LIKENESS} takes vectors of {len(U)} numbers; these have {dim}."
        raise InputError(said, "Choose another projection (-p identity).")
    facts = json.loads(about["facts"])
    return likeness(U), Learned(**facts | {"trained_on": tuple(facts["trained_on"])})


def named(model: str) -> EncoderStack:
    """Return a bundled model by its name, or the one in a file."""
    if model in BUNDLED:
        return bundled(model)
    if not files.looks_like_file(model):
        hint = f"Choose {', '.join(BUNDLED)}, or a file (with a slash or a suffix such as .safetensors)."
        raise UsageError(f"There is no model {visible(model)!r}.", did_you_mean(model, BUNDLED) + hint)
    if not array_files.is_safetensors(files.first_bytes(model)):
        raise InputError(f"{visible(model)} is not a learned model.", "Make one with attn learn train.")
    return read_model(model)


def bundled(name: str) -> EncoderStack:
    """Return a model that comes with the program: roles (one layer), roles-deep or language."""
    return read_model(str(files.data_path(f"{name}.safetensors")), name)


def is_model(path: str) -> bool:
    """Tell whether a file is a learned model (and not bare matrices)."""
    if not array_files.is_safetensors(files.first_bytes(path)):
        return False
    with files.regular(path).open("rb") as file:
        return array_files.safetensors_entries(file, visible(path), bfloat16=True)[1].get("format") == FORMAT


def read_model(path: str, name: str | None = None) -> EncoderStack:
    """Read a model that `attn learn train` wrote; raise InputError where an array is missing or misshapen."""
    arrays, about = model_arrays(path)
    shown = name or visible(path)
    if about.get("format") != FORMAT:
        raise InputError(f"{shown} is not a learned model.", "Make one with attn learn train.")
    return _Reader(arrays, about, shown).stack()


def model_arrays(path: str) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a model's file, numbers of eight bits widened, and its metadata."""
    arrays, about = array_files.read_safetensors(path)
    return dequantized(arrays), about


class _Reader(NamedTuple):
    """The contents of one file, checked while they are taken out."""

    arrays: Arrays
    about: Mapping[str, object]
    name: str

    def stack(self) -> EncoderStack:
        facts = self.parsed("facts")
        if not isinstance(facts, dict):
            raise self.unsound("its facts are not an object")
        heads = self.distinct(self.parsed("heads"), "heads")
        layers = next((n for n in range(MOST_LAYERS) if f"{n}.W_q" not in self.arrays), MOST_LAYERS)
        beyond = {key.partition(".")[0] for key in self.arrays} - {str(n) for n in range(layers)}
        if not layers or any(map(str.isdecimal, beyond)):
            raise self.unsound(f"it has no {layers}.W_q")
        if set(heads) & set(TAKEN):
            raise self.unsound("none of its heads can be called all or mean")
        W_in, d = self.maybe("in.W", 2), self.take("0.W_q", 3).shape[1]
        b_in = None if W_in is None else self.take("in.b", 1, d=W_in.shape[1])
        if W_in is not None and W_in.shape[1] != d:
            raise self.unsound(f"in.W makes {W_in.shape[1]} numbers a word, and layer 0 takes {d}")
        words, dim = self.words("start.names"), d if W_in is None else W_in.shape[0]
        if not words and self.arrays.get("start.vectors") is not None:
            raise self.unsound("its start.vectors have no names")
        vectors = self.take("start.vectors", 2, features=len(words), dim=dim) if words else np.zeros((0, dim))
        numbered = {word: n for n, word in enumerate(words)}
        start = SpellingFeatures(numbered, vectors, self.about.get("start") == "always")
        below = facts.get("names_below")
        if below is not None and (not isinstance(below, list) or len(below) != layers - 1):
            raise self.unsound(f"its names_below are not those of {layers - 1} layers")
        lower = (
            [None] * (layers - 1) if below is None else [self.distinct(one, "names_below") for one in below]
        )
        scores_words = "out.W" in self.arrays
        whole = [*lower, heads] if scores_words else lower
        encoders = tuple(self.encoder(n, d, names) for n, names in enumerate(whole))
        last = encoders[-1].attention if scores_words else self.attention(layers - 1, d, heads)
        scored = read_word_layer(self.take, d, words, vectors, self.cases()) if scores_words else None
        vectors_are = str(self.about.get("vectors")), str(self.about.get("fingerprint"))
        return EncoderStack(self.name, *vectors_are, start, W_in, b_in, encoders, last, facts, scored)

    def encoder(self, n: int, d: int, names: list[str] | None) -> EncoderLayer:
        """Return layer n, one below the last or a language model's last."""
        attention = self.attention(n, d, names, joined=True)
        vectors = [[self.take(f"{n}.{of}_{k}", 1, d=d) for of in ("gain", "shift")] for k in (1, 2)]
        norm_1, norm_2 = (Norm(gain, shift) for gain, shift in vectors)
        W_1 = self.take(f"{n}.W_1", 2, d=d)
        b_1, wide = self.take(f"{n}.b_1", 1, wide=W_1.shape[1]), W_1.shape[1]
        W_2, b_2 = self.take(f"{n}.W_2", 2, wide=wide, d=d), self.take(f"{n}.b_2", 1, d=d)
        return EncoderLayer(attention, norm_1, W_1, b_1, W_2, b_2, norm_2)

    def attention(self, n: int, d: int, names: list[str] | None, joined: bool = False) -> Projection:
        """Return the heads of layer n; without names they are numbered. Those of most layers are joined by W_o."""
        heads, _, d_k = self.take(f"{n}.W_q", 3).shape
        if names is not None and len(names) != heads:
            raise self.unsound(f"it names {len(names)} heads and has {heads}")
        W_q, W_k = (self.take(f"{n}.{W}", 3, heads=heads, d=d, d_k=d_k) for W in ("W_q", "W_k"))
        b_q, b_k = (self.take(f"{n}.{b}", 2, heads=heads, d_k=d_k) for b in ("b_q", "b_k"))
        R = self.take(f"{n}.R", 3, heads=heads)
        if R.shape[2] != d_k or R.shape[1] % 2 == 0:
            raise self.unsound(f"{n}.R has shape {R.shape}: it needs an odd number of rows of {d_k}")
        b = self.take(f"{n}.b", 2, heads=heads, distances=R.shape[1])
        W_o = b_o = None
        values: list[tuple[Array, Array | None]] = [(np.eye(d), None)] * heads
        if joined:
            W_v = self.take(f"{n}.W_v", 3, heads=heads, d=d)
            b_v = self.take(f"{n}.b_v", 2, heads=heads, d_v=W_v.shape[2])
            W_o = self.take(f"{n}.W_o", 2, joined=heads * W_v.shape[2], d=d)
            b_o = self.take(f"{n}.b_o", 1, d=d)
            values = [*zip(W_v, b_v, strict=True)]
        elif self.maybe(f"{n}.W_v", 2) is not None:
            shared = self.take(f"{n}.W_v", 2, d=d)
            values = [(shared, self.take(f"{n}.b_v", 1, d_v=shared.shape[1]))] * heads
        labels, positions = names or map(str, range(heads)), map(Position, R, b)
        each = zip(labels, W_q, W_k, values, b_q, b_k, positions, strict=True)
        made = (HeadWeights(one, q, k, v, c_q, c_k, c_v, at) for one, q, k, (v, c_v), c_q, c_k, at in each)
        return Projection(Projected("learned", self.name, "in-out", None, n), tuple(made), W_o, b_o)

    def take(self, key: str, axes: int, **sizes: int) -> Array:
        """Return an array, as it stands in the file; its first axes must have these sizes, in order."""
        found = self.maybe(key, axes)
        if found is None:
            raise self.unsound(f"it has no {key}")
        wanted = tuple(sizes.values())
        if found.shape[: len(wanted)] != wanted:
            raise self.unsound(f"{key} has shape {found.shape}, where ({', '.join(sizes)}) is {wanted}")
        return found

    def maybe(self, key: str, axes: int) -> Array | None:
        """Return an array with so many axes, or None where there is none."""
        found = self.arrays.get(key)
        if found is None:
            return None
        if found.ndim != axes or found.dtype.kind != "f" or 0 in found.shape:
            raise self.unsound(f"{key} has shape {found.shape} and type {found.dtype}")
        largest = _largest(found)
        if not np.isfinite(largest):
            raise self.unsound(f"{key} holds NaN or infinity")
        if largest > MAX_PARAMETER:
            raise self.unsound(f"{key} holds numbers beyond a million")
        return found

    def cases(self) -> Array | None:
        """Return two rows of bits, which say how words are written; a file may have none."""
        found = self.arrays.get(CASES)
        if found is not None and (found.ndim != 2 or len(found) != 2 or found.dtype != np.uint8):
            raise self.unsound(f"{CASES} has shape {found.shape} and type {found.dtype}")
        return found

    def words(self, key: str) -> list[str]:
        """Return the words of an array of UTF-8 bytes, one a line."""
        found = self.arrays.get(key)
        if found is None or found.ndim != 1 or found.dtype != np.uint8:
            raise self.unsound(f"it has no {key}, or not as bytes")
        return found.tobytes().decode("utf-8", "replace").split("\n") if found.size else []

    def distinct(self, found: object, key: str) -> list[str]:
        """Return what should be a list of distinct names."""
        if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
            raise self.unsound(f"its {key} are not a list of names")
        if len(set(found)) != len(found):
            raise self.unsound(f"a name stands twice among its {key}")
        return found

    def parsed(self, key: str) -> object:
        """Return what a piece of metadata says as JSON."""
        try:
            return json.loads(str(self.about.get(key, "null")))
        except (ValueError, RecursionError):
            return None

    def unsound(self, why: str) -> InputError:
        return InputError(f"{self.name} is not a sound model: {why}.", "Make one with attn learn train.")


def _largest(found: Array) -> float:
    """Return the largest absolute number, also NaN or infinity; of halves, which are small, only these."""
    if found.dtype == np.dtype("<f2") and found.flags.c_contiguous:  # by their bits, in a tenth of the time
        return 0.0 if ((found.view("<u2") & 0x7C00) != 0x7C00).all() else np.inf
    return max(float(found.max()), -float(found.min()))


def write_model(
    stream: IO[bytes], arrays: Arrays, vectors: str, fingerprint: str, always: bool,
    heads: list[str], facts: Mapping[str, object],
) -> None:  # fmt: skip
    """Write a model as read_model reads it; `arrays` bear the names that this module's reader gives them."""
    about = {
        "format": FORMAT, "vectors": vectors, "fingerprint": fingerprint, "heads": json.dumps(heads),
        "start": "always" if always else "unknown", "facts": json.dumps(facts),
    }  # fmt: skip
    array_files.write_safetensors(stream, arrays, about)


def in_bits(arrays: Arrays, bits: str) -> Arrays:
    """Return a model's arrays as its file is to hold them: in float16, or with `bits` 8 their matrices quantized."""
    halves: Arrays = {name: np.ascontiguousarray(value, dtype=np.float16) for name, value in arrays.items()}
    return quantized(halves) if bits == "8" else halves


def quantized(arrays: Arrays) -> Arrays:
    """Return a model's arrays with its matrices of float16, (..., rows, columns), as int8 and exponents (..., rows).

    A number is off by at most a 127th of the largest in its row.
    """
    found: Arrays = {}
    for name, value in arrays.items():
        is_matrix = value.dtype == np.float16 and value.ndim > 1 and value.size >= FEWEST
        if is_matrix and np.isfinite(value).all():
            found |= dict(zip((name, name + EXPONENTS), _quantized(value), strict=True))
        else:
            found[name] = value
    return found


def _quantized(matrix: Array) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return whole numbers up to MOST, and what power of two each row's are to be multiplied by.

    >>> numbers, exponents = _quantized(np.array([[1.0, -2.0, 0.3], [0, 0, 0]]))
    >>> numbers.tolist(), exponents.tolist()
    ([[32, -64, 10], [0, 0, 0]], [-5, -24])
    """
    wide = np.asarray(matrix, np.float64)
    largest = np.abs(wide).max(axis=-1)
    with np.errstate(divide="ignore"):
        exponents = np.ceil(np.log2(largest / MOST)).clip(LEAST_EXPONENT, MOST_EXPONENT).astype(np.int8)
    whole = np.rint(wide * np.exp2(-exponents.astype(float))[..., np.newaxis])
    clipped = whole.clip(-MOST, MOST)  # 65,504 = 127.9 * 2^9 is the one that is too large
    return clipped.astype(np.int8), exponents


def dequantized(arrays: Arrays) -> Arrays:
    """Return a model's arrays with its int8 matrices as float32; what has no fitting exponents stays as it is.

    Their numbers are halves all the same; widening them once here is quicker than each time that they are used.
    """
    found = {name: value for name, value in arrays.items() if not name.endswith(EXPONENTS)}
    fitting: dict[str, Array] = {}
    for name, value in found.items():
        exponents = arrays.get(name + EXPONENTS)
        if exponents is None or value.dtype != np.int8 or exponents.shape != value.shape[:-1]:
            continue
        fits = np.all((exponents >= LEAST_EXPONENT) & (exponents <= MOST_EXPONENT)) and np.all(value >= -MOST)
        if exponents.dtype == np.int8 and fits:
            fitting[name] = exponents
    # A system gives out one large piece of memory in half the time of a hundred pieces.
    room = np.empty(sum(found[name].size for name in fitting), np.float32)
    for name, exponents in fitting.items():
        value = found[name]
        wide, room = room[: value.size].reshape(value.shape), room[value.size :]
        found[name] = np.multiply(value, np.exp2(exponents.astype(np.float32))[..., np.newaxis], out=wide)
    return found
