"""The width ladder: which way of writing numbers lets all columns of a matrix stand beside each other.

Numbers lose digits before they lose themselves: digits, then whole percent, then heat blocks of two cells
and of one. What does not fit even then goes to pages of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.io.terminal import Terminal
from attn_cli.render.numbers import Format, fitting, marked, percent, scientific, signed, weight
from attn_cli.render.palette import SHADES

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

BARS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"
SIGNS = "vvvvvvv..^^^^^^^"  # from the most negative shade to the most positive


class Rung(NamedTuple):
    """One way to draw a cell: a format for numbers, or a bar that is `block` cells wide.

    `ramp` has the bars from the least shade to the largest, where they are not the usual ones.
    """

    told: str
    format: Format | None
    block: int = 0
    ramp: str = ""
    gap: int = 1  # between columns of numbers


BLOCKS = (Rung("heat blocks of two cells", None, 2), Rung("heat blocks of one cell", None, 1))
WEIGHTS = (
    Rung("", weight(3)),
    Rung("two digits", weight(2)),
    Rung("weights in whole percent", percent()),
    *BLOCKS,
)


DIFFERENCES = (
    *(Rung(rung.told, signed(rung.format)) for rung in WEIGHTS if rung.format is not None),
    Rung("^ is up, v is down, a dot is less than an eighth of the largest", None, 1, SIGNS),
)
UNSEEN = 0.0005  # three digits show nothing of it


def rungs(
    values: Array,
    is_weights: bool,
    precision: int | None,
    is_difference: bool = False,
    marks: tuple[str, str] | None = None,
) -> tuple[Rung, ...]:
    """Return the rungs for a matrix, the most exact first; a fixed precision is the only rung.

    `marks` are written in place of 0 and 1.
    """
    if marks is not None:
        loose = Rung("", marked(*marks))
        return (loose, loose._replace(gap=0)) if max(map(len, marks)) == 1 else (loose,)
    if is_difference:
        if precision is not None:
            return (Rung("", signed(weight(precision))),)
        if 0 < largest(values) < UNSEEN:
            return (Rung("", signed(scientific(2))), Rung("", signed(scientific(1))), DIFFERENCES[-1])
        return DIFFERENCES
    if is_weights:
        return WEIGHTS if precision is None else (Rung("", weight(precision)),)
    formats = tuple(Rung("", form) for form in fitting(largest(values), precision))
    return formats + BLOCKS if precision is None else formats


def largest(values: Array) -> float:
    """Return the largest size of any number in a matrix; 0 if it has none."""
    known = values[np.isfinite(values)]
    return float(np.abs(known).max()) if known.size else 0.0


class Drawn(NamedTuple):
    """A matrix written on one rung: its texts, and the width that the widest needs."""

    rung: Rung
    width: int
    gap: int
    texts: list[list[str]]

    @property
    def margin(self) -> str:
        """What stands between the row labels and the first cell besides the gap."""
        return "" if self.gap else " "


def drawn(rung: Rung, values: Array, shade: Ints, terminal: Terminal) -> Drawn:
    """Write every number of `values` on this rung; what is masked (NaN) is written as nan, and not shown."""
    if rung.format is None:
        ramp = rung.ramp or (BARS if terminal.unicode else DIGITS)
        marks = [ramp[i * len(ramp) // SHADES] * rung.block for i in range(SHADES)]
        return Drawn(rung, rung.block, 0, [[marks[place] for place in row] for row in shade.tolist()])
    texts = [rung.format.row(row) for row in values.tolist()]
    has_masked = bool(np.isnan(values).any())
    widths = [
        len(max(row, key=len))
        if not has_masked
        else max([len(t) for t in row if not t.endswith("nan")], default=1)
        for row in texts
    ]
    return Drawn(rung, max(widths, default=1), rung.gap, texts)


def shading(values: Array, low: float, high: float) -> Ints:
    """Return each value's shade, 0 to SHADES - 1 between low and high; -1 where masked."""
    span = high - low or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.rint((values - low) / span * (SHADES - 1))
    shades: Ints = np.where(np.isnan(values), -1, np.nan_to_num(places)).astype(np.intp)
    return shades
