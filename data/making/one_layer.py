"""One layer that learns from treebanks, and on running text from a deep model, in NumPy.

The deep model reads each line once, and its weights are kept. What the spelling of a word adds to its vector is learned
as well: of the commonest words, each one's own vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.files import regular
from attn_cli.io.types import StageReport
from attn_cli.learn.batches import SHAPES, Batch, EncodedSentence, Vocabulary, batches
from attn_cli.learn.one_layer import OneLayer
from attn_cli.learn.relations import RELATIONS, balances, check_balance, heads_to_learn
from attn_cli.learn.train import (
    SCORING_SIZE,
    Epoch,
    Trained,
    Trainer,
    hold_back,
    names_of,
    to_learn_from,
    train,
)
from attn_cli.models.model_file import in_bits
from attn_cli.vectors.lookup import open_table
from data.making import deep
from data.making.imitation import Teachers, know_all, read_teachers
from data.making.settings import DeepTraining, OneLayerTraining, check_before

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays
    from attn_cli.learn.train import ToBatch
    from attn_cli.vectors import Vectors

SMALL = 0.05  # what a vector that the spelling adds is multiplied by, before anything is learned


class Pupil(OneLayer):
    """One layer in which a word's spelling adds to its vector; targets may be another model's weights."""

    always = True

    def loss_and_gradient(self, A: deep.Floats, batch: Batch) -> tuple[float, deep.Floats]:
        """Return the loss of the weights A (b, h, n, n), and its gradient for the scores."""
        return deep.loss_and_gradient(A, batch, self.blend, self.balance)


class PupilTrainer(Trainer):
    """Treebanks beside lines of running text, whose targets are what a teacher made of them."""

    settings: OneLayerTraining

    def __init__(self, teachers: Teachers, *given: object) -> None:
        self.teachers = teachers
        super().__init__(*given)  # type: ignore[arg-type]

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors of all sentences and lines; the teacher reads the lines."""
        self.taught = [h for h, name in enumerate(self.words.heads) if RELATIONS[name].distance is None]
        names = [self.words.heads[h] for h in self.taught]
        self.lines, weights = read_by(self.teachers, self.words.table, names, self.settings, self.draw)
        known = np.isin(np.arange(len(self.words.heads)), self.taught)[:, np.newaxis]
        self.texts = [
            EncodedSentence(
                np.array([self.words.row(token) for token in tokens], dtype=np.intp),
                [self.words.spelling(token) for token in tokens],
                [{} for _ in self.words.heads],
                np.repeat(known, len(tokens), axis=1),
            )
            for tokens in self.lines
        ]
        self.weights = dict(zip(map(id, self.texts), weights, strict=True))
        return super().vectors()

    def new_learner(self, vectors: NDArray[np.float32]) -> OneLayer:
        """Return what learns."""
        learner = Pupil(self.words, vectors, self.settings)
        learner.parameters["start"] *= SMALL
        return learner

    def groups(self) -> list[tuple[list[EncodedSentence], ToBatch]]:
        """Return the sentences, and among them the lines of running text, in random order."""
        groups = super().groups() + [(few, self.imitated) for few in self.grouped(self.texts)]
        return [groups[i] for i in self.draw.permutation(len(groups)).tolist()]

    def imitated(self, some: Sequence[EncodedSentence], hidden: Sequence[NDArray[np.bool_]]) -> Batch:
        """Return lines as a batch whose targets are the teacher's weights."""
        batch = self.words.batch(some, hidden)
        batch.targets[:] = 0
        for row, text in zip(batch.targets, some, strict=True):
            n = len(text.words)
            row[self.taught, :n, :n] = self.weights[id(text)]
        return batch._replace(is_imitated=True)

    def arrays(self) -> Arrays:
        """Return the arrays of a model's file; a word counts less for itself than was learned, in some heads."""
        arrays = self.learner.arrays()
        shares = np.array(balances(self.words.heads, self.settings.afterwards))
        places, start = self.words.places, arrays["start.vectors"]
        start[[places["Xx"], places["X"]]] = start[places["x"]]  # capitals, which a lookup takes no notice of
        arrays["0.b"][:, self.settings.reach] += np.log(shares) * self.settings.dim**0.5
        return in_bits({**arrays}, self.settings.bits)

    def learned_facts(self) -> dict[str, object]:
        """Return how many words of running text were read."""
        return {"imitated_on": {"texts": names_of(self.teachers.texts), "words": sum(map(len, self.lines))}}


def read_by(
    teachers: Teachers,
    table: Vectors,
    heads: Sequence[str],
    settings: OneLayerTraining,
    draw: np.random.Generator,
) -> tuple[list[tuple[str, ...]], list[NDArray[np.float16]]]:
    """Return lines of running text, some without their marks, and the weights (h, n, n) of the teacher over each."""
    names = teachers.models[0].names
    itself = sum(name.startswith("=") for name in names)
    words = Vocabulary(table, len(names) - len(SHAPES) - itself, itself, heads)
    know_all(words)
    teachers.prepare(words, DeepTraining(balance="2", seed=settings.seed).with_defaults())
    lines = teachers.read(settings.words, settings.punctuation, draw)
    nothing = np.zeros((len(heads), 0, 0), np.float16)
    found = [nothing] * len(lines)
    for group in batches([len(tokens) for tokens in lines], SCORING_SIZE, None):
        encoded = [teachers.encoded(lines[i]) for i in group]
        weights = teachers.batch(encoded, [np.zeros(len(lines[i]), bool) for i in group]).targets
        for row, i in enumerate(group):
            n = len(lines[i])
            found[i] = weights[row, :, :n, :n].astype(np.float16)
    return lines, found


def train_file(
    treebanks: Sequence[str], output: str, dev: Sequence[str], embedding: str, settings: OneLayerTraining,
    report: StageReport, report_epoch: Callable[[Epoch], None], teacher: str, texts: Sequence[str],
) -> Trained:  # fmt: skip
    """Learn a model of one layer from treebanks, and from `teacher` on running text; write it to `output`."""
    for path in (*treebanks, *dev, teacher, *texts):
        regular(path)
    check_before(settings, [], output)
    heads = heads_to_learn(settings.relations, treebanks)
    settings = replace(settings, relations=",".join(heads))
    check_balance(settings.balance, heads)
    table = open_table(embedding)
    teachers = read_teachers([teacher], texts, table)
    sentences = to_learn_from(treebanks)
    held_back = hold_back(dev, sentences)
    scored = [one for some in held_back.values() for one in some]
    trainer = PupilTrainer(teachers, table, heads, sentences, scored, settings)
    facts: dict[str, object] = {
        "trained_on": names_of(treebanks),
        "settings": asdict(settings),
        "teachers": {one.name: dict(one.facts) for one in teachers.models},
    }
    return train(trainer, output, heads, facts, held_back, report, report_epoch)
