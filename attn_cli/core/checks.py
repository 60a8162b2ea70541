"""The guards around attention.py: scores that are not finite are refused, unless masked; values, unless unattended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.attention import Steps, attention
from attn_cli.errors import NotFinite

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools


def checked_attention(
    Q: Array,
    K: Array,
    V: Array,
    mask: Bools | None = None,
    bias: Array | None = None,
    scale: float | None = None,
    score: str = "scaled",
    softcap: float | None = None,
) -> Steps:
    """Return the steps of `attention`, computed without warnings; -inf in the bias masks.

    Raises NotFinite, which names query and key, when an allowed score or an attended value is NaN or infinity.
    """
    allowed = joined_mask(mask, bias)
    is_bad = np.logical_not(np.isfinite(V).all(axis=-1))
    # A value behind a mask must not count, but 0 x NaN would be NaN.
    values = np.where(is_bad[..., np.newaxis], 0, V).astype(V.dtype, copy=False) if is_bad.any() else V
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        steps = attention(Q, K, values, allowed, bias, scale, score, softcap)
    bad_scores = ~np.isfinite(steps.masked_scores)
    if allowed is not None:
        bad_scores &= allowed
    if bad_scores.any():
        *_, i, j = (int(n) for n in np.argwhere(bad_scores)[0])
        raise NotFinite(i, j)
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
