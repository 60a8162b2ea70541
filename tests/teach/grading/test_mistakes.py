"""The usual mistakes: each is named on answers that were computed by other means, and two at once are not."""

import json

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render.views.grading import MEANINGS
from attn_cli.teach.answer_key import read_answer_key
from attn_cli.teach.grade import grade
from attn_cli.teach.replay import CORRECT, GRADED_STEPS, mistakes, other_corner, possible_arrays, problem_from
from attn_cli.teach.submission import submission_from
from tests.fuzz import answers
from tests.thorough import takes_long


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def softmax(scores, axis=-1):
    exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


def judged(at, record, tol=1e-3, settings=Settings(), **answer):  # noqa: B008
    (at / "right.json").write_text(json.dumps(record, default=np.ndarray.tolist))
    plain = {name: np.asarray(matrix).tolist() for name, matrix in answer.items()}
    return grade(submission_from(plain, "answer"), read_answer_key(at / "right.json", settings), tol)


def test_every_mistake_has_its_meaning_and_its_place():
    problem = problem_from(
        trace_matrices("check", given_from({"X": numbers(1, 3, 4)}, "given"), Settings()), True
    )
    assert tuple(mistakes(problem)) == tuple(MEANINGS) == (*answers.CODES, "w-o-left-out")


@pytest.mark.parametrize(
    "record",
    [
        {"Q": numbers(1, 3, 2), "K": numbers(2, 4, 2), "V": numbers(3, 4, 5)},
        {"Q": numbers(1, 3, 4), "K": numbers(2, 4, 4), "V": numbers(3, 4, 6), "heads": 2, "mask": "causal"},
        {"Q": numbers(1, 3, 2), "K": numbers(2, 3, 2), "V": numbers(3, 3, 1), "position_scores": numbers(4, 3, 3)},
        {"X": numbers(1, 3, 4), "score": "cosine", "heads": 2},
        {
            "X": numbers(1, 3, 4), "context": numbers(2, 2, 4), "heads": 2, "layout": "out-in",
            "W_q": numbers(3, 6, 4), "W_k": numbers(4, 6, 4), "W_v": numbers(5, 2, 4), "b_k": numbers(6, 6),
            "W_o": numbers(7, 5, 2), "b_o": numbers(8, 5), "mask": "causal-bottom-right",
        },
    ],
    ids=["one head", "two heads", "position scores", "cosine", "everything"],
)  # fmt: skip
def test_without_a_mistake_every_step_is_computed_as_the_trace_has_it(record):
    settings = Settings(head="mean", temperature=0.5)
    trace = trace_matrices("check", given_from(record, "given"), settings)
    problem = problem_from(trace, True)
    known = {}
    for step in GRADED_STEPS:
        known[step] = possible_arrays(
            problem._replace(steps={} if step == "scores" else problem.steps), CORRECT, step, known
        )
        if step in problem.steps:
            np.testing.assert_allclose(known[step][0], problem.steps[step], atol=1e-12)


def test_a_causal_mask_has_another_corner_where_keys_and_queries_differ_in_number():
    assert other_corner(np.tri(2, 3, dtype=bool)).tolist() == [[True, True, False], [True, True, True]]
    assert other_corner(np.tri(2, 3, 1, dtype=bool)).tolist() == [[True, False, False], [True, True, False]]
    assert other_corner(np.tri(3, 3, dtype=bool)) is None
    assert other_corner(np.ones((2, 3), dtype=bool)) is None
    assert other_corner(None) is None


@takes_long
def test_answers_of_many_shapes_are_named_rightly_and_right_ones_pass():
    faults = []
    counts = answers.campaign(30, 11, lambda *fault: faults.append(fault[:4]), least=3)
    assert faults == []
    assert all(counts[code]["named"] >= 5 for code in answers.CODES)
    assert counts["right"] == {"right": 30}
    assert counts["two"]["not named"] >= 25


QKV = {"Q": numbers(1, 4, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 3)}
SCORES = QKV["Q"] @ QKV["K"].T


def test_with_one_query_the_corner_and_the_polarity_of_a_mask_are_told_apart(at):
    record = {"Q": numbers(1, 1, 3), "K": numbers(2, 2, 3), "V": numbers(3, 2, 3), "mask": "causal"}
    assert judged(at, record, weights=[[1, 0]]).ok
    assert judged(at, record, weights=[[0, 1]]).likely == "mask-inverted"
    everything = softmax(record["Q"] @ record["K"].T / 3**0.5)
    assert judged(at, record, weights=np.round(everything, 2)).likely == "causal-corner"


def test_what_changes_nothing_is_no_mistake_and_two_explanations_are_both_candidates(at):
    # Scores that are equal stay so, divided or not; K and V that are the same can be swapped.
    record = {"Q": [[1.0, 1.0]], "K": [[1.0, 2.0], [2.0, 1.0]], "V": [[1.0, 2.0], [2.0, 1.0]]}
    assert judged(at, record, scores=[[3, 3]], weights=[[0.5, 0.5]], k=record["V"], v=record["K"]).ok
    # d_k is 4. Undivided scores are 2 and 0; those of the values, divided by 2, are 2 and 0 as well.
    record = {"Q": [[2.0, 0, 0, 0]], "K": [[1.0, 0, 0, 0], [0, 0, 0, 0]], "V": [[2.0, 0, 0, 0], [0, 0, 0, 0]]}
    found = judged(at, record, weights=softmax(np.array([[2.0, 0.0]])))
    assert found.candidates == ("no-scaling", "k-v-swapped") and found.likely is None
    assert found.first.step == "weights" and found.first.cell == (0, 0)
    weights = softmax(SCORES)
    assert judged(at, QKV, tol=0.05, weights=np.round(weights, 4)).likely == "no-scaling"


@pytest.mark.parametrize("fill", ["zeros", "uniform", "nan", "unmasked"])
@pytest.mark.parametrize("with_output", [False, True])
def test_an_inverted_mask_is_named_whatever_a_softmax_over_nothing_gave(fill, with_output, at):
    mask = ~np.tri(4, dtype=bool)
    scaled = SCORES / 3**0.5
    weights = np.zeros((4, 4))
    weights[:3] = softmax(np.where(mask, scaled, -np.inf)[:3])
    weights[3] = {"zeros": 0, "uniform": 0.25, "nan": np.nan, "unmasked": softmax(scaled)[3]}[fill]
    answer = {"weights": np.round(weights, 3)}
    if with_output:
        answer["output"] = np.round(weights @ QKV["V"], 3)
    assert judged(at, QKV | {"mask": "causal"}, **answer).likely == "mask-inverted"


def test_a_softmax_over_masked_columns_or_the_whole_matrix_is_over_the_wrong_axis(at):
    record = {"Q": numbers(1, 2, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 3), "mask": "causal"}
    masked = np.where(np.tri(2, 4, dtype=bool), record["Q"] @ record["K"].T / 3**0.5, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = softmax(masked, axis=0)
    assert np.isnan(weights[:, 2:]).all()
    output = weights @ record["V"]
    assert judged(at, record, weights=weights, output=output).likely == "softmax-axis"
    assert judged(at, QKV, weights=softmax(SCORES.ravel() / 3**0.5).reshape(4, 4)).likely == "softmax-axis"
    masked = np.where(np.tri(4, dtype=bool), -1e9, SCORES / 3**0.5)
    found = judged(at, QKV | {"mask": "causal"}, masked_scores=masked)
    assert (found.likely, found.first.step, found.first.cell) == ("mask-inverted", "masked_scores", (0, 0))


def test_scores_that_were_divided_and_then_not_used_are_no_scaling(at):
    found = judged(at, QKV, scaled_scores=SCORES / 3**0.5, weights=softmax(SCORES))
    assert (found.likely, found.first.step) == ("no-scaling", "weights")


@pytest.mark.parametrize(("divisor", "code"), [(1, "no-scaling"), (3, "scaled-by-d")])
def test_scores_are_divided_by_the_temperature_whatever_else_they_are_divided_by(divisor, code, at):
    warm = Settings(temperature=2.5)
    assert judged(at, QKV, settings=warm, weights=softmax(SCORES / 3**0.5 / 2.5)).ok
    assert judged(at, QKV, settings=warm, weights=softmax(SCORES / divisor / 2.5)).likely == code


X = {"X": numbers(1, 3, 4)} | {f"W_{letter}": numbers(ord(letter), 4, 4) for letter in "qkv"}


@pytest.mark.parametrize("wrong", ["q", "k", "v", "qk", "qv", "kv", "qkv"])
@pytest.mark.parametrize("layout", ["in-out", "out-in"])
def test_any_transposed_w_is_named(wrong, layout, at):
    record = X | {"layout": layout}
    usual = {c: X["X"] @ (X[f"W_{c}"] if layout == "in-out" else X[f"W_{c}"].T) for c in "qkv"}
    other = {c: X["X"] @ (X[f"W_{c}"].T if layout == "in-out" else X[f"W_{c}"]) for c in "qkv"}
    q, k, v = (other[c] if c in wrong else usual[c] for c in "qkv")
    weights = softmax(q @ k.T / 2)
    found = judged(at, record, weights=np.round(weights, 3), output=np.round(weights @ v, 3))
    assert found.likely == "transposed-w"
    found = judged(at, record, q=q, k=k, v=v)
    assert (found.likely, found.first.step) == ("transposed-w", wrong[0])


def test_a_transposed_output_projection_is_named_too(at):
    W_o = numbers(9, 4, 4)
    output = softmax(X["X"] @ X["W_q"] @ (X["X"] @ X["W_k"]).T / 2) @ (X["X"] @ X["W_v"])
    assert judged(at, X | {"W_o": W_o}, output=output, layer_output=output @ W_o).ok
    assert judged(at, X | {"W_o": W_o}, layer_output=output @ W_o.T).likely == "transposed-w"


def test_a_w_that_is_not_square_cannot_be_transposed():
    record = {"X": numbers(1, 3, 4)} | {f"W_{letter}": numbers(ord(letter), 4, 2) for letter in "qkv"}
    trace = trace_matrices("check", given_from(record, "given"), Settings(head="mean"))
    assert mistakes(problem_from(trace, True))["transposed-w"] == []


def test_k_and_v_may_be_swapped_where_they_are_made_or_where_they_are_used(at):
    q, k, v = (X["X"] @ X[f"W_{letter}"] for letter in "qkv")
    weights = softmax(q @ v.T / 2)
    for shown in ({}, {"k": k, "v": v}, {"k": v, "v": k}):
        found = judged(at, X, **shown, weights=np.round(weights, 2), output=np.round(weights @ k, 2))
        assert found.likely == "k-v-swapped"
    assert judged(at, X, k=v).likely == "k-v-swapped"
    # Different in shape they cannot be used for each other; they can be given under each other's name.
    record = {"Q": numbers(1, 2, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 2)}
    found = judged(at, record, k=record["V"], v=record["K"])
    assert (found.likely, found.first.shapes) == ("k-v-swapped", ((4, 3), (4, 2)))


def test_weights_that_were_swapped_without_their_biases_are_k_v_swapped(at):
    b = {"b_k": numbers(20, 4), "b_v": numbers(21, 4)}
    k, v = X["X"] @ X["W_v"] + b["b_k"], X["X"] @ X["W_k"] + b["b_v"]
    weights = softmax(X["X"] @ X["W_q"] @ k.T / 2)
    assert judged(at, X | b, weights=weights, output=weights @ v).likely == "k-v-swapped"


HEADS = {"Q": numbers(1, 3, 4), "K": numbers(2, 3, 4), "V": numbers(3, 3, 6), "heads": 2}
BY_HEAD = [
    softmax(q @ k.T / 2**0.5)
    for q, k in zip(np.split(HEADS["Q"], 2, axis=1), np.split(HEADS["K"], 2, axis=1), strict=True)
]
OUTPUTS = [weights @ v for weights, v in zip(BY_HEAD, np.split(HEADS["V"], 2, axis=1), strict=True)]


@pytest.mark.parametrize(
    "given",
    [
        *({"weights": BY_HEAD}, {"weights": BY_HEAD[0]}, {"weights": BY_HEAD[1], "output": OUTPUTS[1]}),
        *({"weights": BY_HEAD[0] + BY_HEAD[1]}, {"weights": np.concatenate(BY_HEAD)}),
        {"output": np.concatenate(OUTPUTS, axis=1)},
        {"weights": np.mean(BY_HEAD, axis=0), "output": OUTPUTS},
    ],
    ids=["apart", "the first", "the last", "the sum", "below each other", "side by side", "output apart"],
)
def test_heads_that_are_not_averaged_are_named_however_they_come(given, at):
    assert judged(at, HEADS, **given).likely == "heads-not-averaged"


def test_the_mean_of_the_heads_is_right_and_so_are_heads_apart_where_nothing_is_averaged(at):
    Q, K = np.split(HEADS["Q"], 2, axis=1), np.split(HEADS["K"], 2, axis=1)
    scores = [q @ k.T for q, k in zip(Q, K, strict=True)]
    right = {"weights": np.mean(BY_HEAD, axis=0), "output": np.mean(OUTPUTS, axis=0)}
    for q in (HEADS["Q"], Q):
        assert judged(at, HEADS, q=q, scores=scores, **right).ok
    assert judged(at, HEADS, scores=np.mean(scores, axis=0), **right).ok
    assert not judged(at, HEADS, scores=np.sum(scores, axis=0)).ok


@pytest.mark.parametrize("first", ["no-scaling", "mask"])
def test_two_mistakes_at_once_are_not_given_one_name(first, at):
    wrong = SCORES if first == "no-scaling" else np.where(np.tri(4, dtype=bool), SCORES / 3**0.5, -np.inf)
    weights = softmax(wrong).T if first == "mask" else softmax(wrong) * np.tri(4)
    record = QKV | {"mask": "causal"}
    found = judged(at, record, weights=np.round(weights, 3), output=np.round(weights @ QKV["V"], 3))
    assert not found.ok and found.likely is None


def test_a_slip_in_one_cell_is_no_usual_mistake(at):
    weights = softmax(SCORES / 3**0.5)
    weights[2, 1] += 0.1
    found = judged(at, QKV, scores=SCORES, weights=weights, output=weights @ QKV["V"])
    assert (found.first.step, found.first.cell, found.first.wrong) == ("weights", (2, 1), 1)
    assert found.candidates == () and found.guessed
    assert found.compared[-1].status == "follows"
