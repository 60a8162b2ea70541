"""The schema of attn's JSON, and what a record has against it: compiled once, in Rust."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.shell import told

SCHEMA = json.loads((Path(__file__).parents[1] / "attn_cli" / "schema.json").read_text(encoding="utf-8"))
# Of records from which nothing was left out.
COMPLETE = jsonschema_rs.validator_for({**SCHEMA, "oneOf": [{"$ref": "#/$defs/complete"}]})
_VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def complaints(record: object) -> list[str]:
    return [error.message for error in _VALIDATOR.iter_errors(record)]


def checked(record: Any) -> Any:
    """Return a record, with which nothing is wrong and from which nothing was left out."""
    COMPLETE.validate(record)
    return record


def read(text: str) -> Any:
    """Parse JSON as the standard has it: NaN and Infinity are refused."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def printed(*args: str, **more: Any) -> Any:
    """Return the whole record that a command prints as JSON, without a word beside it."""
    return checked(read(told(*args, "-f", "json", **more)))
