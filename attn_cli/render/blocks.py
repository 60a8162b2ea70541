"""What a screen is made of. A screen is a list of blocks; a drawer turns blocks into lines or pages.

Blocks hold raw tokens. Every drawer makes every string inert itself, in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the screen's, 2 a part's, 3 a step's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Say:
    """A paragraph of plain words; a quiet one is an aside."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Formula:
    """Arithmetic or a formula, in characters that hold no token."""

    text: str
    before: str = ""  # words in front, which may hold tokens


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix with labels; NaN is masked. `more` says what was left out."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: NDArray[np.floating[Any]]
    corner: str = ""
    sums: Sequence[str] = ()
    is_weights: bool = False
    shaded: bool = False
    fits: bool = False  # show only as many columns as fit, and say how many more there are
    more: str = ""


@dataclass(frozen=True)
class Columns:
    """A small table of text: a label, then numbers already written."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Bars:
    """A bar for each label; `largest` is the value of the longest bar; None is masked."""

    title: str
    items: Sequence[tuple[str, float | None]]
    largest: float


Block = Heading | Say | Formula | Matrix | Columns | Bars
