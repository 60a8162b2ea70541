"""Sinusoidal position encodings (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

BASE = 10_000.0


def sinusoidal(n: int, d: int) -> Array:
    """Return the encodings P (n, d) of the places 0 to n - 1.

    P[pos, 2i] = sin(pos / 10000^(2i/d)), P[pos, 2i + 1] = cos of the same angle (Vaswani et al. 2017,
    "Attention Is All You Need", section 3.5). An odd d leaves out the last cosine.

    >>> sinusoidal(2, 4).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    angles = np.arange(n)[:, np.newaxis] / BASE ** (np.arange(0, d, 2) / d)
    P = np.empty((n, d))
    P[:, 0::2] = np.sin(angles)
    P[:, 1::2] = np.cos(angles[:, : d // 2])
    return P
