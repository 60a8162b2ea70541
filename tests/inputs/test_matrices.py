"""Given matrices: the same record from JSON, .npz and safetensors, also by others' names, and what a bad one lacks."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError
from attn_cli.inputs.foreign_arrays import REFUSED
from attn_cli.inputs.matrices import given_from, read_given
from attn_cli.pipeline.mask import read_mask
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.alike import assert_alike
from tests.io.test_array_files import made, saved
from tests.shell import here, refused

X, W = [[1.0, 2.0], [3.0, 4.5]], [[0.5, -1.0, 0.25], [2.0, 0.125, 1.0]]


def as_json(arrays):
    return json.dumps({name: np.asarray(array).tolist() for name, array in arrays.items()}).encode()


def as_npz(arrays):
    return saved(np.savez, **arrays)


def as_safetensors(arrays):
    return made({name: np.asarray(array, "<f4") for name, array in arrays.items()}, {})


@pytest.mark.parametrize("written", [as_json, as_npz, as_safetensors])
def test_every_format_gives_the_same_matrices_by_small_letters_too_and_notes_unknown_names(written, file):
    arrays = {"X": X, "W_q": W, "W_k": W, "W_v": W, "b_q": [1.0, 2.0, 3.0]}
    given = read_given(file(written(arrays), "given.whatever"))
    assert {name: array.tolist() for name, array in given.arrays.items()} == arrays
    assert all(array.dtype == np.float64 for array in given.arrays.values())
    assert sorted(read_given(file(written({"q": X, "k": X, "v": X}))).arrays) == ["K", "Q", "V"]
    assert read_given(file(written({"X": X, "colour": X}))).ignored == ("colour",)
    for text in ('{"meta":{"by": "me"}, "X": [[1]]}', b'\xef\xbb\xbf{"X": [[1]]}'):
        assert read_given(file(text)).arrays["X"].tolist() == [[1.0]]


@pytest.mark.parametrize("written", [as_npz, lambda record: json.dumps(record).encode()])
def test_a_record_may_say_tokens_heads_layout_score_and_mask_and_settings_beat_it(written, file):
    record = {"X": X, "tokens": ["a", "b"], "heads": 2, "layout": "out-in", "score": "dot", "mask": "causal"}
    given = read_given(file(written(record)))
    assert given.layout == "out-in" and given.ignored == ()
    typed = Settings(heads=1, score="scaled", mask="none")
    for settings, told in ((Settings(), (("0", "1"), "dot", "causal")), (typed, (("0",), "scaled", "none"))):
        trace = trace_matrices("compute", given, settings)
        assert trace.query_tokens == trace.key_tokens == ("a", "b")
        assert (trace.head_names, trace.score, trace.mask_name) == told


def own_json(trace):
    return json.dumps(trace.to_dict(steps=True))


def same(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("head", [None, "subject", "all", "mean"])
@pytest.mark.parametrize("kind", [trace_self, trace_masked])
def test_what_a_learned_head_adds_for_distances_in_own_json_is_used_or_said_to_be_ignored(kind, head, file):
    trace = kind("she likes coffee", Settings(head=head, projection="roles"))
    path = file(own_json(trace), "own.json")
    shown = Settings(head="mean" if head == "mean" else None)
    again = trace_matrices("compute", read_given(path), shown)
    as_weights = kind("she likes coffee", replace(shown, projection=str(path)))
    assert not any("spelling" in note for note in again.notes)  # its X has it
    row = kind("she likes coffee", Settings(head=head, projection="roles", query="coffee"))
    of_row = trace_matrices("compute", read_given(file(own_json(row), "row.json")), shown)
    same(of_row.weights, row.weights[2:])
    assert again.query_tokens == trace.query_tokens and of_row.key_tokens == trace.key_tokens
    for other in (again, as_weights):
        assert other.learned is None
        if not any("position" in note or "spelling" in note for note in other.notes):
            same(other.weights, trace.weights)


def test_an_exercise_s_inputs_are_given_matrices_and_no_trace(file):
    inputs = {"X": X, "W_q": W, "W_k": W, "W_v": W, "temperature": 2, "foo": 1}
    about = {"schema": "attn/1", "kind": "exercise", "mask": "causal", "score": "dot", "tokens": ["a", "b"]}
    exercise = {**about, "inputs": inputs, "answers": {}, "questions": []}
    for given in (read_given(file(json.dumps(exercise))), read_given(file(json.dumps(inputs)))):
        arrays = {name: M.tolist() for name, M in given.arrays.items()}
        assert arrays | {"temperature": given.temperature, "foo": 1} == inputs and given.ignored == ("foo",)
    given = given_from({"kind": "cross", "learned": {"spelled": True}, **exercise["inputs"]}, "given")
    assert (given.has_second_input, given.beside_weights) == (False, ())
    assert given.ignored == ("kind", "learned", "foo")
    stated = {"softcap": 9, "scale": 2, "score": "dot", "mask": "causal", "position_scores": [[0, 1], [1, 0]]}
    beside = ("mask", "score", "scale", "softcap", "position_scores")
    assert given_from(inputs | stated, "given").beside_weights == beside


def test_a_temperature_in_attn_s_own_json_is_used_or_said_to_be_ignored_and_it_is_a_projection_file(file):
    for temperature, is_said in ((0.5, True), (1.0, False), (2.0, True)):
        trace = trace_self("she likes coffee", Settings(embedding="random", temperature=temperature))
        again = trace_matrices("compute", read_given(file(own_json(trace))), Settings())
        assert any("temperature" in note for note in again.notes) == is_said
        same(again.weights, trace_self("she likes coffee", Settings(embedding="random")).weights)
    settings = Settings(embedding="random", projection="random", seed=2)
    trace = trace_self("she likes coffee", settings)
    again = trace_self("she likes coffee", replace(settings, projection=file(own_json(trace), "own.json")))
    same(again.weights, trace.weights)
    assert not any("schema" in note for note in again.notes), "attn knows the names that it wrote itself"


PLACED = {b'{\n  "X":\n  [[1, x]]\n}': "line 3, column 8", b'{"X": [[1, 2], [NaN, 4]]}': r"X .*\(1, 0\)"}
BAD = [
    *PLACED,
    # no JSON, no UTF-8, a list, deep, deep in a name
    *(b"", b'{"X": [[1.0, 2.0]', b'{"X": "\xe9"}', '{"X": [[1]]}'.encode("utf-16"), b"[[1.0, 2.0]]"),
    *(b"[" * 100_000, b'{"X": ' + b"[" * 900 + b"]" * 900 + b"}"),
    # no matrix of numbers
    *(b'{"X": %b}' % M for M in (b"[[1, 2], [3]]", b"[]", b"[[], []]", b"[1, 2]", b'[["1", "2"]]')),
    *(b'{"X": [["one"]]}', b'{"X": {"a": 1}}'),
    *(b'{"X": [[1, %b]]}' % number for number in (b"null", b"NaN", b"-Infinity", b"1e400")),
    *(b'{"X": [[1%b]]}' % (b"0" * digits) for digits in (400, 5000)),
    # wrong beside it
    *(b'{"X": [[1]], "heads": %b}' % heads for heads in (b"0", b"1.5", b"true")),
    *(b'{"X": [[1]], "tokens": %b}' % tokens for tokens in (b"[1]", b'"a"')),
    *(b'{"X": [[1]], %b}' % rest for rest in (b'"b_q": [[1]]', b'"layout": "sideways"', b'"score": ["dot"]')),
    # complex numbers, dates, records, text; tokens of characters that do not exist
    *(as_npz({"X": M}) for M in (np.array(X) * 1j, np.array([["2026-11-21"]], "M8[D]"), [["1", "2"]])),
    as_npz({"X": np.zeros((2, 2), [("a", "f8")])}),
    as_npz({"X": X, "tokens": np.frombuffer(b"\xff" * 8, "<U1")}),
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_bad_file_of_matrices_is_refused_and_named(data, file):
    with pytest.raises(InputError, match=f"bad.*{PLACED.get(data, '')}"):
        read_given(file(data, "bad.json"))


ROWS = [[True, False, True], [False, False, True]]


MASKS = [saved(np.save, np.array(ROWS)), as_npz({"mask": np.array(ROWS)}), json.dumps({"mask": ROWS})]
MASKS += [b"1,0,1\r\n0,0,1", b"true\tfalse\tTRUE\nFalse\tfalse\ttrue\n"]


@pytest.mark.parametrize("data", MASKS, ids=range(len(MASKS)))
def test_a_mask_is_read_from_every_format(data, file):
    assert np.asarray(read_mask(file(data))).astype(bool).tolist() == ROWS


# Names that other programs give to matrices: taken over, or refused where attn does not compute with them.

DRAW = np.random.default_rng(3).standard_normal
XS, PACKED, PACKED_BIAS = DRAW((3, 4)), DRAW((12, 4)), DRAW(12)
OUT, OUT_BIAS = DRAW((4, 4)), DRAW(4)
STATE = {
    "in_proj_weight": PACKED,
    "in_proj_bias": PACKED_BIAS,
    "out_proj.weight": OUT,
    "out_proj.bias": OUT_BIAS,
}
WEIGHTS = ("W_q", "W_k", "W_v")
OWN = dict(zip(WEIGHTS, np.split(PACKED, 3), strict=True))
OWN |= dict(zip(("b_q", "b_k", "b_v"), np.split(PACKED_BIAS, 3), strict=True)) | {"W_o": OUT, "b_o": OUT_BIAS}
QKV = {"Q": XS, "K": XS, "V": XS}


def refusal(record):
    with pytest.raises(InputError) as error:
        given_from(record, "given")
    return f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize("before", ["", "self_attn.", "encoder.layers.0.self_attn."])
def test_the_weights_of_a_multihead_attention_and_of_three_layers_are_taken_by_their_names(before):
    three = [{f"{q}_proj{end}": OWN[f"W_{q}"] for q in "qkv"} for end in ("_weight", ".weight")]
    for state, names in ((STATE, OWN), *((layers, WEIGHTS) for layers in three)):
        given = given_from({"X": XS} | {before + key: M for key, M in state.items()}, "given")
        assert given.layout == "out-in" and not given.ignored and given.arrays.keys() == {"X", *names}
        assert all((given.arrays[name] == OWN[name]).all() for name in names)


def test_what_is_given_twice_or_in_another_layout_or_is_no_three_matrices_is_refused():
    for shape in ((11, 4), (0, 4), ()):
        assert f"in_proj_weight has shape {shape}" in refusal({"X": XS, "in_proj_weight": np.zeros(shape)})
    for ragged in ([[1, 2], [3], [4]], "abc", {"a": 1}):
        assert "in_proj_weight" in refusal({"X": XS, "in_proj_weight": ragged})
    assert "gives W_q twice, once in in_proj_weight" in refusal({"X": XS, **STATE, "W_q": OUT})
    assert "gives W_q twice" in refusal({"X": XS, "a.in_proj_weight": PACKED, "b.in_proj_weight": PACKED})
    assert "gives position_scores twice" in refusal({**QKV, "bias": OUT, "position_scores": OUT})
    assert "the layout 'in-out'" in refusal({"X": XS, **STATE, "layout": "in-out"})
    assert "heads should be a whole number above 0" in refusal({"X": XS, "heads": []})
    assert "softcap cannot be 1e+31" in refusal({**QKV, "softcap": 1e31})
    assert "temperature should be a number from 1e-06 up" in refusal({**QKV, "temperature": 9e-7})
    assert given_from({**QKV, "temperature": 1e-6}, "given").temperature == 1e-6
    for name, value in {"q": 2 * XS, "layout": "in-out", "b_o": OUT[0]}.items():
        given = given_from({**QKV, name: value}, "given")
        assert given.ignored == (name,) and (given.arrays["Q"] == XS).all()
    assert given_from({**QKV, "W_o": OUT, "b_o": OUT[0], "layout": "in-out"}, "given").ignored == ()
    assert given_from({"X": XS, "W_q": OUT, "w-q": OUT, "W_k": OUT, "W_v": OUT}, "given").ignored == ("w-q",)
    heads = {name: np.ones((n, 4, 2)) for name, n in (("W_q", 4), ("W_k", 2), ("W_v", 4))}
    said = "given: W_k has shape (2, 4, 2) and W_v (4, 4, 2): both need one matrix for each head. "
    assert refusal({"X": XS, **heads}) == said
    assert "Heads of W_q may share W_k, if" in refusal({"X": XS, **heads, "W_k": np.ones((3, 4, 2))})


def test_of_a_batch_an_item_is_taken_beside_what_all_share_and_of_scores_those_computed_last():
    both = {name: DRAW((2, n, 4)) for name, n in (("X", 3), ("context", 5))}
    given = given_from(both, "given", 1).arrays
    assert all((given[name] == items[1]).all() for name, items in both.items())
    of_heads = {"Q": DRAW((3, 2, 3, 4)), "K": DRAW((1, 2, 5, 4))}
    given = given_from(of_heads | {"V": of_heads["K"]}, "given", 2)
    assert (given.heads, given.stacked, given.kv_heads) == (2, 2, 2)
    for name, item in (("Q", of_heads["Q"][2]), ("K", of_heads["K"][0]), ("V", of_heads["K"][0])):
        assert (given.arrays[name] == np.hstack([*item])).all(), "its heads stand side by side"
    scores = {"scores": XS, "masked_scores": -XS, "scaled_scores": XS / 2, "V": XS}
    given = given_from(scores, "given")
    assert (given.scores.name, given.ignored) == ("masked_scores", ("scores", "scaled_scores"))
    assert (given.scores.values == -XS).all()
    assert "null or -Infinity masks a key" in refusal({"scores": [[1.0, np.inf]], "V": XS[:2]})


def test_heads_of_torch_s_weights_are_the_same_from_attn_s_own_json_and_where_one_is_left_out_nothing_joins_them():
    wide = STATE | {"out_proj.weight": np.ones((6, 4)), "out_proj.bias": np.ones(6)}
    for head, listed, joins in (("all", slice(2), {"W_o", "b_o"}), ("1", slice(1, 2), set())):
        trace = trace_matrices("compute", given_from({"X": XS} | wide, "given"), Settings(heads=2, head=head))
        own = given_from(json.loads(json.dumps(trace.to_dict(steps=True))), "own")
        assert own.arrays.keys() & {"W_o", "b_o"} == joins and own.layout == "out-in"
        again = trace_matrices("compute", own, Settings(head="all"))
        for one, wanted in zip(again.heads, trace.heads[listed], strict=True):
            assert_alike(one.weights.tolist(), wanted.weights.tolist())
            assert_alike(one.output.tolist(), wanted.output.tolist())


KEYS = """alibi_slopes rotary rope_theta bias_k bias_v add_zero_attn dropout attn_mask key_padding_mask is_causal
sliding_window num_heads num_key_value_heads layers.0.attn.sinks self_attn.q_norm.weight Dropout-P
relative_attention_bias.weight"""


@pytest.mark.parametrize("key", KEYS.split())
def test_a_key_that_would_change_the_result_is_refused_by_name_with_what_to_do(key, at):
    (at / "given.json").write_text(json.dumps({"Q": [[1]], "K": [[1]], "V": [[1]], key: 0.5}))
    said = refused("compute", "given.json", code=65)
    assert f"does not support {key}" in said and not said.rstrip().endswith("another.")


def test_what_is_off_is_not_refused_and_other_unknown_names_are_ignored_and_told_inertly():
    for off in (None, False, 0, 0.0):
        ignored = given_from({**QKV, "dropout": off, "add_zero_attn": off}, "given").ignored
        assert ignored == ("dropout", "add_zero_attn")
    assert given_from({**QKV, "author": "me", "weights": XS}, "given").ignored == ("author", "weights")
    assert all(key == key.replace("_", "").lower() for key in REFUSED)
    assert "\x1b" not in refusal({**QKV, "\x1b[31m.sinks": 1})


def test_weights_of_another_program_say_that_they_were_read_as_one_head(at):
    for more, options, is_said in (({}, (), True), ({}, ("--heads", "2"), False), ({"heads": 2}, (), False)):
        np.savez("given.npz", X=XS, **STATE, **more)
        assert ("--heads N splits" in here("compute", "given.npz", *options).out) == is_said
