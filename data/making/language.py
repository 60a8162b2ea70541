"""A language model learned with PyTorch: a causal stack of layers whose outputs are scores of the next word.

The same arithmetic as `attn_cli.models.encoder`, on padded batches, with gradients; a test compares the two.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.models.encoder import NEARLY_ZERO
from attn_cli.models.model_file import CASES, in_bits, model_arrays
from data.making.deep import BETAS, MAX_GRADIENT_NORM, WEIGHT_DECAY
from data.making.language_text import Batch, LanguageText
from data.making.layers import pytorch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays
    from data.making.settings import LanguageTraining

    Tensor = Any  # PyTorch is not there when types are checked

WARM_UP = 300  # steps
LEAST_RATE = 0.02  # of the rate, at the end
PROJECTIONS = tuple(
    f".{part}_{m}" for part in "Wb" for m in "qkv"
)  # of a layer, which a file has head by head
SMOOTHING = 0.5  # the power of a word's frequency with which it is drawn


class Language:
    """The parameters of a language model, and how they learn."""

    def __init__(
        self,
        text: LanguageText,
        counts: NDArray[np.float64],
        vectors: NDArray[np.floating],
        settings: LanguageTraining,
    ) -> None:
        self.torch = torch = pytorch()
        torch.manual_seed(settings.seed)
        torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such
        self.settings, self.text = settings, text
        self.draw = np.random.default_rng([settings.seed, 2])
        self.vectors = torch.from_numpy(np.vstack([vectors, np.zeros((1, vectors.shape[1]))]).astype("f4"))
        self.features = torch.from_numpy(text.features)
        self.rows = torch.from_numpy(text.rows)
        self.tensors = self._initial(np.log((counts + 0.5) / (counts + 0.5).sum()))
        self.before: dict[str, object] = {}  # what is known of the model that this one goes on from
        if settings.pretrained:
            self._start_from(settings.pretrained)
        self._prepare_sampling(counts)
        for parameter in self.tensors.values():
            parameter.requires_grad_()
        self.learned = list(self.tensors.values())
        self.optimizer = torch.optim.AdamW(self.learned, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)

    def _initial(self, bias: NDArray[np.float64]) -> dict[str, Tensor]:
        """Return the parameters before anything is learned; `bias` is the logarithm of each word's share."""
        torch, settings = self.torch, self.settings
        d, width, wide, heads = self.vectors.shape[1], settings.width, settings.wide, settings.heads
        names = self.text.names
        p: dict[str, Tensor] = {
            "start": torch.randn(len(names) + 1, d) * 0.1,
            **self._linear("in.W", "in.b", d, width),
            "out.W": torch.randn(width, d) * 0.02,
            "out.first": torch.randn(width) * 0.1,
            "out.unknown": torch.zeros(d),
            "out.bias": torch.from_numpy(bias.astype("f4")),
        }
        p["start"][len(names) - settings.corrected :] = 0  # corrections, and the row of the padding
        for layer in range(settings.layers):
            shapes = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width)}
            for key, shape in {**shapes, "1": (width, wide), "2": (wide, width)}.items():
                p |= self._linear(f"{layer}.W_{key}", f"{layer}.b_{key}", *shape)
            p[f"{layer}.R"] = torch.randn(heads, settings.reach + 1, width // heads) * 0.1
            p[f"{layer}.b"] = torch.zeros(heads, settings.reach + 1)
            for k in (1, 2):
                p[f"{layer}.gain_{k}"], p[f"{layer}.shift_{k}"] = torch.ones(width), torch.zeros(width)
        return p

    def _linear(self, W: str, b: str, rows: int, columns: int) -> dict[str, Tensor]:
        size = (2 / (rows + columns)) ** 0.5
        return {W: self.torch.randn(rows, columns) * size, b: self.torch.zeros(columns)}

    def _start_from(self, path: str) -> None:
        """Take over what a language model in a file has learned; words that it did not correct start from zero."""
        arrays, about = model_arrays(path)
        arrays.pop(CASES, None)
        if "out.W" not in arrays:
            raise InputError(f"{visible(path)} is not a language model.", "Leave out --pretrained.")
        facts = json.loads(about["facts"])
        self.before = {
            name: facts[name] for name in ("trained_on", "words", "pretrained_on") if name in facts
        }
        names = arrays.pop("start.names").tobytes().decode().split("\n")
        places = {name: n for n, name in enumerate(self.text.names)}
        kept = [n for n, name in enumerate(names) if name in places]
        rows = [places[names[n]] for n in kept]
        self.tensors["start"][rows] = self.torch.from_numpy(arrays.pop("start.vectors")[kept].astype("f4"))
        for name, value in arrays.items():
            part, ours = name.lstrip("0123456789"), self.tensors.get(name)
            if part in PROJECTIONS:
                value = np.moveaxis(value, 0, -2).reshape(*value.shape[1:-1], -1)
            elif part in (".R", ".b"):
                value = value[:, : value.shape[1] // 2 + 1][:, ::-1]
            if ours is None or ours.shape != value.shape:
                said = f"The {name} of {visible(path)} does not fit a model of these sizes."
                raise InputError(said, "Give the same sizes, or leave out --pretrained.")
            ours[...] = self.torch.from_numpy(value.astype("f4"))

    def _prepare_sampling(self, counts: NDArray[np.float64]) -> None:
        """Set the words that are always scored, and how likely each of the others is to be drawn."""
        unknown, settings = self.text.unknown, self.settings
        order = np.argsort(-counts[:unknown], kind="stable")
        common = np.sort(order[: settings.common])
        self.common = np.append(common, unknown)  # the unknown word is the last of them
        self.others = np.sort(order[settings.common :])
        share = (counts[self.others] + 1) ** SMOOTHING
        self.drawn = share / share.sum()
        self.is_common = np.zeros(unknown + 1, dtype=bool)
        self.is_common[self.common] = True
        self.edges = np.cumsum(self.drawn)

    def hidden(self, batch: Batch) -> Tensor:
        """Return the last layer's output, (b, n, width)."""
        torch, p = self.torch, self.tensors
        tokens = torch.from_numpy(batch.distinct).long()
        start = p["start"] * (torch.arange(len(p["start"])) < len(self.text.names))[:, None]
        X = self.vectors[self.rows[tokens]]
        X = X + torch.nn.functional.embedding(self.features[tokens], start).sum(1)
        X = X @ p["in.W"] + p["in.b"]
        X = torch.nn.functional.embedding(torch.from_numpy(batch.places), X)
        for layer in range(self.settings.layers):
            X = self._layer(X, layer)
        return X

    def _layer(self, X: Tensor, layer: int) -> Tensor:
        p, norm, width = self.tensors, self.torch.nn.functional.layer_norm, X.shape[2:]
        Q, K, V = (self._split(X @ p[f"{layer}.W_{m}"] + p[f"{layer}.b_{m}"]) for m in "qkv")
        joined = (self.weights(Q, K, layer) @ V).transpose(1, 2).reshape(X.shape)
        X = X + joined @ p[f"{layer}.W_o"] + p[f"{layer}.b_o"]
        X = norm(X, width, p[f"{layer}.gain_1"], p[f"{layer}.shift_1"], NEARLY_ZERO)
        made = (X @ p[f"{layer}.W_1"] + p[f"{layer}.b_1"]).relu() @ p[f"{layer}.W_2"] + p[f"{layer}.b_2"]
        return norm(X + made, width, p[f"{layer}.gain_2"], p[f"{layer}.shift_2"], NEARLY_ZERO)

    def weights(self, Q: Tensor, K: Tensor, layer: int) -> Tensor:
        """Return the causal softmax of (q.k + q.r + b) / sqrt(d_k), (b, h, n, n).

        The padding is at the end, where nothing that counts looks.
        """
        torch, p = self.torch, self.tensors
        b, h, n, d_k = Q.shape
        away = (torch.arange(n - 1, -1, -1)).clamp(max=self.settings.reach)  # column c: n - 1 - c words back
        by_distance = Q @ p[f"{layer}.R"][:, away].transpose(1, 2) + p[f"{layer}.b"][:, away][:, None]
        # Row i is moved n - 1 - i columns to the left: then column j is i - j words back.
        shifted = torch.nn.functional.pad(by_distance, (1, 0)).view(b, h, n + 1, n)[:, :, 1:]
        z = (Q @ K.transpose(2, 3) + shifted) / d_k**0.5
        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
        return z.masked_fill(ahead, -math.inf).softmax(-1)

    def _split(self, M: Tensor) -> Tensor:
        return M.view(*M.shape[:2], self.settings.heads, -1).transpose(1, 2)

    def predicting(self, batch: Batch) -> tuple[Tensor, NDArray[np.intp]]:
        """Return for each token that is to be predicted what predicts it, (t, width), and its word, (t,)."""
        torch = self.torch
        H = self.hidden(batch)
        first = self.tensors["out.first"].expand(len(H), 1, -1)
        H = torch.cat([first, H[:, :-1]], 1)
        is_token = batch.rows >= 0
        return H[torch.from_numpy(is_token)], batch.rows[is_token]

    def outputs(self, words: Tensor) -> Tensor:
        """Return the corrected vectors of words, (words, d), that outputs are compared with."""
        p, corrected = self.tensors, self.settings.corrected
        at = len(self.text.names) - corrected
        own = p["start"][(words + at).clamp(max=len(p["start"]) - 1)] * (words < corrected)[:, None]
        return self.vectors[words] + own + p["out.unknown"] * (words == self.text.unknown)[:, None]

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the next word, in nats, by a sample of the words.

        The common words are all scored. The others are drawn with replacement, word w with p_w; each of the N drawn
        stands for 1 / (N p_w) words: the sum below the fraction is right on average (Bengio and Senécal 2003).
        """
        torch = self.torch
        H, wanted = self.predicting(batch)
        H = H @ self.tensors["out.W"]
        spots = self.edges.searchsorted(self.draw.random(self.settings.sampled) * self.edges[-1])
        words, times = np.unique(spots, return_counts=True)
        weight = np.log(times / (self.settings.sampled * self.drawn[words]))
        drawn = torch.from_numpy(self.others[words])
        bias = self.tensors["out.bias"]
        common = torch.from_numpy(self.common)
        right = torch.from_numpy(wanted)
        own = (H * self.outputs(right)).sum(1) + bias[right]
        near = torch.addmm(bias[common], H, self.outputs(common).T)
        far = torch.addmm(bias[drawn] + torch.from_numpy(weight.astype("f4")), H, self.outputs(drawn).T)
        # A rare word that is wanted is counted as itself, not by what was drawn.
        at = np.minimum(self.others[words].searchsorted(wanted), len(words) - 1)
        twice = np.flatnonzero(self.others[words][at] == wanted)
        far[torch.from_numpy(twice), torch.from_numpy(at[twice])] = -math.inf
        alone = own.masked_fill(torch.from_numpy(self.is_common[wanted]), -math.inf)
        total = near.logsumexp(1).logaddexp(far.logsumexp(1)).logaddexp(alone)
        return (total - own).mean()

    def learn(self, batch: Batch, rate: float) -> float:
        """Take one gradient step, and return the loss before it."""
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.settings.bfloat16):
            loss = self.loss(batch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.learned, MAX_GRADIENT_NORM)
        self.optimizer.step()
        return float(loss.detach())

    def exact(self, batch: Batch) -> tuple[float, int]:
        """Return the summed cross-entropy, in nats, over all words, and the number of tokens."""
        torch = self.torch
        with torch.no_grad():
            H, wanted = self.predicting(batch)
            scores = H @ self.tensors["out.W"] @ self.outputs(torch.arange(self.text.unknown + 1)).T
            scores += self.tensors["out.bias"]
            loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(wanted), reduction="sum")
        return float(loss), len(wanted)

    def copy(self) -> dict[str, Tensor]:
        """Return the parameters as they are now."""
        return {name: one.detach().clone() for name, one in self.tensors.items()}

    def restore(self, copied: dict[str, Tensor]) -> None:
        """Restore copied parameters."""
        with self.torch.no_grad():
            for name, value in copied.items():
                self.tensors[name].copy_(value)

    def arrays(self) -> Arrays:
        """Return the arrays of a model's file, in float16 or eight bits: projections head by head."""
        arrays = {name: one.detach().numpy().copy() for name, one in self.tensors.items()}
        arrays["start.vectors"] = arrays.pop("start")[:-1]
        heads = self.settings.heads
        for layer in range(self.settings.layers):
            for name in [f"{layer}{one}" for one in PROJECTIONS]:
                value = arrays[name]
                by_head = value.reshape(*value.shape[:-1], heads, -1)
                arrays[name] = np.moveaxis(by_head, -2, 0)
            for name in (
                f"{layer}.R",
                f"{layer}.b",
            ):  # from far to the left to far to the right: nothing there
                back = arrays[name][:, ::-1]
                arrays[name] = np.concatenate([back, np.zeros_like(back[:, 1:])], axis=1)
        return in_bits(arrays, self.settings.bits)
