"""Attending with every head: at once, or by blocks of rows where the matrix is too large; or with weights as given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli import masks
from attn_cli.attention import Links, Steps, attention_steps, strongest
from attn_cli.heads import Ready
from attn_cli.trace import LARGE, Head

if TYPE_CHECKING:
    from attn_cli.arrays import Array, Bools, Ints

Report = Callable[[float], None]


class Swept(NamedTuple):
    """What is kept of one head after a sweep: each row's strongest links, and the output."""

    links: Links
    output: Array | None


class Work(NamedTuple):
    """What all heads share while attending."""

    heads: tuple[Ready, ...]
    mask: masks.Mask | None
    factor: float
    score: str
    position_factor: float = 1.0

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
        return attention_steps(head.q[rows], head.k, head.v, allowed, bias, self.factor, self.score)

    def sweep(self, n_q: int, k: int, with_mean: bool, report: Report | None) -> dict[str, Swept]:
        """Go over all rows in blocks, and keep of each head (and of their mean) links and outputs alone."""
        n_k = len(self.heads[0].k)
        size = max(1, (LARGE // 2) // (n_k * len(self.heads)))
        kept: dict[str, list[tuple[Links, Array]]] = {}
        for start in range(0, n_q, size):
            rows = np.arange(start, min(start + size, n_q))
            allowed = self.allowed(rows)
            total = np.zeros((len(rows), n_k)) if with_mean else None
            outputs = []
            for head in self.heads:
                block = self.steps(head, rows, allowed, self.position(head, rows))
                kept.setdefault(head.name, []).append((strongest(block.weights, k, allowed), block.output))
                if total is not None:
                    total += block.weights
                    outputs.append(block.output)
            if total is not None:
                links = strongest(total / len(self.heads), k, allowed)
                kept.setdefault("mean", []).append((links, np.mean(outputs, axis=0)))
            if report:
                report((start + len(rows)) / n_q)
        return {name: _joined(parts) for name, parts in kept.items()}

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

    def sweep(self, n_q: int, k: int, with_mean: bool, report: Report | None) -> dict[str, Swept]:
        """Return the strongest links of each head, and of their mean, over all rows."""
        allowed = self.allowed(np.arange(n_q))
        found = dict(zip(self.names, self.weights, strict=True))
        if with_mean:
            found["mean"] = self.weights.mean(axis=0)
        return {name: Swept(strongest(weights, k, allowed), None) for name, weights in found.items()}

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


def _joined(parts: list[tuple[Links, Array]]) -> Swept:
    links = Links(*(np.concatenate(column) for column in zip(*(part[0] for part in parts), strict=True)))
    return Swept(links, np.concatenate([part[1] for part in parts]))
