"""Strict JSON (never NaN), safe in a terminal, and laid out to be read: a row of a matrix a line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attn_cli.io.json_line import inert


def dumps(record: Mapping[str, object], lines: bool = False, ascii_only: bool = False) -> str:
    """Return the record as JSON text ending in a newline; with `lines`, all on one line."""
    text = _as_json(record, ascii_only) if lines else _laid_out(record, "", ascii_only)
    return inert(text) + "\n"


def _as_json(value: object, ascii_only: bool) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=ascii_only)


def _laid_out(value: object, indent: str, ascii_only: bool) -> str:
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        parts = [
            f"{_as_json(key, ascii_only)}: {_laid_out(item, inner, ascii_only)}"
            for key, item in value.items()
        ]
        joined = ", ".join(parts)
        if len(joined) <= 88 and "\n" not in joined:
            return "{" + joined + "}"
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], (list, Mapping)):
        parts = [_laid_out(item, inner, ascii_only) for item in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "]"
    return _as_json(value, ascii_only)
