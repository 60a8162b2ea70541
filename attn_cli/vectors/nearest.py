"""The words nearest to a word, or to any vector, by cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.vectors.lookup import look_up
from attn_cli.vectors.table import Table

if TYPE_CHECKING:
    from attn_cli.arrays import Array

BLOCK = 8192


def nearest(table: Table, vector: Array, k: int, without: str = "") -> list[tuple[str, float]]:
    """Return the k words whose vectors have the largest cosine with `vector` (dim,), largest first.

    Ties go to the word that stands earlier in the table; the word `without` is left out. The table is
    read in blocks.
    """
    length = np.linalg.norm(vector)
    cosines = np.zeros(len(table.matrix))
    for start in range(0, len(cosines), BLOCK):
        rows = table.matrix[start : start + BLOCK].astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * length
        np.divide(rows @ vector, lengths, out=cosines[start : start + BLOCK], where=lengths > 0)
    np.clip(cosines, -1, 1, out=cosines)
    words = table.words()
    order = np.argsort(-cosines, kind="stable")[: k + 1]
    return [(words[i], float(cosines[i])) for i in order if words[i] != without][:k]


def nearest_each(
    table: Table, vectors: Array, k: int, commonest: int, also: Sequence[str] = ()
) -> list[list[tuple[str, float]]]:
    """Return, for each row of `vectors` (n, dim), the k words of the largest cosine, largest first.

    The `commonest` first words of the table are searched, and those of `also` that it has: rare words are
    near to much, and mean little to a reader. Ties go to the word that stands earlier; zeros are near to nothing.
    """
    count = min(commonest, len(table.matrix))
    words = table.words()[:count]
    known = set(words)
    found = {pair[0]: pair[1] for word in also if (pair := look_up(word, table)) and pair[0] not in known}
    words += found
    rows = table.matrix[:count]
    if found:
        rows = np.vstack([rows, np.array([*found.values()], dtype=rows.dtype)])
    cosines = (_units(vectors).astype(np.float32) @ _units(rows).astype(np.float32).T).astype(np.float64)
    named = []
    for vector, row in zip(vectors, cosines, strict=True):
        # Few are measured again, in full: single precision only chose them.
        few = np.sort(np.argsort(-row, kind="stable")[: 2 * k + 2])
        exact = np.clip(_units(rows[few].astype(np.float64)) @ _units(vector[np.newaxis])[0], -1, 1)
        order = np.argsort(-exact, kind="stable")[: k if vector.any() else 0].tolist()
        named.append([(words[few[i]], float(exact[i])) for i in order])
    return named


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
