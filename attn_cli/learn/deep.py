"""A stack of layers learned with PyTorch: encoder layers below, named heads on top.

The same arithmetic as `attn_cli.models.encoder`, on padded batches, with gradients; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import MissingExtra
from attn_cli.learn.batches import NONE, UNKNOWN, Batch
from attn_cli.learn.one_layer import distances, first_biases
from attn_cli.learn.relations import balances
from attn_cli.models.encoder import NEARLY_ZERO

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = Any  # PyTorch is not there when types are checked

    from attn_cli.learn.settings import TrainSettings

    Floats = NDArray[np.floating]

KEEP, KEEP_SQUARE, DECAY, LARGEST_SLOPE = 0.9, 0.98, 0.01, 1.0
HELP = 0.3  # how much parts of speech and relations count beside the heads: tasks that teach the layers below


def pytorch() -> Any:
    """Return the module torch, or say how to install it."""
    try:
        # A second to import: only who trains several layers pays for it.
        import torch
    except ImportError:
        raise MissingExtra("Training several layers needs PyTorch: pip install 'attn-cli[learn]'") from None
    return torch


class Deep:
    """The parameters of a stack, and how they learn."""

    def __init__(
        self, vectors: Floats, features: int, heads: Sequence[str], settings: TrainSettings, tags: int,
        relations: int,
    ) -> None:  # fmt: skip
        self.torch = torch = pytorch()
        torch.manual_seed(settings.seed)
        torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(True)
        self.settings = settings
        self.balance = torch.tensor(balances(heads, settings.balance or 0))
        self.vectors = torch.from_numpy(vectors)
        self.features = features
        d, width = vectors.shape[1], settings.width
        make = _Maker(torch, settings.reach)
        self.parameters: dict[str, Tensor] = {
            "start": make.normal(features + 1, d, size=0.2),
            **make.linear("in.W", "in.b", d, width),
        }
        self.parameters["start"][features] = 0
        for layer in range(settings.layers - 1):
            self.parameters |= make.attention(layer, settings.heads, width, width // settings.heads)
            self.parameters |= make.linear(f"{layer}.W_v", f"{layer}.b_v", width, width)
            self.parameters |= make.linear(f"{layer}.W_o", f"{layer}.b_o", width, width)
            self.parameters |= make.linear(f"{layer}.W_1", f"{layer}.b_1", width, settings.wide)
            self.parameters |= make.linear(f"{layer}.W_2", f"{layer}.b_2", settings.wide, width)
            for k in (1, 2):
                self.parameters[f"{layer}.gain_{k}"] = torch.ones(width)
                self.parameters[f"{layer}.shift_{k}"] = torch.zeros(width)
        self.parameters |= make.attention(settings.layers - 1, len(heads), width, settings.dim)
        last, d_k = settings.layers - 1, settings.dim
        biases = first_biases(heads, d_k, settings.reach).astype(vectors.dtype)
        self.parameters[f"{last}.b"] = torch.from_numpy(biases)
        for h in distances(heads):  # as in one layer: without content, none is learned
            for W in (f"{last}.W_q", f"{last}.W_k"):
                self.parameters[W][:, h * d_k : (h + 1) * d_k] = 0
            self.parameters[f"{last}.R"][h] = 0
        self.helpers = make.linear("tag.W", "tag.b", width, tags) | make.linear(
            "kind.W", "kind.b", width, relations
        )
        self.helpers |= make.linear("word.W", "word.b", width, d)
        learned = [*self.parameters.values(), *self.helpers.values()]
        for parameter in learned:
            parameter.requires_grad_()
        self.optimizer = torch.optim.AdamW(learned, betas=(KEEP, KEEP_SQUARE), weight_decay=DECAY)

    def hidden(self, batch: Batch, training: bool) -> Tensor:
        """Return the last layer's input, (b, n, width)."""
        torch, p = self.torch, self.parameters
        words = torch.from_numpy(batch.words)
        start = p["start"] * (torch.arange(self.features + 1) < self.features)[:, None]
        X = self.vectors[words] + torch.nn.functional.embedding(torch.from_numpy(batch.features), start).sum(
            2
        )
        X = X @ p["in.W"] + p["in.b"]
        is_word = torch.from_numpy(batch.is_word)
        for layer in range(self.settings.layers - 1):
            X = self._encoder(X, layer, is_word, training)
        return X

    def _encoder(self, X: Tensor, layer: int, is_word: Tensor, training: bool) -> Tensor:
        torch, p = self.torch, self.parameters
        normed = torch.nn.functional.layer_norm
        A = self._drop(self._scores(X, layer, is_word).softmax(-1), training)
        V = self._split(X @ p[f"{layer}.W_v"] + p[f"{layer}.b_v"], self.settings.heads)
        joined = (A @ V).transpose(1, 2).reshape(X.shape)
        attended = joined @ p[f"{layer}.W_o"] + p[f"{layer}.b_o"]
        width = X.shape[2:]
        X = normed(
            X + self._drop(attended, training),
            width,
            p[f"{layer}.gain_1"],
            p[f"{layer}.shift_1"],
            NEARLY_ZERO,
        )
        wide = self._drop((X @ p[f"{layer}.W_1"] + p[f"{layer}.b_1"]).relu(), training)
        made = self._drop(wide @ p[f"{layer}.W_2"] + p[f"{layer}.b_2"], training)
        return normed(X + made, width, p[f"{layer}.gain_2"], p[f"{layer}.shift_2"], NEARLY_ZERO)

    def _scores(self, X: Tensor, layer: int, is_word: Tensor) -> Tensor:
        """Return (q.k + q.r + b) / sqrt(d_k), (b, h, n, n), very low beyond the sentence."""
        torch, p = self.torch, self.parameters
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
            found: Floats = self._scores(X, self.settings.layers - 1, is_word).softmax(-1).numpy()
        return found

    def rows(self, batch: Batch) -> Floats:
        """Return the last layer's input, (b, n, width), as it is when nothing is dropped."""
        with self.torch.no_grad():
            found: Floats = self.hidden(batch, training=False).numpy()
        return found

    def learn(self, batch: Batch, rate: float) -> float:
        """Take one step down the gradient, and return the loss before it."""
        torch = self.torch
        X = self.hidden(batch, training=True)
        loss = self._loss(self._scores(X, self.settings.layers - 1, torch.from_numpy(batch.is_word)), batch)
        helped = loss + HELP * (self._help(X, "tag", batch.tags) + self._help(X, "kind", batch.relations))
        helped = helped + HELP * self._forgotten(X, batch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        helped.backward()
        learned = [*self.parameters.values(), *self.helpers.values()]
        torch.nn.utils.clip_grad_norm_(learned, LARGEST_SLOPE)
        self.optimizer.step()
        return float(loss.detach())

    def _forgotten(self, X: Tensor, batch: Batch) -> Tensor:
        """Return how much of its word's vector a row no longer tells, 0 to 1: outputs are to mean words."""
        torch = self.torch
        known = torch.from_numpy((batch.words != UNKNOWN) & batch.is_word)
        wanted = self.vectors[torch.from_numpy(batch.words)][known]
        told = X[known] @ self.helpers["word.W"] + self.helpers["word.b"]
        return ((told - wanted) ** 2).sum() / (wanted**2).sum().clamp(min=1e-9)

    def _help(self, X: Tensor, name: str, wanted: NDArray[np.intp]) -> Tensor:
        made = X @ self.helpers[f"{name}.W"] + self.helpers[f"{name}.b"]
        right = self.torch.from_numpy(wanted).flatten()
        return self.torch.nn.functional.cross_entropy(made.flatten(0, 1), right, ignore_index=NONE)

    def _loss(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return what `one_layer.loss_and_slope` returns as its loss."""
        torch, blend = self.torch, self.settings.blend
        log_A = scores.log_softmax(-1)
        T, has_link = torch.from_numpy(batch.targets), torch.from_numpy(batch.has_link)
        found = torch.where(T > 0, log_A.exp(), 0).sum(3).clamp(min=1e-9).log()
        surprise = -((1 - blend) * (T * log_A.clamp(min=-46)).sum(3) + blend * found)
        without = torch.from_numpy(batch.is_word)[:, None] & ~has_link
        with_link, rest = has_link.sum((0, 2)), without.sum((0, 2))
        share = self.balance * (with_link / rest.clamp(min=1)).clamp(max=1)
        counts = has_link + without * share[:, None]
        importance = torch.from_numpy(batch.importance) / counts.sum((0, 2)).clamp(min=1e-9)
        return (surprise * counts * importance[:, None]).sum()

    def copy(self) -> dict[str, Floats]:
        """Return the parameters as they are now."""
        return {name: value.detach().numpy().copy() for name, value in self.parameters.items()}

    def restore(self, copied: dict[str, Floats]) -> None:
        """Take the parameters back to what they were."""
        with self.torch.no_grad():
            for name, value in copied.items():
                self.parameters[name].copy_(self.torch.from_numpy(value))

    def arrays(self) -> dict[str, Floats]:
        """Return the layers' arrays as a model's file names them."""
        named = {}
        for name, parameter in self.parameters.items():
            value = parameter.detach().numpy().copy()
            layer, _, key = name.partition(".")
            if key in ("W_q", "W_k", "W_v") and layer.isdigit():
                heads = len(self.parameters[f"{layer}.b"])
                value = value.reshape(len(value), heads, -1).transpose(1, 0, 2)
            if key in ("b_q", "b_k", "b_v") and layer.isdigit():
                value = value.reshape(len(self.parameters[f"{layer}.b"]), -1)
            if name != "start":
                named[name] = value
        return named

    def start(self) -> Floats:
        """Return the features' vectors, (features, d)."""
        found: Floats = self.parameters["start"].detach().numpy()[:-1].copy()
        return found


class _Maker:
    """Parameters as they are before anything is learned."""

    def __init__(self, torch: Any, reach: int) -> None:
        self.torch = torch
        self.distances = 2 * reach + 1

    def normal(self, *shape: int, size: float) -> Tensor:
        made: Tensor = self.torch.randn(*shape) * size
        return made

    def linear(self, W: str, b: str, rows: int, columns: int) -> dict[str, Tensor]:
        return {
            W: self.normal(rows, columns, size=(2 / (rows + columns)) ** 0.5),
            b: self.torch.zeros(columns),
        }

    def attention(self, layer: int, heads: int, width: int, d_k: int) -> dict[str, Tensor]:
        return {
            **self.linear(f"{layer}.W_q", f"{layer}.b_q", width, heads * d_k),
            **self.linear(f"{layer}.W_k", f"{layer}.b_k", width, heads * d_k),
            f"{layer}.R": self.normal(heads, self.distances, d_k, size=0.1),
            f"{layer}.b": self.torch.zeros(heads, self.distances),
        }
