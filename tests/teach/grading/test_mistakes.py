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
from attn_cli.teach.replay import mistakes, problem_from
from attn_cli.teach.submission import submission_from
from tests.fuzz import answers
from tests.teach.grading.test_grade import numbers, softmax
from tests.thorough import often


def judged(at, record, tol=1e-3, settings=Settings(), **answer):  # noqa: B008
    (at / "right.json").write_text(json.dumps(record, default=np.ndarray.tolist))
    plain = {name: np.asarray(matrix).tolist() for name, matrix in answer.items()}
    return grade(submission_from(plain, "answer"), read_answer_key(at / "right.json", settings), tol)


def test_every_mistake_has_its_meaning_and_its_place():
    problem = problem_from(
        trace_matrices("check", given_from({"X": numbers(1, 3, 4)}, "given"), Settings()), True
    )
    assert tuple(mistakes(problem)) == tuple(MEANINGS) == (*answers.CODES, "w-o-left-out")


def test_answers_of_many_shapes_are_named_rightly_and_right_ones_pass():
    faults, n = [], often(30)
    counts = answers.campaign(n, 11, lambda *fault: faults.append(fault[:4]), least=3)
    assert faults == []
    assert all(counts[code]["named"] >= (5 if n == 30 else 1) for code in answers.CODES)
    assert counts["right"] == {"right": n}
    assert counts["two"]["not named"] >= n * 5 // 6


QKV = {"Q": numbers(1, 4, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 3)}
SCORES = QKV["Q"] @ QKV["K"].T
SCALED = SCORES / 3**0.5
MASKED = QKV | {"mask": "causal"}
ONE = {"Q": numbers(1, 1, 3), "K": numbers(2, 2, 3), "V": numbers(3, 2, 3), "mask": "causal"}  # one query
WIDE = {"Q": numbers(1, 2, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 3), "mask": "causal"}
with np.errstate(invalid="ignore"):  # two columns have nothing that is allowed
    OVER_COLUMNS = softmax(np.where(np.tri(2, 4) > 0, WIDE["Q"] @ WIDE["K"].T / 3**0.5, -np.inf).T).T
NARROW = {"Q": numbers(1, 2, 3), "K": numbers(2, 4, 3), "V": numbers(3, 4, 2)}  # K and V differ in shape
X = {"X": numbers(1, 3, 4)} | {f"W_{letter}": numbers(ord(letter), 4, 4) for letter in "qkv"}
PARTS = {"X": numbers(1, 3, 2), "heads": 2} | {f"W_{letter}": numbers(ord(letter), 2, 4) for letter in "qkv"}
XQ, XK, XV = (X["X"] @ X[f"W_{letter}"] for letter in "qkv")
SWAPPED = {"weights": softmax(XQ @ XV.T / 2).round(2), "output": (softmax(XQ @ XV.T / 2) @ XK).round(2)}
B = {"b_k": numbers(20, 4), "b_v": numbers(21, 4)}
BARE = softmax(XQ @ (XV + B["b_k"]).T / 2)  # W_k and W_v swapped without their biases
W_O, OUTPUT = {"W_o": numbers(9, 4, 4)}, softmax(XQ @ XK.T / 2) @ XV
HEADS = {"Q": numbers(1, 3, 4), "K": numbers(2, 3, 4), "V": numbers(3, 3, 6), "heads": 2}
SPLIT = [np.split(HEADS[letter], 2, axis=1) for letter in "QKV"]
BY_HEAD = [softmax(q @ k.T / 2**0.5) for q, k, _ in zip(*SPLIT, strict=True)]
OUTPUTS = [weights @ v for weights, v in zip(BY_HEAD, SPLIT[2], strict=True)]


def by_hand(q, k):
    """The weights of one who rounds each number on the way to two digits."""
    scores = np.round(np.round(q, 2) @ np.round(k, 2).T, 2)
    return np.round(softmax(np.round(scores / k.shape[1] ** 0.5, 2)), 2)


NAMED = [  # a problem, an answer to it, and the mistake that explains it, with where it shows; "" if it is right
    (ONE, {"weights": [[1, 0]]}, ""),
    (ONE, {"weights": [[0, 1]]}, "mask-inverted"),
    (ONE, {"weights": softmax(ONE["Q"] @ ONE["K"].T / 3**0.5).round(2)}, "causal-corner"),
    # Divided, and then not used.
    (QKV, {"scaled_scores": SCALED, "weights": softmax(SCORES)}, "no-scaling in weights"),
    (WIDE, {"weights": OVER_COLUMNS, "output": OVER_COLUMNS @ WIDE["V"]}, "softmax-axis"),
    (QKV, {"weights": softmax(SCALED.ravel()).reshape(4, 4)}, "softmax-axis"),
    (MASKED, {"masked_scores": np.where(np.tri(4) > 0, -1e9, SCALED)}, "mask-inverted in masked_scores"),
    (X | W_O, {"output": OUTPUT, "layer_output": OUTPUT @ W_O["W_o"]}, ""),
    (X | W_O, {"layer_output": OUTPUT @ W_O["W_o"].T}, "transposed-w"),
    (PARTS, {"q": np.hstack([PARTS["X"] @ part.T for part in np.hsplit(PARTS["W_q"], 2)])}, "transposed-w"),
    (MASKED, {"weights": softmax(np.where(np.tri(4).T > 0, SCALED, -np.inf))}, "mask-inverted"),
    # K and V swapped where they are made, or used; of different shapes, under each other's name.
    *((X, shown | SWAPPED, "k-v-swapped") for shown in ({}, {"k": XK, "v": XV}, {"k": XV, "v": XK})),
    (X, {"k": XV}, "k-v-swapped"),
    (NARROW, {"k": NARROW["V"], "v": NARROW["K"]}, "k-v-swapped"),
    (X | B, {"weights": BARE, "output": BARE @ (XK + B["b_v"])}, "k-v-swapped"),
    # Heads that are not averaged: the last, below each other, side by side, the outputs alone.
    (HEADS, {"weights": BY_HEAD[1], "output": OUTPUTS[1]}, "heads-not-averaged"),
    (HEADS, {"weights": np.concatenate(BY_HEAD)}, "heads-not-averaged"),
    (HEADS, {"output": np.concatenate(OUTPUTS, axis=1)}, "heads-not-averaged"),
    (HEADS, {"weights": np.mean(BY_HEAD, axis=0), "output": OUTPUTS}, "heads-not-averaged"),
    (HEADS, {"weights": np.sum([*map(by_hand, *SPLIT[:2])], axis=0)}, "heads-not-averaged"),
]


@pytest.mark.parametrize(("record", "answer", "mistake"), NAMED)
def test_a_mistake_is_named_in_whichever_way_it_shows(record, answer, mistake, at):
    found = judged(at, record, **answer)
    name, _, step = mistake.partition(" in ")
    assert (found.ok, found.likely or "") == (not name, name)
    assert not step or found.first.step == step
    assert step != "masked_scores" or found.first.cell == (0, 0)
    assert record is not NARROW or found.first.shapes == ((4, 3), (4, 2))


def test_an_inverted_mask_is_named_whatever_a_softmax_over_nothing_gave(at):
    weights = np.zeros((4, 4))
    weights[:3] = softmax(np.where(np.tri(4) > 0, -np.inf, SCALED)[:3])
    for weights[3] in (0, 0.25, np.nan, softmax(SCALED)[3]):
        for output in ({}, {"output": np.round(weights @ QKV["V"], 3)}):
            assert judged(at, MASKED, weights=np.round(weights, 3), **output).likely == "mask-inverted"


def test_what_changes_nothing_or_cannot_be_done_is_no_mistake_and_two_explanations_are_both_candidates(at):
    # Scores that are equal stay so, divided or not; K and V that are the same can be swapped.
    record = {"Q": [[1.0, 1.0]], "K": [[1.0, 2.0], [2.0, 1.0]], "V": [[1.0, 2.0], [2.0, 1.0]]}
    assert judged(at, record, scores=[[3, 3]], weights=[[0.5, 0.5]], k=record["V"], v=record["K"]).ok
    # d_k is 4. Undivided scores are 2 and 0; those of the values, divided by 2, are 2 and 0 as well.
    record = {"Q": [[2.0, 0, 0, 0]], "K": [[1.0, 0, 0, 0], [0, 0, 0, 0]], "V": [[2.0, 0, 0, 0], [0, 0, 0, 0]]}
    found = judged(at, record, weights=softmax(np.array([[2.0, 0.0]])))
    assert found.candidates == ("no-scaling", "k-v-swapped") and found.likely is None
    assert found.first.step == "weights" and found.first.cell == (0, 0)
    assert judged(at, QKV, tol=0.05, weights=np.round(softmax(SCORES), 4)).likely == "no-scaling"
    for divisor, code in ((3**0.5, None), (1, "no-scaling"), (3, "scaled-by-d")):
        found = judged(at, QKV, settings=Settings(temperature=2.5), weights=softmax(SCORES / divisor / 2.5))
        assert (found.ok, found.likely) == (code is None, code)
    record = {"X": numbers(1, 3, 4)} | {f"W_{letter}": numbers(ord(letter), 4, 2) for letter in "qkv"}
    trace = trace_matrices("check", given_from(record, "given"), Settings(head="mean"))
    assert mistakes(problem_from(trace, True))["transposed-w"] == []


def test_the_mean_of_the_heads_is_right_and_two_mistakes_at_once_or_a_slip_have_no_name(at):
    scores = [q @ k.T for q, k, _ in zip(*SPLIT, strict=True)]
    right = {"weights": np.mean(BY_HEAD, axis=0), "output": np.mean(OUTPUTS, axis=0)}
    for q in (HEADS["Q"], SPLIT[0]):
        assert judged(at, HEADS, q=q, scores=scores, **right).ok
    assert judged(at, HEADS, scores=np.mean(scores, axis=0), **right).ok
    assert not judged(at, HEADS, scores=np.sum(scores, axis=0)).ok
    for weights in (softmax(SCORES) * np.tri(4), softmax(np.where(np.tri(4) > 0, SCALED, -np.inf)).T):
        found = judged(at, MASKED, weights=np.round(weights, 3), output=np.round(weights @ QKV["V"], 3))
        assert not found.ok and found.likely is None
    weights = softmax(SCALED)
    weights[2, 1] += 0.1
    found = judged(at, QKV, scores=SCORES, weights=weights, output=weights @ QKV["V"])
    assert (found.first.step, found.first.cell, found.first.wrong) == ("weights", (2, 1), 1)
    assert found.candidates == () and found.guessed
    assert found.compared[-1].status == "follows"
