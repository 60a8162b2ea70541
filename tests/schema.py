"""The schema of attn's JSON, and what a record has against it: compiled once, in Rust."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.shell import here

SCHEMA = json.loads((Path(__file__).parents[1] / "attn_cli" / "schema.json").read_text(encoding="utf-8"))
COMPLETE = {**SCHEMA, "oneOf": [{"$ref": "#/$defs/complete"}]}  # of records from which nothing was left out
_VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def complaints(record: object) -> list[str]:
    return [error.message for error in _VALIDATOR.iter_errors(record)]


def printed(*args: str) -> Any:
    """Return the record that a command prints as JSON, with which nothing is wrong."""
    ran = here(*args, "-f", "json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert complaints(found) == []
    return found
