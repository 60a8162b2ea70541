"""Word order: sinusoids added to X, as the paper has them; and attention that does not know it without them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as some

from attn_cli import Settings, trace_cross, trace_self
from attn_cli.pipeline.inputs import sinusoidal
from tests.shell import here

RANDOM = Settings(embedding="random", projection="identity", dim=6)


@examples(some.integers(1, 40), some.integers(1, 9))
def test_an_encoding_is_the_paper_s_formula_number_by_number(n, d):
    P = sinusoidal(n, d)
    assert P.shape == (n, d)
    for place in range(n):
        for column in range(d):
            angle = place / 10_000 ** (2 * (column // 2) / d)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert math.isclose(P[place, column], wanted, abs_tol=1e-12)


def test_positions_are_added_from_place_0_and_without_them_order_changes_nothing(at):
    one, other = trace_self("dog bites man", RANDOM), trace_self("man bites dog", RANDOM)
    np.testing.assert_allclose(one.weights, other.weights[::-1, ::-1], rtol=0, atol=1e-12)
    plain = trace_cross("a b", "c d e", RANDOM)
    moved = trace_cross("a b", "c d e", replace(RANDOM, positions="sinusoidal"))
    np.testing.assert_allclose(moved.x_query, plain.x_query + sinusoidal(2, 6), rtol=0, atol=1e-12)
    np.testing.assert_allclose(moved.x_key, plain.x_key + sinusoidal(3, 6), rtol=0, atol=1e-12)
    assert moved.placed is not None and plain.placed is None
    ran = here("self", "a b c", "-e", "random", "--positions", "sinusoidal", "-f", "json", "--steps")
    record = json.loads(ran.out)
    total = np.add(record["words_query"], record["encodings_query"])
    np.testing.assert_allclose(record["x_query"], total, rtol=0, atol=1e-12)
    assert record["positions"] == "sinusoidal"
    record = json.loads(here("self", "a b c", "-e", "random", "-f", "json", "--steps").out)
    assert (record["positions"], record["words_query"], record["encodings_key"]) == ("none", None, None)
    out = here(
        *("explain", "a b c", "-e", "random", "--positions", "sinusoidal", "--round", "2", "-q", "b"),
        *("--only", "positions"),
    ).out
    assert "Word order: where each token stands" in out
    assert "place 1 0.84" in " ".join(out.split())
    said = out[out.index("so its first number becomes") :].split()
    before, after = float(said[5]), float(said[9].rstrip("."))
    assert math.isclose(before + 0.84, after, abs_tol=1e-9)
    (at / "qkv.json").write_text('{"Q": [[1.0]], "K": [[1.0], [2.0]], "V": [[1.0], [2.0]]}')
    record = json.loads(here("compute", "qkv.json", "--positions", "sinusoidal", "-f", "json").out)
    assert any("--positions" in note for note in record["notes"])
    ran = here("self", "a b", "--round", "5")
    assert ran.code == 2 and "--round" in ran.err


@pytest.mark.parametrize("model", [None, "roles", "roles-deep"])
def test_beside_a_learned_model_positions_are_told_to_be_no_part_of_it(model):
    chosen = ["-p", model] if model else []
    ran = here("self", "dog bites man", "--positions", "sinusoidal", *chosen, "-f", "json")
    record = json.loads(ran.out)
    assert record["projection"]["name"] == (model or "identity")
    assert any("learned" in note or "identity" in note for note in record["notes"])


@pytest.mark.parametrize("digits", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "options", [["-e", "random"], ["-e", "random", "--heads", "2"], [], ["-p", "roles-deep"]]
)
def test_what_is_recomputed_from_rounded_inputs_is_what_is_shown(digits, options):
    ran = here("self", "dog bites man", "--round", str(digits), *options, "-f", "json", "--steps")
    record = json.loads(ran.out)
    head = record["heads"][0]
    X = np.array(record["x_query"])
    names = ("W_q", "W_k", "W_v", "position_vectors", "position_biases")
    for M in (X, *(np.array(head[name]) for name in names if head.get(name) is not None)):
        assert np.array_equal(M, np.round(M, digits))
    Q, K = (X @ np.array(head[W]) + np.array(head[b] or 0) for W, b in (("W_q", "b_q"), ("W_k", "b_k")))
    scores = Q @ K.T * record["scale"] + np.array(head["position_scores"] or 0)
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = exps / exps.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(record["weights"], weights, rtol=0, atol=1e-9)
