"""The screen of attn heads: small maps of all layers and heads, what each does, and the clearest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

OVERLAPS = f"at least {MIN_UNIFORM_OVERLAP:.0%} of the weight overlaps with a uniform distribution"
# The name on the screen, the letter above a small map, what the pattern is.
WORDS = {
    "previous": ("previous token", "P", "the token before"),
    "next": ("next token", "N", "the token after"),
    "itself": ("itself", "I", "the token's own place"),
    "first": ("first token", "F", "the text's first token (a sink)"),
    "separators": ("separators", "S", "punctuation, and [SEP] or </s>"),
    "same": ("same token", "=", "another occurrence of the same token"),
    "induction": ("induction", ">", "the token after an earlier occurrence of the same one"),
    BAG: ("bag of words", "B", f"nearly uniform: {OVERLAPS}"),
    MIXED: ("mixed", "", "none of these clearly"),
}
WIDTH, EDGE, APART = 80, 4, 1  # of a screen of unknown width; of layers' numbers; between maps
NARROW, HIGH = 5, 16  # the fewest columns of a small map; the most rows of one among several layers'
MAX_MAP_SIDE = 64  # rows and columns of a small map in a figure, or of one layer
LISTED = 12
MOST_ROLLED = 64  # tokens of a rollout that a screen shows
KINDS = {"self": "Self-attention", "masked": "Masked self-attention", "cross": "Cross-attention"}


def map_size(view: View, one_layer: bool = False) -> MapSize:
    """Return the function that says how many blocks down and across a small map has, so that a layer is one line.

    There is a cell for each weight where the width has room for it, and in a figure; the maps of several layers are
    less high.
    """

    def of_heads(heads: int, n_q: int, n_k: int) -> tuple[int, int]:
        if view.figure is not None:
            return min(n_q, MAX_MAP_SIDE), min(n_k, MAX_MAP_SIDE)
        across = min(n_k, MAX_MAP_SIDE, _room(view, heads))
        return min(n_q, MAX_MAP_SIDE if one_layer else HIGH, n_q if across == n_k else across), across

    return of_heads


def _room(view: View, heads: int) -> int:
    """Return how many cells a map has, where as many as there are heads stand on a line."""
    return max(NARROW, ((view.width or WIDTH) - EDGE) // heads - APART)


def heads_screen(found: EveryHead, view: View) -> Iterator[Block]:
    """Yield the screen: the maps, or a table where a format has no small maps, the clearest heads, the rollout."""
    source, layers = found.source, found.layers
    n_q, n_k = len(source.query_tokens), len(source.key_tokens)
    size = f"{count(n_q, 'query', 'queries')} x {count(n_k, 'key', 'keys')}"
    size = count(n_q, "token", "tokens") if source.text.is_one else size
    heads = count(len(layers[0].heads), "head", "heads")
    which = f"{len(layers)} layers x {heads}" if len(layers) > 1 else f"layer {layers[0].number}, {heads}"
    yield Heading(f"{KINDS[source.kind]}: {which}, {size}", 1)
    has_maps = view.format not in ("markdown", "latex")
    if has_maps:
        yield from _maps(found, view)
    own = next((head for layer in layers for head in layer.heads if not head.isdigit()), None)
    if own is not None:
        yield Say(
            f"Names such as {visible(own)} come with {source.name}; what a head does on this text stands after its "
            f"name ({MIXED} or no word: nothing clearly).",
            quiet=True,
        )
    if len(layers) == 1 or not has_maps:
        yield Heading("The share of attention that goes to each pattern", 2)
        yield from _shares(layers)
    yield from _clearest(found)
    if found.rollout is not None:
        yield from _rollout(found, found.rollout)
    yield Say(f"Weights of {source.name}.")
    yield from (Say(f"Note: {note}") for note in found.notes)


def _maps(found: EveryHead, view: View) -> Iterator[Block]:
    """Yield a small map of each head, named by what it does, in words or where there is no room by a letter."""
    layers, is_page = found.layers, view.format == "html"
    values = [one for layer in layers for one in layer.maps]
    known = np.concatenate([one[~np.isnan(one)] for one in values])
    mean = float(known.mean()) if known.size else 0
    scale = weight_range(float(known.min(initial=1)), float(known.max(initial=0)), mean)
    rows, columns = values[0].shape
    room, names, used = _room(view, len(layers[0].heads)), [], set[str]()
    for layer in layers:
        for head, role in zip(layer.heads, layer.roles, strict=True):
            words, letter, _ = WORDS[role.name]
            name = f"{head} {words}"
            if len(name) > room:
                used.add(role.name)
                name = f"{head} {letter}".rstrip()
            names.append(f"Layer {layer.number}, head {head}: {words}" if is_page else name)
    bands = [f"{layer.number:>{EDGE - 2}}" if len(layers) > 1 else str(layer.number) for layer in layers]
    numbers, blank = (list(range(rows)), list(range(columns))), ([""] * rows, [""] * columns)
    yield Maps(names, *blank, values, scale, *numbers, bands=bands)
    yield Say("Layers from the words up; rows are queries, columns are keys.", quiet=True)
    letters = [f"{letter} {words}" for name, (words, letter, _) in WORDS.items() if letter and name in used]
    if letters and not is_page:
        yield Say(f"{', '.join(letters)}.", quiet=True)
    n_q, n_k = len(found.source.query_tokens), len(found.source.key_tokens)
    if (rows, columns) != (n_q, n_k):
        down, across = _per_cell(n_q, rows, "query", "queries"), _per_cell(n_k, columns, "key", "keys")
        yield Say(f"A cell is the mean weight of {down} x {across}.", quiet=True)


def _per_cell(n: int, blocks: int, one: str, many: str) -> str:
    least, most = n // blocks, -(-n // blocks)
    return count(most, one, many) if least == most else f"{least:,} or {count(most, one, many)}"


def _shares(layers: Sequence[LayerRoles]) -> Iterator[Block]:
    header = ["head", *(WORDS[name][0] for name in (*PATTERNS, BAG)), "entropy", "does"]
    for layer in layers:
        if len(layers) > 1:
            yield Heading(f"Layer {layer.number}", 3)
        rows = []
        for head, role in zip(layer.heads, layer.roles, strict=True):
            shares = [*(role.shares[name] for name in (*PATTERNS, BAG)), role.entropy]
            rows.append([head, *("-" if x is None else fixed(x, 2) for x in shares), WORDS[role.name][0]])
        even = [layer.patterns[name].even for name in PATTERNS]
        written = ["-" if x is None else fixed(x, 2) for x in even]
        yield Columns(header, [*rows, ["if even", *written, "1.00", "", ""]])


def _clearest(found: EveryHead) -> Iterator[Block]:
    from attn_cli.pipeline.every_head import named_heads

    named = named_heads(found)
    patterns = {layer.number: layer.patterns for layer in found.layers}
    rows: list[list[str]] = []
    by_role: dict[str, list[tuple[str, str]]] = {name: [] for name in WORDS}
    for layer, head, role in named:
        does, weight = WORDS[role.name][0], share(role.share or 0.0)
        by_role[role.name].append((f"{layer}.{head}", weight))
        if role.name != BAG:
            rows.append([str(layer), head, does, weight, f"{int(patterns[layer][role.name].rows.sum()):,}"])
    if rows:
        yield Heading("The clearest heads", 2)
        yield Columns(("layer", "head", "does", "share", "rows"), rows[:LISTED])
    yield Heading("All heads by what they do, as layer.head", 2)
    links = [(name, heads) for name, heads in by_role.items() if heads]
    if links:
        yield Links(links)
    total = sum(len(layer.heads) for layer in found.layers)
    are = f"{total - len(named):,} of {count(total, 'head is', 'heads are')}"
    yield Say(f"{are} mixed." if total > len(named) else "No head is mixed.")
    yield Say("")
    yield from (Say(f"{WORDS[name][0]}: {WORDS[name][2]}.", quiet=True) for name, _ in links)
    yield Say(
        "A share is the mean weight that goes there, over the rows where that is possible. A head is named if its "
        f"largest share covers at least {MIN_GAIN:.0%} of the gap between a uniform head's share and 1, leads the next "
        f"by {LEAD:.2f}, and can occur in at least {MIN_ROWS} rows.",
        quiet=True,
    )


def _rollout(found: EveryHead, rollout: Array) -> Iterator[Block]:
    yield Heading(f"Attention rollout over the layers up to {found.layers[-1].number}", 2)
    yield Say("Each layer: half the mean of its heads, half the token itself; multiplied from the words up.")
    tokens, n = found.source.query_tokens, len(found.source.query_tokens)
    if n > MOST_ROLLED:
        yield Say(f"It is {n:,} x {n:,}: -f json has it.")
        return
    matrix = Matrix(tokens, tokens, rollout, "query\\key", is_weights=True, shaded=True)
    yield matrix._replace(row_numbers=list(range(n)))
