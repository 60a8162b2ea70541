"""A scale and a soft cap that come with given matrices: the numbers, and every place that tells of them."""

import json

import numpy as np
import pytest

from attn_cli import attend
from tests.pipeline.records import record, told, written
from tests.shell import here

DRAW = np.random.default_rng(23)
Q, K, V = (2 * DRAW.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2)))
RECORD = {"Q": Q.tolist(), "K": K.tolist(), "V": V.tolist(), "scale": 0.3, "softcap": 1.5}
RIGHT, OUTPUT = attend(Q, K, V, scale=0.3, softcap=1.5)


@pytest.fixture
def file(at):
    """Write a record, and return the file's name."""
    return lambda **changed: written(at / "given.json", RECORD | changed)


def test_scale_and_cap_are_computed_with_and_are_in_the_json_which_is_computed_with_again(file, at):
    found = record("compute", file(), "--steps")
    again = record("compute", written(at / "own.json", found))
    assert np.allclose(found["output"], OUTPUT)
    for one in (found, again):
        assert np.allclose(one["weights"], RIGHT) and (one["scale"], one["softcap"]) == (0.3, 1.5)
    shown = told("show", "own.json")
    assert "× 0.3" in shown and "do not lead" not in shown
    odd = told("show", written(at / "own.json", found | {"score": ["dot"]}))
    assert "its score or its layout is none that attn has." in " ".join(odd.split())
    usual = written(at / "own.json", record("compute", file(scale=None, softcap=None), "--steps"))
    found = record("compute", usual, "--score", "dot")  # its scale gives way to another score
    assert found["scale"] == 1 and np.allclose(found["weights"], attend(Q, K, V, scale=1)[0])


def test_the_screen_the_walk_and_the_row_tell_the_scale_and_the_cap(file):
    name = file()
    for options in ((), ("-q", "q0"), ("-f", "markdown")):
        screen = told("compute", name, *options)
        assert "scale 0.3; scores capped at 1.5" in " ".join(screen.split())
        assert "√4" not in screen and "sqrt(4)" not in screen
    row = told("compute", name, "-q", "q0", "--by-hand", "all")
    assert "× 0.3" in row and "tanh" in row
    steps = " ".join(told("compute", name, "--steps", "-t", "2").split())
    assert "capped = 0.75 tanh(scaled / 0.75)" in steps and "none gets beyond 0.75." in steps


@pytest.mark.parametrize("options", [(), ("-t", "2"), ("--mask", "causal")])
def test_the_numpy_script_gives_the_same(file, options):
    name, found = file(), {}
    exec(told("compute", name, *options, "-f", "code:numpy"), found)  # a script of ours
    right = record("compute", name, *options)
    assert np.allclose(found["weights"], right["weights"]) and np.allclose(found["output"], right["output"])


def test_check_takes_the_scale_and_the_cap_into_account(file, at):
    name = file()
    for answer, code in (({"weights": RIGHT, "output": OUTPUT}, 0), ({"weights": attend(Q, K, V)[0]}, 1)):
        assert here("check", written(at / "answer.json", answer), "--expect", name).code == code


def test_the_other_layout_is_told_with_the_same_scale(file, at):
    X, W = Q[:, :2], DRAW.standard_normal((3, 2, 2))
    names = dict(zip(("W_q", "W_k", "W_v"), W.tolist(), strict=True))
    note = record("compute", written(at / "xw.json", {"X": X, **names, "scale": 0.01}))["notes"][-1]
    other = attend(X @ W[0].T, X @ W[1].T, X @ W[2].T, scale=0.01)[0]
    assert any(f"would be {weight:.3f}, not" in note for weight in other.ravel())


@pytest.mark.parametrize("key", ["scale", "softcap"])
@pytest.mark.parametrize("value", [0, -1, True, "0.5", [1, 2], float("nan"), float("inf"), {}])
def test_what_is_no_number_above_zero_is_refused(file, key, value):
    ran = here("compute", file(**{key: value}))
    assert ran.code == 65 and f"{key} should be a number above 0" in ran.err


def test_a_number_saved_as_an_array_is_a_number(at):
    arrays = {"Q": Q, "K": K, "V": V, "scale": np.array(0.3), "softcap": np.array([1.5])}
    np.savez(at / "given.npz", **arrays)
    assert np.allclose(record("compute", "given.npz")["weights"], RIGHT)


def test_a_scale_beside_weights_for_a_text_is_not_used_and_that_is_told(at):
    W = DRAW.standard_normal((3, 50, 4)).round(2)
    names = dict(zip(("W_q", "W_k", "W_v"), W.tolist(), strict=True))
    (at / "w.json").write_text(json.dumps({**names, "scale": 0.5, "softcap": 3}))
    ran = here("self", "the cat sat", "-e", "random", "--dim", "50", "-p", "./w.json")
    assert "Ignored in ./w.json: scale, softcap." in " ".join(ran.out.split()), ran
