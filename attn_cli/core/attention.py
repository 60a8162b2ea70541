"""Attention, as the paper has it (Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V

Rows are queries, columns are keys. Leading axes, where there are any, are heads. The functions stand in the order in
which things happen. heads.py guards them against numbers that overflow; attend.py is what programs call.
"""

from __future__ import annotations

import numpy as np

from attn_cli.core.scores import scale_of, score_named
from attn_cli.io.types import Array, Bools, NamedTuple


class Steps(NamedTuple):
    """Every intermediate of attention, in the order computed; scores are (..., n_q, n_k)."""

    scores: Array
    scaled_scores: Array
    capped_scores: Array  # the scaled scores themselves, where there is no softcap
    bias: Array | None
    masked_scores: Array
    weights: Array
    output: Array

    @property
    def log_sum_exp(self) -> Array:
        """The logarithm of each row's sum of exponentials, (..., n_q), by which weights are exp(score - it).

        It is -inf for a query that may attend to nothing.
        """
        total: Array = np.logaddexp.reduce(self.masked_scores, axis=-1, dtype=np.float64)
        return total.astype(self.masked_scores.dtype)


def project(X: Array, W: Array, b: Array | None = None) -> Array:
    """Return X W + b: X is (..., n, d), W (d, d_k), b (d_k,)."""
    projected = X @ W
    return projected if b is None else projected + b


def attention(
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
    """Compute attention and keep every step.

    Q is (..., n_q, d_k), K (..., n_k, d_k), V (..., n_k, d_v). A softcap c replaces each scaled score s by c tanh(s/c),
    which stays between -c and c. The bias (..., n_q, n_k) is added after it.
    The mask (..., n_q, n_k) is True where a query may attend to a key; a query that may attend to nothing gets zeros.
    A `sink` is a score that every row has beside its keys', and that no value belongs to (see `softmax`).
    `score` is one of SCORES. Where no `scale` is given it is the score's own: 1/sqrt(d_k) for `scaled`, else 1.

    >>> attention(np.eye(1), np.eye(1), np.array([[7.0]])).output.tolist()
    [[7.0]]
    """
    if scale is None:
        scale = scale_of(score, Q.shape[-1])
    scores = score_named(score).of(Q, K)
    scaled_scores = scores * scores.dtype.type(scale)
    capped_scores = scaled_scores if softcap is None else soft_capped(scaled_scores, softcap)
    biased_scores = capped_scores if bias is None else capped_scores + bias
    masked_scores = (
        biased_scores if mask is None else np.where(mask, biased_scores, scores.dtype.type(-np.inf))
    )
    weights = softmax(masked_scores, sink)
    output = weights @ V
    return Steps(scores, scaled_scores, capped_scores, bias, masked_scores, weights, output)


def soft_capped(scores: Array, softcap: float) -> Array:
    """Return c tanh(s / c) of each score s: small scores stay as they are, and none exceeds c."""
    cap = scores.dtype.type(softcap)
    return cap * np.tanh(scores / cap)


def softmax(scores: Array, sink: float | None = None) -> Array:
    """Return exp(s_j) / sum of exp(s_j) along each row; -inf gives 0, and a row of only -inf gives zeros.

    The largest score of a row is subtracted first. It cancels out, and exp cannot overflow. A `sink` joins each sum as
    one more score, and is dropped: rows then sum to less than one (Xiao et al. 2024, GPT-OSS).

    >>> softmax(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    largest = scores.max(axis=-1, keepdims=True)
    largest = largest if sink is None else np.maximum(largest, scores.dtype.type(sink))
    exps = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = exps.sum(axis=-1, keepdims=True)
    total = total if sink is None else total + np.exp(scores.dtype.type(sink) - largest)
    return exps / np.where(total == 0, 1, total)
