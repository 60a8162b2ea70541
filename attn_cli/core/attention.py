"""Attention, as the paper has it (Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V

Rows are queries, columns are keys. Leading axes, where there are any, are heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import NotFinite

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

WHOLE = 2.0**52
BLOCK_CELLS = 1 << 20


class Steps(NamedTuple):
    """Every intermediate of attention, in the order computed; scores are (..., n_q, n_k)."""

    scores: Array
    scaled_scores: Array
    masked_scores: Array
    weights: Array
    output: Array


def project(X: Array, W: Array, b: Array | None = None, layout: str = "in-out") -> Array:
    """Return X W (layout `in-out`, W is d x d_k) or W x for each row x (`out-in`, W is d_k x d), plus b."""
    projected = X @ (W if layout == "in-out" else W.T)
    return projected if b is None else projected + b


def to_digits(M: Array, digits: int) -> Array:
    """Return M in float64, rounded to so many digits after the point: what is written down is what is computed with.

    >>> to_digits(np.array([0.126, -0.001]), 2).tolist()
    [0.13, 0.0]
    """
    M = M.astype(np.float64)
    fine = np.abs(M) < WHOLE  # beyond, a double has no digits after the point
    return np.where(fine, np.round(np.where(fine, M, 0), digits) + 0.0, M)  # the sum makes -0.0 a plain zero


def compare(Q: Array, K: Array, score: str = "scaled") -> Array:
    """Return the scores (n_q, n_k): dot products q.k, or their cosines (0 where a vector is zero)."""
    if score == "cosine":
        Q, K = unit(Q), unit(K)
    return Q @ np.swapaxes(K, -1, -2)


def unit(X: Array) -> Array:
    """Return each row divided by its length; a row of zeros stays one."""
    # What is not finite is told with its score.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _unit(X)


def _unit(X: Array) -> Array:
    X = X / np.where((largest := np.abs(X).max(axis=-1, keepdims=True)) == 0, 1, largest)
    length = np.sqrt((X * X).sum(axis=-1, keepdims=True))
    return X / np.where(length == 0, 1, length)


def softmax(scores: Array) -> Array:
    """Return exp(s_j) / sum of exp(s_j) along each row; -inf gives 0, and a row of only -inf gives zeros.

    >>> softmax(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    largest = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1, total)


def attention_steps(
    Q: Array,
    K: Array,
    V: Array,
    mask: Bools | None = None,
    bias: Array | None = None,
    scale: float = 1.0,
    score: str = "scaled",
) -> Steps:
    """Compute attention and keep every step.

    Q is (..., n_q, d_k), K (..., n_k, d_k), V (..., n_k, d_v); mask and bias are (..., n_q, n_k), True =
    may attend. The bias is added to the scaled scores, and -inf in it masks.
    A row with nothing allowed is zeros.
    Raises InputError, which names query and key, when an allowed score is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scores = compare(Q, K, score)
        scaled_scores = scores * scores.dtype.type(scale)
        masked_scores = scaled_scores if bias is None else scaled_scores + bias
        allowed = joined_mask(mask, bias)
        _check_scores(masked_scores, allowed)
        if allowed is not None:
            masked_scores = np.where(allowed, masked_scores, -np.inf).astype(scores.dtype, copy=False)
        weights = softmax(masked_scores)
        output = _weighted_sum(weights, V)
    return Steps(scores, scaled_scores, masked_scores, weights, output)


def joined_mask(mask: Bools | None, bias: Array | None) -> Bools | None:
    """Join a boolean mask and a bias that masks by -inf, as float masks do."""
    shut = None if bias is None else np.isneginf(bias)
    if shut is None or not shut.any():
        return mask
    return ~shut if mask is None else mask & ~shut


def _check_scores(scores: Array, allowed: Bools | None) -> None:
    bad = ~np.isfinite(scores)
    if allowed is not None:
        bad &= allowed
    if bad.any():
        *_, i, j = (int(x) for x in np.argwhere(bad)[0])
        raise NotFinite(i, j)


def _weighted_sum(weights: Array, V: Array) -> Array:
    if np.isfinite(V).all():
        return weights @ V
    # A value behind a mask must not be seen: 0 x NaN would be NaN.
    bad: Bools = np.logical_not(np.isfinite(V).all(axis=-1))
    seen = (weights > 0) & bad[..., np.newaxis, :]
    if seen.any():
        j = int(np.argwhere(seen)[0][-1])
        raise NotFinite(None, j)
    return weights @ np.where(bad[..., np.newaxis], 0, V)
