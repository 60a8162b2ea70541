"""Sound small files of every format, and how each is damaged underneath its checksums."""

import gzip
import io
import json
import lzma
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

import numpy as np

from attn_cli.io.array_files import write_safetensors
from tests.fuzz.mutate import TOKENS, mutated, scratched

WORDS = ("the", "cat", "ü", "dog", "日本語", "x" * 30, "cat's", "in", "I", "zoo", "</s>", "a1")
DOUBLED, FEW = (*WORDS, "cat", "dog", "cat"), ("cat", "ü", "dog")
KNOWN = ("cat", "ü")
ABSENT = "zqabsent"
MAIN = ""

# What a case writes: the file (MAIN), and those beside it by the suffix that is added or put in its place.
Files = Mapping[str, bytes]


def beside(path: Path, suffix: str) -> Path:
    """Return where a case's file lies: the main one, one whose suffix is another, or one whose name is longer."""
    if suffix == MAIN:
        return path
    return Path(f"{path}{suffix[1:]}") if suffix.startswith("+") else path.with_suffix(suffix)


Damage = Callable[[Files, Random], Files]


class Reader(NamedTuple):
    """A format: its name, sound files of it, and what damages one."""

    name: str
    seeds: list[Files]
    damaged: Damage
    share_scaled: float = 0.9


def numbers(count: int, dim: int) -> np.ndarray:
    return np.random.default_rng([0, count, dim]).standard_normal((count, dim)).astype(np.float32)


def text(words: Sequence[str], dim: int, header: bool, end: str = "\n") -> bytes:
    rows = numbers(len(words), dim).astype(float).round(3).tolist()
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True)]
    return "".join(line + end for line in ([f"{len(words)} {dim}"] if header else []) + lines).encode()


def _texts(header: bool, end: str = "\n") -> list[Files]:
    spaced = (*WORDS[:6], "new york", "a 1 b", *WORDS[6:])
    kinds = ((WORDS, 4), (WORDS, 2), (DOUBLED, 3), (spaced, 5), (FEW, 1), (FEW, 8), (WORDS, 1))
    return [{MAIN: text(words, dim, header, end)} for words, dim in kinds]


def _either(*ways: tuple[float, Damage]) -> Damage:
    """Return damage of one of several ways, each with its share of what those before it leave."""

    def damaged(files: Files, rng: Random) -> Files:
        return next(way for share, way in ways if rng.random() < share)(files, rng)

    return damaged


def _any(damage: Callable[[bytes, Random], bytes], share: float = 0) -> Damage:
    """Return what damages the file, or with this share any of those beside it too."""

    def damaged(files: Files, rng: Random) -> Files:
        which = rng.choice(list(files)) if rng.random() < share else MAIN
        return {**files, which: damage(files[which], rng)}

    return damaged


_scratched = _any(scratched, 0.3)  # behind the headers
_plain = _either((0.2, _scratched), (1, _any(lambda data, rng: mutated(data, rng, EVERY), 0.2)))


def _packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Damage:
    return _either((0.5, _plain), (1, _any(lambda data, rng: pack(mutated(unpack(data), rng, EVERY)))))


XZ = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4096}]
gzipped = partial(gzip.compress, compresslevel=1, mtime=0)
xzipped = partial(lzma.compress, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=XZ)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def _matrices() -> list[np.ndarray]:
    matrix = numbers(len(WORDS), 4)
    return [matrix, *map(matrix.astype, ("f8", "f2")), np.asfortranarray(matrix), matrix.astype(">f4")]


def _with_words(found: Iterable[bytes]) -> list[Files]:
    return [{MAIN: data, ".words": "\n".join(WORDS).encode() + b"\n"} for data in found]


def _header_damaged(data: bytes, rng: Random) -> bytes:
    """Damage the literal in a .npy file's header, and say its length truly."""
    (length,) = struct.unpack("<H", data[8:10])
    header = mutated(data[10 : 10 + length].rstrip(), rng, NPY_WORDS) if rng.random() < 0.6 else _literal(rng)
    padded = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    return data[:8] + struct.pack("<H", len(padded) & 0xFFFF) + padded + data[10 + length :]


NPY_WORDS = (b"'descr': '<f4', ", b"'|O'", b"(12, 4)", b"'shape': (48,), ", b"[('a', '<f4')]", b"'|S0'")
_DESCR = ("'<f4'", "'>f4'", "'<f2'", "'<f8'", "'|O'", "'|S0'", "'<U4'", "'<c8'", "'|b1'", "[('a','<f4')]", "'V4'",
          "'<M8[s]'", "('<f4', (2,))", "'<f16'", "None", "0", "'a4'", "[]", "'<i4'", "'f'", "b'<f4'",
          "'4f4'")  # fmt: skip
_SHAPE = ("(12, 4)", "(4, 12)", "(48,)", "()", "(12, 4, 1)", "(-12, 4)", "(12, -4)", "(0, 4)", "(12, 0)", "(True, 48)",
          "(12.0, 4)", "(1 << 40, 4)", "(4294967296, 4294967296)", "12", "None", "(9223372036854775807, 2)",
          "(12, 4, 0)", "(1,)*40", "(12, 2)", "('12', 4)", "(0, 9223372036854775807)", "(12, 18446744073709551616)",
          "(0, 99999999999999999999)", "(0x0c, 4)", "(1_2, 4)")  # fmt: skip


def _literal(rng: Random) -> bytes:
    order = rng.choice(("False", "False", "True", "1", "None"))
    descr, shape = rng.choice(_DESCR), rng.choice(_SHAPE)
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return stream.getvalue()


def _npz_members() -> list[dict[str, bytes]]:
    matrix = npy(numbers(len(WORDS), 4))
    lists = [npy(np.array(WORDS)), npy(np.array([word.encode() for word in WORDS]))]
    return [{"words.npy": words, "vectors.npy": matrix} for words in lists] + [{"a.npy": matrix}]


def _members_damaged(data: bytes, rng: Random) -> bytes:
    members = dict(rng.choice(NPZ_MEMBERS))
    name = rng.choice(list(members))
    damage = rng.choice((_header_damaged, scratched, scratched, mutated))
    members[name] = damage(members[name], rng)
    if rng.random() < 0.1:
        members[rng.choice(("x.npy", "", "../x", "\n.npy", "data.pkl"))] = rng.choice(list(members.values()))
    return zipped(members)


def safetensors(arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    write_safetensors(stream, dict(arrays), about)
    return stream.getvalue()


_ABOUTS: tuple[dict[str, str], ...] = (
    {"format": "attn-vectors/1"},
    {"length": "4.0", "settings": '{"dim": 4}', "corpus": "all"},
    *({"length": length} for length in ("nan", "inf", "-1", "1e999", "x", "0", "1_0", "9" * 400)),
    *({"settings": told} for told in ("NaN", "[1, Infinity]", '"', "[" * 40, '{"a": 1e999}', "1" * 5000, '"\\ud800"')),
    {"doubled": "x"},
    {"format": "text", "doubled": "-1", "\n": "\x1b[2J"},
)  # fmt: skip


def _tables() -> list[Files]:
    block = np.frombuffer("\n".join(WORDS).encode(), np.uint8)
    matrix = numbers(len(WORDS), 4)
    kinds = ((about, kind) for about in _ABOUTS for kind in ("<f4", "<f2")[: 1 + (len(about) > 1)])
    made = (({"vectors": matrix.astype(kind), "words": block}, about) for about, kind in kinds)
    return [{MAIN: safetensors(*one)} for one in made]


def _json_damaged(data: bytes, rng: Random) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length]
    header = mutated(header, rng, JSON_PARTS) if rng.random() < 0.5 else _relabelled(header, rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


_safetensors_damaged = _either((0.4, _scratched), (0.4, _plain), (1, _any(_json_damaged)))
JSON_PARTS = b'"shape":[12,4] "__metadata__":null "dtype":"F64" "data_offsets":[0,192] [[[[ NaN'.split()
_VALUES: tuple[object, ...] = (
    None, True, 0, -1, 1, 12, 4.0, 1e308, 1 << 40, 1 << 64, "", "F32", "BF16", "U8", "x", [], {}, [12, 4], [4, 12],
    [0, 192], [192, 0], [48], [12, 4, 1], [0, 4], [12, 0], [-12, -4], [True, 48], [1 << 40, 1 << 40], [1] * 40, "F16",
    [0, 1 << 47], [1 << 47, 0], "F64", "BOOL", "I8", float("nan"),
)  # fmt: skip


def _relabelled(header: bytes, rng: Random) -> bytes:
    parsed = json.loads(header)
    entry = parsed[rng.choice(list(parsed))]
    kept = parsed if rng.random() < 0.2 or not entry else entry
    kept[rng.choice(list(kept))] = rng.choice(_VALUES)
    return json.dumps(parsed).encode()


def _saved(kind: str, fields: Mapping[str, object], protocol: int = 4, within: str = "") -> bytes:
    """Return an object as gensim pickles it; empty classes stand in the place of gensim's, whose names go into it."""
    names = {"KeyedVectors": "keyedvectors", "FastTextKeyedVectors": "keyedvectors", "Word2Vec": "word2vec"}
    made = {name: types.ModuleType(name) for name in ("gensim", "gensim.models")}
    classes = {}
    for name, module in names.items():
        within_module = made.setdefault(f"gensim.models.{module}", types.ModuleType(module))
        classes[name] = type(name, (), {"__module__": f"gensim.models.{module}"})
        setattr(within_module, name, classes[name])
    saved = classes[kind]()
    saved.__dict__.update(fields)
    if within:
        inner, saved = saved, classes[within]()
        saved.__dict__.update(wv=inner, vector_size=4)
    with mock.patch.dict(sys.modules, made):
        return pickle.dumps(saved, protocol)


def _keyed(matrix: np.ndarray) -> dict[str, object]:
    keys = list(WORDS)
    return {
        "vector_size": 4, "index_to_key": keys, "key_to_index": {key: i for i, key in enumerate(keys)},
        "vectors": matrix, "norms": None, "expandos": {"count": np.arange(len(keys))}, "next_index": 0,
        "mapfile_path": None,
    }  # fmt: skip


def _fast() -> dict[str, object]:
    fields = _keyed(numbers(12, 4))
    del fields["vectors"]
    fields |= {"bucket": 7, "min_n": 2, "max_n": 4, "compatible_hash": True, "__numpys": []}
    fields |= {"vectors_vocab": numbers(12, 4), "vectors_ngrams": numbers(7, 4)}
    return fields | {"__ignoreds": ["vectors"]}


_ODD: tuple[object, ...] = (
    None, True, 0, -1, 1, 7, 12, 1 << 40, 1 << 70, 0.5, float("nan"), "", "vectors", [], {}, (), b"x", ["cat"],
    [1, 2, 3], [None] * 12, ["cat"] * 12, ["", "\n", "a b"] * 4, list(range(12)), [["cat"]] * 12, ["x" * 5000] * 12,
    ["\ud800"] * 12, ["vectors"], numbers(12, 4), numbers(7, 4), numbers(11, 4), np.arange(48).reshape(12, 4),
    np.float32(1), numbers(12, 4).astype(">f4"), numbers(12, 4).astype("f2"), np.asfortranarray(numbers(12, 4)),
    numbers(0, 4), numbers(12, 4)[:, :0], numbers(12, 4).reshape(12, 2, 2), {"cat": 1}, np.array(list(WORDS)),
    np.full((12, 4), np.nan, "f4"), float("inf"), 4096, 5, 3, 2,
)  # fmt: skip


def _kvs() -> list[Files]:
    rng, found, keyed = Random(0), [], _keyed(numbers(12, 4))
    beside = {key: value for key, value in keyed.items() if key != "vectors"} | {"__numpys": ["vectors"]}
    kinds = (("KeyedVectors", keyed), ("FastTextKeyedVectors", _fast()), ("KeyedVectors", beside))
    found += [_saved(*kind, protocol) for protocol in (2, 4, 4, 5) for kind in kinds]
    found += [_saved("KeyedVectors", _keyed(matrix)) for matrix in _matrices()]
    found.append(_saved("KeyedVectors", keyed, 4, "Word2Vec"))
    for base in (keyed, _fast(), _fast(), beside):
        for _ in range(60):
            changed = {**base, rng.choice(list(base)): rng.choice(_ODD)}
            found.append(_saved("FastTextKeyedVectors", changed, rng.choice((2, 4, 5))))
    return [{MAIN: data, "+.vectors.npy": npy(numbers(12, 4))} for data in found]


def _mixed(data: bytes, rng: Random) -> bytes:
    start, rest = rng.choice(EVERY), rng.choice(EVERY)
    cut = rng.choice((1, 2, 4, 6, 8, 9, 10, rng.randrange(len(start) + 1)))
    data = rng.choice(STARTS) if rng.random() < 0.2 else start[:cut]
    data += rest[rng.choice((0, 0, cut, rng.randrange(len(rest) + 1))) :]
    return mutated(data, rng, EVERY) if rng.random() < 0.5 else data


STARTS = (b"\xba\x16\x4f\x2f", b"SQLite format 3\0", b"GGUF", b"\x89HDF", b"BZh", b"(\xb5/\xfd", b"7z\xbc\xaf", b"Rar!",
          b"%PDF", b"\xff\xfe", b"\xfe\xff", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", *TOKENS)  # fmt: skip
NPZ_MEMBERS = _npz_members()


def _readers() -> list[Reader]:
    plain = _texts(True), _texts(False), _texts(True, " \n") + _texts(False, "\t\r\n")
    unpacked = plain[0][:4] + plain[1][:4]
    npzs = (zipped(some, how) for some in NPZ_MEMBERS for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    weights = {"w": numbers(len(WORDS), 3), "b": np.zeros(3, np.float32)}
    bare = (safetensors(kept, {}) for kept in ({"vectors": numbers(len(WORDS), 4)}, weights))
    headers = _either((0.3, _scratched), (0.5, _plain), (1, _any(_header_damaged)))
    odd = _either((0.1, lambda files, rng: files), (0.4, _scratched), (1, _plain))  # values in a sound pickle
    return [
        Reader("word2vec text", plain[0], _plain),
        Reader("glove text", plain[1], _plain),
        Reader("fasttext .vec", plain[2], _plain),
        Reader("text.gz", _pack(unpacked, gzipped), _packed(gzipped, gzip.decompress)),
        Reader("text.xz", _pack(unpacked, xzipped), _packed(xzipped, lzma.decompress)),
        Reader("word2vec .bin", _bins(b""), _plain, 0.97),
        Reader("word2vec .bin, lines", _bins(b"\n"), _plain, 0.97),
        Reader("npy + words", _with_words(map(npy, _matrices())), headers),
        Reader("npz", _with_words(npzs), _either((0.5, _plain), (1, _any(_members_damaged)))),
        Reader("attn's table", _tables(), _safetensors_damaged),
        Reader("safetensors + words", _with_words(bare), _safetensors_damaged),
        Reader("gensim .kv", _kvs(), odd),
    ]


def _pack(seeds: list[Files], pack: Callable[[bytes], bytes]) -> list[Files]:
    twice = [{MAIN: pack(files[MAIN][:99]) + pack(files[MAIN][99:])} for files in seeds[:2]]
    return [{MAIN: pack(files[MAIN])} for files in seeds] + twice


def _bins(newline: bytes) -> list[Files]:
    kinds = ((WORDS, 4), (WORDS, 2), (DOUBLED, 3), (FEW, 1), (FEW, 8), (FEW, 40))
    found = []
    for words, dim in kinds:
        rows = zip(words, numbers(len(words), dim), strict=True)
        records = [word.encode() + b" " + row.tobytes() + newline for word, row in rows]
        found.append({MAIN: b"%d %d\n" % (len(words), dim) + b"".join(records)})
    return found


_FORMATS = _readers()
EVERY = [files[MAIN] for reader in _FORMATS for files in reader.seeds[:7]]
_MIXED = Reader("mixed", _with_words([b""]), _any(_mixed))
READERS = {reader.name: reader for reader in (*_FORMATS, _MIXED)}
