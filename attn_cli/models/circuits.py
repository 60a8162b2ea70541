"""Copying: whether a head that looks at a word makes that word likelier, read from weights alone.

Elhage et al. 2021 ("A Mathematical Framework for Transformer Circuits", Summarizing OV/QK Matrices): what a head writes
of a word, W_E W_V W_O W_U, is V x V, from each word that is looked at to each word's score. Where most of its
eigenvalues are positive, words make themselves likelier. Those that are not 0 are the eigenvalues of the d_v x d_v
matrix W_O (W_U W_E) W_V, so V x V is never made.

Of norms on the way only what is linear counts, as of a stream whose size is fixed: centring and weights. Left out are
the divisions by a word's own size, which are positive, positions, all biases, the networks of the layers, the
activation before a masked-word output, and caps on scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.describe import Model, Stack
from attn_cli.models.checkpoints.reader import Reader, check_finite
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.encoder import EncoderStack, Norm

BLOCK = 4096  # words at once


def copying_shares(out: Array, K: Array, V: Array, where: str) -> list[float | None]:
    """Return sum(eigenvalues) / sum(|eigenvalues|) of each head, -1 to 1; None where all are 0.

    `out` (h, d_v, m) is what scores make of a head's output, K (m, d) what scores make of words times words, and V
    (d, h or fewer, d_v) what heads, or so many groups of them, read. Raises InputError for what is not finite.
    """
    with np.errstate(all="ignore"):
        read = np.repeat(np.tensordot(K, V, 1), len(out) // V.shape[1], axis=1)  # (m, h, d_v)
        circuits = (out @ read.transpose(1, 0, 2)).astype(np.float64)
    check_finite(where, circuits)
    found = np.linalg.eigvals(circuits)
    sums, sizes = found.sum(axis=1).real, np.abs(found).sum(axis=1)
    return [float(one / size) if size else None for one, size in zip(sums, sizes, strict=True)]


class CheckpointCircuits:
    """The circuits of the stack of a checkpoint that makes words."""

    def __init__(self, model: Model, weights: Weights) -> None:
        self.head, self.stack = model.logits, list(model.stacks.values())[-1]
        self.reader, self.weights = Reader(weights, self.stack), weights

    def copying(self, n: int) -> list[float | None]:
        """Return the share of each head of layer n."""
        stack, layer = self.stack, self.stack.layers[n]
        fused = "qkv" in layer.names
        name = layer.place + layer.names["qkv" if fused else "v"]
        made = stack.d_k * (stack.heads + 2 * stack.kv_heads if fused else stack.kv_heads)
        V = self.reader.by_head(self.reader.linear_weights(name, stack.d, made)[0], "v", fused)
        out = self._linear(layer.place + layer.names["o"], stack.heads * stack.d_k, stack.d)
        before, after = norms_beside(stack, n)
        K = self._through(self.words, before)
        out = self._through(out, after)
        words, head = stack.words, self.head
        if head.dense:
            out = out @ self._linear(head.dense, stack.d, words.width)
        if head.norm:
            out = self._through(out, [head.norm])
        if head.project:
            out = out @ self._linear(head.project, stack.d, words.width)
        where = f"{visible(self.weights.folder)}, layer {n} beside its words"
        return copying_shares(out.reshape(stack.heads, stack.d_k, -1), K, V, where)

    @cached_property
    def words(self) -> Array:
        """W_U times W_E, (width of scores, d): how the words' scores meet the words' vectors as layers read them."""
        words, weights = self.stack.words, self.weights
        names = [weights.find(*tables) or tables[0] for tables in (self.head.tables, words.tables)]
        width = words.width if self.head.dense or self.head.project else self.stack.d
        scored, read = weights.stored(names[0], None, width), weights.stored(names[1], None, words.width)
        count = min(scored.entry.shape[0], read.entry.shape[0])
        K: Array = np.zeros((width, words.width), np.float32)
        for start in range(0, count, BLOCK):
            many = min(BLOCK, count - start)
            U = scored.rows(start, many)
            K += U.T @ (U if names[0] == names[1] else read.rows(start, many))
        steps = [words.project, words.norm] if words.project_first else [words.norm, words.project]
        for name in filter(None, steps):
            K = (
                self._through(K, [name])
                if name == words.norm
                else K @ self._linear(name, words.width, self.stack.d)
            )
        return K

    def _linear(self, name: str, given: int, made: int) -> Array:
        return self.reader.linear_weights(name, given, made)[0]

    def _through(self, rows: Array, norms: Sequence[str]) -> Array:
        """Return rows (n, d) as the linear parts of these norms leave them."""
        stack = self.stack
        for name in norms:
            rows = rows - rows.mean(axis=-1, keepdims=True) if stack.norm == "layer" else rows
            if stack.has_gains:
                rows = rows * (
                    self.weights.read(f"{name}.weight", rows.shape[-1]) + ("less one" in stack.norm)
                )
        return rows


def norms_beside(stack: Stack, n: int) -> tuple[list[str], list[str]]:
    """Return the norms on the way from the words to what the heads of layer n read, and from there to the scores."""

    def named(number: int, *roles: str) -> list[str]:
        layer = stack.layers[number]
        return [layer.place + layer.names[role] for role in roles if role in layer.names]

    both = ("norm_1", "norm_2") if stack.adds_to_norm or not stack.pre_norm else ()
    before = [name for below in range(n) for name in named(below, *both)]
    before += named(n, "norm_1") if stack.pre_norm else []
    after = named(n, "after_1", *both[stack.pre_norm :])
    after += [name for above in range(n + 1, len(stack.layers)) for name in named(above, *both)]
    return before, [*after, *filter(None, [stack.last_norm])]


class StackCircuits:
    """The circuits of a language model of attn's own, of `read` (V, d) and `scored` (V, d) words."""

    def __init__(self, stack: EncoderStack, read: Array, scored: Array) -> None:
        assert stack.words is not None and stack.top is not None  # only a language model is asked
        self.stack, self.layers = stack, (*stack.encoders, stack.top)
        K = scored.T @ read
        self.K, self.P = K if stack.W_in is None else K @ stack.W_in, stack.words.P

    def copying(self, n: int) -> list[float | None]:
        """Return the share of each head of layer n."""
        heads, W_o = self.layers[n].attention.heads, self.layers[n].attention.W_o
        assert W_o is not None  # these layers have a W_o
        norms = [norm for layer in self.layers for norm in (layer.norm_1, layer.norm_2)]
        out = _through(W_o, norms[2 * n :]) @ self.P
        V = np.stack([head.W_v for head in heads], axis=1)
        K = _through(self.K, norms[: 2 * n])
        return copying_shares(out.reshape(len(heads), V.shape[2], -1), K, V, self.stack.name)


def _through(rows: Array, norms: Sequence[Norm]) -> Array:
    for norm in norms:
        rows = (rows - rows.mean(axis=-1, keepdims=True)) * norm.gain
    return rows
