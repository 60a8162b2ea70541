"""--fields: which keys the JSON has, and that each is what it is in the complete record."""

import json
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest

from attn_cli import Settings, trace_self
from attn_cli.settings.output import nodes_of
from tests.alike import assert_alike
from tests.shell import here
from tests.thorough import like_cases

SCHEMA = json.loads((Path(__file__).parents[2] / "attn_cli" / "schema.json").read_text(encoding="utf-8"))
FITS = jsonschema_rs.validator_for(SCHEMA).is_valid
FITS_COMPLETE = jsonschema_rs.validator_for({**SCHEMA, "oneOf": [{"$ref": "#/$defs/complete"}]}).is_valid
TEXT = "she likes coffee"
RANDOM = ("-e", "random", "--dim", "2")
COMMANDS = {
    "self": ("self", TEXT, *RANDOM),
    "steps": ("self", TEXT, *RANDOM, "--steps", "--positions", "sinusoidal"),
    "learned": ("self", TEXT),
    "top": ("masked", TEXT, *RANDOM, "--top", "1", "-q", "likes"),
    "cross": ("cross", "she", "likes coffee", *RANDOM, "--head", "mean", "--heads", "2"),
    "mask": ("masked", TEXT, *RANDOM, "--show", "mask"),
    "explain": ("explain", TEXT),
    "lookup": ("lookup", "colour", "brand=Porche", "color=black", *RANDOM),
    "example": ("example", "coffee"),
    "acts": ("example", "dictionary"),
    "swap": ("explain", TEXT, "--swap", "coffee=tea"),
    "compare": ("compare", TEXT, "--vary", "score=scaled,dot", *RANDOM),
}


@cache
def printed(*args):
    ran = here(*args, "-f", "json")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


@pytest.mark.parametrize("which", COMMANDS)
@like_cases
def test_every_key_can_be_had_alone_and_is_what_it_is_in_the_complete_record(which):
    whole = printed(*COMMANDS[which])
    assert FITS(whole) and FITS_COMPLETE(whole)
    for key in whole.keys() - {"schema", "kind"}:
        part = printed(*COMMANDS[which], "--fields", key)
        assert_alike(part, {"schema": "attn/1", "kind": whole["kind"], key: whole[key]})
        assert FITS(part), key
        assert not FITS_COMPLETE(part), key


@pytest.mark.parametrize("which", COMMANDS)
def test_the_keys_stand_in_the_order_of_the_schema_whatever_the_order_asked_for(which):
    whole = printed(*COMMANDS[which])
    keys = [key for key in nodes_of(whole["kind"]) if key in whole]
    assert list(whole) == keys
    backwards = ",".join(reversed(keys[2:-1]))
    assert list(printed(*COMMANDS[which], "--fields", backwards)) == keys[:-1]


DOTTED = {
    "self": "embedding.dim,summary.weight",
    "learned": "learned.model,projection.layer,diagnostics.entropy",
    "cross": "heads.weights,heads.name,query_tokens",
    "steps": "heads.q,heads.W_k,heads.masked_scores",
    "lookup": "shares.value,nearest.cosine,heads.name",
    "acts": "acts.weights,acts.summary.key",
    "swap": "swap.rows.query,records.embedding.name",
    "compare": "largest_mover.key,records.weights,records.summary.key",
}


def chosen(value, paths):
    """What dotted names choose, worked out from the complete record."""
    if isinstance(value, list):
        return [chosen(one, paths) for one in value]
    return {
        key: value[key]
        if [key] in paths
        else chosen(value[key], [path[1:] for path in paths if path[0] == key])
        for key in value
        if key in {path[0] for path in paths}
    }


@pytest.mark.parametrize("which", DOTTED)
def test_a_dot_chooses_keys_of_objects_and_of_the_objects_of_a_list(which):
    whole = printed(*COMMANDS[which])
    part = printed(*COMMANDS[which], "--fields", DOTTED[which])
    paths = [name.split(".") for name in ("schema", "kind", *DOTTED[which].split(","))]
    assert_alike(part, chosen(whole, paths))
    assert FITS(part) and not FITS_COMPLETE(part)
    assert not FITS(part | {"summary": [{"weight": "much"}]})


def test_a_step_of_heads_is_there_where_it_is_named():
    args = ("self", TEXT, *RANDOM)
    assert_alike(
        printed(*args, "--fields", "heads.scores,heads.v"),
        printed(*args, "--steps", "--fields", "heads.v,heads.scores"),
    )
    assert printed(*args, "--fields", "heads,heads.name") == printed(*args, "--fields", "heads")


def test_all_is_the_complete_record():
    for fields in ("all", "weights,all", " all "):
        assert_alike(printed(*COMMANDS["self"], "--fields", fields), printed(*COMMANDS["self"]))


def test_a_matrix_of_a_step_is_there_where_it_is_named():
    with_steps = printed(*COMMANDS["self"], "--steps")
    part = printed(*COMMANDS["self"], "--fields", "x_key")
    assert part["x_key"] == with_steps["x_key"] and part["x_key"]


def test_a_key_that_does_not_apply_is_null():
    assert printed("example", "coffee", "--fields", "acts,links")["acts"] is None
    Path("ready.json").write_text(here("self", TEXT, *RANDOM, "-f", "json", "--fields", "weights").out)
    shown = {"schema": "attn/1", "kind": "show", "x_query": None}
    assert printed("show", "ready.json", "--fields", "x_query") == shown


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_partial_record_of_weights_can_be_shown(tmp_path):
    part = here("self", TEXT, *RANDOM, "-f", "json", "--fields", "query_tokens,key_tokens,weights").out
    Path("part.json").write_text(part)
    shown = printed("show", "part.json")
    whole = printed("self", TEXT, *RANDOM)
    assert_alike([shown[key] for key in ("weights", "key_tokens")], [whole["weights"], whole["key_tokens"]])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("wieghts", "Did you mean weights?"),
        ("weights,", "cannot be ''"),
        ("", "cannot be ''"),
        ("values", "JSON of kind self has no key 'values'."),
        ("kind", "which are always there"),
        ("mask_views", "with --show mask only"),
        ("heads.wieghts", "Did you mean heads.weights?"),
        ("weights.0", "weights has no key '0'."),
        ("embedding.", "embedding has no key ''."),
        ("haeds.q", "Did you mean heads?"),
        ("\x1b[31m", "cannot be '^[[31m'"),
    ],
)
def test_an_unknown_key_is_wrong_usage(fields, said):
    ran = here("self", TEXT, *RANDOM, "-f", "json", "--fields", fields)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1 and said in json.loads(ran.err)["error"]["message"] + ran.err


def test_a_variable_chooses_keys_and_leaves_what_has_no_such_keys_alone():
    env = {"ATTN_FIELDS": "weights"}
    ran = here(*COMMANDS["self"], "-f", "json", env=env)
    assert list(json.loads(ran.out)) == ["schema", "kind", "weights"]
    for args in (COMMANDS["self"], (*COMMANDS["self"], "-f", "csv"), (*COMMANDS["compare"], "-f", "json")):
        assert here(*args, env=env) == here(*args)
    ran = here(*COMMANDS["self"], env={"ATTN_FIELDS": "wieghts"})
    assert (ran.code, ran.out) == (78, "") and ran.err.startswith("attn: ATTN_FIELDS: ")


def test_a_file_chooses_keys_for_a_command():
    Path("attn.toml").write_text('[self]\nfields = "summary"\n')
    ran = here(*COMMANDS["self"], "-f", "json")
    assert list(json.loads(ran.out)) == ["schema", "kind", "summary"]
    assert "settings from attn.toml: fields" in ran.err
    assert here(*COMMANDS["self"]).out.startswith("Self-attention")
    assert len(json.loads(here(*COMMANDS["top"], "-f", "json").out)) > 30


@pytest.mark.parametrize("more", [(), ("--kind", "masked"), ("-q", "cat")])
def test_a_line_of_a_batch_is_what_the_command_prints_with_the_same_fields(more):
    Path("lines.txt").write_text("the cat sat\na cat\n")
    fields = ("--fields", "query_tokens,weights,notes,summary.key")
    kind = "masked" if "masked" in more else "self"
    rest = ("-p", "roles") if "masked" in more else more
    each = [here(kind, text, *rest, *fields, "-f", "jsonl").out for text in ("the cat sat", "a cat")]
    lines = here("batch", "lines.txt", *more, *fields).out.splitlines()
    assert [*map(json.loads, lines)] == [*map(json.loads, each)]


def test_a_bad_line_keeps_its_error_object():
    Path("lines.txt").write_text("the cat sat\n...\n")
    ran = here("batch", "lines.txt", "--keep-going", "--fields", "weights")
    first, second = map(json.loads, ran.out.splitlines())
    assert (ran.code, list(first), second["error"]["line"]) == (65, ["schema", "kind", "weights"], 2)


def test_what_is_not_asked_for_is_not_made(monkeypatch):
    trace = trace_self(TEXT, Settings(embedding="random"))
    monkeypatch.setattr(type(trace), "diagnoses", lambda *args: pytest.fail("diagnoses were made"))
    assert list(trace.to_dict(keys=("weights", "summary"))) == ["weights", "summary"]
    named = trace_self(TEXT, Settings(embedding="random", head="all", heads=2))
    assert list(named.to_dict(keys={"heads": {"weights": None}})["heads"][1]) == ["weights"]


@pytest.mark.parametrize("kind", ["trace", "lookup", "compare"])
def test_a_partial_record_may_have_each_key_of_a_complete_one(kind):
    definitions = SCHEMA["$defs"]
    assert list(definitions[f"partial_{kind}"]["properties"]) == list(definitions[kind]["properties"])
    assert set(definitions[f"{kind}_required"]["required"]) <= set(definitions[kind]["properties"])


def test_what_a_dot_may_choose_is_what_there_is():
    definitions = SCHEMA["$defs"]
    cut = [name for name in definitions if name.startswith("cut_")]
    assert "cut_head" in cut
    for name in cut:
        whole = definitions[name.removeprefix("cut_")]
        assert list(definitions[name]["properties"]) == list(whole["properties"])
