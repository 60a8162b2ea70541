"""A record as one line of JSON, fast: arrays are written as they are, each number as the shortest text of its dtype."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from unicodedata import category

# Characters that a terminal would obey or hide are written as \uXXXX, which means the same to a parser.
_SUSPECT = re.compile("[\x7f-\xa0\xad\u0300-\U0010ffff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")


def inert(text: str) -> str:
    """Return JSON text with each character that a terminal would obey or hide as its number."""
    return _SUSPECT.sub(_numbered_if_hidden, text)


def json_line(record: Mapping[str, Any], ascii_only: bool = False) -> bytes:
    r"""Return the record as one inert line of JSON. NumPy arrays in it are lists; what is not finite is null.

    >>> json_line({"token": chr(27) + "[31m", "weights": [0.5, float("-inf")]})
    b'{"token":"\\u001b[31m","weights":[0.5,null]}\n'
    """
    import orjson  # only those who write many records pay for it

    data: bytes
    try:
        data = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half a character, as of a file's name that is not UTF-8
        data = orjson.dumps(
            _without_halves(record), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        )
    if data.isascii() and b"\x7f" not in data:
        return data
    text = inert(data.decode())
    return (_BEYOND_ASCII.sub(_numbered, text) if ascii_only else text).encode()


def _without_halves(value: Any) -> Any:
    """Return the value with each lone surrogate in its texts as U+FFFD, and arrays whose rows lie apart as lists."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_halves(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _numbered_if_hidden(found: re.Match[str]) -> str:
    return _numbered(found) if category(found[0]) in _HIDDEN else found[0]


def _numbered(found: re.Match[str]) -> str:
    r"""Return a character as \uXXXX, beyond the first 65,536 as two of them."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


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
