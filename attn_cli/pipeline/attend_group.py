"""Many texts of one shape attend at once: the same functions as for one text, with an axis more.

NumPy multiplies the matrices of a stack one after the other, so each text gets the same numbers as by itself, to the
last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from attn_cli.core.attention import Steps
from attn_cli.core.checks import checked_attention
from attn_cli.core.heads import spread
from attn_cli.core.scores import position_scale_of, scale_of
from attn_cli.core.top_links import Links, strongest
from attn_cli.errors import InputError
from attn_cli.models.projection import HeadWeights, Position
from attn_cli.pipeline.attend_heads import LINKS
from attn_cli.trace.head import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attn_cli.core.masks import Mask
    from attn_cli.io.array_types import Array, Bools, Ints
    from attn_cli.pipeline.long_text import HeadSummary
    from attn_cli.settings.settings import Settings

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
