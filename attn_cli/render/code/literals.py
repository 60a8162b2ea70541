"""Tokens, numbers and matrices as Python source: exact, inert, and laid out as formatters leave it."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from attn_cli.errors import visible
from attn_cli.io.types import Array, Bools
from attn_cli.render import short
from attn_cli.render.screen.text import cells

LINE = 100
LONGEST = 60  # cells of a piece of a token; a longer token is several pieces, which Python joins


def string(text: str) -> str:
    r"""Return text as a Python string: letters, digits and symbols as they are, all else as escapes.

    >>> print(string("fox's"), string(chr(27) + "[31m"), string("caf" + chr(233) + chr(0x202E)))
    "fox's" "\x1b[31m" "caf\xe9\u202e"
    """
    text = text.replace("\\", "\\\\") if _is_plain(text) else _escaped(text)
    mark = "'" if '"' in text and "'" not in text else '"'
    return mark + text.replace(mark, "\\" + mark) + mark


def _escaped(text: str) -> str:
    """Return text in ASCII; quotation marks stay, whichever they are."""
    return "".join(ascii(char)[1:-1] for char in text)


def _is_plain(text: str) -> bool:
    """Tell whether text can stand in source as it is: nothing unseen, and no accent on the quotation mark."""
    if text.isascii():
        return text.isprintable()
    kinds = " " + "".join(unicodedata.category(char)[0] for char in text)
    has_stray_accent = any(now == "M" and before not in "LM" for before, now in pairwise(kinds))
    return visible(text) == text and set(kinds[1:]) <= set("LMNPSZ") and not has_stray_accent


def row_label(token: str) -> str:
    """Return a token as the comment of a row: itself if it is a short word read left to right, else as a string."""
    rightward = all(unicodedata.bidirectional(char) == "L" for char in token if char.isalpha())
    return short(token) if token.isalnum() and _is_plain(token) and rightward else ascii(short(token))


def safe_name(name: str) -> str:
    """Return a name for a docstring: ASCII, on one line, and without what could end the docstring."""
    name = name.rpartition("/")[2]
    chars = [_escaped(char).replace('"', "'") for char in name[:LONGEST]]
    while len("".join(chars)) > LONGEST - 3:
        chars.pop()
    return "".join(chars) + ("" if len(chars) == len(name) else "...")


def commented(about: str, *lines: str) -> list[str]:
    """Return lines of a script under a comment of sentences."""
    wrapper = textwrap.TextWrapper(LINE, "# ", "# ", break_long_words=False, break_on_hyphens=False)
    return [*wrapper.wrap(about), *lines]


def call_lines(before: str, arguments: Sequence[str], after: str = "") -> list[str]:
    """Return a call, on a line if it fits, else with its arguments on lines of their own."""
    joined = ", ".join(arguments)
    if len(line := f"{before}({joined}){after}") <= LINE:
        return [line]
    inner = [f"    {joined}"] if len(joined) <= LINE - 4 else [f"    {one}," for one in arguments]
    return [f"{before}(", *inner, f"){after}"]


def number(value: float) -> str:
    """Return a number with all its digits, as Python reads it back."""
    text = repr(value).replace("e+", "e")
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text


def strings(name: str, values: Sequence[str]) -> list[str]:
    """Return the assignment of a list of tokens."""
    return vector(name, [piece for value in values for piece in _pieces(string(value))])


def _pieces(literal: str) -> list[str]:
    """Cut a very long string into pieces that Python joins; an escape is never cut."""
    if cells(literal) <= LONGEST:
        return [literal + ","]
    mark, inner = literal[0], literal[1:-1]
    pieces: list[str] = []
    start = at = width = 0
    while at < len(inner):
        size = {"x": 4, "u": 6, "U": 10}.get(inner[at + 1], 2) if inner[at] == "\\" else 1
        if width + size > LONGEST and unicodedata.category(inner[at])[0] != "M":
            pieces.append(mark + inner[start:at] + mark)
            start, width = at, 0
        width += cells(inner[at : at + size])
        at += size
    return [*pieces, mark + inner[start:] + mark + ","]


def vector(name: str, items: Sequence[str], around: tuple[str, str] = ("", "")) -> list[str]:
    """Return the assignment of a list of items, each with its comma; `around` is as for `matrix`."""
    opener, closer = around
    line = f"{name} = {opener}[{' '.join(items)[:-1]}]{closer}"
    if cells(line) <= LINE:
        return [line]
    return [f"{name} = {opener}[", *_filled(items, "    "), f"]{closer}  # fmt: skip"]


def matrix(name: str, array: Array | Bools, around: tuple[str, str], labels: Sequence[str]) -> list[str]:
    """Return the assignment of an array, a row a line or filled below its label; `around` is `np.array(` and `)`."""
    if array.ndim == 1:
        return vector(name, [number(x) + "," for x in array.tolist()], around)
    opener, closer = around
    rows = [[number(x) + "," for x in row] for row in array.tolist()]
    lines = [f"        [{' '.join(row)[:-1]}]," for row in rows]
    marked = [f"{text}  # {label}" if label else text for text, label in zip(lines, labels, strict=True)]
    end = ""
    if max(map(cells, lines)) > LINE:
        lines, end = [], "  # fmt: skip"
        for row, label in zip(rows, labels, strict=True):
            filled = _filled(row, "         ")
            filled[0] = f"        [{filled[0].strip()}"
            lines += [f"        # {label}"] if label else []
            lines += [*filled[:-1], filled[-1][:-1] + "],"]
    elif max(map(cells, marked)) <= LINE:
        lines = marked
    after = ["    ]"] if closer == ")" else ["    ],", f"    {closer[2:-1]},"]
    return [f"{name} = {opener}", "    [", *lines, *after, f"){end}"]


def _filled(items: Sequence[str], indent: str) -> list[str]:
    lines = [indent + items[0]]
    for item in items[1:]:
        if cells(lines[-1]) + 1 + cells(item) > LINE:
            lines.append(indent + item)
        else:
            lines[-1] += " " + item
    return lines
