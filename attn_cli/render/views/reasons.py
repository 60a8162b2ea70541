"""Why a query looks where it looks: sentences that split the winner's lead into content and distance."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.io.plural import count
from attn_cli.render.numbers import four
from attn_cli.render.views.wording import quoted, quoted_at, root_divisor, temperature_divisor
from attn_cli.trace.because import Because, named_rivals
from attn_cli.trace.trace import Row, Trace

MOST_RIVALS = 4


def reasons(trace: Trace, row: Row, found: list[Because]) -> Iterator[str]:
    """Yield a sentence for each rival, and one on what content and distance alone would choose."""
    order = row.strongest
    for one in found[:MOST_RIVALS]:
        yield _reason(trace, row, one, ", the runner-up" if one.rival_index in order[1:2] else "")
    if (more := len(found) - MOST_RIVALS) > 0:
        yield f"{count(more, 'more place', 'more places')} of {quoted(found[-1].rival)}: the table has them."
    if trace.settings.versus is not None and order[0] in named_rivals(trace):
        yield f"{named(trace, row, order[0])} is the winner."
    if found and row.position is not None:
        yield _alone(trace, row, row.position)


def key_named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, or `itself`, as the object of a sentence."""
    return "itself" if trace.is_self and j == row.query else quoted_at(trace.key_tokens, j)


def named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, as the subject of a sentence: `"sat" itself`."""
    return quoted_at(trace.key_tokens, j) + (" itself" if trace.is_self and j == row.query else "")


def _reason(trace: Trace, row: Row, one: Because, whose: str) -> str:
    """Return why the winner is ahead of one rival, and which term decided."""
    winner, rival = (named(trace, row, j) for j in (one.winner_index, one.rival_index))
    question = f"Why {winner} and not {rival}{whose}?"
    if one.decided == "mask":
        return f"{question} The mask: {quoted_at(trace.query_tokens, row.query)} may not look at {rival}."
    if one.lead <= 0 or row.weights[one.winner_index] == row.weights[one.rival_index] > 0:
        return f"{question} Both get the same weight."
    if one.distance is None:
        content = f"{score_named(trace.score).symbol}{root_divisor(trace)}{temperature_divisor(trace)}"
        content = "capped score" if row.capped is not None else content
        alone = "There is no distance term: content alone decides"
        if trace.placed is not None or trace.of_model:
            alone = "Content decides, and the words' places are part of it"
        return f"{question} Its {content} is {four(one.lead)} higher. {alone}."
    decides = "both decide alike" if one.decided == "both" else f"{one.decided} decides"
    content = "content is the same" if one.content == 0 else f"content puts it {_ahead(one.content)}"
    distance = _ahead(one.distance) if one.content else f"distance puts it {_ahead(one.distance)}"
    if one.content:
        distance = f"distance {distance}"
    return (
        f"{question} Its sum is {four(one.lead)} higher: {content}, {distance}. Against {rival}, {decides}."
    )


def _ahead(by: float) -> str:
    return f"{four(abs(by))} {'ahead' if by >= 0 else 'behind'}"


def _alone(trace: Trace, row: Row, position: list[float]) -> str:
    """Return what the query would look at most by content alone, and by distance alone."""
    query, winner = quoted_at(trace.query_tokens, row.query), row.strongest[0]
    by_content, by_distance = (_first(row, values) for values in (row.content, position))
    if by_content == by_distance == winner:
        return f"Content alone would choose {named(trace, row, winner)}, and so would distance alone."
    parts = [
        f"by {term} alone {query} would choose {key_named(trace, row, best)}"
        if best is not None
        else f"{term} alone cannot choose, for several keys share its largest value"
        for term, best in (("content", by_content), ("distance", by_distance))
    ]
    if by_content is not None and by_distance is not None:
        parts[1] = f"by distance alone {key_named(trace, row, by_distance)}"
    text = ("; " if None in (by_content, by_distance) else ", ").join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _first(row: Row, values: list[float]) -> int | None:
    """Return the allowed key with the largest value; None where several share it."""
    order = sorted(row.strongest, key=lambda j: -values[j])
    is_shared = len(order) > 1 and not row.lead(values, order[0], order[1])
    return None if is_shared else order[0]
