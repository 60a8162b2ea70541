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

MOST_KEYS, LONGEST_WORD = 12, 12
SAME_TERM = 5e-4  # a smaller change of a term is not seen in three decimals
THREE = number(3)
PARTS = ("weights", "content", "distance")  # of a KeyChange, before and after


def swap_screen(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield each row's weights and terms, before and after, what followed the place, and the settings."""
    before = comparison.traces[0]
    swaps = listed([f"{short(one.old)}={short(one.new)}" for one in comparison.swaps])
    yield Heading(f"Swap {swaps}: {kind_of(before).lower()}", 1)
    yield Formula(formula(before))
    rows = before.focus[:MOST_FOCUS]
    for i in rows:
        changes = key_changes(comparison, i)
        if len(rows) > 1:
            yield Heading(f"What does {_name(comparison, i)} look at?")
        yield _table(comparison, i, changes)
        yield Say("")
        yield from map(Say, _sentences(comparison, i, changes))
    if more := len(before.focus) - len(rows):
        yield Say(f"{more:,} more rows match: -q with a number shows one.", quiet=True)
    yield from ending(comparison, summary_of(comparison))
    if view.steps:
        yield Say("Note: --steps takes effect only with -f json here.")


def _name(comparison: Comparison, i: int) -> str:
    """Return the word that looks, in quotation marks: the new one if it was replaced."""
    return quoted_at(comparison.traces[-1].query_tokens, i)


def _by(both: Both | None) -> float:
    return 0.0 if both is None else both[1] - both[0]


def _has_moved(both: Both | None) -> bool:
    return abs(_by(both)) >= SAME_TERM


def _table(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Columns:
    before, after = comparison.traces
    moved = any(_has_moved(one.distance) for one in changes)
    header = [_name(comparison, i), "now", "before", "after", "change"]
    header += ["content", "after"] * (changes[0].content is not None)
    if any(one.distance for one in changes):
        header += ["distance", "after"] if moved else ["distance"]
    most = before.settings.top or MOST_KEYS
    order = sorted(changes, key=lambda one: (not one.is_swapped, -max(one.weights or (-1.0,))))
    rows = []
    for one in sorted(order[:most], key=lambda one: one.key):
        now = cut(after.key_tokens[one.key], LONGEST_WORD, "…") if one.is_swapped else ""
        line = [placed(before.key_tokens, one.key), now, *_weights(one.weights)]
        for term in filter(None, (one.content, (one.distance or ())[: 1 + moved])):
            line += THREE.row(term)
        rows.append(line)
    for label, some in ((f"{len(changes) - most:,} others", order[most:]), ("sum", changes)):
        if some:
            pairs = [one.weights for one in some if one.weights is not None]
            sums = (sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
            rows.append([label, "…", *_weights(sums), *["…"] * (len(header) - 5)])
    return Columns(header, rows)


def _weights(weights: Both | None) -> list[str]:
    return [*THREE.row(weights), _signed(_by(weights))] if weights else ["–", "–", "–"]


def _signed(by: float) -> str:
    return unsigned_zero(f"{by:+.3f}")


def summary_of(comparison: Comparison) -> str:
    """Return what the swap changed in the rows shown, in sentences."""
    rows = comparison.traces[0].focus[:MOST_FOCUS]
    return " ".join(said for i in rows for said in _sentences(comparison, i, key_changes(comparison, i)))


def _sentences(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> Iterator[str]:
    name = _name(comparison, i)
    if is_query_swapped(comparison, i):
        yield _query_swapped(comparison, i, changes)
        return
    pairs = list(swapped_keys(changes, *comparison.traces))
    for pair, places in pairs:
        is_same = all(abs(_by(one.weights)) <= SAME for one in changes)
        hidden = "the swap changes nothing in this row"
        hidden = hidden if is_same else "what changes in this row comes through the layers below"
        if places[0].weights is None:
            yield f"The mask hides {quoted(pair.old)} from {name}: {hidden}."
        else:
            yield _what_followed(name, pair, places, places[0].weights)
    if not pairs:
        yield f"No key of {name} was replaced."


def _query_swapped(comparison: Comparison, i: int, changes: Sequence[KeyChange]) -> str:
    before, after = comparison.traces
    names = f"{quoted(after.query_tokens[i])} looks in the place of {quoted(before.query_tokens[i])}"
    allowed = [(one.weights, one.key) for one in changes if one.weights is not None]
    if not allowed:
        return f"{names}; it may look at nothing."
    most, key = max(allowed, key=lambda one: abs(_by(one[0])))
    if abs(_by(most)) <= SAME:
        return f"{names}: its query is another one, and no weight differs."
    kept = sum(min(weights) for weights, _ in allowed)
    return (
        f"{names}, so the query itself is another one, and each score may differ. {kept:.3f} of the weight stays "
        f"where it was. The largest change: {quoted_at(after.key_tokens, key)}, from {share(most[0])} to "
        f"{share(most[1])} ({_signed(_by(most))})."
    )


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
    if _by(weights) >= 0:
        bringer = f"the content of {new}" if whose == "content" else new
        gain = "" if _by(weights) <= SAME else f", and {bringer} brings {share(_by(weights))} more"
        return f"{text} So all of the {had} stays with the place: {new} gets it too{gain}."
    assert one.followed_place is not None and one.followed_content is not None
    return (
        f"{text} So {share(one.followed_place)} of the weight stays with the place, and "
        f"{share(one.followed_content)} goes with the {whose} of {old}."
    )


def _term(name: str, both: Both) -> str:
    """Return how a term changed: `content fell from 1.200 to 0.700`, `distance (2.918) is the same`."""
    if not _has_moved(both):
        return f"{name} ({both[0]:.3f}) is the same"
    return f"{name} {'rose' if _by(both) > 0 else 'fell'} from {THREE(both[0])} to {THREE(both[1])}"


def swap_record(comparison: Comparison, steps: bool = False) -> dict[str, object]:
    """Return the JSON: a comparison of two texts, with the terms of the rows in focus."""
    before, after = comparison.traces
    rows = [
        {
            "query": before.query_tokens[i],
            "query_after": after.query_tokens[i],
            "query_index": i,
            "keys": [_key_record(comparison, i, one) for one in key_changes(comparison, i)],
        }
        for i in before.focus
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
        **{name: getattr(one, name) and list(getattr(one, name)) for name in PARTS},
        "followed_place": one.followed_place if divides else None,
        "followed_content": one.followed_content if divides else None,
    }


def swap_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """Yield a row per link: both words, weights and scores' terms; empty where masked or without such a term."""
    names = [f"{name}_{side}" for name in ("weight", "content", "distance") for side in ("before", "after")]
    yield ["query", "key", "query_after", "key_after", *names, "difference"]
    for i in comparison.traces[0].listed:
        for one in key_changes(comparison, i):
            words = [
                word
                for side in comparison.traces
                for word in (side.query_tokens[i], side.key_tokens[one.key])
            ]
            terms = [float(x) if x != "" else x for name in PARTS for x in getattr(one, name) or ("", "")]
            yield [*words, *terms, float(_by(one.weights)) if one.weights else ""]
