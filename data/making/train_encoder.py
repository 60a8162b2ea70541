"""Training an encoder with named heads on treebanks: what `python -m data.making encoder` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.array_files import write_safetensors
from attn_cli.io.atomic import written
from attn_cli.learn.relations import check_balance, heads_to_learn
from attn_cli.learn.train import hold_back, names_of, to_learn_from
from attn_cli.vectors.lookup import open_table
from data.making.encoder import FORMAT, EncoderFiles, EncoderHeads, read_folder, sizes
from data.making.settings import DeepTraining, EncoderTraining, check_before
from data.making.state import State
from data.making.train_deep import DeepTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays, StageReport
    from attn_cli.learn.train import Epoch
    from attn_cli.learn.treebank import Sentence
    from attn_cli.vectors import Vectors
    from data.making.deep import Deep

SOME, SHORT = 0.15, 3  # of some treebanks, this share of the sentences of more words than this


class EncoderTrainer(DeepTrainer):
    """Heads on an encoder, learning from treebanks."""

    warm_up = 100

    def __init__(
        self, table: Vectors, heads: list[str], sentences: list[Sentence], dev: list[Sentence],
        settings: DeepTraining, files: EncoderFiles,
    ) -> None:  # fmt: skip
        self.files = files
        super().__init__(table, heads, sentences, dev, settings)

    def new_learner(self, vectors: NDArray[np.float32]) -> Deep:
        """Return the encoder with its heads."""
        texts = [full for full, _ in self.sentences]
        return EncoderHeads(self.words, vectors, self.settings, self.files, texts=texts)


def drawn(treebanks: Sequence[str], some: Sequence[str], seed: int) -> list[Sentence]:
    """Return the sentences of treebanks; of those that are in `some`, a share of the longer ones, drawn at random."""
    draw = np.random.default_rng(seed)
    found: list[Sentence] = []
    for path in treebanks:
        sentences = to_learn_from([path])
        if path in some:
            sentences = [one for one in sentences if len(one.words) > SHORT and draw.random() < SOME]
        found += sentences
    return found


def write_encoder(path: str, arrays: Arrays, about: Mapping[str, str]) -> None:
    """Write a trained encoder, all or nothing."""
    with written(path) as stream:
        write_safetensors(stream, arrays, {"format": FORMAT, **about})


def train_encoder(
    folder: str, treebanks: Sequence[str], some: Sequence[str], output: str, dev: Sequence[str], embedding: str,
    settings: EncoderTraining, report: StageReport, report_epoch: Callable[[Epoch], None],
) -> int:  # fmt: skip
    """Let the encoder in `folder` learn the heads that treebanks teach, write it to `output`, return the passes.

    Of the treebanks that are in `some` as well, it learns a share of the sentences (`drawn`). An interrupt ends the
    training; what the whole passes have learned is written.
    """
    check_before(settings, [*treebanks, *dev], output)
    files, table = read_folder(folder), open_table(embedding)
    heads = heads_to_learn(settings.relations, treebanks)
    check_balance(settings.balance, heads)
    sentences = drawn(treebanks, some, settings.seed)
    held_back = [one for some in hold_back(dev, sentences).values() for one in some]
    full = replace(DeepTraining(), **{**asdict(settings), **sizes(files), "relations": ",".join(heads)})
    trainer = EncoderTrainer(table, heads, sentences, held_back, full, files)
    texts = {"texts": [folder, *treebanks, "some", *some]}
    state = State(output, trainer.learner, trainer.draw, texts | asdict(settings))
    trainer.go_on(state)
    about = {
        "vectors": table.name,
        "fingerprint": table.fingerprint(),
        "config": json.dumps(dict(files.config)),
        "tokenizer": files.tokenizer,
        "heads": ",".join(heads),
    }
    try:
        for epoch in trainer.epochs(report):
            report_epoch(epoch)
    except KeyboardInterrupt:
        if not trainer.done:
            raise
    facts = {
        "trained_on": names_of(treebanks),
        "pretrained": Path(folder).name,
        "epochs": trainer.done,
        "settings": asdict(full.with_defaults()),
    }
    names = np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    write_encoder(output, {**trainer.whole, "start.names": names}, about | {"facts": json.dumps(facts)})
    if trainer.done == settings.epochs:
        state.forget()
    return trainer.done
