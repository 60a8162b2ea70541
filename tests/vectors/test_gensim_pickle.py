"""Vectors that gensim saved: read as gensim reads them, and nothing in the file is ever run."""

import bz2
import collections
import gzip
import io
import os
import pickle
import pickletools
import struct
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.vectors import FileRows, SourceFile
from attn_cli.vectors.detect import open_file
from attn_cli.vectors.gensim_pickle import read_gensim as read_source
from tests.io.test_array_files import little_memory
from tests.thorough import IS_THOROUGH, some, takes_long

SENTENCES = [["cat", "sat", "mat"], ["dog", "ran"], ["Käse", "ran", "日本語"], ["a", "<b>", "x" * 40]] * 3
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def models():
    """What gensim's models module holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("gensim")
        import gensim.models.fasttext

        return gensim.models


@pytest.fixture
def vectors(models):
    """KeyedVectors of three words, one of them not ASCII."""
    made = models.KeyedVectors(3)
    made.add_vectors(["a", "ü", "two words"], np.arange(9, dtype="f4").reshape(3, 3) / 7)
    return made


def trained(make, **more):
    return make(SENTENCES, vector_size=4, min_count=1, workers=1, seed=3, epochs=1, **more)


def read_gensim(path):
    return read_source(SourceFile.at(path))


def same(read, wv, within=0.0):
    """Tell whether what was read is what gensim has."""
    words = [str(word) for word in wv.index_to_key]
    return read.words() == words and np.allclose(read.matrix[:], wv.vectors, rtol=0, atol=within)


def written(path, *parts, protocol=4):
    """Write a pickle by hand: the protocol, the parts, the full stop."""
    path.write_bytes(bytes([0x80, protocol]) + b"".join(parts) + b".")
    return path


def text(word):
    return b"X" + struct.pack("<I", len(word.encode())) + word.encode()


def refused(path, kind=InputError):
    """The refusal of a file: one line that holds the file's name, or that of one beside it."""
    with pytest.raises(kind) as caught:
        read_gensim(path)
    assert "\n" not in caught.value.message and os.path.basename(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("apart", [{}, {"sep_limit": 0}])
def test_keyed_vectors_are_read_as_gensim_has_them_in_every_protocol(vectors, at, protocol, apart):
    vectors.save("a.kv", pickle_protocol=protocol, **apart)
    read = read_gensim("a.kv")
    assert same(read, vectors) and read.about == {"format": "gensim", "class": "KeyedVectors"}
    assert isinstance(read.matrix, FileRows) == bool(apart)
    if apart:  # named by path
        assert read.matrix.source.path == "a.kv.vectors.npy"
        assert read.size == os.path.getsize("a.kv") + os.path.getsize("a.kv.vectors.npy")
        os.unlink("a.kv.vectors.npy")
        said = "a.kv.vectors.npy is missing: it holds the vectors of a.kv and belongs beside it."
        assert refused("a.kv", FileError).message == said
    else:
        data = (at / "a.kv").read_bytes()
        os.truncate("a.kv", 0)  # what is read does not hang on to a stream
        assert same(read, vectors) and not isinstance(read.matrix.base, io.IOBase)
        (at / "a.kv").write_bytes(data.replace(b"K\3K\3\x86", b"K\3K\7\x86"))  # its shape
        assert "claim 84 bytes; there are 36" in refused("a.kv").message


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_each_kind_of_float_is_read_in_either_byte_order(models, at, kind, protocol):
    made = models.KeyedVectors(2)
    made.add_vectors(["a", "b"], np.ones((2, 2), "f4"))
    made.vectors = np.array([[1, 2], [3, 4.5]], kind)
    made.norms = made.vectors[0]  # a second array, whose type is the first one's, by the memo
    for matrix in (made.vectors, np.asfortranarray(made.vectors)):
        made.vectors = matrix
        made.save("a.kv", pickle_protocol=protocol)
        read = read_gensim("a.kv")
        assert read.matrix.dtype == kind and np.array_equal(read.matrix, matrix)


def test_whole_numbers_and_half_a_character_are_words(models, at):
    made = models.KeyedVectors(3)
    made.add_vectors([-(1 << 63), "\ud800", (1 << 64) - 1], np.ones((3, 3), "f4"))
    for protocol in (2, 4):
        made.save("a.kv", pickle_protocol=protocol)
        words = ("-9223372036854775808", "\ud800", "18446744073709551615")
        assert [*map(read_gensim("a.kv").row_of, words)] == [0, 1, 2]


def test_more_words_than_gensim_writes_at_once_are_read(models, at):
    words = [f"w{i}" for i in range(70_000)] + ["y" * 255, "z" * 256, "ż" * 300]
    made = models.KeyedVectors(2)
    made.add_vectors(words, np.arange(2 * len(words), dtype="f4").reshape(-1, 2))
    for protocol in (2, 4):
        made.save("a.kv", pickle_protocol=protocol)
        assert same(read_gensim("a.kv"), made)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("more", [{}, {"hs": 1, "negative": 0, "compute_loss": True}, {"sg": 1}])
def test_a_word2vec_or_a_doc2vec_model_gives_its_words(models, at, apart, more):
    model = trained(models.Word2Vec, **more)
    model.save("a.model", **({"sep_limit": 0} if apart else {}))
    read = read_gensim("a.model")
    assert same(read, model.wv) and read.about["class"] == "Word2Vec"
    assert isinstance(read.matrix, FileRows) == bool(apart)
    documents = [models.doc2vec.TaggedDocument(words, [i]) for i, words in enumerate(SENTENCES)]
    model = models.Doc2Vec(documents, vector_size=4, min_count=1, workers=1, epochs=1)
    model.save("d.model")
    assert same(read_gensim("d.model"), model.wv), "and not its documents"


@pytest.mark.parametrize("apart", [{}, {"sep_limit": 0}])
@pytest.mark.parametrize(("bucket", "sizes"), [(50, (3, 6)), (0, (3, 6)), (9, (1, 2)), (9, (3, 0))])
def test_fasttext_gives_the_vectors_that_gensim_composes(models, at, apart, bucket, sizes, monkeypatch):
    model = trained(models.FastText, bucket=bucket, min_n=sizes[0], max_n=sizes[1])
    model.save("a.model", **apart)
    model.wv.save("a.kv", **apart)
    loaded = models.FastText.load("a.model").wv
    assert same(read_gensim("a.model"), loaded, within=1e-6)  # float32, added in another order
    monkeypatch.setattr("attn_cli.vectors.spelling.BLOCK", 10)  # bytes of words, or numbers, at once
    assert same(read_gensim("a.kv"), loaded, within=1e-6)


def test_fasttext_with_infinite_numbers_is_read_without_a_warning_and_words_vectors_in_it_count(models, at):
    model = trained(models.FastText, bucket=50)
    (at / "a.kv").write_bytes(pickle.dumps(model.wv))
    assert np.array_equal(read_gensim("a.kv").matrix, model.wv.vectors)
    model.wv.vectors_vocab[0], model.wv.vectors_ngrams[::2] = np.inf, -np.inf
    model.save("a.model")
    assert not np.isfinite(read_gensim("a.model").matrix).all()


def test_vectors_inside_count_although_an_earlier_save_put_them_apart_too_many_fields_do_not(vectors, at):
    vectors.save("b.kv", sep_limit=0)  # leaves its note in the object
    (at / "a.kv").write_bytes(pickle.dumps(vectors))
    assert same(read_gensim("a.kv"), vectors)
    vectors.save("c.kv", ignore=["norms"])
    assert same(read_gensim("c.kv"), vectors)
    assert "no list of words" in changed(vectors, **dict.fromkeys(map(str, range(5000))))


def old(monkeypatch, module, name, **fields):
    """An object that pickles under a name of gensim 3."""
    made = type(name, (), {"__module__": f"gensim.models.{module}"})
    monkeypatch.setattr(sys.modules[made.__module__], name, made, raising=False)
    instance = made()
    vars(instance).update(fields)
    return instance


def old_vectors(monkeypatch, words="index2word", rows="syn0"):
    the = old(monkeypatch, "keyedvectors", "Vocab", index=0, count=9, sample_int=1 << 32)
    lists = {key: [] for key in ("__numpys", "__scipys", "__ignoreds", "__recursive_saveloads")}
    fields = {words: ["the", "Käse"], rows: np.array([[1, 2], [3, 4]], "f4"), "vector_size": 2}
    fields |= {"vocab": {"the": the, "Käse": the}} | lists
    return old(monkeypatch, "keyedvectors", "Word2VecKeyedVectors", **fields)


def dumped(made, name="a.model"):
    Path(name).write_bytes(pickle.dumps(made, 2))
    return read_gensim(name)


@pytest.mark.parametrize("rows", ["vectors", "syn0"])
@pytest.mark.parametrize("words", ["index2word", "index2entity"])
def test_vectors_of_gensim_3_are_read_as_gensim_4_reads_them(models, at, rows, words):
    with pytest.MonkeyPatch.context() as patch:
        read = dumped(old_vectors(patch, words, rows), "a.kv")
    assert same(read, models.KeyedVectors.load("a.kv")) and read.about["class"] == "Word2VecKeyedVectors"
    assert read.words() == ["the", "Käse"]


def test_a_model_of_gensim_3_with_vectors_apart_is_read_and_one_that_holds_the_words_itself(models, at):
    raw = collections.defaultdict(int, {"the": 3, "of": 2})
    with pytest.MonkeyPatch.context() as patch:
        wv = old_vectors(patch, rows="vectors")
        np.save("a.model.wv.vectors.npy", vars(wv).pop("vectors"))
        vars(wv)["__numpys"] = ["vectors"]
        fields = {"vocabulary": old(patch, "word2vec", "Word2VecVocab", raw_vocab=raw), "wv": wv}
        read = dumped(old(patch, "word2vec", "Word2Vec", **fields, random=np.random.RandomState(1)))
        assert read.words() == ["the", "Käse"] and read.matrix[:].tolist() == [[1, 2], [3, 4]]
        fields = {"index2word": ["x", "y"], "syn0": np.eye(2, dtype="f4")}  # as the first gensims
        read = dumped(old(patch, "word2vec", "Word2Vec", **fields, seed=1))
        assert read.words() == ["x", "y"] and np.array_equal(read.matrix, np.eye(2))


def test_text_of_python_2_is_read(at):
    words = (b"f4", b"b", b"<", b"index2word", b"syn0")
    f4, b, less, index2word, syn0 = (b"U%c%b" % (len(word), word) for word in words)
    kind = b"cnumpy\ndtype\n%bK\0K\1\x87R(K\3%bNNN%bK\0tb" % (f4, less, b"J\xff\xff\xff\xff" * 2)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85%b\x87R" % b
    array = empty + b"(K\1K\1K\2\x86%b\x89U\x08%btb" % (kind, np.array([1, -2], "<f4").tobytes())
    body = b"cgensim.models.word2vec\nWord2Vec\n)\x81}(%b]%ba%b" % (index2word, text("é"), syn0 + array)
    read = read_gensim(written(at / "a.model", body, b"ub", protocol=2))
    assert read.words() == ["é"] and read.matrix.tolist() == [[1, -2]]


@pytest.mark.parametrize("ending", ["gz", "bz2"])
def test_compressed_files_are_refused_packed_and_unpacked(vectors, at, ending):
    vectors.save(f"a.kv.{ending}", sep_limit=0)
    with pytest.raises(InputError, match="packed"):
        open_file(f"a.kv.{ending}")
    unpack = gzip.decompress if ending == "gz" else bz2.decompress
    (at / "a.kv").write_bytes(unpack((at / f"a.kv.{ending}").read_bytes()))
    assert f"a.kv.{ending}.vectors.npz is compressed" in refused("a.kv").message
    os.rename(f"a.kv.{ending}.vectors.npz", "a.kv.vectors.npz")
    assert "a.kv.vectors.npz is compressed" in refused("a.kv").message


def test_pickles_of_other_protocols_of_other_things_and_too_large_ones_are_refused(at, monkeypatch):
    for data in (b"\x80", b"(lp0\n.", b"\x80\x09N.", b"\x80\x01N."):
        (at / "a.kv").write_bytes(data)
        with pytest.raises(InputError, match=r"^(?!.*packed)"):
            open_file("a.kv")
    things = (1, None, "text", ["a"], {"index_to_key": ["a"]}, (1, 2), np.eye(2), collections.Counter(a=1))
    for thing in things:
        (at / "a.kv").write_bytes(pickle.dumps(thing, 4))
        assert "no word vectors" in refused("a.kv").message
    size = os.path.getsize("a.kv")
    monkeypatch.setattr("attn_cli.vectors.gensim_pickle.MAX_PICKLE_BYTES", size)
    assert "no word vectors" in refused("a.kv").message
    monkeypatch.setattr("attn_cli.vectors.gensim_pickle.MAX_PICKLE_BYTES", size - 1)
    assert f"limit of {size - 1}" in refused("a.kv", FileError).message


def changed(wv, protocol=4, **fields):
    """The refusal of keyed vectors whose fields were changed."""
    made = type(wv).__new__(type(wv))
    made.__dict__.update(wv.__dict__ | fields)
    Path("a.kv").write_bytes(pickle.dumps(made, protocol))
    return refused("a.kv").message


class Called:
    """What a pickle has made by a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


MAKE, OF, (VERSION, SHAPE, _, *REST) = np.ones((3, 3), "f4").__reduce__()
OF_NO_TYPE = Called(MAKE, OF, (VERSION, SHAPE, Called(np.dtype, ()), *REST))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        *(("index_to_key", words, told) for words, told in (
            (["a", "b"], "2 words but 3 vectors"),
            (["a", None, "c"], "word 1 is missing (None)"),
            (["a", "b", 2.5], "word 2 is neither"),
            (["a", "b", ("c",)], "word 2 is neither"),
            (["a", True, "c"], "word 1 is neither"),
            (["a", 1 << 64, "c"], "word 1 is neither"),
            (["a", -(1 << 63) - 1, "c"], "word 1 is neither"),
            (["a", "b", "c" * 4097], "word 2 is longer than 4,096 bytes"),
            ([], "no words"),
            (("a", "b", "c"), "no list of words"),
            (None, "no list of words"),
        )),
        *(("vectors", np.ones((3, 3), kind), "float16, float32 or float64") for kind in ("i4", "c8", "g")),
        ("vectors", np.array([["a"], ["b"], ["c"]], object), "float16, float32 or float64"),
        ("vectors", OF_NO_TYPE, "float16, float32 or float64"),
        *(("vectors", np.ones(shape, "f4"), "not a sound array") for shape in (3, (3, 3, 1), (3, 0))),
        ("vectors", [[1.0], [2.0], [3.0]], "not a sound array"),
        ("vectors", None, "no vectors"),
    ],
)  # fmt: skip
def test_words_and_vectors_of_another_kind_shape_or_count_are_refused(vectors, at, field, value, told):
    assert told in changed(vectors, **{field: value})


def test_fasttext_whose_fields_do_not_fit_is_refused(models, at):
    model = trained(models.FastText, bucket=9).wv
    old = "is of a gensim before 3.8, which hashed n-grams otherwise"
    for field, value, told in (
        *(("bucket", 8, "n-grams' vectors do not fit its words'"), ("max_n", 10**5, "too many n-grams")),
        ("min_n", "x", "does not say how long its n-grams are"),
        ("index_to_key", [*"abcdefghijkl"], "12 words but 10"),
        *(("compatible_hash", False, old), ("compatible_hash", None, old)),
        ("vectors_ngrams", None, "vectors_ngrams are not a sound array"),
    ):
        assert told in changed(model, vectors=None, **{field: value})
    model.save("b.kv", sep_limit=0)
    np.save("b.kv.vectors_vocab.npy", np.ones((10, 4), int))
    assert "its vectors_vocab are not a sound array of decimal numbers" in refused("b.kv").message


COMMAND = text("touch ran")
STACKED = (
    ("posix", "system"), ("os", "system"), ("builtins", "eval"), ("builtins", "exec"), ("builtins", "getattr"),
    ("gensim.models.keyedvectors", "KeyedVectors.load"), ("gensim.models.keyedvectors", "utils.os.system"),
    ("gensim.utils", "unpickle"), ("numpy", "load"), ("numpy.core.multiarray", "fromfile"), ("__main__", "X"),
    ("", ""), ("evil\x1b[31m", "x" * 5000), ("y" * 5000, "x"),
)  # fmt: skip


@pytest.mark.parametrize(("module", "name"), STACKED, ids=range(len(STACKED)))
def test_a_name_that_gensim_does_not_write_is_refused_by_name_safe_to_print(at, module, name):
    error = refused(written(at / "a.kv", text(module), text(name), b"\x93", COMMAND, b"\x85R"))
    shown = f"{module[:200].replace(chr(27), '^[')}.{name[:200]}."
    assert error.code == 65 and error.message == f"{at / 'a.kv'} holds code: {shown}"
    assert "never runs it" in error.hint and os.listdir(at) == ["a.kv"]


@pytest.mark.parametrize("word", ["ab", "x" * 4000, "x" * 200_000, 1 << 62])
def test_a_word_that_a_list_repeats_is_not_copied_so_often(at, word):
    body = pickle.dumps(word, 2)[2:-1] + b"q\0"  # one word, and its number in the memo
    words = body + b"0" + text("index_to_key") + b"](" + b"h\0" * 25_000 + b"e"
    begun = b"cgensim.models.keyedvectors\nKeyedVectors\n)\x81}("
    path = written(at / "a.kv", begun, words, b"ub", protocol=2)
    with little_memory(40 * path.stat().st_size + (1 << 20)):
        assert "larger than the file" in refused(path).message


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_code_deep_inside_real_vectors_is_refused_and_not_run(vectors, at, protocol):
    attack = Called(os.system, ("touch ran",))
    assert f"holds code: {os.name}.system." in changed(vectors, protocol, expandos={"x": [(attack,)]})
    assert os.listdir(at) == ["a.kv"]
    pickle.loads((at / "a.kv").read_bytes())
    assert sorted(os.listdir(at)) == ["a.kv", "ran"], "the attack itself works"


HUGE_NUMBER, NINES = b"J\xff\xff\xff\x7f\x85", b"9" * 10_000
REACHING = {
    "lie elsewhere": [b"Pevil\n", text("evil") + b"Q"],
    "extension registry": [b"\x82\x01", b"\x84\x01\x00\x00\x00"],
    "buffers": [b"\x97"],
    "gensim never writes": [
        *(b"(iposix\nsystem\n", b"(cposix\nsystem\n" + COMMAND + b"o", b"I%b\n" % NINES, b"L%bL\n" % NINES),
        *(b"\x8b\xff\xff\xff\x7f", b"N2"),
    ],
    "gensim never writes the opcode 0xff": [b"\xff"],
    "byte 2: it claims that 6 bytes follow; the file has 10 in all": [b"X\6\0\0\0ab"],
    # a thousand, or one for five bytes of the file
    "byte 1,003: it holds more lists than gensim writes": [b"]" * 1001],
    "byte 12,003: it holds more lists than gensim writes": [b"]" * 12_001 + b"N" * 48_000],
    "no word vectors": [b"]" * 1000, b"]" * 12_000 + b"N" * 48_000],
    "calls what is not a function": [COMMAND + COMMAND + b"R"],
    "damaged": [
        *(b"K\1K\2\x93", text("posix") + b"R", b"h\7", b"t", b"X\2\0\0\0\xff\xff"),
        b"c" + b"x" * 300 + b"\ny\n",
    ],
    "a.kv": [  # known names are called by nobody
        *(b"cbuiltins\nhash\n(]tR", b"cbuiltins\nset\n(K\1tR", b"cnumpy\ndtype\n" + text("O") + b"\x85R"),
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + HUGE_NUMBER + text("d") + b"tR",
        *(b"cbuiltins\nbytearray\n" + HUGE_NUMBER + b"\x81", b"cbuiltins\nbytes\n" + HUGE_NUMBER + b"}\x92"),
        b"cgensim.models.word2vec\nWord2Vec\n)\x81(" + text("a") + COMMAND + b"b",
        b"cgensim.models.word2vec\nWord2Vec\n)\x81}(K\1K\2K\3\x87K\4ub",  # three things for a key
    ],
}


@pytest.mark.parametrize(("told", "body"), [(told, body) for told in REACHING for body in REACHING[told]])
def test_an_opcode_that_reaches_out_is_refused_with_its_place(at, told, body):
    error = refused(written(at / "a.kv", body))
    assert told in error.message and error.hint


CALLED = b"cbuiltins\nset\nq\0"
MANY = CALLED + b"(" + b"N" * 300_000 + b"tq\1"
HUGE = [
    # lengths and numbers that the file does not have: of the memo, text, bytes, a frame
    *(kind + b"\xff" * 4 for kind in (b"Nr", b"X")),
    *(kind + b"\xff" * 3 + b"\x7f" for kind in (b"Nr", b"B", b"T")),
    *(kind + b"\xff" * 7 + b"\x7f" for kind in (b"\x8d", b"\x8e", b"\x95")),
    *(b"\x8e\0\0\0\0\4\0\0\0", b"\x96" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f"),
    # more than gensim writes: lists, tuples, dicts, marks, nulls, numbers, texts, objects, names
    *(one * 300_000 for one in (b"]", b"}", b"(", b"N", b"M\xff\xff")),
    *(b"N" + one * 300_000 for one in (b"\x85", b"\x94")),
    *(b"]" * 50_000 + b"a" * 49_999 + b"N" * 400_000, b"Nq\0" + b"h\0" * 500_000),
    *(b"\x8c\4\xf0\x9f\x98\x80" * 150_000, CALLED + b"h\0)\x81" * 50_000 + b"N" * 500_000),
    b"\x8c\5numpyq\0\x8c\7ndarrayq\1" + b"h\0h\1\x93" * 200_000,
    # each of these takes exponential or quadratic time or memory where somebody hashes, copies or walks:
    # doubled tuples, as a key and in a set; deep ones as a key; numbers of one hash
    *(a + b"N" + b"q\0h\0\x86" * 200 + z for a, z in ((b"", b""), (b"}", b"Ns"), (b"(", b"\x91"))),
    b"}N" + b"\x85" * 50_000 + b"Ns" + b"N" * 400_000,
    b"}(%bu" % b"".join(b"\x8a\x12%bN" % (i * ((1 << 61) - 1)).to_bytes(18, "little") for i in range(40_000)),
    # arguments that are copied, text that is encoded again, deep calls and states, parts, lists of lists
    *(MANY + b"0h\0h\1" + b"0h\0h\1".join([call] * 25_000) + b"N" * 200_000 for call in (b"R", b"\x81")),
    b"c_codecs\nencode\nq\0X\x20\xa1\7\0" + b"x" * 500_000 + b"\x85q\1" + b"h\0h\1R" * 40_000,
    CALLED + b"h\0" * 20_000 + b"N" + b"\x85R" * 20_000 + b"N" * 300_000,
    CALLED + b"h\0)\x81" * 20_000 + b"b" * 19_999 + b"N" * 300_000,
    b"\x96" + bytes(8) + b"q\0" + (b"\x96" + bytes(8)) * 50_000,
    b"]q\0" + b"".join(b"](" + b"h\0" * 40 + b"eq\0" for _ in range(2000)) + b"N" * 1000,
]


@takes_long
def test_no_attack_takes_more_memory_or_time_than_its_size_is_worth(at):
    for number, body in enumerate(some(HUGE)):
        path, start = written(at / "a.kv", body), time.perf_counter()
        with little_memory(40 * path.stat().st_size + (1 << 20)):
            refused(path, AttnError)
        assert time.perf_counter() - start < 60, number


def test_a_file_cut_short_anywhere_is_refused(vectors, at):
    for protocol in (2, 5):
        vectors.save("whole.kv", pickle_protocol=protocol)
        data = (at / "whole.kv").read_bytes()
        for end in some(range(0, len(data), 2), protocol):
            (at / "a.kv").write_bytes(data[:end])
            assert "opcode" not in refused("a.kv").message


@pytest.mark.parametrize("protocol", [2, 4])
def test_no_flipped_bit_gives_any_other_error(models, vectors, at, protocol):
    trained(models.Word2Vec).save("b.model", pickle_protocol=protocol)
    vectors.save("a.kv", pickle_protocol=protocol)
    before = set(os.listdir(at)) | {"c.kv"}
    for whole, step in (("a.kv", 11 if IS_THOROUGH else 97), ("b.model", 101 if IS_THOROUGH else 809)):
        data = bytearray((at / whole).read_bytes())
        for bit in range(0, 8 * len(data), step):
            data[bit // 8] ^= 1 << bit % 8
            (at / "c.kv").write_bytes(data)
            data[bit // 8] ^= 1 << bit % 8
            try:
                read = read_gensim("c.kv")
            except AttnError as error:
                assert "\n" not in error.message
            else:
                assert len(read.words()) == len(read.matrix)
    assert set(os.listdir(at)) == before


@takes_long
def test_random_opcodes_give_no_other_error(at):
    rng = np.random.default_rng(7)
    pool = [opcode.code.encode("latin1") for opcode in pickletools.opcodes]
    pool += [b"cnumpy\ndtype\n", b"cbuiltins\nset\n", b"K\1", b"K\0", b"q\0", b"h\0"]
    pool += [text("index_to_key"), text("vectors")]
    pool += [b"cgensim.models.keyedvectors\nKeyedVectors\n", *(b"%c" % code for code in b"()]}eusbR\x81")] * 4
    for _ in range(1500):
        picked = rng.integers(len(pool), size=int(rng.integers(1, 25)))
        with pytest.raises((InputError, FileError)):
            read_gensim(written(at / "a.kv", *(pool[i] for i in picked)))
