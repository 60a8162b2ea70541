"""Fast attention: the results of attention.py, computed in an order that suits processors.

Small matrices are done here. Of large ones, streaming.py returns weights and output, or the output alone, or a survey
(each row's strongest links, and sums for a map); the last two never hold an n_q x n_k array. tiles.py computes tiles
of scores, threads.py runs them in parallel; none of these is imported for small matrices.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools
    from attn_cli.io.progress import OnPart


SMALL = 128 * 128  # scores of a head up to which whole matrices are fastest
MODEST = 60.0  # exp of this does not overflow float32, and exp of its negative does not underflow
MODEST_SQUARES = MODEST**2
NARROW = 16
MANY = 32  # links a row above which a search of whole rows is faster than one by tiles
# By a number's bytes:
MAX_ELEMENT = {4: 1e15, 8: 1e140}  # sums of products of numbers up to this are finite
MAX_SCORE = {4: 1e6, 8: 1e14}  # the exponential of a larger score has no correct digit


def at_once(Q: object, K: object, V: object, scale: float | None) -> tuple[Array, Array] | None:
    """Return (weights, output) of one small head, given as plain arrays; None where anything must be checked."""
    if not (type(Q) is type(K) is type(V) is np.ndarray and Q.dtype is K.dtype is V.dtype):
        return None
    if not Q.ndim == K.ndim == V.ndim == 2:
        return None
    (n_q, d_k), (n_k, d) = Q.shape, K.shape
    if d != d_k or len(V) != n_k or not 0 < n_q * n_k <= SMALL or not d_k * V.shape[1]:
        return None
    try:
        return small(Q, K, V, 1 / math.sqrt(d_k) if scale is None else scale)
    except (RuntimeWarning, FloatingPointError):  # if the caller raises them; errstate is too slow
        return None


def small(
    Q: Array, K: Array, V: Array, scale: float, allowed: Bools | None = None
) -> tuple[Array, Array] | None:
    """Return (weights, output) of one head of up to about 128 x 128; None where the readable core must do it.

    Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v), all of one dtype. Scores of modest size need no shift before exp;
    the sum of their squares shows that they are, and that all are finite.
    """
    char = Q.dtype.char
    if char not in "fd":
        return None
    weights: Array = Q.dot(K.T)
    n_k = weights.shape[1]
    factor, ones = _constants(scale, n_k, char)
    weights *= factor
    if not np.vdot(weights, weights) < MODEST_SQUARES and not np.abs(weights).max() < MODEST:
        return None
    np.exp(weights, out=weights)
    if allowed is not None:
        weights *= allowed
    total = weights.dot(ones)
    if allowed is not None:
        total[total == 0] = 1
    weights /= total
    output: Array = weights.dot(V)
    return (weights, output) if np.vdot(output, output) < math.inf else None


@lru_cache
def _constants(scale: float, n_k: int, char: str) -> tuple[Array, Array]:
    """Return the scale as an array, which NumPy multiplies by faster than by a Python float, and ones.

    A product with a column of ones sums rows; a product with a square of ones also broadcasts the sums.
    """
    with np.errstate(over="ignore"):  # a scale that is infinite in float32 is refused by the score check
        factor = np.array(scale, char)
    return factor, np.ones((n_k, n_k if n_k <= NARROW else 1), char)


def fits(Q: Array, K: Array, V: Array, *terms: Array | None, scale: float = 1.0) -> bool:
    """Tell whether the fast way gives what attention.py does: float32 or float64, finite, and not too large.

    A term is what is added to the scores of Q and K times `scale`, and may hold -inf, which masks.
    """
    if Q.dtype.char not in "fd":
        return False
    most, max_score = MAX_ELEMENT[Q.dtype.itemsize], MAX_SCORE[Q.dtype.itemsize]
    q, k = _largest(Q), _largest(K)
    if not max(q, k, 1) * max(1, abs(scale)) < most:  # NaN is not less
        return False
    near = q * k * Q.shape[1] * abs(scale) < max_score and _largest(V) < max_score
    return near and all(_is_sound(term, max_score) for term in terms if term is not None)


def _largest(M: Array) -> float:
    """Return the largest magnitude, or NaN where there is one."""
    return max(-float(M.min()), float(M.max()))


def _is_sound(term: Array, most: float) -> bool:
    """Tell whether a term's numbers are all below `most` in magnitude, or -inf."""
    if not float(term.max()) < most:  # NaN is not
        return False
    return float(term.min()) > -most or bool(((term > -most) | np.isneginf(term)).all())


def part_of(report: OnPart | None, done: int, parts: int) -> OnPart | None:
    """Return a report for one of several equal parts of some work, when `done` of them are complete."""
    return None if report is None else lambda part: report((done + part) / parts)
