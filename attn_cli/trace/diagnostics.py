"""Diagnostics of each row of weights: how spread out it is, what decided it, and what would sharpen it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

UNIFORM_RATIO = 1.25  # the largest weight over the smallest: up to here a row is nearly uniform
TARGET_SHARE = 0.95
STEPS = 100  # of Newton's method; ten or twenty are enough
TIE_TOLERANCE = 1e-12  # scores closer than this share the first place
LONGER = 1.001
LARGEST_GAP = 1e300  # of two scores whose difference no number holds


class Diagnosis(NamedTuple):
    """The diagnostics of one query's row; None where one does not apply."""

    entropy: float | None  # bits; None where everything is masked
    most: float | None  # bits: log2 of how many keys are allowed
    nearly_uniform: bool
    longer: int | None  # the key that won by its length ...
    nearer: int | None  # ... over this one, whose direction is nearer to the query's
    temperature_95: float | None  # at this --temperature the strongest key has 95 %


def entropy(weights: Array) -> Array:
    """Return the entropy of each row of weights, in bits: 0 for one key alone, log2 n for n keys alike.

    H = -sum of w log2 w (Shannon 1948, "A Mathematical Theory of Communication", section 6).

    >>> entropy(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist()
    [1.5, 0.0]
    """
    bits: Array = -(weights * np.log2(np.where(weights > 0, weights, 1.0))).sum(axis=-1) + 0.0
    return bits


def are_nearly_uniform(weights: Array, allowed: Bools) -> Bools:
    """Tell of each row whether no allowed key gets more than 1.25 times what another one gets; two must be allowed.

    >>> are_nearly_uniform(np.array([[0.336, 0.3, 0.364], [0.5, 0.4, 0.1]]), np.ones((2, 3), bool)).tolist()
    [True, False]
    """
    most, least = (
        np.where(allowed, weights, -np.inf).max(axis=-1),
        np.where(allowed, weights, np.inf).min(axis=-1),
    )
    flat: Bools = (allowed.sum(axis=-1) > 1) & (most <= UNIFORM_RATIO * least)
    return flat


def temperatures(scores: Array, temperature: float, share: float = TARGET_SHARE) -> list[float | None]:
    """Return, for each row, the temperature at which its largest score has this share of the softmax.

    `scores` (rows, n_k) go to the softmax now, divided by `temperature` already; -inf is masked. None where
    no temperature does it: one key has all, or several share the first place.

    >>> found = temperatures(np.array([[math.log(19.0), 0.0], [1.0, 1.0]]), 1.0)
    >>> round(found[0], 12), found[1]
    (1.0, None)
    """
    found: list[float | None] = [None] * len(scores)
    if scores.shape[1] < 2:
        return found
    ordered = np.sort(np.where(np.isfinite(scores), scores, -np.inf), axis=-1)[:, ::-1]
    largest = ordered[:, :1]
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.minimum(largest - ordered[:, 1:], LARGEST_GAP)
    is_there = np.isfinite(ordered[:, 1:])
    gaps = np.where(is_there, gaps, 0.0)
    rows = np.flatnonzero(
        is_there[:, 0] & (gaps[:, 0] > TIE_TOLERANCE * np.maximum(1.0, np.abs(largest[:, 0])))
    )
    if len(rows):
        for row, x in zip(rows.tolist(), _sharpness(gaps[rows], is_there[rows], share).tolist(), strict=True):
            found[row] = temperature / x if x > 0 else None
    return found


def _sharpness(gaps: Array, is_there: Bools, share: float) -> Array:
    """Return what each row's scores must be multiplied by, (rows,), for the largest to get this share.

    `gaps` (rows, n) lie between the largest score and the others; those that are not there do not count.
    log(sum of exp(-gap x)) falls and is convex in x, so Newton's steps from 0 never pass the root.
    """
    target = math.log(1 / share - 1)  # of the others' exps together, when the largest's is 1
    least, beyond = gaps[:, 0], gaps - gaps[:, :1]
    found, left = np.zeros(len(gaps)), np.arange(len(gaps))
    for _ in range(STEPS):
        with np.errstate(under="ignore", over="ignore"):
            x = found[left]
            exps = np.where(is_there, np.exp(-beyond * x[:, np.newaxis]), 0.0)
            total = exps.sum(axis=-1)
            error = np.log(total) - least * x - target
            step = error * total / (gaps * exps).sum(axis=-1)
        found[left] = x + step
        goes_on = np.abs(step) > 1e-15 * found[left]
        if not goes_on.any():
            break
        left, gaps, beyond = left[goes_on], gaps[goes_on], beyond[goes_on]
        least, is_there = least[goes_on], is_there[goes_on]
    return found


def decided_by_length(scores: Array, K: Array, allowed: Bools) -> list[tuple[int, int] | None]:
    """Return (winner, nearest) for each row whose largest q·k is a longer key's than the one nearest in direction.

    `scores` (rows, n_k) are dot products with the keys K (n_k, d_k); those not allowed do not count.
    """
    lengths = np.linalg.norm(K, axis=-1)
    found: list[tuple[int, int] | None] = []
    for row, may in zip(scores, allowed & (lengths > 0), strict=True):
        if may.sum() < 2:
            found.append(None)
            continue
        dots = np.where(may, row, -np.inf)
        along = np.where(may, row / np.where(lengths > 0, lengths, 1.0), -np.inf)  # cosine x |q|
        winner, nearest = int(dots.argmax()), int(along.argmax())
        clearly = along[nearest] > along[winner] * (1 + 1e-9) and dots[winner] > 0
        by_length = clearly and lengths[winner] > LONGER * lengths[nearest]
        found.append((winner, nearest) if by_length else None)
    return found


def diagnose(
    weights: Array,
    allowed: Bools | None,
    masked_scores: Array | None,
    temperature: float,
    dots: Array | None = None,
    K: Array | None = None,
) -> list[Diagnosis]:
    """Return a Diagnosis of each row of weights (rows, n_k).

    `masked_scores` are what the softmax was taken of, None where nobody knows; `dots` are the products q·k with
    the keys K, None where more than they decided.
    """
    may = np.ones(weights.shape, dtype=np.bool_) if allowed is None else allowed
    counts = may.sum(axis=-1).tolist()
    hot = [None] * len(weights) if masked_scores is None else temperatures(masked_scores, temperature)
    longer = [None] * len(weights) if dots is None or K is None else decided_by_length(dots, K, may)
    found = []
    flat = are_nearly_uniform(weights, may).tolist()
    for bits, n, even, at, pair in zip(entropy(weights).tolist(), counts, flat, hot, longer, strict=True):
        if not n:
            found.append(Diagnosis(None, None, False, None, None, None))
            continue
        won, near = (None, None) if pair is None else pair
        found.append(Diagnosis(bits, math.log2(n), even, won, near, at))
    return found
