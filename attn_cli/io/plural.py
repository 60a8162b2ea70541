"""Numbers as words see them: with their nouns, and zero without a sign."""

from __future__ import annotations


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
