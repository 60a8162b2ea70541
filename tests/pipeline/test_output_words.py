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
    """The k largest cosines and their places, in float64 and without BLAS; ties go to the earlier row."""
    rows = np.asarray(rows, float)
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    cosines = (rows * vector).sum(axis=1) / np.where(sizes == 0, 1, sizes)
    return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:k]]


def same(found, wanted, words):
    assert [word for word, _ in found] == [words[i] for i, _ in wanted]
    np.testing.assert_allclose([c for _, c in found], [c for _, c in wanted], rtol=0, atol=1e-6)


def drawn(n, k, dtype=np.float64):
    """A table of n words, and nine vectors of sizes that are far apart."""
    draw = np.random.default_rng([n, k])
    return draw.standard_normal((n, 6)).astype(dtype), draw.standard_normal((9, 6)) * 10.0 ** draw.integers(
        -8, 8, (9, 1)
    )


@pytest.mark.parametrize(("n", "k"), [(1, 3), (2, 1), (40, 5), (3000, 3)])
@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *((dtype, 1) for dtype in (np.float16, np.float32)),
        *((float, s) for s in (1e-30, 1e-4, 1, 1e20, 1e30, 1e100)),
    ],
)
def test_each_row_finds_what_brute_force_finds_and_zeros_are_near_to_no_word(n, k, dtype, size):
    matrix, vectors = drawn(n, k, dtype)
    matrix[7:8] = vectors[2] = 0
    found = nearest_each(table(matrix * dtype(size)), vectors, k, n)
    for ours, vector in zip(found, vectors, strict=True):
        same(ours, brute(matrix, vector, k) if vector.any() else [], [f"w{i}" for i in range(n)])


def test_only_the_commonest_words_and_those_of_the_text_are_searched():
    matrix, _ = drawn(50, 4)
    vectors, kept = matrix[[45, 30, 2]], [*range(10), 30, 45]
    found = nearest_each(table(matrix), vectors, 4, 10, ("w30", "unheard", "W45", "w2", "w30"))
    for ours, vector in zip(found, vectors, strict=True):
        same(ours, brute(matrix[kept], vector, 4), [f"w{i}" for i in kept])
    for ours, vector in zip(nearest_each(table(matrix), vectors, 4, 10), vectors, strict=True):
        same(ours, brute(matrix[:10], vector, 4), [f"w{i}" for i in range(10)])


def test_ties_go_to_the_word_that_stands_earlier():
    matrix = np.tile([[3.0, 4.0], [-3.0, -4.0]], (100, 1))
    (found,) = nearest_each(table(matrix), np.array([[6.0, 8.0]]), 3, 1000)
    same(found, [(0, 1), (2, 1), (4, 1)], [f"w{i}" for i in range(5)])


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
