"""Given matrices: the same record from JSON, .npz and safetensors, and what is wrong with a bad one."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError
from attn_cli.inputs.matrices import given_from, read_given
from attn_cli.io.array_files import write_safetensors
from attn_cli.pipeline.mask import read_mask
from attn_cli.pipeline.sources.matrices import trace_matrices

X, W = [[1.0, 2.0], [3.0, 4.5]], [[0.5, -1.0, 0.25], [2.0, 0.125, 1.0]]


def as_json(arrays):
    return json.dumps({name: np.asarray(array).tolist() for name, array in arrays.items()}).encode()


def as_npz(arrays):
    np.savez(out := io.BytesIO(), **arrays)
    return out.getvalue()


def as_safetensors(arrays):
    out = io.BytesIO()
    write_safetensors(out, {name: np.asarray(array, "<f4") for name, array in arrays.items()}, {})
    return out.getvalue()


FORMATS = pytest.mark.parametrize("written", [as_json, as_npz, as_safetensors])


@FORMATS
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


def saved(array):
    np.save(out := io.BytesIO(), array)
    return out.getvalue()


MASKS = [saved(np.array(ROWS)), as_npz({"mask": np.array(ROWS)}), json.dumps({"mask": ROWS})]
MASKS += [b"1,0,1\r\n0,0,1", b"true\tfalse\tTRUE\nFalse\tfalse\ttrue\n"]


@pytest.mark.parametrize("data", MASKS, ids=range(len(MASKS)))
def test_a_mask_is_read_from_every_format(data, file):
    assert np.asarray(read_mask(file(data))).astype(bool).tolist() == ROWS
