"""N-grams learned from a table's own words, so that words that it does not have can be guessed (`subwords`)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError, MissingExtra, UsageError
from attn_cli.io.atomic import written
from attn_cli.io.escape import visible
from attn_cli.io.files import creatable
from attn_cli.io.progress import Stage, StageReport
from attn_cli.settings.declare import check
from attn_cli.settings.training import SubwordTraining
from attn_cli.vectors.formats.fasttext_ngrams import ngrams
from attn_cli.vectors.store.table import NGrams, as_text, write_table
from attn_cli.vectors.subwords import LONGEST, SHORTEST, letters, normal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors.store.vectors import OpenVectors

    Floats = NDArray[np.floating[Any]]
    Matrix = Any  # of scipy, which is not there when types are checked

HELD_BACK = 0.1  # of the words that are not among the commonest quarter
LARGEST_BYTE = 127


class Made(NamedTuple):
    """What was written: the file, its bytes, the words learned from, and how near guesses of words held back came."""

    file: str
    bytes: int
    words: int
    cosine: float | None
    held_back: int


def subwords_file(table: OpenVectors, output: str, settings: SubwordTraining, report: StageReport) -> Made:
    """Write the table and its n-grams to `output`, all or nothing.

    They are learned twice: without a tenth of the rarer words, to measure how near a guess comes to a word's own
    vector once the mean of all is taken off both, and with all.
    """
    check(settings)
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"Vectors are written as .safetensors, not as {visible(output)}.", option="--output")
    creatable(output)
    _scipy()
    parts = list(table.rows())
    names = [word for words, _ in parts for word in words]
    matrix = np.concatenate([numbers for _, numbers in parts])
    words, vectors = names[: settings.words], matrix[: settings.words].astype(np.float64)
    if not np.isfinite(vectors).all():
        raise InputError(f"{table.name} holds NaN or infinity.", "Replace or remove such rows.")
    scale = float(np.sqrt(np.mean(vectors**2))) or 1.0
    vectors = vectors / scale
    normals = [normal(as_text(word)) for word in words]
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
        cosine = float(np.mean(_cosines(guessed - mean, vectors[held_back] - mean)))
    made = _learned(counted, vectors, settings, "all words", report)
    with np.errstate(over="ignore"):
        directions = (np.asarray(made.directions[:]) * scale).astype(np.float32)
    if not np.isfinite(directions).all():
        raise InputError(f"The numbers of {table.name} are too large.", "Divide them all by one number.")
    made = NGrams(made.rows, directions)
    size = dict(zip(("rows", "numbers"), made.rows.shape, strict=True))
    noted = {
        **size,
        "words": len(words),
        "cosine": cosine,
        "held_back": len(held_back),
        "letters": letters(normals),
    }
    about = {key: value for key, value in table.about.items() if key not in ("format", "doubled")}
    with written(output) as stream:
        write_table(stream, names, matrix, {**about, "ngrams": json.dumps(noted, allow_nan=False)}, made)
    return Made(output, os.path.getsize(output), len(words), cosine, len(held_back))


def _scipy() -> Any:
    try:
        # Only learning needs it.
        import scipy.sparse.linalg
    except ImportError:
        raise MissingExtra("Learning n-grams needs SciPy: pip install 'attn-cli[learn]'") from None
    return scipy.sparse


def _counts(words: list[bytes], buckets: int) -> Matrix:
    """Return how many n-grams a word has in each row, over the square root of all that it has, (words, buckets)."""
    owners, rows = [], []
    for owner, row in ngrams(words, SHORTEST, LONGEST, buckets):
        owners.append(owner)
        rows.append(row)
    owner, row = np.concatenate(owners), np.concatenate(rows)
    shares = 1 / np.sqrt(np.bincount(owner, minlength=len(words)))
    return _scipy().csr_array((shares[owner], (owner, row)), (len(words), buckets))


def _learned(
    counted: Matrix, vectors: Floats, settings: SubwordTraining, phase: str, report: StageReport
) -> NGrams:
    """Return the n-grams' numbers by least squares with a penalty on their size, in bytes."""
    begun, mean = time.monotonic(), vectors.mean(axis=0)
    full = np.empty((counted.shape[1], vectors.shape[1]))
    for column in range(vectors.shape[1]):
        wanted = vectors[:, column] - mean[column]
        full[:, column] = _scipy().linalg.lsqr(
            counted, wanted, damp=settings.penalty**0.5, iter_lim=settings.steps
        )[0]
        done = (column + 1) / vectors.shape[1]
        report(Stage(phase, done, int(done * len(vectors)), time.monotonic() - begun))
    guessed = counted @ full
    _, directions = np.linalg.eigh(guessed.T @ guessed)  # the strongest come last
    strongest = directions[:, ::-1][:, : settings.rank]
    rows = full @ strongest
    size = np.maximum(np.abs(rows).max(axis=0), 1e-9) / LARGEST_BYTE
    out = np.vstack([size[:, None] * strongest.T, mean])
    return NGrams(np.rint(rows / size).astype(np.int8), out)


def _cosines(A: Floats, B: Floats) -> Floats:
    lengths = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    found: Floats = (A * B).sum(axis=1) / np.maximum(lengths, 1e-9)
    return found
