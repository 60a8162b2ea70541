"""One attention layer learned in NumPy: the forward pass, the gradient of softmax attention, and Adam.

    Q = X W_q + b_q,  K = X W_k + b_k,  z_ij = (q_i.k_j + q_i.r_(j-i) + b_(j-i)) / sqrt(d_k),  A = softmax(z)

The loss of a row is the cross-entropy between its weights and the words that it should look at, T; its gradient is
dL/dz = A - T. The rest is the chain rule through matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from attn_cli.io.types import NDArray
from attn_cli.learn.batches import UNKNOWN, Batch, Vocabulary
from attn_cli.learn.relations import RELATIONS, balances, blends
from attn_cli.settings.training import ModelTraining

Floats = NDArray[np.floating]

MASKED = -1e9
KEEP, KEEP_SQUARE = 0.9, 0.98  # of Adam's means, at each step
SURE = 16.0  # the score of a known distance


class OneLayer:
    """The parameters of h heads, W (d, h d_k), R (h, distances, d_k), and how they learn.

    They are named as a model's file names them; a W has the columns of one head after the other.
    """

    layers = 1
    always = False  # whether the spelling of a word that has a vector adds to it

    def __init__(self, words: Vocabulary, vectors: Floats, settings: ModelTraining) -> None:
        draw = np.random.default_rng([settings.seed, 1])
        d, h, d_k = vectors.shape[1], len(words.heads), settings.dim
        self.vectors = vectors
        self.reach = reach = settings.reach
        self.blend = np.array(blends(words.heads, settings.blend), vectors.dtype)
        self.balance = np.array(balances(words.heads, settings.balance or 0), vectors.dtype)

        def small(*shape: int, size: float) -> Floats:
            return (draw.standard_normal(shape) * size).astype(vectors.dtype)

        parameters: dict[str, Floats] = {
            "0.W_q": small(d, h * d_k, size=d**-0.5),
            "0.b_q": np.zeros(h * d_k, vectors.dtype),
            "0.W_k": small(d, h * d_k, size=d**-0.5),
            "0.b_k": np.zeros(h * d_k, vectors.dtype),
            "0.R": small(h, 2 * reach + 1, d_k, size=0.1),
            "0.b": np.zeros((h, 2 * reach + 1), vectors.dtype),
            "start": small(len(words.names) + 1, d, size=0.2),
        }
        parameters["start"][-1] = 0
        set_distances(parameters, 0, words.heads, d_k, reach)
        self.parameters, self.adam = parameters, Adam(parameters)

    def averaged(self) -> AbstractContextManager[None]:
        """Let the parameters be their moving mean for a while, where one is kept."""
        return nullcontext()

    def copy(self) -> dict[str, Floats]:
        """Return the parameters as they are now."""
        return {name: value.copy() for name, value in self.parameters.items()}

    def restore(self, copied: dict[str, Floats]) -> None:
        """Restore copied parameters."""
        for name, value in copied.items():
            self.parameters[name][...] = value

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays of a model's file: projections head by head, and the features' vectors."""
        arrays = self.copy()
        arrays["start.vectors"] = arrays.pop("start")[:-1]
        for layer in range(self.layers):
            for name in {f"{layer}.{part}_{m}" for part in "Wb" for m in "qkv"} & set(arrays):
                value = arrays[name]
                by_head = value.reshape(*value.shape[:-1], len(arrays[f"{layer}.b"]), -1)
                arrays[name] = np.moveaxis(by_head, -2, 0)
        return arrays

    def inputs(self, batch: Batch) -> Floats:
        """Return X (b, n, d): word vectors, and what the spelling adds: `always`, or where a word has no vector."""
        X, spelled = self.vectors[batch.words], self._spelled(batch)
        X[spelled] += self.parameters["start"][batch.features[spelled]].sum(axis=1)
        return X

    def _spelled(self, batch: Batch) -> NDArray[np.bool_]:
        return batch.is_word if self.always else batch.is_word & (batch.words == UNKNOWN)

    def weights(self, batch: Batch) -> Floats:
        """Return A (b, h, n, n)."""
        return self._forward(batch)[0]

    def _forward(self, batch: Batch) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.intp]]:
        p, X = self.parameters, self.inputs(batch)
        b, n, d = X.shape

        def by_head(m: str) -> Floats:  # (b, h, n, d_k)
            made = X.reshape(b * n, d) @ p[f"0.W_{m}"] + p[f"0.b_{m}"]
            return made.reshape(b, n, len(p["0.b"]), -1).transpose(0, 2, 1, 3)

        Q, K = by_head("q"), by_head("k")
        away = np.clip(np.arange(n) - np.arange(n)[:, np.newaxis], -self.reach, self.reach) + self.reach
        by_distance = Q @ p["0.R"].swapaxes(1, 2) + p["0.b"][:, np.newaxis]
        z = Q @ K.swapaxes(2, 3)
        z += np.take_along_axis(by_distance, np.broadcast_to(away, z.shape), axis=3)
        z *= Q.shape[3] ** -0.5
        z[~np.broadcast_to(batch.is_word[:, np.newaxis, np.newaxis], z.shape)] = MASKED
        z -= z.max(axis=3, keepdims=True)
        A = np.exp(z)
        A /= A.sum(axis=3, keepdims=True)
        return A, X, Q, K, away

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Floats]]:
        """Return the loss of a batch and its gradient for every parameter."""
        p = self.parameters
        A, X, Q, K, away = self._forward(batch)
        loss, dz = self.loss_and_gradient(A, batch)
        spelled = self._spelled(batch)
        dz *= Q.shape[3] ** -0.5
        heads, distances = p["0.b"].shape
        b, _, n, _ = A.shape
        # The sum of dz over the keys at each distance from a row: a product with one-hot distances.
        one_hot = (away[:, :, np.newaxis] == np.arange(distances)).astype(A.dtype)
        rows = dz.transpose(2, 0, 1, 3).reshape(n, b * heads, n)
        by_distance = (rows @ one_hot).reshape(n, b, heads, distances).transpose(1, 2, 0, 3)
        dQ = dz @ K + by_distance @ p["0.R"]
        dK = dz.swapaxes(2, 3) @ Q
        flat = by_distance.transpose(1, 3, 0, 2).reshape(heads, distances, b * n)
        gradients = {"0.R": flat @ Q.transpose(1, 0, 2, 3).reshape(heads, b * n, -1)}
        gradients["0.b"] = by_distance.sum(axis=(0, 2))
        dX = np.zeros_like(X)
        for name, dM in (("q", dQ), ("k", dK)):
            columns = dM.transpose(0, 2, 1, 3).reshape(b * n, -1)
            gradients[f"0.W_{name}"] = X.reshape(b * n, -1).T @ columns
            gradients[f"0.b_{name}"] = columns.sum(axis=0)
            dX += (columns @ p[f"0.W_{name}"].T).reshape(X.shape)
        gradients["start"] = np.zeros_like(p["start"])
        places = batch.features[spelled]
        spread = np.broadcast_to(dX[spelled][:, np.newaxis], (*places.shape, X.shape[2]))
        np.add.at(gradients["start"], places, spread)
        gradients["start"][-1] = 0
        return loss, gradients

    def loss_and_gradient(self, A: Floats, batch: Batch) -> tuple[float, Floats]:
        """Return the loss of the weights A (b, h, n, n), and its gradient for the scores."""
        return loss_and_gradient(A, batch, self.blend, self.balance)

    def learn(self, batch: Batch, rate: float) -> float:
        """Take one gradient step, and return the loss before it."""
        loss, gradients = self.gradients(batch)
        self.adam.step(gradients, rate)
        return loss


def set_distances(parameters: dict[str, Any], last: int, heads: Sequence[str], d_k: int, reach: int) -> None:
    """Set the heads that are a distance to that distance, and to the word itself where no word is there.

    W_q, W_k and R are zero, so they get no gradient and stay zero.
    """
    for h, name in enumerate(heads):
        if (distance := RELATIONS[name].distance) is not None:
            parameters[f"{last}.b"][h, reach] = SURE / 2 * d_k**0.5
            parameters[f"{last}.b"][h, reach + distance] = SURE * d_k**0.5
            for W in (f"{last}.W_q", f"{last}.W_k"):
                parameters[W][:, h * d_k : (h + 1) * d_k] = 0
            parameters[f"{last}.R"][h] = 0


def loss_and_gradient(
    A: Floats, batch: Batch, blend: Floats | float, balance: Floats | float
) -> tuple[float, Floats]:
    """Return the mean loss of the heads, and its gradient dL/dz (b, h, n, n).

    The share `blend` (one number, or one a head) of a row's target weights the wanted words as the model does now, so
    that finding one of them is enough. Rows of which the relation is not known do not count; those without it, which
    mostly outnumber the others, together at most `balance` (one number a head) times as much as those with it.
    """
    T, has_link = batch.targets, batch.has_link
    right = np.where(T > 0, A, 0)
    found = np.maximum(right.sum(axis=3, keepdims=True), 1e-9)
    some = np.broadcast_to(np.asarray(blend, A.dtype), len(batch.importance))[:, np.newaxis]
    wanted = (1 - some[..., np.newaxis]) * T + some[..., np.newaxis] * right / found
    without = batch.is_word[:, np.newaxis] & ~has_link & batch.known
    with_link, rest = (rows.sum(axis=(0, 2)) for rows in (has_link, without))
    share = balance * np.minimum(1, with_link / np.maximum(rest, 1))
    counts = np.where(has_link, 1, without * share[:, np.newaxis]).astype(A.dtype)
    counts *= (batch.importance / np.maximum(counts.sum(axis=(0, 2)), 1e-9))[:, np.newaxis]
    surprise = -((1 - some) * (T * np.log(np.maximum(A, 1e-20))).sum(axis=3) + some * np.log(found[..., 0]))
    return float((surprise * counts).sum()), (A - wanted) * counts[..., np.newaxis]


class Adam:
    """Adam (Kingma and Ba 2015): each step is the mean gradient over the root of the mean squared gradient."""

    def __init__(self, parameters: dict[str, Floats]) -> None:
        self.parameters = parameters
        self.mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.steps = 0

    def step(self, gradients: dict[str, Floats], rate: float) -> None:
        """Move every parameter once."""
        self.steps += 1
        for name, gradient in gradients.items():
            mean, square = self.mean[name], self.square[name]
            mean += (1 - KEEP) * (gradient - mean)
            square += (1 - KEEP_SQUARE) * (gradient * gradient - square)
            size = np.sqrt(square / (1 - KEEP_SQUARE**self.steps)) + 1e-8
            self.parameters[name] -= rate / (1 - KEEP**self.steps) * mean / size
