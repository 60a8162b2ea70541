"""What a screen is made of. A screen is a list of blocks; a drawer turns blocks into lines or pages.

Blocks hold raw tokens. Every drawer makes every string inert itself, in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


class Heading(NamedTuple):
    """A heading; level 1 is the screen's, 2 a part's, 3 a step's."""

    text: str
    level: int = 2


class Say(NamedTuple):
    """A paragraph of plain words; a quiet one is an aside."""

    text: str
    quiet: bool = False


class Formula(NamedTuple):
    """Arithmetic or a formula, in characters that hold no token."""

    text: str
    before: str = ""  # words in front, which may hold tokens
    latex: str = ""  # the same as the paper writes it, for LaTeX


class Matrix(NamedTuple):
    """A matrix with labels; NaN is masked. `more` says what was left out."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Array
    corner: str = ""
    sums: Sequence[str] = ()
    is_weights: bool = False
    shaded: bool = False
    fits: bool = False  # show only as many columns as fit, and say how many more there are
    more: str = ""
    row_numbers: Sequence[int] | None = None  # the rows' places in the text, where columns may be numbered
    digits: int | None = None  # where the numbers are wanted with just so many digits
    is_difference: bool = False  # of two matrices of weights: signs are written, and zero is neutral
    marks: tuple[str, str] | None = None  # what 0 and 1 are written as, in place of numbers
    scale: tuple[float, float] | None = (
        None  # where shades run from other numbers than its own least and largest
    )
    around: int | None = None  # the column to have in the middle of those that fit, if not the first ones


def fitting_columns(block: Matrix, across: int) -> slice:
    """Return which columns to show where there is room for so many."""
    n = int(block.values.shape[1])
    start = 0 if block.around is None else max(0, min(block.around - across // 2, n - across))
    return slice(start, min(start + across, n))


def digits_of(block: Matrix, precision: int | None) -> int | None:
    """Return how many digits a matrix is to have: as --precision says, else as the block does; None is what fits."""
    return block.digits if precision is None else precision


class Beside(NamedTuple):
    """Matrices with the same rows and columns, next to each other where they fit; they share one scale of shades."""

    titles: Sequence[str]
    parts: Sequence[Matrix]


class Columns(NamedTuple):
    """A small table of text: a label, then numbers already written."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Links(NamedTuple):
    """The strongest keys of each query, strongest first: (query, [(key, weight as text), ...])."""

    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    none: str = "masked"  # what stands where there is no link


class Bars(NamedTuple):
    """A bar for each label; `largest` is the value of the longest bar; None is masked."""

    title: str
    items: Sequence[tuple[str, float | None]]
    largest: float


class Maps(NamedTuple):
    """Small multiples: a small map of shades for each head, side by side. NaN is masked.

    Where rows and columns are blocks of queries and of keys, they are named by the first of each block.
    """

    names: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Array]
    largest: float
    row_numbers: Sequence[int]
    column_numbers: Sequence[int] | None = (
        None  # the keys' places in the text, where columns are blocks of them
    )
    least: float = 0.0  # shades run from here to the largest


Block = Heading | Say | Formula | Matrix | Beside | Maps | Columns | Links | Bars
