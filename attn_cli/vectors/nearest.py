"""The words nearest to a word or a vector: by cosine, or by spelling; over millions of words in bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.vectors.lookup import look_up_all
from attn_cli.vectors.table import OnProgress, as_bytes, as_text, no_progress

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.open_vectors import Vectors

# Candidates are chosen in single precision, whose error is far smaller, and then computed in full.
MARGIN = 1e-4


def nearest(
    vectors: Vectors,
    vector: Array,
    k: int,
    without: Collection[str] = (),
    report: OnProgress = no_progress,
) -> list[tuple[str, float]]:
    """Return the k words whose vectors have the largest cosine with `vector` (dim,), largest first.

    Ties go to the word that stands earlier; the words `without` are left out, and vectors that hold NaN or
    infinity. The vectors are read in blocks. Zeros have the cosine 0 with everything.
    """
    unit = _units(vector[np.newaxis])[0]
    left_out = {as_bytes(word) for word in without}
    kept = k + len(left_out)
    best: list[tuple[float, int, bytes]] = []
    before = 0
    for words, matrix in vectors.rows(report):
        rough = _rough(matrix, unit)
        few = np.flatnonzero(rough >= _threshold(rough, best, kept))
        exact = np.clip(_units(matrix[few].astype(np.float64)) @ unit, -1, 1)
        best += [
            (-cosine, before + i, words[i]) for i, cosine in zip(few.tolist(), exact.tolist(), strict=True)
        ]
        best = sorted(best)[:kept]
        before += len(words)
    return [(as_text(word), -minus) for minus, _, word in best if word not in left_out][:k]


def _threshold(rough: Array, best: list[tuple[float, int, bytes]], kept: int) -> float:
    """Return below which rough cosine a word cannot be among the `kept` best."""
    least = -best[-1][0] - MARGIN if len(best) == kept else -2.0
    known = rough[~np.isnan(rough)]
    if len(known) > kept:
        least = max(least, float(np.partition(known, -kept)[-kept]) - MARGIN)
    return least


def _rough(matrix: Array, unit: Array) -> Array:
    """Return the cosines in single precision; NaN where a vector holds NaN or infinity."""
    rows = matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        cosines: Array = (rows @ unit.astype(rows.dtype)) / lengths
        odd = np.flatnonzero(~((lengths > 1e-15) & (lengths < 1e15)))  # zeros, tiny, huge or not finite
        if len(odd):
            cosines[odd] = _units(rows[odd].astype(np.float64)) @ unit
            cosines[odd[~np.isfinite(rows[odd]).all(axis=1)]] = np.nan
    return cosines


def analogy(
    vectors: Vectors,
    words: Sequence[str],
    found: Sequence[Array],
    k: int,
    report: OnProgress = no_progress,
) -> list[tuple[str, float]]:
    """Return the k words that are to the third as the second is to the first; the three are left out.

    The largest cosines with b/|b| - a/|a| + c/|c| (3CosAdd: Mikolov, Yih and Zweig 2013, "Linguistic
    Regularities in Continuous Space Word Representations").
    """
    a, b, c = _units(np.array(found))
    return nearest(vectors, b - a + c, k, words, report)


def nearest_each(
    vectors: Vectors, outputs: Array, k: int, commonest: int, also: Sequence[str] = ()
) -> list[list[tuple[str, float]]]:
    """Return, for each row of `outputs` (n, dim), the k words of the largest cosine, largest first.

    The `commonest` first words are searched, and those of `also` that have a vector: rare words are often near, and
    mean little to a reader. Ties go to the word that stands earlier; zeros have no neighbours.
    """
    words, rows = _first(vectors, commonest)
    known = set(words)
    found = {form: vector for form, vector in look_up_all(also, vectors).values() if form not in known}
    words += found
    if found:
        rows = np.vstack([rows, np.array([*found.values()], dtype=rows.dtype)])
    with np.errstate(invalid="ignore"):
        cosines = (_units(outputs).astype(np.float32) @ _units(rows).astype(np.float32).T).astype(np.float64)
    cosines[np.isnan(cosines)] = -2  # of vectors that hold NaN or infinity
    named = []
    for vector, row in zip(outputs, cosines, strict=True):
        # Single precision chose a few; their cosines are computed in full.
        few = np.sort(np.argsort(-row, kind="stable")[: 2 * k + 2])
        few = few[row[few] > -2]
        exact = np.clip(_units(rows[few].astype(np.float64)) @ _units(vector[np.newaxis])[0], -1, 1)
        order = np.argsort(-exact, kind="stable")[: k if vector.any() else 0].tolist()
        named.append([(words[few[i]], float(exact[i])) for i in order])
    return named


def _first(vectors: Vectors, count: int) -> tuple[list[str], Array]:
    """Return the first `count` words and their vectors."""
    words: list[str] = []
    parts = []
    for block, matrix in vectors.rows():
        wanted = count - len(words)
        words += map(as_text, block[:wanted])
        parts.append(matrix[:wanted])
        if len(words) >= count:
            break
    return words, np.concatenate(parts) if len(parts) > 1 else parts[0]


def _units(rows: Array) -> Array:
    """Return the rows at length one (zeros stay zeros), however large or small their numbers are."""
    if rows.dtype == np.float16:
        rows = rows.astype(np.float32)
    else:
        largest = np.abs(rows).max(axis=1, keepdims=True)
        rows = rows / np.where(largest == 0, 1, largest)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    units: Array = rows / np.where(lengths == 0, 1, lengths)
    return units
