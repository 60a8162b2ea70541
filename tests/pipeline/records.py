"""What the tests of this folder share: the records that attn prints, checked by the schema, and small files."""

import json
from pathlib import Path

import jsonschema_rs
import numpy as np

from tests.shell import here

SCHEMA = json.loads((Path(__file__).parents[2] / "attn_cli" / "schema.json").read_text(encoding="utf-8"))
COMPLETE = jsonschema_rs.validator_for({**SCHEMA, "oneOf": [{"$ref": "#/$defs/complete"}]})


def checked(record):
    COMPLETE.validate(record)
    return record


def record(*args, **more):
    """Run attn, and return its JSON."""
    ran = here(*args, "-f", "json", **more)
    assert ran.code == 0, ran.err
    return checked(json.loads(ran.out))


def told(*args):
    """Return what attn says, and fail if it refuses."""
    ran = here(*args)
    assert ran.code == 0, ran.err
    return ran.out


def written(path, record):
    """Write a record of arrays as JSON, and return the file's name."""
    plain = {
        key: M.tolist() if isinstance(M, np.ndarray) else M for key, M in record.items() if M is not None
    }
    path.write_text(json.dumps(plain))
    return path.name
