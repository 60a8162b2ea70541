"""A word replaced by another: one row before and after, and how much of each weight stayed with the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from attn_cli.errors import count, unsigned_zero
from attn_cli.render import (
    Block,
    Columns,
    Formula,
    Heading,
    Say,
    listed,
    numbers,
    placed,
    plain,
    quoted,
    quoted_at,
    share,
    short,
)
from attn_cli.render.screen.text import cut
from attn_cli.render.views import overview, wording
from attn_cli.render.views.comparison import ending, record
from attn_cli.settings import View
from attn_cli.teach import swap as swaps
from attn_cli.teach.compare import SAME, Comparison, Swap
from attn_cli.teach.swap import Both, KeyChange, LeadChange, change, is_query_swapped, key_changes

MOST_KEYS, LONGEST_WORD, LONGEST_TEXT = 5, 12, 160
SAME_TERM = 5e-4  # a smaller change of a term is not seen in three decimals
THREE = numbers.number(3)
PARTS = ("weights", "content", "distance")  # of a KeyChange, before and after


def swap_screen(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield each row's weights and terms, before and after, what followed the place, and the settings."""
    before = comparison.traces[0]
    names = listed([f"{short(one.old)}={short(one.new)}" for one in comparison.swaps])
    yield Heading(f"Swap {names}: {wording.kind_of(before).lower()}", 1)
    if comparison.values[0] != comparison.values[1]:
        for label, text in zip(comparison.labels, comparison.values, strict=True):
            yield Formula(cut(str(text), LONGEST_TEXT, "…"), f"{label + ':':7}")
    rows, heat = before.focus[: overview.MOST_FOCUS], wording.temperature_divisor(before)
    for i in rows:
        changes = key_changes(comparison, i)
        if len(rows) > 1:
            yield Heading(f"What does {_name(comparison, i)} look at?")
        yield from map(Say, _finding(comparison, i, changes))
        yield _table(comparison, i, changes)
        each = [row for trace in comparison.traces if (row := trace.row(i))]
        sums = [f"exp{f'(s - {plain(row.shift)})' * bool(row.shift)} / {row.total:.6g}" for row in each]
        totals = f": {', after '.join(sums)}{f';{heat} is in the terms above' * bool(heat)}"
        yield Formula(wording.formula(before) + totals * (len(sums) == 2))
        yield from map(Say, _reasons(comparison, i, changes))
    if more := len(before.focus) - len(rows):
        said = count(more, "more row matches", "more rows match")
        yield Say(f"{said}: -q with a number shows one.", quiet=True)
    yield from ending(comparison, summary_of(comparison))
    if view.steps:
        yield Say("Note: --steps takes effect only with -f json here.")


def _name(comparison: Comparison, i: int) -> str:
    """Return the word that looks, in quotation marks: the new one if it was replaced."""
    return quoted_at(comparison.traces[-1].query_tokens, i)


def _has_moved(both: Both | None) -> bool:
    return abs(change(both)) >= SAME_TERM


def _table(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Columns:
    before, after = comparison.traces
    sides = 1 + any(_has_moved(one.distance) for one in changes)
    header = [_name(comparison, i), "now", *["content", "after"] * (changes[0].content is not None)]
    header += ["distance", "after"][:sides] * any(one.distance for one in changes)
    strongest = sorted(changes, key=lambda one: -max(one.weights or (-1.0,)))
    first, top = sorted(strongest, key=lambda one: not one.is_swapped), before.settings.top
    shown = {one.key for one in (*first[: top or MOST_KEYS], *strongest[: 0 if top else 2])}
    rows = []
    for one in (changes[j] for j in sorted(shown)):
        now = cut(after.key_tokens[one.key], LONGEST_WORD, "…") if one.is_swapped else ""
        terms = [THREE.row(term) for term in (one.content, (one.distance or ())[:sides]) if term]
        rows.append([placed(before.key_tokens, one.key), now, *chain(*terms), *_weights(one.weights)])
    others = [one for one in changes if one.key not in shown]
    for label, some in ((f"{len(others):,} others", others), ("sum", changes)):
        if some:
            pairs = [one.weights for one in some if one.weights is not None]
            sums = (sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
            rows.append([label, *["…"] * (len(header) - 1), *_weights(sums)])
    return Columns([*header, "weight", "after", "change"], rows)


def _weights(weights: Both | None) -> list[str]:
    return [*THREE.row(weights), _signed(change(weights))] if weights else ["–", "–", "–"]


def _signed(by: float) -> str:
    return unsigned_zero(f"{by:+.3f}")


def summary_of(comparison: Comparison) -> str:
    """Return what the swap changed in the rows shown, in sentences."""
    rows = comparison.traces[0].focus[: overview.MOST_FOCUS]
    told = [one(comparison, i, key_changes(comparison, i)) for i in rows for one in (_finding, _reasons)]
    return " ".join(chain(*told))


def _finding(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Iterator[str]:
    weights = {one.key: one.weights for one in changes if one.weights}
    if not weights:
        yield f"{_name(comparison, i)} may look at nothing."
        return
    old, new = (max(weights, key=lambda j: weights[j][side]) for side in (0, 1))
    if old == new and not _is_mixed(changes) and not is_query_swapped(comparison, i):
        return
    looks = f"{_now(comparison, i, 'query_tokens')} looks most at {_now(comparison, old)} before"
    had, has = share(weights[old][0]), share(weights[new][1])
    swap = quoted(comparison.swaps[0].new) if len(comparison.swaps) == 1 else "the swap"
    if old != new:
        yield f"{looks} ({had}), and at {_now(comparison, new)} after ({has}): {swap} turns it."
        return
    gains = {j: by for j in weights if (by := change(weights[j])) > 0}
    moves = "moves less than 0.001 of its weight"
    if (whole := sum(gains.values())) >= SAME_TERM:
        most = max(gains, key=gains.__getitem__)
        to = f", {gains[most]:.3f} of it" * (len(gains) > 1)
        moves = f"moves {whole:.3f} of its weight{to} to {_now(comparison, most)}"
    yield f"{looks} and after ({had}, {has}): {swap} {moves}."


def _is_mixed(changes: Sequence[KeyChange]) -> bool:
    """Tell whether the scores of other words have changed: the query is another one, or layers below mix words."""
    others = [one for one in changes if not one.is_swapped]
    return any(not one.content or _has_moved(one.content) or _has_moved(one.distance) for one in others)


def _reasons(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Iterator[str]:
    name, is_mixed, lead = _name(comparison, i), _is_mixed(changes), swaps.lead_change(comparison, i)
    if lead and (is_mixed or lead.sum[1] < 0):
        yield _decided(comparison, lead)
    if is_query_swapped(comparison, i):
        return
    pairs = list(swaps.swapped_keys(changes, *comparison.traces))
    for pair, places in pairs:
        if places[0].weights is None:
            is_same = all(abs(change(one.weights)) <= SAME for one in changes)
            through = "what changes in this row comes through the layers below"
            hidden = "the swap changes nothing in this row" if is_same else through
            yield f"The mask hides {quoted(pair.old)} from {name}: {hidden}."
        elif not (is_mixed and lead):
            yield _what_followed(name, pair, places, places[0].weights)
    if not pairs:
        yield f"No key of {name} was replaced."


def _decided(comparison: Comparison, lead: LeadChange) -> str:
    first, rival = (_now(comparison, j) for j in (lead.key_index, lead.rival_index))
    before, after = lead.sum
    then = f"and {after:.3f} after" if after >= 0 else f"and is {-after:.3f} behind after"
    text = f"In the sum, {first} leads {rival} by {before:.3f} before {then}."
    if lead.decided is None or not any(map(_has_moved, (lead.sum, lead.content, lead.distance))):
        return text
    told = {"content": _signed(change(lead.content))}
    if lead.by_query is not None and lead.by_keys is not None and abs(lead.by_query) >= SAME_TERM:
        told["content"] += f" (the query {_signed(lead.by_query)}, the keys {_signed(lead.by_keys)})"
    if lead.distance:
        told["distance"] = _signed(change(lead.distance))
    by = told.pop(lead.decided)
    decides = f"{lead.decided.capitalize()} decides" if after < 0 else f"Mostly {lead.decided}"
    decides = decides if lead.distance else "By content alone"
    if not _has_moved(lead.sum):
        decides, by = "The changes cancel", f"{lead.decided} {by}"
    return f"{text} {decides}: {'; '.join([by, *(f'{term} {of}' for term, of in told.items())])}."


def _now(comparison: Comparison, j: int, side: str = "key_tokens") -> str:
    """Return a token in quotation marks, with what stands in its place after."""
    before, after = (getattr(trace, side) for trace in comparison.traces)
    return quoted_at(before, j) + (f" (now {quoted(after[j])})" if before[j] != after[j] else "")


def _what_followed(name: str, pair: Swap, places: Sequence[KeyChange], weights: Both) -> str:
    """Return how a swapped key's weight divides into what stays with its place and what goes with the word."""
    one, old, new = places[0], quoted(pair.old), quoted(pair.new)
    had, has = map(share, weights)
    where = f" (the strongest of {count(len(places), 'place', 'places')})" if len(places) > 1 else ""
    text = f"{old}{where} has {had} of the attention of {name}; {new}, in its place, has {has}."
    if one.content is None:
        return f"{text} The mean of heads has no scores, so content and distance cannot be told apart."
    content = _term("content", one.content).capitalize()
    if one.distance is None:
        alone = f"content alone made the {had}, and content alone makes the {has}"
        return f"{text} {content}. There is no distance term: {alone}."
    text += f" {content}; {_term('distance', one.distance)}."
    whose = "word" if _has_moved(one.distance) else "content"
    if change(weights) >= 0:
        bringer = f"the content of {new}" if whose == "content" else new
        gain = "" if change(weights) <= SAME else f", and {bringer} brings {share(change(weights))} more"
        return f"{text} So all of the {had} stays with the place: {new} gets it too{gain}."
    assert one.followed_place is not None and one.followed_content is not None
    return (
        f"{text} So {share(one.followed_place)} of the weight stays with the place, and "
        f"{share(one.followed_content)} goes with the {whose} of {old}."
    )


def _term(name: str, both: Both) -> str:
    if not _has_moved(both):
        return f"{name} ({both[0]:.3f}) is the same"
    return f"{name} {'rose' if change(both) > 0 else 'fell'} from {THREE(both[0])} to {THREE(both[1])}"


def swap_record(comparison: Comparison, steps: bool = False) -> dict[str, object]:
    """Return the JSON: a comparison of two texts, with the terms of the rows in focus."""
    (before, after), rows = comparison.traces, []
    for i in before.focus:
        keys = []
        for one in key_changes(comparison, i):
            divides = one.is_swapped and one.content is not None and not is_query_swapped(comparison, i)
            old, new = before.key_tokens[one.key], after.key_tokens[one.key]
            names = {"key": old, "key_after": new, "key_index": one.key}
            terms = {name: getattr(one, name) and list(getattr(one, name)) for name in PARTS}
            followed = ("followed_place", "followed_content")
            keys.append(names | terms | {name: getattr(one, name) if divides else None for name in followed})
        names = {"query": before.query_tokens[i], "query_after": after.query_tokens[i], "query_index": i}
        lead = swaps.lead_change(comparison, i)
        rows.append(names | {"keys": keys, "lead": lead and lead._asdict()})
    changes: dict[str, object] = {"words": [one._asdict() for one in comparison.swaps], "rows": rows}
    return record(comparison, steps, changes, summary_of(comparison))


def swap_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """Yield a row per link: both words, weights and scores' terms; empty where masked or without such a term."""
    before, after = comparison.traces
    names = [f"{name}_{side}" for name in ("weight", "content", "distance") for side in ("before", "after")]
    yield ["query", "key", "query_after", "key_after", *names, "difference"]
    for i in before.listed:
        for one in key_changes(comparison, i):
            words = [before.query_tokens[i], before.key_tokens[one.key]]
            words += [after.query_tokens[i], after.key_tokens[one.key]]
            terms = [float(x) if x != "" else x for name in PARTS for x in getattr(one, name) or ("", "")]
            yield [*words, *terms, float(change(one.weights)) if one.weights else ""]
