"""attn check: what is read, what is right, what is said of a difference, and how a script learns of it."""

import json
import math
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.teach.submission import read_submission, submission_from
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import told as cases, typed
from tests.schema import complaints
from tests.shell import attn, here, refused
from tests.thorough import often


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def softmax(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


Q, K, V = numbers(1, 3, 2), numbers(2, 4, 2), numbers(3, 4, 5)
SCORES = Q @ K.T
SCALED = SCORES / 2**0.5
WEIGHTS = softmax(SCALED)
STEPS = {"q": Q, "k": K, "v": V, "scores": SCORES, "scaled_scores": SCALED}
STEPS |= {"weights": WEIGHTS, "output": WEIGHTS @ V}
TOKENS = {"tokens": ["she", "likes", "tea"], "context_tokens": ["a", "b", "c", "d"]}
UNDIVIDED = softmax(SCORES)


def save(name, **record):
    Path(name).write_text(json.dumps(record, default=np.ndarray.tolist))
    return name


@pytest.fixture(autouse=True)
def place(at):
    save("right.json", Q=Q, K=K, V=V, **TOKENS)
    return at


def check(*args, **env):
    return here("check", *args, "--expect", "right.json", env=env)


def told(*args):
    ran = check(*args, "-f", "json")
    assert ran.code in (0, 1) and ran.err == ""
    record = json.loads(ran.out)
    assert complaints(record) == []
    assert record["ok"] == (ran.code == 0)
    return record


def judged(*args, **answer):
    return told(save("a.json", **answer), *args)


def is_right(*args, **answer):
    return judged(*args, **answer)["ok"]


def test_right_steps_are_right_at_any_rounding_and_what_rounding_does_not_explain_is_wrong():
    for digits in (2, 3, 4, 17):
        record = judged(**{name: np.round(one, digits) for name, one in STEPS.items()})
        assert record["ok"] and [one["step"] for one in record["compared"]] == [*STEPS]
    weights = np.round(WEIGHTS, 3)
    weights[1, 2] += 0.002
    record = judged(weights=weights)
    assert (record["step"], record["cell"], record["likely"]) == ("weights", [1, 2], None)
    assert (record["expected"], record["got"]) == pytest.approx((WEIGHTS[1, 2], weights[1, 2]))
    assert is_right("--tol", "0.003", weights=weights) and is_right(weights=WEIGHTS + 1e-4)
    assert not is_right("--tol", "1e-5", weights=WEIGHTS + 1e-4)
    assert check(save("b.json", weights=UNDIVIDED), "-o", "verdict.json") == (1, "", "")  # into a file
    assert json.loads(Path("verdict.json").read_text())["likely"] == "no-scaling"
    assert not is_right(weights=np.zeros((3, 4))) and not is_right(output=np.zeros((3, 5)))
    q, k, v = np.round(Q, 2), np.round(K, 3), np.round(V, 3)
    save("right.json", Q=q, K=K, V=V, **TOKENS)
    weights = np.round(softmax(np.round(np.round(q @ k.T, 3) / 2**0.5, 3)), 3)
    output = np.round(weights @ v, 3)
    assert is_right(q=q, output=output)
    output[1, 2] += 0.5  # the others are right for who rounds on the way
    assert [one["wrong"] for one in judged("--tol", "0", q=q, output=output)["compared"]] == [0, 1]
    assert not is_right(q=q, output=np.round(np.round(weights, 2) @ v, 3))
    save("right.json", Q=Q * 300, K=K, V=V)  # computed in float32
    np.savez("a.npz", scores=np.float32(Q * 300) @ np.float32(K.T))
    assert told("a.npz", "--tol", "0")["ok"]
    save("right.json", weights=np.round(WEIGHTS, 2))  # a key of few digits is met by all that rounds to it
    assert is_right(weights=WEIGHTS) and is_right(weights=np.round(WEIGHTS, 3))
    assert not is_right(weights=np.round(WEIGHTS, 2) + np.eye(3, 4) * 0.007)
    save("right.json", Q=[[1]], K=[[-0.97], [0]], V=[[1], [0]])
    assert is_right(weights=[[0.28, 0.72]])  # 0.2749, and of e^-0.97 rounded to 0.38, 0.2754


DIGITS = {
    2: "[[0.3, 0.70]] | [[0.3, 0.7]] | [[0.5, 0.5, 0.5]] | [[1, 0]] | [[1.0, 0.0]]", 3: "[[0.300, 0.7]]",
    4: "[[1.5e-3, 2]]", 1: "[[0.1, 0.2, 0.7]] | [[0.1, 0.2, 0.7], [null, NaN, -1e9]]", 17: "[[0.30000000000000004, 1]]",
}  # fmt: skip


def test_digits_are_the_most_that_a_matrix_shows_and_csv_files_batches_and_plain_lists_are_read():
    for digits, matrix in ((digits, one) for digits, those in DIGITS.items() for one in those.split(" | ")):
        Path("a.json").write_text(f'{{"q": [[1, 0]], "weights": {matrix}, "output": [[-0.123, 2]]}}')
        found = {step: one.digits for step, one in read_submission("a.json").steps.items()}
        assert found == {"q": 2, "weights": digits, "output": 3}, matrix
    np.savez("a.npz", weights=np.full((3, 4), 0.1, np.float32), output=np.full((3, 5), np.nan))
    record = told("a.npz")
    assert record["got"] == 0.1 and [one["unfilled"] for one in record["compared"]] == [0, 0]
    np.savetxt("weights.tsv", UNDIVIDED, "%.3f", "\t")
    assert told("weights.tsv")["likely"] == "no-scaling"
    assert is_right(Q=Q, K=[K], V=[[V]], weights=[WEIGHTS])
    save("right.json", Q=Q[:1], K=K, V=V)
    assert is_right(weights=WEIGHTS[0], output=STEPS["output"][0])


def test_a_mask_a_score_and_a_temperature_may_come_by_option_and_the_marks_of_a_mask_are_right():
    may = np.tri(3, 4, dtype=bool)
    Path("mask.txt").write_text("\n".join(" ".join(map(str, row)) for row in (~may).astype(int).tolist()))
    save("a.json", weights=softmax(np.where(may, SCALED, -np.inf)))
    assert told("a.json", "--mask", "mask.txt", "--mask-true", "blocked")["ok"]
    assert told("a.json", "--mask", "mask.txt", "--mask-true", "allowed")["likely"] == "mask-inverted"
    assert told("a.json", "--mask", "causal")["ok"]
    assert check("a.json", "--mask", "mask.txt").code == 2
    assert is_right("--score", "dot", weights=UNDIVIDED)
    assert is_right("-t", "2", weights=softmax(SCALED / 2))
    save("right.json", Q=Q, K=K, V=V, mask="causal")
    weights = softmax(np.where(may, SCALED, -np.inf))
    for mark in (math.nan, -math.inf, -1e9, -1e4, None):
        shown = np.where(may, SCALED.astype(object), mark)
        kept = weights if mark is not None else np.where(may, weights, np.nan)
        record = judged(scores=SCORES, scaled_scores=shown, masked_scores=shown, weights=kept)
        assert record["ok"] and max(one["largest"] for one in record["compared"]) < 1e-12
    assert not is_right(masked_scores=np.where(may, SCALED, -999)), "too near to be a mark"
    save("right.json", Q=Q * 30, K=K, V=V, mask="causal")
    for mark, right in ((-1500, False), (-1e5, True)):
        assert is_right(masked_scores=np.where(may, SCALED * 30, mark)) == right
    save("right.json", Q=Q, K=K, V=V, mask="causal")
    record = judged(masked_scores=SCALED)
    assert (record["step"], record["cell"], record["expected"]) == ("masked_scores", [0, 1], None)
    assert "masked is right" in record["message"]
    record = judged(scaled_scores=np.where(may.T[:3, :3].repeat(2, axis=1)[:, :4], SCALED, np.nan))
    assert not record["ok"] and record["got"] is None and "no number was given" in record["message"]
    may = np.array([[True] * 4, [False] * 4, [True] * 4])
    save("right.json", Q=Q, K=K, V=V, mask=may.tolist())
    for fill, right in ((0.0, True), (math.nan, True), (0.25, False)):
        weights = np.where(may, WEIGHTS, fill)
        record = judged(weights=weights, output=weights @ V)
        assert record["ok"] == right
    assert record["cell"] == [1, 0] and "may look at nothing" in record["message"]
    save("right.json", Q=Q, K=K, V=V, W_o=(W_o := numbers(9, 5, 2)), mask=may.tolist())
    assert is_right(layer_output=np.where(may[:, :1], WEIGHTS @ V @ W_o, np.nan))


def test_the_first_step_that_differs_is_named_with_its_cell_or_its_shape_and_what_follows_from_it():
    k, weights = np.copy(K), np.copy(WEIGHTS)
    k[3, 1] += 1
    record = judged(k=k)
    assert record["cell"] == [3, 1] and 'key "d" (row 3), column 1' in record["message"]
    assert 'v, at key "d" (row 3), column 0' in judged(v=V + np.eye(4, 1, -3))["message"]
    weights[0, 0] += 0.2
    for more, status in ((0, "follows"), (1, "differs")):
        record = judged(weights=weights, output=weights @ V + more)
        assert [one["status"] for one in record["compared"]] == ["differs", status]
        assert record["likely"] is None
    for weights in (WEIGHTS.T, WEIGHTS[:, :2], [], [[]], [[[[[1]]]]]):
        record, shape = judged(weights=weights), np.shape(weights)
        assert [record[key] for key in ("step", "cell", "expected", "got")] == ["weights", None, None, None]
        assert (record["expected_shape"], record["got_shape"]) == ([3, 4], [*shape])
        said = "Transposed, it would" if shape == (4, 3) else "(3, 4) is right"
        assert said in record["message"] and str(shape) in record["message"]
    save("right.json", Q=Q, K=K[:3], V=V[:3])
    record = judged(scores=(Q @ K[:3].T).T)
    assert "Transposed, it would" in record["message"] and record["expected_shape"] is None


HEADS = {f"W_{c}": numbers(ord(c), 4, 4) for c in "qkv"}
HEADS |= {"X": numbers(4, 3, 4), "heads": 2, "mask": "causal"}
SHIPPED = Path(__file__).parents[3] / "data" / "examples"
COFFEE = json.loads((SHIPPED / "coffee.json").read_text())


def test_attn_s_own_json_is_right_whichever_head_it_shows_and_compared_with_as_it_was_made():
    save("right.json", **COFFEE | {"heads": 2})
    for head, steps in product(("mean", "all", "0", "1"), ((), ("--steps",))):
        assert here("example", "coffee", "--heads", "2", "--head", head, *steps, "-o", "a.json").code == 0
        assert told("a.json")["ok"]
        assert not steps or here("check", "a.json", "--expect", "a.json").code == 0
    own = shell.record("example", "coffee", "-t", "0.5", "--steps")
    save("right.json", **own)
    X, W_q, W_k, W_v = (np.array(COFFEE[name]) for name in ("X", "W_q", "W_k", "W_v"))
    weights = softmax((X @ W_q) @ (X @ W_k).T / 4**0.5 / 0.5)
    record = judged(weights=weights, output=weights @ X @ W_v)
    assert record["ok"] and record["notes"] == []
    assert is_right("-t", "2", weights=softmax((X @ W_q) @ (X @ W_k).T / 4**0.5 / 2))
    for odd in (True, "hot", 0, 9e-7, 2e6):
        save("right.json", **own | {"temperature": odd})
        assert "temperature should be a number from 1e-06 up" in check("a.json").err
    # W_v of the example is symmetric; a made-up one is not, and its transpose can be told only from X.
    own["heads"][0] |= {"W_v": (W := numbers(8, 4, 4)), "v": X @ W}
    save("right.json", **own)
    assert is_right(v=X @ W) and judged(v=X @ W.T)["likely"] == "transposed-w"


def test_a_mistake_that_gives_the_digits_goes_before_one_that_is_only_near():
    """With scores 1 and 0, and 0 and 0, a head's share is .622; the mean of both heads is .561, undivided .616."""
    save("right.json", Q=[[1.0] + [0.0] * 7], K=np.eye(2, 8), V=np.eye(2), heads=2)
    record = judged("--tol", "0.02", weights=[[0.622, 0.378]])
    assert record["likely"] == "heads-not-averaged" and record["candidates"] == ["heads-not-averaged"]


def test_a_head_may_be_asked_for_and_w_o_makes_the_layer_s_output():
    save("right.json", **HEADS)
    X = HEADS["X"]
    q, k, v = (np.split(X @ HEADS[f"W_{c}"], 2, axis=1) for c in "qkv")
    masked = [np.where(np.tri(3, dtype=bool), a @ b.T / 2**0.5, -np.inf) for a, b in zip(q, k, strict=True)]
    weights = [softmax(scores) for scores in masked]
    save("one.json", q=X @ HEADS["W_q"], weights=weights[1])
    save("all.json", q=q, weights=weights)
    assert told("one.json", "--head", "1")["ok"] and not told("one.json", "--head", "0")["ok"]
    assert told("all.json", "--head", "all")["ok"] and not told("all.json", "--head", "1")["ok"]
    assert told("one.json")["likely"] == told("all.json")["likely"] == "heads-not-averaged"
    record = judged("--head", "1", weights=weights[1] + 0.1, output=(weights[1] + 0.1) @ v[1])
    assert [one["status"] for one in record["compared"]] == ["differs", "follows"]
    twice = np.matmul([softmax(2 * scores) for scores in masked], v)
    for step, outputs in {"q": twice, "k": twice, "v": 2 * np.matmul(weights, v)}.items():
        record = judged(**{step: 2 * X @ HEADS[f"W_{step}"]}, output=np.mean(outputs, axis=0))
        assert [one["status"] for one in record["compared"]] == ["differs", "follows"]
    for step, shape in {"q": [3, 4], "scores": [2, 3, 3], "weights": [3, 3], "output": [3, 2]}.items():
        assert judged(**{step: [[1.0]]})["expected_shape"] == shape
    assert judged("--head", "all", output=[[1.0]])["expected_shape"] == [2, 3, 2]
    assert told("all.json", "--head", "all")["head"] == "all"
    record = judged("--head", "all", scores=[m + 1 for m in masked])
    assert len(record["cell"]) == 3 and record["message"].count("head 0") == 1
    assert "There is no head '7'" in check("one.json", "--head", "7").err
    save("right.json", **shell.record("self", "The cat sees it", "--head", "all", "--steps"))
    save("a.json", **shell.record("self", "The cat sees it", "--head", "subject"))
    record = told("a.json")
    assert record["head"] == "subject" and record["ok"] and not told("a.json", "--head", "object")["ok"]
    save("a.json", **shell.record("self", "The cat sees it", "--head", "object") | {"head": "subject"})
    assert told("a.json")["candidates"] == [], "where no mean is asked for, none is missing"
    W_o = numbers(9, 4, 3)
    save("right.json", **{**HEADS, "mask": "none"}, W_o=W_o)
    outputs = [softmax(a @ b.T / 2**0.5) @ c for a, b, c in zip(q, k, v, strict=True)]
    layer = np.concatenate(outputs, axis=1) @ W_o
    assert all(is_right("--head", head, layer_output=layer) for head in ("mean", "all", "1"))
    assert not is_right(output=layer + 0.1)
    assert is_right(output=layer) and is_right(output=np.mean(outputs, axis=0))
    assert not is_right("--head", "all", output=layer)
    save("right.json", **{**HEADS, "mask": "none"}, W_o=W_o[:, :2])
    assert judged(output=layer[:, :2] + 9)["expected"] == pytest.approx(np.mean(outputs, axis=0)[0, 0])


def test_results_alone_can_be_compared_with_and_explain_mistakes_as_far_as_they_go():
    save("right.json", weights=np.round(WEIGHTS, 3), output=STEPS["output"], **TOKENS)
    assert is_right(weights=WEIGHTS, output=STEPS["output"])
    save("b.json", weights=UNDIVIDED, scores=SCORES)
    for option, value in {"score": "dot", "heads": "2", "layout": "in-out", "round": "3"}.items():
        assert f"--{option} has an effect only with inputs." in check("b.json", f"--{option}", value).out
    assert check("b.json", "--head", "1").code == 2
    for number, code in (-np.inf, 0), (np.inf, 65):  # a masked score is -inf; none is the other
        np.savez("right.npz", masked_scores=[[1, number]], weights=[[1, 0]])
        assert here("check", save("a.json", weights=[[1, 0]]), "--expect", "right.npz").code == code
    may = np.tri(3, 4, dtype=bool)
    weights = softmax(np.where(may, SCALED, -np.inf))
    right = {"scores": SCORES, "scaled_scores": SCALED, "v": V, "weights": weights, "output": weights @ V}
    save("right.json", **right, mask="causal")
    wrong = np.where(may, WEIGHTS, 0)
    assert judged(weights=wrong, output=wrong @ V)["likely"] == "mask-after-softmax"
    for undivided, mistake in ((SCORES, "no-scaling"), (SCORES / 2, "scaled-by-d")):
        wrong = softmax(np.where(may, undivided, -np.inf))
        assert judged(weights=np.round(wrong, 3))["likely"] == mistake
    save("right.json", **right)  # without its mask the file contradicts itself: nothing is guessed
    record, alone = judged(weights=WEIGHTS), "right.json holds results alone: without the inputs"
    assert (record["candidates"], record["notes"]) == ([], [f"{alone} no mistake can be identified."])
    # Scores by another factor than that of a whole d_k; at a temperature; and scores that are all 0.
    for scaled, options, likely in (
        (SCORES * 0.6, (), None), (SCALED / 2, ("-t", "2"), "no-scaling"), (SCORES * 0, (), None)
    ):  # fmt: skip
        save("right.json", scores=SCORES * scaled.any(), scaled_scores=scaled, weights=softmax(scaled))
        record = judged(*options, weights=softmax(SCORES / 2).round(4))
        assert record["likely"] == likely and record["notes"] == [
            f"{alone} not every mistake can be identified."
        ]
    save("right.json", weights=[WEIGHTS, UNDIVIDED])  # of two heads
    record = judged(weights=[WEIGHTS, UNDIVIDED])
    assert (record["ok"], record["head"]) == (True, "all")
    for step in ("q", "output", "layer_output", "k", "v"):
        save("right.json", **{step: Q, ("context_" * (step in "kv")) + "tokens": TOKENS["tokens"]})
        assert is_right(**{step: Q})
    save("right.json", scaled_scores=SCALED, V=V)
    record = judged(scores=SCORES, scaled_scores=SCALED, output=WEIGHTS @ V)
    assert record["ok"] and record["not_compared"] == ["scores"]
    save("right.json", scaled_scores=SCALED, weights=WEIGHTS, output=STEPS["output"])
    assert judged(output=STEPS["output"] + 1)["candidates"] == []
    wrong = softmax(SCALED.T).T
    assert judged(weights=wrong, output=wrong @ V)["likely"] == "softmax-axis"
    save("right.json", Q=Q, K=K, V=V, weights=WEIGHTS)
    record = judged(weights=WEIGHTS)
    assert record["ok"] and any("weights" in note for note in record["notes"])


def several():
    others = {"two.json": np.round(UNDIVIDED, 2), "three.json": WEIGHTS + 0.1}
    return save("one.json", **STEPS), *(save(name, weights=weights) for name, weights in others.items())


def test_several_answers_are_one_object_a_line_each_or_a_table_with_their_explanations():
    record = told(*several())
    assert (record["kind"], record["checked"], record["right"], record["ok"]) == ("checks", 3, 1, False)
    assert [one["likely"] for one in record["checks"]] == [None, "no-scaling", None]
    ran = check(*several(), "-f", "jsonl")
    assert_alike([json.loads(line) for line in ran.out.splitlines()], record["checks"])
    assert told("one.json", "one.json")["ok"]
    save("right.json", Q=[[2.0, 0, 0, 0]], K=[[1.0, 0, 0, 0], [0, 0, 0, 0]], V=[[2.0, 0, 0, 0], [0, 0, 0, 0]])
    name = save("a" * 60 + ".json", weights=softmax(np.array([[2.0, 0.0]])))
    shown = check(name, name, "--width", "40").out
    assert "2: no-scaling or k-v-swapped; these" in shown and shown.count("several") == 2
    assert "aaaaaaaaaaaaaa...aaaaaaaaaa.json" in shown


def test_an_answer_that_cannot_be_read_hides_no_other_and_gives_the_exit_code():
    files = several()
    Path("bad.json").write_text("{")
    missing = [f"none{n}.json" for n in range(7)]
    named = f"{', '.join(missing[:5])} and 2 more"
    said = f"attn: 7 of 8 answers could not be read: {named}. The verdicts on the others stand.\n"
    assert check(*missing, "one.json").err == said
    both = missing[:2], ("bad.json", *missing), (*missing, "bad.json")
    assert [check(*files).code for files in both] == [66, 65, 66]
    for missing, code in (("bad.json", 65), ("none.json", 66)):
        ran = check(missing, *files)
        assert ran.code == code and "unreadable" in ran.out and "no-scaling" in ran.out
        assert ran.err.startswith(f"attn: 1 of 4 answers could not be read: {missing}. ")
        ran = check(missing, *files, "-f", "json")
        record = json.loads(ran.out)
        assert complaints(record) == [] and json.loads(ran.err)["error"]["code"] == code
        assert record["checks"][0]["error"]["code"] == code and not record["checks"][0]["ok"]
        assert record["right"] == 1
        alone = refused("check", missing, "--expect", "right.json", "-f", "json", code=code)
        assert json.loads(alone)["error"]["code"] == code


NONE = f'"x" | 5 | [[1, 2], [3]] | [[true, false]] | [["1"]] | [[{10**400}]] | {{}} | {"[" * 20}{"]" * 20}'
CANNOT = """
a.json => 2 --expect | --expect right.json => 2 FILE | a.json --expect none.json => 66 none.json
a.json --expect right.json --tol nan => 2 --tol cannot be nan | a.json --expect right.json --tol -1 => 2 --tol
a.json --expect right.json --tol inf => 2 --tol cannot be inf
many.json --expect right.json => 65 it holds norms, parts, a, b, c, d, e, f.
a.json --expect right.json -f csv => 2 no csv form | a.json --expect right.json -o a.csv => 2 no csv form
a.json --expect right.json --mask sideways => 2 There is no mask | a.json --expect nan.json => 65 not finite, at (0, 1)
a.json --expect right.json --heads 3 => 2 cannot be shared | a.json --expect empty.json => 65 nothing to compare
a.json --expect right.json -o none/x.json => 73 none/x.json | colour.json --expect right.json => 65 holds colour, x
a.json --expect misfit.json => 65 Q has shape (3, 2) and K (4, 3)
a.json --expect hollow.json => 65 weights has shape (1, 0); it should have rows and columns
"""


def test_what_cannot_be_done_or_holds_no_matrix_of_numbers_is_refused_in_one_line():
    for weights in NONE.split(" | "):
        Path("a.json").write_text(f'{{"weights": {weights}}}')
        err = refused("check", "a.json", "--expect", "right.json", code=65)
        assert "a.json: weights is not a matrix of numbers" in err
    for array in (np.array([["a"]]), np.array([[True]]), np.array(3.0), np.array([[1j]])):
        np.savez("a.npz", weights=array)
        assert check("a.npz").code == 65
    save("a.json", **STEPS)
    save("empty.json")
    save("colour.json", colour=[[1]], x=[[1]])
    save("many.json", **{name: [[1]] for name in "abcdefg"}, parts=[[1]], norms=[[1]])
    save("hollow.json", weights=[[]])
    Path("nan.json").write_text('{"weights": [[1, NaN], [NaN, 1]]}')
    save("misfit.json", Q=Q, K=numbers(1, 4, 3), V=V)
    for line, end in cases(CANNOT):
        code, _, said = end.partition(" ")
        assert said in refused("check", *line, code=int(code))
    record = judged(weights=WEIGHTS, colour=[[1]], tokens=["x"])
    assert record["ok"] and record["not_compared"] == ["colour"]
    assert "Not compared: colour." in check("a.json").out
    some = {"schema": "attn/1", "heads": [{"q": [[1]]}, {}], "weights": [[1]]}
    assert [*submission_from(some, "a.json").steps] == ["weights"], "a step of one head of two is none of all"
    for key, said in (("tokens", "has none of q, k, v, scores"), ("weights", "is filled in")):
        with pytest.raises(InputError, match=said):
            submission_from({key: None}, "a.json")


JUNK = (None, True, 0, -1, 1e308, math.nan, "x", "", 10**400, *([], {}, [[]], [[1]], [1, 2], [[1, 2], [3]]))


def damaged(value, draw, stop=0.0):
    """The same JSON with some other value somewhere in it; `stop` is how often it is this one."""
    if not value or not isinstance(value, (dict, list)) or draw.random() < stop:
        return draw.choice(JUNK)
    made, key = value.copy(), draw.choice([*value] if isinstance(value, dict) else range(len(value)))
    made[key] = damaged(value[key], draw, 0.2)
    return made


def test_damaged_files_are_judged_or_refused_and_tokens_and_names_not_obeyed():
    draw = random.Random(3)
    whole = shell.record("example", "coffee", "--heads", "2", "--head", "all", "--steps")
    plain = COFFEE | {"mask": "causal", "heads": 2}
    for _ in range(often(150)):
        save("right.json", **damaged(draw.choice([whole, plain]), draw))
        assert check(save("a.json", **draw.choice([whole, damaged(whole, draw)]))).code in (0, 1, 2, 65)
    hostile = ["[red]x[/b]", "</td>\x1b[31m", "\u202eabc"]
    save("right.json", Q=Q, K=K[:3], V=V[:3], tokens=hostile)
    name = save("[b]\x1b[31m&.json", **{"weights": softmax(Q @ K[:3].T), "\x1b]0;x\x07": [[1]]})
    for form in ("table", "markdown", "json"):
        for files in ((name,), (name, name)):
            shown = check(*files, "-f", form).out
            assert not set("\x1b\x07\u202e") & set(shown)
    assert "[red]x[/b]" in check(name).out and "^[[31m" in check(name).out
    assert told(name)["file"] == name


def test_no_line_is_wider_than_the_terminal():
    files = several()
    for width, encoding, chosen in product((20, 40), ("ascii", "utf-8"), (files, files[1:2])):
        env = {"COLUMNS": str(width), "PYTHONIOENCODING": encoding}
        shown = attn("check", *chosen, "--expect", "right.json", env=env)
        assert shown.err == "" and max(map(len, shown.out.splitlines())) <= max(width, 24)
        assert "no-" in shown.out


def test_what_is_not_filled_in_is_told_and_hides_no_mistake(at):
    assert here("exercise", "--seed", "7", "-o", "sheet").code == 0
    asked = ("check", "sheet/answer.json", "--expect", "sheet/inputs.json")
    assert "nothing is filled in yet" in refused(*asked, code=65)
    answers = shell.record("exercise", "--seed", "7")["answers"]
    answer = json.loads((at / "sheet/answer.json").read_text())
    save("sheet/answer.json", **answer | {"weights": answers["weights"]})
    assert [step["step"] for step in shell.record(*asked)["compared"]] == ["weights"]

    def half(matrix):
        first, *others = np.round(matrix, 3).tolist()
        return [first, *([None] * len(first) for _ in others)]

    assert "Of 12 cells in weights, 8 cells are not filled in." in judged(weights=half(WEIGHTS))["message"]
    record = judged(scores=half(SCORES), weights=UNDIVIDED)
    assert (record["step"], record["likely"]) == ("weights", "no-scaling")
    assert [one["status"] for one in record["compared"]] == ["differs", "differs"]
    record = judged(weights=half(WEIGHTS + np.eye(3, 4)))
    assert (record["cell"], "What is filled in is right." in record["message"]) == ([0, 0], False)
    save("right.json", Q=Q, K=K[:3], V=V[:3], mask="causal")
    masked = np.where(np.tri(3, dtype=bool), SCALED[:, :3], np.nan)
    weights = softmax(np.where(np.isnan(masked), -np.inf, masked))
    for name, step, matrix in (("a.json", "scaled_scores", masked), ("b.json", "weights", weights)):
        record = told(save(name, **{step: half(matrix)}))
        assert (record["ok"], record["likely"], record["candidates"]) == (False, None, [])
        assert record["compared"][0]["unfilled"] == record["compared"][0]["wrong"] == 5  # and one is masked
        assert "What is filled in is right." in record["message"]


def test_a_key_that_contradicts_itself_is_refused_and_worked_examples_and_attn_s_own_json_are_right():
    contradicts = "right.json contradicts itself: its inputs do not give its"
    asked = ("check", save("a.json", weights=WEIGHTS), "--expect", "right.json")
    save("right.json", Q=Q, K=K, V=V, weights=UNDIVIDED)
    assert f"{contradicts} weights" in refused(*asked, code=65)
    assert check("a.json", "--score", "scaled").code == 0
    save("right.json", Q=Q, K=K, V=V, weights=[*WEIGHTS[:2].tolist(), [None] * 4])  # begun, and right so far
    assert check("a.json").code == 0
    save("right.json", transformed=[[1, 2], [2, 1]], lengths=[[1], [2]], norms=[[0.5, 1], [0.2, 1]])
    assert f"{contradicts} lengths" in refused(*asked, code=65)
    for name in ("day1", "coffee", "coffee-notebook", "a2"):
        save("answer.json", **shell.record("example", name, "--steps"))
        assert shell.told("check", "answer.json", "--expect", str(SHIPPED / f"{name}.json"))
    W = {"W_q": np.eye(2), "W_k": numbers(5, 2, 2), "W_v": numbers(6, 2, 3)}
    save("given.json", X=Q, layout="in-out", context=numbers(4, 3, 2), **W)
    save("heads.json", **HEADS, W_o=numbers(7, 4, 3), b_o=numbers(8, 3))
    for args, steps in product(typed(COMMANDS), (["--steps"], [])):
        assert here(*args, *steps, "-f", "json", "-o", "own.json").code == 0
        ran = here("check", "own.json", "--expect", "own.json")
        assert ran.code == 0, (args, steps, ran)
    other = {"W_q": numbers(3, 6, 4), "W_k": numbers(4, 6, 4), "W_v": numbers(5, 2, 4), "b_k": numbers(6, 6)}
    other |= {"W_o": numbers(7, 5, 2), "b_o": numbers(8, 5), "mask": "causal-bottom-right", "softcap": 0.7}
    save("given.json", X=numbers(1, 3, 4), context=numbers(2, 2, 4), heads=2, layout="out-in", **other)
    save("right.json", Q=Q, K=K, V=V, position_scores=numbers(4, 3, 4), score="cosine")
    for name, more in (("given.json", ("--head", "mean")), ("right.json", ())):
        own = here("compute", name, "-t", "0.5", *more, "--steps", "-f", "json", "-o", "own.json")
        ran = here("check", "own.json", "--expect", name, "-t", "0.5", "--tol", "0", "-f", "json")
        assert own.code == 0 and json.loads(ran.out)["ok"], ran
    own = shell.record("self", "hot black coffee", "-q", "hot", "--steps")
    assert_alike(shell.record("compute", save("own.json", **own))["weights"], own["weights"])


COMMANDS = """
compute given.json | self "hot black coffee" -q hot | masked "hot black coffee" -q black
compute given.json --mask causal | compute heads.json --head 0 | compute heads.json --head mean
"""
