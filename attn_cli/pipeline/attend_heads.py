"""Attending with every head: at once, or by blocks of rows where the matrix is too large; or with weights as given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import fast, masks
from attn_cli.core.attention import Steps, attention_steps, unit
from attn_cli.core.top_links import strongest
from attn_cli.errors import NotFinite
from attn_cli.pipeline.project import Ready
from attn_cli.trace.trace import LARGE, Head

if TYPE_CHECKING:
    from attn_cli.core.fast import Report
    from attn_cli.core.tiles import Tiles
    from attn_cli.io.array_types import Array, Bools, Ints
    from attn_cli.pipeline.long_text import Swept

BLOCK = 1 << 23  # weights that are held at once while all heads are gone over by rows


class Work(NamedTuple):
    """What all heads share while attending."""

    heads: tuple[Ready, ...]
    mask: masks.Mask | None
    factor: float
    score: str
    position_factor: float = 1.0
    threads: int | None = None

    def allowed(self, rows: Ints) -> Bools | None:
        """Return whom these rows may look at, or None where there is no mask."""
        return None if self.mask is None else self.mask.rows(rows)

    def position(self, head: Ready, rows: Ints) -> Array | None:
        """Return what the distance adds to the scores of these rows, (rows, n_k): given, or learned."""
        if head.position is None:
            return None if head.bias is None else head.bias[rows]
        return head.position.scores(head.q[rows], rows, len(head.k), self.position_factor)

    def steps(self, head: Ready, rows: Ints, allowed: Bools | None, bias: Array | None) -> Steps:
        """Return every step of these rows, to whose scores `bias` (their position) is added."""
        try:
            return attention_steps(head.q[rows], head.k, head.v, allowed, bias, self.factor, self.score)
        except NotFinite as error:
            raise error.among(rows.tolist()) from None

    def tiles(self, head: Ready) -> Tiles | None:
        """Return the head ready to be gone over by tiles; None where only the readable core will do."""
        q, k = (unit(head.q), unit(head.k)) if self.score == "cosine" else (head.q, head.k)
        position = head.position
        by_distance = None if position is None else position.by_distance(head.q, self.position_factor)
        if not fast.fits(q, k, head.v, head.bias, by_distance, scale=self.factor):
            return None
        return fast.tiled(q, k, self.factor, self.mask, head.bias, by_distance)

    def sweep(self, k: int, with_mean: bool, report: Report | None) -> dict[str, Swept]:
        """Go over all rows, and keep of each head (and of their mean) links, output and the long view alone."""
        from attn_cli.pipeline.long_text import by_tiles  # only long texts need it

        found: dict[str, Swept] = {}
        parts = len(self.heads) * (1 + with_mean)
        for done, head in enumerate(self.heads):
            tell = fast.part_of(report, done, parts)
            tiles = self.tiles(head)
            if tiles is None or k > fast.MANY:
                found[head.name] = self._gathered(head.name, k, tell)
            else:
                found[head.name] = by_tiles(tiles, head.v, k, self.threads, tell)
        if with_mean:
            tell = fast.part_of(report, 1, 2)
            mean = self._gathered("mean", k, tell)
            outputs = [swept.output for swept in found.values() if swept.output is not None]
            alike = len({output.shape for output in outputs}) == 1
            found["mean"] = mean._replace(output=np.mean(outputs, axis=0) if alike else None)
        return found

    def _gathered(self, name: str, k: int, report: Report | None) -> Swept:
        from attn_cli.pipeline.long_text import Gathering

        n_q, n_k = len(self.heads[0].q), len(self.heads[0].k)
        found = Gathering(n_q, n_k, k)
        for rows, weights, output in self._weighed(name):
            found.add(rows.start, weights, output, self.allowed(np.array(rows)))
            if report:
                report(rows.stop / n_q)
        return found.swept()

    def blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yield the weights (rows, n_k) of a head, or of the mean, by blocks: the first row's number, and they."""
        for rows, weights, _ in self._weighed(name):
            yield rows.start, weights

    def _weighed(self, name: str) -> Iterator[tuple[range, Array, Array | None]]:
        """Yield some rows after the other, with their weights (rows, n_k) and, of one head, the output."""
        heads = [head for head in self.heads if name in (head.name, "mean")]
        tiles = [self.tiles(head) for head in heads]
        n_q, n_k = len(heads[0].q), len(heads[0].k)
        size = max(1, (BLOCK if all(tiles) else LARGE // 2) // n_k)
        for start in range(0, n_q, size):
            rows = range(start, min(start + size, n_q))
            weights, output = self._weigh(heads[0], tiles[0], rows)
            for head, ready in zip(heads[1:], tiles[1:], strict=True):
                weights = weights + self._weigh(head, ready, rows)[0]
            yield rows, weights / len(heads), output if len(heads) == 1 else None

    def _weigh(self, head: Ready, tiles: Tiles | None, rows: range) -> tuple[Array, Array]:
        if tiles is not None:
            weights, output = fast.attended([tiles], [head.v], self.threads, rows=rows)
            return weights[0], output[0]
        numbers = np.array(rows)
        steps = self.steps(head, numbers, self.allowed(numbers), self.position(head, numbers))
        return steps.weights, steps.output

    def records(self, rows: Ints, k: int, swept: Mapping[str, Swept]) -> list[Head]:
        """Return the record of each head, with the rows that are to be held."""
        return [self._head(ready, rows, k, swept.get(ready.name)) for ready in self.heads]

    def _head(self, ready: Ready, rows: Ints, k: int, swept: Swept | None) -> Head:
        allowed, position = self.allowed(rows), self.position(ready, rows)
        steps = self.steps(ready, rows, allowed, position)
        links = swept.links if swept else strongest(steps.weights, k, allowed)
        W = ready.weights
        return Head(
            name=ready.name,
            W_q=W.W_q if W else None,
            W_k=W.W_k if W else None,
            W_v=W.W_v if W else None,
            b_q=W.b_q if W else None,
            b_k=W.b_k if W else None,
            b_v=W.b_v if W else None,
            q=ready.q,
            k=ready.k,
            v=ready.v,
            position_vectors=ready.position.R if ready.position else None,
            position_biases=ready.position.b if ready.position else None,
            scores=steps.scores,
            scaled_scores=steps.scaled_scores,
            position_scores=position,
            masked_scores=steps.masked_scores,
            weights=steps.weights,
            output=swept.output if swept else steps.output,
            top_keys=links.keys,
            top_weights=links.weights,
        )


class ReadyWeights(NamedTuple):
    """Heads whose weights came ready: nothing is left to compute, and the strongest links are found."""

    names: tuple[str, ...]
    weights: Array  # (heads, n_q, n_k)
    mask: masks.Mask | None

    def allowed(self, rows: Ints) -> Bools | None:
        """Return whom these rows may look at, or None where there is no mask."""
        return None if self.mask is None else self.mask.rows(rows)

    def blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yield the weights (n_q, n_k) of a head, or of the mean, and 0, the first row's number."""
        found = dict(zip(self.names, self.weights, strict=True))
        yield 0, found[name] if name in found else self.weights.mean(axis=0)

    def sweep(self, k: int, with_mean: bool, report: Report | None) -> dict[str, Swept]:
        """Return the strongest links and the long view of each head, and of their mean."""
        from attn_cli.pipeline.long_text import by_weights

        found = {}
        allowed = self.allowed(np.arange(self.weights.shape[1]))
        for name in (*self.names, *["mean"] * with_mean):
            for _, weights in self.blocks(name):  # one block
                found[name] = by_weights(weights, allowed, k)
        return found

    def records(self, rows: Ints, k: int, swept: Mapping[str, Swept]) -> list[Head]:
        """Return the record of each head, with the rows that are to be held."""
        allowed = self.allowed(rows)
        return [
            _bare(name, weights[rows], None, k, swept.get(name), allowed)
            for name, weights in zip(self.names, self.weights, strict=True)
        ]


def mean_head(heads: list[Head], k: int, swept: Swept | None, allowed: Bools | None) -> Head:
    """Return the heads' mean as a head of its own, which has weights and output but no steps."""
    weights = np.mean([head.weights for head in heads], axis=0)
    return _bare("mean", weights, swept.output if swept else _mean_output(heads), k, swept, allowed)


def _bare(
    name: str, weights: Array, output: Array | None, k: int, swept: Swept | None, allowed: Bools | None
) -> Head:
    """Return the record of a head without steps."""
    links = swept.links if swept else strongest(weights, k, allowed)
    blank = dict.fromkeys(("W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "q", "k", "v", "scores"))
    blank |= dict.fromkeys(
        ("position_vectors", "position_biases", "scaled_scores", "position_scores", "masked_scores")
    )
    return Head(name, **blank, weights=weights, output=output, top_keys=links[0], top_weights=links[1])


def _mean_output(heads: list[Head]) -> Array | None:
    outputs = [head.output for head in heads if head.output is not None]
    return np.mean(outputs, axis=0) if len({output.shape for output in outputs}) == 1 else None
