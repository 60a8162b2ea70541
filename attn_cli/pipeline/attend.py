"""Attending with every head: whole, or by blocks of rows where the matrix is too large; or weights as they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from attn_cli.core import fast
from attn_cli.core.attend import FAST_BLOCK_CELLS, survey_of, weigh
from attn_cli.core.attention import Steps
from attn_cli.core.head_weights import HeadWeights, Position
from attn_cli.core.heads import (
    BLOCK_CELLS,
    HeadInput,
    Links,
    blocks_of_rows,
    checked_attention,
    spread,
    strongest,
)
from attn_cli.core.masks import Mask
from attn_cli.core.scores import position_scale_of, scale_of, score_named
from attn_cli.errors import InputError
from attn_cli.trace.head import Head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_cli.io.array_types import Array, Bools, Ints
    from attn_cli.io.progress import OnPart
    from attn_cli.pipeline.long_text import HeadSummary, SomeRows
    from attn_cli.settings.settings import Settings

LINKS = 5  # of each row, that a trace holds at least
ROUNDING = 16  # times the precision of a product of lengths: what is less comes of rounding alone


class Work(NamedTuple):
    """The heads of a layer, and what they share while attending."""

    heads: tuple[Head, ...]
    mask: Mask | None
    score: str
    temperature: float
    threads: int | None = None

    @property
    def scale(self) -> float:
        """What scores are multiplied by, before the temperature."""
        q, own = self.heads[0].q, self.heads[0].scale
        if own is not None:
            return own
        assert q is not None  # it is about to attend
        return scale_of(self.score, q.shape[1])

    def head_input(self, head: Head) -> HeadInput:
        """Return a head ready to attend."""
        assert head.q is not None and head.k is not None and head.v is not None
        by_distance = None
        if head.position is not None:
            beside = position_scale_of(self.score, head.q.shape[1])
            by_distance = head.position.by_distance(head.q, beside / self.temperature)
        bias = head.bias if head.position is None else None  # a learned term takes the place of what it gave
        scale = self.scale / self.temperature
        q, k = head.rotated or (head.q, head.k)
        softcap = (
            head.softcap and head.softcap / self.temperature
        )  # so that capped scores are divided by it too
        mask = head.mask or self.mask
        return HeadInput(q, k, head.v, mask, bias, by_distance, self.score, scale, softcap)

    def summaries(self, k: int, with_mean: bool, report: OnPart | None) -> dict[str, HeadSummary]:
        """Go over all rows, and keep of each head (and of their mean) links, output and the long view alone."""
        from attn_cli.pipeline.long_text import blocks_of_map, summary_of_rows, summary_of_survey

        found: dict[str, HeadSummary] = {}
        parts = len(self.heads) * (1 + with_mean)
        for done, head in enumerate(self.heads):
            report_part = fast.part_of(report, done, parts)
            ready = self.head_input(head)
            n_q, n_k = len(ready.Q), len(ready.K)
            survey = survey_of(ready, k, blocks_of_map(n_q, n_k), self.threads, report_part)
            found[head.name] = (
                summary_of_rows(self._rows(head.name, report_part), n_q, n_k, k)
                if survey is None
                else summary_of_survey(survey, n_k)
            )
        if with_mean:
            mean = summary_of_rows(self._rows("mean", fast.part_of(report, 1, 2)), n_q, n_k, k)
            found["mean"] = mean._replace(output=mean_output([summary.output for summary in found.values()]))
        return found

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield the weights (rows, n_k) of a head, or of the mean, some rows after the other."""
        return (some.weights for some in self._rows(name, None))

    def _rows(self, name: str, report: OnPart | None) -> Iterator[SomeRows]:
        """Yield some rows after the other, of a head or of the mean, which has no output here."""
        from attn_cli.pipeline.long_text import SomeRows

        heads = [self.head_input(head) for head in self.heads if name in (head.name, "mean")]
        tiles = [head.tiles() for head in heads]
        for rows in blocks_of_rows(heads[0], FAST_BLOCK_CELLS if all(tiles) else BLOCK_CELLS // 2):
            weights, output = weigh(heads[0], tiles[0], rows, self.threads)
            for head, ready in zip(heads[1:], tiles[1:], strict=True):
                weights = weights + weigh(head, ready, rows, self.threads)[0]
            one = output if len(heads) == 1 else None
            allowed = None if self.mask is None else self.mask.rows(rows)
            if len(heads) == 1:
                allowed = heads[0].allowed(rows)
            yield SomeRows(rows.start, weights / len(heads), one, allowed)
            if report:
                report(rows.stop / len(heads[0].Q))

    def attended(
        self, rows: Ints, allowed: Bools | None, k: int, summaries: Mapping[str, HeadSummary]
    ) -> list[Head]:
        """Return each head with its steps, of the rows that are to be held, and its k strongest links."""
        made = []
        for head in self.heads:
            ready, summary = self.head_input(head), summaries.get(head.name)
            steps = split_content_and_distance(
                head, ready.steps(rows), rows, self.score, self.scale / self.temperature
            )
            output = summary.output if summary else steps.output
            may = allowed if head.mask is None else head.mask.rows(rows)
            links = _links(steps.weights, may, k, summary)
            made.append(replace(head, steps=steps, output=output, top=links))
        return made


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


class ReadyWeights(NamedTuple):
    """Heads whose weights came ready: nothing is left to compute but their strongest links."""

    names: tuple[str, ...]
    weights: Array  # (heads, n_q, n_k)
    mask: Mask | None
    score: str = "given"
    scale: float = 1.0

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield the weights (n_q, n_k) of a head, or of the mean."""
        yield self.weights[self.names.index(name)] if name in self.names else self.weights.mean(axis=0)

    def summaries(self, k: int, with_mean: bool, report: OnPart | None) -> dict[str, HeadSummary]:
        """Return the strongest links and the long view of each head, and of their mean."""
        from attn_cli.pipeline.long_text import summary_of_weights

        allowed = None if self.mask is None else self.mask.rows(range(self.weights.shape[1]))
        names = (*self.names, *["mean"] * with_mean)
        return {name: summary_of_weights(next(self.blocks(name)), allowed, k) for name in names}

    def attended(
        self, rows: Ints, allowed: Bools | None, k: int, summaries: Mapping[str, HeadSummary]
    ) -> list[Head]:
        """Return each head with the rows that are to be held, and its k strongest links."""
        held = zip(self.names, self.weights[:, rows], strict=True)
        return [
            Head(name, ready=weights, top=_links(weights, allowed, k, summaries.get(name)))
            for name, weights in held
        ]


def mean_head(heads: list[Head], allowed: Bools | None, k: int, summary: HeadSummary | None) -> Head:
    """Return the heads' mean as a head of its own, which has weights and output but no steps."""
    weights = np.mean([head.weights for head in heads], axis=0)
    output = summary.output if summary else mean_output([head.output for head in heads])
    return Head("mean", ready=weights, output=output, top=_links(weights, allowed, k, summary))


def mean_output(outputs: list[Array | None]) -> Array | None:
    """Return the mean of the outputs that there are; None where they differ in shape."""
    found = [output for output in outputs if output is not None]
    return np.mean(found, axis=0) if len({output.shape for output in found}) == 1 else None


def _links(weights: Array, allowed: Bools | None, k: int, summary: HeadSummary | None) -> Links:
    return summary.links if summary else strongest(weights, k, allowed)


SAFE = 1e30  # values up to this are finite in every dtype


class GroupSteps(NamedTuple):
    """One head of many texts: q (texts, n_q, d_k), k, v and the steps, with an axis for the texts."""

    weights_of: HeadWeights
    q: Array
    k: Array
    v: Array
    steps: Steps


class HeadsOfText(NamedTuple):
    """The heads of one text of a group, which have attended: what `record_trace` works with."""

    group: Group
    at: int
    links: tuple[Links, ...]  # of all texts, for each head

    @property
    def mask(self) -> Mask | None:
        """The mask of each text."""
        return self.group.mask

    @property
    def score(self) -> str:
        """The score's name."""
        return self.group.score

    @property
    def scale(self) -> float:
        """What scores are multiplied by, before the temperature."""
        return self.group.scale

    def attended(
        self, rows: Ints, allowed: Bools | None, k: int, summaries: Mapping[str, HeadSummary]
    ) -> list[Head]:
        """Return the heads with their strongest links."""
        at, made = self.at, []
        for (W, q, k_, v, steps), links in zip(self.group.heads, self.links, strict=True):
            own, parts = _steps_of(steps, at), (q[at], k_[at], v[at], None, W.position, self.group.layout)
            top = Links(links.keys[at], links.weights[at])
            made.append(Head(W.name, W, *parts, steps=own, output=own.output, top=top))
        return made

    def summaries(self, k: int, with_mean: bool, report: object) -> dict[str, HeadSummary]:
        """Return nothing: a text that is too long to be held whole is in no group."""
        return {}

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield the weights (n_q, n_k) of a head, or of their mean."""
        yield self.group.weights(name)[self.at]


class Group(NamedTuple):
    """Many texts of one shape, whose heads have attended."""

    heads: tuple[GroupSteps, ...]
    mask: Mask | None
    score: str
    scale: float
    layout: str

    def weights(self, shown: str) -> Array:
        """Return the weights (texts, n_q, n_k) of a head, or of the heads' mean."""
        found = [head.steps.weights for head in self.heads if shown in (head.weights_of.name, "mean")]
        return found[0] if len(found) == 1 and shown != "mean" else np.mean(found, axis=0)

    def links(self, weights: Array, k: int) -> Links:
        """Return the k strongest links of each row of weights (texts, n_q, n_k): arrays (texts, n_q, k)."""
        texts, n_q, n_k = weights.shape
        found = strongest(weights.reshape(-1, n_k), k, rows_of_all(self.allowed(n_q), texts))
        return Links(found.keys.reshape(texts, n_q, -1), found.weights.reshape(texts, n_q, -1))

    def allowed(self, n_q: int) -> Bools | None:
        """Return the mask (n_q, n_k) of each text."""
        return None if self.mask is None else self.mask.rows(range(n_q))

    def texts(self, top: int | None) -> Iterator[HeadsOfText]:
        """Yield the heads of each text, with at least `top` links of each row."""
        wanted = max(LINKS, top or 0)
        links = tuple(self.links(head.steps.weights, wanted) for head in self.heads)
        for at in range(len(self.heads[0].q)):
            yield HeadsOfText(self, at, links)


def _steps_of(steps: Steps, at: int) -> Steps:
    """Return the steps of one text of a group."""
    scores, scaled, capped, bias, masked, weights, output = steps
    own = None if bias is None else bias[at]
    return Steps(scores[at], scaled[at], capped[at], own, masked[at], weights[at], output[at])


def rows_of_all(allowed: Bools | None, texts: int) -> Bools | None:
    """Return the mask (n_q, n_k) of each of so many texts, one below the other."""
    if allowed is None:
        return None
    n_q, n_k = allowed.shape
    return np.broadcast_to(allowed, (texts, n_q, n_k)).reshape(-1, n_k)


def ready_heads(heads: Sequence[HeadWeights], settings: Settings, is_self: bool) -> tuple[HeadWeights, ...]:
    """Return the heads' weights in the types that they are computed with, so that no product has to convert them."""
    made = []
    for head in heads:
        W_q, W_k, W_v = (_converted(M, "float64", "C") for M in (head.W_q, head.W_k, head.W_v))
        b_q, b_k, b_v = (
            None if b is None else _converted(b, "float64", "C") for b in (head.b_q, head.b_k, head.b_v)
        )
        term = head.position if is_self else None
        if term is not None:  # R is multiplied by as R.T, whose rows then lie together
            term = Position(_converted(term.R, settings.dtype, "F"), _converted(term.b, settings.dtype, "C"))
        made.append(HeadWeights(head.name, W_q, W_k, W_v, b_q, b_k, b_v, term))
    return tuple(made)


def _converted(M: Array, dtype: str, order: Literal["C", "F"]) -> Array:
    """Return M as NumPy itself converts it beside a matrix of `dtype`, and as it lies where it need not."""
    common = np.result_type(M.dtype, dtype)
    return M if M.dtype == common else M.astype(common, order=order)


def attend_group(
    heads: Sequence[HeadWeights],
    X: Array,
    context: Array,
    settings: Settings,
    mask: Mask | None,
    layout: str = "in-out",
    with_values: bool = True,
) -> Group:
    """Let heads attend over many texts: X (texts, n_q, d), context (texts, n_k, d), which is X itself in `self`.

    `heads` come from `ready_heads`. Without `with_values` no values and outputs are made where they cannot matter.
    Raises InputError where the numbers of a text are too large; which text, the texts one by one tell.
    """
    score = settings.score or "scaled"
    made = []
    for W in heads:
        used = W if with_values else _without_values(W, context)
        with np.errstate(over="ignore", invalid="ignore"):
            q, k, v = used.project(X, context)
            if not all(np.isfinite(M).all() for M in (q, k, v)):
                raise InputError("The projected vectors are more than a number can hold.")
            q, k, v = (M.astype(settings.dtype, copy=False) for M in (q, k, v))
        scale = scale_of(score, q.shape[-1]) / settings.temperature
        n_q, n_k = q.shape[-2], k.shape[-2]
        bias = None
        if W.position is not None:
            beside = position_scale_of(score, q.shape[-1]) / settings.temperature
            bias = spread(W.position.by_distance(q, beside), np.arange(n_q), n_k)
        allowed = None if mask is None else mask.rows(range(n_q))
        made.append(GroupSteps(W, q, k, v, checked_attention(q, k, v, allowed, bias, scale, score)))
    own = scale_of(score, made[0].q.shape[-1])
    return Group(tuple(made), mask, score, own, layout)


def _without_values(W: HeadWeights, context: Array) -> HeadWeights:
    """Return weights that make values of no numbers, where all values are sure to be finite."""
    largest = max(float(np.abs(context).max()), 1.0) * max(float(np.abs(W.W_v).max()), 1.0) * len(W.W_v)
    return W._replace(W_v=W.W_v[:, :0], b_v=None) if largest < SAFE and W.b_v is None else W
