"""A mask inferred from weights that are exactly zero, which a softmax gives only under a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.text import wordpieces as pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.array_types import Bools, Ints


def is_causal(weights: NDArray[Any]) -> bool:
    """Tell whether all layers and heads, (..., n_q, n_k), have zeros above the diagonal and others below it."""
    *_, n_q, n_k = weights.shape
    if n_q != n_k or n_q == 1:
        return False
    above, below = np.triu_indices(n_q, 1), np.tril_indices(n_q, -1)
    matrices = weights.reshape(-1, n_q, n_k)
    if any(np.nan_to_num(matrix[above]).any() for matrix in matrices):
        return False
    return any(np.nan_to_num(matrix[below]).any() for matrix in matrices)


def padding(weights: NDArray[Any], tokens: Sequence[str]) -> Ints:
    """Return the keys that are special tokens and get nothing in any layer and head, (..., n_q, n_k).

    A word may get nothing without a mask, as weights too small for a number become zero.
    """
    special = np.flatnonzero([pieces.is_special(token) for token in tokens])
    axes = tuple(range(weights.ndim - 1))
    used = np.nan_to_num(weights[..., special]).any(axis=axes)
    unused: Ints = special[np.logical_not(used)]
    return unused if len(unused) < len(tokens) else unused[:0]


def blind(layer: NDArray[Any]) -> Bools:
    """Return which queries of a layer, (heads, n_q, n_k), have only zeros or NaN in every head."""
    unseeing: Bools = np.logical_not(np.nan_to_num(layer).any(axis=(0, 2)))
    return unseeing
