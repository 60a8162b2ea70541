"""The screen of what each part of a model adds to the word that it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.models.logit_parts import Part
from attn_cli.pipeline.effect import Effect, Without, Word
from attn_cli.render.blocks import Block, Columns, Heading, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.views.wording import quoted_at
from attn_cli.settings.output import View
from attn_cli.text.wordpieces import SPACE, as_text

MOST_KEYS = 8
ADDS, LOST = "it adds", "is lost"


def screen(found: Effect, most: int, view: View) -> Iterator[Block]:
    """Yield what all kinds of parts add, the map of heads, the strongest parts, and what the strongest head moved."""
    yield Heading(title(found), 1)
    yield Say(_own(found))
    yield Columns(("parts", "how many", "add"), [*_by_kind(found)])
    yield Say(_sum(found), quiet=True)
    yield Heading(f"What each head adds to {_of(found)}: layers down, heads across")
    yield from _maps(found, _added(found))
    strong = sorted(found.parts, key=lambda one: -abs(one.value))
    listed = [one for one in strong if one.part in ("head", "mlp")][:most]
    yield Heading(f"The {len(listed)} strongest of heads and networks")
    yield Columns(("part", "name", "adds"), [(*_part(one, found), signed(one.value)) for one in listed])
    if found.moved is not None:
        yield from _moved(found)
    if found.knock_outs:
        yield from _knocked(found, most)
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
    if found.against is None:
        return f"the logit of {quoted(found.target)}"
    return f"the logit of {quoted(found.target)} less that of {quoted(found.against)}"


def _own(found: Effect) -> str:
    rank = "the likeliest word" if found.rank == 1 else f"rank {found.rank:,} among its words"
    said = f"{found.source} gives it a probability of {share(found.probability)}: {rank}."
    return said if found.against is None else f"{said} It is compared with {quoted(found.against)}."


def _by_kind(found: Effect) -> Iterator[tuple[str, str, str]]:
    kinds = dict[str, list[Part]]()
    for one in found.parts:
        name = {"head": "heads", "mlp": "networks"}.get(one.part)
        name = name or ("biases" if "bias" in one.part else one.part)
        kinds.setdefault(name, []).append(one)
    for name, parts in sorted(kinds.items(), key=lambda kind: -len(kind[1]) * (kind[0] != "biases")):
        yield name, str(len(parts)), signed(sum(one.value for one in parts))
    yield "sum", str(len(found.parts)), signed(found.sum)
    yield "model's own", "", signed(found.logit)


def _sum(found: Effect) -> str:
    frozen = (
        "Each part goes through the later norms with their scale held as it was, so that the parts add up."
    )
    if found.fills:
        frozen += " The activation before the output table is held as a ratio, too."
    if found.softcap is not None:
        frozen += f" The model caps its logits at {found.softcap:g}: the sum is before that"
        frozen += "." if found.against is not None else f", and {signed(found.capped_sum)} after it."
    return frozen


def title(found: Effect) -> str:
    """Return what is shown, as a heading."""
    return f"What says {quoted(found.target)}, {where(found.tokens, found.place, found.fills)}"


def maps(found: Effect) -> dict[str, Matrix]:
    """Return the maps of a figure, by their names: what heads add, and where it is known what is lost without them."""
    named: dict[str, Sequence[tuple[Part | Without, float]]] = {ADDS: _added(found), LOST: _lost(found)}
    return {
        ", ".join(filter(None, (name, matrix.corner.rpartition(" ")[0]))): matrix
        for name, values in named.items()
        for matrix in _maps(found, values)
    }


def _added(found: Effect) -> list[tuple[Part | Without, float]]:
    return [(one, one.value) for one in found.parts if one.part == "head"]


def _lost(found: Effect) -> list[tuple[Without, float]]:
    return [(one, found.logit - one.logit) for one in found.knock_outs or ()]


def _maps(found: Effect, values: Sequence[tuple[Part | Without, float]]) -> Iterator[Matrix]:
    """Yield a map of layers x heads for each kind of attention."""
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
    if isinstance(one, Part) and one.part == "mlp":
        return f"network {one.layer}", ""
    assert one.layer is not None and one.head is not None
    return head_name(one.layer, one.head, one.attention == "cross", found.heads)


def head_name(layer: int, head: int, is_cross: bool, names: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return what a head is called, and its name where its layer's `names` have more than numbers."""
    name = names[layer][head]
    return f"{'cross' if is_cross else 'head'} {layer}.{head}", "" if name.isdigit() else name


def called(what: str, name: str) -> str:
    """Return a part with the name that it has beside its number, if any."""
    return f"{what} ({name})" if name else what


def _moved(found: Effect) -> Iterator[Block]:
    assert found.moved is not None
    part, keys, values = found.moved
    order = np.argsort(-np.abs(values), kind="stable")[:MOST_KEYS]
    yield Heading(f"From which words {called(*_part(part, found))} moved it")
    shown = as_text(keys)
    yield Columns(("word", "adds"), [(f"{shown[n]} ({n})", signed(values[n])) for n in order])
    rest = len(values) - len(order)
    more = f", the other {rest:,} of them {signed(float(np.delete(values, order).sum()))}" if rest else ""
    yield Say(f"Weight x value, through W_o: all words together {signed(part.value)}{more}.", quiet=True)


def _knocked(found: Effect, most: int) -> Iterator[Block]:
    assert found.knock_outs is not None
    direct = {(one.layer, one.head, one.attention): one.value for one in found.parts if one.part == "head"}
    lost = dict(_lost(found))
    first = sorted(lost, key=lambda one: -abs(lost[one]))[:most]
    yield Heading(f"Without a head: what {_of(found)} loses, layers down, heads across")
    yield from _maps(found, _lost(found))
    cells = [
        (
            *_part(one, found),
            signed(direct[one.layer, one.head, one.attention]),
            signed(lost[one]),
            f"{share(found.probability)} to {share(one.probability)}",
        )
        for one in first
    ]
    chance = "probability" if found.against is None else f"of {quoted(found.target)}"
    yield Columns(("without", "name", ADDS, LOST, chance), cells)
    if found.softcap is not None:
        yield Say("What heads add is before the cap on logits, what is lost is after it.", quiet=True)
    top = first[0]
    adds, gone = direct[top.layer, top.head, top.attention], lost[top]
    after = "misses it, too" if abs(gone) > abs(adds) else "makes up for some"
    is_told = adds * gone > 0 and not found.with_mean and found.softcap is None  # else neither is so
    how = f": what comes after it {after}" * is_told
    change = "lost" if gone > 0 else "gained"
    name, much = called(*_part(top, found)), signed(abs(gone)).lstrip("+")
    yield Say(f"{name} adds {signed(adds)}; without it {much} is {change}{how}.")


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign and so many decimals; of three, two where it is 10 and more.

    >>> signed(0.1234), signed(-12.345), signed(-0.0001)
    ('+.123', '-12.35', '.000')
    """
    digits = 2 if digits == 3 and abs(value) >= 10 else digits
    written = f"{value:+.{digits}f}".replace("+0.", "+.").replace("-0.", "-.")
    return written if written.strip("+-.0") else written[1:]
