"""Keys: the bytes that a terminal sends for them, and their names."""

from __future__ import annotations

import re

_KEY = re.compile(
    "\x1b{1,2}(?:\\[\\[?[0-?]*[ -/]*[@-~]?|O.?)|\x1b[^\x1b[O]|.", re.DOTALL
)  # two: with Alt held down
_UNFINISHED = re.compile("\x1b(\\[\\[?[0-?]*[ -/]*|O)?$")
_MODIFIER = re.compile("1?;[0-9]+(?=.$)")  # Shift, Alt or Control, held down with a named key

_NAMES = {
    "\x0c": "redraw",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x1b": "escape",
}
_NAMES |= {"\x1b[5~": "pageup", "\x1b[6~": "pagedown"}
_NAMES |= {f"\x1b[{code}~": "home" for code in (1, 7)} | {f"\x1b[{code}~": "end" for code in (4, 8)}
for _letter, _name in zip("ABCDHF", ("up", "down", "right", "left", "home", "end"), strict=True):
    _NAMES |= {f"\x1b[{_letter}": _name, f"\x1bO{_letter}": _name}


def names_of(data: bytes) -> list[str]:
    r"""Return the names of the keys that sent these bytes; a character is its own name, an unknown key its bytes.

    >>> names_of(b"n 12")
    ['n', ' ', '1', '2']
    >>> names_of(b"q\r\x1b[6~\x1b[1;5C\x1b")
    ['q', 'enter', 'pagedown', 'right', 'escape']
    """
    keys = _KEY.findall(data.decode("utf-8", "replace"))
    return [_NAMES.get(_MODIFIER.sub("", key.replace("\x1b\x1b", "\x1b")), key) for key in keys]


def is_unfinished(data: bytes) -> bool:
    r"""Tell whether the bytes end inside a key that sends several, or with an Esc, which may begin one.

    >>> is_unfinished(b"\x1b"), is_unfinished(b"\x1b[6"), is_unfinished(b"q")
    (True, True, False)
    """
    return _UNFINISHED.search(data.decode("utf-8", "replace")) is not None
