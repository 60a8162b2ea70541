"""The screen of attn heads: small maps of all layers and heads, what each does, and the clearest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.escape import count, fixed, visible
from attn_cli.render.blocks import Block, Columns, Heading, Links, Maps, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.shade_scale import weight_range
from attn_cli.trace.head_roles import BAG, LEAD, MIN_GAIN, MIN_ROWS, MIN_UNIFORM_OVERLAP, MIXED, PATTERNS

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.every_head import EveryHead, LayerRoles, MapSize
    from attn_cli.settings.output import View
    from attn_cli.trace.head_roles import Role

# The name on the screen, the letter above a small map, what the pattern is.
WORDS = {
    "previous": ("previous token", "P", "the token before"),
    "next": ("next token", "N", "the token after"),
    "itself": ("itself", "I", "the token's own place"),
    "first": ("first token", "F", "the text's first token (a sink)"),
    "separators": ("separators", "S", "punctuation, and [SEP] or </s>"),
    "same": ("same token", "=", "another occurrence of the same token"),
    "induction": ("induction", ">", "the token after an earlier occurrence of the same one"),
    BAG: (
        "bag of words",
        "B",
        f"nearly uniform: at least {MIN_UNIFORM_OVERLAP:.0%} of the weight overlaps with a uniform distribution",
    ),
    MIXED: ("mixed", "", "none of these clearly"),
}
WIDTH, EDGE, APART = 80, 4, 1  # of a screen whose width nobody knows; of layers' numbers; between maps
NARROW, HIGH = 5, 16  # the fewest columns of a small map; the most rows of one among several layers'
MAX_MAP_SIDE = 64  # rows and columns of a small map in a figure, or of one layer
LISTED = 12
MOST_ROLLED = 64  # tokens of a rollout that a screen shows
KINDS = {"self": "Self-attention", "masked": "Masked self-attention", "cross": "Cross-attention"}


def map_size(view: View, one_layer: bool = False) -> MapSize:
    """Return the function that says how many blocks down and across a small map has, so that a layer is one line.

    There is a cell for each weight where the width has room for it; the maps of several layers are less high.
    """
    return partial(_map_size, view.width or WIDTH, MAX_MAP_SIDE if one_layer else HIGH)


def whole_maps(heads: int, n_q: int, n_k: int) -> tuple[int, int]:
    """Return how many blocks down and across a map has in a figure: a cell for each weight, where it can be seen."""
    return min(n_q, MAX_MAP_SIDE), min(n_k, MAX_MAP_SIDE)


def _room(width: int, heads: int) -> int:
    """Return how many cells a map has, where as many as there are heads stand on a line."""
    return max(NARROW, (width - EDGE) // heads - APART)


def _map_size(width: int, high: int, heads: int, n_q: int, n_k: int) -> tuple[int, int]:
    across = min(n_k, MAX_MAP_SIDE, _room(width, heads))
    return min(n_q, high, n_q if across == n_k else across), across


def heads_screen(found: EveryHead, view: View) -> Iterator[Block]:
    """Yield the screen: the maps, or a table where a format has no small maps, the clearest heads, the rollout."""
    source, layers = found.source, found.layers
    heads = sum(len(layer.heads) for layer in layers)
    yield Heading(f"{KINDS[source.kind]}: {_counted(layers)}, {_size(found)}", 1)
    if view.format not in ("markdown", "latex"):
        yield _maps(layers, view)
        yield from _map_notes(found, view)
    yield from _about_names(found)
    if len(layers) == 1 or view.format in ("markdown", "latex"):
        yield Heading("The share of attention that goes to each pattern", 2)
        yield from _shares(layers)
    yield from _clearest(found, heads)
    if found.rollout is not None:
        yield from _rollout(found, found.rollout)
    yield Say(f"Weights of {source.name}.")
    yield from (Say(f"Note: {note}") for note in found.notes)


def _counted(layers: Sequence[LayerRoles]) -> str:
    heads = count(len(layers[0].heads), "head", "heads")
    if len(layers) == 1:
        return f"layer {layers[0].number}, {heads}"
    return f"{len(layers)} layers x {heads}"


def _size(found: EveryHead) -> str:
    n_q, n_k = len(found.source.query_tokens), len(found.source.key_tokens)
    if found.source.text.is_one:
        return count(n_q, "token", "tokens")
    return f"{count(n_q, 'query', 'queries')} x {count(n_k, 'key', 'keys')}"


def _maps(layers: Sequence[LayerRoles], view: View) -> Maps:
    values = [one for layer in layers for one in layer.maps]
    known = np.concatenate([one[~np.isnan(one)] for one in values])
    rows, columns = values[0].shape
    scale = weight_range(
        float(known.min(initial=1)), float(known.max(initial=0)), float(known.mean()) if known.size else 0
    )
    is_page = view.format == "html"
    room = _room(view.width or WIDTH, len(layers[0].heads))
    bands = [f"{layer.number:>{EDGE - 2}}" for layer in layers]
    bands[0] = bands[0] if len(layers) > 1 else str(layers[0].number)
    names = [
        f"Layer {layer.number}, head {head}: {WORDS[role.name][0]}" if is_page else _brief(head, role, room)
        for layer in layers
        for head, role in zip(layer.heads, layer.roles, strict=True)
    ]
    numbers = [range(rows), range(columns)]
    return Maps(
        names, [""] * rows, [""] * columns, values, scale, list(numbers[0]), list(numbers[1]), bands=bands
    )


def _brief(head: str, role: Role, room: int) -> str:
    """Return a head's name with what it does, in words where there is room, else as a letter."""
    full = _full(head, role)
    return full if len(full) <= room else f"{head} {WORDS[role.name][1]}".rstrip()


def _full(head: str, role: Role) -> str:
    return f"{head} {WORDS[role.name][0]}"


def _map_notes(found: EveryHead, view: View) -> Iterator[Block]:
    room = _room(view.width or WIDTH, len(found.layers[0].heads))
    used = {
        role.name
        for layer in found.layers
        for head, role in zip(layer.heads, layer.roles, strict=True)
        if _brief(head, role, room) != _full(head, role)
    }
    letters = [f"{letter} {words}" for name, (words, letter, _) in WORDS.items() if letter and name in used]
    yield Say("Layers from the words up; rows are queries, columns are keys.", quiet=True)
    if letters and view.format != "html":
        yield Say(f"{', '.join(letters)}.", quiet=True)
    rows, columns = found.layers[0].maps[0].shape
    n_q, n_k = len(found.source.query_tokens), len(found.source.key_tokens)
    if (rows, columns) != (n_q, n_k):
        down, across = _per_cell(n_q, rows, "query", "queries"), _per_cell(n_k, columns, "key", "keys")
        yield Say(f"A cell is the mean weight of {down} x {across}.", quiet=True)


def _about_names(found: EveryHead) -> Iterator[Block]:
    """Yield which names are the model's own, where its heads have names and no mere numbers."""
    own = next((head for layer in found.layers for head in layer.heads if not head.isdigit()), None)
    if own is not None:
        yield Say(
            f"Names such as {visible(own)} come with {found.source.name}; what a head does on this text stands "
            f"after its name ({MIXED} or no word: nothing clearly).",
            quiet=True,
        )


def _per_cell(n: int, blocks: int, one: str, many: str) -> str:
    least, most = n // blocks, -(-n // blocks)
    return count(most, one, many) if least == most else f"{least:,} or {count(most, one, many)}"


def _shares(layers: Sequence[LayerRoles]) -> Iterator[Block]:
    shown = (*PATTERNS, BAG)
    header = ["head", *(WORDS[name][0] for name in shown), "entropy", "does"]
    for layer in layers:
        if len(layers) > 1:
            yield Heading(f"Layer {layer.number}", 3)
        rows = [
            [
                head,
                *(_written(role.shares[name]) for name in shown),
                _written(role.entropy),
                WORDS[role.name][0],
            ]
            for head, role in zip(layer.heads, layer.roles, strict=True)
        ]
        even = [layer.patterns[name].even for name in PATTERNS]
        rows.append(["if even", *map(_written, even), "1.00", "", ""])
        yield Columns(header, rows)


def _written(value: float | None) -> str:
    return "-" if value is None else fixed(value, 2)


def _clearest(found: EveryHead, heads: int) -> Iterator[Block]:
    from attn_cli.pipeline.every_head import named_heads

    named = named_heads(found)
    patterns = {layer.number: layer.patterns for layer in found.layers}
    rows = [
        (
            str(layer),
            head,
            WORDS[role.name][0],
            share(role.share or 0.0),
            f"{int(patterns[layer][role.name].rows.sum()):,}",
        )
        for layer, head, role in named
        if role.name != BAG
    ]
    if rows:
        yield Heading("The clearest heads", 2)
        yield Columns(("layer", "head", "does", "share", "rows"), rows[:LISTED])
    yield Heading("All heads by what they do, as layer.head", 2)
    by_role = [
        (
            name,
            [
                (f"{layer}.{head}", share(role.share or 0.0))
                for layer, head, role in named
                if role.name == name
            ],
        )
        for name in WORDS
    ]
    if named:
        yield Links([(name, links) for name, links in by_role if links])
    mixed = heads - len(named)
    yield Say(f"{mixed:,} of {count(heads, 'head is', 'heads are')} mixed." if mixed else "No head is mixed.")
    yield Say("")
    for name in (name for name in WORDS if any(role.name == name for _, _, role in named)):
        yield Say(f"{WORDS[name][0]}: {WORDS[name][2]}.", quiet=True)
    yield Say(
        "A share is the mean weight that goes there, over the rows where that is possible. A head is named if its "
        f"largest share covers at least {MIN_GAIN:.0%} of the gap between a uniform head's share and 1, leads the next "
        f"by {LEAD:.2f}, and can occur in at least {MIN_ROWS} rows.",
        quiet=True,
    )


def _rollout(found: EveryHead, rollout: Array) -> Iterator[Block]:
    last = found.layers[-1].number
    yield Heading(f"Attention rollout over the layers up to {last}", 2)
    yield Say("Each layer: half the mean of its heads, half the token itself; multiplied from the words up.")
    tokens = found.source.query_tokens
    if len(tokens) > MOST_ROLLED:
        yield Say(f"It is {len(tokens):,} x {len(tokens):,}: -f json has it.")
        return
    yield Matrix(
        tokens,
        tokens,
        rollout,
        "query\\key",
        is_weights=True,
        shaded=True,
        row_numbers=list(range(len(tokens))),
    )
