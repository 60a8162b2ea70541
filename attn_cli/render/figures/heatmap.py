"""The weights of a head: a heat map, or several beside each other, and lines between the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from attn_cli.errors import UsageError, refuse
from attn_cli.io.types import Array, NamedTuple
from attn_cli.pipeline.passes import Lens
from attn_cli.render import Matrix, ShadeRange, ramps, share
from attn_cli.render.figures import sheet as sheets
from attn_cli.render.figures.maps import Key, draw_cells, draw_numbers
from attn_cli.render.figures.pen import EDGE, GAP, INCH, ROW, SMALL, on_paper
from attn_cli.render.figures.sheet import Box, Drawing, Frame, Plan, Sheet
from attn_cli.render.ramps import FULL, FULL_DIFFERENCE, legend, shade_range, sharing_scale
from attn_cli.render.views import comparison, overview, wording
from attn_cli.render.views.lens import likeliest, names
from attn_cli.settings import View
from attn_cli.teach.compare import Comparison
from attn_cli.trace import Trace

WIDEST_CELL, LEAST_FITTED = 0.55, 0.04  # inches of a cell: where the size is free, and in a given one
FEW = 20  # cells that are so large at least; of more, as many are
NARROWEST, BETWEEN = 3.4, 0.3  # inches
NAME = ROW + GAP
TOO_MANY = "There are too many weights for a heat map."


class _Heat(NamedTuple):
    """Matrices with the same number of rows; `names` stand above them where they are several."""

    parts: Sequence[Matrix]
    names: Sequence[str] = ()
    measure: str = "weight"
    axes: Sequence[str] = ("query", "key")  # down, and across: of all parts, or of each
    words: Sequence[Sequence[str]] = ()  # in the cells of the one matrix, in place of numbers

    def drawing(self, title: str) -> Drawing:
        texts = [token for part in self.parts for token in (*part.rows, *part.columns)]
        texts += [word for row in self.words for word in row]
        return Drawing(title, texts, partial(_plan, self))


def heatmap(trace: Trace, view: View) -> Drawing:
    """Return the weights of the shown head; of a text too long for them, the means of blocks."""
    sheets.refuse_top(trace, "heatmap")
    title = f"{wording.kind_of(trace)}{sheets.head_title(trace, trace.shown)}"
    if not trace.condensed or trace.asked:
        matrix = overview.weight_matrix(trace, trace.shown).fixed(view.precision)
        matrix = matrix._replace(scale=FULL) if view.shades == "full" else matrix
        return _Heat([matrix], measure=trace.drawn).drawing(title)
    found = trace.long_view
    if found is None:
        raise UsageError(TOO_MANY, "Give fewer tokens.", "--figure")
    edges = (found.query_edges, found.key_edges)
    rows, columns = ([f"{edge:,}" for edge in some[:-1]] for some in edges)
    query, key = (f"in blocks of up to {int(np.diff(some).max()):,}" for some in edges)
    scale = shade_range(Matrix((), (), found.means, is_weights=True))
    means = Matrix(rows, columns, found.means, shaded=True, scale=scale)
    return _Heat([means], measure="mean weight", axes=(f"query, {query}", f"key, {key}")).drawing(title)


def compared(found: Comparison, view: View) -> Drawing:
    """Return the sides of a comparison beside each other, in one scale of shades, and the difference of two."""
    first = found.traces[0]
    hint = "Draw one attn self for each."
    refuse(not found.same_cells, "The tokens differ between the sides.", hint, "--figure")
    sheets.refuse_top(first, "heatmap")
    sheets.refuse_long("heatmap of a comparison", len(first.listed), len(first.key_tokens))
    refuse(first.condensed, TOO_MANY, "Give fewer tokens.", "--figure")
    sides = [overview.weight_matrix(trace, trace.shown).fixed(view.precision) for trace in found.traces]
    sides = [side._replace(scale=FULL) for side in sides] if view.shades == "full" else sharing_scale(sides)
    names = list(comparison.names_of(found))
    if len(sides) == 2:
        change = sides[0]._replace(values=found.changes[0].difference, is_difference=True)
        sides.append(change._replace(scale=FULL_DIFFERENCE if view.shades == "full" else None))
        names.append(f"{names[1]} minus {names[0]}")
    return _Heat(sides, names).drawing(f"{wording.kind_of(first)} by {found.option.replace('_', '-')}")


def lens(found: Lens, view: View) -> Drawing:
    """Return the likeliest word after each layer at each place, shaded by the final word's probability."""
    values = np.array([[said.probability for said in row] for row in found.layers])
    matrix = Matrix([*map(str, range(len(values)))], names(found), values, is_weights=True)
    matrix = matrix._replace(scale=FULL) if view.shades == "full" else matrix
    heat = _Heat([matrix], (), "final word", ("layers", "token"), likeliest(found))
    return heat.drawing(f"Logit lens of {found.read.name}")


def layer_maps(maps: Mapping[str, Matrix], title: str, measure: str, view: View) -> Drawing:
    """Return signed maps with a line for each layer beside each other, in one scale of shades."""
    most = max(float(np.nanmax(np.abs(one.values))) for one in maps.values())
    parts = [one._replace(scale=ShadeRange(-most, most)).fixed(view.precision) for one in maps.values()]
    axes = "layer", *(one.corner.partition("\\")[2] for one in parts)
    return _Heat(parts, [*maps] if len(parts) > 1 else (), measure, axes).drawing(title)


def _plan(heat: _Heat, frame: Frame) -> Plan:
    rows, columns = len(heat.parts[0].rows), sum(len(part.columns) for part in heat.parts)
    most = max(rows, columns / len(heat.parts))
    # What explains the shades: once for all parts that share a scale, and for a difference.
    keys = [
        Key("difference" if n else heat.measure, legend(part), part.is_difference)
        for n, part in enumerate(heat.parts)
        if n == 0 or part.is_difference != heat.parts[0].is_difference
    ]
    smallest = LEAST_FITTED / most * min(most, FEW)
    cell, place = sheets.natural(most, WIDEST_CELL), partial(_placed, heat, frame, keys)
    return frame.fitted(place, cell, (columns, rows), LEAST_FITTED, smallest)


def _placed(heat: _Heat, frame: Frame, keys: Sequence[Key], cell: float) -> Plan:
    """Return where everything stands with cells of so many inches; a given size may cut the bar of shades short."""
    pen, rows = frame.pen, frame.pen.rows(heat.parts[0].rows, cell)
    columns = [pen.columns(part.columns, cell) for part in heat.parts]
    left = EDGE + NAME + rows.extent
    body = sum(cell * len(part.columns) for part in heat.parts) + BETWEEN * (len(heat.parts) - 1)
    right = left + body + sum(labels.overhang for labels in columns[:-1]) + 2 * GAP
    explained = sum(key.width(pen) for key in keys) + BETWEEN * (len(keys) - 1)
    width = max(right + max(explained, columns[-1].overhang) + EDGE, 0.0 if frame.size else NARROWEST)
    top = frame.top(width) + NAME * (2 if heat.names else 1) + max(one.extent for one in columns)
    bottom = top + cell * len(heat.parts[0].rows)
    high = bottom - top
    least = 0.0 if frame.size else max(key.height() for key in keys)

    def draw(sheet: Sheet) -> None:
        spare = max(0.0, sheet.width - width) / 2
        x, beside = spare + left, spare + right
        for n, (part, labels) in enumerate(zip(heat.parts, columns, strict=True)):
            box = Box(x, top, cell * len(part.columns), cell * len(part.rows))
            shades = draw_cells(sheet, part.values, shade_range(part), box, part.is_difference)
            draw_numbers(sheet, part, shades, box, words=[[*map(pen.drawable, row)] for row in heat.words])
            sheet.columns(labels, x, top)
            middle, above = x + box.width / 2, top - labels.extent - NAME / 2
            axis = heat.axes[1:][n % (len(heat.axes) - 1)]
            sheet.text(middle, above, axis, SMALL, "center", color=pen.faint)
            if heat.names:
                sheet.text(middle, above - NAME, heat.names[n], SMALL + 1, "center", weight="bold")
            x += box.width + BETWEEN + labels.overhang
        sheet.rows(rows, spare + left - GAP, top)
        x, y = spare + EDGE + NAME / 2, (top + bottom) / 2
        sheet.text(x, y, heat.axes[0], SMALL, "center", 90, color=pen.faint)
        for key in keys:
            key.draw(sheet, beside, top, max(high, min(key.height(), sheet.height - EDGE - top)))
            beside += key.width(pen) + BETWEEN
        sheet.note_step(max(rows.step, *(labels.step for labels in columns)), "token")

    return Plan(width, top + max(high, least) + EDGE, draw)


HIGHEST_ROW = 0.36  # inches
LEAST_SPAN, LARGEST_SPAN, LEAST_WIDE = 2.4, 6.0, 4.2  # of the lines, across; of the figure
LABEL = 0.3  # of a given width, for either column of tokens
LEAST_LINES = 0.5  # of the lines, across and down, in a given size
WIDEST, FAINTEST = 9.0, 0.06  # points of the widest line, and of the thinnest that is drawn
SAMPLES = (1.0, 0.5, 0.25)  # of the widest line, below the figure
SAMPLE = 0.45


def links(trace: Trace, view: View) -> Drawing:
    """Return the links of the listed queries, with --top the strongest of each."""
    sheets.refuse_long("links", len(trace.query_tokens), len(trace.key_tokens))
    weights = trace.visible_weights(trace.shown)
    has_masked = bool(np.isnan(weights).any())
    if (top := trace.settings.top) is not None and top < weights.shape[1]:
        least = -np.sort(-np.nan_to_num(weights), axis=1)[:, top - 1 : top]
        weights = np.where(weights >= least, weights, np.nan)
    most = 1.0 if view.shades == "full" else float(np.nan_to_num(weights).max(initial=0.0)) or 1.0
    title = f"{wording.kind_of(trace)}{sheets.head_title(trace, trace.shown)}"
    plan = partial(_plan_links, trace, weights, most, has_masked)
    return Drawing(title, [*trace.query_tokens, *trace.key_tokens], plan)


def _plan_links(trace: Trace, weights: Array, most: float, has_masked: bool, frame: Frame) -> Plan:
    """Place two columns of tokens, and lines for weights (rows, keys), NaN for none; the widest is `most`."""
    pen, sides, below = frame.pen, (trace.query_tokens, trace.key_tokens), 2 * GAP + 2 * ROW + EDGE
    n = max(map(len, sides))
    pitch = frame.row_pitch(n, (LEAST_LINES / n, HIGHEST_ROW), ROW + 2 * GAP + below)
    least, room = pen.width("query", SMALL), frame.width and LABEL * frame.width
    queries, keys = (pen.rows(tokens, pitch, least, room) for tokens in sides)
    labels = queries.extent + keys.extent + 2 * EDGE
    width = frame.width or max(labels + min(LARGEST_SPAN, LEAST_SPAN + 0.04 * n), LEAST_WIDE)
    frame.check_room(width - labels >= LEAST_LINES)
    top, left = frame.top(width) + ROW + 2 * GAP, EDGE + queries.extent
    right, bottom = left + (width - labels), top + n * pitch
    full = min(WIDEST, max(pitch * INCH * 0.8, 1.0))  # points of the widest line
    thinnest = most * FAINTEST / full

    def draw(sheet: Sheet) -> None:
        for x, name, align in ((left, "query", "right"), (right, "key", "left")):
            sheet.text(x, top - ROW / 2 - GAP, name, SMALL, align, color=pen.faint)
        sheet.rows(queries, left - GAP, top, faint=set(range(len(queries.texts))) - {*trace.listed})
        sheet.rows(keys, right + GAP, top, "left")
        rows, columns = np.nonzero(np.nan_to_num(weights) >= max(thinnest, 1e-300))
        order = np.argsort(weights[rows, columns], kind="stable")  # the widest is drawn last
        rows, columns = rows[order], columns[order]
        ends = [top + (at + 0.5) * pitch for at in (np.asarray(trace.listed)[rows], columns)]
        _draw_lines(sheet, (left, right), ends, weights[rows, columns] / most, full)
        said = ["Masked links have no line."] if has_masked else []
        if (np.nan_to_num(weights, nan=np.inf) < thinnest).any():
            said.append(f"{trace.drawn.capitalize()}s below {share(thinnest)} are not drawn.")
        y = bottom + 2 * GAP + ROW / 2
        _draw_samples(sheet, trace.drawn, y, most, full)
        sheet.text(EDGE, y + 1.2 * ROW, " ".join(said), SMALL, color=pen.faint)
        sheet.note_step(queries.step, "token")

    return Plan(width, bottom + below, draw)


def _draw_lines(
    sheet: Sheet, sides: tuple[float, float], ends: Sequence[Array], parts: Array, full: float
) -> None:
    """Draw a line for each link, as wide as its part of the widest."""
    from matplotlib.collections import LineCollection

    lines = np.stack([np.stack([np.full(len(y), x), y], -1) for x, y in zip(sides, ends, strict=True)], 1)
    colors = np.array([on_paper(rgb) for rgb in ramps.strong(sheet.pen.palette)])
    shades = colors[(parts * (ramps.SHADES - 1)).astype(int).clip(0, ramps.SHADES - 1)]
    drawn = LineCollection(list(lines), linewidths=parts * full, colors=shades, capstyle="butt")
    sheet.axes.add_collection(drawn, autolim=False)


def _draw_samples(sheet: Sheet, measure: str, y: float, most: float, full: float) -> None:
    sheet.text(EDGE, y, measure, SMALL)
    x = EDGE + sheet.pen.width(measure, SMALL) + 2 * GAP
    colors = ramps.strong(sheet.pen.palette)
    for part in SAMPLES:
        text = share(part * most)
        wide = sheet.pen.width(text, SMALL)
        if x + SAMPLE + GAP + wide > sheet.width:
            break
        color, width = on_paper(colors[int(part * (ramps.SHADES - 1))]), part * full
        sheet.axes.plot([x, x + SAMPLE], [y, y], color=color, linewidth=width, solid_capstyle="butt")
        sheet.text(x + SAMPLE + GAP, y, text, SMALL)
        x += SAMPLE + GAP + wide + 2 * GAP
