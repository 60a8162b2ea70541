"""The words nearest to a word, or to any vector, by cosine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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


def nearest_each(table: Table, vectors: Array, k: int) -> list[list[tuple[str, float]]]:
    """Return, for each row of `vectors` (n, dim), the k words of the largest cosine, as `nearest` does.

    The table is read once, in blocks, in float32; the k words found are then measured exactly.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    units = (vectors / np.where(lengths == 0, 1, lengths)[:, np.newaxis]).astype(np.float32)
    cosines = np.zeros((len(vectors), len(table.matrix)), dtype=np.float32)
    for start in range(0, len(table.matrix), BLOCK):
        rows = table.matrix[start : start + BLOCK].astype(np.float32)
        sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        np.divide(units @ rows.T, sizes, out=cosines[:, start : start + BLOCK], where=sizes > 0)
    words = table.words()
    found = []
    for vector, row in zip(vectors, cosines, strict=True):
        few = np.sort(np.argpartition(-row, min(4 * k, len(row) - 1))[: 4 * k])
        few_rows = table.matrix[few].astype(np.float64)
        sizes = np.linalg.norm(few_rows, axis=1) * np.linalg.norm(vector)
        exact = np.divide(few_rows @ vector, sizes, out=np.zeros(len(few)), where=sizes > 0)
        order = np.argsort(-exact, kind="stable")[:k]
        found.append([(words[few[i]], float(min(1.0, max(-1.0, exact[i])))) for i in order])
    return found
