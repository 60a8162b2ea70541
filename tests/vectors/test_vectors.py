"""Word vectors: files that somebody typed, the bundled table, random ones, and words without any."""

import json

import numpy as np
import pytest

from attn_cli import Settings, trace_cross
from attn_cli.errors import InputError
from attn_cli.vectors import VectorTable, lookup, write_table
from attn_cli.vectors.open_vectors import describe
from tests.io.test_array_files import little_memory
from tests.pipeline.test_words import brute


def table(words, matrix, **about):
    block = b"\n" + "\n".join(words).encode() + b"\n"
    return VectorTable("file", "table", block, np.asarray(matrix, float), about)


def test_a_table_s_rows_are_read_one_block_after_the_other_without_copies_of_its_words():
    words = [f"word{n}" for n in range(100_000)]
    big = table(words, np.broadcast_to(np.zeros(1), (len(words), 1)))
    with little_memory(len(big.block) / 2):
        found = [rows.words[-1] for rows in big.rows()]
    assert found[-1] == b"word99999" and len(found) > 40


TYPED = [
    ("naïve 1 2\n東京 3 4\n👍🏽 5 6\n", ["naïve", "東京", "👍🏽"]),
    ("2 3\nnew york 1 2 3\nshe 4 5 6\n", ["new york", "she"]),
    ("she 1 2 3\nnew york 4 5 6\n", ["she", "new york"]),
    ("a 1 2\nb 3 4\nc 5 6\nnew york 1 2\nlos angeles 3 4\n", ["a", "b", "c", "new york", "los angeles"]),
    *(("0 5\nshe 1\n", ["0", "she"]), ("1 0.5 0.5\n2 0.25 1\n", ["1", "2"])),
    *(("2 3\n7 0.5 0.5 1\n8 0.25 1 0\n", ["7", "8"]), ("5 0\nshe 1\n", ["5", "she"])),
    *(("she 1\n", ["she"]), (". 1 2\n, 3 4\n{ 5 6\n", [*".,{"]), ("a 1\nb 2\n{ 3\n", [*"ab{"])),
]


@pytest.mark.parametrize(("text", "words"), TYPED, ids=repr)
def test_any_word_may_be_typed(text, words, file):
    assert lookup.open_table(file(text, "v.txt")).words() == words


def test_a_table_that_is_written_is_read_as_it_was_with_a_vector_for_each_word(tmp_path):
    path = tmp_path / "t.safetensors"
    matrix = np.random.default_rng(0).standard_normal((3, 4)).astype("<f2")

    def written(*words):
        with path.open("wb") as stream:
            write_table(stream, words, matrix, {"length": "2", "settings": "{}"})
        return lookup.open_table(str(path))

    words = ["the", "naïve", "é" * 2048]  # of at most 4,096 bytes
    found = written(*words)
    assert found.words() == words and found.about["format"] == "safetensors"
    np.testing.assert_array_equal(found.matrix[:], matrix)
    np.testing.assert_array_equal(found.find(["naïve"])["naïve"], matrix[1].astype(float))
    assert found.find(["naïv", "aïve", "", "the\nnaïve"]) == {}
    about = describe(found)
    of = {"source": "file", "name": str(path), "words": 3, "dim": 4, "dtype": "float16", "length": 2.0}
    of |= {"bytes": path.stat().st_size, "settings": {}, "about": {"format": "safetensors"}}
    assert about == of == json.loads(json.dumps(about, allow_nan=False))
    for words in ("a", "abcd"):
        with pytest.raises(InputError, match="3 vectors"):
            written(*words)


def test_a_word_is_looked_up_as_written_in_lower_case_and_in_its_plain_form():
    words = ["the", "The", "fox", "n't", "é", "cathedral", "a\u2003cat", "cat"]
    vectors = table(words, np.arange(len(words))[:, np.newaxis])
    forms = {"The": "The", "the": "the", "THE": "the", "Fox": "fox", "foxes": None, "": None, "n’t": "n't"}
    forms |= {"e\u0301": "é", "E\u0301": "é", "cat": "cat", "a": None}  # not inside another
    for written, form in forms.items():
        assert lookup.look_up(written, vectors) == (form and (form, [words.index(form)]))


def test_a_random_vector_is_normal_and_depends_on_the_seed_and_the_token_alone_on_both_sides():
    alone = lookup.random_vectors(["coffee"], 5, 7).X[0]
    cross = trace_cross("coffee first", "then coffee", Settings(embedding="random", dim=5, seed=7))
    X = lookup.random_vectors(["she", "coffee", "coffee"], 5, 7).X
    for same in (*X[1:], cross.x_query[0], cross.x_key[1]):
        np.testing.assert_array_equal(same, alone)
    for other in (("Coffee", 5, 7), ("coffee", 5, 8), ("tea", 5, 7)):
        assert not np.allclose(lookup.random_vector(*other), alone)
    X = lookup.random_vectors([f"word{i}" for i in range(2000)], 5, 0).X
    assert abs(X.mean()) < 0.05 and X.std() == pytest.approx(1, abs=0.05)


KNOWN = table(["she", "likes"], [[3.0, 4.0], [0.0, 5.0]], length="5")
TOKENS = ["she", "zzz", "likes", "zzz", "qqq"]


def test_an_unknown_word_is_zeros_or_left_out_or_random_of_the_table_s_one_length_or_refused():
    X = [[3, 4], [0, 0], [0, 5], [0, 0], [0, 0]]
    for oov, kept in (("zero", (0, 1, 2, 3, 4)), ("skip", (0, 2))):
        found = lookup.embed(TOKENS, KNOWN, oov, 0)
        assert (found.X.tolist(), found.kept, found.unknown) == ([X[i] for i in kept], kept, ("zzz", "qqq"))
    found = lookup.embed(TOKENS, KNOWN, "random", 1)
    drawn = [lookup.random_vector(word, 2, 1) for word in ("zzz", "zzz", "qqq")]
    of_length_5 = 5 * np.array(drawn) / np.linalg.norm(drawn, axis=1, keepdims=True)
    np.testing.assert_allclose(found.X[[1, 3, 4]], of_length_5, rtol=0, atol=1e-12)
    assert found.X[[0, 2]].tolist() == [X[0], X[2]] and found.unknown == ("zzz", "qqq")
    bare = VectorTable("file", "table", KNOWN.block, KNOWN.matrix, {})
    np.testing.assert_array_equal(lookup.embed(TOKENS, bare, "random", 1).X[1], drawn[0])
    for tokens, shown in ((TOKENS, "'zzz', 'qqq'"), ([*"0123456789", "10"], str([*"0123456789"])[1:-1])):
        with pytest.raises(InputError) as caught:
            lookup.embed(tokens, KNOWN, "error", 0)
        said = f"No vector in table for {shown}. Choose --oov zero, random, nearest or skip to go on."
        assert str(caught.value) == said
    assert lookup.embed(["she", "LIKES"], KNOWN, "error", 0).unknown == ()


@pytest.mark.parametrize(("n", "k"), [(1, 5), (7, 3), (50, 50), (9000, 4)])
@pytest.mark.parametrize("has_ties", [False, True])
def test_the_nearest_words_are_those_of_a_plain_sort_with_ties_in_their_order(n, k, has_ties):
    draw = np.random.default_rng(n)
    words, matrix = [f"w{i}" for i in range(n)], draw.standard_normal((n, 4)).astype("<f2")
    if has_ties:
        matrix = np.array([[i % 2, 1 - i % 2, 0, 0] for i in range(n)], "<f2")
    matrix[n // 2] = 0
    drawn = draw.standard_normal(4)
    last = words.index(brute(matrix, drawn, k)[-1][0])
    matrix[[last, -1]] = matrix[[-1, last]]  # of those that are near, one is met after all others
    own = matrix[0].astype(float)
    for vector, without in ((drawn, []), (own, ["w0"]), (np.zeros(4), [])):
        wanted = brute(matrix, vector, k, np.arange(len(without), n))
        found = lookup.nearest(table(words, matrix), vector, k, without)
        assert found == [(word, pytest.approx(cosine, rel=0, abs=1e-12)) for word, cosine in wanted]


@pytest.mark.parametrize("block", [1, 2, 2048])
def test_of_each_row_the_nearest_of_the_commonest_words_and_of_some_others_are_found_once(block, monkeypatch):
    monkeypatch.setattr("attn_cli.vectors.BLOCK", block)  # rows that are read at once
    vectors = table("abcd", [[1, 0], [0, 1], [1, 0], [0, 3]])
    found = lookup.nearest_each(vectors, np.array([[1.0, 0], [0, 0], [0, 2]]), 4, 2, ["d", "b", "absent"])
    assert found == [[("a", 1), ("b", 0), ("d", 0)], [], [("b", 1), ("d", 1), ("a", 0)]]
