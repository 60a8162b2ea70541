"""Tokens as labels of saved weights: typed, or read from a file or a record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence

from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.record import json_of
from attn_cli.io.escape import as_utf8, visible
from attn_cli.io.files import looks_like_file, read_bytes

MOST_BYTES = 1 << 28


def typed_tokens(value: str, option: str, batch: int | None = None) -> tuple[str, ...]:
    """Return the tokens of an option's value: words between spaces, a JSON list, or a file of tokens.

    `batch` takes one text of several.
    """
    if looks_like_file(value) and (not re.search(r"\s", value) or os.path.isfile(value)):
        return _tokens_file(value, batch)
    value = as_utf8(value)
    listed = _json_list(value)
    tokens = tuple(value.split()) if listed is None else strings(_one(listed, batch), option)
    if not tokens:
        raise UsageError(f"{option} holds no token.", "Give them between spaces, or in a file.", option)
    return tokens


def _tokens_file(path: str, batch: int | None) -> tuple[str, ...]:
    """Read a JSON list, or a token on each line."""
    name = visible(path)
    text = read_bytes(path, MOST_BYTES).decode("utf-8-sig", "replace")
    listed = _json_list(text)
    if listed is None and path.lower().endswith(".json"):
        json_of(text.encode(), name)  # raises where it is not JSON
        raise InputError(f"{name} is no JSON list of tokens.", 'Write ["The", "cat"].')
    if listed is None:
        listed = [line.rstrip("\r") for line in text.rstrip("\r\n").split("\n")]
    return strings(_one(listed, batch), name)


def _json_list(text: str) -> Sequence[object] | None:
    """Return a JSON list; None for anything else, such as `[CLS] The cat [SEP]`."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def strings(values: Sequence[object], where: str) -> tuple[str, ...]:
    """Return the values as tokens; raise InputError, which `where` begins, for an empty one or another type."""
    tokens = []
    for place, value in enumerate(values):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if not isinstance(text, str) or not text:
            what = "is empty" if text == "" else "is not a string"
            raise InputError(f"{where}: token {place} {what}.", "Give each token a name.")
        tokens.append(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    return tuple(tokens)


def _one(values: Sequence[object], batch: int | None) -> Sequence[object]:
    """Return the tokens of one text of a batch; the values themselves where there is no batch."""
    chosen = values[batch or 0] if 0 <= (batch or 0) < len(values) else None
    return chosen if isinstance(chosen, list) and (len(values) == 1 or batch is not None) else values


def texts(
    record: Mapping[str, object], key: str, name: str, batch: int | None = None
) -> tuple[str, ...] | None:
    """Return the tokens that a record holds under a key; None where it has none."""
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise InputError(f"{name}: {key} should be a list of tokens.")
    return strings(_one(value, batch), f"{name}: {key}")
