"""The width ladder: which way of writing numbers lets all columns of a matrix stand beside each other.

Numbers lose digits before they are dropped: digits, then whole percent, then heat blocks of two cells and of one.
What does not fit even then goes to pages of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.io.terminal import Terminal
from attn_cli.render.blocks import Bars, Maps, Matrix
from attn_cli.render.numbers import PERCENT, Format, fitting, number, scientific, share, signed, weight
from attn_cli.render.palette import SHADES

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints

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
UNSEEN = 0.0005  # three digits show nothing of it
NUMBERED = "Columns are numbered as the rows are."


def rungs(block: Matrix) -> tuple[Rung, ...]:
    """Return the rungs for a matrix, the most exact first; fixed digits are the only rung."""
    if block.marks is not None:
        loose = Rung("", Format("", marks=block.marks))
        return (loose, loose._replace(gap=0)) if max(map(len, block.marks)) == 1 else (loose,)
    if block.is_difference:
        if block.digits is not None:
            return (Rung("", signed(weight(block.digits))),)
        if 0 < largest(block.values) < UNSEEN:
            return (Rung("", signed(scientific(2))), Rung("", signed(scientific(1))), DIFFERENCES[-1])
        return DIFFERENCES
    if block.is_weights:
        return WEIGHTS if block.digits is None else (Rung("", weight(block.digits)),)
    formats = tuple(Rung("", form) for form in fitting(largest(block.values), block.digits))
    return formats + BLOCKS if block.digits is None else formats


def exact(block: Matrix) -> Format:
    """Return the format of a matrix's first rung, which always writes numbers."""
    form = rungs(block)[0].format
    assert form is not None
    return form


def largest(values: Array) -> float:
    """Return the largest size of any number in a matrix; 0 if it has none."""
    known = values[np.isfinite(values)]
    return float(np.abs(known).max()) if known.size else 0.0


class Drawn(NamedTuple):
    """A matrix written on one rung: its texts, and the width that the widest needs."""

    rung: Rung
    width: int
    texts: list[list[str]]
    shade: Ints
    margin: str  # what stands between the row labels and the first cell besides the gap


def drawn(rung: Rung, values: Array, shade: Ints, terminal: Terminal) -> Drawn:
    """Write every number of `values` on this rung; a masked one (NaN) is written as nan and not shown."""
    margin = "" if rung.gap else " "
    if rung.format is None:
        ramp = rung.ramp or bars(terminal)
        marks = [ramp[i * len(ramp) // SHADES] * rung.block for i in range(SHADES)]
        texts = [[marks[place] for place in row] for row in shade.tolist()]
        return Drawn(rung, rung.block, texts, shade, margin)
    texts = [rung.format.row(row) for row in values.tolist()]
    if np.isnan(values).any():
        widths = [max([len(text) for text in row if not text.endswith("nan")], default=1) for row in texts]
    else:
        widths = [len(max(row, key=len)) for row in texts]
    return Drawn(rung, max(widths, default=1), texts, shade, margin)


def bar_numbers(block: Bars, precision: int | None) -> list[str]:
    """Return what is written beside each bar."""
    show = share if precision is None else number(precision)
    return ["masked" if value is None else show(value) for _, value in block.items]


def bars(terminal: Terminal) -> str:
    """Return the characters for shades without numbers, from the least to the largest."""
    return BARS if terminal.unicode else DIGITS


def map_format(block: Maps) -> Format:
    """Return the format of a map's numbers: the mean of a block may be far smaller than a weight."""
    return weight(3) if block.column_numbers is None else Format("%.2g")
