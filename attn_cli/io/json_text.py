"""JSON text that is safe to print: what a terminal would obey or hide is written as its number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from attn_cli.errors import HIDDEN

# All hidden characters of a JSON text are among these: DEL to no-break space, the soft hyphen, U+0300 and beyond. They
# are compiled at the first use, and written as a complement: a class up to U+10FFFF takes 5 ms to compile.
_SUSPECT, _BEYOND_ASCII = "[^\x00-\x7e\xa1-\xac\xae-\u02ff]", "[^\x00-\x7f]"


def json_line(record: Mapping[str, Any], ascii_only: bool = False) -> bytes:
    r"""Return the record as one inert line of JSON. NumPy arrays in it are lists; what is not finite is null.

    >>> json_line({"token": chr(27) + "[31m", "weights": [0.5, float("-inf")]})
    b'{"token":"\\u001b[31m","weights":[0.5,null]}\n'
    """
    import orjson  # only those who write many records pay for it

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    try:
        data: bytes = orjson.dumps(record, option=options)
    except TypeError:  # half a character, as of a file's name that is not UTF-8
        data = orjson.dumps(_without_halves(record), option=options)
    if data.isascii() and b"\x7f" not in data:
        return data
    text = _inert(data.decode())
    return (re.sub(_BEYOND_ASCII, _numbered, text) if ascii_only else text).encode()


def dumps(record: Mapping[str, object], lines: bool = False, ascii_only: bool = False) -> str:
    """Return the record as inert JSON text ending in a newline; with `lines`, all on one line."""
    from json import JSONEncoder

    as_json = JSONEncoder(allow_nan=False, ensure_ascii=ascii_only).encode
    return _inert(as_json(record) if lines else _laid_out(record, "", as_json)) + "\n"


def _laid_out(value: object, indent: str, as_json: Callable[[object], str]) -> str:
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        parts = [f"{as_json(key)}: {_laid_out(one, inner, as_json)}" for key, one in value.items()]
        joined = ", ".join(parts)
        if len(joined) <= 88 and "\n" not in joined:
            return "{" + joined + "}"
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], (list, Mapping)):
        parts = [_laid_out(item, inner, as_json) for item in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "]"
    if isinstance(value, list) and value and isinstance(value[0], float):
        import orjson  # five times as fast; it writes very small and large numbers in another way

        data: bytes = orjson.dumps(value)
        if not (b"e" in data or b"0.0000" in data or b"null" in data):
            return data.replace(b",", b", ").decode()
    return as_json(value)


def _inert(text: str) -> str:
    """Return JSON text with each character that a terminal would obey or hide as its number, which means the same."""
    if text.isascii() and "\x7f" not in text:
        return text
    from unicodedata import category

    def written(found: re.Match[str]) -> str:
        return _numbered(found) if category(found[0]) in HIDDEN else found[0]

    return re.sub(_SUSPECT, written, text)


def _numbered(found: re.Match[str]) -> str:
    r"""Return a character as \uXXXX, beyond the first 65,536 as two of them."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _without_halves(value: Any) -> Any:
    """Return the value with each lone surrogate in its texts as U+FFFD, and arrays whose rows lie apart as lists."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_halves(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
