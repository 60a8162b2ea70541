"""Links: two columns of tokens, joined by lines that are as wide as the weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.render.figures.pen import INCH, LINE, Pen, on_paper
from attn_cli.render.figures.sheet import (
    EDGE,
    GAP,
    SMALL,
    Area,
    Labels,
    Sheet,
    draw_rows,
    note_step,
    row_labels,
    title_height,
    title_lines,
    too_small,
)
from attn_cli.render.numbers import share
from attn_cli.render.palette import SHADES

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

HIGHEST_ROW, LEAST_ROW, WANTED, LONGEST = 0.36, 0.085, 8.0, 17.0  # inches
LEAST_SPAN, LARGEST_SPAN, NARROWEST = 2.4, 6.0, 4.2  # of the lines, across; of the figure
LABEL = 0.3  # of a given width, for either column of tokens
LEAST_FITTED = 0.5  # of the lines, across and down, in a given size
WIDEST, FAINTEST = 9.0, 0.06  # points of the widest line, and of the thinnest that is drawn
SAMPLES = (1.0, 0.5, 0.25)  # of the widest line, below the figure
SAMPLE, ROW = 0.45, LINE * SMALL / INCH


class Linked(NamedTuple):
    """Queries and keys, and the weights (rows, keys) of some queries; NaN is a link that is not there."""

    title: str
    queries: Sequence[str]
    keys: Sequence[str]
    rows: Sequence[int]  # the queries whose links are drawn
    weights: Array
    most: float  # the weight of the widest line
    has_masked: bool

    def texts(self) -> Iterable[str]:
        """Return the tokens of both columns."""
        return [*self.queries, *self.keys]

    def plan(self, pen: Pen, area: Area) -> _Plan:
        """Return where everything stands."""
        return _plan(self, pen, area)

    def draw(self, sheet: Sheet, plan: _Plan) -> None:
        """Draw both columns, the lines between them, and what their widths mean."""
        left, right = plan.left, plan.left + plan.span
        for x, name, align in ((left, "query", "right"), (right, "key", "left")):
            sheet.text(x, plan.top - ROW / 2 - GAP, name, SMALL, align, color=sheet.pen.faint)
        draw_rows(
            sheet, plan.queries, left - GAP, plan.top, faint=set(range(len(self.queries))) - {*self.rows}
        )
        draw_rows(sheet, plan.keys, right + GAP, plan.top, "left")
        thinnest = _draw_lines(self, sheet, plan)
        _draw_samples(self, sheet, plan, thinnest)
        note_step(sheet, plan.queries.step, "token")


class _Plan(NamedTuple):
    queries: Labels
    keys: Labels
    left: float
    span: float
    top: float
    bottom: float
    full: float  # points of the widest line
    title: Sequence[str]
    width: float
    height: float


def _plan(of: Linked, pen: Pen, area: Area) -> _Plan:
    """Return where everything stands."""
    n = max(len(of.queries), len(of.keys))
    natural = min(HIGHEST_ROW, max(WANTED / n, LEAST_ROW), LONGEST / n)
    pitch = natural
    for _ in range(2):  # the title may break differently once the width is known
        least, most = pen.width("query", SMALL), LABEL * area.width if area.width else None
        queries = row_labels(pen, [pen.shown(token) for token in of.queries], pitch, least, most)
        keys = row_labels(pen, [pen.shown(token) for token in of.keys], pitch, least, most)
        labels = queries.extent + keys.extent + 2 * EDGE
        span = min(LARGEST_SPAN, LEAST_SPAN + 0.04 * n)
        width = area.width or max(labels + span, NARROWEST)
        span = width - labels
        if span < LEAST_FITTED:
            raise too_small(area)
        title = title_lines(pen, of.title, width)
        top = EDGE + title_height(title) + ROW + 2 * GAP
        below = 2 * GAP + 2 * ROW + EDGE
        if area.height is not None:
            pitch = (area.height - top - below) / n
            if pitch * n < LEAST_FITTED:
                raise too_small(area)
    bottom = top + n * pitch
    full = min(WIDEST, max(pitch * INCH * 0.8, 1.0))
    return _Plan(queries, keys, EDGE + queries.extent, span, top, bottom, full, title, width, bottom + below)


def _draw_lines(of: Linked, sheet: Sheet, plan: _Plan) -> float:
    """Draw the lines, the widest last; return the weight below which none is drawn."""
    from matplotlib.collections import LineCollection

    thinnest = of.most * FAINTEST / plan.full
    rows, keys = np.nonzero(np.nan_to_num(of.weights) >= max(thinnest, 1e-300))
    weights = of.weights[rows, keys]
    order = np.argsort(weights, kind="stable")
    rows, keys, weights = rows[order], keys[order], weights[order]
    starts = plan.top + (np.asarray(of.rows)[rows] + 0.5) * plan.queries.pitch
    ends = plan.top + (keys + 0.5) * plan.keys.pitch
    left, right = np.full(len(rows), plan.left), np.full(len(rows), plan.left + plan.span)
    lines = np.stack([np.stack([left, starts], -1), np.stack([right, ends], -1)], 1)
    colors = np.array([on_paper(rgb) for rgb in sheet.pen.strong()])
    places = (weights / of.most * (SHADES - 1)).astype(int).clip(0, SHADES - 1)
    drawn = LineCollection(
        list(lines), linewidths=weights / of.most * plan.full, colors=colors[places], capstyle="butt"
    )
    sheet.axes.add_collection(drawn, autolim=False)
    return thinnest


def _draw_samples(of: Linked, sheet: Sheet, plan: _Plan, thinnest: float) -> None:
    """Draw a few lines with their weights, and say what has none."""
    x, y = EDGE, plan.bottom + 2 * GAP + ROW / 2
    sheet.text(x, y, "weight", SMALL)
    x += sheet.pen.width("weight", SMALL) + 2 * GAP
    colors = sheet.pen.strong()
    for part in SAMPLES:
        text = share(part * of.most)
        if x + SAMPLE + GAP + sheet.pen.width(text, SMALL) > plan.width:
            break
        color = on_paper(colors[int(part * (SHADES - 1))])
        width = part * plan.full
        sheet.axes.plot([x, x + SAMPLE], [y, y], color=color, linewidth=width, solid_capstyle="butt")
        sheet.text(x + SAMPLE + GAP, y, text, SMALL)
        x += SAMPLE + GAP + sheet.pen.width(text, SMALL) + 2 * GAP
    said = ["Masked links have no line."] if of.has_masked else []
    if (np.nan_to_num(of.weights, nan=np.inf) < thinnest).any():
        said.append(f"Below {share(thinnest)} there is none.")
    sheet.text(EDGE, y + 1.2 * ROW, " ".join(said), SMALL, color=sheet.pen.faint)
