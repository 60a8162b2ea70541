"""Attending with every head: whole, or by blocks of rows where the matrix is too large; or weights as they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import fast
from attn_cli.core.attend import (
    BLOCK_CELLS,
    FAST_BLOCK_CELLS,
    HeadInput,
    blocks_of_rows,
    survey_of,
    weigh,
)
from attn_cli.core.masks import Mask
from attn_cli.core.top_links import strongest
from attn_cli.trace.head import Head

if TYPE_CHECKING:
    from attn_cli.core.fast import Report
    from attn_cli.io.array_types import Array, Bools, Ints
    from attn_cli.pipeline.long_text import HeadSummary


class Work(NamedTuple):
    """The heads of a layer, and what they share while attending."""

    heads: tuple[Head, ...]
    mask: Mask | None
    score: str
    factor: float  # scores are multiplied by it: the scale, divided by the temperature
    position_factor: float = 1.0  # the same for what a learned position term adds
    threads: int | None = None

    def allowed(self, rows: Ints) -> Bools | None:
        """Return the mask of these rows, (rows, n_k); None where there is none."""
        return None if self.mask is None else self.mask.rows(rows)

    def head_input(self, head: Head) -> HeadInput:
        """Return a head ready to attend."""
        assert head.q is not None and head.k is not None and head.v is not None
        by_distance = None
        if head.position is not None:
            by_distance = head.position.by_distance(head.q, self.position_factor)
        bias = head.bias if head.position is None else None  # a learned term takes the place of what it gave
        return HeadInput(head.q, head.k, head.v, self.mask, bias, by_distance, self.score, self.factor)

    def summaries(self, k: int, with_mean: bool, report: Report | None) -> dict[str, HeadSummary]:
        """Go over all rows, and keep of each head (and of their mean) links, output and the long view alone."""
        from attn_cli.pipeline.long_text import blocks_of_map, summary_of_survey  # only long texts need it

        found: dict[str, HeadSummary] = {}
        parts = len(self.heads) * (1 + with_mean)
        for done, head in enumerate(self.heads):
            report_part = fast.part_of(report, done, parts)
            ready = self.head_input(head)
            blocks = blocks_of_map(len(ready.Q), len(ready.K))
            survey = survey_of(ready, ready.tiles(), k, blocks, True, self.threads, report_part)
            found[head.name] = (
                self._summary_by_rows(head.name, k, report_part)
                if survey is None
                else summary_of_survey(survey, len(ready.K))
            )
        if with_mean:
            mean = self._summary_by_rows("mean", k, fast.part_of(report, 1, 2))
            found["mean"] = mean._replace(output=mean_output([summary.output for summary in found.values()]))
        return found

    def _summary_by_rows(self, name: str, k: int, report: Report | None) -> HeadSummary:
        from attn_cli.pipeline.long_text import Summing

        n_q = len(self.heads[0].q if self.heads[0].q is not None else ())
        summing: Summing | None = None
        for rows, weights, output in self._weighed(name):
            summing = summing or Summing(n_q, weights.shape[1], k)
            summing.add(rows.start, weights, output, self.allowed(np.array(rows)))
            if report:
                report(rows.stop / n_q)
        assert summing is not None  # there is at least one row
        return summing.summary()

    def blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yield the weights (rows, n_k) of a head, or of the mean, by blocks: the first row's number, and they."""
        for rows, weights, _ in self._weighed(name):
            yield rows.start, weights

    def _weighed(self, name: str) -> Iterator[tuple[range, Array, Array | None]]:
        """Yield some rows after the other, with their weights (rows, n_k) and, of one head, the output."""
        heads = [self.head_input(head) for head in self.heads if name in (head.name, "mean")]
        tiles = [head.tiles() for head in heads]
        cells = FAST_BLOCK_CELLS if all(tiles) else BLOCK_CELLS // 2
        for rows in blocks_of_rows(len(heads[0].Q), max(1, cells // len(heads[0].K))):
            weights, output = weigh(heads[0], tiles[0], rows, self.threads)
            for head, ready in zip(heads[1:], tiles[1:], strict=True):
                weights = weights + weigh(head, ready, rows, self.threads)[0]
            yield rows, weights / len(heads), output if len(heads) == 1 else None

    def attended(self, rows: Ints, k: int, summaries: Mapping[str, HeadSummary]) -> list[Head]:
        """Return each head with its steps, of the rows that are to be held, and its k strongest links."""
        return [self._attended(head, rows, k, summaries.get(head.name)) for head in self.heads]

    def _attended(self, head: Head, rows: Ints, k: int, summary: HeadSummary | None) -> Head:
        steps = self.head_input(head).steps(rows)
        if summary:
            return replace(head, steps=steps, output=summary.output, top=summary.links)
        links = strongest(steps.weights, k, self.allowed(rows))
        return replace(head, steps=steps, output=steps.output, top=links)


class ReadyWeights(NamedTuple):
    """Heads whose weights came ready: nothing is left to compute but their strongest links."""

    names: tuple[str, ...]
    weights: Array  # (heads, n_q, n_k)
    mask: Mask | None

    def allowed(self, rows: Ints) -> Bools | None:
        """Return the mask of these rows, (rows, n_k); None where there is none."""
        return None if self.mask is None else self.mask.rows(rows)

    def blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yield the weights (n_q, n_k) of a head, or of the mean, and 0, the first row's number."""
        found = dict(zip(self.names, self.weights, strict=True))
        yield 0, found[name] if name in found else self.weights.mean(axis=0)

    def summaries(self, k: int, with_mean: bool, report: Report | None) -> dict[str, HeadSummary]:
        """Return the strongest links and the long view of each head, and of their mean."""
        from attn_cli.pipeline.long_text import summary_of_weights

        allowed = self.allowed(np.arange(self.weights.shape[1]))
        names = (*self.names, *["mean"] * with_mean)
        return {name: summary_of_weights(next(self.blocks(name))[1], allowed, k) for name in names}

    def attended(self, rows: Ints, k: int, summaries: Mapping[str, HeadSummary]) -> list[Head]:
        """Return each head with the rows that are to be held, and its k strongest links."""
        allowed = self.allowed(rows)
        return [
            _without_steps(name, weights[rows], None, k, summaries.get(name), allowed)
            for name, weights in zip(self.names, self.weights, strict=True)
        ]


def mean_head(heads: list[Head], k: int, summary: HeadSummary | None, allowed: Bools | None) -> Head:
    """Return the heads' mean as a head of its own, which has weights and output but no steps."""
    weights = np.mean([head.weights for head in heads], axis=0)
    output = summary.output if summary else mean_output([head.output for head in heads])
    return _without_steps("mean", weights, output, k, summary, allowed)


def mean_output(outputs: list[Array | None]) -> Array | None:
    """Return the mean of the outputs that there are; None where they differ in shape."""
    found = [output for output in outputs if output is not None]
    return np.mean(found, axis=0) if len({output.shape for output in found}) == 1 else None


def _without_steps(
    name: str,
    weights: Array,
    output: Array | None,
    k: int,
    summary: HeadSummary | None,
    allowed: Bools | None,
) -> Head:
    links = summary.links if summary else strongest(weights, k, allowed)
    return Head(name, ready=weights, output=output, top=links)
