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
    near to much, and mean little to a reader. Ties go to the word that stands earlier.
    """
    count = min(commonest, len(table.matrix))
    words = table.words()[:count]
    known = set(words)
    found = {pair[0]: pair[1] for word in also if (pair := look_up(word, table)) and pair[0] not in known}
    words += found
    rows = table.matrix[:count].astype(np.float32)
    if found:
        rows = np.vstack([rows, np.array([*found.values()], dtype=np.float32)])
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    cosines = np.clip(units @ rows.T / np.where(sizes == 0, 1, sizes), -1, 1)
    orders = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return [
        [(words[j], float(row[j])) for j in order.tolist()]
        for row, order in zip(cosines, orders, strict=True)
    ]
