"""Word vectors learned from running text: gensim's Word2Vec (skip-gram), streamed, deterministic."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from attn_cli.errors import InputError, MissingExtra, UsageError, visible
from attn_cli.io import atomic, files
from attn_cli.io.types import Array, NamedTuple, NDArray, Stage, StageReport
from attn_cli.settings.declare import check
from attn_cli.settings.training import SubwordTraining, VectorTraining
from attn_cli.text.tokenize import tokenize
from attn_cli.vectors import NGrams, Vectors, as_text, kept_about, spelling, write_table

MOST_WORDS = 10_000


class Corpus:
    """The sentences of text files, one a line, tokenized anew at every pass: memory stays constant."""

    def __init__(self, paths: Sequence[Path], report: StageReport, epochs: int) -> None:
        self.paths, self.report, self.epochs, self.passes = paths, report, epochs, 0
        self.bytes = sum(path.stat().st_size for path in paths)

    def __iter__(self) -> Iterator[list[str]]:
        """Yield each line's tokens; gensim calls this once for the vocabulary and once an epoch."""
        phase = "vocabulary" if self.passes == 0 else f"epoch {self.passes} of {self.epochs}"
        self.passes += 1
        start = time.monotonic()
        before = words = 0
        for path in self.paths:
            with path.open("rb") as raw:
                for number, line in enumerate(files.unpacked_lines(raw, visible(str(path)))):
                    tokens = tokenize(line.decode("utf-8", "replace").lower(), keep_punctuation=True).tokens
                    if tokens:
                        words += len(tokens)
                        # gensim drops what a sentence has beyond ten thousand words
                        starts = range(0, len(tokens), MOST_WORDS)
                        yield from (list(tokens[i : i + MOST_WORDS]) for i in starts)
                    if number % 2000 == 0:
                        done = (before + raw.tell()) / max(1, self.bytes)
                        self.report(Stage(phase, min(1.0, done), words, time.monotonic() - start))
            before += path.stat().st_size
        self.report(Stage(phase, 1.0, words, time.monotonic() - start))


def fit(
    paths: Sequence[Path], settings: VectorTraining, report: StageReport
) -> tuple[list[str], NDArray[np.float32]]:
    """Learn vectors (n, dim) for the most frequent lower-cased words of the texts, most frequent first.

    Skip-gram with negative sampling (Mikolov et al. 2013, "Distributed Representations of Words and Phrases"). One
    worker and one seed give the same vectors on the same kind of processor.
    """
    corpus = Corpus(paths, report, settings.epochs)
    same = ("window", "negative", "sample", "min_count", "seed", "workers", "epochs")
    more = {name: getattr(settings, name) for name in same}
    sizes = {"vector_size": settings.dim, "max_final_vocab": settings.words}
    model = _word2vec()(sg=1, hs=0, **sizes, **more)
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
        from gensim.models import Word2Vec  # takes a second: only training pays for it
    except ImportError:
        raise MissingExtra("Training needs gensim: pip install gensim") from None
    return Word2Vec


def _scipy() -> Any:
    try:
        import scipy.sparse.linalg  # only learning needs it
    except ImportError:
        raise MissingExtra("Learning n-grams needs SciPy: pip install 'attn-cli[learn]'") from None
    return scipy.sparse


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
    paths = [files.regular(path) for path in corpora]
    _check(settings, output)
    if settings.remove >= settings.dim:
        raise UsageError(f"--remove cannot be {settings.remove}.", f"Give less than --dim {settings.dim}.")
    if not (0 < settings.length < 1e4 and 0 <= settings.sample <= 1):
        raise UsageError("--length must lie between 0 and 10,000, and --sample between 0 and 1.")
    _word2vec()
    words, vectors = fit(paths, settings, report)
    about = {
        "length": f"{settings.length:g}",
        "settings": json.dumps(asdict(settings)),
        "method": "gensim Word2Vec, skip-gram, lower-cased, tokenizer words with punctuation kept",
        "texts": ", ".join(visible(path.name) for path in paths),
    }
    with atomic.written(output) as stream:
        write_table(stream, words, finish(vectors, settings.remove, settings.length), about)
    return {"file": output, "words": len(words), "dim": settings.dim, "bytes": os.path.getsize(output)}


def _check(settings: VectorTraining | SubwordTraining, output: str) -> None:
    check(settings)
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"Vectors are written as .safetensors, not as {visible(output)}.", option="--output")
    atomic.creatable(output)


Matrix = Any  # of scipy, which is not there when types are checked
HELD_BACK = 0.1  # of the words that are not among the commonest quarter


class Made(NamedTuple):
    """What was written: the file, its bytes, the words learned from, and how near guesses of words held back came."""

    file: str
    bytes: int
    words: int
    cosine: float | None
    held_back: int


def subwords_file(table: Vectors, output: str, settings: SubwordTraining, report: StageReport) -> Made:
    """Write the table and its n-grams to `output`, all or nothing.

    They are learned twice: without a tenth of the rarer words, to measure how near a guess comes to a word's own
    vector once the mean of all is taken off both, and with all.
    """
    _check(settings, output)
    _scipy()
    parts = list(table.rows())
    names = [word for words, _ in parts for word in words]
    matrix = np.concatenate([rows for _, rows in parts])
    words, numbers = names[: settings.words], matrix[: settings.words].astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"{table.name} holds NaN or infinity.", "Replace or remove such rows.")
    scale = float(np.sqrt(np.mean(numbers**2))) or 1.0
    vectors = numbers / scale
    normals = [spelling.normal(as_text(word)) for word in words]
    counted = _counts(normals, settings.buckets)
    draw = np.random.default_rng(settings.seed)
    rarer = np.arange(len(words) // 4, len(words))
    held_back = draw.permutation(rarer)[: int(HELD_BACK * len(rarer))]
    cosine = None
    if len(held_back):
        is_kept = np.ones(len(words), bool)
        is_kept[held_back] = False
        found = _learned(counted[is_kept], vectors[is_kept], settings, "words held back", report)
        guessed = (counted[held_back] @ found.rows) @ found.directions[:-1] + found.directions[-1]
        mean = found.directions[-1]  # which any guess has right
        A, B = guessed - mean, vectors[held_back] - mean
        lengths = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
        cosine = float(np.mean((A * B).sum(axis=1) / np.maximum(lengths, 1e-9)))
    made = _learned(counted, vectors, settings, "all words", report)
    with np.errstate(over="ignore"):
        directions = (np.asarray(made.directions[:]) * scale).astype(np.float32)
    if not np.isfinite(directions).all():
        raise InputError(f"The numbers of {table.name} are too large.", "Divide them all by one number.")
    made = NGrams(made.rows, directions)
    noted = {"rows": len(made.rows), "numbers": made.rows.shape[1], "words": len(words), "cosine": cosine}
    noted |= {"held_back": len(held_back), "letters": "".join(sorted(set(as_text(b"".join(normals)))))}
    about = {**kept_about(table.about), "ngrams": json.dumps(noted, allow_nan=False)}
    with atomic.written(output) as stream:
        write_table(stream, names, matrix, about, made)
    return Made(output, os.path.getsize(output), len(words), cosine, len(held_back))


def _counts(words: list[bytes], buckets: int) -> Matrix:
    """Return how many n-grams a word has in each row, over the square root of all that it has, (words, buckets)."""
    found = list(spelling.ngrams(words, spelling.SHORTEST, spelling.LONGEST, buckets))
    owner, row = (np.concatenate(some) for some in zip(*found, strict=True))
    shares = 1 / np.sqrt(np.bincount(owner, minlength=len(words)))
    return _scipy().csr_array((shares[owner], (owner, row)), (len(words), buckets))


def _learned(
    counted: Matrix, vectors: Array, settings: SubwordTraining, phase: str, report: StageReport
) -> NGrams:
    """Return the n-grams' numbers by least squares with a penalty on their size, in bytes."""
    begun, mean = time.monotonic(), vectors.mean(axis=0)
    full = np.empty((counted.shape[1], vectors.shape[1]))
    for column in range(vectors.shape[1]):
        wanted = vectors[:, column] - mean[column]
        damp, steps = settings.penalty**0.5, settings.steps
        full[:, column] = _scipy().linalg.lsqr(counted, wanted, damp=damp, iter_lim=steps)[0]
        done = (column + 1) / vectors.shape[1]
        report(Stage(phase, done, int(done * len(vectors)), time.monotonic() - begun))
    guessed = counted @ full
    _, directions = np.linalg.eigh(guessed.T @ guessed)  # the strongest come last
    strongest = directions[:, ::-1][:, : settings.rank]
    rows = full @ strongest
    size = np.maximum(np.abs(rows).max(axis=0), 1e-9) / 127  # the largest int8
    out = np.vstack([size[:, None] * strongest.T, mean])
    return NGrams(np.rint(rows / size).astype(np.int8), out)
