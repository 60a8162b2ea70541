"""Weights that came from elsewhere: what `attn show` reads, what it makes of it, and what it refuses."""

import io
import itertools
import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.inputs.weight_tables import grid_of
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import typed
from tests.models.checkpoints.by_hand import as_bfloat16, safetensors
from tests.schema import checked, read
from tests.shell import attn, here, terminal, told
from tests.trace.test_schema import keeps_promises

FOX = "The quick brown fox jumped over the lazy dog"
CAT = ["[CLS]", "the", "cat", "##s", "walk", "##ing", "home", "[SEP]"]


def shares(*shape, seed=0, mask=None):
    """Weights as a softmax gives them: random scores, exp, divided by the row's sum; 0 where the mask is False."""
    exps = np.exp(np.random.default_rng(seed).normal(0, 2, shape))
    exps = exps if mask is None else exps * mask
    return exps / exps.sum(axis=-1, keepdims=True)


def saved(path, content):
    """Write JSON, or an array, or several, as the file's name says; return the name."""
    match Path(path).suffix:
        case ".npy":
            np.save(path, content)
        case ".npz":
            np.savez(path, **content)
        case ".safetensors":
            Path(path).write_bytes(safetensors(content))
        case _:
            Path(path).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def put(content):
    """Write an array, or several, or a record to this folder, and return the file's name; a name is one already."""
    if isinstance(content, str):
        return content
    parts = content.values() if isinstance(content, dict) else None
    is_of_arrays = parts and any(isinstance(value, np.ndarray) for value in parts)
    return saved("a.npy" if parts is None else "a.npz" if is_of_arrays else "a.json", content)


def record(of, *args):
    found = checked(read(told("show", put(of), *args, "-f", "json")))
    assert found["kind"] == "show"
    return found


def refused(of, *args, code=65):
    return shell.refused("show", put(of), *args, code=code)


def close(found, expected):
    np.testing.assert_allclose(np.array(found, float), expected, rtol=0, atol=1e-12)


COMMANDS = f"""
    self '{FOX}' | self '{FOX}' -e random --heads 2 -t 0.5 | cross 'she likes' 'coffee she'
    self '{FOX}' --score cosine -e random --dim 6 --heads 3 --head mean | self 'zzxq likes coffee.'
    self 'zzxq likes coffee.' -p identity --heads 2 --head all | masked '{FOX}' --head subject | self '{FOX}' -q the
    masked '{FOX}' -q fox --mask window:1 | cross 'a b c' 'd e' -e random --mask causal-bottom-right
    example coffee --layout out-in | example day1 --mask causal -q q1
"""


@pytest.mark.parametrize("args", typed(COMMANDS), ids=" ".join)
def test_a_record_shows_its_own_numbers_again_with_and_without_steps(args, at):
    for steps in ((), ("--steps",)):
        told = read(here(*args, "-f", "json", *steps).out)
        again = record(told, *steps)
        if "-q" in args:  # the record's rows are all there is now
            for n, entry in enumerate(told["summary"]):
                entry["query_index"] = n
        for name in "weights mask query_tokens key_tokens summary head unknown dropped".split():  # noqa: SIM905
            assert again[name] == told[name], name
        assert again["embedding"]["source"] == again["projection"]["source"] == "given"
        assert set(told["notes"]) <= set(again["notes"])
        assert [head["name"] for head in again["heads"]] == [head["name"] for head in told["heads"]]
        for head, before in zip(again["heads"], told["heads"], strict=True):
            assert head["weights"] == before["weights"]
            for name in set(before) - {"name"} if steps else ():
                restricted = name.startswith("position_") and "-q" in args
                if before[name] is not None and not restricted:
                    one, other = (np.array(each[name], float) for each in (head, before))
                    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        if steps:
            assert (again["score"], again["scale"]) == (told["score"], told["scale"])
            assert again["temperature"] == told["temperature"]
        else:
            assert again["score"] is again["scale"] is again["temperature"] is again["output"] is None
        if args[0] != "example" and "-q" not in args:
            keeps_promises(again)


STEPS, OUT = "do not lead to its weights", "left out"
NO_STEPS = ({"scores": [[1.0]]}, {"q": None}, {"v": [[1.0, 2.0]]})
NO_SETTINGS = ({"temperature": 10**400}, {"temperature": 0}, {"scale": 0.3}, {"score": "x"})


@pytest.mark.parametrize(
    ("said", "change"),
    [
        (STEPS, lambda told, head: head["k"][0].__setitem__(0, 9.5)),
        (STEPS, lambda told, head: head["W_v"][0].__setitem__(0, 9.5)),
        (STEPS, lambda told, head: head["output"][1].__setitem__(0, 9.5)),
        *((STEPS, lambda told, head, new=new: head.update(new)) for new in NO_STEPS),
        *((OUT, lambda told, head, new=new: told.update(new)) for new in (*NO_SETTINGS, {"x_query": [[1]]})),
    ],
)
def test_steps_or_settings_that_do_not_lead_to_the_weights_are_left_out_aloud(said, change, at):
    told = read(here("example", "coffee", "-f", "json", "--steps").out)
    change(told, told["heads"][0])
    again = record(told | {"mask_name": None})
    close(again["weights"], told["weights"])
    assert again["score"] is None
    assert sum(said in note for note in again["notes"]) == 1
    assert "no arithmetic" in here("show", "a.json", "-q", "she").out


def test_what_show_printed_can_be_shown_again_and_so_can_one_json_line(at):
    content = {"attentions": shares(3, 2, 8, 8).tolist(), "tokens": CAT}
    once = record(content, "--layer", "1", "--join-pieces", "--hide-special")
    again = record(once)
    assert again["projection"]["layer"] == once["projection"]["layer"] == 1
    for name in ("weights", "query_tokens", "mask", "summary"):
        assert again[name] == once[name]
    assert set(once["notes"]) < set(again["notes"])
    line = told("self", "she likes coffee", "-f", "jsonl")
    assert record(saved("a.jsonl", line))["query_tokens"] == ["she", "likes", "coffee"]
    assert "2 records" in refused(saved("b.jsonl", f"{line[:-1]} \n\n{line}"))
    assert record(record(content, "--layer", "0"))["projection"]["layer"] == 0
    of = ("-f", "json")
    strongest, error = here("self", FOX, "--top", "2", *of), here("self", "x", "--head", "no", *of)
    assert "without --top" in refused(saved("a.json", strongest.out))
    assert "an error of attn: There is no head 'no'" in refused(saved("a.json", error.err))


@pytest.mark.parametrize("suffix", [".npy", ".json", ".npz", ".safetensors"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 2, 3, 3), (3, 1, 2, 3, 3)], ids=str)
def test_the_axes_are_layers_heads_queries_keys(shape, suffix, at):
    weights = shares(*shape)
    content = {".npy": weights, ".json": weights.tolist()}.get(suffix, {"attentions": weights})
    path = saved(f"a{suffix}", content)
    whole = (weights[:, 0] if len(shape) == 5 else weights).reshape((-1, *shape[-2:]))
    layers, heads = (3, 2) if len(shape) > 3 else (1, whole.shape[0])
    whole = whole.reshape(layers, heads, *shape[-2:])
    close(record(path)["weights"], whole[-1, 0])
    close(record(path, "--head", "mean")["weights"], whole[-1].mean(axis=0))
    found = record(path, "--head", "all", "--layer", str(layers - 1))["heads"]
    assert [head["name"] for head in found] == [str(h) for h in range(heads)]
    close([head["weights"] for head in found], whole[-1])
    close(record(path, "--layer", "0", "--head", str(heads - 1))["weights"], whole[0, -1])
    assert layers == 1 or f"Its layers are 0 to {layers - 1}" in refused(path, "--layer", "3", code=2)


def test_a_batch_of_several_texts_is_asked_which_and_lists_its_tokens_text_by_text(at):
    weights = shares(2, 3, 2, 4, 4)
    assert "(2, 3, 2, 4, 4)" in (said := refused(weights)) and "--batch N" in said
    close(record(weights, "--batch", "2", "--head", "1")["weights"], weights[1, 2, 1])
    assert all("has 0 to 2" in refused(weights, "--batch", n, code=2) for n in ("3", "-1"))
    assert "has no batch" in refused(weights[0, 0, 0], "--batch", "1", code=2)
    weights, tokens = shares(2, 2, 2, 3, 3), [["a", "b", "c"], ["d", "e", "f"]]
    both = {"attentions": weights, "tokens": np.array(tokens)}
    assert record(both, "--batch", "1")["query_tokens"] == tokens[1]
    (at / "t.json").write_text(json.dumps(tokens))
    assert record(weights, "--batch", "0", "--tokens", "t.json")["key_tokens"] == tokens[0]
    assert record({"attentions": weights[:, :1], "tokens": np.array(tokens[:1])})["query_tokens"] == tokens[0]


def test_layers_saved_one_by_one_are_put_in_order_and_of_several_arrays_one_is_to_be_named(at):
    layers = {f"layer_{n}": shares(1, 2, 3, 3, seed=n) for n in range(11)}
    path = put(dict(sorted(layers.items())) | {"tokens": np.array(["a", "b", "c"])})
    assert sorted(layers)[2] == "layer_10"
    found = record(path, "--layer", "9", "--head", "1")
    close(found["weights"], layers["layer_9"][0, 1])
    assert found["query_tokens"] == ["a", "b", "c"] and found["projection"]["layer"] == 9
    close(record(path, "--array", "layer_10")["weights"], layers["layer_10"][0, 0])
    np.savez("b.npz", *layers.values())
    close(record("b.npz")["weights"], layers["layer_10"][0, 0])
    close(record({f"layer_{n}": layers[f"layer_{n}"] for n in (2, 3)})["weights"], layers["layer_3"][0, 0])
    del layers["layer_4"]
    assert "lacks a layer" in refused(layers)
    assert "(1, 2, 3, 4)" in refused(layers | {"layer_4": shares(1, 2, 3, 4)})
    arrays = {"encoder_attentions": shares(2, 1, 2, 3, 3), "cross_attentions": shares(2, 1, 2, 4, 3)}
    assert "encoder_attentions, cross_attentions" in refused(arrays)
    close(record(arrays, "--array", "cross_attentions")["weights"], arrays["cross_attentions"][1, 0, 0])
    close(record(arrays | {"attention": shares(3, 3)})["weights"], shares(3, 3))
    assert "It has encoder_attentions" in refused(arrays, "--array", "x", code=2)
    assert record({"weights": [[1]], "loss": 0.5})["notes"][0].endswith("a.json: loss.")


def test_standard_input_may_be_binary():
    weights = shares(2, 3, 3)
    np.save(stream := io.BytesIO(), weights)
    ran = attn("show", "-", "--head", "1", "-f", "json", input=stream.getvalue())
    close(read(ran.out)["weights"], weights[1])
    ran = attn("show", input='{"weights": [[0.25, 0.75]], "tokens": ["a"], "context_tokens": ["b", "c"]}')
    assert ran.code == 0 and ".250 .750" in ran.out


def test_a_pickle_is_never_read(at):
    class Loud:
        def __reduce__(self):
            return os.mkdir, ("obeyed",)

    bare = "a.pt", "a.npy", "a.npz", "a.safetensors"
    for name in bare:
        (at / name).write_bytes(pickle.dumps(Loud()))
    with zipfile.ZipFile("b.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Loud()))
    np.save("c.npy", objects := np.array([Loud()], dtype=object), allow_pickle=True)
    np.savez("d.npz", a=objects)
    refusals = dict.fromkeys(bare, "pickle") | {"b.pt": "torch.stack"}
    for name, said in (refusals | dict.fromkeys(("c.npy", "d.npz"), "could run code")).items():
        assert said in refused(name) and not (at / "obeyed").exists()


NO_ATTENTION = [
    *(("", "is empty"), ("hello", "neither JSON nor"), ("[[1, 0], [0, 1]", "not JSON"), ("[]", "shape (0,)")),
    *(("{}", "holds no weights"), ("[[]]", "shape (1, 0)"), ("[1, 2]", "shape (2,)")),
    ("[" * 100_000, "nested too deeply"),
    ("[[1, 0], [1]]", "[0] has 2 numbers, [1] has 1 number."),
    ("[[[1, 0], [1, 0]], [[0, 1], 3]]", "[1][0] has 2 numbers, [1][1] is no list"),
    ('[["a"]]', 'not a matrix of numbers: "a" stands at [0][0]'),
    ("[[0.5, null]]", "null stands at [0][1]"),
    *(('{"weights": "x"}', "not a matrix of numbers"), ('{"scores": [1]}', "holds no weights: scores")),
    ('{"weights": [[1]], "tokens": "the"}', "should be a list of tokens"),
    ('{"weights": [[1]], "tokens": [""]}', "token 0 is empty"),
    ('{"weights": [[1]], "tokens": [3]}', "token 0 is not a string"),
    ('{"weights": [[1]], "tokens": ["a", "b"]}', "holds 2 tokens"),
    ('{"weights": [[1]], "mask": [[true, false]]}', "shape (1, 2)"),
    ('{"weights": [[1, 1]], "mask": [[true, false]]}', "off from key 1 (k1), but its weight there is 1"),
    ("[[0.5, 0.5], [1.5, -0.5]]", "head 0, query 1, key 0 is 1.5"),
    ("[[[1, 0]], [[2, -1]]]", "head 1, query 0, key 0 is 2"),
    *(("[[0.5, Infinity]]", "query 0, key 1 is inf"), ("[[0.5, NaN]]", "query 0, key 1 is nan")),
    ('{"schema": "attn/1", "kind": "self"}', "'self', which has no weights"),
    ('{"schema": "attn/1", "weights": [[1]], "heads": [{"name": "a"}]}', "not a matrix of numbers"),
]


@pytest.mark.parametrize(("content", "told"), NO_ATTENTION)
def test_what_is_no_attention_is_refused_in_one_line_that_says_where(content, told, at):
    args = ("--head", "all") if "2, -1" in content else ()
    assert told in refused(saved("a.json", content), *args)


def test_other_files_and_options_are_refused_and_nothing_to_read_is_help(at):
    assert "No such file" in refused("a.npy", code=66) and "a directory" in refused(str(at), code=66)
    (at / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    assert "not a sound .npy" in refused("a.npy")
    for library in ("numpy", "torch", "keras"):
        assert "weights alone" in refused([[1, 0], [0.5, 0.5]], "-f", f"code:{library}", code=2)
    own = saved("c.json", here("self", "a b", "-f", "json").out)
    assert 'no mask; layer 0; head "relations".' in told("show", own)
    assert "attn's own JSON" in refused(own, "--batch", "0", code=2)
    ran = terminal("show")
    assert ran.code == 2 and "Usage: attn show" in ran.out and "There is no file." in ran.out
    assert "Standard input is empty." in here("show", "-").err


THE_CAT_SAT = ["The", "cat", "sat"]
TOKENS = [
    *(("The cat  sat", None, THE_CAT_SAT), ('["The", "cat", "sat"]', None, THE_CAT_SAT)),
    *((name, '["The", "cat", "sat"]', THE_CAT_SAT) for name in ("t.json", "t.txt")),
    *((name, "The\ncat\nsat\n", THE_CAT_SAT) for name in ("t.txt", "my tokens.txt")),
    ("t.txt", "\ufeffThe\r\ncat\r\nsat", THE_CAT_SAT),
    ("[CLS] and/or [SEP]", None, ["[CLS]", "and/or", "[SEP]"]),
    ("t.txt", "New York\n is\nbig\n", ["New York", " is", "big"]),
]


@pytest.mark.parametrize(("value", "content", "tokens"), TOKENS)
def test_tokens_are_typed_or_stand_in_a_file(value, content, tokens, at):
    if content is not None:
        (at / value).write_text(content, encoding="utf-8")
    found = record(shares(3, 3), "--tokens", value)
    assert found["query_tokens"] == found["key_tokens"] == tokens
    assert found["query_ids"] == [0, 1, 2]


def names(*args):
    found = record(*args)
    return " ".join(found["query_tokens"]), " ".join(found["key_tokens"])


def test_a_wrong_number_of_tokens_or_no_list_is_refused_and_without_tokens_rows_are_numbered(at):
    (at / "t.txt").write_text("a\n\nb\n")
    (at / "t.JSON").write_text('{"a": 1}')
    bad = {"t.txt": (65, "token 1 is empty"), "t.JSON": (65, "not a JSON list")}
    for value, (code, said) in (bad | {"u.txt": (66, "No such file"), " ": (2, "holds no token")}).items():
        assert said in refused(shares(3, 3), "--tokens", value, code=code)
    path = put(shares(2, 5, 7))
    assert re.search(r"3 tokens.*5 queries \(rows\).*\[CLS\]", refused(path, "--tokens", "The cat sat"))
    too_many = refused(path, "--context-tokens", "a b c d e f g h")
    assert re.search(r"8 tokens.*7 keys \(columns\)\. Give one token a row\.", too_many)
    own, other = "a b c d e", "f g h i j k l"
    assert names(path, "--tokens", own, "--context-tokens", other) == (own, other)
    assert names(path, "--tokens", own)[1].startswith("k0 ")
    path = put(shares(2, 2))
    assert names(path) == ("q0 q1", "k0 k1") and record(path)["query_ids"] is None
    assert told("show", path).startswith("Attention: 2 queries")
    own = {"weights": [[0.5, 0.5], [1, 0]], "tokens": ["a", "b"]}
    assert names(own) == ("a b", "a b") and names(own, "--tokens", "c d") == ("c d", "c d")
    assert names(own, "--context-tokens", "c d") == ("a b", "c d")
    both = {"weights": [[0.5, 0.5], [1, 0]], "query_tokens": ["a", "b"], "key_tokens": ["c", "d"]}
    assert names(both, "--tokens", "x y")[1] == "x y"


def test_zeros_are_masked_where_only_a_mask_explains_them_and_said_to_be(at):
    weights = shares(2, 2, 4, 4, mask=np.tri(4))
    path = put(weights)
    found = record(path, "--head", "all")
    assert found["mask_name"] == "causal" and found["mask"] == np.tri(4, dtype=bool).tolist()
    assert re.match(r"Masked attention(?!.* \.000).*–", told("show", path), re.DOTALL)
    assert here("show", path, "-f", "csv").out.splitlines()[1].endswith(",,,")
    assert record(path, "--mask", "none")["mask"] is None
    seen = [[True, True, False]] * 2
    for padding, mask in (([1, 1, 0], seen), ([[1, 1, 0]], seen), ([0, 0, 0], None)):
        found = record({"mine": shares(2, 3, mask=[1, 1, 0]), "attention_mask": np.array(padding)})
        assert (found["mask"], found["notes"][0].startswith("Ignored")) == (mask, mask is None)
    weights[0, 1, 0, 1] = 1e-30
    for unmasked in (weights, np.eye(3), [[0, 1], [0, 1]], [[1]], [[0.5, 0.5, 0]]):
        assert record(unmasked)["mask"] is None
    allowed = np.array([[1, 1, 1, 0, 0]] * 5)
    path, padded = put(shares(2, 5, 5, mask=allowed)), ("--tokens", "<s> a </s> <pad> <pad>")
    assert record(path, *padded)["mask"] == allowed.astype(bool).tolist()
    assert record(path, "--tokens", "a b c d e")["mask"] is None, "words may get nothing"
    assert record(path, *padded, "--hide-special")["mask"] is None


def test_a_mask_is_named_by_hand_or_by_file_and_must_be_kept(at):
    window = np.abs(np.subtract.outer(range(4), range(4))) <= 1
    weights = shares(4, 4, mask=window)
    in_file = {"weights": weights.tolist(), "mask": window.tolist()}
    for of, name in (((weights, "--mask", "window:1"), "window:1"), ((in_file,), "as given")):
        found = record(*of)
        assert (found["mask_name"], found["mask"]) == (name, window.tolist())
    saved("m.json", (~window).tolist())
    assert record(weights, "--mask", "m.json", "--mask-true", "blocked")["mask"] == window.tolist()


def test_rows_that_do_not_sum_to_one_are_counted_and_rows_of_nan_fully_masked(at):
    weights = shares(2, 3, 3)
    weights[:, 1] = np.nan
    found = record(weights)
    assert found["weights"][1] == [0, 0, 0] and found["mask"][1] == [False] * 3
    assert found["mask_name"] == "exact zeros"
    notes = " ".join(found["notes"])
    assert "1 query has NaN" in notes and "fully masked row: q1 (1)" in notes
    for format in ("table", "bars", "markdown", "csv"):
        assert "nan" not in here("show", "a.npy", "-f", format).out
    weights[1, 1] = 1 / 3
    found = record(weights)
    assert found["mask"] is None and found["weights"][1] == [0, 0, 0], "another head looks"
    assert "1 query has NaN" in here("show", "a.npy", "--head", "all", "-f", "csv").err
    weights = shares(2, 3, 3)
    weights[1, ::2] *= [[0.5], [0.9]]
    found = record(weights, "--head", "1")
    close(found["weights"], weights[1])
    assert "2 of 3 rows do not sum to one but to 0.500 to 0.900, and are shown as they are." in found["notes"]
    assert not record("a.npy", "--head", "0")["notes"]
    assert "2 of 6 rows" in here("show", "a.npy", "--head", "all", "-f", "csv").err
    assert " 0.500\n" in here("show", "a.npy", "--head", "1").out


def test_pieces_are_joined_on_request_with_their_mask(at):
    weights = shares(8, 8, mask=np.tri(8))
    found = record({"weights": weights.tolist(), "tokens": CAT}, "--join-pieces", "--hide-special")
    assert found["mask_name"] == "causal" and found["mask"] == np.tri(4, dtype=bool).tolist()
    near = np.abs(np.subtract.outer(range(8), range(8))) <= 2
    told = {"weights": shares(8, 8, mask=near).tolist(), "tokens": CAT}
    found = record(told, "--join-pieces", "--mask", "window:2")
    assert found["mask_name"] == "window:2 of all tokens"
    keeps_promises(found)
    path = put({"weights": shares(6, 6).tolist(), "tokens": ["<s>", "Ġ<", "s", ">", "Ġhere", "</s>"]})
    assert record(path, "--join-pieces")["query_tokens"] == ["<s>", "<s>", "here", "</s>"]
    assert record(path, "--join-pieces", "--hide-special")["query_tokens"] == ["<s>", "here"]


def test_rows_that_gave_all_to_hidden_tokens_are_zeros_and_no_share_of_them_is_below_0(at):
    content = {"weights": [[1, 0, 0], [1, 0, 0], [0.5, 0.25, 0.25]], "tokens": ["<s>", "a", "b"]}
    found = record(content, "--hide-special", "--renormalize", "--mask", "none")
    assert found["weights"] == [[0, 0], [0.5, 0.5]]
    weights = np.random.default_rng(1).random((9, 9))
    weights[:, 0] = 0
    weights /= weights.sum(axis=-1, keepdims=True)
    assert (weights[1:].sum(axis=-1) - weights[1:, 1:].sum(axis=-1)).mean() < 0
    path = put({"weights": weights, "tokens": np.array(["[CLS]", *"abcdefgh"])})
    assert "with 0.0% of" in here("show", path, "--hide-special").out


def test_a_large_matrix_keeps_each_rows_strongest_links(at):
    weights = shares(2, 1001, 1001).astype(np.float32)
    found = record(weights, "--head", "mean", "--top", "3")
    assert found["condensed"] and found["weights"] is None
    expected = weights.astype(float).mean(axis=0)
    for i in (0, 500, 1000):
        best = sorted(range(1001), key=lambda j: -expected[i, j])[:3]
        links = [link for link in found["links"] if link[0] == i]
        assert links == [[i, j, pytest.approx(expected[i, j], rel=0, abs=1e-12)] for j in best]
    close(record("a.npy", "-q", "q7", "--full")["weights"], weights[0, 7:8])


def test_a_safetensors_file_whose_first_byte_is_a_pickle_s_is_none(at):
    """The file begins with the length of its header, which may end in the byte that a pickle begins with."""
    plain = safetensors({"attentions": np.full((1, 2, 2), 0.5, np.float32)})
    length = int.from_bytes(plain[:8], "little")
    header = plain[8 : 8 + length].rstrip().ljust(0x80)
    (at / "a.safetensors").write_bytes(b"\x80".ljust(8, b"\0") + header + plain[8 + length :])
    assert record("a.safetensors")["weights"] == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("half", [np.float16, as_bfloat16])
def test_safetensors_in_half_precision_are_shown_computed_with_and_compared(half, at):
    assert record([[0, 1, 0], [0, 0, 1]])["weights"] == [[0, 1, 0], [0, 0, 1]]  # whole numbers, too
    weights = shares(2, 5, 5).astype(np.float16)
    close(record(weights)["weights"], weights[0].astype(float))
    weights = shares(2, 3, 40, 40).astype(np.float32)
    found = record(saved("a.safetensors", {"attentions": half(weights)}), "--head", "1", "--layer", "0")
    np.testing.assert_allclose(found["weights"], weights[0, 1], rtol=2**-7, atol=1e-6)
    assert not any("sum to one" in note for note in found["notes"])
    X = np.array([[1, 0.5], [-0.25, 2], [0, 1]], np.float32)  # exact in both
    files = (saved(f"{n}.safetensors", dict.fromkeys("QKV", M)) for n, M in enumerate((X, half(X))))
    one, other = (read(here("compute", file, "-f", "json").out)["weights"] for file in files)
    assert one == other
    saved("w.safetensors", {f"W_{name}": half(np.eye(4, dtype=np.float32)) for name in "qkv"})
    of = ("a b c", "-e", "random", "--dim", "4", "-p", "./w.safetensors")
    told("compare", *of, "--vary", "score=scaled,dot")


# Tables and their axes: what attn writes is read again, what people type, and whose tokens name it.

TEXTS = [
    ("self", "the cat saw the cat"),
    *(("masked", text, "-e", "random") for text in ("the cat saw the cat", "the the the")),
    *(("self", text, "--tokenizer", "whitespace", "-e", "random") for text in ("=1 + -cat @x", "1,5 2,5 x")),
    *(("self", text, "-e", "random") for text in ("1 2 3", "key weight")),
    ("self", "a b c d", "--mask", "window:1", "-e", "random"),
    ("cross", "the cat", "a dog a dog", "-e", "random"),
    ("self", "the cat the dog", "-e", "random", "--dim", "6", "--heads", "3", "--head", "all"),
    ("masked", "the cat the dog", "-e", "random", "--heads", "2", "--head", "all"),
]


@pytest.mark.parametrize("args", TEXTS, ids=" ".join)
@pytest.mark.parametrize("form", [("csv",), ("tsv",), ("csv", "--tidy"), ("tsv", "--tidy")], ids=" ".join)
def test_what_attn_writes_is_read_again(args, form, at):
    told = read(here(*args, "-f", "json").out)
    ran = here(*args, "-f", *form, "-o", f"w.{form[0]}")
    assert ran.code == 0, ran.err
    found = record(f"w.{form[0]}")
    for name in ("weights", "mask", "query_tokens", "key_tokens"):
        assert_alike(found[name], told[name])
    heads, wanted = ([(head["name"], head["weights"]) for head in one["heads"]] for one in (found, told))
    assert_alike(heads, wanted)
    assert found["mask_name"] == told["mask_name"] or told["mask_name"] not in ("none", "causal")


WHOLE = "query,a,b\na,0.5,0.5\nb,1,0\n"
LISTED = "query,key,weight\na,a,0.5\na,b,0.5\nb,a,1\nb,b,0\n"
FORMS = [WHOLE, WHOLE.replace("\n", "\r\n"), "\ufeff" + WHOLE, WHOLE.removeprefix("query"), LISTED]
FORMS += [form.replace(",", ";").replace(".", ",") for form in (WHOLE, LISTED)]
FORMS += [WHOLE.replace(",", "\t").replace("0.5", ".5")]


@pytest.mark.parametrize("text", FORMS)
def test_forms_of_one_matrix(text, file):
    found = record(file(text, "w.csv"))
    assert found["weights"] == [[0.5, 0.5], [1, 0]]
    assert found["query_tokens"] == found["key_tokens"] == ["a", "b"]


@pytest.mark.parametrize("name", ["w.csv", "w.tsv", "w"])
def test_a_bare_matrix_has_no_tokens_until_they_are_typed(name, at):
    weights = shares(3, 3)
    np.savetxt(name, weights, delimiter="\t" if name == "w.tsv" else ",", fmt="%.18g")
    found = record(name)
    close(found["weights"], weights)
    assert found["query_tokens"] == ["q0", "q1", "q2"]
    assert record(name, "--tokens", "a b c")["key_tokens"] == ["a", "b", "c"]


def test_an_empty_cell_is_masked_and_a_zero_is_not_and_tables_come_from_streams_and_go_to_heads(file):
    path = file("query,a,b,c\na,1,,0\nb,.5,.5,\nc,,0,1\n", "w.csv")
    found = record(path)
    assert found["mask"] == [[True, False, True], [True, True, False], [False, True, True]]
    assert found["mask_name"] == "as given"
    assert record(file("head,query,a\nmean,a,1\n", "w.csv"))["head"] == "mean"
    # A matrix, though its words are a header's.
    found = record(file("query,key,weight\nkey,,1\nweight,,1\n", "w.csv"))
    assert (found["query_tokens"], found["mask"]) == (["key", "weight"], [[False, True]] * 2)
    here("self", "the cat sat here", "-e", "random", "--heads", "2", "--head", "all", "-f", "csv", "-o", path)
    told("heads", "--weights", path)
    tabs = here("self", "the cat", "-f", "tsv").out
    for separator in "\t,;":
        shown = attn("show", "-", input=tabs.replace("\t", separator))
        assert shown.out.splitlines()[3:6] == here("self", "the cat").out.splitlines()[3:6]


NO_TABLES = [
    ("query,a,b\na,1,0\nb,0.5\n", "line 3: the row has 2 cells, the header 3"),
    ("query,a,b\na,1,x\n", "line 2, column 3: 'x' is not a number"),
    ("query,key,weight\na,b,c\n", "line 2, column 3: 'c' is not a number"),
    *(("1,0\n1\n", "line 2: the row has 1 cell"), ("query,a\n", "is not a number"), ("", "holds no numbers")),
    *(("head,query,a\n", "holds no numbers"), ("head,query,a,b\n0,x,1,\n1,x,.5,.5\n", "same empty cells")),
    ("head,query,a,b\n0,x,1,0\n1,y,.5,.5\n", "other tokens"),
    ("query,key,weight\nthe,the,.5\nthe,the,.5\nthe,the,.3\n", "repeated"),
    ("query,key,weight,query_row,key_column\na,b,1,0,0\n", "strongest links"),
    *((f"{number},0\n0,1\n", "weights lie between 0 and 1") for number in ("1e999", "-inf", "3")),
    *(("query,,b\na,1,0\n", "token 0 is empty"), ("\x1b[31m,1\n\x1b[0m,x\n", "is not a number")),
]


@pytest.mark.parametrize(("text", "told"), NO_TABLES)
def test_a_table_that_is_none_is_refused_in_a_line(text, told, file):
    message = refused(file(text, "w.csv"))
    assert told in message and "\x1b" not in message


def test_a_table_has_no_arrays_and_no_batch_and_what_is_no_table_is_not_taken_for_one(file):
    for option in ("--array", "--batch"):
        assert "is a table" in refused(file("1,0\n0,1\n", "w.csv"), option, "0", code=2)
    for data in (b"hello world\nfoo", b"\x00\x01,\x02", b"query\n"):
        assert "neither JSON nor CSV" in refused(file(data, "w.bin"))


def links(tokens, others, weights):
    there = zip(itertools.product(tokens, others), np.ravel(weights), strict=True)
    return [(*pair, weight) for pair, weight in there if not np.isnan(weight)]


@pytest.mark.parametrize("tokens", list(itertools.product("ab", repeat=4)), ids="".join)
def test_repeated_words_are_told_apart_by_order(tokens):
    causal = np.where(np.tri(4), shares(4, 4, seed=6, mask=np.tri(4)), np.nan)
    for words, weights in ((tokens, shares(4, 4, seed=5)), (tokens, causal), ("aa", causal[:2, :2])):
        made = grid_of(links(words, words, weights), "file")
        assert (made.queries, made.keys) == (list(words), list(words))
        close(made.weights, weights)


def test_of_several_readings_the_one_whose_rows_sum_to_one_is_taken_or_none():
    weights = [[0.9, 0.02, 0.08], [0.7, 0.2, 0.1]]
    assert grid_of(links("aa", "aaa", np.array(weights)), "file").weights == weights
    masked = np.where(np.abs(np.subtract.outer(range(4), range(4))) <= 1, 0.3, np.nan)
    runs = [("a", "x", 1.0), ("a", "y", 1.0), ("b", "x", 0.5), ("b", "z", 0.5)]  # of a, two rows
    for unclear in (links("abba", "abba", masked), runs):
        with pytest.raises(InputError, match="repeated"):
            grid_of(unclear, "file")
    assert grid_of([("a", "a", 1.0)], "file").weights == [[1.0]]
    apart = grid_of([("a", "a", 1.005), ("b", "b", 1.0), ("a", "a", 1.0)], "file")  # one was rounded
    assert (apart.queries, apart.keys) == (["a", "b", "a"], ["a", "b"]), "which a is looked at is not known"


def test_typed_tokens_overrule_a_files_own_even_broken_ones_and_a_batch_chooses_its_own(at):
    held = {"weights": shares(2, 3).tolist(), "tokens": ["a", "b"], "context_tokens": ["c", "d"]}
    assert "--context-tokens overrules the file's." in refused(held)
    assert "--tokens overrules them." in refused(held | {"tokens": ["a", "b", "c"]})
    assert record(held, "--context-tokens", "x y z")["key_tokens"] == ["x", "y", "z"]
    held = {"weights": [[1.0]], "tokens": [""]}
    assert "token 0 is empty" in refused(held) and record(held, "--tokens", "a")["key_tokens"] == ["a"]
    held = {"weights": shares(2, 1, 2, 2).tolist(), "tokens": [["a", "b"], ["c", "d"]]}
    for n in (0, 1):
        assert record(held, "--batch", str(n))["query_tokens"] == held["tokens"][n]


@pytest.mark.parametrize("text", [0, 1, 2])
def test_a_typed_batch_makes_the_first_of_three_or_four_axes_the_batch_also_of_each_layer(text, at):
    weights, means = shares(3, 2, 4, 4), shares(3, 4, 4)
    found = record(weights, "--batch", str(text), "--head", "all")
    close([head["weights"] for head in found["heads"]], weights[text])
    assert not any("Layer" in note for note in found["notes"])
    close(record(means, "--batch", str(text))["weights"], means[text])
    layers = {f"layer_{n}": shares(3, 2, 4, 4, seed=n) for n in range(2)}
    found = record(layers, "--batch", str(text), "--layer", "0", "--head", "1")
    close(found["weights"], layers["layer_0"][text, 1])
