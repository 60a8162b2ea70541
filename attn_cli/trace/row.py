"""The record of one computation: everything that happened, in the order it happened, immutable.

Shapes are written here, once: n_q queries, n_k keys, d numbers a word, d_k a query, d_v a value.
"""

from __future__ import annotations

import math
import sys
from functools import cmp_to_key
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.settings.validate import find_rows

if TYPE_CHECKING:
    from attn_cli.trace.head import Head
    from attn_cli.trace.trace import Trace

LARGEST_ROUNDED = 1000.0  # larger scores tie as these do: the softmax sees their differences alone


class Row(NamedTuple):
    """One query's way to its weights, number by number; a masked key has no exp and no weight.

    Where scores are capped, `capped` is what the cap leaves of the content, or of content and distance where these
    are one score (`is_turned`).
    weight = exp / total, where exp = e^(masked score - shift). The shift is 0 unless e^score would be
    unwieldy (beyond e^30); it cancels out.
    """

    query: int
    scores: list[float]
    scaled: list[float]
    position: list[float] | None
    capped: list[float] | None
    is_turned: bool
    masked: list[float]  # -inf where masked
    shift: float
    exps: list[float]
    total: float
    weights: list[float]
    rounding: float  # the relative difference up to which two scores tie

    @property
    def content(self) -> list[float]:
        """What a key's content puts into its score, beside what its distance does."""
        return self.scaled if self.capped is None or self.is_turned else self.capped

    @property
    def summed(self) -> list[float]:
        """The sums of content and distance, masked keys' too."""
        return [a + b for a, b in zip(self.content, self.position or [0.0] * len(self.content), strict=True)]

    def is_masked(self, j: int) -> bool:
        """Return whether the query may not look at key j."""
        return self.masked[j] == -math.inf

    def lead(self, values: list[float], one: int, other: int) -> float:
        """Return how much larger the value of one key is than that of another; 0 where rounding alone sets them apart.

        BLAS adds in different orders in different parts of a product: the scores of identical keys may differ.
        """
        by = values[one] - values[other]
        size = min(max(1.0, abs(values[one])), LARGEST_ROUNDED)
        return 0.0 if abs(by) <= self.rounding * size else by

    @property
    def strongest(self) -> list[int]:
        """The keys that the query may look at, those with the largest scores first; of those that tie the first."""
        allowed = (j for j in range(len(self.masked)) if not self.is_masked(j))
        order = sorted(allowed, key=lambda j: -self.masked[j])  # so that few are left to compare
        return sorted(order, key=cmp_to_key(self._after))

    def _after(self, one: int, other: int) -> int:
        """Return more than 0 where a key comes after another in `strongest`, less where before it."""
        by = self.lead(self.masked, other, one)
        return (1 if by > 0 else -1) if by else one - other


class Because(NamedTuple):
    """How far a query's winner is ahead of one rival; places count in the whole text.

    content + distance is the difference of the two scores that the softmax gets; where vectors are turned by their
    places and scores are capped, it is the difference before the cap, which keeps their order.
    """

    query: str
    query_index: int
    winner: str
    winner_index: int
    rival: str
    rival_index: int
    content: float  # scaled (and capped) score of the winner less that of the rival
    distance: (
        float | None
    )  # position score of the winner less that of the rival; None without a position term
    decided: (
        str  # content, distance, mask; both where they put in the same, neither where the scores are equal
    )

    @property
    def lead(self) -> float:
        """How much higher the winner's score is."""
        return _kept(self.content + (self.distance or 0.0))


def _kept(difference: float) -> float:
    """Return a difference, or the largest number there is where it overflows."""
    return max(-sys.float_info.max, min(sys.float_info.max, difference))


def because(trace: Trace, i: int, head: Head | None = None) -> list[Because]:
    """Return why query i of a head looks at its strongest key and not at the runner-up, nor at the token of --versus.

    Empty where there is no rival, or where the weights have no scores of their own.
    """
    row = trace.row(i, head)
    return [] if row is None else because_of(trace, row)


def because_of(trace: Trace, row: Row) -> list[Because]:
    """Return the same of a row whose arithmetic is at hand."""
    if row.total == 0:
        return []
    order = row.strongest
    rivals = [*order[1:2], *named_rivals(trace)]
    return [against(trace, row, order[0], j) for j in dict.fromkeys(rivals) if j != order[0]]


def stepped_head(trace: Trace) -> Head:
    """Return the head whose steps are shown: the shown one, or the first of those that a mean is taken of."""
    return trace.heads[0] if trace.shown.scores is None else trace.shown


def named_rivals(trace: Trace) -> tuple[int, ...]:
    """Return the keys that --versus names."""
    name = trace.settings.versus
    return () if name is None else find_rows(name, trace.key_tokens, "--versus")


def against(trace: Trace, row: Row, winner: int, rival: int) -> Because:
    """Return how far the winner of a row is ahead of a rival; what is too large for a number is the largest."""
    content = _kept(row.lead(row.content, winner, rival))
    distance = None if row.position is None else _kept(row.lead(row.position, winner, rival))
    if row.is_masked(rival):
        decided = "mask"
    elif content + (distance or 0.0) == 0:
        decided = "neither"
    elif distance is None or content > distance:
        decided = "content"
    else:
        decided = "both" if distance == content else "distance"
    query, chosen, other = trace.query_tokens[row.query], trace.key_tokens[winner], trace.key_tokens[rival]
    return Because(query, row.query, chosen, winner, other, rival, content, distance, decided)
