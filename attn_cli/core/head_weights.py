"""One head's weights, and what is applied to its queries and keys: norm weights, rotation, a term for the distance."""

from __future__ import annotations

import numpy as np

from attn_cli.core.attention import project
from attn_cli.errors import InputError
from attn_cli.io.array_types import Array
from attn_cli.io.classes import NamedTuple


class Position(NamedTuple):
    """What a head adds for the distance of two words: a vector r (d_k,) and a number b for each distance.

    R is (2 reach + 1, d_k), b (2 reach + 1,): from `reach` or more words to the left, over 0 in the middle,
    to `reach` or more to the right. A key at that distance counts as k + r (Shaw, Uszkoreit and Vaswani
    2018, "Self-Attention with Relative Position Representations", equation 4); b is ours.
    """

    R: Array
    b: Array

    def by_distance(self, q: Array, factor: float = 1.0) -> Array:
        """Return (q.r + b) * factor for each distance, (rows, 2 reach + 1), of the queries q (rows, d_k).

        Raises InputError where it is more than a number can hold: infinity would pass for a mask.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            added = ((q @ self.R.T + self.b) * factor).astype(q.dtype, copy=False)
        if not np.isfinite(added).all():
            raise InputError("The position term is more than a number can hold.", "Scale R and b down.")
        return added


class Rotated(NamedTuple):
    """A head's queries (n_q, d_k) and keys (n_k, d_k) rotated by position (rotary; Su et al. 2021, RoFormer).

    A score of the rotated ones depends on the vectors and on the distance of their positions. Its difference from the
    score of the unrotated vectors is what distance adds.
    """

    q: Array
    k: Array


class QKNorm(NamedTuple):
    """What a head's queries and keys, x W normalized, are multiplied by: (d_k,) each."""

    q: Array
    k: Array


class HeadWeights(NamedTuple):
    """One head's weights: W_q and W_k (d, d_k), W_v (d, d_v), b_q and b_k (d_k,), b_v (d_v,), or None."""

    name: str
    W_q: Array
    W_k: Array
    W_v: Array
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    position: Position | None = None

    def project(self, X: Array, context: Array) -> tuple[Array, Array, Array]:
        """Return Q (n_q, d_k) of X (n_q, d), and K (n_k, d_k) and V (n_k, d_v) of the context (n_k, d)."""
        Q = project(X, self.W_q, self.b_q)
        return Q, project(context, self.W_k, self.b_k), project(context, self.W_v, self.b_v)
