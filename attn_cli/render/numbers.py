"""Numbers as text: rounded to be read, never cut off; a masked one is never written as zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attn_cli.io.plural import fixed, unsigned_zero


class Format(NamedTuple):
    """How to write a number: a printf template, after multiplying by `factor`.

    `bare` numbers lie between 0 and 1 and go without the zero before the point.
    """

    template: str
    factor: float = 1.0
    bare: bool = False
    marks: tuple[str, str] | None = None  # what 0 and 1 are written as, in place of a number

    def __call__(self, value: float) -> str:
        """Return one number as text."""
        return self.row([value])[0]

    def row(self, values: Sequence[float]) -> list[str]:
        """Return a row of numbers as texts; the whole row is formatted in one go."""
        if self.marks is not None:
            return [self.marks[value == 1] for value in values]
        if self.factor != 1:
            values = [self.factor * value for value in values]
        text = f"\0{self.template}" * len(values) % tuple(values)
        if self.bare:
            text = text.replace("\x000.", "\x00.")
            if "+" in self.template:
                text = text.replace("\x00+0.", "\x00+.").replace("\x00-0.", "\x00-.")
            items = text[1:].split("\0")
            return items if text.count("\x00.") == len(items) else [self._one(item) for item in items]
        return [unsigned_zero(item) for item in text[1:].split("\0")]

    def _one(self, text: str) -> str:
        if text[0] == ".":
            return text
        if text[-1] == "n":
            return "nan"
        return unsigned_zero(text) if text[1] == "." and text[0] in "+-" else text[:-1].rstrip(".")


PERCENT = Format("%.0f", factor=100.0)  # a weight in whole percent, without the sign


def weight(digits: int) -> Format:
    """Return the format of a weight (0 to 1) with that many decimals: .336, and 1.00 for one.

    >>> weight(3)(0.33567), weight(3)(1.0), weight(0)(0.6)
    ('.336', '1.00', '1')
    """
    return Format(f"%.{digits}f", bare=digits > 0)


def signed(form: Format) -> Format:
    """Return the format with a sign before every number but zero.

    >>> signed(weight(3)).row([0.0121, -0.104, 0.00001]), signed(PERCENT).row([0.052, -0.2, 0.0])
    (['+.012', '-.104', '.000'], ['+5', '-20', '0'])
    """
    return form._replace(template=form.template.replace("%", "%+", 1))


def number(digits: int) -> Format:
    """Return the format of any number with that many decimals.

    >>> number(2)(1.2884), number(2)(-0.001), number(0)(7.6)
    ('1.29', '0.00', '8')
    """
    return Format(f"%.{digits}f")


def scientific(digits: int) -> Format:
    """Return the format of any number in powers of ten.

    >>> scientific(2)(1288400.0)
    '1.29e+06'
    """
    return Format(f"%.{digits}e")


def share(weight: float) -> str:
    """Return a weight for a sentence or a list: three decimals, or two significant digits if it is small.

    >>> share(0.3357), share(0.00106), share(1.0), share(0.0)
    ('0.336', '0.0011', '1.000', '0.000')
    """
    return fixed(weight, 3) if weight == 0 or weight >= 0.01 else f"{weight:.2g}"


def fitting(largest: float, precision: int | None = None) -> list[Format]:
    """Return the formats for a matrix whose largest absolute value is `largest`, the most exact first.

    >>> [form(0.5) for form in fitting(0.5)], fitting(4e9)[0](4e9)
    (['0.500', '0.50', '0.5'], '4.000e+09')
    """
    tiny = 0 < largest < 10.0 ** -(2 if precision is None else precision)
    make = scientific if largest >= 1e6 or tiny else number
    if precision is not None:
        return [make(precision)]
    kept = [d for d in (3, 2, 1) if make is scientific or d == 3 or largest >= 10.0**-d]
    return [make(d) for d in kept]


def four(value: float) -> str:
    """Return a number with four decimals, or in powers of ten where these would show nothing or too much.

    >>> four(0.71464), four(0.0), four(2.5e-7), four(1234567.8)
    ('0.7146', '0.0000', '2.50e-07', '1.2346e+06')
    """
    if abs(value) >= 1e5:
        return f"{value:.4e}"
    return f"{value:.2e}" if 0 < abs(value) < 0.00005 else fixed(value, 4)


def plain(value: float, digits: int = 4) -> str:
    """Return a number for a sentence: at most `digits` decimals, without trailing zeros.

    >>> plain(12.5), plain(0.1), plain(0.33567137), plain(2.0), plain(1e-9)
    ('12.5', '0.1', '0.3357', '2', '1e-09')
    """
    if value and (abs(value) < 10.0**-digits or abs(value) >= 1e6):
        return f"{value:.{digits}g}"
    return unsigned_zero(f"{value:.{digits}f}".rstrip("0").rstrip("."))
