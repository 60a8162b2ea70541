"""Names that other programs give to matrices: taken over, or refused where attn does not compute with them."""

import json

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.errors import InputError
from attn_cli.inputs.foreign_arrays import REFUSED
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.alike import assert_alike
from tests.shell import here

DRAW = np.random.default_rng(3)
X, PACKED, PACKED_BIAS = DRAW.standard_normal((3, 4)), DRAW.standard_normal((12, 4)), DRAW.standard_normal(12)
OUT, OUT_BIAS = DRAW.standard_normal((4, 4)), DRAW.standard_normal(4)
STATE = {"in_proj_weight": PACKED, "in_proj_bias": PACKED_BIAS}
STATE |= {"out_proj.weight": OUT, "out_proj.bias": OUT_BIAS}
WEIGHTS = ("W_q", "W_k", "W_v")
OWN = dict(zip(WEIGHTS, np.split(PACKED, 3), strict=True))
OWN |= dict(zip(("b_q", "b_k", "b_v"), np.split(PACKED_BIAS, 3), strict=True)) | {"W_o": OUT, "b_o": OUT_BIAS}
QKV = {"Q": X, "K": X, "V": X}


def refusal(record):
    with pytest.raises(InputError) as error:
        given_from(record, "given")
    return f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize("before", ["", "self_attn.", "encoder.layers.0.self_attn."])
def test_the_weights_of_a_multihead_attention_and_of_three_layers_are_taken_by_their_names(before):
    three = [{f"{q}_proj{end}": OWN[f"W_{q}"] for q in "qkv"} for end in ("_weight", ".weight")]
    for state, names in ((STATE, OWN), *((layers, WEIGHTS) for layers in three)):
        given = given_from({"X": X} | {before + key: M for key, M in state.items()}, "given")
        assert given.layout == "out-in" and not given.ignored and given.arrays.keys() == {"X", *names}
        assert all((given.arrays[name] == OWN[name]).all() for name in names)


def test_what_is_given_twice_or_in_another_layout_is_refused():
    assert "gives W_q twice, once in in_proj_weight" in refusal({"X": X, **STATE, "W_q": OUT})
    assert "gives W_q twice" in refusal({"X": X, "a.in_proj_weight": PACKED, "b.in_proj_weight": PACKED})
    assert "gives position_scores twice" in refusal({**QKV, "bias": OUT, "position_scores": OUT})
    assert "the layout 'in-out'" in refusal({"X": X, **STATE, "layout": "in-out"})
    assert "heads should be a whole number above 0" in refusal({"X": X, "heads": []})
    assert "softcap cannot be 1e+31" in refusal({**QKV, "softcap": 1e31})
    assert "temperature should be a number from 1e-06 up" in refusal({**QKV, "temperature": 9e-7})
    assert given_from({**QKV, "temperature": 1e-6}, "given").temperature == 1e-6
    for name, value in {"q": 2 * X, "layout": "in-out", "b_o": OUT[0]}.items():
        given = given_from({**QKV, name: value}, "given")
        assert given.ignored == (name,) and (given.arrays["Q"] == X).all()
    assert given_from({**QKV, "W_o": OUT, "b_o": OUT[0], "layout": "in-out"}, "given").ignored == ()
    assert given_from({"X": X, "W_q": OUT, "w-q": OUT, "W_k": OUT, "W_v": OUT}, "given").ignored == ("w-q",)
    heads = {name: np.ones((n, 4, 2)) for name, n in (("W_q", 4), ("W_k", 2), ("W_v", 4))}
    said = "given: W_k has shape (2, 4, 2) and W_v (4, 4, 2): both need one matrix for each head. "
    assert refusal({"X": X, **heads}) == said
    assert "Heads of W_q may share W_k, if" in refusal({"X": X, **heads, "W_k": np.ones((3, 4, 2))})


def test_of_a_batch_an_item_is_taken_beside_what_all_share_and_of_scores_those_computed_last():
    both = {name: DRAW.standard_normal((2, n, 4)) for name, n in (("X", 3), ("context", 5))}
    given = given_from(both, "given", 1).arrays
    assert all((given[name] == items[1]).all() for name, items in both.items())
    of_heads = {"Q": DRAW.standard_normal((3, 2, 3, 4)), "K": DRAW.standard_normal((1, 2, 5, 4))}
    given = given_from(of_heads | {"V": of_heads["K"]}, "given", 2)
    assert (given.heads, given.stacked, given.kv_heads) == (2, 2, 2)
    for name, item in (("Q", of_heads["Q"][2]), ("K", of_heads["K"][0]), ("V", of_heads["K"][0])):
        assert (given.arrays[name] == np.hstack([*item])).all(), "its heads stand side by side"
    scores = {"scores": X, "masked_scores": -X, "scaled_scores": X / 2, "V": X}
    given = given_from(scores, "given")
    assert (given.scores.name, given.ignored) == ("masked_scores", ("scores", "scaled_scores"))
    assert (given.scores.values == -X).all()
    assert "null or -Infinity masks a key" in refusal({"scores": [[1.0, np.inf]], "V": X[:2]})


def test_heads_of_torch_s_weights_are_the_same_from_attn_s_own_json_and_where_one_is_left_out_nothing_joins_them():
    wide = STATE | {"out_proj.weight": np.ones((6, 4)), "out_proj.bias": np.ones(6)}
    for head, listed, joins in (("all", slice(2), {"W_o", "b_o"}), ("1", slice(1, 2), set())):
        trace = trace_matrices("compute", given_from({"X": X} | wide, "given"), Settings(heads=2, head=head))
        own = given_from(json.loads(json.dumps(trace.to_dict(steps=True))), "own")
        assert own.arrays.keys() & {"W_o", "b_o"} == joins and own.layout == "out-in"
        again = trace_matrices("compute", own, Settings(head="all"))
        for one, wanted in zip(again.heads, trace.heads[listed], strict=True):
            assert_alike(one.weights.tolist(), wanted.weights.tolist())
            assert_alike(one.output.tolist(), wanted.output.tolist())


def test_packed_weights_that_are_no_three_matrices_of_numbers_are_refused():
    for shape in ((11, 4), (0, 4), ()):
        assert f"in_proj_weight has shape {shape}" in refusal({"X": X, "in_proj_weight": np.zeros(shape)})
    for ragged in ([[1, 2], [3], [4]], "abc", {"a": 1}):
        assert "in_proj_weight" in refusal({"X": X, "in_proj_weight": ragged})


@pytest.mark.parametrize(
    "key",
    ["alibi_slopes", "rotary", "rope_theta", "bias_k", "bias_v", "add_zero_attn", "dropout", "attn_mask",
     "key_padding_mask", "is_causal", "sliding_window", "num_heads", "num_key_value_heads", "layers.0.attn.sinks",
     "self_attn.q_norm.weight", "relative_attention_bias.weight", "Dropout-P"],
)  # fmt: skip
def test_a_key_that_would_change_the_result_is_refused_by_name(key, at):
    (at / "given.json").write_text(json.dumps({"Q": [[1]], "K": [[1]], "V": [[1]], key: 0.5}))
    ran = here("compute", "given.json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (65, "", 1)
    assert f"does not support {key}" in ran.err
    assert not ran.err.rstrip().endswith("another.")  # it says what to do


def test_what_is_off_is_not_refused_and_other_unknown_names_are_ignored_and_told_inertly():
    for off in (None, False, 0, 0.0):
        ignored = given_from({**QKV, "dropout": off, "add_zero_attn": off}, "given").ignored
        assert ignored == ("dropout", "add_zero_attn")
    assert given_from({**QKV, "author": "me", "weights": X}, "given").ignored == ("author", "weights")
    assert all(key == key.replace("_", "").lower() for key in REFUSED)
    assert "\x1b" not in refusal({**QKV, "\x1b[31m.sinks": 1})


def test_weights_of_another_program_say_that_they_were_read_as_one_head(at):
    for more, options, is_said in (({}, (), True), ({}, ("--heads", "2"), False), ({"heads": 2}, (), False)):
        np.savez("given.npz", X=X, **STATE, **more)
        assert ("--heads N splits" in here("compute", "given.npz", *options).out) == is_said
