"""attn compute: attention from given matrices, in every form they come in, and what a bad one is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.alike import assert_alike
from tests.shell import attn, here, record, refused
from tests.teach.test_worked import BLOCKS, PARTS, held, worked

DRAW = np.random.default_rng(5)
X = DRAW.standard_normal((4, 3))
W_Q, W_K, W_V = (DRAW.standard_normal(shape) for shape in ((3, 2), (3, 2), (3, 6)))


def give(made):
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in made.items()}
    Path("given.json").write_text(json.dumps(plain))


@pytest.fixture
def run(at):
    def compute(made, *options):
        give(made)
        return record("compute", "given.json", *options, "--steps")

    return compute


@pytest.mark.parametrize(("name", "block", "options"), BLOCKS, ids=lambda value: value or "default")
def test_every_worked_example_comes_out_of_its_own_inputs(run, name, block, options):
    given, expected = worked(name)["inputs"], worked(name)["expected"]
    expected = expected[block] if block else expected
    is_dot = name in ("day1", "a2") and "--score" not in options
    found = run(given, *options.split(), *(["--score", "dot"] if is_dot else []))
    for part in PARTS:
        held(found["heads"][0][part], expected[part], part)
    assert found["kind"] == "compute"


def test_weights_that_fit_only_as_w_x_are_read_so_and_what_a_square_w_would_give_is_told(run):
    record = run({"X": X, "W_q": W_Q.T, "W_k": W_K.T, "W_v": W_V.T})
    assert record["projection"]["layout"] == "out-in"
    held(record["weights"], run({"X": X, "W_q": W_Q, "W_k": W_K, "W_v": W_V})["weights"], "weights")
    (note,) = run({"X": X} | dict.fromkeys(("W_q", "W_k", "W_v"), np.eye(3)))["notes"]
    assert note.endswith("As out-in (W x), the weights would be the same, and the output too.")


def test_what_is_piped_in_is_computed_with_as_a_file_is(at):
    give({"Q": X[:, :2], "K": X[:, :2], "V": X})
    for dash in (["-"], []):
        ran = attn("compute", *dash, "-f", "json", input=Path("given.json").read_text())
        assert_alike(json.loads(ran.out)["weights"], record("compute", "given.json")["weights"])
    assert refused("compute", code=65).startswith("attn: Standard input, line 1, ")  # nothing was piped in
    assert "missing.json" in refused("compute", "missing.json", code=66)
    (at / "Q.csv").write_text("1,2\n")
    (at / "m.json").write_text('{"Q": [[1, 2]]}')
    assert "Q was given before" in refused("compute", "m.json", "Q.csv", code=65)


QKV = {"Q": X, "K": X, "V": X}
OF_X = {"X": X, "W_q": W_Q, "W_k": W_K, "W_v": W_V}
STACK = DRAW.standard_normal((2, 3, 4))

REFUSED = [  # a record, and what the message says, apart by ;
    ({"Q": X, "K": X}, "V"),
    ({"X": X, "W_q": W_Q, "W_k": W_K}, "W_v"),
    (OF_X | dict.fromkeys(("W_q", "W_k"), np.ones((5, 2))), "X;(4, 3);W_q;(5, 2)"),
    (OF_X | {"b_q": np.ones(6)}, "b_q;6 numbers;W_q;(3, 2)"),
    (QKV | {"Q": [["a"]]}, "Q is not a matrix of numbers"),
    ({"Q": [[1]], "K": [[1]], "V": [[1]], "tokens": [""]}, "tokens: token 0 is empty"),
    ({"X": X, "Wq": W_Q, "W_k": W_K, "W_v": W_V}, "Did you mean W_q?"),
    (
        {"X": X, "W_q": STACK, "W_k": STACK, "W_v": DRAW.standard_normal((4, 3, 4))},
        "(2, 3, 4) and W_v (4, 3, 4)",
    ),
    (QKV | {"mask": "foo"}, "given.json: There is no mask 'foo'"),
]


@pytest.mark.parametrize(("made", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_does_not_fit_is_named_with_both_matrices(at, made, said):
    give(made)
    line = refused("compute", "given.json", code=65)
    assert all(part in line for part in said.split(";")), line


def test_rounding_comes_before_computing_and_leaves_numbers_too_large_to_have_digits_after_the_point(run):
    shapes = {"X": (3, 4), "W_q": (4, 4), "W_k": (4, 4), "W_v": (4, 4), "W_o": (4, 5)}
    shapes |= {"b_q": (4,), "b_k": (4,), "b_v": (4,), "b_o": (5,)}
    given = {name: DRAW.standard_normal(shape) for name, shape in shapes.items()}
    short = {name: np.round(M, 1) for name, M in given.items()}
    expected, found = run(short | {"heads": 2}), run(given | {"heads": 2}, "--round", "1")
    for name in ("weights", "output", "layer_output"):
        held(found[name], np.array(expected[name]), name)
    assert found["round"] == 1
    assert found["x_query"] == [[round(x, 1) + 0.0 for x in row] for row in given["X"].tolist()]
    biased = {"Q": [[1.4, 0]], "K": [[0.6, 1], [1, 0]], "V": [[1], [0]], "position_scores": [[0.6, 0.4]]}
    held(run(biased, "--round", "0")["output"], np.array([[np.e / (1 + np.e)]]), "q·k of both keys is 1")
    huge = {"Q": [[1e308, 1], [1, 1]], "K": [[1e308, 1], [1, 1]], "V": [[1, 2], [3, 4]]}
    rounded, plain_ = (run(huge, "--score", "cosine", *more) for more in (["--round", "1"], []))
    assert_alike(rounded["weights"], plain_["weights"])
    out = here("compute", "given.json", "--score", "cosine", "-q", "0").out
    assert "too large to write out" in out and "inf" not in out


def test_w_o_joins_the_heads_of_given_matrices_and_a_context_is_no_text_looking_at_itself(run):
    Q, K, V, W_o = (DRAW.standard_normal(shape) for shape in ((3, 4), (3, 4), (3, 4), (4, 5)))
    record = run({"Q": Q, "K": K, "V": V, "W_o": W_o, "heads": 2}, "--head", "all")
    joined = np.concatenate([head["output"] for head in record["heads"]], axis=1) @ W_o
    held(record["layer_output"], joined, "layer output")
    record = run({"Q": [[1.0]], "K": [[1.0], [2.0]], "V": [[1], [2]], "position_scores": [[0.5, 0.1]]})
    assert record["diagnostics"][0]["temperature_95"] is None
    names = {"tokens": ["a", "b"], "context_tokens": ["a", "b"]}
    run({"X": [[1, 0], [0, 1]], "context": [[1, 0], [0, 2]], **names})
    out = here("compute", "given.json", "--steps").out
    assert "Q = X and K = V = the context" in out and "itself" not in out


def test_the_same_labels_on_keys_and_values_are_no_conflict_and_any_label_stays_as_it_is_given(at):
    (at / "Q.csv").write_text("she,1,0\n")
    (at / "K.csv").write_text("ate,1,0\ndrank,0,1\n")
    (at / "V.csv").write_text("ate,1\ndrank,2\n")
    assert here("compute", "Q.csv", "K.csv", "V.csv").code == 0
    (at / "X.csv").write_text("she,1,0\n")
    (at / "context.csv").write_text("ate,1,0\ndrank,0,1\n")
    assert record("compute", "X.csv", "context.csv")["key_tokens"] == ["ate", "drank"]
    (at / "V.csv").write_text("ate,1\nslept,2\n")
    said = refused("compute", "Q.csv", "K.csv", "V.csv", code=65)
    assert "context_tokens is not what was given before" in said
    give({"Q": [[1.0]], "K": [[0.4]], "V": [[0.3]], "tokens": ["a"], "context_tokens": ["\ud800"]})
    assert record("compute", "given.json")["key_tokens"] == ["\ud800"]


def test_what_the_file_states_beats_a_variable_and_only_a_typed_option_beats_it(at):
    given = '{"Q": [[1, 2]], "K": [[1, 0], [0, 1]], "V": [[1], [2]], "score": "scaled"}'
    (at / "given.json").write_text(given)
    for options, score in (([], "scaled"), (["--score", "cosine"], "cosine")):
        assert record("compute", "given.json", *options, env={"ATTN_SCORE": "dot"})["score"] == score
    (at / "attn.toml").write_text('score = "dot"')
    assert here("compute", "given.json").err == "", "what does not count is not told"
    (at / "a.json").write_text('{"weights": [[0.33, 0.67]]}')
    for env in ({}, {"ATTN_SCORE": "dot", "ATTN_MASK": "causal", "ATTN_TEMPERATURE": "3"}):
        assert here("check", "a.json", "--expect", "given.json", env=env).code == 0
