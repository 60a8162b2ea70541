"""What is kept of a matrix that is too large to hold: links, entropy, and a map of block means; and what it tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from attn_cli.core.heads import BLOCK_CELLS, Links, strongest
from attn_cli.io.types import Array, Bools, Ints, NamedTuple
from attn_cli.trace import Head, LongView, Trace, entropy

SomeRows = tuple[Array, Array | None, Bools | None]  # of one head: weights (rows, n_k), output, mask

MAP = 40  # blocks a side


class HeadSummary(NamedTuple):
    """What is kept of one head: each row's strongest links, the output if there is one, and the long view."""

    links: Links
    output: Array | None
    view: LongView


class RowSums:
    """What is kept of a head's weights (n_q, n_k): they are added some rows at a time, in any order."""

    def __init__(self, n_q: int, n_k: int, k: int) -> None:
        self.k, self.row_edges, self.key_edges = k, _edges(n_q), _edges(n_k)
        self.parts: dict[int, tuple[Links, Array | None, Array, Array, Ints]] = {}

    def add(self, rows: range, weights: Array, output: Array | None, allowed: Bools | None) -> None:
        """Add some rows: their weights (rows, n_k), their output, if there is one, and their mask."""
        links, columns = strongest(weights, self.k, allowed), self.key_edges[:-1]
        bits = entropy(weights)
        sums = np.add.reduceat(weights, columns, axis=1, dtype=np.float64)
        if allowed is None:
            counts = np.broadcast_to(np.diff(self.key_edges), sums.shape)
        else:
            counts = np.add.reduceat(allowed, columns, axis=1, dtype=np.intp)
        self.parts[rows.start] = links, output, bits, sums, counts

    def summary(self) -> HeadSummary:
        """Return the summary of all rows."""
        every, outputs, *columns = zip(*(self.parts[start] for start in sorted(self.parts)), strict=True)
        links = Links(*(np.concatenate(column) for column in zip(*every, strict=True)))
        bits, sums, counts = map(np.concatenate, columns)
        starts, seen = self.row_edges[:-1], counts.sum(axis=1)
        of_map, allowed = (np.add.reduceat(M, starts, axis=0, dtype=np.float64) for M in (sums, counts))
        view = LongView(bits, seen, _means(of_map, allowed), allowed, self.row_edges, self.key_edges)
        return HeadSummary(links, None if outputs[0] is None else np.concatenate(outputs), view)


def summary_of_rows(blocks: Iterable[SomeRows], n_q: int, n_k: int, k: int) -> HeadSummary:
    """Return the summary, with the k strongest links, from the weights of one block of rows after the other."""
    sums, start = RowSums(n_q, n_k, k), 0
    for weights, output, allowed in blocks:
        sums.add(range(start, start := start + len(weights)), weights, output, allowed)
    return sums.summary()


def rows_of(weights: Array, allowed: Bools | None) -> Iterator[SomeRows]:
    """Yield weights (n_q, n_k) in memory some rows at a time, to save memory."""
    size = max(1, BLOCK_CELLS // weights.shape[1])
    for start in range(0, len(weights), size):
        at = slice(start, start + size)
        yield weights[at], None, None if allowed is None else allowed[at]


def view_of(weights: Array, allowed: Bools | None) -> LongView:
    """Return the long view of weights (n_q, n_k) in memory."""
    n_q, n_k = weights.shape
    return summary_of_rows(rows_of(weights, allowed), n_q, n_k, 1).view


def _edges(n: int) -> tuple[int, ...]:
    """Return where each block of the map starts, and n: item j lies in block j * blocks // n."""
    blocks = min(MAP, n)
    return tuple(-(-i * n // blocks) for i in range(blocks + 1))


def _means(sums: Array, counts: Array) -> Array:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


class Spread(NamedTuple):
    """How far the rows spread their attention: entropies in bits, of the rows that may look at two keys or more."""

    lowest: float
    median: float
    highest: float
    ranked: Ints  # these rows; first the one whose entropy is the smallest share of its maximum


class Strongest(NamedTuple):
    """The strongest links; `is_sure` unless a link that was not kept could be stronger than the last of them."""

    links: list[tuple[int, int, float]]  # query, key, weight
    is_sure: bool


def merged(view: LongView, rows: int, columns: int) -> LongView:
    """Return the view with a map of at most `rows` x `columns` blocks, each the mean of its allowed links."""
    sums = np.where(view.counts > 0, view.means * view.counts, 0.0)
    counts, edges = view.counts, []
    for axis, most, old in ((0, rows, view.query_edges), (1, columns, view.key_edges)):
        blocks = len(old) - 1
        groups = blocks // -(-blocks // max(1, most))
        starts = [group * blocks // groups for group in range(groups)]
        sums, counts = (np.add.reduceat(of_blocks, starts, axis=axis) for of_blocks in (sums, counts))
        edges.append((*(old[start] for start in starts), old[-1]))
    return view._replace(means=_means(sums, counts), counts=counts, query_edges=edges[0], key_edges=edges[1])


def spread(trace: Trace, view: LongView) -> Spread | None:
    """Return how far the rows spread their attention; None where no row has a choice. Padding does not count."""
    counted = view.allowed > 1
    counted[list(trace.pad_queries)] = False
    rows = np.flatnonzero(counted)
    if not len(rows):
        return None
    bits = view.entropy[rows]
    ranked = rows[np.argsort(bits / np.log2(view.allowed[rows]), kind="stable")]
    return Spread(float(bits.min()), float(np.median(bits)), float(bits.max()), ranked)


def first_of_each(tokens: Sequence[str], places: Sequence[int], most: int) -> list[int]:
    """Return the first `most` of these places that hold different words, whatever their capitals."""
    found: dict[str, int] = {}
    for place in places:
        found.setdefault(tokens[place].casefold(), int(place))
        if len(found) == most:
            break
    return list(found.values())


def strongest_links(trace: Trace, head: Head, most: int) -> Strongest:
    """Return a head's strongest kept links between different words, each pair of words at its strongest."""
    numbers: dict[str, int] = {}
    queries, keys = (  # words that differ in capitals alone have one number
        np.array([numbers.setdefault(token.casefold(), len(numbers)) for token in tokens], np.intp)
        for tokens in (trace.query_tokens, trace.key_tokens)
    )
    top, weights = head.links.keys, head.links.weights
    is_other = (top >= 0) & (keys[top] != queries[:, np.newaxis])
    is_other[list(trace.pad_queries)] = False
    at = np.nonzero(is_other)
    found: dict[tuple[int, int], tuple[int, int, float]] = {}
    for place in np.argsort(-weights[at], kind="stable"):
        i, rank = int(at[0][place]), int(at[1][place])
        j = int(top[i, rank])
        found.setdefault((int(queries[i]), int(keys[j])), (i, j, float(weights[i, rank])))
        if len(found) == most:
            break
    links, unseen = list(found.values()), 0.0  # the largest weight that a link outside the kept ones can have
    if top.shape[1] < len(trace.key_tokens):
        full = top[:, -1] >= 0
        full[list(trace.pad_queries)] = False
        unseen = float(weights[full, -1].max(initial=0.0))
    return Strongest(links, unseen <= (links[-1][2] if len(links) == most else 0.0))
