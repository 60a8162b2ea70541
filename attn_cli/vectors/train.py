"""Word vectors learned from running text: gensim's Word2Vec (skip-gram), streamed, deterministic."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import InputError, MissingExtra, UsageError
from attn_cli.io.atomic import written
from attn_cli.io.escape import visible
from attn_cli.io.files import creatable, regular, unpacked_lines
from attn_cli.io.progress import Stage, StageReport
from attn_cli.settings.declare import check
from attn_cli.settings.training import VectorTraining
from attn_cli.text.tokenize import tokenize
from attn_cli.vectors.store.table import write_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_WORDS = 10_000


class Corpus:
    """The sentences of text files, one a line, tokenized anew at every pass: memory stays constant."""

    def __init__(self, paths: Sequence[Path], report: StageReport, epochs: int) -> None:
        self.paths = paths
        self.report = report
        self.epochs = epochs
        self.passes = 0
        self.bytes = sum(path.stat().st_size for path in paths)

    def __iter__(self) -> Iterator[list[str]]:
        """Yield each line's tokens; gensim calls this once for the vocabulary and once an epoch."""
        phase = "vocabulary" if self.passes == 0 else f"epoch {self.passes} of {self.epochs}"
        self.passes += 1
        start = time.monotonic()
        before = words = 0
        for path in self.paths:
            with path.open("rb") as raw:
                for number, line in enumerate(unpacked_lines(raw, visible(str(path)))):
                    tokens = tokenize(line.decode("utf-8", "replace").lower(), keep_punctuation=True).tokens
                    if tokens:
                        words += len(tokens)
                        # gensim drops what a sentence has beyond ten thousand words
                        yield from (
                            list(tokens[i : i + MOST_WORDS]) for i in range(0, len(tokens), MOST_WORDS)
                        )
                    if number % 2000 == 0:
                        done = (before + raw.tell()) / max(1, self.bytes)
                        self.report(Stage(phase, min(1.0, done), words, time.monotonic() - start))
            before += path.stat().st_size
        self.report(Stage(phase, 1.0, words, time.monotonic() - start))


def fit(
    paths: Sequence[Path], settings: VectorTraining, report: StageReport
) -> tuple[list[str], NDArray[np.float32]]:
    """Learn vectors (n, dim) for the most frequent lower-cased words of the texts, most frequent first.

    Skip-gram with negative sampling (Mikolov et al. 2013, "Distributed Representations of Words and
    Phrases"). One worker and one seed give the same vectors on the same kind of processor.
    """
    Word2Vec = _word2vec()
    corpus = Corpus(paths, report, settings.epochs)
    same = ("window", "negative", "sample", "min_count", "seed", "workers", "epochs")
    more = {name: getattr(settings, name) for name in same}
    model = Word2Vec(vector_size=settings.dim, max_final_vocab=settings.words, sg=1, hs=0, **more)
    try:
        model.build_vocab(corpus)
    except RuntimeError:
        raise InputError("There is no text in these files to learn from.") from None
    if not model.wv.index_to_key:
        raise InputError(f"No word occurs {settings.min_count} times.", "Give more text, or --min-count 1.")
    model.train(corpus, total_examples=model.corpus_count, epochs=settings.epochs)
    return list(model.wv.index_to_key), np.asarray(model.wv.vectors, dtype=np.float32)


def _word2vec() -> Any:
    try:
        # gensim takes a second to import: only training pays for it.
        from gensim.models import Word2Vec
    except ImportError:
        raise MissingExtra("Training needs gensim: pip install gensim") from None
    return Word2Vec


def finish(vectors: NDArray[np.float32], remove: int, length: float) -> NDArray[np.float16]:
    """Return the vectors without what all words share, each of one length, as float16.

    Their mean is taken off, then their `remove` strongest principal directions (Mu and Viswanath 2018,
    "All-but-the-Top"): what is left tells words apart better.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    if remove:
        # The directions are the last eigenvectors of a dim x dim matrix: small, and in a fixed order.
        _, directions = np.linalg.eigh(centred.T @ centred)
        strongest = directions[:, -remove:]
        centred = centred - (centred @ strongest) @ strongest.T
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    scaled: NDArray[np.float16] = (centred * (length / np.where(lengths == 0, 1, lengths))).astype(np.float16)
    return scaled


def train_file(
    corpora: Sequence[str], output: str, settings: VectorTraining, report: StageReport
) -> dict[str, int | str]:
    """Train on the texts and write the table to `output`, all or nothing; return what was written."""
    paths = [regular(path) for path in corpora]
    _check(settings, output)
    words, vectors = fit(paths, settings, report)
    about = {
        "length": f"{settings.length:g}",
        "settings": json.dumps(asdict(settings)),
        "method": "gensim Word2Vec, skip-gram, lower-cased, tokenizer words with punctuation kept",
        "texts": ", ".join(visible(path.name) for path in paths),
    }
    with written(output) as stream:
        write_table(stream, words, finish(vectors, settings.remove, settings.length), about)
    return {"file": output, "words": len(words), "dim": settings.dim, "bytes": os.path.getsize(output)}


def _check(settings: VectorTraining, output: str) -> None:
    """Refuse before hours of work what could only fail after them."""
    check(settings)
    if settings.remove >= settings.dim:
        raise UsageError(f"--remove cannot be {settings.remove}.", f"Give less than --dim {settings.dim}.")
    if not (0 < settings.length < 1e4 and 0 <= settings.sample <= 1):
        raise UsageError("--length must lie between 0 and 10,000, and --sample between 0 and 1.")
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"Vectors are written as .safetensors, not as {visible(output)}.", option="--output")
    creatable(output)
    _word2vec()
