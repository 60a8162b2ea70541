"""The floor: what attention in NumPy does not get round, the two matrix products and the exponential, alone.

No row is shifted, summed or divided, nothing is masked, and the tile is always the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_cli.bench.records import Case
from attn_cli.bench.timing import Side
from attn_cli.core.streaming import FEWEST_ROWS, MOST_ROWS, TILE, WHOLE, WIDE
from attn_cli.core.tiles import quickest

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


def floor(case: Case, Q: Array, K: Array, V: Array) -> Side:
    """Return the floor of a case, in tiles of attn's own size; under a causal mask, of what may be seen alone."""
    power = quickest(Q.dtype.itemsize).of
    rows, wide = tile(case, Q.dtype.itemsize)
    room = np.empty(rows * wide, Q.dtype)
    output = np.empty((rows, case.dim), Q.dtype)
    heads = [M.reshape(-1, *M.shape[-2:]) for M in (Q * Q.dtype.type(case.dim**-0.5), K, V)]

    def go() -> None:
        for q, k, v in zip(*heads, strict=True):
            for start in range(0, case.tokens, rows):
                part = q[start : start + rows]
                end = min(start + rows, case.tokens) if case.causal else case.tokens
                for low in range(0, end, wide):
                    high = min(low + wide, end)
                    scores = room[: len(part) * (high - low)].reshape(len(part), high - low)
                    np.matmul(part, k[low:high].T, out=scores)
                    power(scores, out=scores)
                    np.matmul(scores, v[low:high], out=output[: len(part)])

    return go


def tile(case: Case, itemsize: int) -> tuple[int, int]:
    """Return the rows and keys of a tile: with weights, whole rows, which become part of the answer."""
    if case.job == "weights":
        return min(case.tokens, MOST_ROWS, max(FEWEST_ROWS, WHOLE // (case.tokens * itemsize))), case.tokens
    return min(case.tokens, TILE // (WIDE * itemsize)), min(case.tokens, WIDE)
