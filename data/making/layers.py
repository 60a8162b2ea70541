"""The layers below the named heads, in PyTorch: their parameters, and what they make of padded sentences.

The same arithmetic as `attn_cli.models.encoder`, on padded batches, with gradients; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from attn_cli.errors import MissingExtra
from attn_cli.models.encoder import NEARLY_ZERO

NONE = -100  # the target that PyTorch's cross_entropy ignores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = Any  # PyTorch is not there when types are checked

    Floats = NDArray[np.floating]


class LayerSizes(NamedTuple):
    """How many layers there are (the named heads' among them), and how large those below are."""

    layers: int
    heads: int
    width: int
    wide: int  # hidden units of each word's own network
    reach: int  # longer distances count as this one


class Padded(Protocol):
    """Sentences padded to the longest: b sentences, n words, m features a word."""

    @property
    def words(self) -> NDArray[np.intp]:
        """Rows of the vectors, or UNKNOWN, (b, n)."""

    @property
    def features(self) -> NDArray[np.intp]:
        """Numbers of features, padded with the number of features, (b, n, m)."""

    @property
    def is_word(self) -> NDArray[np.bool_]:
        """Which places hold a word, (b, n)."""


def pytorch() -> Any:
    """Return the module torch, or say how to install it."""
    try:
        # Takes a second to import, which only training several layers pays for.
        import torch
    except ImportError:
        raise MissingExtra("Training several layers needs PyTorch: pip install torch") from None
    return torch


def seeded(seed: int, threads: int) -> Any:
    """Return PyTorch, set so that the same seed gives the same numbers."""
    torch = pytorch()
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it is slow, and nothing reads such memory
    return torch


class Layers:
    """How words start, and the encoder layers: all that lies below the last layer; `tensors` are its parameters.

    `vectors` are those of the words, (words, d), with a last row of zeros.
    """

    def __init__(self, vectors: Floats, features: int, sizes: LayerSizes) -> None:
        self.torch = torch = pytorch()
        self.sizes = sizes
        self.vectors = torch.from_numpy(vectors)
        self.features = features
        d, width, wide = vectors.shape[1], sizes.width, sizes.wide
        p: dict[str, Tensor] = {
            "start": self.normal(features + 1, d, size=0.2),
            **self.linear("in.W", "in.b", d, width),
        }
        p["start"][features] = 0
        shapes = {"v": (width, width), "o": (width, width), "1": (width, wide), "2": (wide, width)}
        for layer in range(sizes.layers - 1):
            p |= self.attention(layer, sizes.heads, width // sizes.heads)
            for key, shape in shapes.items():
                p |= self.linear(f"{layer}.W_{key}", f"{layer}.b_{key}", *shape)
            for k in (1, 2):
                p[f"{layer}.gain_{k}"] = torch.ones(width)
                p[f"{layer}.shift_{k}"] = torch.zeros(width)
        self.tensors = p

    def normal(self, *shape: int, size: float) -> Tensor:
        """Return random numbers with this standard deviation."""
        return self.torch.randn(*shape) * size

    def linear(self, W: str, b: str, rows: int, columns: int) -> dict[str, Tensor]:
        """Return a matrix and a row to add, by these names, before anything is learned."""
        size = (2 / (rows + columns)) ** 0.5
        return {W: self.normal(rows, columns, size=size), b: self.torch.zeros(columns)}

    def attention(self, layer: int, heads: int, d_k: int, reach: int | None = None) -> dict[str, Tensor]:
        """Return what gives the scores of a layer's heads, before anything is learned."""
        width, distances = self.sizes.width, 2 * (reach or self.sizes.reach) + 1
        return {
            **self.linear(f"{layer}.W_q", f"{layer}.b_q", width, heads * d_k),
            **self.linear(f"{layer}.W_k", f"{layer}.b_k", width, heads * d_k),
            f"{layer}.R": self.normal(heads, distances, d_k, size=0.1),
            f"{layer}.b": self.torch.zeros(heads, distances),
        }

    def hidden(self, batch: Padded, dropout: float = 0) -> Tensor:
        """Return the last layer's input, (b, n, width)."""
        torch, p = self.torch, self.tensors
        features = torch.from_numpy(batch.features).flatten(0, 1)
        spelled = torch.nn.functional.embedding_bag(
            features, p["start"], mode="sum", padding_idx=self.features
        )
        X = self.vectors[torch.from_numpy(batch.words)]
        X = (X + spelled.reshape(X.shape)) @ p["in.W"] + p["in.b"]
        is_word = torch.from_numpy(batch.is_word)
        for layer in range(self.sizes.layers - 1):
            X = self._encoder(X, layer, is_word, dropout)
        return X

    def _encoder(self, X: Tensor, layer: int, is_word: Tensor, dropout: float) -> Tensor:
        p, width = self.tensors, X.shape[2:]

        def normed(X: Tensor, k: int) -> Tensor:
            gain, shift = p[f"{layer}.gain_{k}"], p[f"{layer}.shift_{k}"]
            return self.torch.nn.functional.layer_norm(X, width, gain, shift, NEARLY_ZERO)

        def drop(M: Tensor) -> Tensor:
            """Drop the same columns in all rows of a sentence (Gal and Ghahramani 2016), which is quick to draw."""
            if not dropout:
                return M
            kept = self.torch.ones(*M.shape[:-2], 1, M.shape[-1])
            return M * self.torch.nn.functional.dropout(kept, dropout)

        A = drop(self.scores(X, layer, is_word).softmax(-1))
        V = _by_head(X @ p[f"{layer}.W_v"] + p[f"{layer}.b_v"], self.sizes.heads)
        joined = (A @ V).transpose(1, 2).reshape(X.shape)
        attended = joined @ p[f"{layer}.W_o"] + p[f"{layer}.b_o"]
        X = normed(X + drop(attended), 1)
        wide = drop((X @ p[f"{layer}.W_1"] + p[f"{layer}.b_1"]).relu())
        made = drop(wide @ p[f"{layer}.W_2"] + p[f"{layer}.b_2"])
        return normed(X + made, 2)

    def scores(self, X: Tensor, layer: int, is_word: Tensor, heads: Sequence[int] | None = None) -> Tensor:
        """Return (q.k + q.r + b) / sqrt(d_k), (b, h, n, n), very low in the padding; of these heads, or of all."""
        torch, n = self.torch, X.shape[1]
        p = {name: self.tensors[f"{layer}.{name}"] for name in ("W_q", "b_q", "W_k", "b_k", "R", "b")}
        h, reach = len(p["b"]), p["b"].shape[1] // 2
        if heads is not None:
            for name in ("W_q", "b_q", "W_k", "b_k"):
                p[name] = p[name].unflatten(-1, (h, -1))[..., heads, :].flatten(-2)
            p["R"], p["b"], h = p["R"][heads], p["b"][heads], len(heads)
        Q, K = (_by_head(X @ p[f"W_{m}"] + p[f"b_{m}"], h) for m in "qk")
        away = (torch.arange(n) - torch.arange(n)[:, None]).clamp(-reach, reach) + reach
        by_distance = Q @ p["R"].transpose(1, 2) + p["b"][:, None]
        z = Q @ K.transpose(2, 3) + by_distance.gather(3, away.expand(*Q.shape[:3], n))
        z = z / Q.shape[3] ** 0.5
        return z.masked_fill(~is_word[:, None, None], -1e9)


class MovingMean:
    """The mean of parameters over the last steps, each step counting `keep` times as much as the next."""

    def __init__(self, tensors: list[Tensor], keep: float) -> None:
        self.tensors = tensors
        self.keep = keep
        self.means = [one.detach().clone() for one in tensors]
        self.steps = 0

    def update(self, torch: Any) -> None:
        """Let the parameters as they are now count; over the first steps, the mean is quicker to follow."""
        self.steps += 1
        keep = min(self.keep, self.steps / (self.steps + 10))
        with torch.no_grad():
            torch._foreach_lerp_(self.means, [one.detach() for one in self.tensors], 1 - keep)

    def swap(self) -> None:
        """Put the means in the parameters' place, and the parameters in theirs; a second call undoes it."""
        for one, mean in zip(self.tensors, self.means, strict=True):
            kept = one.detach().clone()
            one.detach().copy_(mean)
            mean.copy_(kept)


def _by_head(M: Tensor, heads: int) -> Tensor:
    return M.reshape(*M.shape[:2], heads, -1).transpose(1, 2)
