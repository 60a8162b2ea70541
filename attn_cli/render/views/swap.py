"""A word replaced by another: one row before and after, and how much of each weight stayed with the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.io.escape import count, unsigned_zero
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Say
from attn_cli.render.numbers import number, share
from attn_cli.render.screen.text import cut, listed
from attn_cli.render.views.comparison import ending, record
from attn_cli.render.views.overview import MOST_FOCUS
from attn_cli.render.views.wording import formula, kind_of, placed, quoted, quoted_at, short
from attn_cli.settings.output import View
from attn_cli.teach.compare import SAME, Comparison, Swap
from attn_cli.teach.swap import Both, KeyChange, is_query_swapped, key_changes, swapped_keys
from attn_cli.trace.trace import Trace

MOST_KEYS, LONGEST_WORD = 12, 12
SAME_TERM = 5e-4  # a smaller change of a term is not seen in three decimals
THREE = number(3)


def swap_screen(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield each row's weights and terms, before and after, what followed the place, and the settings."""
    before = comparison.traces[0]
    yield Heading(
        f"Swap {listed([f'{short(one.old)}={short(one.new)}' for one in comparison.swaps])}: "
        f"{kind_of(before).lower()}",
        1,
    )
    yield Formula(formula(before))
    rows = before.focus[:MOST_FOCUS]
    for i in rows:
        changes = key_changes(comparison, i)
        if len(rows) > 1:
            yield Heading(_looks(comparison, i))
        yield _table(comparison, i, changes)
        yield Say("")
        yield from map(Say, _sentences(comparison, i, changes))
    if len(before.focus) > len(rows):
        yield Say(
            f"{len(before.focus) - len(rows):,} more rows match: -q with a number shows one.", quiet=True
        )
    yield from ending(comparison, summary_of(comparison))
    if view.steps:
        yield Say("Note: --steps takes effect only with -f json here.")


def _looks(comparison: Comparison, i: int) -> str:
    return f"What does {_name(comparison, i)} look at?"


def _name(comparison: Comparison, i: int) -> str:
    """Return the word that looks, in quotation marks: the new one if it was replaced."""
    return quoted_at(comparison.traces[-1].query_tokens, i)


def _table(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Columns:
    """Return a line for each key: its weights, their difference, and the terms of its score."""
    before, after = comparison.traces
    has_distance = any(one.distance for one in changes)
    moved = any(one.distance and abs(one.distance[1] - one.distance[0]) >= SAME_TERM for one in changes)
    header = [quoted_at(after.query_tokens, i), "now", "before", "after", "change"]
    if changes[0].content is not None:
        header += ["content", "after"]
    if has_distance:
        header += ["distance", "after"] if moved else ["distance"]
    most = before.settings.top or MOST_KEYS
    order = sorted(changes, key=lambda one: (not one.is_swapped, -max(one.weights or (-1.0,))))
    shown = sorted(order[:most], key=lambda one: one.key)
    rows = [_line(before, after, one, moved) for one in shown]
    if rest := order[most:]:
        rows.append(_sum_line(f"{len(rest):,} others", rest, len(header)))
    rows.append(_sum_line("sum", changes, len(header)))
    return Columns(header, rows)


def _line(before: Trace, after: Trace, one: KeyChange, moved: bool) -> list[str]:
    now = cut(after.key_tokens[one.key], LONGEST_WORD, "…") if one.is_swapped else ""
    line = [
        placed(before.key_tokens, one.key),
        now,
        *(_weights(one.weights) if one.weights else ["–", "–", "–"]),
    ]
    if one.content is not None:
        line += THREE.row(one.content)
    if one.distance is not None:
        line += THREE.row(one.distance if moved else one.distance[:1])
    return line


def _weights(weights: Both) -> list[str]:
    return [*THREE.row(weights), _signed(weights[1] - weights[0])]


def _signed(by: float) -> str:
    """Return a change with its sign, in three decimals; no sign before zero."""
    return unsigned_zero(f"{by:+.3f}")


def _sum_line(label: str, changes: Sequence[KeyChange], width: int) -> list[str]:
    pairs = [one.weights for one in changes if one.weights is not None]
    sums = (sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
    return [label, "…", *_weights(sums), *["…"] * (width - 5)]


def summary_of(comparison: Comparison) -> str:
    """Return what the swap changed in the rows shown, in sentences."""
    rows = comparison.traces[0].focus[:MOST_FOCUS]
    return " ".join(s for i in rows for s in _sentences(comparison, i, key_changes(comparison, i)))


def _sentences(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Iterator[str]:
    before, after = comparison.traces
    if is_query_swapped(comparison, i):
        yield _query_swapped(comparison, i, changes)
        return
    pairs = list(swapped_keys(changes, before, after))
    for pair, places in pairs:
        if places[0].weights is None:
            hidden = f"The mask hides {quoted(pair.old)} from {_name(comparison, i)}"
            if all(abs(_by(one)) <= SAME for one in changes):
                yield f"{hidden}: the swap changes nothing in this row."
            else:
                yield f"{hidden}: what changes in this row comes through the layers below."
        else:
            yield _what_followed(comparison, i, pair, places)
    if not pairs:
        yield f"No key of {_name(comparison, i)} was replaced."


def _query_swapped(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> str:
    """Return what changed where the word that looks was replaced: all of its scores are new."""
    before, after = comparison.traces
    names = f"{quoted(after.query_tokens[i])} looks in the place of {quoted(before.query_tokens[i])}"
    allowed = [one for one in changes if one.weights is not None]
    if not allowed:
        return f"{names}; it may look at nothing."
    most = max(allowed, key=lambda one: abs(_by(one)))
    kept = sum(min(one.weights) for one in allowed if one.weights)
    if abs(_by(most)) <= SAME:
        return f"{names}: its query is another one, and no weight differs."
    assert most.weights is not None
    return (
        f"{names}, so the query itself is another one, and each score may differ. {kept:.3f} of the weight stays "
        f"where it was. The largest change: {quoted_at(after.key_tokens, most.key)}, from {share(most.weights[0])} "
        f"to {share(most.weights[1])} ({_signed(_by(most))})."
    )


def _by(one: KeyChange) -> float:
    return 0.0 if one.weights is None else one.weights[1] - one.weights[0]


def _what_followed(comparison: Comparison, i: int, pair: Swap, places: Sequence[KeyChange]) -> str:
    """Return how a swapped key's weight divides into what stays with its place and what goes with the word."""
    one = places[0]
    assert one.weights is not None
    old, new = quoted(pair.old), quoted(pair.new)
    had, has = one.weights
    where = f" (the strongest of {count(len(places), 'place', 'places')})" if len(places) > 1 else ""
    text = f"{old}{where} has {share(had)} of the attention of {_name(comparison, i)}; "
    text += f"{new}, in its place, has {share(has)}."
    if one.content is None:
        return f"{text} The mean of heads has no scores, so content and distance cannot be told apart."
    content = _term("content", one.content)
    if one.distance is None:
        text += f" {content.capitalize()}. There is no distance term"
        return f"{text}: content alone made the {share(had)}, and content alone makes the {share(has)}."
    text += f" {content.capitalize()}; {_term('distance', one.distance)}."
    whose = "word" if abs(one.distance[1] - one.distance[0]) >= SAME_TERM else "content"
    if has >= had:
        bringer = f"the content of {new}" if whose == "content" else new
        gain = "" if has - had <= SAME else f", and {bringer} brings {share(has - had)} more"
        return f"{text} So all of the {share(had)} stays with the place: {new} gets it too{gain}."
    assert one.followed_place is not None and one.followed_content is not None
    return (
        f"{text} So {share(one.followed_place)} of the weight stays with the place, and "
        f"{share(one.followed_content)} goes with the {whose} of {old}."
    )


def _term(name: str, both: Both) -> str:
    """Return how a term changed: `content fell from 1.2 to 0.7 (-0.500)`, `distance (2.918) is the same`."""
    by = both[1] - both[0]
    if abs(by) < SAME_TERM:
        return f"{name} ({both[0]:.3f}) is the same"
    return f"{name} {'rose' if by > 0 else 'fell'} from {THREE(both[0])} to {THREE(both[1])}"


def swap_record(comparison: Comparison, steps: bool = False) -> dict[str, object]:
    """Return the JSON: a comparison of two texts, with the terms of the rows in focus."""
    rows = [
        {
            "query": comparison.traces[0].query_tokens[i],
            "query_after": comparison.traces[1].query_tokens[i],
            "query_index": i,
            "keys": [_key_record(comparison, i, one) for one in key_changes(comparison, i)],
        }
        for i in comparison.traces[0].focus
    ]
    changes: dict[str, object] = {"words": [one._asdict() for one in comparison.swaps], "rows": rows}
    return record(comparison, steps, changes, summary_of(comparison))


def _key_record(comparison: Comparison, i: int, one: KeyChange) -> dict[str, object]:
    before, after = comparison.traces
    divides = one.is_swapped and one.content is not None and not is_query_swapped(comparison, i)
    return {
        "key": before.key_tokens[one.key],
        "key_after": after.key_tokens[one.key],
        "key_index": one.key,
        **{name: None if both is None else list(both) for name, both in _parts(one)},
        "followed_place": one.followed_place if divides else None,
        "followed_content": one.followed_content if divides else None,
    }


def _parts(one: KeyChange) -> list[tuple[str, Both | None]]:
    return [("weights", one.weights), ("content", one.content), ("distance", one.distance)]


def swap_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """Yield a row for each link, with both words, both weights, and the terms of both scores.

    What is masked is empty, and so is a term that there is not.
    """
    before, after = comparison.traces
    names = [f"{name}_{side}" for name in ("weight", "content", "distance") for side in ("before", "after")]
    yield ["query", "key", "query_after", "key_after", *names, "difference"]
    for i in before.listed:
        for one in key_changes(comparison, i):
            words = [
                side[at]
                for trace in (before, after)
                for side, at in ((trace.query_tokens, i), (trace.key_tokens, one.key))
            ]
            numbers = [x for _, both in _parts(one) for x in (map(float, both) if both else ("", ""))]
            yield [*words, *numbers, float(_by(one)) if one.weights else ""]
