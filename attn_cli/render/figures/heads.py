"""All heads, or all layers and heads, as small heat maps that share one scale of shades."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np

from attn_cli.errors import count, refuse
from attn_cli.pipeline.every_head import EveryHead
from attn_cli.render.blocks import Maps, ShadeRange
from attn_cli.render.figures.cells import Key, draw_cells
from attn_cli.render.figures.pen import EDGE, GAP, LEAST_FONT, ROW, SMALL, Pen, font_of
from attn_cli.render.figures.sheet import Box, Drawing, Frame, Plan, Sheet, refuse_top
from attn_cli.render.ramps import FULL, legend
from attn_cli.render.views import overview, wording
from attn_cli.render.views.heads import KINDS, WORDS
from attn_cli.settings.output import View
from attn_cli.settings.settings import NORM
from attn_cli.text.wordpieces import as_text
from attn_cli.trace.trace import Trace

MOST_ACROSS = 6
LARGEST_MAP, LEAST_MAP, ACROSS = 2.0, 0.75, 13.0  # inches of a map; of all of them beside each other
WIDEST_CELL, BETWEEN, NARROWEST = 0.3, 0.16, 3.4
LEAST_FITTED = 0.25  # inches of a map in a given size


def heads(trace: Trace, view: View) -> Drawing:
    """Return every head's weights."""
    refuse_top(trace, "heads")
    what = "There are too many weights for a figure of all heads."
    refuse(trace.condensed, what, "Give fewer tokens.", "--figure")
    all_heads, hint = len(trace.head_names), 'Compute all of them: --head all, or Settings(head="all").'
    refuse(len(trace.heads) < all_heads, f"One head of {all_heads} was computed.", hint, "--head")
    names = [f"head {head.name}" if head.name.isdigit() else head.name for head in trace.heads]
    values = [trace.visible_weights(head) for head in trace.heads]
    most = [float(np.nan_to_num(one).max()) for one in values]
    largest = max(overview.largest_weight(trace, trace.listed), *most)
    scale = FULL if view.shades == "full" else ShadeRange(0.0, largest)
    queries = [trace.query_tokens[i] for i in trace.listed]
    layers = list(dict.fromkeys(head.layer for head in trace.heads)) if trace.has_layers else []
    is_norms, of = trace.drawn == NORM, (names, queries, trace.key_tokens, values, scale, list(trace.listed))
    maps = Maps(*of, is_weights=not is_norms, is_norms=is_norms)
    each = count(len(names), "head", "heads")
    across = min(MOST_ACROSS, math.ceil(math.sqrt(len(names) * 1.5)))
    if layers:
        sizes = set(Counter(head.layer for head in trace.heads).values())
        what = f"The layers have {min(sizes)} and {max(sizes)} heads: they do not fit on one map."
        refuse(len(sizes) > 1, what, "Draw one of them: --layer 0.", "--layer")
        maps, across = maps._replace(bands=[f"layer {layer}" for layer in layers]), len(names) // len(layers)
        each = f"{count(across, 'head', 'heads')} in each of {count(len(layers), 'layer', 'layers')}"
    return _multiples(f"{wording.kind_of(trace)}, {each}", maps, across, trace.drawn)


def every_head(found: EveryHead, view: View) -> Drawing:
    """Return all layers and heads, a line for each layer, each named by what it does."""
    heads, values = len(found.layers[0].heads), [one for layer in found.layers for one in layer.maps]
    named = [one for layer in found.layers for one in zip(layer.heads, layer.roles, strict=True)]
    names = [f"{head} {WORDS[role.name][0]}" for head, role in named]
    rows, columns = values[0].shape
    queries, keys = as_text(found.source.query_tokens), as_text(found.source.key_tokens)
    has_tokens = (rows, columns) == (len(queries), len(keys))
    queries, keys = (queries, keys) if has_tokens else ((), ())
    most = max(float(np.nan_to_num(one).max(initial=0.0)) for one in values)
    scale = FULL if view.shades == "full" else ShadeRange(0.0, most)
    bands = [f"layer {layer.number}" for layer in found.layers]
    maps = Maps(names, queries, keys, values, scale, list(range(rows)), is_weights=has_tokens, bands=bands)
    layers = count(len(found.layers), "layer", "layers")
    title = f"{KINDS[found.source.kind]}: {layers}, {count(heads, 'head', 'heads')} each"
    return _multiples(title, maps, heads, "weight" if has_tokens else "mean weight")


def _multiples(title: str, maps: Maps, across: int, measure: str) -> Drawing:
    """Return small maps, so many across, each line of them with a band's name at its left or none."""
    rows, columns = maps.values[0].shape
    most, key = max(rows, columns), Key(measure, legend(maps))
    cell = min(WIDEST_CELL, min(LARGEST_MAP, max(LEAST_MAP, ACROSS / across)) / most)
    cells, least = (across * columns, math.ceil(len(maps.names) / across) * rows), LEAST_FITTED / most

    def plan(frame: Frame) -> Plan:
        return frame.fitted(partial(_placed, maps, across, frame, key), cell, cells, least, least)

    return Drawing(title, [*maps.rows, *maps.columns], plan)


def _placed(maps: Maps, across: int, frame: Frame, key: Key, cell: float) -> Plan:
    """Return where everything stands with cells of so many inches; a given size may cut the bar of shades short."""
    pen, (rows, columns) = frame.pen, maps.values[0].shape
    wide, high = columns * cell, rows * cell
    beside = below = None
    if maps.rows and font_of(cell) >= LEAST_FONT:
        beside, below = (pen.rows(tokens, cell) for tokens in (maps.rows, maps.columns))
    left = EDGE + (beside.extent if beside else 0.0)
    left += max((pen.width(band, SMALL, "bold") + 2 * GAP for band in maps.bands), default=0.0)
    right = left + across * (wide + BETWEEN) + GAP
    width = max(right + key.width(pen) + EDGE, 0.0 if frame.size else NARROWEST)
    top, foot = frame.top(width), below.extent if below else 0.0
    height = top + math.ceil(len(maps.names) / across) * (ROW + high + BETWEEN) - BETWEEN + foot + EDGE
    least = 0.0 if frame.size else top + ROW + key.height() + EDGE

    def draw(sheet: Sheet) -> None:
        spare = max(0.0, sheet.width - width) / 2
        for n in range(len(maps.names)):
            line, place = divmod(n, across)
            x, y = spare + left + place * (wide + BETWEEN), top + line * (ROW + high + BETWEEN) + ROW
            draw_cells(sheet, maps.values[n], maps.scale, Box(x, y, wide, high))
            sheet.text(x, y - ROW / 2, _cut(pen, maps.names[n], wide), SMALL)
            if beside is not None and place == 0:
                sheet.rows(beside, x - GAP, y)
            if below is not None and n + across >= len(maps.names):
                for j in below.places():
                    at = x + (j + 0.5) * below.pitch
                    sheet.text(at, y + high + GAP, below.texts[j], below.font, "right", turned=90)
            if place == 0 and maps.bands:
                sheet.text(spare + EDGE, y + high / 2, maps.bands[line], SMALL, weight="bold")
        room = sheet.height - EDGE - (top + ROW)
        key.draw(sheet, spare + right, top + ROW, max(high, min(key.height(), room)))

    return Plan(width, max(height, least), draw)


def _cut(pen: Pen, name: str, width: float) -> str:
    name, most = pen.drawable(name), width + BETWEEN / 2
    if pen.width(name, SMALL) <= most:
        return name
    cuts = [f"{name[:n]}…" for n in range(len(name), 0, -1)]
    return next((cut for cut in cuts if pen.width(cut, SMALL) <= most), cuts[-1])
