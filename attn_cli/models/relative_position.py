"""What a head adds to a score for the distance of two words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Ints


class Position(NamedTuple):
    """What a head adds for the distance of two words: a vector r (d_k,) and a number b for each distance.

    R is (2 reach + 1, d_k), b (2 reach + 1,): from `reach` or more words to the left, over 0 in the middle,
    to `reach` or more to the right. A key at that distance counts as k + r (Shaw, Uszkoreit and Vaswani
    2018, "Self-Attention with Relative Position Representations", equation 4); b is ours.
    """

    R: Array
    b: Array

    @property
    def reach(self) -> int:
        """The distance up to which distances differ."""
        return len(self.b) // 2

    def by_distance(self, q: Array, factor: float = 1.0) -> Array:
        """Return (q.r + b) * factor for each distance, (rows, 2 reach + 1), of the queries q (rows, d_k).

        Raises InputError where it is more than a number can hold: infinity would pass for a mask.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            added = ((q @ self.R.T + self.b) * factor).astype(q.dtype, copy=False)
        if not np.isfinite(added).all():
            raise InputError("The position term is more than a number can hold.", "Scale R and b down.")
        return added

    def scores(self, q: Array, rows: Ints, n_k: int, factor: float = 1.0) -> Array:
        """Return what `by_distance` adds to each key's score, (rows, n_k), for the queries of the words at `rows`."""
        reach = self.reach
        by_distance = self.by_distance(q, factor)
        distance = np.clip(np.arange(n_k) - rows[:, np.newaxis], -reach, reach)
        return np.take_along_axis(by_distance, distance + reach, axis=1)
