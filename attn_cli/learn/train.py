"""Training on treebanks, drawn from one seed; the model is written whole at the end, or at an interrupt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from attn_cli.errors import CreateError, UsageError, WriteError, refuse, refuse_input, visible
from attn_cli.io import atomic, files
from attn_cli.io.types import Arrays, NamedTuple, NDArray, Stage, StageReport, replace
from attn_cli.learn import one_layer, relations, score, treebank
from attn_cli.learn.batches import Batch, EncodedSentence, Vocabulary, batches, concatenated
from attn_cli.models.model_file import in_bits, read_model, write_model
from attn_cli.settings.declare import check
from attn_cli.settings.training import ModelTraining
from attn_cli.vectors import Vectors, lookup

Sentences = list[treebank.Sentence]
ToBatch = Callable[[Sequence[EncodedSentence], Sequence[NDArray[np.bool_]]], Batch]

LONGEST, LONGEST_PASSAGE = 100, 160  # words in a sentence, and in a passage
SCORING_SIZE = 4000  # words in a batch that is not learned from
HIDE = 0.25


class Epoch(NamedTuple):
    """The result of one pass: its mean loss, and each head's accuracy on the dev sentences."""

    number: int
    loss: float
    accuracy: dict[str, float]


class Trained(NamedTuple):
    """What training wrote: the file, the passes in it, and the scores of the file's own numbers."""

    file: str
    bytes: int
    epochs: int
    scores: list[score.Score]
    interrupted: bool


class Trainer:
    """The sentences, the learner, and the random numbers that order them."""

    warm_up = 100  # steps until the full rate
    whole: dict[str, NDArray[np.floating]]  # what was learned up to the last whole pass
    done = 0  # whole passes

    def __init__(
        self, table: Vectors, heads: list[str], sentences: Sentences, dev: Sentences, settings: ModelTraining
    ) -> None:
        self.settings = settings
        self.draw = np.random.default_rng([settings.seed, 0])
        self.words = Vocabulary(table, settings.endings, settings.itself, heads)
        self.sentences: list[tuple[EncodedSentence, EncodedSentence]] = []
        for one in sentences:
            bare = one.without_punctuation()
            self.sentences.append((self.words.encode(one), self.words.encode(bare if bare.words else one)))
        self.is_parsed = [sentence.is_parsed for sentence in sentences]
        self.dev = [self.words.encode(sentence, exact=True) for sentence in dev]
        vectors = self.vectors()
        # The rarer a word is, the more often it is hidden (Kiperwasser and Goldberg 2016).
        counts = np.zeros(len(vectors))
        for full, _ in self.sentences:
            np.add.at(counts, full.words, 1)
        self.hidden = HIDE / (HIDE + np.maximum(counts, 1)) + 0.02
        self.learner = self.new_learner(vectors)
        self.steps = self.total_steps = 0

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors of the words of all sentences, (words, d), and a last row of zeros."""
        return self.words.matrix()

    def new_learner(self, vectors: NDArray[np.float32]) -> one_layer.OneLayer:
        """Return what learns."""
        return one_layer.OneLayer(self.words, vectors, self.settings)

    def epochs(self, report: StageReport) -> Iterator[Epoch]:
        """Learn from all sentences, pass by pass; after each pass, yield its loss and the heads' accuracy."""
        for number in range(self.done, self.settings.epochs):
            loss = self.epoch(number, report)
            with self.learner.averaged():
                self.whole, self.done = self.learner.copy(), number + 1
            yield Epoch(number + 1, loss, self.accuracy(report) if self.dev else {})

    def epoch(self, number: int, report: StageReport) -> float:
        """Learn from all sentences once, and return the mean loss."""
        groups = self.groups()
        self.total_steps = self.total_steps or len(groups) * self.settings.epochs
        begun, words, total = time.monotonic(), 0, 0.0
        for done, (few, to_batch) in enumerate(groups, 1):
            batch = to_batch(few, [self.draw.random(len(t.words)) < self.hidden[t.words] for t in few])
            # A linear warm-up, then a linear decay to nearly nothing.
            left = max(0.02, 1 - self.steps / max(1, self.total_steps))
            rate = self.settings.rate * min(1.0, (self.steps + 1) / self.warm_up) * left
            total += self.learner.learn(batch, rate)
            self.steps += 1
            words += int(batch.is_word.sum())
            if done % 10 == 0 or done == len(groups):
                phase, note = f"epoch {number + 1} of {self.settings.epochs}", f"loss {total / done:.3f}"
                report(Stage(phase, done / len(groups), words, time.monotonic() - begun, note))
        return total / len(groups)

    def groups(self) -> list[tuple[list[EncodedSentence], ToBatch]]:
        """Return what one pass learns from: texts of similar length, and what makes a batch of them."""
        settings, draw = self.settings, self.draw
        known = zip(self.sentences, self.is_parsed, strict=True)
        drawn = [pair for pair, whole in known if whole or draw.random() < settings.texts]
        chosen = [pair[int(draw.random() < settings.punctuation)] for pair in drawn or self.sentences]
        texts = self.paired([chosen[i] for i in draw.permutation(len(chosen))])
        return [(few, self.words.batch) for few in self.grouped(texts)]

    def paired(self, sentences: list[EncodedSentence]) -> list[EncodedSentence]:
        """Join some sentences with the next, as texts may have more than one."""
        texts: list[EncodedSentence] = []
        for sentence in sentences:
            is_joined = texts and self.draw.random() < self.settings.pairs
            if is_joined and len(texts[-1].words) + len(sentence.words) <= LONGEST // 2:
                texts[-1] = concatenated(texts[-1], sentence)
            else:
                texts.append(sentence)
        return texts

    def grouped(self, texts: Sequence[EncodedSentence]) -> list[list[EncodedSentence]]:
        """Return texts in batches of similar length, in random order."""
        groups = batches([len(text.words) for text in texts], self.settings.batch, self.draw)
        return [[texts[i] for i in group] for group in groups]

    def accuracy(self, report: StageReport) -> dict[str, float]:
        """Return each head's accuracy on the dev sentences, as the learner itself computes it."""
        heads = self.words.heads
        right, count = np.zeros(len(heads)), np.zeros(len(heads))
        with self.learner.averaged():
            for group in batches([len(sentence.words) for sentence in self.dev], SCORING_SIZE, None):
                batch = self.words.batch([self.dev[i] for i in group])
                strongest = self.learner.weights(batch).argmax(axis=3)[..., np.newaxis]
                wanted = np.take_along_axis(batch.targets, strongest, axis=3)[..., 0] > 0
                right += (wanted & batch.has_link).sum(axis=(0, 2))
                count += batch.has_link.sum(axis=(0, 2))
        return {head: float(r / c) for head, r, c in zip(heads, right, count, strict=True) if c}

    def arrays(self) -> Arrays:
        """Return the arrays of a model's file, in float16 or eight bits."""
        return in_bits({**self.learner.arrays()}, self.settings.bits)

    def learned_facts(self) -> dict[str, object]:
        """Return what only the training itself could tell, for the model's file."""
        return {}


def train_file(
    treebanks: Sequence[str], output: str, dev: Sequence[str], embedding: str, settings: ModelTraining,
    report: StageReport, report_epoch: Callable[[Epoch], None],
) -> Trained:  # fmt: skip
    """Learn a model of one layer from treebanks (and passages) and write it to `output`, all or nothing.

    An interrupt ends the training; the model of the last whole pass is written.
    """
    for path in (*treebanks, *dev):
        files.regular(path)
    table = lookup.open_table(embedding)
    heads = relations.heads_to_learn(settings.relations, treebanks)
    settings = replace(settings, relations=",".join(heads))
    relations.check_balance(settings.balance, heads)
    check(settings)
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"A model is written as .safetensors, not as {visible(output)}.", option="--output")
    atomic.creatable(output)
    sentences = to_learn_from(treebanks)
    held_back = hold_back(dev, sentences)
    trainer = Trainer(table, heads, sentences, [s for some in held_back.values() for s in some], settings)
    facts: dict[str, object] = {"trained_on": names_of(treebanks), "settings": asdict(settings)}
    return train(trainer, output, heads, facts, held_back, report, report_epoch)


def train(
    trainer: Trainer, output: str, heads: Sequence[str], facts: dict[str, object],
    held_back: Mapping[str, list[treebank.Sentence]], report: StageReport, report_epoch: Callable[[Epoch], None],
) -> Trained:  # fmt: skip
    """Let a trainer learn, write its model with these facts, and score the file on what is held back."""
    interrupted, table, scores = False, trainer.words.table, list[score.Score]()
    try:
        for epoch in trainer.epochs(report):
            report_epoch(epoch)
    except KeyboardInterrupt:
        if not trainer.done:
            raise
        interrupted = True
    trainer.learner.restore(trainer.whole)
    names = np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    arrays = trainer.arrays() | {"start.names": names}
    about = {name: relations.RELATIONS[name].about for name in heads}
    facts |= {"epochs": trainer.done, "about": about, "values": "words"} | trainer.learned_facts()

    def write() -> None:
        with atomic.written(output) as stream:
            always = trainer.learner.always
            write_model(stream, arrays, table.name, table.fingerprint(), always, list(heads), facts)

    try:
        write()
    except KeyboardInterrupt:  # the numbers are there: a first interrupt costs none of them
        interrupted = True
        write()
    try:
        if held_back and not interrupted:
            # Of the numbers in the model's file, by the program's own arithmetic; the first file that has a relation.
            stack, found = read_model(output), dict[str, tuple[str, score.Score]]()
            for path, sentences in held_back.items():
                for one in score.score(stack, table, sentences, report):
                    if one.count:
                        found.setdefault(one.name, (visible(Path(path).name), one))
            facts["scored_on"] = names_of([*held_back])[0]
            facts["scores"] = {name: one._asdict() | {"scored_on": on} for name, (on, one) in found.items()}
            scores = [one for _, one in found.values()]
            try:
                write()
            except (CreateError, WriteError) as error:
                raise WriteError(error.message, "The model is there, without its scores.") from None
    except KeyboardInterrupt:
        interrupted = True  # the model is there, without its scores
    return Trained(output, os.path.getsize(output), trainer.done, scores, interrupted)


def names_of(paths: Sequence[str]) -> list[str]:
    """Return the distinct names of files, without their folders."""
    return list(dict.fromkeys(visible(Path(path).name) for path in paths))


def to_learn_from(treebanks: Sequence[str]) -> list[treebank.Sentence]:
    """Return the sentences and passages that are not too long; InputError where there is none."""
    every = (sentence for path in treebanks for sentence in treebank.read_sentences(path))
    found = [one for one in every if len(one.words) <= (LONGEST if one.is_parsed else LONGEST_PASSAGE)]
    refuse_input(not found, f"No sentence has at most {LONGEST} words.")
    return found


def hold_back(dev: Sequence[str], learned: Sequence[treebank.Sentence]) -> dict[str, list[treebank.Sentence]]:
    """Return the sentences of each file to score on; UsageError where all of a file's are learned from."""
    found = {path: treebank.read_sentences(path) for path in dev}
    for path, sentences in found.items():
        said = f"Every sentence of {visible(path)} is among those to learn: none is held back."
        refuse(set(sentences) <= set(learned), said, "Give --dev another treebank.", "--dev")
    return found
