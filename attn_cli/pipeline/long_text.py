"""What is kept of a matrix that is too large to hold: links, entropy, and a map of block means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.top_links import Links, strongest
from attn_cli.trace.diagnostics import entropy
from attn_cli.trace.trace import LongView

if TYPE_CHECKING:
    from attn_cli.core.streaming import Survey
    from attn_cli.io.array_types import Array, Bools

MAP = 40  # blocks a side
ROOM = 1 << 20  # weights that are worked on at once, where all are at hand


class HeadSummary(NamedTuple):
    """What is kept of one head: each row's strongest links, the output if there is one, and the long view."""

    links: Links
    output: Array | None
    view: LongView


def summary_of_survey(survey: Survey, n_k: int) -> HeadSummary:
    """Return the summary of a head that the fast way went over."""
    view = _view(survey.entropy, survey.allowed, survey.sums, survey.counts, n_k)
    return HeadSummary(Links(survey.keys, survey.weights), survey.output, view)


class SomeRows(NamedTuple):
    """Some rows of one head, from the row `start` on: weights and mask (rows, n_k), output (rows, d_v)."""

    start: int
    weights: Array
    output: Array | None
    allowed: Bools | None


def summary_of_rows(blocks: Iterable[SomeRows], n_q: int, n_k: int, k: int) -> HeadSummary:
    """Return the same summary, summed up from the weights of one block of rows after the other."""
    rows, columns = blocks_of_map(n_q, n_k)
    row_block = np.arange(n_q) * rows // n_q
    column_block = np.arange(n_k)[:, np.newaxis] * columns // n_k == np.arange(columns)
    sums, counts = np.zeros((rows, columns)), np.zeros((rows, columns))
    links, outputs, entropies, seen = [], [], [], []
    for start, weights, output, allowed in blocks:
        links.append(strongest(weights, k, allowed))
        entropies.append(np.maximum(entropy(weights), 0))  # given weights may be a little above 1
        if output is not None:
            outputs.append(output)
        in_column = column_block.astype(weights.dtype)
        may = (np.ones(weights.shape, np.bool_) if allowed is None else allowed) @ in_column
        seen.append(may.sum(axis=1))
        at = row_block[start : start + len(weights)]
        np.add.at(sums, at, weights @ in_column)
        np.add.at(counts, at, may)
    view = _view(np.concatenate(entropies), np.concatenate(seen), sums, counts, n_k)
    top = Links(*(np.concatenate(column) for column in zip(*links, strict=True)))
    return HeadSummary(top, np.concatenate(outputs) if outputs else None, view)


def summary_of_weights(weights: Array, allowed: Bools | None, k: int) -> HeadSummary:
    """Return the summary of weights (n_q, n_k) in memory, computed some rows at a time to save memory."""
    n_q, n_k = weights.shape
    size = max(1, ROOM // n_k)
    parts = (slice(start, start + size) for start in range(0, n_q, size))
    blocks = (SomeRows(at.start, weights[at], None, None if allowed is None else allowed[at]) for at in parts)
    return summary_of_rows(blocks, n_q, n_k, k)


def blocks_of_map(n_q: int, n_k: int) -> tuple[int, int]:
    """Return how many blocks of queries and of keys the map has."""
    return min(MAP, n_q), min(MAP, n_k)


def _view(entropies: Array, allowed: Array, sums: Array, counts: Array, n_k: int) -> LongView:
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    rows, columns = means.shape
    return LongView(entropies, allowed, means, counts, _edges(len(entropies), rows), _edges(n_k, columns))


def _edges(n: int, blocks: int) -> tuple[int, ...]:
    """Return where each block starts, and n: item j lies in block j * blocks // n."""
    return tuple(-(-i * n // blocks) for i in range(blocks + 1))
