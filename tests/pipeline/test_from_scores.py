"""Scores that are given in the place of Q and K: softmax, output, and every place that tells of them."""

import numpy as np
import pytest

from attn_cli import Settings, attend
from attn_cli.errors import AttnError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.pipeline.records import record, told, written
from tests.shell import here

DRAW = np.random.default_rng(29)
Q, K, V = (DRAW.standard_normal(shape) for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 2)))
RAW = Q @ K.swapaxes(-1, -2)
MASK = np.tri(3, 5, dtype=bool)
BIAS = DRAW.standard_normal((2, 3, 5))


def traced(settings=None, **given):
    return trace_matrices("compute", given_from(given, "given"), settings or Settings(head="all"))


def agrees(trace, right):
    assert np.allclose([head.weights for head in trace.heads], right[0], atol=1e-12)
    assert np.allclose([head.output for head in trace.heads], right[1], atol=1e-12)


@pytest.fixture
def file(at):
    return lambda name="given.json", **given: written(at / name, given)


MASKED, OTHER = np.where(MASK, RAW / 2, -np.inf), DRAW.random((2, 3, 5)) < 0.7
BLANK = [[[x if x > -np.inf else None for x in row] for row in head] for head in MASKED.tolist()]
ONE_V = np.stack([V[0]] * 2)


@pytest.mark.parametrize(
    ("given", "right", "note"),
    [
        ({"scores": RAW, "V": V, "scale": 0.5}, attend(Q, K, V), ""),
        ({"scores": RAW, "V": V}, attend(Q, K, V, scale=1), "used unscaled"),
        ({"scaled_scores": RAW / 2, "V": V, "scale": 0.5}, attend(Q, K, V), "scaled already"),
        ({"masked_scores": MASKED, "V": V}, attend(Q, K, V, MASK), ""),
        ({"masked_scores": BLANK, "V": V}, attend(Q, K, V, MASK), ""),
        ({"masked_scores": MASKED, "V": V, "mask": OTHER}, attend(Q, K, V, MASK & OTHER), ""),
        (
            {"scores": RAW, "V": V, "scale": 0.5, "mask": "causal", "bias": BIAS},
            attend(Q, K, V, "causal", BIAS),
            "",
        ),
        ({"scores": RAW, "V": V, "scale": 0.5, "softcap": 0.7}, attend(Q, K, V, softcap=0.7), ""),
        ({"scores": RAW, "V": V, "temperature": 3}, attend(Q, K, V, scale=1 / 3), ""),
        ({"scores": RAW, "V": V[0]}, attend(Q, K, ONE_V, scale=1), ""),
        ({"scores": RAW, "V": V[:1]}, attend(Q, K, ONE_V, scale=1), ""),
    ],
)
def test_scores_are_scaled_masked_and_capped_as_they_say(given, right, note):
    """Raw ones by the scale that is given and by nothing else; values may serve one head, some or all."""
    found = traced(**given)
    agrees(found, right)
    assert not note or any(note in one for one in found.notes)
    if "masked_scores" in given and "mask" not in given:
        assert (found.mask == MASK).all()


def test_without_values_there_are_weights_and_no_output(file):
    found = traced(scores=RAW[0])
    assert np.allclose(found.weights, attend(Q[0], K[0], V[0], scale=1)[0]) and found.output is None
    name = file(scores=RAW[0])
    shown = record("compute", name, "--steps")
    assert shown["output"] is None and shown["heads"][0]["v"] is None
    for options in ("", "--steps", "-q q1 --by-hand all", "-f html", "-f latex", "-f csv"):
        told("compute", name, *options.split())
    assert "no V" in told("compute", name) and "output of" not in told("compute", name, "-q", "q1")


def test_the_mean_of_heads_and_many_rows_have_neither_queries_nor_stand_ins():
    found = traced(Settings(head="mean"), scores=RAW)
    assert found.output is None and found.heads[0].q is None and found.heads[0].k is None
    assert np.allclose(found.weights, attend(Q, K, V, scale=1)[0].mean(axis=0))
    long = DRAW.standard_normal((1100, 1000))
    assert traced(Settings(), scores=long).condensed


def test_a_batch_of_scores_is_one_as_of_any_matrix():
    given = given_from({"scores": np.stack([RAW, -RAW]), "V": np.stack([V, V])}, "given", 1)
    agrees(trace_matrices("compute", given, Settings(head="all")), attend(-Q, K, V, scale=1))
    with pytest.raises(AttnError, match="a batch of 2"):
        given_from({"scores": np.stack([RAW, -RAW])}, "given")


def test_the_walk_begins_at_the_scores_and_says_so(file):
    walk = told("compute", file(scores=RAW[0], V=V[0]), "--steps")
    assert "1. Values" in walk and "2. Scores" in walk and "the steps begin here" in walk
    assert "Queries" not in walk and "q·k" not in walk and "√" not in walk
    assert "Scores given by given.json; scale 1; no mask." in walk


def test_masked_cells_of_given_scores_are_blank_on_every_screen(file):
    name = file(masked_scores=np.where(MASK, RAW[0], None).tolist(), V=V[0])
    for options in (("--steps",), ("-q", "q1"), ("-f", "markdown", "--steps")):
        assert "inf" not in told("compute", name, *options)
    steps = record("compute", name, "--steps")["heads"][0]
    assert steps["scores"][0][1] is None and steps["masked_scores"][0][1] is None


def test_its_own_json_is_computed_with_again_and_shown(file, at):
    first = record("compute", file(scores=RAW, V=V, scale=0.5, mask="causal"), "--head", "all", "--steps")
    own = written(at / "own.json", first)
    again = record("compute", own, "--head", "all")
    assert np.allclose(*([head["weights"] for head in found["heads"]] for found in (first, again)))
    assert np.allclose([head["output"] for head in again["heads"]], attend(Q, K, V, "causal")[1])
    assert "do not lead" not in told("show", own)


def test_check_computes_from_scores(file):
    name = file(scores=RAW[0], V=V[0], scale=0.5)
    weights, output = attend(Q[0], K[0], V[0])
    assert here("check", file("right.json", weights=weights, output=output), "--expect", name).code == 0
    wrong = here("check", file("wrong.json", weights=weights[::-1]), "--expect", name)
    assert wrong.code == 1 and "weights" in wrong.out


def test_scores_beside_q_are_not_computed_with_and_that_is_told():
    given = given_from({"Q": Q, "K": K, "V": V, "scores": RAW}, "given")
    assert given.scores is None and given.ignored == ("scores",)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"scores": [[1, float("nan")]]}, ["not finite", "(0, 1)"]),
        ({"scores": [[1, "2"]]}, ["scores is not a matrix of numbers"]),
        ({"scores": [[1, 2], [3]]}, ["scores is not a matrix of numbers"]),
        ({"scores": [1, 2]}, ["shape (2,)", "2 to 4 axes", "(heads, n_q, n_k)"]),
        ({"scores": RAW, "V": V[:, :4]}, ["V has shape (4, 4)", "5 keys"]),
        ({"scores": RAW[0], "V": V}, ["2 heads", "1"]),
        ({"scores": RAW, "heads": 4}, ["(2, 3, 5)", "heads is 4"]),
        ({"scores": RAW, "mask": MASK[:2]}, ["(2, 5)", "3 queries and 5 keys"]),
        ({"scores": RAW, "bias": BIAS[..., :4]}, ["(2, 3, 4)", "3 queries and 5 keys of 2 heads"]),
        ({"scores": RAW, "tokens": ["a"]}, ["1 tokens", "3 rows"]),
        ({"scores": RAW, "score": "cosine"}, ["gives the scores", "cosine"]),
        ({"scores": RAW, "W_o": V[0]}, ["W_o"]),
        ({"scores": RAW, "temperature": 0}, ["temperature should be a number above 0"]),
        ({"scores": [[1e308, -1e308]], "scale": 1e10}, ["q0"]),
    ],
)
def test_scores_that_cannot_be_computed_with_are_refused(given, parts):
    with pytest.raises(AttnError) as error:
        traced(**{"tokens": None} | given)
    message = f"{error.value.message} {error.value.hint}"
    assert all(part in message for part in parts), message


def test_a_temperature_of_the_file_gives_way_to_a_typed_one(file):
    name = file(scores=RAW[0], temperature=4)
    for options, temperature in (((), 4), (("-t", "2"), 2), (("-t", "1"), 1)):
        assert record("compute", name, *options)["temperature"] == temperature
