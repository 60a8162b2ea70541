"""Each query's strongest keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools, Ints


SHORT = 256  # keys up to which a whole row is sorted more quickly than its candidates are found
TIED = 0.78  # weights tie within the dtype's precision to this power: 6e-13, in float32 4e-6


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
    k = min(k, n_k)
    kept = np.where(mask, weights, -1) if mask is not None else weights
    if k == 1:  # the first of those that tie with the largest
        least = kept.max(axis=-1, keepdims=True) * (1 - rounding_of(kept.dtype))
        keys = (kept >= least).argmax(axis=-1)[:, np.newaxis]
        return _links(kept, keys, weights.dtype)
    if n_k > SHORT and k < n_k // 4:
        # The k-th largest weight bounds the candidates; sorting those alone is quicker.
        bound = np.partition(kept, n_k - k, axis=-1)[:, n_k - k]
        with np.errstate(under="ignore"):
            bound -= np.abs(bound) * rounding_of(bound.dtype)
        keys = np.empty((n_q, k), dtype=np.intp)
        for i, row in enumerate(kept):
            candidates = np.flatnonzero(row >= bound[i])
            keys[i] = candidates[_in_order(row[candidates])[:k]]
    else:
        keys = _in_order(kept)[:, :k]
    return _links(kept, keys, weights.dtype)


def _links(kept: Array, keys: Ints, dtype: np.dtype[Any]) -> Links:
    """Return the links to these keys, (n_q, k); a weight below 0 is that of a masked key."""
    found = np.take_along_axis(kept, keys, axis=-1)
    return Links(np.where(found < 0, -1, keys), np.where(found < 0, 0, found).astype(dtype))


def _in_order(weights: Array) -> Ints:
    """Return the places of the weights along the last axis, strongest first; of those that tie the lowest first."""
    order: Ints = np.argsort(-weights, axis=-1, kind="stable")
    found = np.take_along_axis(weights, order, axis=-1)
    lowest = 1 - rounding_of(weights.dtype)
    unsure = (found[..., 1:] >= found[..., :-1] * lowest) & (order[..., 1:] < order[..., :-1])
    for at in np.argwhere(unsure.any(axis=-1)):
        places, row = order[tuple(at)], found[tuple(at)]
        start = 0
        while start < len(row):  # all that tie with the strongest left, but not with each other
            stop = start + int(np.searchsorted(-row[start:], -row[start] * lowest, side="right"))
            places[start:stop].sort()
            start = max(stop, start + 1)
    return order


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return the relative difference up to which weights, or scores, tie."""
    share: float = float(np.finfo(dtype).eps) ** TIED
    return share
