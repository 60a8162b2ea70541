"""The screen of what comes back of a word when parts of one run are carried over into another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from attn_cli.io.array_types import Array
from attn_cli.pipeline.patch import Patch
from attn_cli.render.blocks import Block, Heading, Matrix, Say
from attn_cli.render.numbers import weight
from attn_cli.render.views.effect import quoted, signed
from attn_cli.text.wordpieces import as_text

TITLES = {
    "residual": ("Stream before a layer", "token"),
    "heads": ("Output of a head", "head"),
    "cross heads": ("Output of a head of cross-attention", "head"),
}
SHARE = weight(2)
MOST_SITES = 4  # of the stream


def patch(found: Patch) -> Iterator[Block]:
    """Yield the maps of what comes back, the strongest sites, and one of them by hand."""
    yield Heading(title(found), 1)
    clean, corrupt = (signed(one, _digits(found)) for one in (found.clean, found.corrupt))
    yield Say(
        f"The logit of {quoted(found.target)} less that of {quoted(found.against)}: {clean} in the clean text, "
        f"{corrupt} in the corrupt one."
    )
    if found.recovered is None:
        yield Say("They are equal, so nothing can come back. The maps show the difference itself.")
    else:
        yield Say("A number says what share of that comes back: 1 is the clean text, 0 the corrupt one.")
    for name, matrix in maps(found).items():
        yield Heading(f"{TITLES[name][0]}, carried over: layers down, {TITLES[name][1]}s across")
        yield matrix
    if found.recovered is not None:
        yield from _strongest(found, found.recovered)
    yield from (Say(f"Note: {note}") for note in found.notes)


def title(found: Patch) -> str:
    """Return what is shown, as a heading."""
    (token,) = as_text((found.tokens[1][found.place],))
    where = f'{"in place of" if found.fills else "after"} "{token}"'
    return f"What brings back {quoted(found.target)} over {quoted(found.against)}, {where}"


def maps(found: Patch) -> dict[str, Matrix]:
    """Return the maps by their names: shares, or differences where there are no shares."""
    made = {}
    for part, values in (found.recovered or found.maps).items():
        name, (layers, width) = part.replace("_", " "), values.shape
        columns, corner = [*map(str, range(width))], f"layer\\{TITLES[name][1]}"
        made[name] = Matrix(
            [*map(str, range(layers))], tokens(found) if part == "residual" else columns, values, corner,
            shaded=True, is_difference=True,
        )  # fmt: skip
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
    names, stream = tokens(found), shares["residual"]
    best = stream.argmax(axis=1).tolist()
    sites = []
    for place, group in groupby(range(len(best)), best.__getitem__):
        layers = [*group]
        ends = layers if len(layers) == 1 else [layers[0], layers[-1]]
        where, most = " to ".join(map(str, ends)), " to ".join(SHARE(float(stream[n, place])) for n in ends)
        sites.append(f'with "{names[place]}" before {"layers" if ends[1:] else "layer"} {where} ({most})')
    heads = []
    for name in [*shares][1:]:
        layer, head = divmod(int(np.nanargmax(shares[name])), shares[name].shape[1])
        called = found.names[layer][head]
        who = f"{'cross' if name == 'cross_heads' else 'head'} {layer}.{head}"
        who += "" if called.isdigit() else f" ({called})"
        heads.append(f"{who} ({SHARE(float(shares[name][layer, head]))})")
    yield Say(f"Most comes back {', '.join(sites[:MOST_SITES])}; of the heads, with {' and '.join(heads)}.")
    layer = len(stream) // 2
    place = best[layer]
    patched = float(found.maps["residual"][layer, place])
    numbers = found.corrupt, patched, found.clean, patched - found.corrupt, found.clean - found.corrupt
    corrupt, after, clean, back, gap = (signed(one, _digits(found)) for one in numbers)
    yield Say(
        f'By hand: corrupt {corrupt}, with "{names[place]}" before layer {layer} {after}, clean {clean}. '
        f"{back} of {gap} comes back: {SHARE(float(stream[layer, place]))}."
    )


def _digits(found: Patch) -> int:
    """Return the decimals that show how far apart the two differences are."""
    gap = abs(found.clean - found.corrupt)
    return max(3, 2 - math.floor(math.log10(gap))) if gap else 3
