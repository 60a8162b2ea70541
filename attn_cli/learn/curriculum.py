"""The lessons of one training, the learner, and the chance that orders them: all drawn from one seed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.progress import Stage, StageReport
from attn_cli.learn.batches import UNKNOWN, Batch, Lesson, Words, batches, joined
from attn_cli.learn.deep import Deep
from attn_cli.learn.one_layer import OneLayer
from attn_cli.learn.settings import TrainSettings
from attn_cli.learn.treebank import Sentence

if TYPE_CHECKING:
    from attn_cli.io.array_types import Arrays
    from attn_cli.vectors.store.protocol import Vectors

LONGEST = 100
SCORING_SIZE = 4000
HIDE = 0.25
SLIGHT = 1e-6


class School:
    """The lessons, the learner, and the chance that orders them: all drawn from one seed."""

    def __init__(
        self,
        table: Vectors,
        heads: list[str],
        sentences: list[Sentence],
        dev: list[Sentence],
        settings: TrainSettings,
    ) -> None:
        self.settings = settings = settings.settled()
        self.draw = np.random.default_rng([settings.seed, 0])
        self.words = Words(table, settings.endings, settings.itself or 0, heads)
        bare = [sentence.without_punctuation() for sentence in sentences]
        self.lessons = [
            (self.words.lesson(full), self.words.lesson(without if without.words else full))
            for full, without in zip(sentences, bare, strict=True)
        ]
        self.dev = [self.words.lesson(sentence, exact=True) for sentence in dev]
        vectors = self.words.matrix()
        # A word is shown as unknown the oftener the rarer it is (Kiperwasser and Goldberg 2016).
        counts = np.zeros(len(vectors))
        for full, _ in self.lessons:
            np.add.at(counts, full.words, 1)
        self.hidden = HIDE / (HIDE + np.maximum(counts, 1)) + 0.02
        self.learner: OneLayer | Deep
        if settings.layers == 1:
            self.learner = OneLayer(
                vectors, len(self.words.names), heads, settings.dim, settings.reach, settings.blend,
                settings.balance or 0, settings.seed,
            )  # fmt: skip
        else:
            tags, kinds = len(self.words.tags), len(self.words.kinds)
            self.learner = Deep(vectors, len(self.words.names), heads, settings, tags, kinds)
        self.steps = 0
        self.due = 0

    def epoch(self, number: int, report: StageReport) -> float:
        """Go once over all sentences, and return the mean loss."""
        settings, draw = self.settings, self.draw
        lessons = [pair[int(draw.random() < settings.punctuation)] for pair in self.lessons]
        lessons = _paired([lessons[i] for i in draw.permutation(len(lessons))], settings.pairs, draw)
        groups = batches([len(lesson.words) for lesson in lessons], settings.batch, draw)
        self.due = self.due or len(groups) * (settings.epochs or 1)
        begun, words, total = time.monotonic(), 0, 0.0
        for done, group in enumerate(groups, 1):
            batch = self._batch([lessons[i] for i in group])
            total += self.learner.learn(batch, self._rate())
            self.steps += 1
            words += int(batch.is_word.sum())
            if done % 10 == 0 or done == len(groups):
                phase, note = f"epoch {number + 1} of {settings.epochs}", f"loss {total / done:.3f}"
                report(Stage(phase, done / len(groups), words, time.monotonic() - begun, note))
        return total / len(groups)

    def _batch(self, lessons: list[Lesson]) -> Batch:
        hidden = [self.draw.random(len(lesson.words)) < self.hidden[lesson.words] for lesson in lessons]
        return self.words.batch(lessons, hidden)

    def _rate(self) -> float:
        """Return the step size: up in a line at first, then down in a line to nearly nothing."""
        warm = 100 if self.settings.layers == 1 else 400
        left = max(0.02, 1 - self.steps / max(1, self.due))
        return float(self.settings.rate or 0) * min(1.0, (self.steps + 1) / warm) * left

    def right(self, report: StageReport) -> dict[str, float]:
        """Return each head's share right on the dev sentences, as the learner itself computes it."""
        heads = self.words.heads
        right, count = np.zeros(len(heads)), np.zeros(len(heads))
        for group in batches([len(lesson.words) for lesson in self.dev], SCORING_SIZE, None):
            batch = self.words.batch([self.dev[i] for i in group])
            strongest = self.learner.weights(batch).argmax(axis=3)[..., np.newaxis]
            wanted = np.take_along_axis(batch.targets, strongest, axis=3)[..., 0] > 0
            right += (wanted & batch.has_link).sum(axis=(0, 2))
            count += batch.has_link.sum(axis=(0, 2))
        return {head: float(r / c) for head, r, c in zip(heads, right, count, strict=True) if c}

    def _values(self, learner: Deep) -> Arrays:
        """Return the last layer's W_v and b_v: those that best make each word's own vector of its row again.

        Least squares over all lessons, by the normal equations; with them a head's output is a mixture of words.
        """
        width, d = self.settings.width, self.words.table.dim
        squares, products = np.zeros((width + 1, width + 1)), np.zeros((width + 1, d))
        vectors = self.words.matrix()
        for group in batches([len(full.words) for full, _ in self.lessons], SCORING_SIZE, None):
            batch = self.words.batch([self.lessons[i][0] for i in group])
            known = batch.words != UNKNOWN
            hidden = learner.rows(batch)[known].astype(np.float64)
            rows = np.hstack([hidden, np.ones((len(hidden), 1))])
            squares += rows.T @ rows
            products += rows.T @ vectors[batch.words[known]]
        found = np.linalg.solve(squares + SLIGHT * np.trace(squares) * np.eye(width + 1), products)
        last = self.settings.layers - 1
        return {f"{last}.W_v": found[:-1], f"{last}.b_v": found[-1]}

    def arrays(self) -> Arrays:
        """Return what has been learned so far, as a model's file has it, in float16."""
        arrays = self.learner.arrays() | {"start.vectors": self.learner.start()}
        if isinstance(self.learner, Deep):
            arrays |= self._values(self.learner)
        return {name: np.ascontiguousarray(value, dtype=np.float16) for name, value in arrays.items()}


def _paired(lessons: list[Lesson], share: float, draw: np.random.Generator) -> list[Lesson]:
    """Join some sentences with the next, for texts of more than one sentence."""
    made: list[Lesson] = []
    for lesson in lessons:
        if made and draw.random() < share and len(made[-1].words) + len(lesson.words) <= LONGEST // 2:
            made[-1] = joined(made[-1], lesson)
        else:
            made.append(lesson)
    return made
