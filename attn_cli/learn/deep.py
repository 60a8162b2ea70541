"""A stack of layers learned with PyTorch: encoder layers below, named heads on top.

The same arithmetic as `attn_cli.models.encoder`, on padded batches, with gradients; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import MissingExtra
from attn_cli.learn.batches import NONE, UNKNOWN, Batch, Vocabulary
from attn_cli.learn.one_layer import Learner, loss_and_gradient, set_distances
from attn_cli.learn.relations import balances
from attn_cli.models.encoder import NEARLY_ZERO

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = Any  # PyTorch is not there when types are checked

    from attn_cli.settings.training import ModelTraining

    Floats = NDArray[np.floating]

BETAS, WEIGHT_DECAY, MAX_GRADIENT_NORM = (0.9, 0.98), 0.01, 1.0
AUXILIARY = 0.3  # what each auxiliary task, which teaches the layers below, counts beside the heads


def pytorch() -> Any:
    """Return the module torch, or say how to install it."""
    try:
        # Takes a second to import, which only training several layers pays for.
        import torch
    except ImportError:
        raise MissingExtra("Training several layers needs PyTorch: pip install 'attn-cli[learn]'") from None
    return torch


class Deep(Learner):
    """The parameters of a stack of layers, and how they learn."""

    def __init__(self, words: Vocabulary, vectors: Floats, settings: ModelTraining) -> None:
        self.torch = torch = pytorch()
        torch.manual_seed(settings.seed)
        torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(True)
        self.settings = settings
        self.balance = np.array(balances(words.heads, settings.balance or 0), vectors.dtype)
        self.vectors = torch.from_numpy(vectors)
        self.features = len(words.names)
        self.tensors = self._initial(vectors, words.heads)
        # The same memory, as NumPy sees it.
        super().__init__({name: one.numpy() for name, one in self.tensors.items()}, settings.layers)
        self.auxiliary = {
            **self._linear("tag.W", "tag.b", settings.width, len(words.tags)),
            **self._linear("kind.W", "kind.b", settings.width, len(words.kinds)),
            **self._linear("word.W", "word.b", settings.width, vectors.shape[1]),
        }
        self.learned = [*self.tensors.values(), *self.auxiliary.values()]
        for parameter in self.learned:
            parameter.requires_grad_()
        self.optimizer = torch.optim.AdamW(self.learned, betas=BETAS, weight_decay=WEIGHT_DECAY)

    def _initial(self, vectors: Floats, heads: Sequence[str]) -> dict[str, Tensor]:
        """Return the parameters before anything is learned."""
        torch, settings = self.torch, self.settings
        d, width, wide, d_k = vectors.shape[1], settings.width, settings.wide, settings.dim
        p: dict[str, Tensor] = {
            "start": self._normal(self.features + 1, d, size=0.2),
            **self._linear("in.W", "in.b", d, width),
        }
        p["start"][self.features] = 0
        shapes = {"v": (width, width), "o": (width, width), "1": (width, wide), "2": (wide, width)}
        for layer in range(settings.layers - 1):
            p |= self._attention(layer, settings.heads, width // settings.heads)
            for key, shape in shapes.items():
                p |= self._linear(f"{layer}.W_{key}", f"{layer}.b_{key}", *shape)
            for k in (1, 2):
                p[f"{layer}.gain_{k}"] = torch.ones(width)
                p[f"{layer}.shift_{k}"] = torch.zeros(width)
        last = settings.layers - 1
        p |= self._attention(last, len(heads), d_k)
        set_distances(p, last, heads, d_k, settings.reach)
        return p

    def _normal(self, *shape: int, size: float) -> Tensor:
        return self.torch.randn(*shape) * size

    def _linear(self, W: str, b: str, rows: int, columns: int) -> dict[str, Tensor]:
        size = (2 / (rows + columns)) ** 0.5
        return {W: self._normal(rows, columns, size=size), b: self.torch.zeros(columns)}

    def _attention(self, layer: int, heads: int, d_k: int) -> dict[str, Tensor]:
        width, distances = self.settings.width, 2 * self.settings.reach + 1
        return {
            **self._linear(f"{layer}.W_q", f"{layer}.b_q", width, heads * d_k),
            **self._linear(f"{layer}.W_k", f"{layer}.b_k", width, heads * d_k),
            f"{layer}.R": self._normal(heads, distances, d_k, size=0.1),
            f"{layer}.b": self.torch.zeros(heads, distances),
        }

    def hidden(self, batch: Batch, training: bool) -> Tensor:
        """Return the last layer's input, (b, n, width)."""
        torch, p = self.torch, self.tensors
        words = torch.from_numpy(batch.words)
        start = p["start"] * (torch.arange(self.features + 1) < self.features)[:, None]
        X = self.vectors[words] + torch.nn.functional.embedding(torch.from_numpy(batch.features), start).sum(
            2
        )
        X = X @ p["in.W"] + p["in.b"]
        is_word = torch.from_numpy(batch.is_word)
        for layer in range(self.layers - 1):
            X = self._encoder(X, layer, is_word, training)
        return X

    def _encoder(self, X: Tensor, layer: int, is_word: Tensor, training: bool) -> Tensor:
        p, width = self.tensors, X.shape[2:]

        def normed(X: Tensor, k: int) -> Tensor:
            gain, shift = p[f"{layer}.gain_{k}"], p[f"{layer}.shift_{k}"]
            return self.torch.nn.functional.layer_norm(X, width, gain, shift, NEARLY_ZERO)

        A = self._drop(self._scores(X, layer, is_word).softmax(-1), training)
        V = self._split(X @ p[f"{layer}.W_v"] + p[f"{layer}.b_v"], self.settings.heads)
        joined = (A @ V).transpose(1, 2).reshape(X.shape)
        attended = joined @ p[f"{layer}.W_o"] + p[f"{layer}.b_o"]
        X = normed(X + self._drop(attended, training), 1)
        wide = self._drop((X @ p[f"{layer}.W_1"] + p[f"{layer}.b_1"]).relu(), training)
        made = self._drop(wide @ p[f"{layer}.W_2"] + p[f"{layer}.b_2"], training)
        return normed(X + made, 2)

    def _scores(self, X: Tensor, layer: int, is_word: Tensor) -> Tensor:
        """Return (q.k + q.r + b) / sqrt(d_k), (b, h, n, n), very low in the padding."""
        torch, p = self.torch, self.tensors
        heads, n, reach = len(p[f"{layer}.b"]), X.shape[1], self.settings.reach
        Q, K = (self._split(X @ p[f"{layer}.W_{m}"] + p[f"{layer}.b_{m}"], heads) for m in "qk")
        away = (torch.arange(n) - torch.arange(n)[:, None]).clamp(-reach, reach) + reach
        by_distance = Q @ p[f"{layer}.R"].transpose(1, 2) + p[f"{layer}.b"][:, None]
        z = Q @ K.transpose(2, 3) + by_distance.gather(3, away.expand(*Q.shape[:3], n))
        z = z / Q.shape[3] ** 0.5
        return z.masked_fill(~is_word[:, None, None], -1e9)

    def _split(self, M: Tensor, heads: int) -> Tensor:
        return M.reshape(*M.shape[:2], heads, -1).transpose(1, 2)

    def _drop(self, M: Tensor, training: bool) -> Tensor:
        return self.torch.nn.functional.dropout(M, self.settings.dropout, training)

    def weights(self, batch: Batch) -> Floats:
        """Return the named heads' weights, (b, h, n, n)."""
        torch = self.torch
        with torch.no_grad():
            X = self.hidden(batch, training=False)
            is_word = torch.from_numpy(batch.is_word)
            found: Floats = self._scores(X, self.layers - 1, is_word).softmax(-1).numpy()
        return found

    def rows(self, batch: Batch) -> Floats:
        """Return the last layer's input, (b, n, width), without dropout."""
        with self.torch.no_grad():
            found: Floats = self.hidden(batch, training=False).numpy()
        return found

    def learn(self, batch: Batch, rate: float) -> float:
        """Take one gradient step, and return the loss before it."""
        torch = self.torch
        X = self.hidden(batch, training=True)
        scores = self._scores(X, self.layers - 1, torch.from_numpy(batch.is_word))
        A = scores.detach().softmax(-1).numpy()
        loss, dz = loss_and_gradient(A, batch, self.settings.blend, self.balance)
        helping = self._reconstruction_loss(X, batch)
        for name, wanted in (("tag", batch.tags), ("kind", batch.relations)):
            made = X @ self.auxiliary[f"{name}.W"] + self.auxiliary[f"{name}.b"]
            right = torch.from_numpy(wanted).flatten()
            found = torch.nn.functional.cross_entropy(made.flatten(0, 1), right, ignore_index=NONE)
            helping = helping + found
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        torch.autograd.backward([scores, AUXILIARY * helping], [torch.from_numpy(dz), None])
        torch.nn.utils.clip_grad_norm_(self.learned, MAX_GRADIENT_NORM)
        self.optimizer.step()
        return loss

    def _reconstruction_loss(self, X: Tensor, batch: Batch) -> Tensor:
        """Return the share of its word's vector, 0 to 1, that a row no longer gives: outputs should mean words."""
        torch = self.torch
        known = torch.from_numpy((batch.words != UNKNOWN) & batch.is_word)
        wanted = self.vectors[torch.from_numpy(batch.words)][known]
        found = X[known] @ self.auxiliary["word.W"] + self.auxiliary["word.b"]
        return ((found - wanted) ** 2).sum() / (wanted**2).sum().clamp(min=1e-9)
