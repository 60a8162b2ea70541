"""A stack of layers learned with PyTorch: encoder layers below, named heads on top.

The same arithmetic as `attn_cli.models.encoder`, on padded batches, with gradients; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.learn import one_layer
from attn_cli.learn.batches import UNKNOWN, Batch, EncodedSentence, Vocabulary
from attn_cli.learn.one_layer import OneLayer, set_distances
from attn_cli.learn.relations import RELATIONS, balances, blends, without_subtype
from data.making.contrast import Apart
from data.making.layers import NONE, Layers, LayerSizes, MovingMean, seeded
from data.making.lower import Lower

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = Any  # PyTorch is not there when types are checked

    from data.making.settings import DeepTraining

    Floats = NDArray[np.floating]

BETAS, WEIGHT_DECAY, MAX_GRADIENT_NORM = (0.9, 0.98), 0.01, 1.0
AUXILIARY = 0.3  # what each auxiliary task, which teaches the layers below, counts beside the heads


def labels(text: EncodedSentence, name: str) -> list[str]:
    """Return the `tag` of each word, or its `kind`: its relation without a subtype; "" where nobody knows it."""
    found: list[str] = []
    for one in text.sentences:
        known = one.tags if name == "tag" else map(without_subtype, one.relations)
        found += known if one.is_parsed else [""] * len(one.words)
    return found


def numbered_labels(texts: Iterable[EncodedSentence]) -> dict[str, dict[str, int]]:
    """Return the number of each tag and of each kind, in the order in which they come."""
    found: dict[str, dict[str, int]] = {"tag": {}, "kind": {}}
    for text in texts:
        for name, numbers in found.items():
            for label in filter(None, labels(text, name)):
                numbers.setdefault(label, len(numbers))
    return found


class Deep(OneLayer):
    """The parameters of a stack of layers, and how they learn; `lower` are those of layers that learned before.

    `texts` have the tags and the relations that are to be guessed.
    """

    always = True
    fused: bool | None = None  # whether PyTorch takes a step of all parameters in one pass

    def __init__(
        self, words: Vocabulary, vectors: Floats, settings: DeepTraining, lower: Lower | None = None,
        texts: Iterable[EncodedSentence] = (), below: Layers | None = None,
    ) -> None:  # fmt: skip
        self.torch = torch = seeded(settings.seed, settings.threads)
        self.settings = settings
        self.blend = np.array(blends(words.heads, settings.blend), vectors.dtype)
        self.balance = np.array(balances(words.heads, settings.balance or 0), vectors.dtype)
        self.heads = words.heads
        self.to_learn = [h for h, name in enumerate(words.heads) if RELATIONS[name].distance is None]
        sizes = LayerSizes(settings.layers, settings.heads, settings.width, settings.wide, settings.reach)
        if lower:
            sizes = lower.sizes  # of the same, but for the last layer's reach
        self.below = below or Layers(vectors, len(words.names), sizes)
        self.tensors = self.below.tensors
        last = settings.layers - 1
        self.tensors |= self.below.attention(last, len(words.heads), settings.dim, settings.reach)
        set_distances(self.tensors, last, words.heads, settings.dim, settings.reach)
        if lower:
            self._start_from(lower, words.heads)
        # With the layers frozen, only heads that are new learn.
        self.frozen = bool(lower and settings.freeze)
        if self.frozen and lower:
            self.to_learn = [h for h in self.to_learn if words.heads[h] not in lower.heads]
        # The same memory, as NumPy sees it.
        self.parameters = {name: one.numpy() for name, one in self.tensors.items()}
        self.layers = settings.layers
        linear, self.labels = self.below.linear, numbered_labels(texts)
        self.auxiliary = {
            **linear("tag.W", "tag.b", settings.width, len(self.labels["tag"])),
            **linear("kind.W", "kind.b", settings.width, len(self.labels["kind"])),
            **linear("word.W", "word.b", settings.width, vectors.shape[1]),
        }
        by_share: dict[float, list[Tensor]] = {}
        for name, one in (self.tensors | self.auxiliary).items():
            if share := self.share(name):
                by_share.setdefault(share, []).append(one.requires_grad_())
        self.learned = [one for some in by_share.values() for one in some]
        groups = [{"params": some, "share": share} for share, some in by_share.items()]
        decay = 0 if self.frozen else WEIGHT_DECAY
        self.optimizer = torch.optim.AdamW(groups, betas=BETAS, weight_decay=decay, fused=self.fused)
        means = [one for one in self.tensors.values() if one.requires_grad]
        self.mean = MovingMean(means, settings.keep) if settings.keep else None

    def share(self, name: str) -> float:
        """Return the share of the step size with which the parameters of this name learn; with 0 they stay."""
        return 1.0

    def _start_from(self, lower: Lower, heads: Sequence[str]) -> None:
        """Give the layers, and of the last one the heads that are there already, what was learned before."""
        last = self.settings.layers - 1
        places = [list(heads).index(name) for name in lower.heads if name in heads]
        kept = [h for h, name in enumerate(lower.heads) if name in heads]
        for name, value in lower.arrays.items():
            learned, ours = self.torch.from_numpy(value.copy()), self.tensors[name]
            if not name.startswith(f"{last}."):
                ours[...] = learned
            elif name.endswith((".R", ".b")):
                ours[places] = learned[kept][:, self._same_distances(learned.shape[1])]
            else:
                shape = (*value.shape[:-1], len(lower.heads), -1)
                ours.unflatten(-1, (len(heads), -1))[..., places, :] = learned.reshape(shape)[..., kept, :]

    def _same_distances(self, rows: int) -> Tensor:
        """Return for each distance of the last layer which of so many rows of a shorter reach stands for it."""
        shorter, reach = rows // 2, self.settings.reach
        return self.torch.arange(-reach, reach + 1).clamp(-shorter, shorter) + shorter

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the parameters be their moving mean for a while."""
        if self.mean is None:
            yield
            return
        self.mean.swap()
        try:
            yield
        finally:
            self.mean.swap()

    def weights(self, batch: Batch) -> Floats:
        """Return the named heads' weights, (b, h, n, n)."""
        torch = self.torch
        with torch.no_grad():
            X = self.below.hidden(batch)
            is_word = torch.from_numpy(batch.is_word)
            found: Floats = self.below.scores(X, self.layers - 1, is_word).softmax(-1).numpy()
        return found

    def rows(self, batch: Batch) -> Floats:
        """Return the last layer's input, (b, n, width), without dropout."""
        with self.torch.no_grad():
            found: Floats = self.below.hidden(batch).numpy()
        return found

    def compare(self, apart: Apart, rate: float) -> float:
        """Take one gradient step on which nouns suit which pronouns, by the content scores of `antecedent`."""
        last, p = self.layers - 1, self.tensors
        h = self.heads.index("antecedent")
        part = slice(h * self.settings.dim, (h + 1) * self.settings.dim)
        with self.torch.set_grad_enabled(not self.frozen):
            X = self.below.hidden(apart.batch, 0 if self.frozen else self.settings.dropout)
        Q, K = (X @ p[f"{last}.W_{m}"][:, part] + p[f"{last}.b_{m}"][part] for m in "qk")
        loss = self.settings.contrast * apart.loss(self.torch, Q, K)
        helping = 0 if self.frozen else self._reconstruction_loss(X, apart.batch)
        self._step(rate, lambda: (loss + AUXILIARY * helping).backward())
        return float(loss.detach())

    def _step(self, rate: float, backward: Callable[[], None]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.zero_grad()
        backward()
        self.torch.nn.utils.clip_grad_norm_(self.learned, MAX_GRADIENT_NORM)
        self.optimizer.step()
        if self.mean is not None:
            self.mean.update(self.torch)

    def short_products(self) -> Any:
        """Return in what products of matrices have sixteen bits (bfloat16), where the settings ask for that."""
        return self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.settings.bfloat16)

    def learn(self, batch: Batch | Apart, rate: float) -> float:
        """Take one gradient step, and return the loss before it."""
        with self.short_products():
            return self.compare(batch, rate) if isinstance(batch, Apart) else self._learn(batch, rate)

    def _learn(self, batch: Batch, rate: float) -> float:
        torch = self.torch
        with torch.set_grad_enabled(not self.frozen):
            X = self.below.hidden(batch, 0 if self.frozen else self.settings.dropout)
        # Distances are known from the start; and passages teach one head, treebanks the others.
        taught = [h for h in self.to_learn if batch.known[:, h].any()]
        if not taught:
            return 0.0
        part = batch._replace(
            targets=batch.targets[:, taught],
            has_link=batch.has_link[:, taught],
            importance=batch.importance[taught],
            known=batch.known[:, taught],
        )
        scores = self.below.scores(X, self.layers - 1, torch.from_numpy(batch.is_word), taught)
        A = scores.detach().softmax(-1).numpy()
        loss, dz = loss_and_gradient(A, part, self.blend[taught], self.balance[taught])
        helping = 0 if self.frozen else self._reconstruction_loss(X, batch)
        for name in self.labels:
            wanted = self._labels(batch, name)
            if not self.frozen and (wanted != NONE).any():
                made = X @ self.auxiliary[f"{name}.W"] + self.auxiliary[f"{name}.b"]
                right = torch.from_numpy(wanted).flatten()
                found = torch.nn.functional.cross_entropy(made.flatten(0, 1), right, ignore_index=NONE)
                helping = helping + found
        dz = torch.from_numpy(dz)
        if self.frozen:
            self._step(rate, lambda: scores.backward(dz))
        else:
            self._step(rate, lambda: torch.autograd.backward([scores, AUXILIARY * helping], [dz, None]))
        return loss

    def _labels(self, batch: Batch, name: str) -> NDArray[np.intp]:
        """Return the number of each word's label, (b, n), NONE where nobody knows it, and in the padding."""
        wanted = np.full(batch.words.shape, NONE)
        for row, text in zip(wanted, batch.texts, strict=True):
            found = [self.labels[name].get(label, NONE) for label in labels(text, name)]
            row[: len(found)] = found
        return wanted

    def _reconstruction_loss(self, X: Tensor, batch: Batch) -> Tensor:
        """Return the share of its word's vector, 0 to 1, that a row no longer gives: outputs should mean words."""
        torch = self.torch
        known = torch.from_numpy((batch.words != UNKNOWN) & batch.is_word)
        wanted = self.below.vectors[torch.from_numpy(batch.words)][known]
        found = X[known] @ self.auxiliary["word.W"] + self.auxiliary["word.b"]
        return ((found - wanted) ** 2).sum() / (wanted**2).sum().clamp(min=1e-9)


def loss_and_gradient(
    A: Floats, batch: Batch, blend: Floats | float, balance: Floats | float
) -> tuple[float, Floats]:
    """Return the mean loss of the heads and its gradient, also where targets are other models' weights.

    Such targets say how likely a link is.
    """
    if not batch.is_imitated:
        return one_layer.loss_and_gradient(A, batch, blend, balance)
    T = batch.targets
    itself = np.arange(T.shape[-1])
    counted = (batch.is_word[:, np.newaxis] & batch.known).astype(A.dtype)
    without = T[..., itself, itself] * counted
    link = counted - without
    with_link, rest = (rows.sum(axis=(0, 2)) for rows in (link, without))
    share = balance * np.minimum(1, with_link / np.maximum(rest, 1e-9))
    counts = link + without * np.asarray(share, A.dtype)[:, np.newaxis]
    counts *= (batch.importance / np.maximum(counts.sum(axis=(0, 2)), 1e-9))[:, np.newaxis]
    surprise = -(T * np.log(np.maximum(A, 1e-20))).sum(axis=3)
    return float((surprise * counts).sum()), (A - T) * counts[..., np.newaxis]
