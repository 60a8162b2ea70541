"""Files of word vectors: every format that attn reads, what it refuses, and lookup without loading."""

import errno
import gzip
import io
import json
import lzma
import os
import re
import struct
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from attn_cli.errors import InputError, UsageError, WriteError
from attn_cli.io.array_files import safetensors_entries, write_safetensors
from attn_cli.io.atomic import lock
from attn_cli.vectors import names
from attn_cli.vectors import open_vectors as cache
from attn_cli.vectors.detect import open_file
from attn_cli.vectors.export import export
from attn_cli.vectors.lookup import analogy, look_up, look_up_all, nearest, open_table
from attn_cli.vectors.names import import_file
from attn_cli.vectors.open_vectors import INDEXED_FROM, FileVectors, describe, hash_words, keep_index
from attn_cli.vectors.spelling import closest, near_words
from attn_cli.vectors.table import SourceFile, as_bytes, as_text
from attn_cli.vectors.word2vec import binary_format, text_format
from tests.alike import assert_alike
from tests.shell import attn, here
from tests.thorough import often, some, takes_long

WORDS = ["the", "fox", "naïve", "👍🏽", "jumped", "New", "newer", "a"]
MATRIX = np.random.default_rng(7).standard_normal((len(WORDS), 5)).astype(np.float32)


def lines(words=WORDS, matrix=MATRIX, join=" ", end="\n"):
    rows = matrix.astype("U").tolist()
    return "".join(word + join + join.join(row) + end for word, row in zip(words, rows, strict=True)).encode()


def records(words=WORDS, matrix=MATRIX, after=b""):
    rows = matrix.astype("<f4")
    return b"".join(as_bytes(w) + b" " + r.tobytes() + after for w, r in zip(words, rows, strict=True))


def header(words=WORDS, matrix=MATRIX):
    return b"%d %d\n" % (len(words), matrix.shape[1])


TEXTS = {
    "GloVe": lines(),
    "word2vec": header() + lines(),
    "fastText": header() + lines(end=" \n"),
    "CRLF": header().replace(b"\n", b"\r\n") + lines(end="\r\n"),
    "tabs": lines(join="\t"),
    "double spaces": lines(join="  "),
    "byte-order mark": b"\xef\xbb\xbf" + header() + lines(),
    "no last newline": lines()[:-1],
    "blank lines": b"\n" + lines(end="\n\n"),
    "gzip": gzip.compress(header() + lines()),
    "two gzip members": gzip.compress(lines(WORDS[:3], MATRIX[:3]))
    + gzip.compress(lines(WORDS[3:], MATRIX[3:])),
    "xz": lzma.compress(lines()),
    "two xz streams": lzma.compress(lines(WORDS[:3], MATRIX[:3]))
    + lzma.compress(lines(WORDS[3:], MATRIX[3:])),
}
BINARIES = {
    "plain": header() + records(),
    "newlines": header() + records(after=b"\n"),
    "newlines, not the last": header() + records(after=b"\n")[:-1],
    "some newlines": header() + records(WORDS[:3], MATRIX[:3], b"\n") + records(WORDS[3:], MATRIX[3:]),
}


@pytest.fixture
def file(tmp_path):
    def write(data, name="v"):
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def on_file(path, binary=False):
    """The file's own reader, however small it is: what serves large files."""
    source = SourceFile.at(path)
    data = Path(path).read_bytes()
    packed = "gzip" if data[:2] == b"\x1f\x8b" else "xz" if data[:4] == b"\xfd7zX" else ""
    start = gzip.decompress(data) if packed == "gzip" else lzma.decompress(data) if packed else data
    if binary:
        return FileVectors(binary_format(source, start))
    return FileVectors(text_format(source, packed, start, is_all=True))


def sought(vectors, words):
    """What a search without an index finds, as text."""
    with open(vectors.form.source.path, "rb") as stream:
        found = vectors.search(stream, {as_bytes(word) for word in words})
    return {as_text(word): row.tolist() for word, row in found.items()}


def numbers(vectors, words):
    return {word: row.tolist() for word, row in vectors.find(words).items()}


def listed(vectors):
    return [as_text(word) for part in vectors.rows() for word in part.words]


def info(path):
    return json.loads(here("vectors", "info", str(path), "-f", "json").out)


def kept(kind):
    return os.listdir(cache.vectors_folder(kind))


def index_of(vectors):
    return Path(cache.index_path(vectors.form.source.path))


def check_all(vectors, words=WORDS, matrix=MATRIX):
    found = vectors.find([*words, "absent", "", "th", "thee", "the fox", "fox\n"])
    assert set(found) == set(words) and {row.dtype for row in found.values()} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(np.float32([found[word] for word in words]), matrix)
    np.testing.assert_array_equal(
        np.concatenate([part.matrix for part in vectors.rows()]).astype("f4"), matrix
    )
    assert listed(vectors) == [as_text(word) for block in vectors.word_blocks() for word in block] == words
    about = describe(vectors)
    assert (about["words"], about["dim"]) == (len(words), matrix.shape[1])


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_read_and_searched_however_it_is_written(name, file, own):
    path = file(TEXTS[name])
    check_all(open_file(path))
    searched = on_file(path)
    for word, row in zip(WORDS, MATRIX, strict=True):  # one word alone is sought in another way than many
        np.testing.assert_array_equal(np.float32(sought(searched, {word})[word]), row)
    assert sought(searched, [*WORDS, "x", "y"]).keys() == set(WORDS)
    check_all(searched)


@pytest.mark.parametrize("name", BINARIES)
def test_a_binary_file_is_read_with_and_without_newlines(name, file, own):
    path = file(BINARIES[name])
    check_all(open_file(path))
    assert sought(on_file(path, binary=True), [*WORDS, "absent"]).keys() == set(WORDS)


def test_arrays_are_read_with_their_words_beside_or_inside(tmp_path, own):
    listed = "\n".join(WORDS).encode() + b"\n"
    np.save(tmp_path / "a.npy", MATRIX)
    np.save(tmp_path / "f.npy", np.asfortranarray(MATRIX))
    np.savez(tmp_path / "both.npz", words=np.array(WORDS), vectors=MATRIX)
    np.savez_compressed(tmp_path / "bytes.npz", w=np.array([w.encode() for w in WORDS]), m=MATRIX)
    np.savez(tmp_path / "apart.npz", vectors=MATRIX)
    with (tmp_path / "m.safetensors").open("wb") as stream:
        write_safetensors(stream, {"embedding": MATRIX, "bias": np.zeros(3)}, {})
    for name, told in (("a.npy", "holds numbers, and no words"), ("m.safetensors", "vectors and words")):
        with pytest.raises(InputError, match=told):
            open_file(str(tmp_path / name))
    for name in ("a.words", "apart.vocab", "m.words"):
        (tmp_path / name).write_bytes(listed)
    (tmp_path / "f.txt").write_bytes(listed.replace(b"\n", b"\r\n"))
    for name in ("a.npy", "f.npy", "both.npz", "bytes.npz", "apart.npz", "m.safetensors"):
        check_all(open_file(str(tmp_path / name)))
    (tmp_path / "a.words").write_bytes(listed + b"more\n")
    with pytest.raises(InputError, match="9 words but 8 vectors"):
        open_file(str(tmp_path / "a.npy"))


# gensim


@pytest.fixture(scope="module")
def keyed():
    """Two hundred random words in gensim's hands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever others' packages warn of is not ours to judge
        models = pytest.importorskip("gensim.models")
    draw = np.random.default_rng(3)
    vectors = models.KeyedVectors(8)
    words = [f"w{i}é" for i in range(200)]
    vectors.add_vectors(words, draw.standard_normal((200, 8)).astype(np.float32))
    return vectors


def saved(keyed, folder):
    """Each format that gensim writes."""
    keyed.save_word2vec_format(str(folder / "t.txt"))
    keyed.save_word2vec_format(str(folder / "b.bin"), binary=True)
    keyed.save_word2vec_format(str(folder / "g.txt"), write_header=False)
    keyed.save_word2vec_format(str(folder / "z.txt.gz"))
    keyed.save(str(folder / "one.kv"))
    keyed.save(str(folder / "two.kv"), sep_limit=0)
    return ["t.txt", "b.bin", "g.txt", "z.txt.gz", "one.kv", "two.kv"]


def test_what_gensim_writes_is_read_and_has_the_same_neighbours_and_analogies(keyed, tmp_path, own):
    def alike(ours, theirs):
        assert [word for word, _ in ours] == [word for word, _ in theirs]
        np.testing.assert_allclose([c for _, c in ours], [c for _, c in theirs], atol=1e-6)

    words = ["w1é", "w2é", "w3é"]
    for name in saved(keyed, tmp_path):
        vectors = open_table(str(tmp_path / name))
        found = vectors.find(["w7é", "nothing"])
        assert list(found) == ["w7é"], name
        np.testing.assert_array_equal(found["w7é"].astype(np.float32), keyed["w7é"])
        theirs = keyed.most_similar("w7é", topn=10)
        alike(nearest(vectors, found["w7é"], 10, ["w7é"]), theirs)
        found = vectors.find(words)
        meant = keyed.most_similar(positive=words[1:], negative=words[:1], topn=5)
        alike(analogy(vectors, words, [found[word] for word in words], 5), meant)
        shown = here("self", "w7é w8é", "--tokenizer", "whitespace", "-e", str(tmp_path / name))
        assert (shown.code, shown.err) == (0, ""), name
        near = here("vectors", "nearest", "w7é", "-e", str(tmp_path / name), "--top", "1")
        assert near.out.split()[0] == theirs[0][0] and near.err == "", name


@pytest.mark.parametrize("suffix", [".txt", ".vec", ".bin"])
def test_what_is_exported_gensim_reads_back_equal(keyed, tmp_path, suffix, own):
    keyed.save_word2vec_format(str(tmp_path / "in.bin"), binary=True)
    out = str(tmp_path / f"out{suffix}")
    count, size = export(open_table(str(tmp_path / "in.bin")), out)
    back = type(keyed).load_word2vec_format(out, binary=suffix == ".bin")
    assert count == len(back) == 200 and size == os.path.getsize(out)
    assert back.index_to_key == keyed.index_to_key
    np.testing.assert_array_equal(back.vectors, keyed.vectors)


# Export


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".safetensors"])
def test_an_export_is_read_back_as_it_was_and_has_the_same_fingerprint(file, tmp_path, suffix, own):
    vectors = open_file(file(header() + lines()))
    out = str(tmp_path / f"out{suffix}")
    export(vectors, out)
    check_all(open_file(out))
    assert open_file(out).fingerprint() == vectors.fingerprint() == on_file(file(TEXTS["tabs"])).fingerprint()
    assert export(vectors, out, most=3)[0] == 3
    check_all(open_file(out), WORDS[:3], MATRIX[:3])


def test_bundled_vectors_that_were_exported_fit_the_learned_model(tmp_path, own):
    path = str(tmp_path / "w.bin")
    assert here("vectors", "export", "-o", path).code == 0
    told = here("self", "she likes coffee", "-e", path, "-p", "roles", "-f", "json")
    plain = here("self", "she likes coffee", "-f", "json")
    assert told.code == 0, told.err
    np.testing.assert_allclose(json.loads(told.out)["weights"], json.loads(plain.out)["weights"], atol=1e-12)


def test_an_export_refuses_what_would_be_read_back_as_something_else(file, tmp_path, own):
    vectors, huge = open_file(file(b"2 2\nnew york 1 2\nshe 3 4\n")), open_file(file(b"a 1e300 1\n", "huge"))
    for read, name, told in (
        (vectors, "out.txt", "'new york' holds a space"),
        (vectors, "out.bin", "'new york' holds a space"),
        (vectors, "out.json", r"out\.json"),
        (huge, "out.bin", "too large for float32"),
    ):
        with pytest.raises((InputError, UsageError), match=told):
            export(read, str(tmp_path / name))
        assert not (tmp_path / name).exists()
    export(vectors, str(tmp_path / "out.safetensors"))
    assert numbers(open_file(str(tmp_path / "out.safetensors")), ["new york"]) == {"new york": [1, 2]}


# The index


def padded(count=40_000):
    """A text that is large enough for an index: the words above, and filling."""
    filling = [f"filling{i}" for i in range(count)]
    matrix = np.random.default_rng(1).standard_normal((count, 12)).astype(np.float32)
    return [*WORDS, *filling], np.vstack([np.resize(MATRIX, (len(WORDS), 12)), matrix])


LARGE_WORDS, LARGE = padded()
LARGE_TEXT = lines(LARGE_WORDS, LARGE)
LARGE_BINARY = header(LARGE_WORDS, LARGE) + records(LARGE_WORDS, np.hstack([LARGE] * 3))
LARGE_BINARY = LARGE_BINARY.replace(b" 12\n", b" 36\n", 1)


@pytest.mark.parametrize("data", [LARGE_TEXT, LARGE_BINARY], ids=["text", "binary"])
def test_an_index_is_kept_and_gives_what_a_search_gives(data, file, own):
    assert len(data) > INDEXED_FROM
    path = file(data)
    searched = open_table(path)
    some = [*WORDS, "filling0", "filling39999", "filling4", "absent", "filling40000"]
    wanted = numbers(searched, some)
    assert set(wanted) == set(some[:-2]) and searched.index is None
    assert re.fullmatch(r"Indexed .*: 40,008 words of (12|36) numbers\.", keep_index(searched))
    indexed = open_table(path)
    assert indexed.index is not None and not keep_index(indexed)
    assert numbers(indexed, some) == wanted
    assert os.path.getsize(index_of(indexed)) < 17 * len(LARGE_WORDS) + 1000


def test_an_index_is_made_at_the_first_use_which_is_told_and_used_at_the_second(file, own):
    path = file(LARGE_TEXT, "large.txt")
    first = here("vectors", "nearest", "fox", "-e", path, "--top", "1")
    again = here("vectors", "nearest", "fox", "-e", path, "--top", "1")
    assert first.code == again.code == 0 and first.out == again.out
    assert first.err == f"attn: Indexed {path}: 40,008 words of 12 numbers.\n" and again.err == ""


@pytest.mark.parametrize("data", [LARGE_TEXT, LARGE_BINARY], ids=["text", "binary"])
def test_an_index_of_another_file_or_another_time_is_not_used(data, file, own):
    path = file(data)
    keep_index(open_table(path))
    assert open_table(path).index is not None
    was = os.stat(path)
    swapped = data.replace(b"filling7", b"fiLLing7")
    file(swapped)
    assert open_table(path).index is None  # another time
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    stale = open_table(path)  # the same size, the same time: only the word at the offset tells
    assert stale.index is not None and stale.find(["filling7", "filling70", "fox"]).keys() == {"fox"}
    file(data + data[:1])
    assert open_table(path).index is None  # another size


def test_what_is_no_index_in_the_cache_is_made_anew(file, own):
    path = file(LARGE_TEXT)
    vectors = open_table(path)
    keep_index(vectors)
    kept = index_of(vectors)
    sound, some = kept.read_bytes(), ["fox", "filling20000", "filling39999"]
    wanted = numbers(vectors, some)
    for data in [sound[:cut] for cut in (0, 7, 15, 100, len(sound) // 2, len(sound) - 1)] + [sound + b"x"]:
        kept.write_bytes(data)
        again = open_table(path)
        assert again.index is None and numbers(again, some) == wanted
        assert keep_index(again).startswith("Indexed") and kept.read_bytes() == sound


@pytest.mark.parametrize(
    ("turn", "data"),
    [*enumerate([LARGE_TEXT + lines(["fox"], LARGE[:1]), LARGE_BINARY])],
    ids=["text", "binary"],
)
def test_a_damaged_index_never_hides_a_word_and_is_made_anew(turn, data, file, own):
    path = file(data)
    vectors, few = open_table(path), [*WORDS[:3], "filling20000", "filling39999", "absent"]
    keep_index(vectors)
    kept, wanted, about = index_of(vectors), numbers(vectors, few), describe(vectors)
    sound, draw = kept.read_bytes(), np.random.default_rng(2)
    arrays, _ = safetensors_entries(io.BytesIO(sound), "index")
    (first,) = vectors.index.find([b"fox"]).values()
    at_fox = sound.index(struct.pack("<Q", word_hash(b"fox")))
    damages = [
        (arrays[name].offset, arrays[name].size, byte)
        for name in arrays
        if arrays[name].size
        for byte in b"\0\xff"
    ]
    damages += [
        (arrays["hashes"].offset, 8 * 8000, 0),
        (at_fox, 2, 0),
        (sound.index(struct.pack("<q", first)), 7, 0xFF),
    ]
    damages += [(int(start), 1, 0x5A) for start in draw.integers(0, len(sound), 30)]
    for start, count, byte in some(damages, turn):
        kept.write_bytes(sound[:start] + bytes([byte]) * count + sound[start + count :])
        again = open_table(path)
        assert numbers(again, few) == wanted, (start, count)
        if count > 1:  # where the words asked for stand
            assert again.index is None and describe(again) == about
            assert keep_index(open_table(path)).startswith("Indexed") and kept.read_bytes() == sound
    kept.write_bytes(sound[: at_fox - 2000] + bytes(4000) + sound[at_fox + 2000 :])
    ran = here("vectors", "nearest", "fox", "-e", path, "--top", "1")
    assert ran.code == 0 and ran.err.startswith("attn: Indexed")


def test_without_a_cache_the_file_is_searched_and_imported_and_that_is_told_once(file, own, monkeypatch):
    own.mkdir(exist_ok=True)
    (own / "cache").write_text("a file, not a folder")
    path = file(LARGE_TEXT, "large.txt")
    told = here("vectors", "nearest", "fox", "-e", path, "--top", "1")
    assert told.code == 0 and told.err.startswith("attn: No index of") and told.err.count("\n") == 1
    told = here("vectors", "import", path)
    assert told.code == 0 and "No index of large is kept" in told.err
    assert here("self", "the fox", "-e", "large").code == 0
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/no/good")
    assert cache.vectors_folder("cache") is None or os.path.isabs(cache.vectors_folder("cache"))


def word_hash(word):
    """FNV-1a of 64 bits, as its authors write it."""
    h = 0xCBF29CE484222325
    for byte in word:
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h


def test_the_hash_of_many_words_is_that_of_each_and_is_fnv_1a():
    assert word_hash(b"foobar") == 0x85944171F73967E8
    words = [b"a", b"foobar", "naïve".encode(), b"x" * 50, b"", b"y" * 4097]
    assert hash_words(words).tolist() == [word_hash(word) for word in words]


# Doubled words, odd words


@pytest.mark.parametrize("form", ["text", "binary"])
def test_the_first_of_doubled_words_wins_and_the_count_is_told(form, file, own):
    words = ["she", "he", "she", "it", "he", "she"]
    matrix = np.arange(12, dtype=np.float32).reshape(6, 2) + 0.5
    data = header(words, matrix) + (lines if form == "text" else records)(words, matrix)
    for vectors in (open_file(file(data)), on_file(file(data, "again"), form == "binary")):
        assert numbers(vectors, words) == {"she": [0.5, 1.5], "he": [2.5, 3.5], "it": [6.5, 7.5]}
        assert listed(vectors) == ["she", "he", "it"]
        assert describe(vectors)["words"] == 3 and vectors.about["doubled"] == "3"
    shown = here("self", "she", "-e", file(data, "d.txt"), "-f", "json")
    assert "3 doubled words" in shown.out


def test_words_that_are_not_utf_8_are_matched_by_their_bytes_and_shown_inert(file, own):
    word = b"caf\xe9"
    binary = b"2 2\n" + word + b" " + struct.pack("<2f", 1, 2) + b"she " + b"\0" * 8
    for data in (word + b" 1 2\nshe 3 4\n", binary):
        for vectors in (open_file(file(data)), on_file(file(data, "again"), data == binary)):
            assert numbers(vectors, ["caf\udce9", "café"]) == {"caf\udce9": [1, 2]}
    shown = here("vectors", "nearest", "she", "-e", file(binary, "v.bin"), "--top", "1")
    assert shown.code == 0 and "caf<U+DCE9>" in shown.out
    shown = here("vectors", "nearest", "she", "-e", file(b"\x1b[31mred 1 2\nshe 3 4\n", "v.txt"))
    assert shown.code == 0 and shown.out.startswith("^[[31mred") and "\x1b" not in shown.out


# Refused: each in one line that names the file, the place and the cause

FOLD = b"x" * 5000
NOT_FINITE = "he.*NaN|line 2: a number is not finite"
BAD = [
    (b"1000000000000 2\nshe 1 2\n", "line 1.*1,000,000,000,000"),
    (b"-5 8\nshe 1 2 3 4 5 6 7 8\n", "line 1.*-5 8"),
    (b"0 0\nshe 1 2\n", "line 1.*0 0"),
    (b"5.0 8\nshe 1 2 3 4 5 6 7 8\n", "line 1.*5.0 8"),
    (b"1_0 3\nshe 1 2 3\n", "line 1.*1_0 3"),
    (b"0x5 3\nshe 1 2 3\n", "line 1.*0x5 3"),
    (b"1 2\nshe 1 2\nhe 3 4\n", "line 1.*1 words.*2"),
    (b"3 2\nshe 1 2\nhe 3 4\n", "line 1.*3 words.*2"),
    (b"2 3\nshe 1 2\nhe 3 4 5\n", "line 2"),
    (
        b"new york 1 2 3\nshe 4 5 6\n",
        "line [12]",
    ),  # it says how many numbers a word has: here that "york" is one
    (b"she 1 2\nhe 3\nit 5 6\n", "line 2: 1 number; 2 were expected"),
    (b"she 1 2\n\nhe\n", "line 3"),
    (b"she\n", "line 1"),
    (b"she 1 2\nhe 3 4\nit 5 6 7\n", "line 3: 3 numbers; 2 were expected"),
    (b"she 1 2\nhe 3 four\nit 5 6\n", "line 2: 'four' is not a number"),
    (b"she 0,5 2\n", "line 1"),
    *((f"she 1 2\nhe {bad} 4\n".encode(), "line 2") for bad in ("0x3", "1_0", "٣")),
    *((f"she 1 2\nhe {bad} 4\n".encode(), NOT_FINITE) for bad in ("nan", "-inf", "1e400")),
    (b"she 1 2\n3 4\nit 5 6\n", "line 2: 1 number;"),
    (b"she 1 2\n" + FOLD + b" 3 4\nit 5 6\n", "line 2: a word of 5,000 bytes"),
    (b"she 1 2\nhe \0 x\n", "zero byte at 11|line 2"),
    *((empty, "is empty") for empty in (b"", b"\n \n", b"\xef\xbb\xbf")),
]


GOOD = header() + records()
BAD_BINARIES = {
    "a trillion words": (b"1000000000000 5\n" + records(), "line 1.*1,000,000,000,000"),
    "a negative header": (b"-8 5\n" + records(), "line 1.*-8 5"),
    "a zero header": (b"0 0\n" + records(), "line 1.*0 0"),
    "a decimal header": (b"8.0 5\n" + records(), "line 1.*8.0 5"),
    "too small a count": (b"7 5\n" + records(), "claims 7 words; there are more"),
    "too large a count": (b"9 5\n" + records() + b"abcdefg ", "claims 9 words|room for|cut off"),
    "too many numbers a word": (b"8 6\n" + records(), "room for|cut off|no word|claims"),
    "too few numbers a word": (b"8 4\n" + records(), "no word|claims|cut off"),
    "a truncated record": (GOOD[:-3], f"byte {len(GOOD) - 22}: the last record is cut off"),
    "an empty word": (b"2 2\n " + b"\1\2\3\4" * 2 + b"she " + b"\1\2\3\4" * 2, "cut off|no word|claims|room"),
    "a word of 5000 bytes": (
        b"2 2\n" + FOLD + b" " + b"\0" * 8 + b"she " + b"\0" * 8,
        "no word of 1 to 4,096 bytes stands here",
    ),
    "a word with a newline": (b"2 2\na\nb " + b"\0" * 8 + b"she " + b"\0" * 8, "no word|cut off|claims"),
    "a billion numbers a word": (b"1 1000000000\n" + b"\0" * 100, "1,000,000,000 numbers"),
}


def refused(told, opened, path):
    with pytest.raises(InputError) as caught:
        vectors = opened(path)
        look_up_all([*WORDS, "she", "he", "it", "absent", FOLD.decode(), "5"], vectors)
        describe(vectors)
    message = caught.value.message
    assert re.search(told, message) and "bad.txt" in message and "\n" not in message, message


@pytest.mark.parametrize(("data", "told"), BAD, ids=lambda one: repr(one)[:30])
def test_a_bad_text_is_refused_in_one_line(data, told, file, own):
    for opened in (open_file, on_file)[: 2 if told != "is empty" else 1]:
        refused(told, opened, file(data, "bad.txt"))


@pytest.mark.parametrize("what", BAD_BINARIES)
def test_a_bad_binary_file_is_refused_in_one_line(what, file, own):
    data, told = BAD_BINARIES[what]
    refused(told, open_file, file(data, "bad.txt"))


def test_a_binary_row_that_is_not_finite_is_refused_when_it_is_looked_up(file, own):
    matrix = MATRIX.copy()
    matrix[1, 2] = np.nan
    vectors = open_file(file(header() + records(matrix=matrix)))
    assert vectors.find(["the"])["the"].shape == (5,)
    with pytest.raises(InputError, match="'fox' holds NaN or infinity"):
        look_up("fox", vectors)
    assert "fox" not in [word for word, _ in nearest(vectors, vectors.find(["the"])["the"], 8)]
    walked = here("explain", "the naïve", "-e", vectors.form.source.path)
    assert (walked.code, walked.err) == (0, "") and "fox" not in walked.out


def zipped(member):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(member, b"she 1 2\n")
    return made.getvalue()


FOREIGN = {
    "fastText": (b"\xba\x16\x4f\x2f\x0c\0\0\0" + b"\0" * 50, "fastText model", "load_facebook_vectors"),
    "Magnitude": (b"SQLite format 3\0" + b"\0" * 84, "Magnitude", "text"),
    "GGUF": (b"GGUF\3\0\0\0" + b"\0" * 30, "GGUF", "gguf"),
    "old PyTorch": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "PyTorch", "torch.load"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 30, "HDF5", "h5py"),
    "bzip2": (b"BZh91AY&SY" + b"\0" * 30, "bzip2", "bunzip2"),
    "zstd": (b"(\xb5/\xfd" + b"\0" * 30, "zstd", "unzstd"),
    "PyTorch": (zipped("m/data.pkl"), "PyTorch", "torch.load"),
    "ZIP": (zipped("glove.txt"), "ZIP archive", "unzip"),
    "UTF-16": ("\ufeffshe 1 2\n".encode("utf-16-le"), "UTF-16", "iconv"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_format_that_attn_does_not_read_is_named_with_the_way_round(what, file, own):
    data, named, way = FOREIGN[what]
    told = here("self", "she", "-e", file(data, "foreign.txt"))
    assert (told.code, told.out) == (65, "") and named in told.err and way in told.err
    assert told.err.count("\n") == 1


def test_a_packed_binary_is_refused_with_the_way_round_and_imported(file, own):
    path = file(gzip.compress(GOOD), "b.bin.gz")
    with pytest.raises(InputError, match="packed word2vec binary"):
        open_file(path)
    import_file(path)
    check_all(open_table("b"))


@takes_long
def test_bombs_are_stopped_before_they_cost_memory(file, own):
    import tracemalloc

    unpacked = b"she 1 2\n" * (1 << 22)  # 32 MB that compress to little
    packed = gzip.compress(b"0" * (20 << 20), 9)
    many = gzip.compress(unpacked * 3, 6)
    wide = lzma.compress(unpacked * 3, preset=0)
    for data, told in ((packed, "line 1: a line of more than"), (many, "30 times"), (wide, "30 times")):
        path = file(data, "bomb.gz")
        tracemalloc.start()
        with pytest.raises(InputError, match=told):
            open_file(path).find(["absent"])
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [20, 40, -9, -1])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_file_that_is_cut_off_or_damaged_is_refused(pack, cut, file, own):
    data = pack(lines() * 20)
    with pytest.raises(InputError, match="cannot be unpacked"):
        open_file(file(data[:cut], "cut.gz"))
    broken = bytearray(data)
    broken[len(data) // 2] ^= 0xFF
    with pytest.raises(InputError):
        open_file(file(bytes(broken), "broken.gz"))


def test_what_is_no_regular_file_is_66(at, own):
    os.mkfifo("fifo.txt")
    Path("folder.txt").mkdir()
    for path in ("./fifo.txt", "./folder.txt", "/dev/zero", "./no.txt", "https://example.org/glove.txt"):
        told = here("self", "she", "-e", path)
        assert (told.code, told.out, told.err.count("\n")) == (66, "", 1), path
    assert "local files only" in told.err


@pytest.mark.parametrize("data", [LARGE_TEXT, LARGE_BINARY], ids=["text", "binary"])
def test_a_file_that_changes_or_shrinks_meanwhile_is_refused_and_kills_nobody(data, file, own):
    path = file(data)
    vectors = open_table(path)
    with open(path, "r+b") as stream:
        stream.truncate(len(data) // 2)
    with pytest.raises(InputError, match="changed"):
        vectors.find(["absent"])
    vectors = open_table(file(data))
    rows = vectors.rows()
    next(rows)
    with open(path, "r+b") as stream:
        stream.truncate(len(data) // 2)
    with pytest.raises(InputError):
        list(rows)


def line(word, *numbers, indent="", join=" ", after=""):
    return indent, word, join, list(numbers), after


PART = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=6)
LINE = st.tuples(
    st.sampled_from(["", "", "  ", "\n", " \t\n"]),
    PART | st.sampled_from(["new york", "new", "york", ". . .", "é 日 x", "a, b"]),
    st.sampled_from([" ", "\t", "  "]),
    st.lists(st.floats(-1e30, 1e30, allow_nan=False), min_size=2, max_size=2),
    st.sampled_from(["", "", " ", "\r", "\n\n"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=often(60))
@given(rows=st.lists(LINE, min_size=1, max_size=60))
@example(rows=[line("she", 1, 2), line("new york", 7, 8), line("new", 1, 1), line(". . .", 2, 2)])
@example(
    rows=[*(line(f"w{i}", 1, 2, after=" ") for i in range(100)), line("new york", 3, 4), line("x", 5, 6)]
)
@example(
    rows=[line("a", 1, 2, indent=" " * 8), *(line(f"w{i}", 1, 2) for i in range(50)), line("b\xa0c", 5, 6)]
)
def test_whole_searched_and_indexed_a_text_reads_the_same(rows, file, own):
    told = (
        at + word + join + join.join(map(repr, row)) + after + "\n" for at, word, join, row, after in rows
    )
    data = f"{len(rows)} 2\n{''.join(told)}".encode()
    path = file(data)
    whole, searched, indexed = open_file(path), on_file(path), on_file(path)
    indexed.indexed()
    firsts = {word: row for _, word, _, row, _ in reversed(rows)}
    words = [*firsts, "absent\n"]
    assert numbers(whole, words) == numbers(searched, words) == numbers(indexed, words) == firsts
    assert sought(searched, words) == firsts and whole.n_words == indexed.n_words == len(firsts)
    assert sought(searched, {words[0]}) == {words[0]: firsts[words[0]]}


# What a fuzzer found


def test_too_many_numbers_in_one_line_do_not_make_up_for_too_few_in_another(file, own):
    good = b"".join(b"w%d 1 2 3 4\n" % i for i in range(50))
    with pytest.raises(InputError, match="line 52: 3 numbers; 4 were expected"):
        on_file(file(good + b"new york 1 2 3 4\nbad 1 2 3\n")).indexed()


@pytest.mark.parametrize("count", [3, 99, 100, 101, 250])
def test_a_header_above_single_numbers_is_a_header_however_many_rows_follow(count, file, own):
    data = b"%d 1\n" % count + b"".join(b"w%d %d\n" % (i, i) for i in range(count))
    assert open_file(file(data)).n_words == count == on_file(file(data, "again")).n_words


@pytest.mark.parametrize("without", [1, 30, 59])
def test_a_newline_that_is_missing_between_records_moves_no_other_word(without, file, own):
    words = [f"w{i}" for i in range(60)]
    matrix = np.arange(120, dtype=np.float32).reshape(60, 2)
    data = header(words, matrix) + b"".join(
        (b"" if i == without else b"\n") + records([word], matrix[i : i + 1]) for i, word in enumerate(words)
    )
    vectors = on_file(file(data), binary=True)
    assert vectors.n_words == 60
    assert numbers(vectors, words) == dict(zip(words, matrix.tolist(), strict=True))


def table_with(path, about, words=b"she\nhe\nshe"):
    arrays = {"vectors": np.eye(3, 2), "words": np.frombuffer(words, np.uint8)}
    with path.open("wb") as stream:
        write_safetensors(stream, arrays, about)
    return str(path)


@pytest.mark.parametrize("lie", ["-1", "2", "x", "18446744073709551615"])
def test_what_a_table_says_of_its_doubled_words_is_counted_and_not_believed(lie, tmp_path, own):
    vectors = open_file(table_with(tmp_path / "t.safetensors", {"doubled": lie}))
    assert vectors.n_words == 2 and vectors.about["doubled"] == "1"
    assert listed(vectors) == ["she", "he"]


LIES = [{"length": "nan"}, {"length": "1e999"}, {"settings": "[1, Infinity]"}, {"settings": "[" * 200_000}]


@pytest.mark.parametrize("about", LIES, ids=range(4))
def test_what_a_table_says_of_itself_never_becomes_json_that_is_none(about, tmp_path, own):
    path = table_with(tmp_path / "t.safetensors", about)
    told = here("vectors", "info", path, "-f", "json")
    assert told.code == 0 and '"length": null' in told.out and '"settings": null' in told.out
    assert here("self", "she zzz", "-e", path, "--oov", "random").code == 0


def npy(header, data):
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npy_of(descr, order, shape):
    return b"{'descr': '<%b', 'fortran_order': %b, 'shape': %b, }" % (descr, order, shape)


def test_arrays_that_numpy_itself_stumbles_over_are_refused_and_headers_of_python_2_are_read(tmp_path, own):
    words = np.array(["she", "he"])
    words.view("<u4")[0] = 0x110000
    np.savez(tmp_path / "two.npz", words=words, vectors=np.eye(2))
    old = npy(npy_of(b"f4", b"False", b"(2L, 3L)"), np.arange(6, dtype="<f4").tobytes())
    (tmp_path / "old.npy").write_bytes(old)
    (tmp_path / "flat.npy").write_bytes(npy(npy_of(b"f4", b"True", b"(0, 9223372036854775807)"), b""))
    (tmp_path / "long.npy").write_bytes(npy(npy_of(b"f16", b"False", b"(2, 3)"), b"\0" * 96))
    for name in ("old", "flat", "long"):
        (tmp_path / f"{name}.words").write_bytes(b"she\nhe")
    assert numbers(open_file(str(tmp_path / "old.npy")), ["he"]) == {"he": [3, 4, 5]}
    for name, told in (
        ("two.npz", "holds what is not text"),
        ("flat.npy", "not a row for each word"),
        ("long.npy", "numbers of 16 bytes"),
    ):
        with pytest.raises(InputError, match=told):
            open_file(str(tmp_path / name))


def test_no_warning_of_a_library_reaches_the_reader(file, own):
    signalling = b"1 2\nshe " + struct.pack("<I", 0x7F800001) * 2
    with pytest.raises(InputError, match="NaN"):
        look_up("she", open_file(file(signalling)))
    with pytest.raises(InputError):
        open_file(file(b"the \x1c\n", "white"))
    assert open_file(file(b"she 1e300 1\n", "huge")).fingerprint()
    assert len(list(on_file(file(b"she 1e300 1\n", "row")).rows())) == 1
    assert len(list(on_file(file(b"she 1 2\n" * 3 + b" ", "blank")).rows())) == 1
    assert on_file(file(b"\r 1.5\nshe 2\n", "return")).find(["\r"])["\r"].tolist() == [1.5]


# What a reviewer found


def test_an_index_whose_file_was_put_in_another_order_is_not_believed_when_it_finds_nothing(file, own):
    path = file(LARGE_TEXT, "large.txt")
    keep_index(open_table(path))
    was = os.stat(path)
    rows = LARGE_TEXT.splitlines(keepends=True)
    file(b"".join(rows[1:] + rows[:1]), "large.txt")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    stale = open_table(path)
    assert stale.index is not None
    assert stale.find(["the", "fox", "filling7"]).keys() == {"the", "fox", "filling7"}
    assert stale.index is None and open_table(path).index is None


def test_an_import_that_fails_leaves_the_name_as_it_was(file, own):
    import_file(file(gzip.compress(lines()), "good.txt.gz"), "x")
    late = LARGE_TEXT + b"bad 1 2 3\n"
    for bad in (b"nothing here\n", late, late + b"\0"):
        with pytest.raises(InputError, match=r"bad\.txt\.gz"):
            import_file(file(gzip.compress(bad, 1), "bad.txt.gz"), "x")
        check_all(open_table("x"))
    unpacked, name = sorted(kept("data"))
    assert name == "x.json" and re.fullmatch(r"x\.[0-9a-f]{8}\.vectors", unpacked)


def test_a_form_that_is_not_used_may_hold_nan(file, own):
    matrix = MATRIX[:2].copy()
    matrix[1, 0] = np.nan
    path = file(header(["She", "she"], matrix) + records(["She", "she"], matrix), "nan.bin")
    assert here("self", "She", "-e", path).code == 0
    assert here("self", "she", "-e", path).code == 65


def test_an_export_never_replaces_the_file_that_it_reads(file, own):
    path = file(lines(), "mine.txt")
    assert here("vectors", "import", path).code == 0
    for source in (path, "mine"):
        told = here("vectors", "export", source, "-o", path, "--words", "1")
        assert told.code == 2 and "is the file that is read" in told.err
    assert Path(path).read_bytes() == lines()


def test_a_file_without_a_suffix_is_found_by_its_name_alone(at, own):
    Path("plain").write_bytes(lines())
    assert here("self", "the fox", "-e", "plain").code == 0


def test_a_name_is_removed_with_what_was_unpacked_for_it_and_never_the_file(file, own):
    plain, packed = file(LARGE_TEXT, "plain.txt"), file(gzip.compress(LARGE_TEXT, 1), "packed.txt.gz")
    for path in (plain, packed):
        assert here("vectors", "import", path).code == 0
    assert here("vectors", "remove", "plain").err.count("attn: removed") == 2
    assert here("vectors", "remove", "packed").err.count("attn: removed") == 3
    assert os.path.exists(plain) and os.path.exists(packed) and names.all_names() == []
    assert kept("data") == kept("cache") == []
    assert here("vectors", "remove", "packed").code == 2
    assert here("vectors", "import", plain).code == 0
    os.unlink(plain)
    assert here("vectors", "remove", "plain").code == 0 and kept("cache") == []
    import_file(packed, "x")
    import_file(file(lines(), "small.txt"), "x")
    assert kept("data") == ["x.json"] and kept("cache") == []


def test_a_name_whose_record_is_damaged_is_told(file, own):
    assert here("vectors", "import", file(lines(), "mine.txt")).code == 0
    (Path(cache.vectors_folder("data")) / "mine.json").write_text("{broken")
    told = here("self", "fox", "-e", "mine")
    assert told.code == 65 and "The name mine is damaged" in told.err
    assert "unreadable" in here("vectors", "list").out
    assert here("vectors", "remove", "mine").code == 0


@pytest.mark.parametrize("has_locks", [True, False])
def test_an_import_that_fails_leaves_no_unpacked_file(has_locks, file, own, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    if not has_locks:  # as on some network file systems

        def refuse(*args):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", refuse)
    path = file(gzip.compress(lines() + b"bad 1 2\n"), "v.txt.gz")
    assert here("vectors", "import", path).code == 65
    assert kept("data") == []


def test_a_packed_file_that_is_large_is_told_to_be_imported(file, own):
    told = here("vectors", "nearest", "fox", "-e", file(gzip.compress(LARGE_TEXT, 1), "p.gz"), "--top", "1")
    assert told.code == 0 and "is packed, so each use unpacks it; attn vectors import" in told.err


def test_what_is_known_of_a_file_is_its_format_and_its_size(tmp_path, own):
    np.save(tmp_path / "be.npy", MATRIX.astype(">f4"))
    (tmp_path / "be.words").write_text("\n".join(WORDS), encoding="utf-8")
    (tmp_path / "t.txt").write_bytes(lines())
    (tmp_path / "t.gz").write_bytes(gzip.compress(lines()))
    for name, *of in (
        ("be.npy", "npy", "float32"),
        ("t.txt", "text", "float64"),
        ("t.gz", "text, gzip", "float64"),
    ):
        about = info(tmp_path / name)
        assert [about["about"]["format"], about["dtype"]] == of
        assert about["bytes"] == os.path.getsize(tmp_path / name)


# Names


def test_an_imported_file_has_a_name_for_every_command(file, own):
    path = file(LARGE_TEXT, "glove.large.50d.txt")
    told = here("vectors", "import", path)
    assert told.code == 0 and "imported glove.large.50d: 40,008 words of 12 numbers" in told.err
    shown = here("vectors", "list")
    assert re.search(r"glove\.large\.50d +40,008 +12 +text +" + re.escape(path), shown.out)
    assert here("self", "the fox", "-e", "glove.large.50d").code == 0
    assert here("vectors", "info", "glove.large.50d").out.count("40,008") == 1
    again = here("vectors", "import", file(lines(), "other.txt"), "--name", "glove.large.50d")
    assert "stood for" in again.err and here("vectors", "info", "glove.large.50d").out.count("40,008") == 0


@pytest.mark.parametrize("name", ["word2vec", "random", "a/b", "../x", "v.txt", "", "-x", "é", "x" * 200])
def test_a_name_that_would_mislead_is_refused(name, file, own):
    with pytest.raises(UsageError, match=r"cannot be the name|is taken"):
        import_file(file(lines()), name)


def test_a_name_whose_file_is_gone_is_told(file, own):
    path = file(LARGE_TEXT, "gone.txt")
    here("vectors", "import", path)
    os.unlink(path)
    told = here("self", "fox", "-e", "gone")
    assert (told.code == 66 and "gone.txt" in told.err) or "gone" in told.err
    assert here("vectors", "list").code == 0
    unknown = here("self", "fox", "-e", "gnoe")
    assert unknown.code == 2 and "Did you mean gone?" in unknown.err


def test_a_packed_import_is_unpacked_once_and_the_unfinished_are_tidied_away(file, own):
    import_file(file(gzip.compress(LARGE_TEXT, 1), "packed.txt.gz"))
    folder = Path(cache.vectors_folder("data"))
    (unpacked,) = folder.glob("packed.*.vectors")
    assert unpacked.read_bytes() == LARGE_TEXT
    assert open_table("packed").index is not None
    left = folder / ".old.part"
    left.write_bytes(b"x")
    import_file(file(gzip.compress(lines()), "small.txt.gz"))
    assert not left.exists()
    import_file(file(lines(), "now.txt"), "packed")
    assert not unpacked.exists()


# Spelling


KNOWN = "their there Theme then colour color king king network coffee separate"


def test_the_closest_spelling_is_that_with_the_fewest_mistakes_and_then_the_commonest(file, own):
    words = KNOWN.split()
    data = lines(words, np.resize(MATRIX, (len(words), 5)))
    for vectors in (open_file(file(data)), on_file(file(data, "again"))):
        near = near_words(["thier", "colur", "THEMEE", "kign", "zzzzzz", "x", ""], vectors, 2)
        assert near["thier"][0] == "their" and near["colur"] == ["colour", "color"]
        assert near["THEMEE"][0] == "Theme" and near["kign"] == ["king"]
        assert near["zzzzzz"] == near["x"] == near[""] == []
        guessed = closest(["thier", "seperete", "covfefe", "New York", "kign", "nework"], vectors)
        assert guessed == {"thier": "their", "seperete": "separate", "kign": "king", "nework": "network"}


def test_oov_nearest_takes_the_closest_spelling_and_says_so(own):
    record = json.loads(here("self", "recieve the mesage zzqqxx", "--oov", "nearest", "-f", "json").out)
    assert record["replaced"] == {"recieve": "receive", "mesage": "message"}
    assert record["unknown"] == ["zzqqxx"] and any("recieve (receive)" in note for note in record["notes"])
    plain, meant = (
        json.loads(here("self", text, "-p", "identity", "--oov", "nearest", "-f", "json").out)["weights"]
        for text in ("receive the message", "recieve the mesage")
    )
    assert_alike(meant, plain)


def test_a_mistyped_word_is_guessed_aloud_by_nearest_and_asked_for_by_the_others(own):
    guessed = here("vectors", "nearest", "colur", "--top", "1", "-f", "json")
    assert guessed.code == 0 and '"found": "color"' in guessed.out
    assert guessed.err == "attn: no vector for 'colur' in word2vec: 'color' is taken instead.\n"
    asked = here("vectors", "analogy", "man", "kign", "woman")
    assert asked.code == 65 and "Did you mean king" in asked.err
    refused = here("self", "kign", "--oov", "error")
    assert refused.code == 65 and "Did you mean king" in refused.err
    assert here("vectors", "nearest", "zzqqxx").code == 65


def test_an_import_whose_name_cannot_be_stored_leaves_the_vectors_behind_it(file, own, monkeypatch):
    import_file(file(gzip.compress(b"fox 1 2\n"), "good.txt.gz"), "x")
    before = kept("data")
    real = os.replace

    def replace(old, new):
        if new.endswith(".json"):
            raise OSError(30, "Read-only file system")
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    for name in ("x", "fresh"):
        with pytest.raises(WriteError, match="Nothing was changed"):
            import_file(file(gzip.compress(b"fox 3 4\n"), "other.txt.gz"), name)
    assert open_table("x").find(["fox"])["fox"].tolist() == [1, 2]
    assert kept("data") == before


def test_an_import_that_waits_for_another_says_so_once(file, own, monkeypatch):
    held = os.open(cache.usable_folder("data"), os.O_RDONLY)
    lock(held)
    slept, waits = time.sleep, []

    def sleep(seconds):  # between one look at the lock and the next
        waits.append(seconds)
        if len(waits) == 3:
            os.close(held)
        slept(seconds)

    monkeypatch.setattr("attn_cli.io.atomic.time.sleep", sleep)
    ran = here("vectors", "import", file(lines(), "v.txt"))
    assert ran.code == 0
    assert ran.err.startswith("attn: Another attn is importing: waiting for it.\nattn: imported v: 8 words")


def test_different_files_that_processes_import_and_use_at_once_lose_nothing(tmp_path, own):
    def used(n):
        path = tmp_path / f"v{n}.txt.gz"
        path.write_bytes(gzip.compress(b"she %d 1\nhe 1 %d\n" % (n, n)))
        code = attn("vectors", "import", str(path)).code
        return code, numbers(open_table(f"v{n}"), ["she", "he"])

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(used, range(1, 5))] == [(0, {"she": [n, 1], "he": [1, n]}) for n in range(1, 5)]
    assert [name for name in sorted(kept("data")) if name.endswith(".json")] == [
        f"v{n}.json" for n in range(1, 5)
    ]
    assert len(kept("data")) == 8  # a record and what was unpacked for each
