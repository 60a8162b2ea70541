"""Rounding of inputs, so that the numbers shown are the numbers used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

WHOLE = 2.0**52  # from here on, a double has no digits after the point


def to_digits(M: Array, digits: int) -> Array:
    """Return M in float64, rounded to so many digits after the point.

    >>> to_digits(np.array([0.126, -0.001]), 2).tolist()
    [0.13, 0.0]
    """
    M = M.astype(np.float64)
    fine = np.abs(M) < WHOLE
    return np.where(fine, np.round(np.where(fine, M, 0), digits) + 0.0, M)  # the sum makes -0.0 a plain zero
