"""One training: the sentences, the learner, and the random order of the batches, all drawn from one seed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.progress import Stage, StageReport
from attn_cli.learn.batches import UNKNOWN, Batch, EncodedSentence, Vocabulary, batches, concatenated
from attn_cli.learn.deep import Deep
from attn_cli.learn.one_layer import OneLayer
from attn_cli.learn.treebank import Sentence
from attn_cli.settings.training import ModelTraining

if TYPE_CHECKING:
    from attn_cli.io.array_types import Arrays
    from attn_cli.vectors.store.protocol import Vectors

LONGEST = 100  # words in a sentence
SCORING_SIZE = 4000  # words in a batch that is not learned from
HIDE = 0.25
RIDGE = 1e-6


class Trainer:
    """The sentences, the learner, and the random numbers that order them."""

    def __init__(
        self,
        table: Vectors,
        heads: list[str],
        sentences: list[Sentence],
        dev: list[Sentence],
        settings: ModelTraining,
    ) -> None:
        self.settings = settings = settings.with_defaults()
        self.draw = np.random.default_rng([settings.seed, 0])
        self.words = Vocabulary(table, settings.endings, settings.itself or 0, heads)
        bare = [sentence.without_punctuation() for sentence in sentences]
        self.sentences = [
            (self.words.encode(full), self.words.encode(without if without.words else full))
            for full, without in zip(sentences, bare, strict=True)
        ]
        self.dev = [self.words.encode(sentence, exact=True) for sentence in dev]
        vectors = self.words.matrix()
        # The rarer a word is, the more often it is hidden (Kiperwasser and Goldberg 2016).
        counts = np.zeros(len(vectors))
        for full, _ in self.sentences:
            np.add.at(counts, full.words, 1)
        self.hidden = HIDE / (HIDE + np.maximum(counts, 1)) + 0.02
        self.learner: OneLayer | Deep
        if settings.layers == 1:
            self.learner = OneLayer(vectors, len(self.words.names), heads, settings)
        else:
            tags, kinds = len(self.words.tags), len(self.words.kinds)
            self.learner = Deep(vectors, len(self.words.names), heads, settings, tags, kinds)
        self.steps = 0
        self.total_steps = 0

    def epoch(self, number: int, report: StageReport) -> float:
        """Learn from all sentences once, and return the mean loss."""
        settings, draw = self.settings, self.draw
        chosen = [pair[int(draw.random() < settings.punctuation)] for pair in self.sentences]
        texts = _paired([chosen[i] for i in draw.permutation(len(chosen))], settings.pairs, draw)
        groups = batches([len(text.words) for text in texts], settings.batch, draw)
        self.total_steps = self.total_steps or len(groups) * (settings.epochs or 1)
        begun, words, total = time.monotonic(), 0, 0.0
        for done, group in enumerate(groups, 1):
            batch = self._batch([texts[i] for i in group])
            total += self.learner.learn(batch, self._rate())
            self.steps += 1
            words += int(batch.is_word.sum())
            if done % 10 == 0 or done == len(groups):
                phase, note = f"epoch {number + 1} of {settings.epochs}", f"loss {total / done:.3f}"
                report(Stage(phase, done / len(groups), words, time.monotonic() - begun, note))
        return total / len(groups)

    def _batch(self, texts: list[EncodedSentence]) -> Batch:
        hidden = [self.draw.random(len(text.words)) < self.hidden[text.words] for text in texts]
        return self.words.batch(texts, hidden)

    def _rate(self) -> float:
        """Return the learning rate: a linear warm-up, then a linear decay to nearly nothing."""
        warm = 100 if self.settings.layers == 1 else 400
        left = max(0.02, 1 - self.steps / max(1, self.total_steps))
        return float(self.settings.rate or 0) * min(1.0, (self.steps + 1) / warm) * left

    def accuracy(self, report: StageReport) -> dict[str, float]:
        """Return each head's accuracy on the dev sentences, as the learner itself computes it."""
        heads = self.words.heads
        right, count = np.zeros(len(heads)), np.zeros(len(heads))
        for group in batches([len(sentence.words) for sentence in self.dev], SCORING_SIZE, None):
            batch = self.words.batch([self.dev[i] for i in group])
            strongest = self.learner.weights(batch).argmax(axis=3)[..., np.newaxis]
            wanted = np.take_along_axis(batch.targets, strongest, axis=3)[..., 0] > 0
            right += (wanted & batch.has_link).sum(axis=(0, 2))
            count += batch.has_link.sum(axis=(0, 2))
        return {head: float(r / c) for head, r, c in zip(heads, right, count, strict=True) if c}

    def _values(self, learner: Deep) -> Arrays:
        """Return the last layer's W_v and b_v, which best restore each word's vector from its hidden row.

        They are least squares over all sentences, by the normal equations; a head's output is then a mixture of words.
        """
        width, d = self.settings.width, self.words.table.dim
        squares, products = np.zeros((width + 1, width + 1)), np.zeros((width + 1, d))
        vectors = self.words.matrix()
        for group in batches([len(full.words) for full, _ in self.sentences], SCORING_SIZE, None):
            batch = self.words.batch([self.sentences[i][0] for i in group])
            known = batch.words != UNKNOWN
            hidden = learner.rows(batch)[known].astype(np.float64)
            rows = np.hstack([hidden, np.ones((len(hidden), 1))])
            squares += rows.T @ rows
            products += rows.T @ vectors[batch.words[known]]
        found = np.linalg.solve(squares + RIDGE * np.trace(squares) * np.eye(width + 1), products)
        last = self.settings.layers - 1
        return {f"{last}.W_v": found[:-1], f"{last}.b_v": found[-1]}

    def arrays(self) -> Arrays:
        """Return the arrays of a model's file, in float16."""
        arrays = self.learner.arrays() | {"start.vectors": self.learner.start()}
        if isinstance(self.learner, Deep):
            arrays |= self._values(self.learner)
        return {name: np.ascontiguousarray(value, dtype=np.float16) for name, value in arrays.items()}


def _paired(
    sentences: list[EncodedSentence], share: float, draw: np.random.Generator
) -> list[EncodedSentence]:
    """Join some sentences with the next, as texts may have more than one."""
    texts: list[EncodedSentence] = []
    for sentence in sentences:
        if texts and draw.random() < share and len(texts[-1].words) + len(sentence.words) <= LONGEST // 2:
            texts[-1] = concatenated(texts[-1], sentence)
        else:
            texts.append(sentence)
    return texts
