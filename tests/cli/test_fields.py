"""--fields: which keys the JSON has, and that each is what it is in the complete record."""

import json
import shlex
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest

from attn_cli import Settings, trace_self
from attn_cli.settings.output import nodes_of
from tests.alike import assert_alike
from tests.cli.tables import pairs
from tests.schema import COMPLETE, SCHEMA
from tests.shell import here
from tests.thorough import like_cases

FITS = jsonschema_rs.validator_for(SCHEMA).is_valid
FITS_COMPLETE = COMPLETE.is_valid
COMMANDS = {
    name: tuple(
        shlex.split(line.replace("TEXT", "'she likes coffee'").replace("RANDOM", "-e random --dim 2"))
    )
    for name, line in pairs("""
    self => self TEXT RANDOM | steps => self TEXT RANDOM --steps --positions sinusoidal | learned => self TEXT
    top => masked TEXT RANDOM --top 1 -q likes | cross => cross she 'likes coffee' RANDOM --head mean --heads 2
    mask => masked TEXT RANDOM --show mask | explain => explain TEXT | example => example coffee
    lookup => lookup colour brand=Porche color=black RANDOM | acts => example dictionary
    swap => explain TEXT --swap coffee=tea | compare => compare TEXT --vary score=scaled,dot RANDOM
    """).items()
}


@cache
def printed(*args):
    ran = here(*args, "-f", "json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert list(found) == [key for key in nodes_of(found["kind"]) if key in found], "the order of the schema"
    return found


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


DOTTED = pairs("""
self => embedding.dim,summary.weight | learned => learned.model,projection.layer,diagnostics.entropy
cross => heads.weights,heads.name,query_tokens | steps => heads.q,heads.W_k,heads.masked_scores
lookup => shares.value,nearest.cosine,heads.name | acts => acts.weights,acts.summary.key
swap => swap.rows.query,records.embedding.name | compare => largest_mover.key,records.weights,records.summary.key
""")


def chosen(value, paths):
    """What dotted names choose, worked out from the complete record."""
    if isinstance(value, list):
        return [chosen(one, paths) for one in value]
    below = {key: [path[1:] for path in paths if path[0] == key] for key in value}
    return {
        key: one if [] in below[key] else chosen(one, below[key]) for key, one in value.items() if below[key]
    }


@pytest.mark.parametrize("which", DOTTED)
def test_a_dot_chooses_keys_of_objects_and_of_a_list_s_and_they_stand_in_the_order_of_the_schema(which):
    whole = printed(*COMMANDS[which])
    part = printed(*COMMANDS[which], "--fields", DOTTED[which])
    paths = [name.split(".") for name in ("schema", "kind", *DOTTED[which].split(","))]
    assert_alike(part, chosen(whole, paths))
    assert FITS(part) and not FITS_COMPLETE(part)
    assert not FITS(part | {"summary": [{"weight": "much"}]})


def test_a_step_is_there_where_it_is_named_all_is_everything_and_a_variable_or_a_file_chooses_keys(at):
    args = COMMANDS["self"]
    named = printed(*args, "--fields", "heads.scores,heads.v")
    assert_alike(named, printed(*args, "--steps", "--fields", "heads.v,heads.scores"))
    assert printed(*args, "--fields", "heads,heads.name") == printed(*args, "--fields", "heads")
    x_key = printed(*args, "--fields", "x_key")["x_key"]
    assert x_key == printed(*args, "--steps")["x_key"] and x_key
    for fields in ("all", "weights,all", " all "):
        assert_alike(printed(*args, "--fields", fields), printed(*args))
    assert printed("example", "coffee", "--fields", "acts,links")["acts"] is None
    assert printed("example", "--fields", "examples") == printed("example")  # the list of them
    Path("part.json").write_text(here(*args, "-f", "json", "--fields", "query_tokens,key_tokens,weights").out)
    part = {"schema": "attn/1", "kind": "show", "x_query": None}
    assert printed("show", "part.json", "--fields", "x_query") == part
    shown, whole = printed("show", "part.json"), printed(*args)
    assert_alike([shown[key] for key in ("weights", "key_tokens")], [whole["weights"], whole["key_tokens"]])
    env = {"ATTN_FIELDS": "weights"}
    ran = here(*COMMANDS["self"], "-f", "json", env=env)
    assert list(json.loads(ran.out)) == ["schema", "kind", "weights"]
    for args in (COMMANDS["self"], (*COMMANDS["self"], "-f", "csv"), (*COMMANDS["compare"], "-f", "json")):
        assert here(*args, env=env) == here(*args)
    Path("attn.toml").write_text('[self]\nfields = "summary"\n')
    ran = here(*COMMANDS["self"], "-f", "json")
    assert list(json.loads(ran.out)) == ["schema", "kind", "summary"]
    assert "settings from attn.toml: fields" in ran.err
    assert here(*COMMANDS["self"]).out.startswith("Self-attention")
    assert len(json.loads(here(*COMMANDS["top"], "-f", "json").out)) > 30


def test_what_is_not_asked_for_is_not_made_and_each_key_of_a_complete_record_may_be_asked_for(monkeypatch):
    trace = trace_self("she likes coffee", Settings(embedding="random"))
    monkeypatch.setattr(type(trace), "diagnoses", lambda *args: pytest.fail("diagnoses were made"))
    assert list(trace.to_dict(keys=("weights", "summary"))) == ["weights", "summary"]
    named = trace_self("she likes coffee", Settings(embedding="random", head="all", heads=2))
    assert list(named.to_dict(keys={"heads": {"weights": None}})["heads"][1]) == ["weights"]
    known = {name: list(one.get("properties", ())) for name, one in SCHEMA["$defs"].items()}
    for kind in ("trace", "lookup", "compare"):
        assert known[f"partial_{kind}"] == known[kind]
        assert set(SCHEMA["$defs"][f"{kind}_required"]["required"]) <= set(known[kind])
    cut = [name for name in known if name.startswith("cut_")]
    assert "cut_head" in cut and all(known[name] == known[name.removeprefix("cut_")] for name in cut)
