"""Given matrices: the same record from JSON, .npz and safetensors, and what is wrong with a bad one."""

import io
import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.inputs.matrices import given_from, read_given
from attn_cli.pipeline.mask import read_mask
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.shell import here

X, W = [[1.0, 2.0], [3.0, 4.5]], [[0.5, -1.0, 0.25], [2.0, 0.125, 1.0]]


def some(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def as_json(arrays):
    return json.dumps({name: np.asarray(array).tolist() for name, array in arrays.items()}).encode()


def as_npz(arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def as_safetensors(arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        array = np.asarray(array, "<f4")
        places = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": places}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


FORMATS = pytest.mark.parametrize("written", [as_json, as_npz, as_safetensors])


@pytest.fixture
def file(tmp_path):
    def write(data, name="given"):
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


@FORMATS
def test_every_format_gives_the_same_matrices_by_small_letters_too_and_notes_unknown_names(written, file):
    arrays = {"X": X, "W_q": W, "W_k": W, "W_v": W, "b_q": [1.0, 2.0, 3.0]}
    given = read_given(file(written(arrays), "given.whatever"))
    assert {name: array.tolist() for name, array in given.arrays.items()} == arrays
    assert all(array.dtype == np.float64 for array in given.arrays.values())
    given = read_given(file(written({"q": X, "k": X, "v": X})))
    assert sorted(given.arrays) == ["K", "Q", "V"]
    given = read_given(file(written({"X": X, "colour": X})))
    assert given.ignored == ("colour",)
    assert any("colour" in note for note in trace_matrices("compute", given, Settings()).notes)


def test_json_may_begin_with_anything_and_of_many_unknown_names_a_note_has_eight(file):
    others = {f"n{n}\x1b[2J": X for n in range(30)}
    given = read_given(file(json.dumps({"X": X, **others})))
    assert len(given.ignored) == 30
    (note,) = (note for note in trace_matrices("compute", given, Settings()).notes if "Ignored" in note)
    assert note.endswith("n7^[[2J and 22 more.") and "\x1b" not in note
    assert read_given(file('{"meta":{"by": "me"}, "X": [[1]]}')).arrays["X"].tolist() == [[1.0]]
    assert read_given(file(b"\xef\xbb\xbf" + b'{"X": [[1]]}')).arrays["X"].tolist() == [[1.0]]


def test_a_record_or_an_npz_may_say_tokens_heads_layout_score_and_mask_and_settings_beat_it(file):
    record = {"X": X, "tokens": ["a", "b"], "heads": 2, "layout": "out-in", "score": "dot", "mask": "causal"}
    given = read_given(file(json.dumps(record)))
    trace = trace_matrices("compute", given, Settings())
    assert trace.query_tokens == trace.key_tokens == ("a", "b")
    assert (trace.head_names, trace.score, trace.mask_name) == (("0", "1"), "dot", "causal")
    assert given.layout == "out-in" and given.ignored == ()
    record = {"X": X, "tokens": ["a", "b"], "heads": 2, "layout": "out-in", "score": "dot", "mask": "causal"}
    given = read_given(file(as_npz(record)))
    assert (given.tokens, given.heads, given.layout, given.score) == (("a", "b"), 2, "out-in", "dot")
    assert trace_matrices("compute", given, Settings()).mask_name == "causal"
    given = given_from({"X": X, "heads": 2, "score": "dot", "mask": "causal"}, "given")
    trace = trace_matrices("compute", given, Settings(heads=1, score="scaled", mask="none"))
    assert (trace.head_names, trace.score, trace.mask_name) == (("0",), "scaled", "none")


@pytest.mark.parametrize("mask", [[[True, False], [True, True]], [[1, 0], [1, 1]], np.tri(2, dtype=bool)])
def test_a_mask_of_booleans_in_the_record_means_may_attend(mask):
    trace = trace_matrices("compute", given_from({"X": X, "mask": mask}, "given"), Settings())
    assert trace.mask.tolist() == [[True, False], [True, True]]
    assert trace.weights[0].tolist() == [1.0, 0.0]


def test_position_scores_a_context_and_rows_without_words_are_taken_as_they_are():
    bias = some(2, 2)
    trace = trace_matrices("compute", given_from({"X": X, "position_scores": bias}, "given"), Settings())
    head = trace.heads[0]
    np.testing.assert_allclose(head.masked_scores, head.scaled_scores + bias, rtol=0, atol=1e-12)
    record = {"X": X, "context": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], "context_tokens": ["k", "l", "m"]}
    trace = trace_matrices("compute", given_from(record, "given"), Settings())
    assert trace.weights.shape == (2, 3) and trace.key_tokens == ("k", "l", "m")
    assert trace.heads[0].k.tolist() == record["context"]
    trace = trace_matrices("compute", given_from({"Q": X, "K": X, "V": X}, "given"), Settings())
    assert (trace.query_tokens, trace.key_tokens) == (("q0", "q1"), ("k0", "k1"))
    assert trace.query_ids is None and trace.key_ids is None
    Q, K, V = some(2, 3), some(4, 3, seed=1), some(4, 5, seed=2)
    trace = trace_matrices("compute", given_from({"Q": Q, "K": K, "V": V}, "given"), Settings(score="dot"))
    exps = np.exp(Q @ K.T)
    weights = exps / exps.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(trace.weights, weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trace.output, weights @ V, rtol=0, atol=1e-12)


def test_one_matrix_a_head_is_the_same_as_their_columns_side_by_side():
    W_q, W_k, W_v = (some(2, 2, 3, seed=n) for n in range(3))  # heads, d, d_k
    W = {"W_q": W_q, "W_k": W_k, "W_v": W_v}
    both = {"X": X, "heads": 2}
    stacked, beside = both | W, both | {name: np.hstack(list(M)) for name, M in W.items()}
    turned = both | {"layout": "out-in"} | {name: M.transpose(0, 2, 1) for name, M in W.items()}
    wanted = trace_matrices("compute", given_from(beside, "given"), Settings(head="all"))
    for record in (stacked, turned):
        trace = trace_matrices("compute", given_from(record, "given"), Settings(head="all"))
        for head, theirs in zip(trace.heads, wanted.heads, strict=True):
            np.testing.assert_allclose(head.weights, theirs.weights, rtol=0, atol=1e-12)
            np.testing.assert_allclose(head.output, theirs.output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [trace_self, trace_masked])
@pytest.mark.parametrize("heads", [1, 2])
def test_attn_s_own_json_with_steps_gives_the_same_attention_again(heads, kind, file):
    trace = kind("she likes coffee", Settings(embedding="random", heads=heads, head="all", seed=2))
    path = file(json.dumps(trace.to_dict(steps=True)))
    again = trace_matrices("compute", read_given(path), Settings(head="all"))
    assert (again.query_tokens, again.key_tokens) == (trace.query_tokens, trace.key_tokens)
    assert len(again.heads) == heads
    for head, first in zip(again.heads, trace.heads, strict=True):
        np.testing.assert_allclose(head.weights, first.weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.output, first.output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("head", [None, "subject", "all", "mean"])
@pytest.mark.parametrize("kind", [trace_self, trace_masked])
def test_what_a_learned_head_adds_for_distances_in_attn_s_own_json_is_used_or_said_to_be_ignored(
    kind, head, file
):
    trace = kind("she likes coffee", Settings(head=head, projection="roles"))
    path = file(json.dumps(trace.to_dict(steps=True)), "own.json")
    shown = Settings(head="mean" if head == "mean" else None)
    again = trace_matrices("compute", read_given(path), shown)
    as_weights = kind("she likes coffee", replace(shown, projection=str(path)))
    assert not any("spelling" in note for note in again.notes)  # its X has it
    for other in (again, as_weights):
        assert other.learned is None
        if not any("position" in note or "spelling" in note for note in other.notes):
            np.testing.assert_allclose(other.weights, trace.weights, rtol=0, atol=1e-12)


def test_an_exercise_s_inputs_are_given_matrices_and_no_trace(file):
    inputs = {"X": X, "W_q": W, "W_k": W, "W_v": W, "temperature": 2, "foo": 1}
    exercise = {"schema": "attn/1", "kind": "exercise", "inputs": inputs, "answers": {}, "questions": []}
    whole, alone = read_given(file(json.dumps(exercise))), read_given(file(json.dumps(inputs)))
    assert (whole.temperature, whole.ignored) == (alone.temperature, alone.ignored) == (2.0, ("foo",))


def test_a_temperature_in_attn_s_own_json_is_used_or_said_to_be_ignored_and_it_is_a_projection_file(file):
    trace = trace_self("she likes coffee", Settings(embedding="random", temperature=0.5))
    path = file(json.dumps(trace.to_dict(steps=True)))
    again = trace_matrices("compute", read_given(path), Settings())
    if not any("temperature" in note for note in again.notes):
        np.testing.assert_allclose(again.weights, trace.weights, rtol=0, atol=1e-12)
    settings = Settings(embedding="random", projection="random", seed=2)
    trace = trace_self("she likes coffee", settings)
    path = file(json.dumps(trace.to_dict(steps=True)), "own.json")
    again = trace_self("she likes coffee", Settings(embedding="random", projection=str(path), seed=2))
    np.testing.assert_allclose(again.weights, trace.weights, rtol=0, atol=1e-12)
    assert not any("schema" in note for note in again.notes), "attn knows the names that it wrote itself"


BAD = {
    "nothing": b"",
    "not JSON": b'{"X": [[1.0, 2.0]',
    "not UTF-8": b'{"X": "\xe9"}',
    "UTF-16": '{"X": [[1]]}'.encode("utf-16"),
    "a list": b"[[1.0, 2.0]]",
    "deep": b"[" * 100_000,
    "deep in a name": b'{"X": ' + b"[" * 900 + b"]" * 900 + b"}",
    "rows that differ": b'{"X": [[1, 2], [3]]}',
    "no rows": b'{"X": []}',
    "empty rows": b'{"X": [[], []]}',
    "one axis": b'{"X": [1, 2]}',
    "a bias of two axes": b'{"X": [[1]], "b_q": [[1]]}',
    "text": b'{"X": [["one", "two"]]}',
    "numbers as text": b'{"X": [["1", "2"]]}',
    "an object": b'{"X": {"a": 1}}',
    "a gap": b'{"X": [[1, null]]}',
    "NaN": b'{"X": [[1, NaN]]}',
    "infinity": b'{"X": [[1, -Infinity]]}',
    "1e400": b'{"X": [[1e400]]}',
    "a number of 400 digits": b'{"X": [[1' + b"0" * 400 + b"]]}",
    "a number of 5000 digits": b'{"X": [[1' + b"0" * 5000 + b"]]}",
    "no heads": b'{"X": [[1]], "heads": 0}',
    "a fraction of a head": b'{"X": [[1]], "heads": 1.5}',
    "heads that are true": b'{"X": [[1]], "heads": true}',
    "an unknown layout": b'{"X": [[1]], "layout": "sideways"}',
    "an unknown score": b'{"X": [[1]], "score": ["dot"]}',
    "a token that is a number": b'{"X": [[1]], "tokens": [1]}',
    "tokens that are text": b'{"X": [[1]], "tokens": "a"}',
    "complex numbers": as_npz({"X": np.array(X) * 1j}),
    "dates": as_npz({"X": np.array([["2026-11-21"]], "M8[D]")}),
    "records": as_npz({"X": np.zeros((2, 2), [("a", "f8")])}),
    "numbers as text in an npz": as_npz({"X": [["1", "2"]]}),
    "tokens of characters that do not exist": as_npz({"X": X, "tokens": np.frombuffer(b"\xff" * 8, "<U1")}),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_of_matrices_is_refused_and_named(what, file):
    with pytest.raises(InputError, match="bad"):
        read_given(file(BAD[what], "bad.json"))


@pytest.mark.parametrize(
    ("text", "said"),
    [('{\n  "X":\n  [[1, x]]\n}', "line 3, column 8"), ('{"X": [[1, 2], [NaN, 4]]}', r"X .*\(1, 0\)")],
)
def test_a_fault_is_named_by_its_place(text, said, file):
    with pytest.raises(InputError, match=said):
        read_given(file(text))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"Q": X, "K": X}, ["V"]),
        ({"Q": X, "K": W, "V": X}, ["(2, 2)", "(2, 3)"]),
        ({"Q": X, "K": X, "V": [[1.0]]}, ["(2, 2)", "(1, 1)"]),
        ({"W_q": W}, ["X"]),
        ({"X": X, "tokens": ["a"]}, ["1 tokens", "2 rows"]),
        ({"X": X, "mask": [[True, False, True]]}, ["(1, 3)", "2 queries", "2 keys"]),
        ({"X": X, "mask": "casual"}, ["casual"]),
        ({"X": X, "position_scores": [[0.0, 1.0, 2.0]]}, ["position_scores", "(1, 3)"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_matrices_that_do_not_go_together_are_refused_and_named(record, said):
    with pytest.raises(AttnError) as refused:
        trace_matrices("compute", given_from(record, "given"), Settings())
    for text in said:
        assert text in refused.value.message


ROWS = [[True, False, True], [False, False, True]]


def saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        saved(np.array(ROWS)),
        as_npz({"mask": np.array(ROWS)}),
        json.dumps(ROWS).encode(),
        json.dumps({"mask": ROWS}).encode(),
        b"\xef\xbb\xbf[[1, 0, 1], [0, 0, 1]]",
        b"1 0 1\n0 0 1\n",
        b"1,0,1\r\n0,0,1",
        b"1;0;1\n\n0;0;1\n\n",
        b"\xef\xbb\xbftrue\tfalse\tTRUE\nFalse\tfalse\ttrue\n",
    ],
)
def test_a_mask_is_read_from_every_format(data, file):
    assert np.asarray(read_mask(file(data))).astype(bool).tolist() == ROWS


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"1 0\n1 2\n", "line 2"),
        (b"1 0\n\n0 x\n", "line 3"),
        (b"0.5 1\n", "line 1"),
        (b'{"weights": [[1]]}', "mask"),
        (as_npz({"M": np.eye(2)}), "mask"),
        (b"[[1, 0], [1", "line 1"),
        (saved(np.array([object()])), "code"),
        (b"\x80\x04\x95\x00", "is a pickle"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_bad_mask_file_is_refused_and_says_where(data, said, file):
    with pytest.raises(InputError, match=said):
        read_mask(file(data))


@pytest.mark.parametrize("read", [read_given, read_mask])
def test_a_file_that_is_missing_or_no_file_is_a_file_error(read, tmp_path):
    for path in (tmp_path / "missing.json", tmp_path, "https://example.org/m.json"):
        with pytest.raises(FileError):
            read(path)


def test_a_context_of_another_width_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps({"X": [[1, 2]], "context": [[1, 2, 3]]}))
    ran = here("compute", str(tmp_path / "m.json"))
    assert ran.code == 65 and "K = context W_k" in ran.err and ran.err.count("\n") == 1
