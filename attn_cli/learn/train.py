"""Training on treebanks, drawn from one seed; the model is written whole at the end, or at an interrupt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import CreateError, InputError, UsageError, WriteError, did_you_mean
from attn_cli.io.atomic import written
from attn_cli.io.escape import visible
from attn_cli.io.files import regular
from attn_cli.io.progress import Stage, StageReport
from attn_cli.learn.batches import UNKNOWN, EncodedSentence, Vocabulary, batches, concatenated
from attn_cli.learn.before import check_before
from attn_cli.learn.deep import Deep
from attn_cli.learn.imitation import Teachers, read_teachers
from attn_cli.learn.lower import Lower, read_lower, sized
from attn_cli.learn.one_layer import OneLayer
from attn_cli.learn.passages import is_passages, read_sentences
from attn_cli.learn.relations import MAIN, RELATIONS, balances
from attn_cli.learn.score import Score, score
from attn_cli.learn.treebank import Sentence
from attn_cli.models.int8 import in_bits
from attn_cli.models.model_file import read_model, write_model
from attn_cli.settings.training import ModelTraining
from attn_cli.vectors.lookup import open_table

if TYPE_CHECKING:
    from attn_cli.io.array_types import Arrays
    from attn_cli.vectors.open_vectors import Vectors


LONGEST, LONGEST_PASSAGE = 100, 160  # words in a sentence, and in a passage
SCORING_SIZE = 4000  # words in a batch that is not learned from
HIDE = 0.25
RIDGE = 1e-6


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
    scores: list[Score]
    interrupted: bool


class Trainer:
    """The sentences, the learner, and the random numbers that order them."""

    def __init__(
        self,
        table: Vectors,
        heads: list[str],
        sentences: list[Sentence],
        dev: list[Sentence],
        settings: ModelTraining,
        lower: Lower | None = None,
        teachers: Teachers | None = None,
    ) -> None:
        self.settings = settings = settings.with_defaults()
        self.draw = np.random.default_rng([settings.seed, 0])
        self.words = Vocabulary(table, settings.endings, settings.itself or 0, heads)
        self.lower = lower
        if lower and self.words.names != lower.names:
            raise InputError(f"{lower.name} has other features of spelling than these vectors give.")
        bare = [sentence.without_punctuation() for sentence in sentences]
        self.sentences = [
            (self.words.encode(full), self.words.encode(without if without.words else full))
            for full, without in zip(sentences, bare, strict=True)
        ]
        self.is_parsed = [sentence.is_parsed for sentence in sentences]
        self.dev = [self.words.encode(sentence, exact=True) for sentence in dev]
        self.teachers = teachers
        if teachers:
            teachers.prepare(self.words, settings)
        vectors = self.words.matrix()
        # The rarer a word is, the more often it is hidden (Kiperwasser and Goldberg 2016).
        counts = np.zeros(len(vectors))
        for full, _ in self.sentences:
            np.add.at(counts, full.words, 1)
        self.hidden = HIDE / (HIDE + np.maximum(counts, 1)) + 0.02
        self.learner: OneLayer | Deep
        if settings.layers == 1:
            self.learner = OneLayer(self.words, vectors, settings)
        else:
            self.learner = Deep(self.words, vectors, settings, lower)
        self.steps = 0
        self.total_steps = 0

    def epoch(self, number: int, report: StageReport) -> float:
        """Learn from all sentences once, and return the mean loss."""
        settings, draw = self.settings, self.draw
        drawn = [
            pair
            for pair, whole in zip(self.sentences, self.is_parsed, strict=True)
            if whole or draw.random() < settings.texts
        ]
        chosen = [pair[int(draw.random() < settings.punctuation)] for pair in drawn or self.sentences]
        texts = _paired([chosen[i] for i in draw.permutation(len(chosen))], settings.pairs, draw)
        groups = [(few, False) for few in self._grouped(texts)]
        if self.teachers:
            count = int(settings.imitated * sum(len(text.words) for text in texts))
            lines = self.teachers.some(count, settings.punctuation, draw)
            groups += [(few, True) for few in self._grouped(_paired(lines, settings.pairs, draw))]
            groups = [groups[i] for i in draw.permutation(len(groups)).tolist()]
        self.total_steps = self.total_steps or len(groups) * (settings.epochs or 1)
        begun, words, total = time.monotonic(), 0, 0.0
        for done, (few, is_imitated) in enumerate(groups, 1):
            hidden = [draw.random(len(t.words)) < self.hidden[t.words] for t in few]
            learned_from = self.teachers.batch if self.teachers and is_imitated else self.words.batch
            batch = learned_from(few, hidden)
            total += self.learner.learn(batch, self._rate())
            self.steps += 1
            words += int(batch.is_word.sum())
            if done % 10 == 0 or done == len(groups):
                phase, note = f"epoch {number + 1} of {settings.epochs}", f"loss {total / done:.3f}"
                report(Stage(phase, done / len(groups), words, time.monotonic() - begun, note))
        return total / len(groups)

    def _grouped(self, texts: Sequence[EncodedSentence]) -> list[list[EncodedSentence]]:
        """Return texts in batches of similar length, in random order."""
        groups = batches([len(text.words) for text in texts], self.settings.batch, self.draw)
        return [[texts[i] for i in group] for group in groups]

    def _rate(self) -> float:
        """Return the learning rate: a linear warm-up, then a linear decay to nearly nothing."""
        warm = 100 if self.settings.layers == 1 else 400
        left = max(0.02, 1 - self.steps / max(1, self.total_steps))
        return float(self.settings.rate or 0) * min(1.0, (self.steps + 1) / warm) * left

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
        """Return the arrays of a model's file, in float16 or eight bits."""
        arrays: Arrays = {**self.learner.arrays()}
        if self.lower and self.lower.values and self.settings.freeze:
            arrays |= self.lower.values
        elif isinstance(self.learner, Deep):
            arrays |= self._values(self.learner)
        return in_bits(arrays, self.settings.bits)


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


def train_file(
    treebanks: Sequence[str], output: str, dev: Sequence[str], embedding: str, settings: ModelTraining,
    report: StageReport, report_epoch: Callable[[Epoch], None], teachers: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> Trained:  # fmt: skip
    """Learn a model from treebanks (and passages) and write it to `output`, all or nothing.

    With `teachers`, models, it also learns their weights on the running text `texts`. An interrupt ends the training;
    the model of the last whole pass is written.
    """
    for path in (
        *treebanks,
        *dev,
        *([settings.pretrained] if settings.pretrained else []),
        *teachers,
        *texts,
    ):
        regular(path)
    table = open_table(embedding)
    lower = read_lower(settings.pretrained, table) if settings.pretrained else None
    settings = sized(settings, lower).with_defaults()
    heads = _heads(settings, treebanks, lower)
    settings = replace(settings, relations=",".join(heads))
    _check_freeze(settings, heads, lower)
    _check_balance(settings, heads)
    models = read_teachers(teachers, texts, table)
    if models and (settings.layers == 1 or settings.freeze):
        other = "several layers" if settings.layers == 1 else "no --freeze"
        raise UsageError(f"--teacher needs {other}.", "Leave out --teacher and --text.", "--teacher")
    check_before(settings, [], output, settings.layers > 1)
    sentences = [s for path in treebanks for s in read_sentences(path) if len(s.words) <= _longest(s)]
    if not sentences:
        raise InputError(f"No sentence has at most {LONGEST} words.")
    held_back = _held_back(dev, sentences)
    trainer = Trainer(
        table, heads, sentences, [s for some in held_back.values() for s in some], settings, lower, models
    )
    done, interrupted = 0, False
    try:
        for epoch in range(settings.epochs or 1):
            loss = trainer.epoch(epoch, report)
            with trainer.learner.averaged():
                whole, done = trainer.learner.copy(), epoch + 1
            report_epoch(Epoch(done, loss, trainer.accuracy(report) if held_back else {}))
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
    trainer.learner.restore(whole)
    names = np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    arrays = trainer.arrays() | {"start.names": names}
    dropout = 0.0 if settings.freeze else settings.dropout
    facts: dict[str, object] = {
        "trained_on": list(
            dict.fromkeys([*_before(lower), *(visible(Path(path).name) for path in treebanks)])
        ),
        "epochs": done,
        "settings": asdict(replace(settings, pretrained=lower and lower.name, dropout=dropout)),
        "about": {name: RELATIONS[name].about for name in heads},
        "values": "words",
    }
    if lower:
        facts["pretrained_on"] = dict(lower.facts)
    if models:
        facts["teachers"] = {one.name: dict(one.facts) for one in models.models}
        facts["imitated_on"] = {
            "texts": [visible(Path(path).name) for path in texts],
            "words": models.words_read,
        }

    def write() -> None:
        with written(output) as stream:
            write_model(stream, arrays, table.name, table.fingerprint(), settings.layers > 1, heads, facts)

    try:
        write()
    except KeyboardInterrupt:  # the numbers are there: a first interrupt costs none of them
        interrupted = True
        write()
    scores: list[Score] = []
    try:
        if held_back and not interrupted:
            found = _scored(output, table, held_back, report)
            facts["scored_on"] = visible(Path(dev[0]).name)
            facts["scores"] = {one.name: one._asdict() | {"scored_on": name} for name, one in found}
            scores = [one for _, one in found]
            try:
                write()
            except (CreateError, WriteError) as error:
                kept = "The model is there, without its scores."
                raise WriteError(error.message, kept) from None
    except KeyboardInterrupt:
        interrupted = True  # the model is there, without its scores
    return Trained(output, os.path.getsize(output), done, scores, interrupted)


def _held_back(dev: Sequence[str], learned: Sequence[Sentence]) -> dict[str, list[Sentence]]:
    """Return the sentences of each file to score on; UsageError where all of a file's are learned from."""
    found = {path: read_sentences(path) for path in dev}
    for path, sentences in found.items():
        if set(sentences) <= set(learned):
            raise UsageError(
                f"Every sentence of {visible(path)} is among those to learn: none is held back.",
                "Give --dev another treebank.",
                "--dev",
            )
    return found


def _scored(
    model: str, table: Vectors, held_back: Mapping[str, list[Sentence]], report: StageReport
) -> list[tuple[str, Score]]:
    """Return each head's score, and the first file that has its relation.

    The scores are those of the numbers in the model's file, by the program's own arithmetic.
    """
    stack = read_model(model)
    found: dict[str, tuple[str, Score]] = {}
    for path, sentences in held_back.items():
        for one in score(stack, table, sentences, report):
            if one.count:
                found.setdefault(one.name, (visible(Path(path).name), one))
    return list(found.values())


def _before(lower: Lower | None) -> list[str]:
    """Return what a model that is trained on was trained on before."""
    names = lower.facts.get("trained_on") if lower and lower.heads else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _longest(sentence: Sentence) -> int:
    """Return how many words a sentence or passage to learn from may have."""
    return LONGEST if sentence.is_parsed else LONGEST_PASSAGE


def _heads(settings: ModelTraining, texts: Sequence[str], lower: Lower | None) -> list[str]:
    """Return the heads to learn, the main one first: those that are asked for, or those that these texts can teach.

    A head that the model has already needs no text; distances are known without one.
    """
    are_passages = [*map(is_passages, texts)]
    taught = {
        name
        for name, one in RELATIONS.items()
        if any(are == one.of_passages for are in are_passages) or one.distance
    } | set(lower.heads if lower else ())
    if settings.relations is None:
        names = [name for name in RELATIONS if name in taught]
    else:
        names = [name.strip() for name in settings.relations.split(",")]
    strange = [name for name in names if name not in RELATIONS]
    twice = [name for name in names if names.count(name) > 1]
    if strange or twice:
        wrong = visible((strange or twice)[0])
        raise UsageError(
            f"--relations cannot hold {wrong!r}" + (" twice." if not strange else "."),
            f"{did_you_mean(wrong, RELATIONS) if strange else ''}Choose among {','.join(RELATIONS)}.",
            "--relations",
        )
    if untaught := [name for name in names if name not in taught]:
        kind = "passages (.jsonl)" if RELATIONS[untaught[0]].of_passages else "a treebank (CoNLL-U)"
        raise UsageError(
            f"Nothing here teaches the head {untaught[0]}.", f"Give {kind}, or leave it out.", "--relations"
        )
    return sorted(names, key=lambda name: (name != MAIN, list(RELATIONS).index(name)))


def _check_balance(settings: ModelTraining, heads: Sequence[str]) -> None:
    """Refuse a --balance that is neither a number nor names heads."""
    try:
        balances(heads, settings.balance or 0)
    except ValueError:
        raise UsageError(
            f"--balance cannot be {visible(str(settings.balance))}.",
            "Give a number from 0 to 100, and others for single heads: 2,object=1.",
            "--balance",
        ) from None


def _check_freeze(settings: ModelTraining, heads: Sequence[str], lower: Lower | None) -> None:
    """Refuse to keep everything as it is where nothing would be left to learn, or nothing is there to keep."""
    if not settings.freeze:
        return
    if lower is None:
        raise UsageError(
            "--freeze needs --pretrained.", "Name the model whose heads are to stay.", "--freeze"
        )
    if not [name for name in heads if name not in lower.heads and RELATIONS[name].distance is None]:
        raise UsageError(
            f"{lower.name} has every head that these texts teach: with --freeze, nothing is left to learn.",
            "Leave out --freeze, or give texts that teach another head.",
            "--freeze",
        )
