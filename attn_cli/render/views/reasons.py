"""Why a query looks where it looks: sentences that split the winner's lead into content and distance."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.render.numbers import four
from attn_cli.render.views.wording import quoted_at, root_divisor, temperature_divisor
from attn_cli.trace.because import Because
from attn_cli.trace.trace import Row, Trace

MOST_RIVALS = 4


def reasons(trace: Trace, row: Row, found: list[Because]) -> Iterator[str]:
    """Yield a sentence for each rival, and one on what content and distance alone would choose."""
    for place, one in enumerate(found[:MOST_RIVALS]):
        is_second = one.rival_index == row.strongest[1:2][0] if len(row.strongest) > 1 else False
        yield _reason(trace, row, one, ", the runner-up" if is_second and place == 0 else "")
    if found and row.position is not None:
        yield _alone(trace, row, row.position)


def key_named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, or `itself`."""
    return "itself" if trace.is_self and j == row.query else quoted_at(trace.key_tokens, j)


def _reason(trace: Trace, row: Row, one: Because, whose: str) -> str:
    """Return why the winner is ahead of one rival, and which term decided."""
    winner, rival = (key_named(trace, row, j) for j in (one.winner_index, one.rival_index))
    question = f"Why {winner} and not {rival}{whose}?"
    if one.decided == "mask":
        return f"{question} The mask: {quoted_at(trace.query_tokens, row.query)} may not look at {rival}."
    if one.lead == 0:
        return f"{question} Both scores are the same, and so are both weights."
    if one.distance is None:
        content = f"{score_named(trace.score).symbol}{root_divisor(trace)}{temperature_divisor(trace)}"
        return f"{question} Its {content} is {four(one.lead)} higher. There is no distance term: content alone decides."
    decides = "both decide alike" if one.decided == "both" else f"{one.decided} decides"
    return (
        f"{question} Its sum is {four(one.lead)} higher: content puts it {_ahead(one.content)}, "
        f"distance {_ahead(one.distance)}. Against {rival}, {decides}."
    )


def _ahead(by: float) -> str:
    return f"{four(abs(by))} {'ahead' if by >= 0 else 'behind'}"


def _alone(trace: Trace, row: Row, position: list[float]) -> str:
    """Return what the query would look at most by content alone, and by distance alone."""
    allowed, winner = row.strongest, row.strongest[0]
    by_content = max(allowed, key=lambda j: row.scaled[j])
    by_distance = max(allowed, key=lambda j: position[j])
    if by_content == by_distance == winner:
        return "Content alone would choose it, and so would distance alone."
    query = quoted_at(trace.query_tokens, row.query)
    first, second = (key_named(trace, row, j) for j in (by_content, by_distance))
    return f"By content alone {query} would choose {first}, by distance alone {second}."
