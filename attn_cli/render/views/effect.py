"""The screen of what each part of a model adds to the word that it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.models.logit_parts import Part
from attn_cli.pipeline.effect import Effect, Without, Word
from attn_cli.render import Block, Columns, Heading, Matrix, Say, quoted_at, share
from attn_cli.settings import View
from attn_cli.text.wordpieces import SPACE, as_text

MOST_KEYS = 8
ADDS, LOST = "it adds", "is lost"


def screen(found: Effect, most: int, view: View) -> Iterator[Block]:
    """Yield what all kinds of parts add, the map of heads, the strongest parts, and what the strongest head moved."""
    yield Heading(title(found), 1)
    rank = "the likeliest word" if found.rank == 1 else f"rank {found.rank:,} among its words"
    beside = "" if found.against is None else f" It is compared with {quoted(found.against)}."
    yield Say(f"{found.source} gives it a probability of {share(found.probability)}: {rank}.{beside}")
    kinds = dict[str, list[float]]()
    for one in found.parts:
        name = {"head": "heads", "mlp": "networks"}.get(one.part, one.part)
        kinds.setdefault("biases" if "bias" in name else name, []).append(one.value)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]) * (kind[0] != "biases"))
    cells = [(name, str(len(parts)), signed(sum(parts))) for name, parts in ordered]
    ends = ("sum", str(len(found.parts)), signed(found.sum)), ("model's own", "", signed(found.logit))
    yield Columns(("parts", "how many", "add"), [*cells, *ends])
    yield Say(_sum(found), quiet=True)
    yield Heading(f"What each head adds to {_of(found)}: layers down, heads across")
    yield from _maps(found, _added(found))
    strong = sorted(found.parts, key=lambda one: -abs(one.value))
    listed = [one for one in strong if one.part in ("head", "mlp")][:most]
    yield Heading(f"The {len(listed)} strongest of heads and networks")
    yield Columns(("part", "name", "adds"), [(*_part(one, found), signed(one.value)) for one in listed])
    if found.moved is not None:
        part, keys, values = found.moved
        order, shown = np.argsort(-np.abs(values), kind="stable")[:MOST_KEYS], as_text(keys)
        yield Heading(f"From which words {called(*_part(part, found))} moved it")
        yield Columns(("word", "adds"), [(f"{shown[n]} ({n})", signed(values[n])) for n in order])
        rest, others = len(values) - len(order), signed(float(np.delete(values, order).sum()))
        more = f", the other {rest:,} of them {others}" if rest else ""
        yield Say(f"Weight x value, through W_o: all words together {signed(part.value)}{more}.", quiet=True)
    if found.knock_outs:
        yield from _knocked(found, found.knock_outs, most)
    yield from (Say(f"Note: {note}") for note in found.notes)


def rows(found: Effect) -> Iterator[tuple[object, ...]]:
    """Yield the parts as rows of a table, with what is left without a head where that was computed."""
    outs = found.knock_outs or ()
    left: dict[object, Without] = {(one.layer, one.head, one.attention): one for one in outs}
    knocked = ("logit_without", "probability_without") if found.knock_outs is not None else ()
    yield "part", "layer", "head", "attention", "value", *knocked
    for one in found.parts:
        where = one.layer, one.head, one.attention
        out = left.get(where)
        after = (out.logit, out.probability) if out else (None,) * len(knocked)
        yield one.part, *where, one.value, *after


def quoted(word: Word) -> str:
    """Return a word in quotes, its spaces seen."""
    return f'"{word.token.replace(" ", SPACE)}"'


def where(tokens: Sequence[str], place: int, fills: bool) -> str:
    """Return where a word stands: after a token, or in its place."""
    return f"{'in place of' if fills else 'after'} {quoted_at(as_text(tokens), place)}"


def _of(found: Effect) -> str:
    less = "" if found.against is None else f" less that of {quoted(found.against)}"
    return f"the logit of {quoted(found.target)}{less}"


def _sum(found: Effect) -> str:
    text = "Each part goes through the later norms with their scale held as it was, so that the parts add up."
    if found.fills:
        text += " The activation before the output table is held as a ratio, too."
    if found.softcap is not None:
        after = "" if found.against is not None else f", and {signed(found.capped_sum)} after it"
        text += f" The model caps its logits at {found.softcap:g}: the sum is before that{after}."
    return text


def title(found: Effect) -> str:
    """Return what is shown, as a heading."""
    return f"What says {quoted(found.target)}, {where(found.tokens, found.place, found.fills)}"


def maps(found: Effect) -> dict[str, Matrix]:
    """Return the maps of a figure, by their names: what heads add, and where it is known what is lost without them."""
    named: dict[str, Sequence[tuple[Part | Without, float]]] = {ADDS: _added(found), LOST: _lost(found)}
    made = ((name, matrix) for name, values in named.items() for matrix in _maps(found, values))
    return {", ".join(filter(None, (name, one.corner.rpartition(" ")[0]))): one for name, one in made}


def _added(found: Effect) -> list[tuple[Part | Without, float]]:
    return [(one, one.value) for one in found.parts if one.part == "head"]


def _lost(found: Effect) -> list[tuple[Without, float]]:
    return [(one, found.logit - one.logit) for one in found.knock_outs or ()]


def _maps(found: Effect, values: Sequence[tuple[Part | Without, float]]) -> Iterator[Matrix]:
    kinds, width = dict.fromkeys(one.attention for one, _ in values), max(map(len, found.heads), default=0)
    for kind in kinds:
        numbers = np.full((len(found.heads), width), np.nan)
        for one, value in values:
            if one.attention == kind and one.layer is not None and one.head is not None:
                numbers[one.layer, one.head] = value
        corner = "layer\\head" if len(kinds) == 1 else f"{kind} layer\\head"
        labels = [*map(str, range(len(numbers)))], [*map(str, range(width))]
        yield Matrix(*labels, numbers, corner, shaded=True, is_difference=True)


def _part(one: Part | Without, found: Effect) -> tuple[str, str]:
    """Return what a head, or a layer's network, is called, and the name that it has by what it does."""
    if one.layer is None or one.head is None:
        return f"network {one.layer}", ""
    return head_name(one.layer, one.head, one.attention == "cross", found.heads)


def head_name(layer: int, head: int, is_cross: bool, names: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return what a head is called, and its name where its layer's `names` have more than numbers."""
    name = names[layer][head]
    return f"{'cross' if is_cross else 'head'} {layer}.{head}", "" if name.isdigit() else name


def called(what: str, name: str) -> str:
    """Return a part with the name that it has beside its number, if any."""
    return f"{what} ({name})" if name else what


def _knocked(found: Effect, outs: Sequence[Without], most: int) -> Iterator[Block]:
    direct = {(one.layer, one.head, one.attention): one.value for one in found.parts if one.part == "head"}
    lost = [(one, direct[one.layer, one.head, one.attention], gone) for one, gone in _lost(found)]
    first = sorted(lost, key=lambda one: -abs(one[2]))[:most]
    yield Heading(f"Without a head: what {_of(found)} loses, layers down, heads across")
    yield from _maps(found, _lost(found))
    before, cells = share(found.probability), []
    for one, adds, gone in first:
        after = f"{before} to {share(one.probability)}"
        cells.append((*_part(one, found), signed(adds), signed(gone), after))
    chance = "probability" if found.against is None else f"of {quoted(found.target)}"
    yield Columns(("without", "name", ADDS, LOST, chance), cells)
    if found.softcap is not None:
        yield Say("What heads add is before the cap on logits, what is lost is after it.", quiet=True)
    top, adds, gone = first[0]
    after = "misses it, too" if abs(gone) > abs(adds) else "makes up for some"
    is_told = adds * gone > 0 and not found.with_mean and found.softcap is None  # else neither is so
    how = f": what comes after it {after}" * is_told
    change = "lost" if gone > 0 else "gained"
    much = signed(abs(gone)).lstrip("+")
    yield Say(f"{called(*_part(top, found))} adds {signed(adds)}; without it {much} is {change}{how}.")


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign and so many decimals; of three, two where it is 10 and more.

    >>> signed(0.1234), signed(-12.345), signed(-0.0001)
    ('+.123', '-12.35', '.000')
    """
    digits = 2 if digits == 3 and abs(value) >= 10 else digits
    written = f"{value:+.{digits}f}".replace("+0.", "+.").replace("-0.", "-.")
    return written if written.strip("+-.0") else written[1:]
