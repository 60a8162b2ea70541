"""Training: lessons from treebanks, passes over them, the model written whole at the end, or at an interrupt."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import CreateError, InputError, UsageError
from attn_cli.files import regular, written
from attn_cli.learn.deep import Deep, pytorch
from attn_cli.learn.one_layer import OneLayer
from attn_cli.learn.relations import MAIN, RELATIONS
from attn_cli.learn.score import Score, score
from attn_cli.learn.sentences import UNKNOWN, Batch, Lesson, Words, batches, joined
from attn_cli.learn.treebank import Sentence, read_treebank
from attn_cli.learned import read_model, write_model
from attn_cli.progress import Report, Stage
from attn_cli.vectors.lookup import open_table
from attn_cli.vectors.table import Table
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Arrays

LONGEST = 100
SCORING_SIZE = 4000
HIDE = 0.25
SLIGHT = 1e-6


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained. None means what suits one layer, or several; `settled` fills it in."""

    layers: int = 1
    heads: int = 8
    relations: str | None = None
    epochs: int | None = None  # 12, or 16 with several layers
    rate: float | None = None  # 0.003, or 0.0012
    seed: int = 0
    dim: int = 32
    reach: int = 12
    width: int = 128
    wide: int = 256
    dropout: float = 0.15
    endings: int = 600
    itself: int | None = None  # none, or 1000
    blend: float = 0.5
    balance: float = 0.3
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    threads: int = 1

    def settled(self) -> TrainSettings:
        """Return the settings with nothing left open."""
        several = self.layers > 1
        return replace(
            self,
            relations=self.relations or ",".join(RELATIONS),
            epochs=self.epochs or (16 if several else 12),
            rate=self.rate or (0.0012 if several else 0.003),
            itself=(1000 if several else 0) if self.itself is None else self.itself,
        )


class Epoch(NamedTuple):
    """What one pass has come to: its mean loss, and on the dev sentences each head's share right."""

    number: int
    loss: float
    right: dict[str, float]


Told = Callable[[Epoch], None]


class Made(NamedTuple):
    """What training wrote: the file, how far it came, and the scores of the file's own numbers."""

    file: str
    bytes: int
    epochs: int
    scores: list[Score]
    interrupted: bool


def train_file(
    treebanks: Sequence[str], output: str, dev: str | None, embedding: str, settings: TrainSettings,
    report: Report, told: Told,
) -> Made:  # fmt: skip
    """Learn a model from treebanks and write it to `output`, all or nothing.

    An interrupt ends the training: what the passes before it have learned is written.
    """
    settings = settings.settled()
    heads = _check(settings, output, [*treebanks, *([dev] if dev else [])])
    table = open_table(embedding)
    sentences = [s for path in treebanks for s in read_treebank(path) if len(s.words) <= LONGEST]
    if not sentences:
        raise InputError(f"No sentence has at most {LONGEST} words.")
    held_back = read_treebank(dev) if dev else []
    school = School(table, heads, sentences, held_back, settings)
    done, interrupted = 0, False
    try:
        for epoch in range(settings.epochs or 1):
            loss = school.epoch(epoch, report)
            whole, done = school.learner.copy(), epoch + 1
            told(Epoch(done, loss, school.right(report) if held_back else {}))
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
        school.learner.restore(whole)
    kept = school.arrays()
    facts: dict[str, object] = {
        "trained_on": [visible(Path(path).name) for path in treebanks],
        "epochs": done,
        "settings": asdict(settings),
        "about": {name: RELATIONS[name].about for name in heads},
        "values": "words",
    }
    start = school.words.names
    _write(output, kept, start, table, settings, heads, facts)
    scores = []
    if held_back and not interrupted:
        # What is told of a head is measured on the numbers in the file, by the program's own arithmetic.
        scores = score(read_model(output), table, held_back, report)
        facts["scored_on"] = visible(Path(str(dev)).name)
        facts["scores"] = {one.name: one._asdict() for one in scores}
        _write(output, kept, start, table, settings, heads, facts)
    return Made(output, os.path.getsize(output), done, scores, interrupted)


class School:
    """The lessons, the learner, and the chance that orders them: all drawn from one seed."""

    def __init__(
        self,
        table: Table,
        heads: list[str],
        sentences: list[Sentence],
        dev: list[Sentence],
        settings: TrainSettings,
    ) -> None:
        self.settings = settings
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
                settings.balance, settings.seed,
            )  # fmt: skip
        else:
            tags, kinds = len(self.words.tags), len(self.words.kinds)
            self.learner = Deep(vectors, len(self.words.names), heads, settings, tags, kinds)
        self.steps = 0
        self.due = 0

    def epoch(self, number: int, report: Report) -> float:
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
            phase = f"epoch {number + 1} of {settings.epochs}, loss {total / done:.3f}"
            if done % 10 == 0 or done == len(groups):
                report(Stage(phase, done / len(groups), words, time.monotonic() - begun))
        return total / len(groups)

    def _batch(self, lessons: list[Lesson]) -> Batch:
        hidden = [self.draw.random(len(lesson.words)) < self.hidden[lesson.words] for lesson in lessons]
        return self.words.batch(lessons, hidden)

    def _rate(self) -> float:
        """Return the step size: up in a line at first, then down in a line to nearly nothing."""
        warm = 100 if self.settings.layers == 1 else 400
        left = max(0.02, 1 - self.steps / max(1, self.due))
        return float(self.settings.rate or 0) * min(1.0, (self.steps + 1) / warm) * left

    def right(self, report: Report) -> dict[str, float]:
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


def _write(
    output: str, arrays: Arrays, start: list[str], table: Table, settings: TrainSettings,
    heads: list[str], facts: dict[str, object],
) -> None:  # fmt: skip
    named = arrays | {"start.names": np.frombuffer("\n".join(start).encode(), np.uint8)}
    with written(output) as stream:
        write_model(stream, named, table.name, table.fingerprint(), settings.layers > 1, heads, facts)


def _check(settings: TrainSettings, output: str, files: Sequence[str]) -> list[str]:
    """Refuse before the work what could only fail after it; return the heads to learn."""
    for path in files:
        regular(path)
    limits = {
        "layers": 50, "heads": 64, "epochs": 10_000, "seed": 2**31 - 1, "dim": 1024, "reach": 1000, "width": 4096,
        "wide": 16384, "threads": 256,
    }  # fmt: skip
    for name, most in limits.items():
        value, least = getattr(settings, name), int(name != "seed")
        if not least <= value <= most:
            raise UsageError(f"--{name} cannot be {value}.", f"Give {least} to {most:,}.", f"--{name}")
    if not (math.isfinite(settings.rate or 0) and 0 < (settings.rate or 0) <= 1):
        raise UsageError(f"--rate cannot be {settings.rate}.", "Give a number above 0, up to 1.", "--rate")
    if settings.layers > 1 and settings.width % settings.heads:
        raise UsageError(
            f"--width {settings.width} cannot be shared equally among --heads {settings.heads}.",
            option="--heads",
        )
    names = [name.strip() for name in str(settings.relations).split(",")]
    strange = [name for name in names if name not in RELATIONS]
    if strange or len(set(names)) != len(names):
        wrong = visible((strange or names)[0])
        raise UsageError(
            f"--relations cannot hold {wrong!r}" + (" twice." if not strange else "."),
            f"Choose among {','.join(RELATIONS)}.",
            "--relations",
        )
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"A model is written as .safetensors, not as {visible(output)}.", option="--output")
    folder = os.path.dirname(os.path.realpath(output))
    if os.path.isdir(output) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise CreateError(
            f"Cannot create {visible(output)}.", "Choose a file in a folder that can be written to."
        )
    if settings.layers > 1:
        pytorch()
    return sorted(names, key=lambda name: (name != MAIN, list(RELATIONS).index(name)))
