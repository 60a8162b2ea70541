"""Several layers on treebanks, with PyTorch: on top of pretrained ones, beside other models on running text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.files import regular
from attn_cli.io.types import StageReport
from attn_cli.learn.batches import UNKNOWN, EncodedSentence, batches
from attn_cli.learn.relations import RELATIONS, check_balance, heads_to_learn
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
from attn_cli.learn.treebank import Sentence
from attn_cli.models.model_file import in_bits
from attn_cli.vectors.lookup import open_table
from data.making.contrast import SplicedText, apart, together
from data.making.deep import Deep
from data.making.imitation import Teachers, know_all, read_teachers
from data.making.labels import Labelled
from data.making.lower import Lower, read_lower, sized
from data.making.settings import DeepTraining, check_before
from data.making.state import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays
    from attn_cli.learn.train import ToBatch
    from attn_cli.vectors import Vectors

RIDGE = 1e-6


class DeepTrainer(Trainer):
    """The same of several layers; `lower` were learned before, `teachers` are learned from on running text."""

    warm_up = 400
    state: State | None = None

    def __init__(
        self,
        table: Vectors,
        heads: list[str],
        sentences: list[Sentence],
        dev: list[Sentence],
        settings: DeepTraining,
        lower: Lower | None = None,
        teachers: Teachers | None = None,
        spliced: SplicedText | None = None,
    ) -> None:
        self.lower, self.teachers, self.spliced = lower, teachers, spliced
        super().__init__(table, heads, sentences, dev, settings.with_defaults())

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors of all sentences, and all that there are where running text is read as well."""
        if self.lower and self.words.names != self.lower.names:
            raise InputError(f"{self.lower.name} has other features of spelling than these vectors give.")
        if self.teachers or self.spliced:
            know_all(self.words)
        if self.teachers:
            self.teachers.prepare(self.words, self.settings)
        return super().vectors()

    def new_learner(self, vectors: NDArray[np.float32]) -> Deep:
        """Return the stack that learns."""
        return Deep(self.words, vectors, self.settings, self.lower, [full for full, _ in self.sentences])

    def go_on(self, state: State) -> None:
        """Go on from the last pass that `state` has."""
        self.state, place = state, state.place
        self.done, self.steps, self.total_steps = place["steps"], place.get("step", 0), place.get("of", 0)
        with self.learner.averaged():
            self.whole = self.learner.copy()
        while self.teachers and self.teachers.words_read < place.get("read", 0):
            next(self.teachers.lines)
        while self.spliced and self.spliced.read < place.get("spliced", 0):
            next(self.spliced.records)

    def epoch(self, number: int, report: StageReport) -> float:
        """Learn from all sentences once, and return the mean loss; the state is kept before."""
        if self.state:
            read = self.teachers.words_read if self.teachers else 0
            spliced = self.spliced.read if self.spliced else 0
            self.state.place |= {"steps": number, "step": self.steps, "of": self.total_steps, "read": read}
            self.state.place |= {"spliced": spliced}
            self.state.keep()
        return super().epoch(number, report)

    def groups(self) -> list[tuple[list[EncodedSentence], ToBatch]]:
        """Return the sentences, and among them lines of running text and spliced passages, in random order."""
        groups = super().groups()
        of_treebanks = sum(len(text.words) for few, _ in groups for text in few)
        if self.teachers is not None:
            count = int(self.settings.imitated * of_treebanks)
            read = self.teachers.read(count, self.settings.punctuation, self.draw)
            lines = [*map(self.teachers.encoded, read)]
            groups += [(few, self.teachers.batch) for few in self.grouped(self.paired(lines))]
        if self.spliced is not None:
            groups += self._spliced(self.spliced, int(self.settings.splices * of_treebanks))
        if self.teachers is None and self.spliced is None:
            return groups
        return [groups[i] for i in self.draw.permutation(len(groups)).tolist()]

    def _spliced(self, text: SplicedText, count: int) -> list[tuple[list[EncodedSentence], ToBatch]]:
        """Return passages of so many words: some to learn the weights from, others to be read apart."""
        words, settings = self.words, self.settings
        whole = together(words, text.some(int(count * (1 - settings.apart))))
        found: list[tuple[list[EncodedSentence], ToBatch]] = [
            (few, lambda few, _hidden: words.batch(few)) for few in self.grouped(whole)
        ]
        rest = text.some(int(count * settings.apart))
        parts = (rest[start : start + settings.compared] for start in range(0, len(rest), settings.compared))
        return found + [([], partial(apart, words, some)) for some in parts]

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
        else:
            arrays |= self._values(self.learner)
        return in_bits(arrays, self.settings.bits)

    def learned_facts(self) -> dict[str, object]:
        """Return how much running text was read, and how many spliced passages."""
        facts: dict[str, object] = {}
        if self.teachers:
            read = self.teachers.words_read
            facts["imitated_on"] = {"texts": names_of(self.teachers.texts), "words": read}
        if self.spliced:
            facts["spliced_on"] = {"passages": self.spliced.name, "read": self.spliced.read}
        return facts


def train_file(
    treebanks: Sequence[str], output: str, dev: Sequence[str], embedding: str, settings: DeepTraining,
    report: StageReport, report_epoch: Callable[[Epoch], None], teachers: Sequence[str] = (),
    texts: Sequence[str] = (), spliced: str | None = None, labelled: Sequence[str] = (),
) -> Trained:  # fmt: skip
    """Learn a model of several layers from treebanks (and passages) and write it to `output`, all or nothing.

    With `teachers`, models, it also learns their weights on the running text `texts`, or those that are written in
    `labelled`; with `spliced`, a file of passages (python -m data.making splice), what their pronouns stand for. An
    interrupt ends the training; the model of the last whole pass is written.
    """
    for path in (
        *treebanks,
        *dev,
        *filter(None, [settings.pretrained, spliced]),
        *labelled,
        *teachers,
        *texts,
    ):
        regular(path)
    table = open_table(embedding)
    lower = read_lower(settings.pretrained, table) if settings.pretrained else None
    settings = sized(settings, lower).with_defaults()
    heads = heads_to_learn(settings.relations, treebanks, lower.heads if lower else ())
    settings = replace(settings, relations=",".join(heads))
    _check_freeze(settings, heads, lower)
    if spliced and "antecedent" not in heads:
        raise UsageError(
            "--spliced teaches the head antecedent, which is not to be learned.", "Leave it out.", "--spliced"
        )
    check_balance(settings.balance or "0", heads)
    if labelled and (teachers or texts):
        raise UsageError(
            "--labelled has text and its teacher.", "Leave out --teacher and --text.", "--teacher"
        )
    models = Labelled(labelled) if labelled else read_teachers(teachers, texts, table)
    if models and settings.freeze:
        raise UsageError("--teacher needs no --freeze.", "Leave out --teacher and --text.", "--teacher")
    check_before(settings, [], output)
    sentences = to_learn_from(treebanks)
    held_back = hold_back(dev, sentences)
    scored = [one for some in held_back.values() for one in some]
    passages = SplicedText(spliced) if spliced else None
    trainer = DeepTrainer(table, heads, sentences, scored, settings, lower, models, passages)
    dropout = 0.0 if settings.freeze else settings.dropout
    facts: dict[str, object] = {
        "trained_on": list(dict.fromkeys([*_before(lower), *names_of(treebanks)])),
        "settings": asdict(replace(settings, pretrained=lower and lower.name, dropout=dropout)),
    }
    if lower:
        facts["pretrained_on"] = dict(lower.facts)
    if models:
        known = {*_chain(lower)}  # their own facts stand above
        facts["teachers"] = {one.name: {} if one.name in known else dict(one.facts) for one in models.models}
    about = {"texts": [*treebanks, *teachers, *texts, spliced, *labelled], **asdict(settings)}
    state = State(output, trainer.learner, trainer.draw, about)
    trainer.go_on(state)
    made = train(trainer, output, heads, facts, held_back, report, report_epoch)
    if made.epochs == settings.epochs:
        state.forget()
    return made


def _chain(lower: Lower | None) -> Iterator[str]:
    """Yield the name of the model that a training goes on from, and of those that were before it."""
    facts: Mapping[str, Any] = lower.facts if lower else {}
    if lower:
        yield lower.name
    while name := facts.get("settings", {}).get("pretrained"):
        yield name
        facts = facts.get("pretrained_on", {})


def _before(lower: Lower | None) -> list[str]:
    """Return what a model that is trained on was trained on before."""
    names = lower.facts.get("trained_on") if lower and lower.heads else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _check_freeze(settings: DeepTraining, heads: Sequence[str], lower: Lower | None) -> None:
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
