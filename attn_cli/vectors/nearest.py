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
