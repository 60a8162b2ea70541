"""Strict JSON (never NaN), safe in a terminal, and laid out to be read: a row of a matrix a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from unicodedata import category

# Characters that a terminal would obey or hide are written as \uXXXX, which means the same to a parser.
_SUSPECT = re.compile("[\x7f-\xa0\xad\u0300-\U0010ffff]")


def dumps(record: Mapping[str, object], lines: bool = False, ascii_only: bool = False) -> str:
    """Return the record as JSON text ending in a newline; with `lines`, all on one line."""
    text = _as_json(record, ascii_only) if lines else _laid_out(record, "", ascii_only)
    return _SUSPECT.sub(_escaped, text) + "\n"


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


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
        return char
    return json.dumps(char)[1:-1]
