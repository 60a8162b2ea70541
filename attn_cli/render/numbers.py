"""Numbers as text: rounded to be read, never cut off; a masked one is never written as zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_cli.errors import unsigned_zero
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import Array, NamedTuple
from attn_cli.render import Bars, Maps, Matrix, share


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
        items = (f"\0{self.template}" * len(values) % tuple(values))[1:].split("\0")
        return [*map(self._bare, items, values)] if self.bare else [*map(unsigned_zero, items)]

    def _bare(self, text: str, value: float) -> str:
        sign, zero, decimals = text.partition("0.")
        if zero and sign in ("", "+", "-"):
            return unsigned_zero(f"{sign}.{decimals}")
        if text[-1] == "n":
            return "nan"
        whole, _, decimals = self.template[:-1].partition(".")
        return f"{whole}.{int(decimals) - 1}f" % value  # as wide as those below 1


PERCENT = Format("%.0f", factor=100.0)  # a weight in whole percent, without the sign


def weight(digits: int) -> Format:
    """Return the format of a weight (0 to 1) with that many decimals: .336, and 1.00 for one.

    >>> weight(3)(0.33567), weight(3)(1.0), weight(0)(0.6)
    ('.336', '1.00', '1')
    """
    return Format(f"%.{digits}f", bare=digits > 0)


def signed(form: Format) -> Format:
    """Return the format with a sign before every number but zero.

    >>> signed(weight(3)).row([0.0121, -0.104, 0.00001, 1.186]), signed(PERCENT).row([0.052, -0.2, 0.0])
    (['+.012', '-.104', '.000', '+1.19'], ['+5', '-20', '0'])
    """
    return form._replace(template=form.template.replace("%", "%+", 1))


def number(digits: int) -> Format:
    """Return the format of any number with that many decimals."""
    return Format(f"%.{digits}f")


def scientific(digits: int) -> Format:
    """Return the format of any number in powers of ten."""
    return Format(f"%.{digits}e")


def fitting(largest: float, precision: int | None = None) -> list[Format]:
    """Return the formats for a matrix whose largest absolute value is `largest`, the most exact first.

    >>> [form(0.5) for form in fitting(0.5)], [form(0.01) for form in fitting(0.01)], fitting(1e6)[0](1e6)
    (['0.500', '0.50', '0.5'], ['0.010', '0.01'], '1.000e+06')
    >>> [form(0.0099) for form in fitting(0.0099)], fitting(0.01, 2)[0](0.01), fitting(0.004, 2)[0](0.004)
    (['9.900e-03', '9.90e-03', '9.9e-03'], '0.01', '4.00e-03')
    >>> [form(0.0) for form in fitting(0.0)]
    ['0.000']
    """
    tiny = 0 < largest < 10.0 ** -(2 if precision is None else precision)
    make = scientific if largest >= 1e6 or tiny else number
    if precision is not None:
        return [make(precision)]
    kept = [d for d in (3, 2, 1) if make is scientific or d == 3 or largest >= 10.0**-d]
    return [make(d) for d in kept]


BARS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"
SIGNS = "vvvvvvv..^^^^^^^"  # from the most negative shade to the most positive


class Rung(NamedTuple):
    """One way to draw a cell: a format for numbers, or a bar that is `block` cells wide."""

    name: str  # "" for the most exact ones
    format: Format | None
    block: int = 0
    ramp: str = ""  # bars from the least shade to the largest, where they are not the usual ones
    gap: int = 1  # between columns of numbers


BLOCKS = (Rung("heat blocks of two cells", None, 2, gap=0), Rung("heat blocks of one cell", None, 1, gap=0))
WEIGHTS = (
    Rung("", weight(3)),
    Rung("two digits", weight(2)),
    Rung("weights in whole percent", PERCENT),
    *BLOCKS,
)
DIFFERENCES = (
    *(Rung(rung.name, signed(rung.format)) for rung in WEIGHTS if rung.format is not None),
    Rung("^ is up, v is down, a dot is less than an eighth of the largest", None, 1, SIGNS, gap=0),
)
UNSEEN, TWO_UNSEEN = 0.0005, 0.005  # three digits show nothing of it, two of it
NUMBERED = "Columns are numbered as the rows are."


def rungs(block: Matrix) -> tuple[Rung, ...]:
    """Return the rungs for a matrix, the most exact first; fixed digits are the only rung."""
    if block.marks is not None:
        loose = Rung("", Format("", marks=block.marks))
        return (loose, loose._replace(gap=0)) if max(map(len, block.marks)) == 1 else (loose,)
    if block.is_difference:
        if block.digits is not None:
            return (Rung("", signed(weight(block.digits))),)
        size = largest(block.values)
        if 0 < size < UNSEEN:
            return (Rung("", signed(scientific(2))), Rung("", signed(scientific(1))), DIFFERENCES[-1])
        shown = 1 if 0 < size < TWO_UNSEEN else 2 if size > 1 else 3  # percents are of shares
        return *DIFFERENCES[:shown], DIFFERENCES[-1]
    if block.is_weights:
        return WEIGHTS if block.digits is None else (Rung("", weight(block.digits)),)
    formats = tuple(Rung("", form) for form in fitting(largest(block.values), block.digits))
    return formats + BLOCKS if block.digits is None else formats


def exact(block: Matrix) -> Format:
    """Return the format of a matrix's first rung, which always writes numbers."""
    return next(rung.format for rung in rungs(block) if rung.format is not None)


def largest(values: Array) -> float:
    """Return the largest size of any number in a matrix; 0 if it has none."""
    known = values[np.isfinite(values)]
    return float(np.abs(known).max()) if known.size else 0.0


def bar_numbers(block: Bars, precision: int | None) -> list[str]:
    """Return what is written beside each bar."""
    show = share if precision is None else number(precision)
    return ["masked" if value is None else show(value) for _, value in block.items]


def bars(terminal: Terminal) -> str:
    """Return the characters for shades without numbers, from the least to the largest."""
    return BARS if terminal.unicode else DIGITS


def map_format(block: Maps) -> Format:
    """Return the format of a map's numbers: the mean of a block may be far smaller than a weight."""
    if block.is_norms:
        return fitting(block.scale.most)[0]
    return weight(3) if block.column_numbers is None else Format("%.2g")
