"""Names that other programs give to matrices: taken over, or refused where attn does not compute with them."""

import json

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.inputs.foreign_arrays import REFUSED
from attn_cli.inputs.matrices import given_from
from tests.shell import here

DRAW = np.random.default_rng(3)
X, PACKED, PACKED_BIAS = DRAW.standard_normal((3, 4)), DRAW.standard_normal((12, 4)), DRAW.standard_normal(12)
OUT, OUT_BIAS = DRAW.standard_normal((4, 4)), DRAW.standard_normal(4)
STATE = {
    "in_proj_weight": PACKED,
    "in_proj_bias": PACKED_BIAS,
    "out_proj.weight": OUT,
    "out_proj.bias": OUT_BIAS,
}
OWN = dict(zip(("W_q", "W_k", "W_v"), np.split(PACKED, 3), strict=True))
OWN |= dict(zip(("b_q", "b_k", "b_v"), np.split(PACKED_BIAS, 3), strict=True)) | {"W_o": OUT, "b_o": OUT_BIAS}
QKV = {"Q": X, "K": X, "V": X}


def refusal(record):
    with pytest.raises(InputError) as error:
        given_from(record, "given")
    return f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize("before", ["", "self_attn.", "encoder.layers.0.self_attn."])
def test_the_weights_of_a_multihead_attention_are_taken_by_their_names(before):
    given = given_from({"X": X} | {before + key: value for key, value in STATE.items()}, "given")
    assert given.layout == "out-in" and not given.ignored
    for name, array in OWN.items():
        assert (given.arrays[name] == array).all()


@pytest.mark.parametrize(
    "names", ["q_proj_weight k_proj_weight v_proj_weight", "q_proj.weight k_proj.weight v_proj.weight"]
)
def test_three_linear_layers_are_taken_by_their_names(names):
    given = given_from({"X": X} | dict(zip(names.split(), np.split(PACKED, 3), strict=True)), "given")
    assert given.layout == "out-in" and all(
        (given.arrays[name] == OWN[name]).all() for name in ("W_q", "W_k", "W_v")
    )


def test_what_is_given_twice_or_in_another_layout_is_refused():
    assert "gives W_q twice, once in in_proj_weight" in refusal({"X": X, **STATE, "W_q": OUT})
    assert "gives W_q twice" in refusal({"X": X, "a.in_proj_weight": PACKED, "b.in_proj_weight": PACKED})
    assert "gives position_scores twice" in refusal({**QKV, "bias": OUT, "position_scores": OUT})
    assert "the layout 'in-out'" in refusal({"X": X, **STATE, "layout": "in-out"})


@pytest.mark.parametrize("shape", [(11, 4), (0, 4), ()])
def test_packed_weights_that_are_no_three_matrices_are_refused_with_their_shape(shape):
    assert f"in_proj_weight has shape {shape}" in refusal({"X": X, "in_proj_weight": np.zeros(shape)})


@pytest.mark.parametrize("ragged", [[[1, 2], [3], [4]], "abc", {"a": 1}])
def test_packed_weights_that_are_no_numbers_are_refused(ragged):
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


@pytest.mark.parametrize("off", [None, False, 0, 0.0])
def test_what_is_off_is_not_refused(off):
    assert given_from({**QKV, "dropout": off, "add_zero_attn": off}, "given").ignored == (
        "dropout",
        "add_zero_attn",
    )


def test_other_unknown_names_are_ignored_and_told_inertly():
    assert given_from({**QKV, "author": "me", "weights": X}, "given").ignored == ("author", "weights")
    assert all(key == key.replace("_", "").lower() for key in REFUSED)
    assert "\x1b" not in refusal({**QKV, "\x1b[31m.sinks": 1})


def test_weights_of_another_program_say_that_they_were_read_as_one_head(at):
    record = {key: value.tolist() for key, value in ({"X": X} | STATE).items()}
    (at / "given.json").write_text(json.dumps(record))
    assert "--heads N splits" in here("compute", "given.json").out
    assert "--heads N splits" not in here("compute", "given.json", "--heads", "2").out
    (at / "given.json").write_text(json.dumps(record | {"heads": 2}))
    assert "--heads N splits" not in here("compute", "given.json").out
