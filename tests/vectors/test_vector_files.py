"""Files of word vectors: every format that attn reads, what it refuses, and lookup without loading."""

import contextlib
import errno
import fcntl
import gzip
import io
import lzma
import os
import re
import stat
import struct
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from attn_cli.errors import CreateError, InputError, UsageError, WriteError
from attn_cli.io.array_files import read_safetensors, safetensors_entries
from attn_cli.io.atomic import lock
from attn_cli.io.files import packing
from attn_cli.vectors import SourceFile, as_bytes, as_text, names, open_vectors as cache, table_of
from attn_cli.vectors.detect import open_file, start_of
from attn_cli.vectors.lookup import analogy, look_up, look_up_all, nearest, open_table
from attn_cli.vectors.names import export, import_file
from attn_cli.vectors.open_vectors import INDEXED_FROM, FileVectors, describe, hash_words, keep_index
from attn_cli.vectors.spelling import closest, did_you_mean, near_words
from attn_cli.vectors.word2vec import binary_format, text_format
from tests.alike import assert_alike
from tests.io.test_array_files import described, little_memory, made, npy
from tests.shell import here, record, refused, terminal, told
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


HALVES = (WORDS[:3], MATRIX[:3]), (WORDS[3:], MATRIX[3:])
TEXTS = [
    # of GloVe, word2vec and fastText; with tabs or two spaces, CRLF, a byte-order mark, blank lines, no last newline
    *(lines(), header() + lines(), header() + lines(end=" \r\n"), lines(join="\t"), lines(join="  ")),
    *((header() + lines()).replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + header() + lines()),
    *(b"\n" + lines(end="\n\n"), lines()[:-1], b"\n" + header() + lines()),
    *(gzip.compress(header() + lines()), lzma.compress(lines())),
    # in two parts, also padded with zeros, as tapes leave it
    *(b"".join(gzip.compress(lines(*half)) + pad for half in HALVES) for pad in (b"", b"\0" * 512)),
    *(b"".join(lzma.compress(lines(*half)) + pad for half in HALVES) for pad in (b"", b"\0" * 512)),
]
BINARIES = [header() + records(), header() + records(after=b"\n"), header() + records(after=b"\n")[:-1]]
BINARIES.append(header() + records(*HALVES[0], b"\n") + records(*HALVES[1]))


def on_file(path, binary=False):
    """The file's own reader, however small it is: what serves large files."""
    source = SourceFile.at(path)
    with source.opened() as stream:
        packed = packing(stream.read(6))
    start, _ = start_of(source, packed)
    return FileVectors(binary_format(source, start) if binary else text_format(source, packed, start, True))


def sought(vectors, words):
    """What a search without an index finds, as text."""
    with vectors.form.source.opened() as stream:
        found = vectors.search(stream, {*map(as_bytes, words)})
    return {as_text(word): row.tolist() for word, row in found.items()}


def numbers(vectors, words):
    return {word: row.tolist() for word, row in vectors.find(words).items()}


def listed(vectors):
    return [as_text(word) for part in vectors.rows() for word in part.words]


def kept(kind):
    return os.listdir(cache.vectors_folder(kind))


def check_all(vectors, words=WORDS, matrix=MATRIX):
    found = vectors.find([*words, "absent", "", "th", "thee", "the fox", "fox\n"])
    assert set(found) == set(words) and {row.dtype for row in found.values()} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(np.float32([found[word] for word in words]), matrix)
    np.testing.assert_array_equal(np.vstack([part.matrix for part in vectors.rows()]).astype("f4"), matrix)
    assert listed(vectors) == [as_text(word) for block in vectors.word_blocks() for word in block] == words
    about = describe(vectors)
    assert (about["words"], about["dim"]) == (len(words), matrix.shape[1])


@pytest.mark.parametrize("data", [*TEXTS, *BINARIES], ids=range(len(TEXTS + BINARIES)))
def test_a_file_is_read_and_searched_however_it_is_written(data, file, own):
    path = file(data)
    check_all(open_file(path))
    searched = on_file(path, data in BINARIES)
    for word, row in zip(WORDS, MATRIX, strict=True):  # one word alone is sought in another way than many
        np.testing.assert_array_equal(np.float32(sought(searched, {word})[word]), row)
    assert sought(searched, [*WORDS, "x", "y"]).keys() == set(WORDS)
    check_all(searched)


def test_arrays_are_read_with_their_words_beside_or_inside(at, own):
    listed = "\n".join(WORDS).encode() + b"\n"
    np.save("a.npy", MATRIX)
    np.save("f.npy", np.asfortranarray(MATRIX))
    np.savez("both.npz", words=np.array(WORDS), vectors=MATRIX, numbers=np.eye(8, dtype=int))
    np.savez_compressed("bytes.npz", w=np.array([w.encode() for w in WORDS]), m=MATRIX)
    np.savez("apart.npz", vectors=MATRIX)
    np.savez("lists.npz", one=np.array(WORDS), other=np.array(WORDS), vectors=MATRIX)
    inside = np.frombuffer(listed[:-1], np.uint8)
    bad = r"holds numbers, and no words\. Put the words beside it, .* in the order of the rows, in a\.words\."
    refusals = {"a.npy": bad, "whole.npy": "hold no decimal numbers"}
    refusals["lists.npz"] = "holds 1 matrices and 2 lists of words"
    for name, arrays in {
        "m.safetensors": {"embedding": MATRIX, "bias": np.zeros(3)},
        "two.safetensors": {"one": MATRIX, "other": MATRIX},
        "flat.safetensors": {"vectors": MATRIX[:, 0], "words": inside},
        "wide.safetensors": {"vectors": MATRIX, "words": inside.astype(np.int32)},
    }.items():
        Path(name).write_bytes(made(arrays, {}))
        refusals[name] = "needs the arrays vectors and words"
    np.save("whole.npy", np.eye(8, dtype=int))
    for name in ("two.words", "whole.words"):
        Path(name).write_bytes(listed)
    for name, said in refusals.items():
        with pytest.raises(InputError, match=said):
            open_file(str(at / name))
    for name in ("a.words", "apart.vocab", "m.words"):
        Path(name).write_bytes(listed)
    for name in ("a.vocab", "a.txt", "apart.txt"):  # of several lists the first of these suffixes counts
        Path(name).write_bytes(b"another\n")
    Path("f.txt").write_bytes(listed.replace(b"\n", b"\r\n"))
    for name in ("a.npy", "f.npy", "both.npz", "bytes.npz", "apart.npz", "m.safetensors"):
        check_all(vectors := open_file(name))
        assert describe(vectors)["bytes"] == os.path.getsize(name)
    for rows in (2, slice(1, 4), slice(6, 2), slice(None, None, 3), np.array([5, 0])):
        np.testing.assert_array_equal(open_file("a.npy").matrix[rows], MATRIX[rows])
    Path("a.words").write_bytes(listed + b"more\n")
    with pytest.raises(InputError, match="9 words but 8 vectors"):
        open_file("a.npy")
    os.truncate("f.npy", os.path.getsize("f.npy") - 1)
    with pytest.raises(InputError, match="is cut off"):
        open_file("f.npy")


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


def test_what_gensim_writes_is_read_and_has_the_same_neighbours_and_analogies(keyed, at, own):
    def alike(ours, theirs):
        assert ours == [(word, pytest.approx(cosine, abs=1e-6)) for word, cosine in theirs]

    for name, options in (("t.txt", {}), ("b.bin", {"binary": True}), ("g.txt", {"write_header": False})):
        keyed.save_word2vec_format(name, **options)
    keyed.save_word2vec_format("z.txt.gz")
    keyed.save("one.kv")
    keyed.save("two.kv", sep_limit=0)
    words = ["w1é", "w2é", "w3é"]
    theirs = keyed.most_similar("w7é", topn=10)
    meant = keyed.most_similar(positive=words[1:], negative=words[:1], topn=200)
    for name in ("t.txt", "b.bin", "g.txt", "z.txt.gz", "one.kv", "two.kv"):
        vectors = open_table(f"./{name}")
        found = vectors.find(["w7é", "nothing", *words])
        assert found.keys() == {"w7é", *words}, name
        np.testing.assert_array_equal(found["w7é"].astype(np.float32), keyed["w7é"])
        alike(nearest(vectors, found["w7é"], 10, ["w7é"]), theirs)
        alike(analogy(vectors, words, [found[word] for word in words], 200), meant)
        assert told("vectors", "nearest", "w7é", "-e", f"./{name}", "--top", "1").split()[0] == theirs[0][0]


@pytest.mark.parametrize("out", ["out.txt", "out.vec", "out.bin"])
def test_what_is_exported_gensim_reads_back_equal(keyed, at, out, own):
    keyed.save_word2vec_format("in.bin", binary=True)
    count, size = export(open_table("in.bin"), out)
    back = type(keyed).load_word2vec_format(out, binary=out == "out.bin")
    assert count == len(back) == 200 and size == os.path.getsize(out)
    assert back.index_to_key == keyed.index_to_key
    np.testing.assert_array_equal(back.vectors, keyed.vectors)


@pytest.mark.parametrize("out", ["out.txt", "out.bin", "out.safetensors"])
def test_an_export_is_read_back_as_it_was_and_has_the_same_fingerprint(file, at, out, own, monkeypatch):
    monkeypatch.setattr("attn_cli.io.files.PIECE", 100)  # bytes that are read at once
    vectors = open_file(file(header() + lines()))
    export(vectors, out)
    check_all(open_file(out))
    same = (open_file(out), vectors, on_file(file(lines(join="\t"))))
    assert len({one.fingerprint() for one in same}) == 1
    for most, count in ((3, 3), (99, 8)):
        assert export(same[2], out, most)[0] == count
        check_all(open_file(out), WORDS[:count], MATRIX[:count])


def test_an_export_refuses_what_would_be_read_as_something_else_and_never_replaces_its_source(file, at, own):
    spaced, huge = file("2 2\nnew york 1 2\nshe 3 4\n", "mine.txt"), file("a 1e300 1\n", "huge")
    odd = file(b"2 1\nshe \0\0\x80?\nhe \0\0\xc0\x7f\n", "odd")  # 1 and NaN
    assert here("vectors", "import", spaced).code == 0
    for read, name, code, said in (
        *((spaced, f"out{suffix}", 65, "'new york' holds a space") for suffix in (".txt", ".bin")),
        *((spaced, "out.json", 2, "out.json"), (huge, "out.bin", 65, "too large for float32")),
        *((source, spaced, 2, "is the file that is read") for source in (spaced, "mine", "./mine.txt")),
        (odd, "out.txt", 65, "the vector of 'he' holds NaN or infinity"),
    ):
        count = "2" if read == odd else "1"
        assert said in refused("vectors", "export", read, "-o", name, "--words", count, code=code)
        assert not (at / "out.txt").exists() and not (at / "out.bin").exists()
    for space in b"\t\r\v\f":  # which a list of words may hold
        with pytest.raises(InputError, match="holds a space"):
            export(table_of("t", [b"new%cyork" % space], np.eye(1), {}, 0), "out.txt")
    assert here("vectors", "export", odd, "-o", "out.txt", "--words", "1").code == 0
    assert Path("out.txt").read_bytes() == b"1 1\nshe 1.0\n"
    assert Path(spaced).read_bytes() == b"2 2\nnew york 1 2\nshe 3 4\n"
    export(open_file(spaced), "out.safetensors")
    assert numbers(open_file("out.safetensors"), ["new york"]) == {"new york": [1, 2]}


LARGE_WORDS = [*WORDS, *(f"filling{i}" for i in range(40_000))]  # enough for an index
FILLED = np.random.default_rng(1).standard_normal((40_000, 12), np.float32)
LARGE = np.vstack([np.resize(MATRIX, (8, 12)), FILLED])
LARGE_TEXT = lines(LARGE_WORDS, LARGE)
LARGE_BINARY = b"40008 36\n" + records(LARGE_WORDS, np.hstack([LARGE] * 3))
large = pytest.mark.parametrize("data", [LARGE_TEXT, LARGE_BINARY], ids=["text", "binary"])


def swap(path, data):
    """Write another content that looks as old as the one before."""
    was = os.stat(path)
    Path(path).write_bytes(data)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@large
def test_an_index_is_kept_and_gives_what_a_search_gives(data, file, own):
    assert len(data) > INDEXED_FROM
    path = file(data)
    searched = open_table(path)
    some = [*WORDS, "filling0", "filling39999", "filling4", "absent", "filling40000"]
    wanted = numbers(searched, some)
    assert set(wanted) == set(some[:-2]) and searched.index is None
    parts = []
    told = keep_index(searched, parts.append)
    assert re.fullmatch(r"Indexed .*: 40,008 words of (12|36) numbers\.", told)
    assert parts == sorted(parts) and 0 < parts[0] < 1 == parts[-1]
    indexed = open_table(path)
    assert indexed.index is not None and not keep_index(indexed)
    assert numbers(indexed, some) == wanted and indexed.index is not None
    kind, dtype, dim = ("text", "float64", 12) if data == LARGE_TEXT else ("word2vec binary", "float32", 36)
    of = {"source": "file", "name": path, "words": 40_008, "dim": dim, "dtype": dtype, "length": None}
    assert describe(indexed) == of | {"bytes": len(data), "settings": None, "about": {"format": kind}}
    assert os.path.getsize(cache.index_path(path)) < 17 * len(LARGE_WORDS) + 1000


@large
def test_an_index_of_another_file_or_another_time_is_not_used_nor_believed(data, file, own):
    path = file(data)
    keep_index(open_table(path))
    assert open_table(path).index is not None
    swap(path, data + data[:1])
    assert open_table(path).index is None  # another size
    swap(path, data.replace(b"filling7", b"fiLLing7"))
    stale = open_table(path)  # the same size, the same time: only the word at the offset tells
    assert stale.index is not None and stale.find(["filling7", "filling70", "fox"]).keys() == {"fox"}
    swap(path, data)
    keep_index(open_table(path))
    os.utime(path, (1, 1))
    assert open_table(path).index is None  # another time
    keep_index(open_table(path))
    longer = re.sub(rb"(?m)^filling7( .*).$", rb"filling7_\1", LARGE_TEXT)
    swap(path, longer if data == LARGE_TEXT else data.replace(b"g7 ", b"g7_"))
    with contextlib.suppress(InputError):  # which records that were moved are
        assert open_table(path).find(["filling7"]) == {}, "a longer word is not taken for it"


def test_an_index_whose_file_was_put_in_another_order_is_not_believed_when_it_finds_nothing(file, own):
    path = file(LARGE_TEXT)
    keep_index(open_table(path))
    first = LARGE_TEXT.index(b"\n") + 1
    swap(path, LARGE_TEXT[first:] + LARGE_TEXT[:first])
    stale, some = open_table(path), {"the", "fox", "filling7"}
    assert stale.index is not None and stale.find([*some]).keys() == some
    assert stale.index is None and open_table(path).index is None


DOUBLED = LARGE_TEXT + lines(LARGE_WORDS[:1000], LARGE[1:1001])


@pytest.mark.parametrize(("turn", "data"), [(0, DOUBLED), (1, LARGE_BINARY)], ids=["text", "binary"])
def test_a_damaged_index_never_hides_a_word_and_is_made_anew_which_is_told_once(turn, data, file, own):
    path = file(data)
    vectors, few = open_table(path), [*WORDS[:3], "filling20000", "filling39999", "absent"]
    keep_index(vectors)
    kept, wanted, about = Path(cache.index_path(path)), numbers(vectors, few), describe(vectors)
    sound, draw = kept.read_bytes(), np.random.default_rng(2)
    arrays, _ = safetensors_entries(io.BytesIO(sound), "index")
    (first,) = vectors.index.find([b"fox"]).values()
    at_fox = sound.index(struct.pack("<Q", word_hash(b"fox")))
    damages = [(one.offset, one.size, byte) for one in arrays.values() if one.size for byte in b"\0\xff"]
    damages += [(arrays["hashes"].offset, 8 * 8000, 0), (at_fox, 2, 0)]
    damages += [(sound.index(struct.pack("<q", first)), 7, 255)]
    damages += [(int(start), 1, 0x5A) for start in draw.integers(0, len(sound), 30)]
    damaged = [(True, sound[:cut]) for cut in (0, 7, 15, 100, len(sound) // 2, -1)] + [(True, sound + b"x")]
    for start, count, byte in some(damages, turn):
        damaged.append((count > 1, sound[:start] + bytes([byte]) * count + sound[start + count :]))
    for is_seen, bad in damaged:
        kept.write_bytes(bad)
        again = open_table(path)
        assert numbers(again, few) == wanted
        if is_seen:  # where the words asked for stand
            assert again.index is None and describe(again) == about
            assert keep_index(open_table(path)).startswith("Indexed") and kept.read_bytes() == sound
    kept.write_bytes(sound[: at_fox - 2000] + bytes(4000) + sound[at_fox + 2000 :])
    near = ("vectors", "nearest", "fox", "-e", path, "--top", "1")
    doubled = "; 1,000 doubled, the first of each counts" if data[:3] == b"the" else ""
    said = f"attn: Indexed {path}: 40,008 words of {vectors.dim} numbers{doubled}.\n"
    assert here(*near) == (0, told(*near), said)


def test_without_a_cache_the_file_is_searched_and_imported_and_that_is_told_once(file, own, monkeypatch):
    own.mkdir(exist_ok=True)
    (own / "cache").write_text("a file, not a folder")
    path = file(LARGE_TEXT, "large.txt")
    code, _, err = here("vectors", "nearest", "fox", "-e", path, "--top", "1")
    why = f"The cache {own}/cache/attn/vectors cannot be written to."
    assert (code, err) == (0, f"attn: No index of {path} is kept, so each use searches the file. {why}\n")
    assert "No index of large is kept" in here("vectors", "import", path).err
    assert here("self", "the fox", "-e", "large").code == 0
    assert names.listing()[1:] == [("large", "imported", 40_008, 12, "text", path)]
    file(lines(), "large.txt")
    assert names.listing()[1:] == [("large", "imported", 8, 5, "text", path)]
    file(LARGE_TEXT.replace(b"\n", b" 0.5\n"), "large.txt")  # only reading all of it would tell
    assert names.listing()[1:] == [("large", "imported", None, 13, "text", path)]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/no/good")
    assert str(cache.vectors_folder("cache")).startswith(os.path.expanduser("~/.cache/attn"))
    monkeypatch.delenv("HOME", raising=False)
    assert cache.vectors_folder("cache") is None or os.path.isabs(cache.vectors_folder("cache"))
    monkeypatch.setattr("attn_cli.io.files.user_folder", lambda kind: None)
    for kind, what, variable in (("cache", "The cache", "CACHE"), ("data", "The folder of names", "DATA")):
        with pytest.raises(CreateError) as caught:
            cache.usable_folder(kind)
        said = f"{what} has no place: there is no home folder. Set XDG_{variable}_HOME to a folder."
        assert str(caught.value) == said
    assert cache.index_path(path) == "" and open_table(path).index is None


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


@pytest.mark.parametrize("write", [lines, records])
def test_the_first_of_doubled_words_wins_and_the_count_is_told(write, file, at, own, monkeypatch):
    words = ["she", "he", "she", "it", "he", "it"]
    matrix = np.arange(12, dtype=np.float32).reshape(6, 2) + 0.5
    path = file(header(words, matrix) + write(words, matrix), "d.txt")
    monkeypatch.setattr("attn_cli.vectors.BLOCK", 4)  # rows of a table that are read at once
    first = {"she": [0.5, 1.5], "he": [2.5, 3.5], "it": [6.5, 7.5]}
    many = [f"absent{n}" for n in range(300)]  # are looked up in another way than few
    on_disk = on_file(path, write is records)
    for vectors, more in ((open_file(path), []), (open_file(path), many), (on_disk, [])):
        assert numbers(vectors, [*words, *more]) == first
        found = [(as_text(w), v.tolist()) for part in vectors.rows() for w, v in zip(*part, strict=True)]
        assert found == [*first.items()]
        assert describe(vectors)["words"] == 3 and vectors.about["doubled"] == "3"
    export(open_file(path), "without.safetensors")
    assert read_safetensors("without.safetensors")[1] == {"format": "attn-vectors/1"}
    assert "3 doubled words" in here("self", "she", "-e", path, "-f", "json").out


def test_words_that_are_not_utf_8_are_matched_by_their_bytes_and_shown_inert(file, own):
    word = b"caf\xe9"
    binary = b"2 2\n" + word + b" " + struct.pack("<2f", 1, 2) + b"she " + b"\0" * 8
    for data in (word + b" 1 2\nshe 3 4\n", b"2 2\n" + word + b" 1 2\nshe 3 4\n", binary):
        for vectors in (open_file(path := file(data)), on_file(path, data == binary)):
            assert numbers(vectors, ["caf\udce9", "café"]) == {"caf\udce9": [1, 2]}
    assert as_bytes("\ud800") == b"\xed\xa0\x80"  # half a character, as UTF-8 would have it
    for data, shown in ((binary, "caf<U+DCE9> "), (b"\x1b[31mred 1 2\nshe 3 4\n", "^[[31mred ")):
        assert told("vectors", "nearest", "she", "-e", file(data, "v.txt")).startswith(shown)


FOLD = b"x" * 5000
GOOD_LINES = "".join(f"w{i} 1 2 3 4\n" for i in range(50))
NOT_FINITE = "he.*NaN|line 2: a number is not finite"
BAD = [
    ("1000000000000 2\nshe 1 2\n", "line 1.*1,000,000,000,000"),
    *((f"{bad} 8\nshe 1 2 3 4 5 6 7 8\n", f"line 1.*{bad} 8") for bad in ("-5", "5.0")),
    *((f"{bad} 3\nshe 1 2 3\n", f"line 1.*{bad} 3") for bad in ("1_0", "0x5")),
    *((f"{bad} 2\nshe 1 2\n", f"the header '{f'{bad} 2'[:40]}' is not") for bad in ("-5", f"-{'5' * 60}")),
    *((f"{count} 2\nshe 1 2\nhe 3 4\n", f"line 1.*{count} words.*2") for count in (1, 3)),
    ("2 3\nshe 1 2\nhe 3 4 5\n", r"line 2: 2 numbers; 3 were expected by line 1\."),
    # what is looked at, 8 kB, ends inside a letter
    *((f"2 3\nshe 1 2\n{'x' * (8184 - n)}🦊 1 2 3\n", "line 2: 2 numbers") for n in (1, 2, 3)),
    ("new york 1 2 3\nshe 4 5 6\n", "line [12]"),  # of one of them
    ("she 1 2\nhe 3\nit 5 6\n", r"line 2: 1 number; 2 were expected\."),
    *(("she 1 2\n\nhe\n", "line 3: 0 numbers; 2 "), ("she 0,5 2\n", "line 1")),
    *((f"{bad}\n", r"line 1: a word without numbers\. Type them after") for bad in ("she", "she\nhe 1")),
    ("\nshe,0.5,1\nhe,1,2\n", r"line 2: a word without numbers\. Part the word and its numbers by spaces"),
    ("she 1 2\nhe\nit\n", "line 2: 0 numbers; 2 "),
    ("0 0\nshe 1 2\n", "line 1.*0 0"),
    ("she 1 2\nhe 3 4\nit 5 6 7\n", "line 3: 3 numbers; 2 were expected"),
    *((f"she 1 2\nhe 3 {n}\nit 5 6\n", f"line 2: '{n[:40]}' is not a number") for n in ("four", "z" * 60)),
    *((f"she 1 2\nhe {bad} 4\n", "line 2") for bad in ("0x3", "1_0", "٣")),
    *((f"she 1 2\nhe {bad} 4\nit {bad} 5\n", NOT_FINITE) for bad in ("nan", "-inf", "1e400")),
    ("she 1 2\n3 4\nit 5 6\n", "line 2: 1 number;"),
    (b"she 1 2\n" + FOLD + b" 3 4\nit 5 6\n", "line 2: a word of 5,000 bytes"),
    ("she 1 2\nhe \0 x\n", "zero byte at 11|line 2"),
    # too many numbers in one line, which do not make up for too few in another
    (GOOD_LINES + "new york 1 2 3 4\nbad 1 2 3\n", "line 52: 3 numbers; 4 were expected"),
    *((empty, "is empty") for empty in (b"", b"\n \n", b"\xef\xbb\xbf")),
]


GOOD = header() + records()
TWO = b"2 2\n%b " + b"\1\2\3\4" * 2 + b"she " + b"\1\2\3\4" * 2
BAD_BINARIES = [
    *((f"{bad} 5\n".encode() + records(), f"line 1.*{bad} 5") for bad in ("-8", "8.0")),
    (b"%d 5\n" % 10**12 + records(), f" 1,000,000,000,000 words of 5 .* for {len(records()) // 22} at most"),
    (b"0 0\n" + records(), "line 1.*0 0"),
    (b"7 5\n" + records(), "claims 7 words; there are more"),
    (b"9 5\n" + records() + b"abcdefg ", "claims 9 words|room for|cut off"),
    *((b"8 %d\n" % dim + records(), "room for|cut off|no word|claims") for dim in (4, 6)),
    (GOOD[:-3], f"byte {len(GOOD) - 22}: the last record is cut off"),
    *((TWO % word, "cut off|no word|claims|room") for word in (b"", b"a\nb")),
    (b"2 2\nshe " + b"\1\2\3\4" * 2 + FOLD + b" " + b"\1\2\3\4" * 2, "byte 16: no word of 1 to 4,096 bytes"),
    (b"1 1000000000\n" + b"\0" * 100, "1,000,000,000 numbers"),
]


@pytest.mark.parametrize(("data", "told"), [*BAD, *BAD_BINARIES], ids=lambda one: repr(one)[:30])
def test_a_bad_file_is_refused_in_one_line(data, told, file, own, monkeypatch):
    is_text_that_can_be_searched = (data, told) in BAD and told != "is empty"
    for opened, piece in ((open_file, 1 << 22), (on_file, 20))[: 1 + is_text_that_can_be_searched]:
        monkeypatch.setattr("attn_cli.io.files.PIECE", piece)  # bytes that are read at once
        with pytest.raises(InputError) as caught:
            vectors = opened(file(data, "bad.txt"))
            look_up_all([*WORDS, "she", "he", "it", "absent", FOLD.decode(), "5"], vectors)
            describe(vectors)
        message = caught.value.message
        assert re.search(told, str(caught.value)) and "bad.txt" in message and "\n" not in message, message
    if told == "claims 7 words; there are more":  # also where a search might stop before
        with pytest.raises(InputError, match=told):
            sought(on_file(file(data), binary=True), WORDS)


@pytest.mark.parametrize(("has_header", "write"), [(False, lines), (True, lines), (True, records)])
def test_a_word_has_at_most_a_hundred_thousand_numbers(has_header, write, file, own):
    few, many = (np.ones((1, count), "f4") for count in (100_000, 100_001))
    assert open_file(file(header("a", few) * has_header + write("a", few))).dim == 100_000
    with pytest.raises(InputError, match="100,001 numbers a word; 100,000 are the limit"):
        open_file(file(header("a", many) * has_header + write("a", many)))


def test_a_binary_row_that_is_not_finite_is_refused_when_it_is_looked_up(file, own):
    matrix = MATRIX.copy()
    matrix[1, 2] = np.nan
    path = file(header() + records(matrix=matrix))
    vectors = open_file(path)
    with pytest.raises(InputError, match="'fox' holds NaN or infinity"):
        look_up("fox", vectors)
    assert "fox" not in [word for word, _ in nearest(vectors, vectors.find(["the"])["the"], 8)]
    assert "fox" not in told("explain", "the naïve", "-e", path)
    matrix = np.array([[1, 2], [np.nan, 4]], "f4")  # a form that is not used may hold it
    path = file(header(["She", "she"], matrix) + records(["She", "she"], matrix), "nan.bin")
    assert [here("self", word, "-e", path).code for word in ("She", "she")] == [0, 65]


def zipped(member):
    """What begins as an archive does: the head of its first member."""
    return b"PK\3\4" + bytes(22) + struct.pack("<HH", len(member), 0) + member


FOREIGN = [
    (b"\xba\x16\x4f\x2f\x0c\0\0\0" + b"\0" * 50, "fastText model", "load_facebook_vectors"),
    (b"SQLite format 3\0" + b"\0" * 84, "Magnitude", "text"),
    (b"GGUF\3\0\0\0" + b"\0" * 30, "GGUF", "gguf"),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "PyTorch", "torch.load"),
    (b"\x89HDF\r\n\x1a\n" + b"\0" * 30, "HDF5", "h5py"),
    (b"BZh91AY&SY" + b"\0" * 30, "bzip2", "bunzip2 -k ./foreign.txt"),
    (b"(\xb5/\xfd" + b"\0" * 30, "zstd", "unzstd ./foreign.txt"),
    *((zipped(name), "PyTorch", "torch.load('./foreign.txt', ") for name in (b"m/data.pkl", b"m/byteorder")),
    (zipped(b"glove.txt"), "ZIP archive", "unzip ./foreign.txt"),
    *((begin + bytes(9), "archive", "Unpack it first") for begin in (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")),
    (b"v.txt".ljust(257, b"\0") + b"ustar", "tar archive", "tar -xf ./foreign.txt"),
    *(("\ufeffshe 1 2\n".encode(f"utf-16-{end}"), "UTF-16", "UTF-8 ./foreign.txt") for end in ("le", "be")),
    # Its time would be part of the test's name.
    (gzip.compress(GOOD, mtime=0), "packed word2vec binary", "attn vectors import ./foreign.txt"),
    *((gzip.compress(one, mtime=0), "neither text nor", "gzip -dk ./") for one in (b"\x93NUMPY", b"\x80\1")),
]


@pytest.mark.parametrize(("data", "named", "way"), FOREIGN, ids=lambda one: str(one)[:20])
def test_a_format_that_attn_does_not_read_is_named_with_the_way_round(data, named, way, file, at, own):
    file(data, "foreign.txt")
    said = refused("self", "she", "-e", "./foreign.txt", code=65)
    assert named in said and way in said


@takes_long
def test_bombs_are_stopped_before_they_cost_memory(file, own):
    unpacked = b"she 1 2\n" * (1 << 22)  # 32 MB that compress to little
    packed = gzip.compress(b"0" * (20 << 20), 9)
    many = gzip.compress(unpacked * 3, 6)
    wide = lzma.compress(unpacked * 3, preset=0)
    for data, said in ((packed, "line 1: a line of more than"), (many, "30 times"), (wide, "30 times")):
        path = file(data, "bomb.gz")
        with little_memory(60 << 20), pytest.raises(InputError, match=said):
            open_file(path).find(["absent"])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_file_that_is_cut_off_or_damaged_or_hides_too_much_is_refused(pack, file, own, monkeypatch):
    monkeypatch.setattr("attn_cli.io.files.GROWTH_COUNTS_FROM", 1 << 16)
    few = describe(open_file(path := file(pack(b"she 1 2\n" * (1 << 13)))))
    kind = "text, gzip" if pack is gzip.compress else "text, xz"
    assert (few["words"], few["bytes"], few["about"]["format"]) == (1, os.path.getsize(path), kind)
    with pytest.raises(InputError, match="unpacks to more than 30 times its size"):
        open_file(file(pack(b"she 1 2\n" * (1 + (1 << 13)))))
    data = pack(lines() * 20)
    broken = bytearray(data)
    broken[len(data) // 2] ^= 0xFF
    for bad, said in (*((data[:cut], "cannot be unpacked") for cut in (20, 40, -9, -1)), (broken, "bad.gz")):
        with pytest.raises(InputError, match=said):
            open_file(file(bad, "bad.gz"))


@large
def test_a_file_that_changes_or_shrinks_meanwhile_is_refused_and_kills_nobody(data, file, own):
    path = file(data)
    for change in (lambda: os.utime(path, (1, 1)), lambda: os.truncate(path, len(data) // 2)):
        vectors = open_table(path)
        rows = vectors.rows()
        next(rows)
        change()
        with pytest.raises(InputError, match="changed"):
            vectors.find(["absent"])
        with pytest.raises(InputError, match=r"changed|line 1: the header claims|cut off"):
            list(rows)


PART = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=6)
LINE = st.tuples(
    st.sampled_from(["", "", "  ", "\n", " \t\n"]),
    PART | st.sampled_from(["new york", "new", "york", ". . .", "é 日 x", "a, b"]),
    st.sampled_from([" ", "\t", "  "]),
    st.lists(st.floats(-1e30, 1e30, allow_nan=False), min_size=2, max_size=2),
    st.sampled_from(["", "", " ", "\r", "\n\n"]),
)


def typed(*words, indent="", after=""):
    return [(indent, word, " ", [1, n], after) for n, word in enumerate(words)]


MANY = [f"w{i}" for i in range(100)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=often(60))
@given(rows=st.lists(LINE, min_size=1, max_size=60))
@example(rows=typed("she", "new york", "new", ". . ."))
@example(rows=typed(*MANY, after=" ") + typed("new york", "x"))
@example(rows=typed("a", indent=" " * 8) + typed(*MANY[:50], "b\xa0c"))
def test_whole_searched_and_indexed_a_text_reads_the_same(rows, file, own):
    told = (start + word + join + join.join(map(repr, row)) + after for start, word, join, row, after in rows)
    path = file("\n".join([f"{len(rows)} 2", *told, ""]))
    whole, searched, indexed = open_file(path), on_file(path), on_file(path)
    indexed.indexed()
    firsts = {word: row for _, word, _, row, _ in reversed(rows)}
    words = [*firsts, "absent\n"]
    assert numbers(whole, words) == numbers(searched, words) == numbers(indexed, words) == firsts
    assert indexed.index is not None, "it was right"
    assert sought(searched, words) == firsts and whole.n_words == indexed.n_words == len(firsts)
    assert sought(searched, {words[0]}) == {words[0]: firsts[words[0]]}


@pytest.mark.parametrize("count", [3, 99, 100, 101, 250])
def test_a_header_above_single_numbers_is_a_header_however_many_rows_follow(count, file, own):
    path = file(f"{count} 1\n" + "".join(f"w{i} {i}\n" for i in range(count)))
    assert open_file(path).n_words == count == on_file(path).n_words


@pytest.mark.parametrize("without", [1, 30, 59])
def test_a_newline_that_is_missing_between_records_moves_no_other_word(without, file, own):
    matrix = np.arange(120, dtype=np.float32).reshape(60, 2)
    parts = [records([word], matrix[i : i + 1]) for i, word in enumerate(MANY[:60])]
    data = header(MANY[:60], matrix) + b"\n".join(parts[:without]) + b"\n".join([b"", *parts[without:]])[1:]
    vectors = on_file(file(data), binary=True)
    assert vectors.n_words == 60
    assert numbers(vectors, MANY) == dict(zip(MANY[:60], matrix.tolist(), strict=True))


ABOUT = [
    *({"doubled": lie} for lie in ("-1", "2", "x", "18446744073709551615")),
    *({"length": bad} for bad in ("nan", "1e999", "0", "-4", [4])),
    *({"settings": bad} for bad in ("[1, Infinity]", "[" * 200_000)),
]


@pytest.mark.parametrize("about", ABOUT, ids=range(len(ABOUT)))
def test_what_a_table_says_of_itself_is_checked_and_never_becomes_json_that_is_none(about, at, own):
    for words in (b"she\nhe\nit", b"she\nhe\nshe"):
        arrays = {"vectors": np.eye(3, 2), "words": np.frombuffer(words, np.uint8)}
        Path("t.safetensors").write_bytes(made(arrays, about))
        vectors = open_file("t.safetensors")
        assert vectors.n_words == len({*words.split()})
    assert vectors.about["doubled"] == "1" and listed(vectors) == ["she", "he"]
    told = here("vectors", "info", "t.safetensors", "-f", "json")
    assert told.code == 0 and '"length": null' in told.out and '"settings": null' in told.out
    assert here("self", "she zzz", "-e", "t.safetensors", "--oov", "random").code == 0


def test_arrays_that_numpy_itself_stumbles_over_are_refused_and_headers_of_python_2_are_read(at, own):
    words = np.array(["she", "he"])
    words.view("<u4")[0] = 0x110000
    np.savez("two.npz", words=words, vectors=np.eye(2))
    old = "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }"
    for name, data in {
        "old": npy(old, np.arange(6, dtype="<f4").tobytes()),
        "flat": npy(described("<f4", (0, (1 << 63) - 1), True)),
        "none": npy(described("<f4", (2, 0))),
        "line": npy(described("<f4", (2,)), b"\0" * 8),
        "long": npy(described("<f16", (2, 3)), b"\0" * 96),
    }.items():
        Path(f"{name}.npy").write_bytes(data)
        Path(f"{name}.words").write_bytes(b"she\nhe")
    assert numbers(open_file("old.npy"), ["he"]) == {"he": [3, 4, 5]}
    np.savez("most.npz", words=np.array(["\U0010ffff", "he"]), vectors=np.eye(2))
    assert numbers(open_file("most.npz"), ["\U0010ffff"]) == {"\U0010ffff": [1, 0]}
    told = dict.fromkeys(("flat.npy", "none.npy", "line.npy"), "not a row for each word")
    told |= {"two.npz": "holds what is not text", "long.npy": "numbers of 16 bytes"}
    for name, said in told.items():
        with pytest.raises(InputError, match=said):
            open_file(name)


def test_no_warning_of_a_library_reaches_the_reader(file, own):
    signalling = b"1 2\nsh\x1be " + struct.pack("<I", 0x7F800001) * 2
    with pytest.raises(InputError, match=r"the vector of 'sh\^\[e' holds NaN"):
        look_up("sh\x1be", open_file(file(signalling)))
    with pytest.raises(InputError):
        open_file(file(b"the \x1c\n", "white"))
    for begun, after in ((b"", b"1"), (b"1 1\n", b"\0\0\x80?")):
        assert listed(open_file(file(begun + b"x" * 4096 + b" " + after))) == ["x" * 4096]
    huge = file(b"she 1e300 1\n", "huge")
    assert open_file(huge).fingerprint()
    assert [len(list(on_file(one).rows())) for one in (huge, file("she 1 2\n" * 3 + " ", "blank"))] == [1, 1]
    assert numbers(on_file(file(b"\r 1.5\nshe 2\n", "return")), ["\r"]) == {"\r": [1.5]}


def test_an_imported_file_has_a_name_for_every_command(file, own):
    path, name = file(LARGE_TEXT, "glove.large.50d.txt"), "glove.large.50d"
    for of in (path, os.path.relpath(path)):
        ran = here("vectors", "import", of)
        assert ran.code == 0 and "stood for" not in ran.err
    assert re.search(rf"{re.escape(name)} +40,008 +12 +text +{re.escape(path)}", told("vectors", "list"))
    narrow = terminal("vectors", "info", columns=50).out.splitlines()
    assert {len(line) - len(line.lstrip()) for line in narrow} == {0, 13}  # below the values
    assert record("vectors", "info", name)["name"] == name
    ran = here("vectors", "import", file(lines(), "other.txt"), "--name", name)
    assert f"{name} stood for {path} before.\n" in ran.err
    assert "40,008" not in told("vectors", "info", name)


@pytest.mark.parametrize("name", ["word2vec", "random", "a/b", "../x", "v.TXT", "", "-x", "é", "x" * 200])
def test_a_name_that_would_mislead_is_refused(name, file, own):
    why = "is taken" if name in ("word2vec", "random") else "cannot be the name of imported vectors"
    rule = "letters from A to z, digits, - _ . + and no file's suffix."
    for path, asked, said in (
        ("v", name, f"{name[:60]!r} {why}. Choose another"),
        ("é.TXT", None, "'é' cannot be the name of imported vectors. Choose one with --name"),
    ):
        with pytest.raises(UsageError) as caught:
            import_file(file(lines(), path), asked)
        assert str(caught.value) == f"{said}: {rule}"


def test_a_name_whose_file_is_gone_or_whose_record_is_damaged_is_told(file, own):
    path = file(LARGE_TEXT, "gone.txt")
    here("vectors", "import", path)
    os.unlink(path)
    anew = "Import it anew: attn vectors import FILE --name gone"
    said = f"attn: gone stands for {path}, which is gone. {anew}\n"
    assert refused("self", "fox", "-e", "gone", code=66) == said and told("vectors", "list")
    kinds = {("self", "fox", "-e"): (" (-e)", "random, "), ("vectors", "info"): ("", "")}
    for command, (named, others) in kinds.items():
        said = f"Did you mean gone? Choose word2vec, {others}a file, or a name that attn vectors list shows."
        assert refused(*command, "gnoe") == f"attn: There are no vectors 'gnoe'{named}. {said}\n"
    kept = Path(cache.vectors_folder("data"), "gone.json")
    for broken in ("{broken", "[]", "{}", '{"path": 5}', "[" * 50_000):
        kept.write_text(broken)
        assert "The name gone is damaged" in refused("self", "fox", "-e", "gone", code=65)
        assert names.listing()[1].format == f"unreadable: The name gone is damaged: {kept}."
    assert "unreadable" in here("vectors", "list").out
    assert here("vectors", "remove", "gone").code == 0


def test_a_packed_import_is_unpacked_once_and_the_unfinished_are_tidied_away(file, own):
    *_, notes = import_file(file(gzip.compress(LARGE_TEXT, 1), "packed.txt.gz"))
    folder = Path(cache.vectors_folder("data"))
    (unpacked,) = folder.glob("packed.*.vectors")
    assert notes == [f"unpacked to {unpacked}, {len(LARGE_TEXT):,} bytes."]
    assert unpacked.read_bytes() == LARGE_TEXT
    assert open_table("packed").index is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    left, *others = (folder / name for name in (".old.part", "old.part", ".old", "é.json"))
    for one in (left, *others):
        one.write_bytes(b"x")
    import_file(file(gzip.compress(lines()), "small.TXT.gz"))
    assert not left.exists() and all(one.exists() for one in (unpacked, *others))
    assert names.imported() == ["packed", "small"]
    import_file(file(lines(), "now.txt"), "packed")
    assert not unpacked.exists()
    import_file(file(gzip.compress(GOOD), "b.bin.gz"))
    check_all(open_table("b"))


def test_an_import_that_fails_leaves_the_name_as_it_was_and_no_unpacked_file(file, own, monkeypatch):
    import_file(file(gzip.compress(lines()), "good.txt.gz"), "x")
    before = sorted(kept("data"))
    assert before[1] == "x.json" and re.fullmatch(r"x\.[0-9a-f]{8}\.vectors", before[0])
    late, no_locks = LARGE_TEXT + b"bad 1 2 3\n", OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    for flock in (fcntl.flock, mock.Mock(side_effect=no_locks)):  # as on some network file systems
        monkeypatch.setattr("fcntl.flock", flock)
        for bad in (b"nothing here\n", late, late + b"\0"):
            with pytest.raises(InputError, match=r"bad\.txt\.gz"):
                import_file(file(gzip.compress(bad, 1), "bad.txt.gz"), "x")
            check_all(open_table("x"))
            assert sorted(kept("data")) == before

    def replace(old, new, real=os.replace):
        if new.endswith(".json"):
            raise OSError(30, "Read-only file system")
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    for name in ("x", "fresh"):
        with pytest.raises(WriteError, match="Nothing was changed"):
            import_file(file(gzip.compress(LARGE_TEXT, 1), "other.txt.gz"), name)
    check_all(open_table("x"))
    assert sorted(kept("data")) == before and kept("cache") == []


def test_an_import_that_waits_for_another_says_so_once(file, own, monkeypatch):
    held = os.open(cache.usable_folder("data"), os.O_RDONLY)
    lock(held)
    waits = iter((time.sleep, time.sleep, lambda seconds: os.close(held)))  # for one more look at the lock
    monkeypatch.setattr("attn_cli.io.atomic.time.sleep", lambda seconds: next(waits)(seconds))
    ran = here("vectors", "import", file(lines(), "v.txt"))
    assert ran.code == 0
    assert ran.err.startswith("attn: Another attn is importing: waiting for it.\nattn: imported v: 8 words")


def test_a_name_is_removed_with_what_was_unpacked_for_it_and_never_the_file(file, own):
    plain, packed = file(LARGE_TEXT, "plain.txt"), file(gzip.compress(LARGE_TEXT, 1), "packed.txt.gz")
    for path in (plain, packed):
        assert here("vectors", "import", path).code == 0
    for name, count in (("plain", 2), ("packed", 3), ("packed", 0)):
        ran = here("vectors", "remove", name)
        assert (ran.err.count("attn: removed"), ran.code) == (count, 0 if count else 2)
    assert os.path.exists(plain) and os.path.exists(packed) and names.all_names() == []
    assert kept("data") == kept("cache") == []
    assert here("vectors", "import", plain).code == 0
    os.unlink(plain)
    assert here("vectors", "remove", "plain").code == 0 and kept("cache") == []
    import_file(packed, "x")
    import_file(file(lines(), "small.txt"), "x")
    assert kept("data") == ["x.json"] and kept("cache") == []


def test_a_name_that_cannot_be_removed_or_may_come_back_is_told(file, own, monkeypatch):
    file(LARGE_TEXT, "plain.txt")
    for call, ending, said in (
        ("unlink", ".json", "Nothing was changed."),
        ("unlink", ".index", "The name plain is gone."),
        ("fsync", "data/attn/vectors", "It may come back after a loss of power."),
    ):
        import_file(str(own.parent / "plain.txt"))
        real = getattr(os, call)

        def refuse(one, real=real, ending=ending):
            if (os.readlink(f"/proc/self/fd/{one}") if isinstance(one, int) else str(one)).endswith(ending):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(one)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, refuse)
            assert refused("vectors", "remove", "plain", code=74).endswith(f": Input/output error. {said}\n")
        assert names.imported() == ["plain"] * (ending == ".json")


def test_a_file_without_a_suffix_is_found_by_its_name_alone_and_a_large_packed_one_is_to_be_imported(at, own):
    Path("plain").write_bytes(lines())
    assert here("self", "the fox", "-e", "plain").code == 0
    Path("-p.gz").write_bytes(gzip.compress(LARGE_TEXT, 1))
    ran = here("vectors", "nearest", "fox", "--embedding=-p.gz", "--top", "1")
    said = "attn: -p.gz is packed, so each use unpacks it; attn vectors import ./-p.gz does so once.\n"
    assert (ran.code, ran.err) == (0, said)


KNOWN = "their there Theme then colour color king king network coffee separate newyork"
WRONG = "sxpxrxte", "sxpxrxtes", "kng"


def test_the_closest_spelling_is_that_with_the_fewest_mistakes_and_then_the_commonest(file, own):
    words = KNOWN.split()
    path = file(lines(words, np.resize(MATRIX, (len(words), 5))))
    for vectors in (open_file(path), on_file(path)):
        near = near_words(["thier", "colur", "THEMEE", "kign", "kixx", "zzzzzz", "x", "", *WRONG], vectors, 2)
        # three mistakes at most, fewer than half the letters
        assert [near[word] for word in WRONG] == [["separate"], [], ["king"]]
        assert near["thier"][0] == "their" and near["colur"] == ["colour", "color"]
        assert near["THEMEE"][0] == "Theme" and near["kign"] == ["king"]
        assert near["kixx"] == near["zzzzzz"] == near["x"] == near[""] == []  # half of kixx is wrong
        guessed = closest(["thier", "seperete", "nutwirk", "New York", "kign", "nework"], vectors)
        assert guessed == {"thier": "their", "seperete": "separate", "kign": "king", "nework": "network"}
        assert did_you_mean(["thier"], vectors) == "Did you mean their, there or then? "
        assert did_you_mean(["zzzzzz", "colur"], vectors) == "Did you mean colour or color for 'colur'? "


def test_of_words_as_close_the_commoner_is_the_closest_wherever_it_is_in_the_file(file, own, monkeypatch):
    close = ["cart", "cars", "carp", "care", "card"]
    words = [word for one in close for word in (one, *(f"{one}{n}00" for n in range(5)))] + close
    path = file(lines(words, np.resize(MATRIX, (len(words), 5))))
    monkeypatch.setattr("attn_cli.io.files.PIECE", 64)  # bytes that are read at once
    assert [near_words(["carx"], on_file(path), k)["carx"] for k in (3, 5, 6)] == [close[:3], close, close]


def test_a_mistyped_word_is_taken_by_its_closest_spelling_aloud(own):
    texts = ("recieve mesage zzqqxx", "receive message zzqqxx")
    found, right = (record("self", text, "--oov", "nearest", "-p", "identity") for text in texts)
    assert found["replaced"] == {"recieve": "receive", "mesage": "message"}
    assert_alike(found["weights"], right["weights"])
    guessed = here("vectors", "nearest", "colur", "--top", "1", "-f", "json")
    assert guessed.code == 0 and '"found": "color"' in guessed.out
    assert guessed.err == "attn: no vector for 'colur' in word2vec: 'color' is taken instead.\n"
