"""Links: two columns of tokens, joined by lines that are as wide as the weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attn_cli.io.array_types import Array
from attn_cli.render.figures.pen import EDGE, GAP, INCH, LINE, SMALL, Pen, on_paper
from attn_cli.render.figures.sheet import (
    Area,
    Drawing,
    Plan,
    Sheet,
    check_room,
    head_title,
    refuse_long,
    row_pitch,
)
from attn_cli.render.numbers import share
from attn_cli.render.palette import SHADES, strong
from attn_cli.render.views.wording import kind_of
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

HIGHEST_ROW = 0.36  # inches
LEAST_SPAN, LARGEST_SPAN, NARROWEST = 2.4, 6.0, 4.2  # of the lines, across; of the figure
LABEL = 0.3  # of a given width, for either column of tokens
LEAST_FITTED = 0.5  # of the lines, across and down, in a given size
WIDEST, FAINTEST = 9.0, 0.06  # points of the widest line, and of the thinnest that is drawn
SAMPLES = (1.0, 0.5, 0.25)  # of the widest line, below the figure
SAMPLE, ROW = 0.45, LINE * SMALL / INCH


class _Linked(NamedTuple):
    """Queries and keys, and the weights (rows, keys) of some queries; NaN is a link that is not there."""

    queries: Sequence[str]
    keys: Sequence[str]
    rows: Sequence[int]  # the queries whose links are drawn
    weights: Array
    most: float  # the weight of the widest line
    has_masked: bool


def links(trace: Trace, view: View) -> Drawing:
    """Return the links of the listed queries, with --top the strongest of each."""
    refuse_long("links", len(trace.query_tokens), len(trace.key_tokens))
    weights = trace.visible_weights(trace.shown)
    has_masked = bool(np.isnan(weights).any())
    if (top := trace.settings.top) is not None and top < weights.shape[1]:
        least = -np.sort(-np.nan_to_num(weights), axis=1)[:, top - 1 : top]
        weights = np.where(weights >= least, weights, np.nan)
    most = 1.0 if view.shades == "full" else float(np.nan_to_num(weights).max(initial=0.0)) or 1.0
    shown = _Linked(trace.query_tokens, trace.key_tokens, trace.listed, weights, most, has_masked)
    title = f"{kind_of(trace)}{head_title(trace, trace.shown)}"
    return Drawing(title, [*shown.queries, *shown.keys], partial(_plan, shown))


def _plan(of: _Linked, title: str, pen: Pen, area: Area | None) -> Plan:
    n = max(len(of.queries), len(of.keys))
    below = 2 * GAP + 2 * ROW + EDGE
    pitch = row_pitch(n, (LEAST_FITTED / n, HIGHEST_ROW), area, pen, title, ROW + 2 * GAP + below)
    least, most = pen.width("query", SMALL), area and LABEL * area.width
    queries, keys = (pen.rows(tokens, pitch, least, most) for tokens in (of.queries, of.keys))
    labels = queries.extent + keys.extent + 2 * EDGE
    width = area.width if area else max(labels + min(LARGEST_SPAN, LEAST_SPAN + 0.04 * n), NARROWEST)
    check_room(area, width - labels >= LEAST_FITTED)
    lines, top = pen.headed(title, width)
    top = top + ROW + 2 * GAP
    left = EDGE + queries.extent
    right = left + (width - labels)
    bottom = top + n * pitch
    full = min(WIDEST, max(pitch * INCH * 0.8, 1.0))  # points of the widest line

    def draw(sheet: Sheet) -> None:
        for x, name, align in ((left, "query", "right"), (right, "key", "left")):
            sheet.text(x, top - ROW / 2 - GAP, name, SMALL, align, color=pen.faint)
        sheet.rows(queries, left - GAP, top, faint=set(range(len(of.queries))) - {*of.rows})
        sheet.rows(keys, right + GAP, top, "left")
        heights = [top + (np.arange(len(side)) + 0.5) * pitch for side in (of.queries, of.keys)]
        thinnest = of.most * FAINTEST / full
        _draw_lines(of, sheet, (left, right), heights, full, thinnest)
        _draw_samples(of, sheet, bottom + 2 * GAP + ROW / 2, full, thinnest)
        sheet.note_step(queries.step, "token")

    return Plan(lines, width, bottom + below, draw)


def _draw_lines(
    of: _Linked,
    sheet: Sheet,
    sides: tuple[float, float],
    heights: Sequence[Array],
    full: float,
    thinnest: float,
) -> None:
    """Draw the lines, the widest last, and none for a weight below the thinnest."""
    from matplotlib.collections import LineCollection

    rows, keys = np.nonzero(np.nan_to_num(of.weights) >= max(thinnest, 1e-300))
    order = np.argsort(of.weights[rows, keys], kind="stable")
    rows, keys = rows[order], keys[order]
    weights = of.weights[rows, keys] / of.most
    ends = heights[0][np.asarray(of.rows)[rows]], heights[1][keys]
    lines = np.stack([np.stack([np.full(len(y), x), y], -1) for x, y in zip(sides, ends, strict=True)], 1)
    colors = np.array([on_paper(rgb) for rgb in strong(sheet.pen.palette)])
    shades = colors[(weights * (SHADES - 1)).astype(int).clip(0, SHADES - 1)]
    drawn = LineCollection(list(lines), linewidths=weights * full, colors=shades, capstyle="butt")
    sheet.axes.add_collection(drawn, autolim=False)


def _draw_samples(of: _Linked, sheet: Sheet, y: float, full: float, thinnest: float) -> None:
    """Draw a few lines with their weights, and say what has none."""
    sheet.text(EDGE, y, "weight", SMALL)
    x = EDGE + sheet.pen.width("weight", SMALL) + 2 * GAP
    colors = strong(sheet.pen.palette)
    for part in SAMPLES:
        text = share(part * of.most)
        wide = sheet.pen.width(text, SMALL)
        if x + SAMPLE + GAP + wide > sheet.width:
            break
        color, width = on_paper(colors[int(part * (SHADES - 1))]), part * full
        sheet.axes.plot([x, x + SAMPLE], [y, y], color=color, linewidth=width, solid_capstyle="butt")
        sheet.text(x + SAMPLE + GAP, y, text, SMALL)
        x += SAMPLE + GAP + wide + 2 * GAP
    said = ["Masked links have no line."] if of.has_masked else []
    if (np.nan_to_num(of.weights, nan=np.inf) < thinnest).any():
        said.append(f"Weights below {share(thinnest)} are not drawn.")
    sheet.text(EDGE, y + 1.2 * ROW, " ".join(said), SMALL, color=sheet.pen.faint)
