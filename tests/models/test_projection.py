"""What heads read: X with sinusoids for word order, through identity, random and given projections."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as examples, strategies

from attn_cli import Settings, trace_cross, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.models import projection
from attn_cli.models.projection import identity, random
from attn_cli.pipeline import sinusoidal
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.problems import some
from tests.shell import record


def close(found, expected, within=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def given(**arrays):
    return given_from(arrays, "given")


@pytest.mark.parametrize(("d", "heads"), [(4, 1), (4, 2), (6, 3), (3, 3)])
def test_the_identity_changes_nothing_and_its_heads_share_the_columns(d, heads):
    X = some(5, d)
    layer = identity(d, heads)
    for made in zip(*(head.project(X, X) for head in layer.heads), strict=True):
        assert {M.shape for M in made} == {(5, d // heads)}
        np.testing.assert_array_equal(np.hstack(made), X)
    assert [head.name for head in layer.heads] == [str(h) for h in range(heads)]


def test_random_weights_come_from_the_seed_and_the_number_of_the_head_and_no_word_begins_with_them():
    d, heads, seed = 6, 3, 5
    for number, head in enumerate(random(d, heads, seed).heads):
        draw = np.random.default_rng([seed, number])
        for W in (head.W_q, head.W_k, head.W_v):
            np.testing.assert_array_equal(W, draw.standard_normal((d, d // heads)) / np.sqrt(d))
    trace = trace_self("she likes coffee", Settings(embedding="random", dim=4, seed=0, projection="random"))
    W = {round(float(w), 12) for head in trace.heads for w in (2 * head.W_q).ravel()}
    assert not W & {round(float(x), 12) for x in trace.x_query.ravel()}


@pytest.mark.parametrize("layout", ["in-out", "out-in"])
def test_the_layer_output_is_the_heads_side_by_side_times_their_weight(layout):
    X, W, W_o, b_o = some(3, 4), some(4, 4, seed=1), some(4, 5, seed=2), some(5, seed=3)
    turned = (lambda M: M) if layout == "in-out" else np.transpose
    record = {"X": X, "W_q": turned(W), "W_k": turned(W), "W_v": turned(W), "W_o": turned(W_o), "b_o": b_o}
    trace = trace_matrices("compute", given(**record, heads=2, layout=layout), Settings())
    assert trace.projection.layout == layout
    np.testing.assert_array_equal(trace.W_o, turned(W_o))
    joined = np.hstack([head.output for head in trace.heads])
    close(trace.layer_output, joined @ W_o + b_o)


@pytest.mark.parametrize("make", [lambda: identity(6, 4), lambda: random(6, 4, 0)])
def test_heads_that_do_not_divide_the_columns_are_wrong_usage_and_those_that_do_are_named(make):
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.option == "--heads"
    assert "1, 2, 3, 6" in refused.value.hint


@pytest.mark.parametrize("make", [lambda d: identity(d, 1), lambda d: random(d, 1, 0)])
def test_weights_of_more_numbers_than_there_is_room_for_are_refused(make, monkeypatch):
    monkeypatch.setattr(projection, "MOST_WEIGHTS", 9)
    assert make(3).heads[0].W_q.shape == (3, 3)
    with pytest.raises(InputError, match=r"^Vectors of 4 numbers would need weights of 16 numbers\."):
        make(4)


TWO_OF_THREE = {"W_q": np.ones((2, 3)), "heads": 3, "kv_heads": 2}
EYES = dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), np.eye(2))


def by_distance(R, b):
    return {"schema": "attn/1", "position_vectors": np.ones(R), "position_biases": np.ones(b)}


def test_weights_that_do_not_fit_are_refused_and_named():
    for wrong, said in (
        ({"W_v": np.ones((3, 3))}, "(1, 2) ... W_v ... (3, 3)"),
        ({"W_o": np.ones((3, 2))}, "W_o ... (3, 2) ... 2 columns"),
        ({"W_o": np.ones((2, 3)), "layout": "out-in"}, "W_o ... (2, 3) ... 2 columns"),
        ({"W_o": np.full((2, 1), 1e308)}, "The outputs times W_o are more than a number can hold."),
        *(({f"b_{m}": [1.0, 2.0, 3.0]}, f"b_{m} needs one number for each column") for m in "qkv"),
        ({"b_k": [1.0], "layout": "out-in"}, "b_k has 1 numbers ... for each row of W_k"),
        *(({"b_o": [1.0] * n}, f"b_o has {n} numbers, but W_o makes 2") for n in (1, 3)),
        *(
            (by_distance(R, b), f"position_vectors {R} and position_biases {b} do not fit 1 heads of 2.")
            for R, b in (((1, 2, 2), (1, 2)), ((1, 3, 2), (2, 3)), ((1, 3, 3), (1, 3)), ((1, 5, 2), (1, 3)))
        ),
        (TWO_OF_THREE, "3 heads of Q cannot share 2 of K and V"),
        (TWO_OF_THREE | {"kv_heads": 1}, "W_q of 3 heads has shape (2, 3) and W_k of 1 (2, 2)"),
    ):
        with pytest.raises(InputError) as error:
            trace_matrices("compute", given(X=[[1.0, 2.0]], **EYES | wrong), Settings())
        assert all(name in error.value.message for name in said.split(" ... "))


RANDOM = Settings(embedding="random", projection="identity", dim=6)


@examples(strategies.integers(1, 40), strategies.integers(1, 9))
def test_an_encoding_is_the_paper_s_formula_number_by_number(n, d):
    P = sinusoidal(n, d)
    assert P.shape == (n, d)
    for place, column in np.ndindex(n, d):
        angle = place / 10_000 ** (2 * (column // 2) / d)
        close(P[place, column], math.cos(angle) if column % 2 else math.sin(angle))


def test_positions_are_added_from_place_0_and_without_them_order_changes_nothing():
    one, other = trace_self("dog bites man", RANDOM), trace_self("man bites dog", RANDOM)
    close(one.weights, other.weights[::-1, ::-1])
    plain = trace_cross("a b", "c d e", RANDOM)
    moved = trace_cross("a b", "c d e", replace(RANDOM, positions="sinusoidal"))
    close(moved.x_query, plain.x_query + sinusoidal(2, 6))
    close(moved.x_key, plain.x_key + sinusoidal(3, 6))
    assert moved.placed is not None and plain.placed is None
    letters = ("self", "a b c", "-e", "random", "--steps")
    for digits in ([], ["--round", "1"]):
        found = record(*letters, "--positions", "sinusoidal", *digits)
        close(found["x_query"], np.add(found["words_query"], found["encodings_query"]))
    assert found["positions"] == "sinusoidal"
    found = record(*letters)
    assert (found["positions"], found["words_query"], found["encodings_key"]) == ("none", None, None)


@pytest.mark.parametrize("digits", [0, 1, 2, 4])
@pytest.mark.parametrize("options", ["-e random", "-e random --heads 2", "", "-p roles-deep --layer 0"])
def test_what_is_recomputed_from_rounded_inputs_is_what_is_shown(digits, options):
    found = record("self", "dog bites man", "--round", str(digits), *options.split(), "--steps")
    head, X = found["heads"][0], np.array(found["x_query"])
    names = ("W_q", "W_k", "W_v", "position_vectors", "position_biases")
    joining = [found[name] for name in ("W_o", "b_o") if found[name] is not None]
    assert len(joining) == (2 if "layer" in options else 0)
    for M in map(np.array, (X, *joining, *(head[name] for name in names if head.get(name) is not None))):
        assert np.array_equal(M, np.round(M, digits))
    Q, K = (X @ np.array(head[W]) + np.array(head[b] or 0) for W, b in (("W_q", "b_q"), ("W_k", "b_k")))
    exps = np.exp(Q @ K.T * found["scale"] + np.array(head["position_scores"] or 0))
    close(found["weights"], exps / exps.sum(axis=1, keepdims=True), 1e-9)
