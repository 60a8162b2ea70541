"""JSON that is JSON (never NaN), inert in a terminal, and laid out to be read: a row of a matrix a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from unicodedata import category

# Above ASCII, what a terminal would obey or hide is written as \uXXXX, which means the same to a parser.
_SUSPECT = re.compile("[\x7f-\xa0\xad\u0300-\U0010ffff]")


def dumps(record: Mapping[str, object], lines: bool = False, ascii_only: bool = False) -> str:
    """Return the record as JSON text ending in a newline; with `lines`, all on one line."""
    if lines:
        return _inert(json.dumps(record, allow_nan=False, ensure_ascii=ascii_only)) + "\n"
    text = _laid_out(record, "", ascii_only)
    return _inert(text) + "\n"


def _laid_out(value: object, indent: str, ascii_only: bool) -> str:
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        parts = [
            f"{json.dumps(key, ensure_ascii=ascii_only)}: {_laid_out(v, inner, ascii_only)}"
            for key, v in value.items()
        ]
        joined = ", ".join(parts)
        if len(joined) <= 88 and "\n" not in joined:
            return "{" + joined + "}"
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], (list, Mapping)):
        parts = [_laid_out(item, inner, ascii_only) for item in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "]"
    return json.dumps(value, allow_nan=False, ensure_ascii=ascii_only)


def _inert(text: str) -> str:
    if text.isascii() and "\x7f" not in text:
        return text
    return _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
