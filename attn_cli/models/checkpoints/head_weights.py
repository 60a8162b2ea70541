"""The matrices with which a layer makes queries, keys and values, read anew for those who want to see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.models.checkpoints.describe import Layer, Stack
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.projection import Gains, HeadWeights

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_JOINING = 1_000_000  # numbers in a W_o that is kept


class LayerWeights(NamedTuple):
    """What some heads of a layer project with, and what joins all heads, as in x W."""

    heads: dict[int, HeadWeights]
    gains: Gains | None  # of the norm that queries and keys go through
    W_o: Array | None  # (heads x d_v, d); None where it is too large to be shown
    b_o: Array | None


def read_layer_weights(
    weights: Weights, stack: Stack, layer: Layer, prefix: str, wanted: Sequence[int]
) -> LayerWeights:
    """Return the weights of the wanted heads; `prefix` is "cross_" for cross-attention, else empty."""
    sides = [_of_side(weights, stack, layer, prefix, side) for side in "qkv"]
    shared = stack.heads // stack.kv_heads
    heads = {}
    for h in wanted:
        at = (h, h // shared, h // shared)
        W_q, W_k, W_v = (W[:, n] for (W, _), n in zip(sides, at, strict=True))
        b_q, b_k, b_v = (None if b is None else b[n] for (_, b), n in zip(sides, at, strict=True))
        heads[h] = HeadWeights(str(h), W_q, W_k, W_v, b_q, b_k, b_v)
    width = stack.heads * stack.d_k
    is_small = width * stack.d <= MOST_JOINING
    W_o, b_o = _linear(weights, stack, layer, f"{prefix}o", width, stack.d) if is_small else (None, None)
    return LayerWeights(heads, _gains(weights, stack, layer), W_o, b_o)


def _of_side(
    weights: Weights, stack: Stack, layer: Layer, prefix: str, side: str
) -> tuple[Array, Array | None]:
    """Return W (d, heads, d_k) and b (heads, d_k) of the queries, the keys or the values."""
    d, d_k = stack.d, stack.d_k
    if "qkv" in layer.names:
        W, b = _linear(weights, stack, layer, "qkv", d, 3 * stack.heads * d_k)
        shape, axis = ((stack.heads, 3, d_k), 1) if stack.by_head else ((3, stack.heads, d_k), 0)
        own = "qkv".index(side)
        b_own = None if b is None else np.moveaxis(b.reshape(shape), axis, 0)[own]
        return np.moveaxis(W.reshape(d, *shape), axis + 1, 0)[own], b_own
    heads = stack.heads if side == "q" else stack.kv_heads
    W, b = _linear(weights, stack, layer, prefix + side, d, heads * d_k)
    return W.reshape(d, heads, d_k), None if b is None else b.reshape(heads, d_k)


def _linear(
    weights: Weights, stack: Stack, layer: Layer, role: str, given: int, made: int
) -> tuple[Array, Array | None]:
    """Return W (given, made), as in x W, and b (made,)."""
    name = layer.place + layer.names[role]
    shape = (given, made) if stack.in_out else (made, given)
    W = weights.read(f"{name}.weight", *shape)
    return W if stack.in_out else np.ascontiguousarray(W.T), weights.maybe(f"{name}.bias", made)


def _gains(weights: Weights, stack: Stack, layer: Layer) -> Gains | None:
    """Return what queries and keys are multiplied by once they are divided by their root mean square."""
    if "q_norm" not in layer.names:
        return None
    q, k = (
        weights.read(f"{layer.place}{layer.names[name]}.weight", stack.d_k) for name in ("q_norm", "k_norm")
    )
    return Gains(1 + q, 1 + k) if "less one" in stack.norm else Gains(q, k)
