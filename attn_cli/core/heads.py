"""One head: its weights, then ready to attend, and its rows the readable way, by blocks where there are many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attn_cli.core.attention import Steps, attention, project
from attn_cli.core.masks import Mask
from attn_cli.errors import InputError, NotFinite
from attn_cli.io.types import Array, Bools, Ints, NamedTuple

BLOCK_CELLS = 1 << 20  # scores that the readable way holds at once
SMALL = 128 * 128  # scores of a head up to which whole matrices are fastest
# By a number's bytes:
MAX_ELEMENT = {4: 1e15, 8: 1e140}  # sums of products of numbers up to this are finite
MAX_SCORE = {4: 1e6, 8: 1e14}  # the exponential of a larger score has no correct digit
SHORT, FEW = 64, 32  # longer rows are not sorted for their strongest keys, if no more of these are wanted
TIED = 0.78  # weights tie within the dtype's precision to this power: 6e-13, in float32 4e-6


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


class QK(NamedTuple):
    """A head's queries (n_q, d_k) and keys (n_k, d_k), rotated; or what normed ones are multiplied by, (d_k,) each.

    A score of rotated vectors (rotary; Su et al. 2021, RoFormer) depends on the vectors and on the distance of their
    positions. Its difference from the score of the unrotated vectors is what distance adds.
    """

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


class HeadInput(NamedTuple):
    """One head, ready to attend.

    Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v). To the scaled scores, which `softcap` bounds, is added `bias` (n_q, n_k),
    in which -inf masks, and what depends on the clipped distance alone, `by_distance` (n_q, 2 reach + 1): from `reach`
    or more keys to the left to `reach` or more to the right.
    """

    Q: Array
    K: Array
    V: Array
    mask: Mask | None = None
    bias: Array | None = None
    by_distance: Array | None = None
    score: str = "scaled"
    scale: float | None = None
    softcap: float | None = None
    sink: float | None = None  # a score beside the keys', without a value

    def allowed(self, rows: Sequence[int] | Ints) -> Bools | None:
        """Return the mask of these rows, (rows, n_k); None where there is none."""
        return None if self.mask is None else self.mask.rows(rows, 0, len(self.K))

    def added(self, rows: Ints) -> Array | None:
        """Return what is added to the scaled scores of these rows, (rows, n_k)."""
        bias = None if self.bias is None else self.bias[rows]
        if self.by_distance is None:
            return bias
        term = spread(self.by_distance[rows], rows, len(self.K))
        return term if bias is None else term + bias

    def steps(self, rows: Sequence[int] | Ints) -> Steps:
        """Return every step of these rows, the readable way."""
        at = np.asarray(rows, dtype=np.intp)
        try:
            mask, bias = self.allowed(at), self.added(at)
            return checked_attention(
                self.Q[at], self.K, self.V, mask, bias, self.scale, self.score, self.softcap, self.sink
            )
        except NotFinite as error:
            raise error.among(at.tolist()) from None


def fits(Q: Array, K: Array, V: Array, *terms: Array | None, scale: float = 1.0) -> bool:
    """Tell whether the fast way gives what attention.py does: float32 or float64, finite, and not too large.

    A term is what is added to the scores of Q and K times `scale`, and may hold -inf, which masks.
    """
    if Q.dtype.char not in "fd":
        return False
    most, max_score = MAX_ELEMENT[Q.dtype.itemsize], MAX_SCORE[Q.dtype.itemsize]
    # The length of all numbers as one vector is quicker than the largest of them, and mostly enough.
    for size, summed in ((lambda M: math.sqrt(np.vdot(M, M)), 1), (lambda M: np.abs(M).max(), Q.shape[1])):
        with np.errstate(all="ignore"):
            q, k, v = size(Q), size(K), size(V)
        is_near = q * k * summed * abs(scale) < max_score and v < max_score  # NaN is not less
        if is_near and max(q, k, 1) * max(1, abs(scale)) < most:
            return all(term is None or _is_sound(term, max_score) for term in terms)
    return False


def _is_sound(term: Array, most: float) -> bool:
    """Tell whether a term's numbers are all below `most` in magnitude, or -inf; NaN is not below."""
    is_below = float(term.max()) < most
    return is_below and (float(term.min()) > -most or bool(((term > -most) | np.isneginf(term)).all()))


def spread(by_distance: Array, rows: Ints, n_k: int) -> Array:
    """Return what depends on the clipped distance, (..., rows, 2 reach + 1), for each of n_k keys: (..., rows, n_k)."""
    reach = by_distance.shape[-1] // 2
    distance = np.clip(np.arange(n_k) - rows[:, np.newaxis], -reach, reach)
    return by_distance[..., np.arange(len(rows))[:, np.newaxis], distance + reach]


def blocks_of_rows(head: HeadInput, cells: int | None = None) -> Iterator[range]:
    """Yield the rows of a head, as many at a time as have so many scores (BLOCK_CELLS), and one at least."""
    n_q, size = len(head.Q), max(1, (cells or BLOCK_CELLS) // len(head.K))
    for start in range(0, n_q, size):
        yield range(start, min(start + size, n_q))


def checked_attention(
    Q: Array,
    K: Array,
    V: Array,
    mask: Bools | None = None,
    bias: Array | None = None,
    scale: float | None = None,
    score: str = "scaled",
    softcap: float | None = None,
    sink: float | None = None,
) -> Steps:
    """Return the steps of `attention`, computed without warnings; -inf in the bias masks.

    Raises NotFinite, which names query and key, when an allowed score or an attended value is NaN or infinity, and
    InputError when the sink is.
    """
    allowed = joined_mask(mask, bias)
    is_bad = np.logical_not(np.isfinite(V).all(axis=-1))
    # A value behind a mask must not count, but 0 x NaN would be NaN.
    values = np.where(is_bad[..., np.newaxis], 0, V).astype(V.dtype, copy=False) if is_bad.any() else V
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        steps = attention(Q, K, values, allowed, bias, scale, score, softcap, sink)
    bad_scores = ~np.isfinite(steps.masked_scores)
    if allowed is not None:
        bad_scores &= allowed
    if bad_scores.any():
        *_, i, j = (int(n) for n in np.argwhere(bad_scores)[0])
        raise NotFinite(i, j)
    if sink is not None and not abs(sink) <= float(np.finfo(steps.scores.dtype).max):  # nor is NaN
        said = f"The sink's score, {sink:g}, is not a finite number in {steps.scores.dtype}."
        raise InputError(said, "Give one nearer zero, or use --dtype float64.")
    attended = (steps.weights > 0) & is_bad[..., np.newaxis, :] if is_bad.any() else is_bad
    if attended.any():
        raise NotFinite(None, int(np.argwhere(attended)[0][-1]))
    return steps


def joined_mask(mask: Bools | None, bias: Array | None) -> Bools | None:
    """Join a boolean mask and a bias that masks by -inf, as float masks do."""
    hidden = None if bias is None else np.isneginf(bias)
    if hidden is None or not hidden.any():
        return mask
    return ~hidden if mask is None else mask & ~hidden


class Links(NamedTuple):
    """Each query's strongest keys, (n_q, k), strongest first; key -1 and weight 0 where there is none."""

    keys: Ints
    weights: Array


def strongest(weights: Array, k: int, mask: Bools | None = None) -> Links:
    """Return the k strongest links of each row of weights (n_q, n_k); ties go to the lowest key.

    BLAS adds in different orders in different parts of a product, so identical keys get weights that differ in
    their last bits. Weights that close are a tie.
    """
    n_q, n_k = weights.shape
    k, lowest, rows = min(k, n_k), 1 - rounding_of(weights.dtype), np.arange(n_q)
    kept = weights.copy() if mask is None else np.where(mask, weights, -1)  # below 0: a masked key
    keys, found = np.empty((n_q, k), np.intp), np.empty((n_q, k), kept.dtype)
    # A sort is enough, but for rows in which a later key precedes one that it ties with.
    if n_k <= SHORT or k > FEW:
        order = np.argsort(-kept, axis=-1, kind="stable")
        ranked = np.take_along_axis(kept, order, axis=-1)
        ties = (ranked[:, 1:] >= ranked[:, :-1] * lowest) & (order[:, 1:] < order[:, :-1])
        rows = np.flatnonzero(ties.any(axis=-1))
        keys[:], found[:], kept = order[:, :k], ranked[:, :k], kept[rows]
    least = np.full(len(rows), np.inf, kept.dtype)  # what ties with the strongest of those that tie
    for n in range(k if len(rows) else 0):
        most = kept.max(axis=-1)
        least = np.where(most < least, most * lowest, least)
        at = keys[rows, n] = (kept >= least[:, np.newaxis]).argmax(axis=-1)
        found[rows, n] = kept[np.arange(len(rows)), at]
        kept[np.arange(len(rows)), at] = -1
    return Links(np.where(found < 0, -1, keys), np.where(found < 0, 0, found).astype(weights.dtype))


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return the relative difference up to which weights, or scores, tie."""
    share: float = float(np.finfo(dtype).eps) ** TIED
    return share
