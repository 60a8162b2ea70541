"""Make any text safe to print, JSON too: what would be obeyed or unseen is spelled out instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Cc are C0, DEL and C1; Cf are the bidi controls, zero-width characters and tags; Zl and Zp break
# lines; Cs are lone surrogates, which no encoding accepts; Co and Cn have no agreed picture; Zs are spaces.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_ZWJ = "\u200d"
# All hidden characters of a JSON text are among these: DEL to no-break space, the soft hyphen, U+0300 and beyond. They
# are compiled at the first use, and written as a complement: a class up to U+10FFFF takes 5 ms to compile.
_SUSPECT, _BEYOND_ASCII = "[^\x00-\x7e\xa1-\xac\xae-\u02ff]", "[^\x00-\x7f]"
LONGEST = 60  # characters of a name in a list

# Drawn as nothing although Unicode calls them letters or marks: fillers, the grapheme joiner, selectors.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0")
# What isprintable() lets through: these, and the selectors.
_UNSEEN = _BLANK.union(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_SPECIAL = frozenset('"$`\\!')  # that mean something between double quotes
_ENDING = frozenset("\\'!")  # that end $'...', or that the history of a shell might take


def visible(text: str) -> str:
    """Return `text` with each character that a terminal or a page would obey or hide spelled out.

    C0 and DEL become caret notation, everything else `<U+XXXX>`. A zero-width joiner between two
    symbols (a family emoji) and a variation selector after a visible character stay. Spaces other
    than U+0020 are spelled out too: a token that holds one must not look like two.

    >>> visible(chr(27) + "[31m"), visible(chr(0x202E))
    ('^[[31m', '<U+202E>')
    """
    if text.isprintable() and (text.isascii() or _UNSEEN.isdisjoint(text)):
        return text
    return "".join(_spell(text, i) for i in range(len(text)))


def shell_quote(word: str, double: bool = False) -> str:
    r"""Return a word as one types it in bash or zsh; what a terminal would obey or hide is written as its bytes.

    `double` prefers double quotes, where no character of the word means anything between them. What no argument can
    hold, NUL and a lone surrogate that stands for no byte, becomes U+FFFD.

    >>> print(shell_quote("the fox's"), shell_quote("a" + chr(27) + "[31m"), shell_quote("it " + chr(0x202E) + "is!"))
    'the fox'"'"'s' $'a\x1b[31m' $'it \xe2\x80\xaeis\x21'
    """
    import shlex  # only commands need it

    if visible(word) != word:
        return f"$'{''.join(map(_as_bytes, word))}'"
    if double and not _SPECIAL.intersection(word):
        return f'"{word}"'
    return f"'{word}'" if word.startswith("=") and shlex.quote(word) == word else shlex.quote(word)


def _as_bytes(char: str) -> str:
    if visible(char) == char and char not in _ENDING:
        return char
    if char == "\0" or ("\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff"):
        char = "\ufffd"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def shortened(text: str, longest: int = 24) -> str:
    """Return a text for a sentence: visible, and cut off where it is longer than one can hold."""
    return visible(text if len(text) <= longest else f"{text[:longest]}...")


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return at most so many names for a sentence, as `shortened` has them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(shortened(name, LONGEST) for name in names[:most]) + more) or "nothing"


def _spell(text: str, i: int) -> str:
    import unicodedata  # plain text, the usual case, does without

    char = text[i]
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    if char == " ":
        return char
    if char == _ZWJ and _joins_emoji(text, i):
        return char
    if 0xFE00 <= code <= 0xFE0F:
        return char if i and unicodedata.category(text[i - 1])[0] in "LNPS" else f"<U+{code:04X}>"
    is_hidden = 0xE0100 <= code <= 0xE01EF or char in _BLANK or unicodedata.category(char) in _HIDDEN
    return f"<U+{code:04X}>" if is_hidden else char


def _joins_emoji(text: str, i: int) -> bool:
    """Tell whether the joiner at i stands between two pictures, a selector after the first allowed."""
    from unicodedata import category

    before = i - 2 if i >= 2 and text[i - 1] == "\ufe0f" else i - 1
    sides = (text[before : before + 1] if before >= 0 else "", text[i + 1 : i + 2])
    return all(one and (category(one) == "So" or "\U0001f3fb" <= one <= "\U0001f3ff") for one in sides)


def as_utf8(argument: str) -> str:
    """Return a command-line argument read as UTF-8 in any locale; bytes that are not UTF-8 become U+FFFD."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def count(n: int, one: str, many: str) -> str:
    """Return `1 key` or `3 keys`."""
    return f"{n:,} {one if n == 1 else many}"


def fixed(value: float, digits: int, kind: str = "f") -> str:
    """Return a number with that many decimals, or with `kind` "%" in percent; what rounds to zero has no sign.

    >>> fixed(-0.0004, 3), fixed(-1e-17, 1, "%"), fixed(-0.5, 2)
    ('0.000', '0.0%', '-0.50')
    """
    return unsigned_zero(f"{value:.{digits}{kind}}")


def unsigned_zero(text: str) -> str:
    """Return a number's text, without its sign if all of its figures are zeros.

    >>> unsigned_zero("-0.00"), unsigned_zero("-0.01"), unsigned_zero("+0")
    ('0.00', '-0.01', '0')
    """
    return text[1:] if text[:1] in ("+", "-") and not text.strip("+-0.e%") else text


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
        return _numbered(found) if category(found[0]) in _HIDDEN else found[0]

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
