"""Heads attend: whole, by blocks of rows where the matrix is too large, or many texts of one shape at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Literal

import numpy as np

from attn_cli.core import heads as one_head
from attn_cli.core.attend import FAST_BLOCK_CELLS, go_over, tiles_of, weigh
from attn_cli.core.attention import Steps
from attn_cli.core.heads import HeadWeights, Position
from attn_cli.core.masks import Mask
from attn_cli.core.scores import position_scale_of, scale_of, score_named
from attn_cli.errors import InputError
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, OnPart, part_of, replace
from attn_cli.pipeline.long_text import HeadSummary, RowSums, SomeRows, rows_of, summary_of_rows
from attn_cli.settings import Settings
from attn_cli.trace import Head

LINKS = 5  # of each row, that a trace holds at least
ROUNDING = 16  # times the precision of a product of lengths: smaller differences are rounding alone
SAFE = 1e30  # values up to this are finite in every dtype


class Work(NamedTuple):
    """The heads of a layer, which attend or have their weights already, and what they share."""

    heads: tuple[Head, ...]
    mask: Mask | None
    score: str
    temperature: float = 1.0
    threads: int | None = None

    @property
    def scale(self) -> float:
        """What scores are multiplied by, before the temperature; 1 where weights came ready."""
        q, own = self.heads[0].q, self.heads[0].scale
        return own if own is not None else 1.0 if q is None else scale_of(self.score, q.shape[1])

    def head_input(self, head: Head) -> one_head.HeadInput:
        """Return a head ready to attend."""
        assert head.q is not None and head.k is not None and head.v is not None
        by_distance = None
        if head.position is not None:
            beside = position_scale_of(self.score, head.q.shape[1])
            by_distance = head.position.by_distance(head.q, beside / self.temperature)
        bias = head.bias if head.position is None else None  # a learned term replaces the scores that it gave
        q, k = head.rotated or (head.q, head.k)
        softcap = head.softcap and head.softcap / self.temperature  # capped scores are divided by it too
        sink = None if head.sink is None else head.sink / self.temperature
        scale, mask = self.scale / self.temperature, head.mask or self.mask
        return one_head.HeadInput(q, k, head.v, mask, bias, by_distance, self.score, scale, softcap, sink)

    def summaries(self, k: int, with_mean: bool, report: OnPart | None) -> dict[str, HeadSummary]:
        """Go over all rows; keep only links, output and the long view of each head (and of their mean)."""
        found: dict[str, HeadSummary] = {}
        parts, first = len(self.heads) * (1 + with_mean), self.heads[0]
        q, k_of = first.q, first.k
        n_q, n_k = first.weights.shape if q is None or k_of is None else (len(q), len(k_of))
        for done, head in enumerate(self.heads):
            part = part_of(report, done, parts)
            if head.ready is not None:
                found[head.name] = summary_of_rows(self._rows(head.name, part), n_q, n_k, k)
            else:
                sums = RowSums(n_q, n_k, k)
                go_over(self.head_input(head), sums.add, self.threads, part)
                found[head.name] = sums.summary()
        if with_mean:
            mean = summary_of_rows(self._rows("mean", part_of(report, 1, 2)), n_q, n_k, k)
            found["mean"] = mean._replace(output=mean_output([summary.output for summary in found.values()]))
        return found

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield the weights (rows, n_k) of a head, or of the mean, block by block."""
        return (weights for weights, *_ in self._rows(name, None))

    def _rows(self, name: str, report: OnPart | None) -> Iterator[SomeRows]:
        heads = [head for head in self.heads if name in (head.name, "mean")]
        if heads[0].ready is not None or heads[0].steps is not None:
            whole = [head.weights for head in heads]
            weights = whole[0] if len(whole) == 1 else np.mean(whole, axis=0)
            yield from rows_of(weights, None if self.mask is None else self.mask.rows(range(len(weights))))
            return
        first, *others = inputs = [self.head_input(head) for head in heads]
        tiles = [tiles_of(one) for one in inputs]
        cells = FAST_BLOCK_CELLS if all(tiles) else one_head.BLOCK_CELLS // 2
        for rows in one_head.blocks_of_rows(first, cells):
            weights, output = weigh(first, tiles[0], rows, self.threads)
            for one, ready in zip(others, tiles[1:], strict=True):
                weights = weights + weigh(one, ready, rows, self.threads)[0]
            if others:
                yield weights / len(inputs), None, None if self.mask is None else self.mask.rows(rows)
            else:
                yield weights, output, first.allowed(rows)
            if report:
                report(rows.stop / len(first.Q))

    def attended(
        self, rows: Ints, allowed: Bools | None, k: int, summaries: Mapping[str, HeadSummary]
    ) -> list[Head]:
        """Return each head with the rows that are to be held, and its k strongest links."""
        found = []
        for head in self.heads:
            if head.steps is None:
                summary = summaries.get(head.name)
                may = allowed if head.mask is None else head.mask.rows(rows)
                if head.ready is not None:
                    ready = head.ready if len(rows) == len(head.ready) else head.ready[rows]
                    head = replace(head, ready=ready, top=_links(ready, may, k, summary))
                else:
                    scale, steps = self.scale / self.temperature, self.head_input(head).steps(rows)
                    steps = split_content_and_distance(head, steps, rows, self.score, scale)
                    output = summary.output if summary else steps.output
                    links = _links(steps.weights, may, k, summary)
                    head = replace(head, steps=steps, output=output, top=links)
            found.append(head)
        return found


def split_content_and_distance(head: Head, steps: Steps, rows: Ints, score: str, scale: float) -> Steps:
    """Return the steps of some rows; for a rotary head, with the scores split into content and distance.

    The scores are then those of the vectors before the rotation, and the bias is what the rotation adds.
    """
    if head.rotated is None:
        return steps
    assert head.q is not None and head.k is not None
    scores = score_named(score).of(head.q[rows], head.k)
    content = scores * scores.dtype.type(scale)
    distance = steps.scaled_scores - content
    lengths = np.linalg.norm(head.q[rows], axis=1)[:, np.newaxis] * np.linalg.norm(head.k, axis=1)
    distance[np.abs(distance) <= ROUNDING * np.finfo(scores.dtype).eps * scale * lengths] = 0
    return steps._replace(scores=scores, scaled_scores=content, bias=distance)


def mean_head(heads: list[Head], allowed: Bools | None, k: int, summary: HeadSummary | None) -> Head:
    """Return the heads' mean as a head of its own, which has weights and output but no steps."""
    weights = np.mean([head.weights for head in heads], axis=0)
    output = summary.output if summary else mean_output([head.output for head in heads])
    return Head("mean", ready=weights, output=output, top=_links(weights, allowed, k, summary))


def mean_output(outputs: list[Array | None]) -> Array | None:
    """Return the mean of the outputs that there are; None where they differ in shape."""
    found = [output for output in outputs if output is not None]
    return np.mean(found, axis=0) if len({output.shape for output in found}) == 1 else None


def _links(weights: Array, allowed: Bools | None, k: int, summary: HeadSummary | None) -> one_head.Links:
    return summary.links if summary else one_head.strongest(weights, k, allowed)


class GroupSteps(NamedTuple):
    """One head of many texts: q (texts, n_q, d_k), k, v and the steps, with an axis for the texts."""

    weights_of: HeadWeights
    q: Array
    k: Array
    v: Array
    steps: Steps


class Group(NamedTuple):
    """Many texts of one shape, whose heads have attended."""

    heads: tuple[GroupSteps, ...]
    mask: Mask | None
    score: str
    layout: str

    def weights(self, shown: str) -> Array:
        """Return the weights (texts, n_q, n_k) of a head, or of the heads' mean."""
        found = [head.steps.weights for head in self.heads if shown in (head.weights_of.name, "mean")]
        return found[0] if len(found) == 1 and shown != "mean" else np.mean(found, axis=0)

    def links(self, weights: Array, k: int) -> one_head.Links:
        """Return the k strongest links of each row of weights (texts, n_q, n_k): arrays (texts, n_q, k)."""
        texts, n_q, n_k = weights.shape
        found = one_head.strongest(weights.reshape(-1, n_k), k, self.allowed(texts, n_q, n_k))
        return one_head.Links(found.keys.reshape(texts, n_q, -1), found.weights.reshape(texts, n_q, -1))

    def allowed(self, texts: int, n_q: int, n_k: int) -> Bools | None:
        """Return the mask (n_q, n_k) of each text, one below the other."""
        if self.mask is None:
            return None
        return np.broadcast_to(self.mask.rows(range(n_q)), (texts, n_q, n_k)).reshape(-1, n_k)

    def texts(self, top: int | None) -> Iterator[Work]:
        """Yield the heads of each text, with at least `top` links of each row."""
        links = [self.links(head.steps.weights, max(LINKS, top or 0)) for head in self.heads]
        for at in range(len(self.heads[0].q)):
            heads = []
            for (W, q, k, v, steps), found in zip(self.heads, links, strict=True):
                own = Steps._make(None if M is None else M[at] for M in steps)
                parts = (q[at], k[at], v[at], None, W.position, self.layout)
                shown = one_head.Links(found.keys[at], found.weights[at])
                heads.append(Head(W.name, W, *parts, steps=own, output=own.output, top=shown))
            yield Work(tuple(heads), self.mask, self.score)


def ready_heads(heads: Sequence[HeadWeights], settings: Settings, is_self: bool) -> tuple[HeadWeights, ...]:
    """Return the heads' weights in the types that they are computed with, so that no product has to convert them."""
    made = []
    for name, *weights, position in heads:
        own = (None if M is None else _converted(M, "float64", "C") for M in weights)
        term = position if is_self else None
        if term is not None:  # R is multiplied by as R.T, whose rows then lie together
            term = Position(_converted(term.R, settings.dtype, "F"), _converted(term.b, settings.dtype, "C"))
        made.append(HeadWeights._make((name, *own, term)))
    return tuple(made)


def _converted(M: Array, dtype: str, order: Literal["C", "F"]) -> Array:
    """Return M as NumPy itself converts it beside a matrix of `dtype`; without a copy where it need not."""
    common = np.result_type(M.dtype, dtype)
    return M if M.dtype == common else M.astype(common, order=order)


def attend_group(
    heads: Sequence[HeadWeights],
    X: Array,
    context: Array,
    settings: Settings,
    mask: Mask | None,
    layout: str,
    with_values: bool,
) -> Group:
    """Let heads of `ready_heads` attend over many texts: X (texts, n_q, d), context (texts, n_k, d), in `self` X again.

    Without `with_values`, values and outputs are made only where they can matter. Raises InputError
    where a text's numbers are too large; computing the texts one by one tells which.
    """
    score = settings.score or "scaled"
    allowed = None if mask is None else mask.rows(range(X.shape[1]))
    made = []
    for W in heads:
        used = W
        if not with_values and W.b_v is None:
            sizes = (max(float(np.abs(M).max()), 1.0) for M in (context, W.W_v))
            if prod(sizes) * len(W.W_v) < SAFE:  # values are sure to be finite
                used = W._replace(W_v=W.W_v[:, :0])
        with np.errstate(over="ignore", invalid="ignore"):
            q, k, v = used.project(X, context)
            if not all(np.isfinite(M).all() for M in (q, k, v)):
                raise InputError("The projected vectors are more than a number can hold.")
            q, k, v = (M.astype(settings.dtype, copy=False) for M in (q, k, v))
        bias = None
        if W.position is not None:
            beside = position_scale_of(score, q.shape[-1]) / settings.temperature
            bias = one_head.spread(W.position.by_distance(q, beside), np.arange(q.shape[-2]), k.shape[-2])
        scale = scale_of(score, q.shape[-1]) / settings.temperature
        made.append(GroupSteps(W, q, k, v, one_head.checked_attention(q, k, v, allowed, bias, scale, score)))
    return Group(tuple(made), mask, score, layout)
