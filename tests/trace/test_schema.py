"""Everything that attn prints as JSON fits its schema, and keeps the promises that no schema can state."""

import copy
import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from attn_cli import Settings, errors, trace_self
from attn_cli.errors import InputError
from attn_cli.io.files import data_path
from attn_cli.io.json_text import dumps
from attn_cli.settings.declare import declared
from tests import small_models as models
from tests.parsed import conllu
from tests.schema import COMPLETE, SCHEMA, checked, printed, read
from tests.shell import here, told
from tests.thorough import like_cases, often

Record = dict[str, Any]

FITS = COMPLETE.is_valid
DEFS = SCHEMA["$defs"]
FOX = "The quick brown fox jumped over the lazy dog"
LEAST_OF_TIES = 1 - 1e-5  # weights of words that are alike differ by less, also in float32
TREEBANK = conllu(
    "The/DET/2/det dog/NOUN/3/nsubj barks/VERB/0/root at/ADP/6/case the/DET/6/det cat/NOUN/3/obl ./PUNCT/3/punct",
    "She/PRON/2/nsubj sleeps/VERB/0/root",
)


WHOLE = {"W_q": [[1, 0, 2], [0, 1, 0]], "W_k": [[1, 1, 0], [0, 1, 1]], "W_v": [[1, 0], [3, 1]]}
WHOLE |= {"b_q": [0.5, 0.25, 0], "b_k": [0, 0.5, 1], "b_v": [1, 2], "W_o": [[1, 0, 0], [0, 1, 1]]}
GIVEN = {
    "plain.json": {"W_q": [[1, 0], [0, 2]], "W_k": [[0, 1], [1, 0]], "W_v": [[1, 0, 1], [0, 1, 1]]},
    "whole.json": WHOLE,
    "four.json": {name: np.eye(2, 4).tolist() for name in ("W_q", "W_k", "W_v")},
    "vectors.txt": "x 1 2\ny 3 -4\n",
    "six.txt": models.typed(models.table()),
    "treebank.conllu": TREEBANK,
    "mask.txt": "0 0\n1 1\n",
    "key.txt": "0 1\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("given")
    for name, content in GIVEN.items():
        (made / name).write_text(content if isinstance(content, str) else json.dumps(content))
    models.write(made / "deep.safetensors", models.arrays(2, 3), models.table(), ["first", "second"])
    return made


@pytest.fixture(autouse=True)
def place(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def keeps_promises(record: Record) -> None:
    n_q, n_k = len(record["query_tokens"]), len(record["key_tokens"])
    assert len(record["summary"]) == n_q
    shape_is(record["mask"], n_q, n_k)
    shape_is(record.get("x_key"), n_k)
    for name in ("output", "layer_output", "x_query"):
        shape_is(record.get(name), n_q)
    if record.get("x_query") is not None and record["learned"] is not None and record["kind"] != "cross":
        close(record["x_query"], np.array(record["x_key"])[record["query_rows"] or range(n_q)])
    assert record["output_words"] is None or len(record["output_words"]) == n_q
    for found in record["output_words"] or []:
        cosines = [entry["cosine"] for entry in found]
        assert cosines == sorted(cosines, reverse=True)
        assert len({entry["word"] for entry in found}) == len(found)
    ids_number_distinct_tokens(record)
    blind = [entry["key"] is None for entry in record["summary"]]
    assert any(blind) == any("fully masked row" in note for note in record["notes"])
    if record["condensed"]:
        links_are_in_range(record, blind)
    else:
        weights_are_shares(record["weights"], record["mask"], n_q, n_k)
        summary_is_strongest(record)
    for head in record["heads"]:
        shape_is(head["output"], n_q)
        if not record["condensed"]:
            weights_are_shares(head["weights"], record["mask"], n_q, n_k)
        if "q" in head:
            head_follows_formula(head, record)
    names = [head["name"] for head in record["heads"]]
    assert len(set(names)) == len(names)
    layer_output_joins_the_heads(record)
    if record["head"] == "mean" and not record["condensed"]:
        for name in ("weights", "output"):
            if all(head[name] is not None for head in record["heads"]):
                close(record[name], np.mean([head[name] for head in record["heads"]], axis=0))
    elif record["head"] in names:
        shown = record["heads"][names.index(record["head"])]
        assert (shown["weights"], shown["output"]) == (record["weights"], record["output"])


def shape_is(matrix: list[list[float]] | None, rows: int, columns: int | None = None) -> None:
    if matrix is not None:
        assert len(matrix) == rows
        assert {len(row) for row in matrix} == {columns if columns is not None else len(matrix[0])}


def ids_number_distinct_tokens(record: Record) -> None:
    if record["query_ids"] is None:
        assert record["query_tokens"][0].startswith("q")
    elif record["query_rows"] is None:
        tokens = [*record["query_tokens"], *record["key_tokens"]]
        numbers = {token: n for n, token in enumerate(dict.fromkeys(tokens))}
        assert record["query_ids"] + record["key_ids"] == [numbers[token] for token in tokens]
    elif record["kind"] != "cross":
        for of_queries, of_keys in (("query_ids", "key_ids"), ("query_tokens", "key_tokens")):
            assert record[of_queries] == [record[of_keys][row] for row in record["query_rows"]]


def weights_are_shares(weights: list[list[float]], mask: list[list[bool]] | None, n_q: int, n_k: int) -> None:
    shape_is(weights, n_q, n_k)
    for i, row in enumerate(weights):
        allowed = [True] * n_k if mask is None else mask[i]
        assert sum(row) == pytest.approx(1 if any(allowed) else 0)
        assert not any(weight for weight, may in zip(row, allowed, strict=True) if not may)


def summary_is_strongest(record: Record) -> None:
    for query, row, entry in zip(record["query_tokens"], record["weights"], record["summary"], strict=True):
        assert entry["query"] == query
        if entry["key"] is not None:
            assert entry["weight"] == row[entry["key_index"]] >= max(row) * LEAST_OF_TIES
            assert record["key_tokens"][entry["key_index"]] == entry["key"]


def links_are_in_range(record: Record, blind: list[bool]) -> None:
    rows: dict[int, list[float]] = {}
    for query, key, weight in record["links"]:
        assert 0 <= query < len(blind) and 0 <= key < len(record["key_tokens"])
        assert record["mask"] is None or record["mask"][query][key]
        rows.setdefault(query, []).append(weight)
    assert list(rows) == [i for i, nothing in enumerate(blind) if not nothing]
    for i, found in rows.items():
        assert all(weaker * LEAST_OF_TIES <= stronger for stronger, weaker in pairwise(found))
        assert found[0] == record["summary"][i]["weight"]


def head_follows_formula(head: Record, record: Record) -> None:
    q, k, v = (np.array(head[name]) for name in "qkv")
    out_in = record["projection"]["layout"] == "out-in"
    for side, name in (("x_query", "q"), ("x_key", "k"), ("x_key", "v")):
        W, b = head[f"W_{name}"], head[f"b_{name}"]
        shape_is(head[name], len(record["query_tokens" if name == "q" else "key_tokens"]))
        if W is not None:
            made = np.array(record[side]) @ (np.array(W).T if out_in else np.array(W))
            close(head[name], made + (0 if b is None else np.array(b)))
    if record["condensed"]:
        return
    assert record["scale"] == (pytest.approx(q.shape[1] ** -0.5) if record["score"] == "scaled" else 1)
    scores = unit(q) @ unit(k).T if record["score"] == "cosine" else q @ k.T
    both = scores * record["scale"] / record["temperature"]
    for name, right in (("scores", scores), ("scaled_scores", both)):
        np.testing.assert_allclose(head[name], right, rtol=1e-9, atol=1e-9)
    position = position_term(head, record)
    assert (position is None) == (head["position_scores"] is None)
    if position is not None:
        close(head["position_scores"], position)
        both = both + position
    allowed = np.array(record["mask"] or [[True] * len(k)] * len(q))
    masked = np.array(head["masked_scores"], float)  # null becomes NaN
    assert (np.isnan(masked) == ~allowed).all()
    np.testing.assert_allclose(masked[allowed], both[allowed], rtol=1e-9, atol=1e-9)
    top = np.where(allowed, both, -np.inf).max(axis=1, keepdims=True)
    exps = np.where(allowed, np.exp(both - np.where(np.isneginf(top), 0, top)), 0)
    total = exps.sum(axis=1, keepdims=True)
    weights = exps / np.where(total == 0, 1, total)
    close(head["weights"], weights)
    close(head["output"], weights @ v)


def unit(X: np.ndarray) -> np.ndarray:
    length = np.sqrt((X**2).sum(axis=1, keepdims=True))
    return X / np.where(length == 0, 1, length)


def position_term(head: Record, record: Record) -> np.ndarray | None:
    """Return what the distances add, (q.r + b) times scale over temperature, from a record alone.

    Beside cosines the scale of a dot product stays, 1/sqrt(d_k): for that the term was learned.
    """
    if head["position_vectors"] is None:
        assert head["position_biases"] is None
        return None
    q, R, b = (np.array(head[name]) for name in ("q", "position_vectors", "position_biases"))
    reach, places = len(b) // 2, np.array(record["query_rows"] or range(len(q)))[:, np.newaxis]
    assert (len(R), len(b) % 2) == (len(b), 1)
    scale = q.shape[1] ** -0.5 if record["score"] == "cosine" else record["scale"]
    at = np.clip(np.arange(len(record["key_tokens"])) - places, -reach, reach) + reach
    term: np.ndarray = (np.einsum("id,ijd->ij", q, R[at]) + b[at]) * scale / record["temperature"]
    return term


def layer_output_joins_the_heads(record: Record) -> None:
    """Where every head is there, the layer's output is theirs side by side, times W_o, plus b_o."""
    if record.get("W_o") is None:
        return
    side_by_side = np.hstack([head["output"] for head in record["heads"]])
    W_o = np.array(record["W_o"])
    W_o = W_o.T if record["projection"]["layout"] == "out-in" else W_o
    if len(W_o) == side_by_side.shape[1]:
        b_o = 0 if record["b_o"] is None else np.array(record["b_o"])
        assert np.allclose(record["layer_output"], side_by_side @ W_o + b_o)


SMALL = ("-e", "random", "--dim", "4")
DEEP = ("-e", "six.txt", "-p", "deep.safetensors")


def cases(lines: str) -> list[tuple[str, ...]]:
    """Read commands, one a line: FOX, SMALL, DEEP and MASK stand for a text and for options."""
    named = {"FOX": (FOX,), "SMALL": SMALL, "DEEP": DEEP, "MASK": ("--mask", "mask.txt", "--mask-true")}
    words = (shlex.split(line) for line in lines.strip().splitlines())
    return [tuple(part for word in line for part in named.get(word, (word,))) for line in words]


TRACES = cases("""
self FOX
self FOX --steps
self FOX --steps -p roles -t 0.5 --score dot
self FOX --steps --score cosine -t 2 --head 3
self FOX --steps --mask window:1 --head subject
self FOX --steps -q jumped --head all
self FOX --steps --head mean --score cosine -q fox
self FOX --top 2 --steps
self "zzxq Walking 3.14 😀" --steps --tokenizer whitespace
self "zzxq coffee" --steps --oov zero
masked FOX --steps --head all -t 0.5
masked FOX --pad 2 --steps
explain FOX -q jumped --head object
self FOX --pad 2 -p roles-deep --head all --steps --layer 0
masked "zzxq likes Coffee" --steps -p roles-deep --layer 1 --head mean
self "the cat sees zz the dog" DEEP --steps --head all --mask causal
masked "the cat sees zz the dog" DEEP --steps --layer 1 --head 1 --score cosine
cross "the cat" "a zz sees" DEEP --steps --layer 0
cross "she likes" "coffee she" --steps --head all
explain she --context "likes coffee"
self "She likes coffee." --keep-punctuation
self "naïve 👩‍👩‍👧 déjà-vu" --tokenizer characters SMALL
self "Hello, wörld ‮ [red] <b> 😀 zzxq" --steps
self "zzxq coffee" --oov skip --steps
self FOX -p random --heads 4 --head mean --score dot
self FOX SMALL --heads 2 --head mean --steps --mask window:1
self FOX -p identity --heads 4 --head 3 --steps
self FOX SMALL -q THE --steps --mask causal
self FOX SMALL --top 99 --mask causal --heads 2 --head all --steps
self "x y" -e vectors.txt MASK allowed --steps -q x
self "x y" -e vectors.txt MASK blocked --heads 2 --head mean
self "x y" -e vectors.txt -p plain.json --steps
self "y x x" -e vectors.txt -p whole.json -q x --steps --top 1
self "x y" -e vectors.txt -p four.json --heads 2 --head mean --steps
self x -e vectors.txt -p identity --layout out-in
self "1e3 0.1" SMALL -t 1e-6 --steps
masked FOX --mask window:0 SMALL --steps -q dog
masked FOX --pad 2 --pad-side left --show mask SMALL
cross "a b c" "d e" SMALL --mask causal-bottom-right --steps --heads 2 --head all
cross "a b c" "d e" SMALL --pad 1 --mask window:0 --show mask
example day1 --mask causal --steps -q q1
example day1 --head mean --top 2
example coffee --score dot --heads 2 --head all --steps
example coffee-notebook
example dictionary --steps --head mean --heads 2 -t 0.1
lookup colour brand=Porche color=black
lookup speed "top speed=250" zzxq=95 --steps --mask key.txt --mask-true allowed
lookup x y=b x=a -e vectors.txt --steps -p random --heads 2 --head all
""")


@pytest.mark.parametrize("args", TRACES, ids=" ".join)
@like_cases
def test_a_computation_fits_the_schema_and_keeps_its_promises(args):
    record = printed(*args)
    keeps_promises(record)
    expected = {"explain": {"self", "masked", "cross"}}.get(args[0], {args[0]})
    assert record["kind"] in expected
    steps = "--steps" in args or args[0] == "explain"
    assert steps == ("x_query" in record)
    assert bool(record["heads"]) == (steps or {"mean", "all"} & set(args) != set())
    assert ("--top" in args) == record["condensed"]
    assert ("-q" in args) == (record["query_rows"] is not None)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.array(found, float), wanted, rtol=0, atol=1e-9)


def test_a_model_of_several_layers_says_where_a_head_stands():
    last = printed("self", "the cat sees", *DEEP)
    below = printed("self", "the cat sees", *DEEP, "--layer", "1", "--steps")
    for record, layer, head in ((last, 2, "first"), (below, 1, "0")):
        assert (record["projection"]["layer"], record["head"]) == (layer, head)
        known = [record["learned"][name] for name in ("layers", "about", "accuracy", "trained_on")]
        assert known == [3, None, None, []]
    assert last["layer_output"] is None and len(below["layer_output"][0]) == len(below["x_query"][0]) == 6


SAID = [
    *(None, 1, "x", "", [], ["x"], [""], [1], {}, {"x": 1}, True, 1e400, -1, {"first": ["x"]}, {"first": ""}),
    *({"first": {"accuracy": one, "baseline": -one}} for one in (2.0, 1e400, np.nan)),
    *({"first": {"accuracy": one, "baseline": 0.5}} for one in ("x", [], True)),
    *({"first": 3}, {"first": {"deep": 1}}, {"first": "\x1b[31mred\n\u202e"}, [1, None, ["x"]]),
    *("\x9b\n", ["\x1b]0;t\x07\n"]),
]


@pytest.mark.parametrize("key", ["about", "scores", "scored_on", "trained_on", "values"])
@pytest.mark.parametrize("value", SAID, ids=str)
def test_whatever_a_model_s_file_says_the_record_fits_the_schema_or_is_refused(key, value, place):
    facts = {"trained_on": ["a.conllu"], "values": "words", key: value}
    models.write(place / "m.safetensors", models.arrays(1), models.table(), ["first"], facts)
    of_model = ("the cat", "-e", "six.txt", "-p", "m.safetensors")
    code, out, err = here("self", *of_model, "-f", "json")
    assert code in (0, 65), err
    checked(read(err if code else out))
    shown, odd = here("explain", *of_model), ("\x1b", *(() if key == "about" else ("nan", "NaN", "Infinity")))
    assert shown.code == code and not [one for one in odd if one in shown.out]


def test_above_a_million_weights_links_stand_in_for_matrices(place):
    text = " ".join(f"w{i % 300}" for i in range(1001))
    shape = ("--tokenizer", "whitespace", *SMALL)
    for more in ((), ("-q", "5"), ("--top", "2"), ("--steps", "--heads", "2", "--head", "mean")):
        record = printed("masked", text, *shape, *more)
        keeps_promises(record)
        assert record["condensed"] and record["mask"] is None and record["mask_name"] == "causal"
        assert any("mask is causal" in note for note in record["notes"])


OTHERS = cases(f"""
example
vectors info
vectors nearest Colour
vectors nearest colour --top 40
vectors analogy man King woman
vectors analogy x y x -e vectors.txt
vectors list
learn score roles treebank.conllu
learn score {data_path("roles.safetensors")} treebank.conllu -e word2vec
""")


@pytest.mark.parametrize("args", OTHERS, ids=" ".join)
@pytest.mark.parametrize("format", ["json", "jsonl"])
@like_cases
def test_every_other_record_fits_the_schema(args, format):
    code, out, err = here(*args, "-f", format)
    assert (code, err) == (0, "")
    checked(read(out))
    assert format == "json" or out.count("\n") == 1


FAILURES = cases("""
2 self "a b" -f json --nosuch
2 self "a b" --tidy -o x.json
2 nosuch -f json
2 vectors nearest -fjson
2 self x -fjson --topp
2 self -ox.jsonl x y
2 -f json self x
2 self x -f json -o
2 --show-completion tcsh -f json
2 lookup colour black -f json
65 learn score roles vectors.txt -f json
65 learn score deep.safetensors treebank.conllu -e six.txt -f json
66 self "a b" -f json -p ./none.safetensors
73 self "a b" -o none/x.json
74 self "a b" -f json -o /dev/full
""")


@pytest.mark.parametrize("line", FAILURES, ids=" ".join)
def test_an_error_is_one_object_on_standard_error(line):
    code, *args = line
    ran = here(*args)
    assert (ran.code, ran.out) == (int(code), "")
    assert checked(read(ran.err))["error"]["code"] == ran.code


def test_attn_schema_prints_the_schema():
    assert json.loads(told("schema")) == SCHEMA


@given(text=st.text(max_size=30), tokenizer=st.sampled_from(["words", "whitespace", "characters"]))
@settings(max_examples=often(60), deadline=None)
def test_any_text_becomes_a_record_that_fits_or_is_refused(text, tokenizer):
    try:
        trace = trace_self(text, Settings(tokenizer=tokenizer, embedding="random", dim=2, mask="causal"))
    except InputError:
        return
    keeps_promises(checked(read(dumps(trace.to_dict(steps=True)))))


def test_the_schema_is_a_schema_and_every_key_of_it_is_described():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def described(node: object, path: str) -> None:
        if isinstance(node, dict):
            for name, child in node.get("properties", {}).items():
                if isinstance(child, dict) and not path.endswith((".then", ".else", ".if", "oneOf")):
                    reference = child.get("$ref", "").removeprefix("#/$defs/")
                    if "/" in reference:  # a key of another definition, which is described there
                        assert reference.endswith(f"/properties/{name}")
                        continue
                    if path.startswith(("schema.$defs.cut_", "schema.$defs.partial_")):  # likewise
                        continue
                    text = child.get("description") or DEFS.get(reference, {}).get("description")
                    assert text and text.endswith("."), f"{path}.{name} has no description"
            for name, child in node.items():
                if name not in ("then", "else", "if", "oneOf", "allOf"):
                    described(child, f"{path}.{name}")

    described(SCHEMA, "schema")


def test_a_record_holds_no_key_that_the_schema_does_not_describe():
    def same_keys(found, name):
        assert set(found) == set(DEFS[name]["properties"])

    record = printed("masked", "she likes", *SMALL, "--show", "mask", "--steps")
    for name in ("mask_views", "embedding", "projection"):
        same_keys(record[name], name)
    same_keys(record["summary"][0], "summary")
    for made in (record, printed("explain", "she likes coffee")):
        same_keys({*made, "mask_views", "entropy"}, "trace")
        same_keys({*made["heads"][0], "links"}, "head")
    same_keys(made["learned"], "learned")
    same_keys(made["output_words"][0][0], "neighbour")
    for which in ("examples", "vectors", "nearest", "config", "score"):
        record = good(which)
        same_keys(record, record["kind"])
    one_head = DEFS["score"]["properties"]["heads"]["items"]["properties"]
    assert {*one_head} == set.intersection(*(set(head) for head in record["heads"]))
    record = printed("lookup", "colour", "color=black", "hue=red", "--steps")
    assert {*record, "mask_views", "entropy"} == {*DEFS["trace"]["properties"], *DEFS["lookup"]["properties"]}
    for part in ("shares", "temperatures"):
        assert set(record[part][0]) == set(DEFS["lookup"]["properties"][part]["items"]["properties"])
    assert set(record["nearest"]) == set(DEFS["lookup"]["properties"]["nearest"]["properties"])


def test_the_schema_names_the_values_that_options_take_and_the_exit_codes_that_come_with_a_message():
    places = {"score": ("trace", "given"), "layout": ("projection",), "oov": ("embedding",)}
    for name, (part, *more) in places.items():
        choices = (*declared(Settings)[name].names(), *more, None)
        assert tuple(DEFS[part]["properties"][name]["enum"]) == choices

    codes = {value for value in vars(errors).values() if isinstance(value, int)}
    silent = {errors.FINE, errors.DIFFERENT, errors.INTERRUPTED}
    allowed = DEFS["error"]["properties"]["error"]["properties"]["code"]["enum"]
    assert set(allowed) == codes - silent


GOOD = {
    "trace": ("masked", "she likes coffee", *SMALL, "--steps"),
    "short": ("self", "she likes coffee", *SMALL, "--top", "2"),
    "examples": ("example",),
    "vectors": ("vectors", "info"),
    "nearest": ("vectors", "nearest", "colour", "--top", "2"),
    "analogy": ("vectors", "analogy", "man", "king", "woman", "--top", "2"),
    "vectors-list": ("vectors", "list"),
    "learned": ("explain", "she likes coffee"),
    "score": ("learn", "score", "roles", "treebank.conllu"),
    "lookup": ("lookup", "colour", "brand=Porche", "color=black", *SMALL, "--steps"),
    "acts": ("example", "dictionary"),
    "compare": ("compare", "she likes coffee", "--vary", "score=scaled,dot"),
    "config": ("config",),
}


def good(which: str) -> Record:
    error = {"code": 65, "message": "No.", "hint": None, "line": None}
    return {"schema": "attn/1", "error": error} if which == "error" else printed(*GOOD[which])


def short(value: Any) -> Any:
    """Keep two rows of each large matrix: what the schema says of one row it says of all."""
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items()}
    if isinstance(value, list) and len(value) > 9 and isinstance(value[0], list):
        return value[:2]
    return [short(inner) for inner in value] if isinstance(value, list) else value


MAPS = {"about", "replaced", "settings"}  # objects with keys of their own


def objects(value: Any) -> Iterator[Record]:
    """Yield the objects whose keys the schema names; of a list, the first stands for all."""
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key not in MAPS or not isinstance(inner, dict):
                yield from objects(inner)
    elif isinstance(value, list) and value:
        yield from objects(value[0])


@pytest.mark.parametrize("which", [*GOOD, "error"])
def test_every_required_key_is_missed_and_an_added_one_is_not(which):
    whole = checked(short(good(which)))
    for found in [*objects(whole)]:
        for key in [*found]:
            kept = found.pop(key)
            assert FITS(whole) == (key == "acts"), f"{key} is not missed"
            found[key] = kept
        found["added_later"] = {"anything": [1]}
        checked(whole)
        del found["added_later"]


# Of each record: where (a path of keys and places), and values of the right type that are wrong there.
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    "trace": {
        "kind": ("softmax",), "schema": ("attn/2",), "weights": ([], None), "weights 0 0": (2, -0.1, None),
        "links": ([[0, 0, 1.0]],), "condensed": (True,), "query_tokens": ([],), "query_tokens 0": ("",),
        "query_ids": (None,), "key_ids": (None,), "key_ids 0": (-1, 0.5), "query_rows": ([], [1, 1]),
        "unknown": (None, ["a", "a"]), "replaced": ({"a": 1},), "embedding source": ("glove",),
        "embedding dim": (0,), "embedding oov": ("guess", ""), "projection source": ("guessed", "learned"),
        "projection layout": ("x W",), "projection layer": (0,), "score": ("additive",), "scale": (0, None),
        "temperature": (0,), "mask": (None,), "mask_name": ("none",), "mask_convention": ("true = blocked",),
        "learned": ({},), "output": ([[]],), "output 0 0": (None,), "output_words": ([],),
        "summary 0 key": (None,), "summary 0 weight": (None, 1.5), "heads": ([],), "heads 0 weights": (None,),
        "heads 0 scores 0 0": (None,), "heads 0 scaled_scores": (None,), "heads 0 b_q": ([[1]],),
        "heads 0 position_biases": ([0.0],),
    },
    "short": {
        "weights": ([[1.0]],), "condensed": (False,), "links": (None,), "head": ("mean",),
        "links 0": ([0, 1], [0, 1, 0.5, 0.5], [-1, 1, 0.5], [0, 1.5, 0.5], [0, 1, 2]),
    },
    "examples": {"examples": ([],), "examples 0 about": ("",)},
    "vectors": {"words": (0,), "dtype": ("int8",), "source": ("random",)},
    "nearest": {"neighbours 0 cosine": (2,), "neighbours 0 word": (None,)},
    "analogy": {"words": (["man", "king"],)},
    "vectors-list": {"vectors 0 source": ("found",)},
    "learned": {
        "learned": (None,), "projection layer": (None,), "projection source": ("identity",),
        "learned model": ("",), "learned layers": (0,), "learned trained_on": (None, [1]),
        "learned about": ("",), "learned accuracy": (1.5,), "learned values": ("vectors",),
        "output_words 0": (None,), "output_words 0 0 cosine": (2,), "heads 0 position_vectors": (None,),
        "heads 0 position_biases": (None, [[0.0]]), "heads 0 position_scores 0 0": (None,),
    },
    "score": {
        "kind": ("scores",), "sentences": (0,), "heads": ([],), "heads 0 count": (-1, 0),
        "heads 0 accuracy": (None, 1.5), "heads 0 baseline": (None,), "heads 0 name": ("",),
    },
    "lookup": {
        "values": ([],), "cosines 0": (2,), "nearest cosine": (None,), "shares 0 weight": (2,),
        "shares 0 keys": ([],), "temperatures 0 temperature": (-1,), "temperatures 0 weights": ([],),
    },
    "acts": {"acts": ([],), "acts 0 kind": ("self",), "acts 0 shares": (None,)},
    "config": {
        "settings 0 source": ("file",), "settings 0 variable": ("ATTN_SEED",), "settings 0 line": (1,),
        "files": ([],), "unknown_variables": ([{"name": "ATTN_X"}],),
    },
    "error": {
        "kind": ("error",), "error line": (0,), "error code": (0,), "error message": ("",),
        "error hint": ("",),
    },
}  # fmt: skip


OPEN = {"settings", "value"}  # of any type


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield where the values of a record are; of a list, the first stands for all."""
    if isinstance(value, dict) and value:
        for key in value.keys() - OPEN:
            yield from leaves(value[key], f"{path} {key}")
    elif isinstance(value, list) and value:
        yield from leaves(value[0], f"{path} 0")
    else:
        yield path.strip()


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_record_is_rejected_and_so_is_another_kind_of_object(which):
    short_of_all = {}, {"schema": "attn/1"}, {"schema": "attn/1", "kind": "self"}
    assert not any(map(FITS, (*short_of_all, [], None, "attn/1")))
    whole = short(good(which))
    wrong = [(path, value) for path, values in WRONG[which].items() for value in values]
    for path, value in [*wrong, *((path, {"of": 7}) for path in leaves(whole))]:
        record = inner = copy.deepcopy(whole)
        *way, last = (int(step) if step.isdigit() else step for step in path.split())
        for step in way:
            inner = inner[step]
        inner[last] = value
        assert not FITS(record), (path, value)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_is_not_a_number_is_not_json(name):
    with pytest.raises(ValueError, match="not JSON"):
        read(f"[{name}]")
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps({"weights": [[float(name)]]})
