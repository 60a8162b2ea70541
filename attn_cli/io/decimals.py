"""Numbers that know how many decimals they were written with: 0.30 has two."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([-+]?[0-9]+))?\s*")
MOST = 400  # a double has no more decimals worth counting


class Written(float):
    """A number with the decimals that it was written with."""

    __slots__ = ("decimals",)
    decimals: int

    def __new__(cls, text: str) -> Written:
        """Read a number from its text; ValueError where it is none."""
        made = super().__new__(cls, text)
        made.decimals = decimals(text)
        return made


def is_number(text: str) -> bool:
    """Tell whether a text is a number in figures; `nan`, `inf` and `1_000` are none.

    >>> is_number("-1.5e3"), is_number(".5"), is_number("inf"), is_number("1_000")
    (True, True, False, False)
    """
    return _NUMBER.fullmatch(text) is not None


def decimals(text: str) -> int:
    """Return how many decimals the text of a number shows; none where it is not written in figures.

    >>> decimals("0.30"), decimals("12"), decimals("1.5e-3"), decimals("1.25e1"), decimals("NaN")
    (2, 0, 4, 1, 0)
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return 0
    exponent = found[3] or "0"
    power = int(exponent) if len(exponent) < 6 else (-MOST if exponent[0] == "-" else MOST)
    return min(MOST, max(0, len(found[1] or found[2] or "") - power))
