"""The words nearest to each of several vectors: what brute force finds, for any numbers."""

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.vectors.lookup import nearest_each
from attn_cli.vectors.table import VectorTable


def table(matrix, words=None):
    words = words or [f"w{i}" for i in range(len(matrix))]
    return VectorTable("file", "table", b"\n" + "\n".join(words).encode() + b"\n", np.asarray(matrix), {})


def brute(rows, vector, k):
    """The k largest cosines and their places, in plain float64; ties go to the earlier row."""
    found = []
    for i, row in enumerate(np.asarray(rows, float)):
        size = np.sqrt((row * row).sum()) * np.sqrt((vector * vector).sum())
        found.append((-(row @ vector) / size if size else 0.0, i))
    return [(i, -minus) for minus, i in sorted(found)[:k]]


def same(found, wanted, words):
    """Check words and cosines; the program may measure in float32."""
    assert [word for word, _ in found] == [words[i] for i, _ in wanted]
    np.testing.assert_allclose([c for _, c in found], [c for _, c in wanted], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(1, 3), (2, 1), (40, 5), (3000, 3)])
def test_each_row_finds_what_brute_force_finds(n, k, dtype):
    draw = np.random.default_rng([n, k])
    matrix = draw.standard_normal((n, 6)).astype(dtype)
    vectors = draw.standard_normal((9, 6)) * 10.0 ** draw.integers(-8, 8, (9, 1))
    found = nearest_each(table(matrix), vectors, k, n)
    assert len(found) == 9
    for ours, vector in zip(found, vectors, strict=True):
        same(ours, brute(matrix, vector, k), [f"w{i}" for i in range(n)])


def test_only_the_commonest_words_and_those_of_the_text_are_searched():
    matrix = np.random.default_rng(3).standard_normal((50, 4))
    vectors = matrix[[45, 30, 2]]
    also = ("w30", "unheard", "W45", "w2", "w30")
    found = nearest_each(table(matrix), vectors, 4, 10, also)
    kept = [*range(10), 30, 45]
    for ours, vector in zip(found, vectors, strict=True):
        same(ours, brute(matrix[kept], vector, 4), [f"w{i}" for i in kept])
    assert [ours[0][0] for ours in found] == ["w45", "w30", "w2"]
    assert all(len({word for word, _ in ours}) == 4 for ours in found), "no word twice"
    assert all(
        {word for word, _ in ours} <= {f"w{i}" for i in range(10)}
        for ours in nearest_each(table(matrix), vectors, 4, 10)
    )


def test_ties_go_to_the_word_that_stands_earlier():
    matrix = np.tile([[3.0, 4.0], [-3.0, -4.0]], (100, 1))
    (found,) = nearest_each(table(matrix), np.array([[6.0, 8.0]]), 3, 1000)
    assert [word for word, _ in found] == ["w0", "w2", "w4"]
    np.testing.assert_allclose([cosine for _, cosine in found], 1, atol=1e-6)


def test_a_vector_of_zeros_is_near_to_no_word():
    matrix = np.random.default_rng(1).standard_normal((60, 3))
    matrix[7] = 0
    zeros, other = nearest_each(table(matrix), np.array([[0.0, 0, 0], [1.0, 2, 3]]), 3, 1000)
    assert zeros == []
    same(other, brute(matrix, np.array([1.0, 2, 3]), 3), [f"w{i}" for i in range(60)])


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1e20, 1e30, 1e100])
def test_the_size_of_the_numbers_in_a_table_does_not_matter(size):
    matrix = np.random.default_rng(2).standard_normal((50, 4)) * size
    vectors = np.random.default_rng(4).standard_normal((2, 4))
    for ours, vector in zip(nearest_each(table(matrix), vectors, 3, 50), vectors, strict=True):
        same(ours, brute(matrix / size, vector, 3), [f"w{i}" for i in range(50)])


def test_a_cosine_is_never_beyond_one():
    matrix = np.random.default_rng(5).standard_normal((200, 3)).astype(np.float16)
    for found in nearest_each(table(matrix), matrix.astype(float) * 7, 2, 200):
        assert all(-1 <= cosine <= 1 for _, cosine in found)


def test_an_output_that_is_a_words_own_vector_is_named_after_it(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("she 1 0 0\nlikes 0 1 0\ncoffee 0 0 1\ntea 0 .1 .9\n")
    settings = Settings(embedding=str(path), projection="identity", temperature=1e-3)
    trace = trace_text("self", "She likes coffee", None, settings, name_outputs=True)
    assert [words[0][0] for words in trace.output_words] == ["she", "likes", "coffee"]
    np.testing.assert_allclose([words[0][1] for words in trace.output_words], 1, atol=1e-6)
