"""The keys that a record of each kind can have, as schema.json names them, and those that --fields chooses."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.settings.declare import split

SCHEMA = Path(__file__).parents[1] / "schema.json"
ALL_KEYS = "all"
ALWAYS = ("schema", "kind")  # in every record
NO_TRACES = ("compare", "examples")  # kinds with keys of their own
# Keys that a record has only if an option of the command adds them.
ADDED = {"mask_views": "--show mask"}


def _no_key(name: str, kind: str) -> UsageError:
    hint = f"{did_you_mean(name, keys_of(kind))}attn schema names the keys of each kind."
    return UsageError(f"JSON of kind {kind} has no key {visible(name)!r}.", hint, "--fields")


@cache
def keys_of(kind: str) -> tuple[str, ...]:
    """Return the keys of a record of this kind (self, lookup, compare, ...), in the order that they have there."""
    import json  # only those who choose keys need them

    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    keys, lookup = ([*definitions[name]["properties"]] for name in ("trace", "lookup"))
    if kind in NO_TRACES:
        return tuple(definitions[kind]["properties"])
    more = {"lookup": lookup, "example": ["acts"]}.get(kind, [])
    at = keys.index("notes")
    return (*keys[:at], *more, *keys[at:])


def every_key() -> tuple[str, ...]:
    """Return every value that a name in --fields can have."""
    kinds = ("lookup", "example", "compare", "examples")
    return tuple(dict.fromkeys([ALL_KEYS, *(key for kind in kinds for key in keys_of(kind))]))


def chosen_keys(fields: str | None, kind: str, added: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the keys that `fields` chooses of a record of this kind, in the record's order; None for all.

    `added` are the keys that an option of the command adds. Raises UsageError for a key that no record of this kind
    has, and where nothing is chosen.
    """
    names = ALWAYS if fields is None else split(fields)
    if fields is None or ALL_KEYS in names:
        return None
    keys = keys_of(kind)
    for name in names:
        if name in ADDED and name in keys and name not in added:
            raise UsageError(f"{name} is there with {ADDED[name]} only.", option="--fields")
        if name not in keys:
            raise _no_key(name, kind)
    if set(names) <= set(ALWAYS):
        raise UsageError(
            "--fields names no key but schema and kind, which are always there.",
            "Try: --fields weights,summary",
            "--fields",
        )
    return tuple(key for key in keys if key in ALWAYS or key in names)
