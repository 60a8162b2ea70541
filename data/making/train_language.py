"""The training of a language model on running text; its file is written now and then, and at the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.io.array_files import read_safetensors
from attn_cli.io.atomic import written
from attn_cli.io.types import Stage, StageReport
from attn_cli.learn.language_score import ON_REPEATED, PATTERNS, HeadMeasures, measure_heads, names_of
from attn_cli.learn.train import names_of as names_of_files
from attn_cli.learn.treebank import Sentence, read_treebank
from attn_cli.models.encoder import matrix_of
from attn_cli.models.model_file import CASES, read_model, write_model
from attn_cli.vectors import Vectors, VectorTable
from attn_cli.vectors.lookup import open_table
from data.making.language import LEAST_RATE, WARM_UP, Language
from data.making.language_text import LanguageText
from data.making.settings import LanguageTraining, check_before
from data.making.state import State

FILES = ("pretrained", "made")  # settings that name one
KEPT = 100  # steps after which the parameters are copied, for an interrupt
PARTS = 20  # in so many parts of the text the file is written once
SCORING_SIZE = 2000  # tokens in a batch that is not learned from


class Trained(NamedTuple):
    """What training wrote: the file, the words learned from, the perplexity of the lines held back, the named heads."""

    file: str
    bytes: int
    words: int
    perplexity: float | None
    interrupted: bool
    named: tuple[str, ...] = ()


class Trainer:
    """The text, the learner, and how far it is."""

    def __init__(
        self, texts: Sequence[str], table: VectorTable, settings: LanguageTraining, report: StageReport
    ) -> None:
        self.settings, self.table, self.texts = settings, table, texts
        self.text = text = LanguageText(table, settings.endings, settings.corrected)
        self.lines, self.held_back = text.read(texts, settings.words, report, settings.made)
        if not self.lines:
            raise InputError("There is no text in these files to learn from.")
        text.freeze()
        self.total = len(text.words(self.lines))
        self.cases = text.cases(self.lines)
        self.language = Language(text, text.counts(self.lines), matrix_of(table), settings)
        self.done = 0
        self.perplexity: float | None = None

    def learn(self, report: StageReport, state: State) -> Iterator[float]:
        """Learn from all lines once, going on from `state`; yield the loss of every step."""
        settings, draw = self.settings, np.random.default_rng([self.settings.seed, 0])
        warm = min(WARM_UP, self.total / settings.batch / 10)
        begun, recent = time.monotonic(), 0.0
        self.done = state.place.get("done", 0)
        shares = settings.pairs, settings.repeated, settings.random, settings.named
        batches = self.text.batches(self.lines, settings.batch, *shares, draw, settings.related)
        for step, batch in enumerate(state.rest(batches), state.place["steps"] + 1):
            left = max(LEAST_RATE, 1 - self.done / self.total)
            loss = self.language.learn(batch, settings.rate * min(1.0, step / max(1.0, warm)) * left)
            self.done = min(self.total, self.done + batch.size)
            recent = loss if not recent else 0.98 * recent + 0.02 * loss
            if step % 10 == 0:
                stage = Stage("learning", self.done / self.total, self.done, time.monotonic() - begun)
                report(stage._replace(note=f"loss {recent:.3f}"))
            state.place["done"] = self.done
            yield loss

    def measure(self) -> None:
        """Find the perplexity of the lines held back, over all words."""
        if self.held_back:
            found = [self.language.exact(one) for one in self.text.in_order(self.held_back, SCORING_SIZE)]
            loss, count = map(sum, zip(*found, strict=True))
            self.perplexity = math.exp(loss / count)

    def write(self, output: str) -> None:
        """Write the model as it is now."""
        arrays, settings = self.language.arrays(), self.settings
        named = {name: visible(Path(path).name) for name in FILES if (path := getattr(settings, name))}
        arrays[CASES] = self.cases
        arrays["start.names"] = np.frombuffer("\n".join(self.text.names).encode(), np.uint8)
        facts: dict[str, object] = {
            "trained_on": names_of_files(self.texts),
            "words": self.done,
            "settings": asdict(settings) | named,
            "held_back": {"perplexity": self.perplexity, "words": len(self.text.words(self.held_back))},
        }
        if before := self.language.before:
            facts["pretrained_on"] = before
        heads = [str(head) for head in range(self.settings.heads)]
        with written(output) as stream:
            write_model(stream, arrays, self.table.name, self.table.fingerprint(), True, heads, facts)


def train_file(
    texts: Sequence[str], output: str, dev: str | None, embedding: str, settings: LanguageTraining,
    report: StageReport,
) -> Trained:  # fmt: skip
    """Learn a language model from texts and write it to `output`, all or nothing.

    With a treebank `dev`, heads are measured on it and named. An interrupt ends the training; what was learned until
    then is written, without names.
    """
    check_before(settings, [*texts, *filter(None, [dev, settings.pretrained])], output)
    if settings.made not in (None, *texts):
        raise UsageError("It is none of the texts.", option="--made")
    sentences = read_treebank(dev) if dev else []
    table = open_table(embedding)
    if not isinstance(table, VectorTable):
        raise UsageError("A language model is learned on vectors in .safetensors.", option="--embedding")
    trainer = Trainer(texts, table, settings, report)
    state = State(output, trainer.language, trainer.language.draw, {"texts": texts, **asdict(settings)})
    kept, interrupted = trainer.language.copy(), False
    try:
        part = 1
        for step, _ in enumerate(trainer.learn(report, state), 1):
            if step % KEPT == 0:
                kept = trainer.language.copy()
            if trainer.done * PARTS >= part * trainer.total:
                part += 1
                trainer.write(output)
        state.forget()
        trainer.measure()
    except KeyboardInterrupt:
        trainer.language.restore(kept)
        interrupted = True
    trainer.write(output)
    named: tuple[str, ...] = ()
    if sentences and not interrupted:
        on = visible(Path(str(dev)).name)
        measured = name_heads(output, table, sentences, on, settings.seed, report)
        named = tuple(name for name in names_of(measured).values() if not name.isdigit())
    return Trained(output, os.path.getsize(output), trainer.done, trainer.perplexity, interrupted, named)


def name_heads(
    path: str, table: Vectors, sentences: Sequence[Sentence], on: str, seed: int, report: StageReport
) -> list[HeadMeasures]:
    """Measure the heads of the language model in a file, and write their names and measures into it."""
    stack = read_model(path)
    measured = measure_heads(stack, table, sentences, on, seed, report)
    names = names_of(measured)
    layers = [[name for (n, _), name in sorted(names.items()) if n == layer] for layer in range(stack.layers)]
    named = {names[one.layer, one.number]: one for one in measured if one.pattern is not None}
    # Shown first is the lowest head that has something to show on any text: not one that waits for a word to come
    # again, and not one that keeps to a fixed distance, which can be seen without numbers.
    telling = [one for one in named.values() if not (one.pattern in ON_REPEATED or _keeps_distance(one))]
    clearest = min(telling, key=lambda one: (one.layer, -one.gain), default=None)
    facts = dict(stack.facts) | {
        "names_below": layers[:-1],
        "main": names[clearest.layer, clearest.number] if clearest else None,
        "about": {name: PATTERNS[str(one.pattern)].about for name, one in named.items()},
        "scores": {name: one.measures[str(one.pattern)]._asdict() for name, one in named.items()},
    }
    arrays, _ = read_safetensors(path)
    with written(path) as stream:
        write_model(
            stream, arrays, stack.vectors, stack.fingerprint, stack.spelling.always, layers[-1], facts
        )
    return measured


def _keeps_distance(one: HeadMeasures) -> bool:
    return PATTERNS[str(one.pattern)].is_distance
