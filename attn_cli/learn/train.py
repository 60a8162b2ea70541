"""Training on treebanks; the model is written whole at the end, or at an interrupt."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import creatable, regular, written
from attn_cli.io.progress import StageReport
from attn_cli.learn.deep import pytorch
from attn_cli.learn.relations import MAIN, RELATIONS
from attn_cli.learn.score import Score, score
from attn_cli.learn.trainer import LONGEST, Trainer
from attn_cli.learn.treebank import read_treebank
from attn_cli.models.model_file import read_model, write_model
from attn_cli.settings.declare import check
from attn_cli.settings.training import ModelTraining
from attn_cli.vectors.lookup import open_table


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


def train_file(
    treebanks: Sequence[str], output: str, dev: str | None, embedding: str, settings: ModelTraining,
    report: StageReport, report_epoch: Callable[[Epoch], None],
) -> Trained:  # fmt: skip
    """Learn a model from treebanks and write it to `output`, all or nothing.

    An interrupt ends the training; the model of the last whole pass is written.
    """
    relations = ",".join(RELATIONS) if settings.relations is None else settings.relations
    settings = replace(settings.with_defaults(), relations=relations)
    heads = _check(settings, output, [*treebanks, *([dev] if dev else [])])
    table = open_table(embedding)
    sentences = [s for path in treebanks for s in read_treebank(path) if len(s.words) <= LONGEST]
    if not sentences:
        raise InputError(f"No sentence has at most {LONGEST} words.")
    held_back = read_treebank(dev) if dev else []
    if held_back and set(held_back) <= set(sentences):
        raise UsageError(
            f"Every sentence of {visible(str(dev))} is among those to learn: none is held back.",
            "Give --dev another treebank.",
            "--dev",
        )
    trainer = Trainer(table, heads, sentences, held_back, settings)
    done, interrupted = 0, False
    try:
        for epoch in range(settings.epochs or 1):
            loss = trainer.epoch(epoch, report)
            whole, done = trainer.learner.copy(), epoch + 1
            report_epoch(Epoch(done, loss, trainer.accuracy(report) if held_back else {}))
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
        trainer.learner.restore(whole)
    names = np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    arrays = trainer.arrays() | {"start.names": names}
    facts: dict[str, object] = {
        "trained_on": [visible(Path(path).name) for path in treebanks],
        "epochs": done,
        "settings": asdict(settings),
        "about": {name: RELATIONS[name].about for name in heads},
        "values": "words",
    }

    def write() -> None:
        with written(output) as stream:
            write_model(stream, arrays, table.name, table.fingerprint(), settings.layers > 1, heads, facts)

    write()
    scores: list[Score] = []
    try:
        if held_back and not interrupted:
            # The scores are those of the numbers in the file, by the program's own arithmetic.
            scores = score(read_model(output), table, held_back, report)
            facts["scored_on"] = visible(Path(str(dev)).name)
            facts["scores"] = {one.name: one._asdict() for one in scores}
            write()
    except KeyboardInterrupt:
        interrupted = True  # the model is there, without its scores
    return Trained(output, os.path.getsize(output), done, scores, interrupted)


def _check(settings: ModelTraining, output: str, files: Sequence[str]) -> list[str]:
    """Raise before the training what would only fail after it; return the heads to learn."""
    for path in files:
        regular(path)
    check(settings)
    if settings.layers > 1 and settings.width % settings.heads:
        raise UsageError(
            f"--width {settings.width} cannot be shared equally among --heads {settings.heads}.",
            option="--heads",
        )
    names = [name.strip() for name in str(settings.relations).split(",")]
    strange = [name for name in names if name not in RELATIONS]
    twice = [name for name in names if names.count(name) > 1]
    if strange or twice:
        wrong = visible((strange or twice)[0])
        raise UsageError(
            f"--relations cannot hold {wrong!r}" + (" twice." if not strange else "."),
            f"Choose among {','.join(RELATIONS)}.",
            "--relations",
        )
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"A model is written as .safetensors, not as {visible(output)}.", option="--output")
    creatable(output)
    if settings.layers > 1:
        pytorch()
    return sorted(names, key=lambda name: (name != MAIN, list(RELATIONS).index(name)))
