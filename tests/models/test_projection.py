"""Projections: identity, random and given ones, their heads and their layouts."""

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.models.projection import from_given, identity, random
from attn_cli.pipeline.sources.matrices import trace_matrices


def some(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


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


@pytest.mark.parametrize("heads", [1, 2])
def test_weights_as_out_in_are_their_transposes_as_in_out(heads):
    X = some(3, 4)
    W_q, W_k, W_v = (some(4, 6, seed=n) for n in (1, 2, 3))  # neither square nor symmetric
    b_q, b_k, b_v = (some(6, seed=n) for n in (4, 5, 6))
    biases = {"b_q": b_q, "b_k": b_k, "b_v": b_v}
    rows = from_given(given(W_q=W_q, W_k=W_k, W_v=W_v, **biases), heads, "in-out", "file")
    columns = from_given(given(W_q=W_q.T, W_k=W_k.T, W_v=W_v.T, **biases), heads, "out-in", "file")
    wanted = X @ W_q + b_q, X @ W_k + b_k, X @ W_v + b_v
    for layer in (rows, columns):
        made = zip(*(head.project(X, X) for head in layer.heads), strict=True)
        for parts, whole in zip(made, wanted, strict=True):
            np.testing.assert_allclose(np.hstack(parts), whole, rtol=0, atol=1e-12)


def test_heads_attend_on_their_own_columns_and_no_weight_is_read_transposed():
    W = np.array([[0.0, 1.0], [0.0, 0.0]])  # x W moves the first number to the second place
    X = [[3.0, 5.0]]
    for layout, q in (("in-out", [[0.0, 3.0]]), ("out-in", [[5.0, 0.0]])):
        trace = trace_matrices("compute", given(X=X, W_q=W, W_k=W, W_v=W, layout=layout), Settings())
        assert trace.heads[0].q.tolist() == q
        assert trace.projection.layout == layout
    X = some(4, 6)
    W = [some(6, 6, seed=n) for n in (1, 2, 3)]
    trace = trace_matrices(
        "compute", given(X=X, W_q=W[0], W_k=W[1], W_v=W[2]), Settings(heads=3, head="all", score="dot")
    )
    for h, head in enumerate(trace.heads):
        own = slice(2 * h, 2 * h + 2)
        scores = (X @ W[0])[:, own] @ (X @ W[1])[:, own].T
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(head.weights, weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.output, weights @ (X @ W[2])[:, own], rtol=0, atol=1e-12)
    trace_mean = trace_matrices(
        "compute", given(X=X, W_q=W[0], W_k=W[1], W_v=W[2]), Settings(heads=3, head="mean", score="dot")
    )
    np.testing.assert_allclose(
        trace_mean.weights, np.mean([head.weights for head in trace.heads], axis=0), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("layout", ["in-out", "out-in"])
def test_the_layer_output_is_the_heads_side_by_side_times_their_weight(layout):
    X, W, W_o, b_o = some(3, 4), some(4, 4, seed=1), some(4, 5, seed=2), some(5, seed=3)
    turned = (lambda M: M) if layout == "in-out" else np.transpose
    record = {"X": X, "W_q": turned(W), "W_k": turned(W), "W_v": turned(W), "W_o": turned(W_o), "b_o": b_o}
    trace = trace_matrices("compute", given(**record, heads=2, layout=layout), Settings())
    joined = np.hstack([head.output for head in trace.heads])
    np.testing.assert_allclose(trace.layer_output, joined @ W_o + b_o, rtol=0, atol=1e-12)


def test_scale_follows_one_head_s_queries_and_cross_attention_takes_the_rest_from_the_context():
    trace = trace_self("a b c", Settings(embedding="random", dim=8, heads=2))
    assert trace.scale == pytest.approx(1 / np.sqrt(4), abs=1e-15)
    settings = Settings(embedding="random", dim=6, projection="random", seed=3)
    trace = trace_cross("a b", "c d e", settings)
    head = trace.heads[0]
    np.testing.assert_allclose(head.q, trace.x_query @ head.W_q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(head.k, trace.x_key @ head.W_k, rtol=0, atol=1e-12)
    np.testing.assert_allclose(head.v, trace.x_key @ head.W_v, rtol=0, atol=1e-12)
    assert (head.q.shape, head.k.shape, head.weights.shape) == ((2, 6), (3, 6), (2, 3))


@pytest.mark.parametrize("make", [lambda: identity(6, 4), lambda: random(6, 4, 0)])
def test_heads_that_do_not_divide_the_columns_are_wrong_usage_and_those_that_do_are_named(make):
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.option == "--heads"
    assert "1, 2, 3, 6" in refused.value.hint


EYE = np.eye(2)
BAD = {
    "no W_v": ({"W_q": EYE, "W_k": EYE}, ["W_v"]),
    "no W_q": ({"W_k": EYE, "W_v": EYE}, ["W_q"]),
    "W_q and W_k": ({"W_q": EYE, "W_k": np.ones((2, 3)), "W_v": EYE}, ["(2, 2)", "(2, 3)"]),
    "W_q and X": ({"W_q": np.ones((3, 2)), "W_k": EYE, "W_v": EYE}, ["(1, 2)", "W_q", "(3, 2)"]),
    "W_v and X": ({"W_q": EYE, "W_k": EYE, "W_v": np.ones((3, 3))}, ["(1, 2)", "W_v", "(3, 3)"]),
    "b_k": ({"W_q": EYE, "W_k": EYE, "W_v": EYE, "b_k": [1.0, 2.0, 3.0]}, ["b_k"]),
    "W_o": ({"W_q": EYE, "W_k": EYE, "W_v": EYE, "W_o": np.ones((3, 2))}, ["W_o", "(3, 2)", "2 columns"]),
    "b_o": ({"W_q": EYE, "W_k": EYE, "W_v": EYE, "W_o": EYE, "b_o": [1.0, 2.0, 3.0]}, ["b_o"]),
    "one b_o": ({"W_q": EYE, "W_k": EYE, "W_v": EYE, "W_o": EYE, "b_o": [1.0]}, ["b_o"]),
    "context": ({"context": [[1.0, 2.0, 3.0]]}, ["(1, 2)", "(1, 3)"]),
    "position": ({"position_scores": [[1.0, 2.0]]}, ["position_scores", "(1, 2)"]),
}


@pytest.mark.parametrize("what", BAD)
def test_weights_that_do_not_fit_are_refused_and_named(what):
    arrays, said = BAD[what]
    with pytest.raises(InputError) as refused:
        trace_matrices("compute", given(X=[[1.0, 2.0]], **arrays), Settings())
    for name in said:
        assert name in refused.value.message
