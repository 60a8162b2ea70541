"""One query's way to its weights, number by number, and why its strongest key is ahead of another."""

from __future__ import annotations

import math
import sys
from functools import cmp_to_key
from typing import NamedTuple

LARGEST_ROUNDED = 1000.0  # larger scores tie as these do: the softmax sees their differences alone


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


class Row(NamedTuple):
    """One query's way to its weights, number by number; a masked key has no exp and no weight.

    Where scores are capped, `capped` is what the cap leaves of the content, or of content and distance where these
    are one score (`is_rotated`).
    weight = exp / total, where exp = e^(masked score - shift). The shift is 0 unless e^score would be
    unwieldy (beyond e^30); it cancels out.
    """

    query: int
    query_token: str
    key_tokens: tuple[str, ...]
    rivals: tuple[int, ...]  # the keys that the winner is to be compared with, beside the runner-up
    scores: list[float]
    scaled: list[float]
    position: list[float] | None
    capped: list[float] | None
    is_rotated: bool
    masked: list[float]  # -inf where masked
    shift: float
    exps: list[float]
    total: float
    weights: list[float]
    rounding: float  # the relative difference up to which two scores tie

    @property
    def content(self) -> list[float]:
        """What a key's content puts into its score, beside what its distance does."""
        return self.scaled if self.capped is None or self.is_rotated else self.capped

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

    def because(self) -> list[Because]:
        """Return why the query looks at its strongest key and not at the runner-up, nor at each of `rivals`.

        Empty where it may look at nothing.
        """
        if self.total == 0:
            return []
        winner, *others = self.strongest
        rivals = dict.fromkeys([*others[:1], *self.rivals])
        return [self.against(winner, j) for j in rivals if j != winner]

    def against(self, winner: int, rival: int) -> Because:
        """Return how far the winner is ahead of a rival; what is too large for a number is the largest."""
        content = _kept(self.lead(self.content, winner, rival))
        distance = None if self.position is None else _kept(self.lead(self.position, winner, rival))
        if self.is_masked(rival):
            decided = "mask"
        elif content + (distance or 0.0) == 0:
            decided = "neither"
        elif distance is None or content > distance:
            decided = "content"
        else:
            decided = "both" if distance == content else "distance"
        chosen, other = self.key_tokens[winner], self.key_tokens[rival]
        return Because(self.query_token, self.query, chosen, winner, other, rival, content, distance, decided)


def _kept(difference: float) -> float:
    """Return a difference, or the largest number there is where it overflows."""
    return max(-sys.float_info.max, min(sys.float_info.max, difference))
