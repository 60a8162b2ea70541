"""Copying: whether a head that looks at a word makes that word likelier, read from weights alone.

What a head makes of words, W_E W_V W_O W_U, is V x V: of each word that is looked at, each word's score. Where most of
its eigenvalues are positive, words make themselves likelier (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits"). Those that are not 0 are the eigenvalues of W_O (W_U W_E) W_V, d_v x d_v.

Only what is linear counts: tables, matrices on the way, norms' centring and gains. Left out are the norms' divisions by
a word's own size, which are positive, biases, positions, networks, the activation before an output, caps on scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from attn_cli.io.types import Array
from attn_cli.models.checkpoints.describe import Layer, Model, Stack
from attn_cli.models.checkpoints.reader import Reader, check_finite
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.encoder import EncoderStack
from attn_cli.models.logit_parts import FrozenNorm

# Of the heads of a layer, sum(eigenvalues) / sum(|eigenvalues|).
Copying = Callable[[int], list[float | None]]
BLOCK, ONE = 4096, np.ones(1, np.float32)  # words at once; the scale at which norms are held


def _shares(out: Array, K: Array, V: Array, where: str) -> list[float | None]:
    """Return each head's share, None where all eigenvalues are 0; InputError for what is not finite.

    `out` (h d_v, m) is W_O W_U, K (m, d) is W_U W_E, and V (d, h or fewer, d_v) has the W_V of groups of heads.
    """
    with np.errstate(all="ignore"):
        read = np.tensordot(K, V, 1).transpose(1, 0, 2)  # (h or fewer, m, d_v)
        out = out.reshape(-1, V.shape[2], len(K))
        circuits = (out @ np.repeat(read, len(out) // len(read), axis=0)).astype(np.float64)
    check_finite(where, circuits)
    found = np.linalg.eigvals(circuits)
    sums, sizes = found.sum(axis=1).real, np.abs(found).sum(axis=1)
    return [float(one / size) if size else None for one, size in zip(sums, sizes, strict=True)]


def _through(rows: Array, norm: FrozenNorm) -> Array:
    return norm._replace(shift=None, scale=ONE).forward(rows)


def of_checkpoint(model: Model, weights: Weights) -> Copying:
    """Return what tells of the heads of a model's last stack, which has an output table, whether they copy."""
    head, stack = model.logits, list(model.stacks.values())[-1]
    reader, words = Reader(weights, stack), stack.words
    width = words.width if head.dense or head.project else stack.d

    def through(rows: Array, name: str | None, made: int | None = None) -> Array:
        """Return rows times a matrix that makes so many numbers, or through a norm of scale 1."""
        if name is not None and made is not None:
            return rows @ reader.linear_weights(name, rows.shape[-1], made)[0]
        return rows if name is None else _through(rows, reader.frozen(name, rows))

    names = [weights.find(*tables) or tables[0] for tables in (head.tables, words.tables)]
    scored, read = weights.stored(names[0], None, width), weights.stored(names[1], None, words.width)
    K: Array = np.zeros((width, words.width), np.float32)
    count = min(scored.entry.shape[0], read.entry.shape[0])
    for start in range(0, count, BLOCK):
        many = min(BLOCK, count - start)
        U = scored.rows(start, many)
        K = K + U.T @ (U if names[0] == names[1] else read.rows(start, many))
    K = through(K, words.project, stack.d) if words.project_first else through(K, words.norm)
    K = through(K, words.norm) if words.project_first else through(K, words.project, stack.d)

    def copying(n: int) -> list[float | None]:
        layer = stack.layers[n]
        V, _ = reader.head_matrices(layer, "v")
        out, _ = reader.linear_weights(layer.tensor("o"), stack.heads * stack.d_k, stack.d)
        before, after = _norms_beside(stack, n)
        out = through(through(reduce(through, after, out), head.dense, width), head.norm)
        return _shares(through(out, head.project, width), reduce(through, before, K), V, layer.place)

    return copying


def _norms_beside(stack: Stack, n: int) -> tuple[list[str], list[str]]:
    """Return the norms on the way from the words to what the heads of layer n read, and from there to the scores."""

    def named(layers: Sequence[Layer], *roles: str) -> list[str]:
        return [one.tensor(role) for one in layers for role in roles if role in one.names]

    both = ("norm_1", "norm_2") if stack.adds_to_norm or not stack.pre_norm else ()
    below, own, above = stack.layers[:n], stack.layers[n : n + 1], stack.layers[n + 1 :]
    after = named(own, "after_1", *both[stack.pre_norm :]) + named(above, *both)
    before = named(below, *both) + named(own, *["norm_1"] * stack.pre_norm)
    return before, [*after, *filter(None, [stack.last_norm])]


def of_stack(stack: EncoderStack, read: Array, scored: Array) -> Copying:
    """Return the same of a language model of attn's own, of `read` (V, d) and `scored` (V, d) vectors of words."""
    assert stack.words is not None  # only a language model is asked
    layers, P = stack.encoders, stack.words.P
    K = scored.T @ read if stack.W_in is None else scored.T @ read @ stack.W_in
    norms = [norm.frozen(K) for layer in layers for norm in (layer.norm_1, layer.norm_2)]

    def copying(n: int) -> list[float | None]:
        about, W_o = layers[n].attention, layers[n].attention.W_o
        assert W_o is not None  # these layers have one
        k, out = (reduce(_through, some, rows) for some, rows in ((norms[: 2 * n], K), (norms[2 * n :], W_o)))
        return _shares(out @ P, k, np.stack([head.W_v for head in about.heads], axis=1), stack.name)

    return copying
