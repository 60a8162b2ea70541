"""Layers' parts, read and applied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_types import Array
from attn_cli.models.checkpoints.blocks import NORMS
from attn_cli.models.checkpoints.describe import Layer, Stack
from attn_cli.models.checkpoints.products import Activation, product
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.logit_parts import FrozenNorm


def check_finite(where: str, *arrays: Array) -> None:
    """Raise InputError if an array holds what is not a finite number."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError(
            f"{where}: what it makes is not a finite number.",
            "The checkpoint holds NaN, infinity or numbers too large for float32.",
        )


class Reader(NamedTuple):
    """Layers' parts, read and applied."""

    weights: Weights
    stack: Stack

    def places(self) -> int | None:
        """Return how many tokens the table of places has rows for; None where there is no table."""
        words, weights = self.stack.words, self.weights
        if words.positions is None or (words.sinusoids and weights.find(words.positions) is None):
            return None
        return weights.stored(words.positions, None, None).entry.shape[0] - words.offset

    def linear(self, name: str, x: Array, made: int | None, activation: Activation | None = None) -> Array:
        """Return activation(x W + b), (..., made)."""
        shape = (x.shape[-1], made) if self.stack.in_out else (made, x.shape[-1])
        matrix = self.weights.matrix(f"{name}.weight", *shape)
        in_out = self.stack.in_out or matrix.is_in_out
        b = self.weights.maybe(f"{name}.bias", matrix.entry.shape[1 if in_out else 0])
        projected = product(x.reshape(-1, x.shape[-1]), matrix, in_out, b, activation)
        return projected.reshape(*x.shape[:-1], projected.shape[-1])

    def role(
        self, layer: Layer, role: str, x: Array, made: int | None, activation: Activation | None = None
    ) -> Array:
        """Return what the tensors of a role in a layer make of x."""
        return self.linear(layer.place + layer.names[role], x, made, activation)

    def linear_weights(self, name: str, given: int, made: int) -> tuple[Array, Array | None]:
        """Return W (given, made), as in x W, and b (made,)."""
        W = self.weights.read(f"{name}.weight", *((given, made) if self.stack.in_out else (made, given)))
        W = W if self.stack.in_out else np.ascontiguousarray(W.T)
        return W, self.weights.maybe(f"{name}.bias", made)

    def by_head(self, M: Array, side: str, fused: bool) -> Array:
        """Return the queries', keys' or values' part of what makes them, (..., made), head by head: (..., h, d_k)."""
        if not fused:
            return M.reshape(*M.shape[:-1], -1, self.stack.d_k)
        heads, kv_heads, d_k = self.stack.heads, self.stack.kv_heads, self.stack.d_k
        groups = kv_heads if self.stack.by_head else 1  # each of its queries, its keys and its values
        grouped = M.reshape(*M.shape[:-1], groups, -1, d_k)
        ends = [heads // groups, (heads + kv_heads) // groups]
        own: Array = np.split(grouped, ends, axis=-2)["qkv".index(side)]
        return own.reshape(*M.shape[:-1], -1, d_k)

    def joined(self, layer: Layer, prefix: str, output: Array) -> Array:
        """Return the heads' outputs side by side, times W_o: (b, n_q, d); `prefix` is "cross_" for cross-attention."""
        b, h, rows, d_v = output.shape
        side_by_side = output.transpose(0, 2, 1, 3).reshape(b, rows, h * d_v)
        return self.linear(layer.place + layer.names[prefix + "o"], side_by_side, self.stack.d)

    def norm(self, name: str, x: Array, *shape: int) -> Array:
        """Return the normed rows; the norm's weights have a `shape`, or are one for each number of a row."""
        return NORMS[self.stack.norm](x, *self._norm_weights(name, *(shape or x.shape[-1:])), self.stack.eps)

    def frozen(self, name: str, row: Array) -> FrozenNorm:
        """Return a norm as it acts on rows (..., d)."""
        gain, shift = self._norm_weights(name, row.shape[-1])
        gain = 1 + gain if "less one" in self.stack.norm else gain
        return FrozenNorm.of(row, gain, shift, self.stack.eps, self.stack.norm == "layer")

    def _norm_weights(self, name: str, *shape: int) -> tuple[Array, Array | None]:
        has_gains = self.stack.has_gains
        gain = self.weights.read(f"{name}.weight", *shape) if has_gains else np.ones(shape, np.float32)
        return gain, self.weights.maybe(f"{name}.bias", *shape) if has_gains else None
