"""Layers' parts, read and applied: linear maps, norms, the network after attention, and the weights of some heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from attn_cli.core.heads import QK, HeadWeights
from attn_cli.core.threads import processors, run
from attn_cli.errors import InputError, refuse_input, visible
from attn_cli.io.types import Array, NamedTuple
from attn_cli.models.checkpoints import Layer, Stack
from attn_cli.models.checkpoints.blocks import ACTIVATIONS, NORMS, logistic, softmax
from attn_cli.models.checkpoints.quantized import Stored
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.logit_parts import FrozenNorm

Activation = Callable[[Array], Array]
PART = 3 << 20  # numbers of a matrix that are held at once
SMALL = 1 << 18  # numbers that one thread reads, multiplies or finishes alone
NEAR = 1 << 15  # numbers that are activated at once: they stay in the processor's cache


def check_finite(where: str, *arrays: Array) -> None:
    """Raise InputError if an array holds what is not a finite number."""
    if not all(np.isfinite(array).all() for array in arrays):
        said = f"{where}: what it makes is not a finite number."
        raise InputError(said, "The checkpoint holds NaN, infinity or numbers too large for float32.")


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

    def role(self, layer: Layer, role: str, x: Array, made: int | None) -> Array:
        """Return what the tensors of a role in a layer make of x."""
        return self.linear(layer.tensor(role), x, made)

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

    def head_matrices(self, layer: Layer, role: str) -> tuple[Array, Array | None]:
        """Return W (d, h, d_k) and b (h, d_k) of all heads' queries, keys or values; a `role` such as cross_q."""
        stack, side, fused = self.stack, role[-1], "qkv" in layer.names
        heads = stack.heads + 2 * stack.kv_heads if fused else stack.heads if side == "q" else stack.kv_heads
        W, b = self.linear_weights(layer.tensor("qkv" if fused else role), stack.d, heads * stack.d_k)
        b = None if b is None else self.by_head(b, side, fused)
        if (apart := f"{side}_bias") in layer.names:
            b = self.weights.read(layer.tensor(apart), stack.heads * stack.d_k).reshape(-1, stack.d_k)
        return self.by_head(W, side, fused), b

    def joined(self, layer: Layer, prefix: str, output: Array) -> Array:
        """Return the heads' outputs side by side, times W_o: (b, n_q, d); `prefix` is "cross_" for cross-attention."""
        b, h, rows, d_v = output.shape
        side_by_side = output.transpose(0, 2, 1, 3).reshape(b, rows, h * d_v)
        return self.linear(layer.tensor(prefix + "o"), side_by_side, self.stack.d)

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
    """Return what the network after attention makes of each word by itself: of experts, those that a router chooses."""
    if (experts := reader.stack.experts) is None or "router" not in layer.names:
        return _dense(reader, layer, x)
    rows = x.reshape(-1, x.shape[-1])
    shares, found = softmax(reader.role(layer, "router", rows, experts.number)), np.zeros_like(rows)
    check_finite(f"{visible(reader.weights.folder)}, {layer.place}", shares)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : experts.chosen]
    shares = np.take_along_axis(shares, chosen, axis=-1)
    if experts.is_normed:
        shares /= shares.sum(axis=-1, keepdims=True)
    for n in np.unique(chosen):
        at, rank = np.nonzero(chosen == n)
        found[at] += shares[at, rank, None] * _dense(reader, layer, rows[at], "expert_", int(n))
    if "shared_share" in layer.names:
        counts = logistic(reader.role(layer, "shared_share", rows, 1))
        found += counts * _dense(reader, layer, rows, "shared_")
    return found.reshape(x.shape)


def _dense(reader: Reader, layer: Layer, x: Array, kind: str = "", number: int = 0) -> Array:
    """Return what a network makes of words: of a layer, or of a `kind` in it, expert_ of this number or shared_."""
    roles = (role for role in ROLES if kind + role in layer.names)
    names = {role: layer.place + layer.names[kind + role].format(number) for role in roles}
    activation, limit = ACTIVATIONS[reader.stack.activation], None
    if (experts := reader.stack.experts) is not None and experts.clamp is not None:
        activation, limit = experts.clamp.gate, experts.clamp.up
    hidden: Array
    if "gate_up" in names or "pairs" in names:
        name = names.get("gate_up") or names["pairs"]
        both = reader.linear(name, x, None)
        half, odd = divmod(both.shape[-1], 2)
        refuse_input(odd, f"{visible(reader.weights.folder)}: {name} has an odd number of rows.")
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
    qk_norms: list[QK]  # of the norm that each head's queries and keys go through, where there is one
    W_o: Array | None  # (heads x d_v, d); None where it is too large to be shown
    b_o: Array | None


def read_layer_weights(reader: Reader, layer: Layer, prefix: str, wanted: Sequence[int]) -> LayerWeights:
    """Return the weights of the wanted heads; `prefix` is "cross_" for cross-attention, else empty."""
    stack = reader.stack
    (W_q, b_q), (W_k, b_k), (W_v, b_v) = (reader.head_matrices(layer, prefix + side) for side in "qkv")
    heads = {}
    for h in wanted:
        n = h * stack.kv_heads // stack.heads  # of the keys and values that it shares
        q, k, v = (None if b is None else b[at] for b, at in ((b_q, h), (b_k, n), (b_v, n)))
        heads[h] = HeadWeights(str(h), W_q[:, h], W_k[:, n], W_v[:, n], q, k, v)
    width, name = stack.heads * stack.d_k, layer.tensor(f"{prefix}o")
    is_small = width * stack.d <= MOST_JOINING
    W_o, b_o = reader.linear_weights(name, width, stack.d) if is_small else (None, None)
    return LayerWeights(heads, _qk_norms(reader, layer), W_o, b_o)


def _qk_norms(reader: Reader, layer: Layer) -> list[QK]:
    """Return the norm that each head's queries and keys go through; nothing where there is none."""
    if "q_norm" not in layer.names:
        return []
    weights, stack, gains = reader.weights, reader.stack, list[Array]()
    less, d_k = 1 if "less one" in stack.norm else 0, stack.d_k
    for role, heads in (("q_norm", stack.heads), ("k_norm", stack.kv_heads)):
        shape = {"head": (d_k,), "each": (heads, d_k), "all": (heads * d_k,)}[stack.qk_norm]
        gain = less + weights.read(f"{layer.tensor(role)}.weight", *shape).reshape(-1, d_k)
        gains.append(np.repeat(gain, stack.heads // len(gain), axis=0))
    return [QK(*both) for both in zip(*gains, strict=True)]


# Products of words and stored matrices, of which some rows at a time are read and multiplied


def product(
    x: Array, matrix: Stored, in_out: bool = False, b: Array | None = None, activation: Activation | None = None,
) -> Array:  # fmt: skip
    """Return activation(x W + b), (n, made), for x (n, in) and W stored as (made, in), or as (in, made) if `in_out`.

    Threads read rows of W together, and then multiply by half of them, or of their columns, each. The parts are the
    same for any number of threads, and so are the sums.
    """
    rows, width = matrix.entry.shape
    found = np.empty((len(x), width) if in_out else (rows, len(x)), np.float32)
    room = np.empty((min(rows, max(1, PART // width)), width), np.float32)
    for start in range(0, rows, len(room)):
        W = _read_together(matrix, start, room[: rows - start])
        X, own = (x[:, start : start + len(W)], found) if in_out else (x.T, found[start : start + len(W)])
        _multiply_together(X, W, own, in_out, start > 0)
    several = max(1, NEAR // found.shape[1])

    def finish(at: int) -> None:
        near = found[at : at + several]
        if b is not None:
            near += b if in_out else b[at : at + several, None]
        if activation is not None:
            near[:] = activation(near)

    _in_threads(range(0, len(found), several), finish, found.size <= SMALL)
    return found if in_out else found.T


def _read_together(matrix: Stored, start: int, room: Array) -> Array:
    """Return as many rows as `room` has, from row `start` on, which threads read into it."""
    if matrix.held is not None:
        return matrix.held[start : start + len(room)]
    step = math.ceil(len(room) / (1 if room.size <= SMALL else 2))

    def read(at: int) -> None:
        part = room[at : at + step]
        own = part.reshape(-1).view(np.uint8) if matrix.entry.dtype.itemsize <= 4 else None
        made = matrix.rows(start + at, len(part), own)
        if not np.may_share_memory(made, part):
            part[:] = made

    _in_threads(range(0, len(room), step), read)
    return room


def _multiply_together(X: Array, W: Array, found: Array, in_out: bool, adds: bool) -> None:
    """Make `found` X W where W stands in-out, or add it; else W X, half of W's columns or rows at a time."""
    size = W.shape[1] if in_out else len(W)
    step = math.ceil(size / (1 if W.size <= SMALL else 2))

    def multiply(at: int) -> None:
        own = slice(at, at + step)
        if not in_out:
            np.matmul(W[own], X, out=found[own])
        elif adds:
            found[:, own] += X @ W[:, own]
        else:
            np.matmul(X, W[:, own], out=found[:, own])

    _in_threads(range(0, size, step), multiply)


def _in_threads(tasks: range, do: Callable[[int], None], alone: bool = False) -> None:
    """Do every task; one thread does a single one, and all if it is `alone`."""

    def quietly(task: int) -> None:
        with np.errstate(all="ignore"):  # which is each thread's own
            do(task)

    if alone or len(tasks) == 1:
        for task in tasks:
            quietly(task)
    else:
        run(tasks, lambda: quietly, processors())
