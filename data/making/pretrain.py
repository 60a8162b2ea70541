"""Pretraining: the layers below the named heads learn from running text, by guessing the words that are masked.

BERT's task (Devlin et al. 2019) on whole words: a masked word gives neither its vector nor its spelling, and the
layers guess which of the commonest words it was. Guesses are scored by the word vectors themselves, through one
projection.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import visible
from attn_cli.io.array_files import write_safetensors
from attn_cli.io.atomic import written
from attn_cli.io.types import Stage, StageReport
from attn_cli.vectors import VectorTable, as_text
from attn_cli.vectors.lookup import open_table
from data.making.layers import NONE, Layers, LayerSizes, MovingMean, seeded
from data.making.lower import FORMAT
from data.making.masked_lines import Lines, Masked
from data.making.settings import check_before
from data.making.state import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors import Vectors
    from data.making.settings import Pretraining

BETAS, WEIGHT_DECAY, MAX_GRADIENT_NORM = (0.9, 0.98), 0.01, 1.0
WARM_UP = 500  # steps


class Written(NamedTuple):
    """What pretraining wrote, how many words were read for it, and the loss on held-back lines."""

    file: str
    bytes: int
    words: int
    loss: float | None
    interrupted: bool


class Guesser:
    """The layers, and what guesses a masked word from their last row; all of it learns."""

    def __init__(self, vectors: NDArray[np.float32], n_features: int, settings: Pretraining) -> None:
        self.torch = torch = seeded(settings.seed, settings.threads)
        self.settings = settings
        self.layers = Layers(vectors, n_features, sizes_of(settings))
        self.out = self.layers.linear("out.W", "out.b", settings.width, vectors.shape[1])
        self.out["out.W"] *= 0.1  # at first, all guesses are about equally likely
        self.out["out.bias"] = torch.zeros(settings.guesses)
        self.learned = [*self.layers.tensors.values(), *self.out.values()]
        for one in self.learned:
            one.requires_grad_()
        self.optimizer = torch.optim.AdamW(self.learned, betas=BETAS, weight_decay=WEIGHT_DECAY)
        self.mean = MovingMean(self.learned, settings.keep)
        self.steps = 0

    def loss(self, batch: Masked) -> object:
        """Return the mean surprise (in nats) at the masked words, a tensor."""
        torch = self.torch
        X = self.layers.hidden(batch)
        wanted = torch.from_numpy(batch.wanted)
        masked = wanted != NONE
        made = X[masked] @ self.out["out.W"] + self.out["out.b"]
        scores = made @ self.layers.vectors[: self.settings.guesses].T + self.out["out.bias"]
        return torch.nn.functional.cross_entropy(scores, wanted[masked])

    def learn(self, batch: Masked) -> float:
        """Take one gradient step, and return the loss before it."""
        loss = self.loss(batch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate * min(1.0, (self.steps + 1) / WARM_UP)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[attr-defined]
        self.torch.nn.utils.clip_grad_norm_(self.learned, MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.steps += 1
        self.mean.update(self.torch)
        return float(loss.detach())  # type: ignore[attr-defined]

    def measured(self, some: Sequence[Masked]) -> float:
        """Return the mean loss on these batches, by the mean of the parameters."""
        self.mean.swap()
        with self.torch.no_grad():
            found = [float(self.loss(batch)) for batch in some]  # type: ignore[arg-type]
        self.mean.swap()
        return sum(found) / len(found)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the mean of the layers' parameters, by the names that they learn under."""
        means = dict(zip([*self.layers.tensors, *self.out], self.mean.means, strict=True))
        return {name: means[name].numpy() for name in self.layers.tensors}


def sizes_of(settings: Pretraining) -> LayerSizes:
    """Return the sizes of the layers that these settings ask for."""
    return LayerSizes(settings.layers, settings.heads, settings.width, settings.wide, settings.reach)


def pretrain_file(
    texts: Sequence[str], output: str, embedding: str, settings: Pretraining,
    report: StageReport, tell: Callable[[int, float], None],
) -> Written:  # fmt: skip
    """Learn layers from running text until `settings.words` words are read, and write them to `output`.

    The file is written anew after each `settings.every` words, all or nothing; an interrupt writes it once more.
    """
    check_before(settings, texts, output)
    table = _in_memory(open_table(embedding))
    matrix = np.vstack([np.asarray(table.matrix, np.float32), np.zeros((1, table.dim), np.float32)])
    source = Lines(table, texts, settings)
    guesser = Guesser(matrix, len(source.names), settings)
    held_back = source.held_back()
    about = {
        "format": FORMAT,
        "vectors": table.name,
        "fingerprint": table.fingerprint(),
        "settings": json.dumps(asdict(settings)),
        "trained_on": json.dumps([visible(Path(path).name) for path in texts]),
    }
    names = np.frombuffer("\n".join(source.names).encode(), np.uint8)
    state = State(output, guesser, None, {"texts": texts, **asdict(settings)})
    words = written_at = state.place.get("words", 0)
    guesser.steps = state.place["steps"]
    loss: float | None = None
    interrupted = False

    def write() -> None:
        with written(output) as stream:
            facts = about | {"words": str(words)} | ({} if loss is None else {"loss": f"{loss:.4f}"})
            write_safetensors(stream, {**guesser.arrays(), "start.names": names}, facts)

    try:
        begun, total = time.monotonic(), 0.0
        for batch in state.rest(source.batches()):
            now = guesser.learn(batch)
            total = total + (now - total) / min(guesser.steps, 200) if total else now
            words += int(batch.is_word.sum())
            is_last = words >= settings.words
            state.place["words"] = words
            if guesser.steps % 10 == 0 or is_last:
                share = min(1.0, words / settings.words)
                report(Stage("masked words", share, words, time.monotonic() - begun, f"loss {total:.3f}"))
            if is_last or words - written_at >= settings.every:
                written_at = words
                loss = guesser.measured(held_back) if held_back else None
                write()
                tell(words, total if loss is None else loss)
            if is_last:
                state.forget()
                break
    except KeyboardInterrupt:
        if not words:
            raise
        interrupted = True
        write()
    return Written(output, os.path.getsize(output), words, loss, interrupted)


def _in_memory(vectors: Vectors) -> VectorTable:
    """Return vectors that lie in a file of another kind as one matrix."""
    if isinstance(vectors, VectorTable):
        return vectors
    found = vectors.find([as_text(word) for block in vectors.word_blocks() for word in block])
    block = "\n".join(["", *found, ""]).encode()
    return VectorTable(vectors.source, vectors.name, block, np.array(list(found.values())), {})
