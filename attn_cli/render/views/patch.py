"""The screen of what comes back of a word when parts of one run are carried over into another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from attn_cli.errors import count
from attn_cli.io.types import Array
from attn_cli.pipeline.effect import Patch
from attn_cli.render import Block, Heading, Matrix, Say
from attn_cli.render.numbers import weight
from attn_cli.render.views import effect, finding
from attn_cli.settings import View
from attn_cli.text.wordpieces import as_text

TITLES = {
    "residual": ("Stream before a layer", "token"),
    "heads": ("Output of a head at all tokens", "head"),
    "cross heads": ("Output of a head of cross-attention at all tokens", "head"),
}
SHARE, LEAST = weight(3), 0.0005  # less is nothing
MOST_SITES = 4  # of the stream
LONG = 10  # tokens, from which on a screen leaves out those that bring nothing on the left


def screen(found: Patch, view: View) -> Iterator[Block]:
    """Yield the maps of what comes back, the strongest sites, and one of them by hand."""
    yield Heading(title(found), 1)
    clean, corrupt = (effect.signed(one, _digits(found)) for one in (found.clean, found.corrupt))
    less = f"The logit of {effect.quoted(found.target)} less that of {effect.quoted(found.against)}"
    yield Say(f"{less}: {clean} in the clean text, {corrupt} in the corrupt one.")
    equal = "They are equal, so nothing can come back. The maps show the difference itself."
    shares = "A number says what share of that comes back: 1 is the clean text, 0 the corrupt one."
    yield Say(equal if found.recovered is None else shares)
    for name, matrix in maps(found).items():
        part, unit = TITLES[name]
        yield Heading(f"{part}, carried over: layers down, {unit}s across")
        same = (found.maps["residual"] == found.corrupt).all(axis=0)
        start = int(same.argmin())  # the first column that differs from the corrupt run
        if name == "residual" and view.format in finding.SCREENS and len(same) >= LONG and start:
            more = f"left out: the first {count(start, 'token', 'tokens')}, whose vectors are the same in both texts"
            some = matrix.columns[start:], matrix.values[:, start:]
            matrix = matrix._replace(columns=some[0], values=some[1], more=more)
        yield matrix
    if found.recovered is not None:
        yield from _strongest(found, found.recovered)
    yield from (Say(f"Note: {note}") for note in found.notes)


def title(found: Patch) -> str:
    """Return what is shown, as a heading."""
    said = effect.where(found.tokens[1], found.place, found.fills)
    return f"What brings back {effect.quoted(found.target)} over {effect.quoted(found.against)}, {said}"


def maps(found: Patch) -> dict[str, Matrix]:
    """Return the maps by their names: shares, or differences where there are no shares."""
    made = {}
    for part, values in (found.recovered or found.maps).items():
        name, (layers, width) = part.replace("_", " "), values.shape
        columns = tokens(found) if part == "residual" else [*map(str, range(width))]
        rows, corner = [*map(str, range(layers))], f"layer\\{TITLES[name][1]}"
        made[name] = Matrix(rows, columns, values, corner, shaded=True, is_difference=True)
    return made


def tokens(found: Patch) -> list[str]:
    """Return the tokens, those that differ as clean/corrupt."""
    pairs = zip(*map(as_text, found.tokens), strict=True)
    return [one if one == other else f"{one}/{other}" for one, other in pairs]


def rows(found: Patch) -> Iterator[tuple[object, ...]]:
    """Yield a row for each part that was carried over."""
    yield "part", "layer", "head", "place", "clean", "corrupt", "difference", "recovered"
    shares = found.recovered
    for name, differences in found.maps.items():
        for (layer, n), value in np.ndenumerate(differences):
            at = ("", n, *(side[n] for side in found.tokens)) if name == "residual" else (n, "", "", "")
            if value == value:
                yield name, layer, *at, float(value), "" if shares is None else float(shares[name][layer, n])


def _strongest(found: Patch, shares: dict[str, Array]) -> Iterator[Block]:
    names, stream, sites, heads = tokens(found), shares["residual"], [], []
    best = stream.argmax(axis=1).tolist()
    bringing = [n for n, place in enumerate(best) if stream[n, place] >= LEAST]
    for place, group in groupby(bringing, best.__getitem__):
        first, *between = group
        ends = [first, *between[-1:]]
        which, most = " to ".join(map(str, ends)), " to ".join(SHARE(float(stream[n, place])) for n in ends)
        sites.append(f'with "{names[place]}" before {"layers" if between else "layer"} {which} ({most})')
    for name in [*shares][1:]:
        layer, head = divmod(int(np.nanargmax(shares[name])), shares[name].shape[1])
        if (part := shares[name][layer, head]) >= LEAST:
            who = effect.called(*effect.head_name(layer, head, name == "cross_heads", found.names))
            heads.append(f"{who} ({SHARE(float(part))})")
    told = [", ".join(sites[:MOST_SITES])] * bool(sites)
    told += [f"of the heads, with {' and '.join(heads)}"] * bool(heads)
    yield Say(f"Most comes back {'; '.join(told)}." if told else "Nothing comes back.")
    if not bringing:
        return
    layer = bringing[len(bringing) // 2]
    place, digits = best[layer], _digits(found)
    numbers = found.corrupt, float(found.maps["residual"][layer, place]), found.clean
    corrupt, after, clean = (round(one, digits) for one in numbers)  # as they are shown
    back, gap = after - corrupt, clean - corrupt
    shown = [effect.signed(one, digits) for one in (corrupt, after, clean, back, gap)]
    yield Say(
        f'By hand: corrupt {shown[0]}, with "{names[place]}" before layer {layer} {shown[1]}, clean {shown[2]}. '
        f"{shown[3]} of {shown[4]} comes back: {SHARE(back / gap)}."
    )


def _digits(found: Patch) -> int:
    """Return the decimals from which a share of the gap between the two differences comes out as on the map."""
    gap = abs(found.clean - found.corrupt)
    return max(4, 4 - math.floor(math.log10(gap))) if gap else 3
