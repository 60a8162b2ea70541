"""The schema of attn's JSON, and what a record has against it: compiled once, in Rust."""

import json
from pathlib import Path

import jsonschema_rs

SCHEMA = json.loads((Path(__file__).parents[1] / "attn_cli" / "schema.json").read_text(encoding="utf-8"))
_VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def complaints(record: object) -> list[str]:
    """Return what is wrong with a record."""
    return [error.message for error in _VALIDATOR.iter_errors(record)]
