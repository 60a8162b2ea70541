"""Why one key won over another: the lead of its score, split into what content and what distance put in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.settings.validate import find_rows

if TYPE_CHECKING:
    from attn_cli.trace.head import Head
    from attn_cli.trace.trace import Row, Trace


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
