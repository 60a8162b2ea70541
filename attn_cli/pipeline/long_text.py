"""What is kept of a matrix that is too large to hold: links, entropy, and a map of block means."""

from __future__ import annotations

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


class Summing:
    """The same summary, summed up from the weights of one block of rows after the other."""

    def __init__(self, n_q: int, n_k: int, k: int) -> None:
        self.n_k, self.k = n_k, k
        rows, columns = blocks_of_map(n_q, n_k)
        self.row_block = np.arange(n_q) * rows // n_q
        self.column_block = np.arange(n_k)[:, np.newaxis] * columns // n_k == np.arange(columns)
        self.sums, self.counts = np.zeros((rows, columns)), np.zeros((rows, columns))
        self.links: list[Links] = []
        self.outputs: list[Array] = []
        self.entropy: list[Array] = []
        self.allowed: list[Array] = []

    def add(self, start: int, weights: Array, output: Array | None, allowed: Bools | None) -> None:
        """Take in the weights (rows, n_k) and the output (rows, d_v) of the rows from `start` on."""
        self.links.append(strongest(weights, self.k, allowed))
        self.entropy.append(np.maximum(entropy(weights), 0))  # given weights may be a little above 1
        if output is not None:
            self.outputs.append(output)
        columns = self.column_block.astype(weights.dtype)
        may = np.ones((len(weights), self.n_k), np.bool_) if allowed is None else allowed
        counts = may @ columns
        self.allowed.append(counts.sum(axis=1))
        rows = self.row_block[start : start + len(weights)]
        np.add.at(self.sums, rows, weights @ columns)
        np.add.at(self.counts, rows, counts)

    def summary(self) -> HeadSummary:
        """Return the summary of all rows added."""
        links = Links(*(np.concatenate(column) for column in zip(*self.links, strict=True)))
        output = np.concatenate(self.outputs) if self.outputs else None
        found, allowed = np.concatenate(self.entropy), np.concatenate(self.allowed)
        return HeadSummary(links, output, _view(found, allowed, self.sums, self.counts, self.n_k))


def summary_of_weights(weights: Array, allowed: Bools | None, k: int) -> HeadSummary:
    """Return the summary of weights (n_q, n_k) in memory, computed some rows at a time to save memory."""
    n_q, n_k = weights.shape
    found = Summing(n_q, n_k, k)
    size = max(1, ROOM // n_k)
    for start in range(0, n_q, size):
        rows = slice(start, start + size)
        found.add(start, weights[rows], None, None if allowed is None else allowed[rows])
    return found.summary()


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
