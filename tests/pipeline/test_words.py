"""Words without a vector, words hidden from every query (--without), and the words nearest to an output."""

import json

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_self
from attn_cli.errors import InputError
from attn_cli.models.encoder import matrix_of
from attn_cli.pipeline.for_page import page_of, why_not_typed
from attn_cli.vectors import VectorTable, bundled
from attn_cli.vectors.lookup import nearest_each
from tests.pipeline.records import record
from tests.shell import attn


def test_tokens_are_texts_and_each_has_one():
    for text, context, said in (
        (["a", ""], ["b"], "Token 1 of the text is ''."),
        (["a"], [3, "b"], "Token 0 of the context is 3."),
        (["a"], [], "There is no token in the context: nothing to attend to."),
    ):
        with pytest.raises(InputError) as error:
            trace_cross(text, context)
        assert error.value.message == said


UNTYPED = [
    ({}, ""),
    ({"oov": "skip"}, ""),
    ({"oov": "zero", "projection": "identity"}, ""),
    ({"oov": "random"}, "--oov random needs all the vectors"),
    ({"embedding": "random"}, "random vectors are drawn where attn is"),
    ({"tokenizer": "characters"}, "the tokens are characters"),
    ({"positions": "sinusoidal"}, "positions are added"),
    ({"positions": "none"}, ""),
    ({"pad": 1}, "padding is added"),
    ({"round": 0}, "numbers are rounded"),
]


@pytest.mark.parametrize(("options", "reason"), UNTYPED)
def test_a_page_says_why_no_other_sentence_can_be_typed_into_it(options, reason):
    settings = Settings(**options)
    assert why_not_typed(trace_self("she likes", settings), settings) == reason
    both = trace_cross("she", "likes", settings)
    assert why_not_typed(both, settings) == "keys come from a second text"


def test_a_page_opens_with_the_layer_that_is_asked_for_and_has_the_commonest_words_and_its_own():
    every = [*bundled().words()]
    found = page_of("self", "She grumf the", None, Settings(), 3)
    assert found.words.words == [*every[:3], "she"] and (found.n_layers, found.shown) == (1, 0)
    rows = [every.index(word) for word in found.words.words]
    np.testing.assert_array_equal(found.words.vectors, matrix_of(bundled())[rows])
    for layer, shown in ((None, 4), (2, 2), ("all", 4)):
        found = page_of("self", "she", None, Settings(projection="roles-deep", layer=layer), 3)
        assert (found.n_layers, found.shown, found.words) == (5, shown, None)
        assert found.about["subject"] == "from a predicate (mostly a verb) to its subject"


def test_words_and_what_is_added_for_their_places_are_rounded_and_so_is_the_sum():
    options = {"positions": "sinusoidal", "round": 1}
    for projection in ("identity", "roles"):
        trace = trace_self("the quick brown fox jumped", Settings(**options, projection=projection))
        words, added = trace.placed.words_query, trace.placed.encodings_query
        for M in (words, added):
            assert np.array_equal(M, np.round(M, 1))
        assert np.array_equal(trace.x_query, np.round(words + added, 1))
    assert trace_self("a b", Settings(**options, projection="roles-deep")).placed is None  # of layers below


FOX = "The quick brown fox jumped over the lazy dog"


def test_a_token_is_named_as_for_q_in_every_command_and_joins_mask_and_padding():
    she = "she likes coffee"
    for command, allowed in (
        (("self", FOX, "--without", "fox"), ["TTTFTTTTT"] * 9),
        (("self", FOX, "--without", "THE", "--without", "3"), ["FTTFTTFTT"] * 9),  # no THE: case-blind, both
        (("self", "die Straße", "--without", "STRASSE"), ["TF"] * 2),
        (("cross", "she", "likes coffee", "--without", "coffee"), ["TF"]),
        (("explain", she, "--without", "coffee"), ["TTF"] * 3),
        (("lookup", "colour", "coffee=Porche", "color=black", "--without", "coffee"), ["FT"]),
        (("masked", she, "--without", "she", "--pad", "1"), ["FFFF", "FTFF", "FTTF", "FTTF"]),
    ):
        found = record(*command)
        assert ["".join("FT"[may] for may in row) for row in found["mask"]] == allowed, command
    assert found["mask_name"] == "causal, padding, words off"
    assert found["weights"][0] == [0.0] * 4  # nothing is left to look at


def test_compute_batch_and_compare_take_it():
    given = {"Q": [[1.0], [2.0]], "K": [[1.0], [2.0]], "V": [[1.0], [2.0]], "tokens": ["a", "b"]}
    ran = attn("compute", "-", "--without", "a", "-f", "json", input=json.dumps(given))
    assert json.loads(ran.out)["weights"] == [[0.0, 1.0]] * 2
    ran = attn("batch", "--without", "she", "--fields", "mask", input="she likes coffee\n")
    assert json.loads(ran.out)["mask"] == [[False, True, True]] * 3
    traces = record("compare", "she likes coffee", "--vary", "without=she,coffee")["records"]
    assert [one["mask"][0] for one in traces] == [[False, True, True], [True, True, False]]
    for oov, seed in (("random", 7), ("zero", None)):  # which seed words have that are drawn
        assert record("self", "grumf she", "--oov", oov, "--seed", "7")["embedding"]["seed"] == seed
    once, twice = (attn("self", "a b", "-e", "random", *("--without", "a") * n).out for n in (1, 2))
    assert once == twice and "--without a" in once  # among the options of the next command


# The words nearest to each of several vectors: what brute force finds, for any numbers


def table(matrix):
    words = "".join(f"\nw{i}" for i in range(len(matrix)))
    return VectorTable("file", "table", words.encode() + b"\n", matrix, {})


def brute(matrix, vector, k, kept=None):
    """The words with the k largest cosines, in float64 and without BLAS; ties go to the earlier row."""
    kept = np.arange(len(matrix)) if kept is None else np.array(kept)
    rows = matrix[kept].astype(float)
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    cosines = (rows * vector).sum(axis=1) / np.where(sizes == 0, 1, sizes)
    return [(f"w{kept[i]}", cosines[i]) for i in np.argsort(-cosines, kind="stable")[:k]]


def same(found, wanted):
    assert [word for word, _ in found] == [word for word, _ in wanted]
    np.testing.assert_allclose([c for _, c in found], [c for _, c in wanted], rtol=0, atol=1e-6)


def drawn(n, k, dtype=np.float64):
    """A table of n words, and nine vectors of sizes that are far apart."""
    draw = np.random.default_rng([n, k])
    matrix, vectors = draw.standard_normal((n, 6)), draw.standard_normal((9, 6))
    return matrix.astype(dtype), vectors * 10.0 ** draw.integers(-8, 8, (9, 1))


TYPES_AND_SIZES = [(np.float16, 1), (np.float32, 1)]
TYPES_AND_SIZES += [(float, size) for size in (1e-30, 1e-4, 1, 1e20, 1e30, 1e100)]


@pytest.mark.parametrize(("n", "k"), [(1, 3), (2, 1), (40, 5), (3000, 3)])
@pytest.mark.parametrize(("dtype", "size"), TYPES_AND_SIZES)
def test_each_row_finds_what_brute_force_finds_and_zeros_are_near_to_no_word(n, k, dtype, size):
    matrix, vectors = drawn(n, k, dtype)
    matrix[7:8] = vectors[2] = 0
    found = nearest_each(table(matrix * dtype(size)), vectors, k, n)
    for ours, vector in zip(found, vectors, strict=True):
        same(ours, brute(matrix, vector, k) if vector.any() else [])


def test_only_the_commonest_words_and_those_of_the_text_are_searched():
    matrix, _ = drawn(50, 4)
    vectors = matrix[[45, 30, 2]]
    for words, kept in (((), range(10)), (("w30", "unheard", "W45", "w2", "w30"), [*range(10), 30, 45])):
        for ours, vector in zip(nearest_each(table(matrix), vectors, 4, 10, words), vectors, strict=True):
            same(ours, brute(matrix, vector, 4, kept))


def test_ties_go_to_the_word_that_stands_earlier_and_a_cosine_is_never_beyond_one():
    matrix = np.tile([[3.0, 4.0], [-3.0, -4.0]], (100, 1))
    (found,) = nearest_each(table(matrix), np.array([[6.0, 8.0]]), 3, 1000)
    same(found, [("w0", 1), ("w2", 1), ("w4", 1)])
    matrix = np.random.default_rng(5).standard_normal((200, 3)).astype(np.float16)
    for found in nearest_each(table(matrix), matrix.astype(float) * 7, 2, 200):
        assert all(-1 <= cosine <= 1 for _, cosine in found)
