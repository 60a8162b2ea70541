"""Layers' parts, read and applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_cli.core.head_weights import HeadWeights, QKNorm
from attn_cli.errors import InputError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.blocks import ACTIVATIONS, NORMS, logistic, softmax
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


ROLES = ("gate_up", "pairs", "gate", "up", "down")


def network(reader: Reader, layer: Layer, x: Array) -> Array:
    """Return what the network after attention makes of each word by itself."""
    if "router" not in layer.names:
        return _dense(reader, layer, x)
    rows = x.reshape(-1, x.shape[-1])
    found = _chosen(reader, layer, rows)
    if "shared_share" in layer.names:
        counts = logistic(reader.role(layer, "shared_share", rows, 1))
        found += counts * _dense(reader, layer, rows, "shared_")
    return found.reshape(x.shape)


def _chosen(reader: Reader, layer: Layer, rows: Array) -> Array:
    """Return what the experts that the router chooses for each of these words (n, d) make of it together."""
    experts, found = reader.stack.experts, np.zeros_like(rows)
    assert experts is not None  # a layer with a router has them
    shares = softmax(reader.role(layer, "router", rows, experts.number))
    check_finite(f"{visible(reader.weights.folder)}, {layer.place}", shares)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : experts.chosen]
    shares = np.take_along_axis(shares, chosen, axis=-1)
    if experts.is_normed:
        shares /= shares.sum(axis=-1, keepdims=True)
    for n in np.unique(chosen):
        at, rank = np.nonzero(chosen == n)
        made = _dense(reader, layer, rows[at], "expert_", int(n))
        found[at] += shares[at, rank, None] * made
    return found


def _dense(reader: Reader, layer: Layer, x: Array, kind: str = "", number: int = 0) -> Array:
    """Return what a network makes of words: of a layer, or of a `kind` in it, expert_ of this number or shared_."""
    names = {
        role: layer.place + layer.names[kind + role].format(number)
        for role in ROLES
        if kind + role in layer.names
    }
    activation, limit = ACTIVATIONS[reader.stack.activation], None
    if (experts := reader.stack.experts) is not None and experts.clamp is not None:
        activation, limit = experts.clamp.gate, experts.clamp.up
    hidden: Array
    if "gate_up" in names or "pairs" in names:
        name = names.get("gate_up") or names["pairs"]
        both = reader.linear(name, x, None)
        half, odd = divmod(both.shape[-1], 2)
        if odd:
            raise InputError(f"{visible(reader.weights.folder)}: {name} has an odd number of rows.")
        is_paired = "pairs" in names
        gate, up = (both[..., ::2], both[..., 1::2]) if is_paired else (both[..., :half], both[..., half:])
        hidden = activation(gate) * (up if limit is None else limit(up))
    elif "gate" in names:
        hidden = reader.linear(names["gate"], x, None, activation)
        hidden *= reader.linear(names["up"], x, hidden.shape[-1], limit)
    else:
        hidden = reader.linear(names["up"], x, None, activation)
    return reader.linear(names["down"], hidden, reader.stack.d)


MOST_JOINING = 1_000_000  # numbers in a W_o that is kept


class LayerWeights(NamedTuple):
    """What some heads of a layer project with, and what joins all heads, as in x W."""

    heads: dict[int, HeadWeights]
    qk_norms: list[QKNorm]  # of the norm that each head's queries and keys go through, where there is one
    W_o: Array | None  # (heads x d_v, d); None where it is too large to be shown
    b_o: Array | None


def read_layer_weights(reader: Reader, layer: Layer, prefix: str, wanted: Sequence[int]) -> LayerWeights:
    """Return the weights of the wanted heads; `prefix` is "cross_" for cross-attention, else empty."""
    stack, fused = reader.stack, "qkv" in layer.names
    sides: list[list[Array | None]] = []
    for side in "qkv":
        fused_heads = stack.heads + 2 * stack.kv_heads
        made = stack.d_k * (fused_heads if fused else stack.heads if side == "q" else stack.kv_heads)
        matrices = reader.linear_weights(
            layer.place + layer.names["qkv" if fused else prefix + side], stack.d, made
        )
        if (apart := f"{side}_bias") in layer.names:
            bias = reader.weights.read(layer.place + layer.names[apart], stack.heads * stack.d_k)
            sides.append([reader.by_head(matrices[0], side, fused), reader.by_head(bias, side, fused=False)])
            continue
        sides.append([None if M is None else reader.by_head(M, side, fused) for M in matrices])
    shared = stack.heads // stack.kv_heads
    heads = {}
    for h in wanted:
        of_heads = zip(sides, (h, h // shared, h // shared), strict=True)
        parts = [[None if M is None else M[..., n, :] for M in side] for side, n in of_heads]
        (W_q, b_q), (W_k, b_k), (W_v, b_v) = parts
        assert W_q is not None and W_k is not None and W_v is not None
        heads[h] = HeadWeights(str(h), W_q, W_k, W_v, b_q, b_k, b_v)
    width, name = stack.heads * stack.d_k, layer.place + layer.names[f"{prefix}o"]
    is_small = width * stack.d <= MOST_JOINING
    W_o, b_o = reader.linear_weights(name, width, stack.d) if is_small else (None, None)
    return LayerWeights(heads, _qk_norms(reader, layer), W_o, b_o)


def _qk_norms(reader: Reader, layer: Layer) -> list[QKNorm]:
    """Return the norm that each head's queries and keys go through; nothing where there is none."""
    if "q_norm" not in layer.names:
        return []
    weights, stack, gains = reader.weights, reader.stack, list[Array]()
    less, d_k = 1 if "less one" in stack.norm else 0, stack.d_k
    for role, heads in (("q_norm", stack.heads), ("k_norm", stack.kv_heads)):
        shape = {"head": (d_k,), "each": (heads, d_k), "all": (heads * d_k,)}[stack.qk_norm]
        gain = less + weights.read(f"{layer.place}{layer.names[role]}.weight", *shape).reshape(-1, d_k)
        gains.append(np.repeat(gain, stack.heads // len(gain), axis=0))
    return [QKNorm(*both) for both in zip(*gains, strict=True)]
