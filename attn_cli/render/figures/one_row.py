"""One row of weights: a bar for each key, as long as its weight, or the steps from the query to them and the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.errors import UsageError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import count
from attn_cli.render.blocks import Bars, Matrix
from attn_cli.render.figures import sheet as sheets
from attn_cli.render.figures.cells import draw_cells, draw_numbers
from attn_cli.render.figures.pen import EDGE, GAP, INCH, LEAST_FONT, LINE, SMALL, Pen, on_paper
from attn_cli.render.numbers import bar_numbers, four, plain
from attn_cli.render.palette import SHADES, strong
from attn_cli.render.shade_scale import shade_range
from attn_cli.render.views import wording
from attn_cli.settings.output import View
from attn_cli.trace.head import Head
from attn_cli.trace.row import Row
from attn_cli.trace.trace import Trace

ROW = (0.01, 0.34)  # inches, at least and at most
BARS_LABEL, STEPS_LABEL = 0.4, 0.2  # of a given width, for the tokens
SPAN, LEAST_SPAN = 4.0, 0.5  # inches of the longest bar
THICK = 0.72  # of a row
LEAST_HIGH, COLUMN, BETWEEN = 1.4, 0.78, 0.22  # inches of a column of numbers
LEAST_COLUMN = 0.15  # in a given size
HEAD = LINE * SMALL / INCH


# Bars


def bars(trace: Trace, view: View) -> sheets.Drawing:
    """Return the weights of one row: the first that was asked for, else the one that explain chooses."""
    i = trace.focus[0]
    weights = trace.visible_weights(trace.shown, [i])[0]
    kept = list(range(len(weights)))
    few = ""
    if (top := trace.settings.top) is not None:
        kept = [j for j in trace.shown.links.keys[i, :top].tolist() if j >= 0]
        few = f", the {len(kept)} strongest of {len(weights):,} keys"
    sheets.refuse_long("bars", len(kept))
    items = [(trace.key_tokens[j], None if np.isnan(weights[j]) else float(weights[j])) for j in kept]
    largest = 1.0 if view.shades == "full" else max([weight or 0.0 for _, weight in items], default=0.0)
    does = "looks at" if trace.drawn == "weight" else "takes (norm)"
    token = wording.quoted_at(trace.query_tokens, i)
    title = f"What {token} {does}{sheets.head_title(trace, trace.shown)}{few}"
    shown = Bars(title, items, largest)
    return sheets.Drawing(title, [token for token, _ in items], partial(_plan_bars, shown, view.precision))


def _plan_bars(
    of: Bars, precision: int | None, title: str, pen: Pen, area: sheets.Area | None
) -> sheets.Plan:
    n, numbers = len(of.items), bar_numbers(of, precision)
    pitch = sheets.row_pitch(n, ROW, area, pen, title, EDGE)
    keys = pen.rows([token for token, _ in of.items], pitch, most=area and BARS_LABEL * area.width)
    fixed = keys.extent + pen.widest(numbers, keys.font) + GAP + 2 * EDGE
    width = area.width if area else fixed + SPAN
    span, left = width - fixed, EDGE + keys.extent
    sheets.check_room(area, span >= LEAST_SPAN)
    lines, top = pen.headed(title, width)
    colors = strong(pen.palette)

    def draw(sheet: sheets.Sheet) -> None:
        """Draw the keys, the bars and their numbers; a masked key is said to be."""
        from matplotlib.patches import Rectangle

        sheet.rows(keys, left - GAP, top)
        for row, ((_, value), number) in enumerate(zip(of.items, numbers, strict=True)):
            length, middle = of.length(value), top + (row + 0.5) * pitch
            color, corner = colors[int(length * (SHADES - 1))], (left, middle - THICK * pitch / 2)
            bar = Rectangle(corner, length * span, THICK * pitch, facecolor=on_paper(color), linewidth=0)
            sheet.axes.add_patch(bar)
            if row % keys.step == 0 or value is None:
                ink = pen.faint if value is None else pen.ink
                sheet.text(left + length * span + GAP, middle, number, keys.font, color=ink)
        sheet.axes.plot([left, left], [top, top + n * pitch], color=pen.faint, linewidth=0.8)
        sheet.note_step(keys.step, "key")

    return sheets.Plan(lines, width, top + n * pitch + EDGE, draw)


# Steps


class Step(NamedTuple):
    """One column: its name and its formula above, its numbers (n,), NaN where masked, and what stands below."""

    name: str
    formula: str
    values: Array
    below: str = ""

    def texts(self) -> list[str]:
        """Return what stands above and below the numbers."""
        return [self.name, self.formula, self.below]


class _Stepped(NamedTuple):
    """The columns of one row: of its query, of each key, of its output."""

    keys: Sequence[str]
    before: Sequence[Step]
    keyed: Sequence[Step]
    after: Sequence[Step]
    remarks: Sequence[str]


def steps(trace: Trace, view: View) -> sheets.Drawing:
    """Return the way of one row to its weights and its output."""
    i, head = trace.focus[0], trace.stepped_head
    row = trace.row(i, head)
    if row is None:
        what = "These weights came without queries, keys and scores: there are no steps to draw."
        raise UsageError(what, "--figure bars draws one row of them.", "--figure")
    sheets.refuse_long("steps", len(trace.key_tokens))
    query, output = (
        [] if vectors is None else [Step(*name, vectors[i], count(len(vectors[i]), "number", "numbers"))]
        for name, vectors in ((("query", "q"), head.q), (("output", "Σ weight · v"), head.output))
    )
    remarks = ["Each column has shades of its own; zero has no colour where there are signs."]
    if row.total == 0:
        remarks.append("It may look at nothing: its weights and its output are zeros.")
    elif np.isinf(row.masked).any():
        remarks.append("Hatched: masked, which is not a number.")
    title = f"From {wording.quoted_at(trace.query_tokens, i)} to its weights{sheets.head_title(trace, head)}"
    shown = _Stepped(trace.key_tokens, query, _keyed(trace, head, row), output, remarks)
    return sheets.Drawing(title, trace.key_tokens, partial(_plan_steps, shown))


def _keyed(trace: Trace, head: Head, row: Row) -> list[Step]:
    """Return the columns that have a number for each key."""
    is_masked = np.isinf(row.masked)

    def unmasked(numbers: Sequence[float]) -> Array:
        return np.where(is_masked, np.nan, np.array(numbers))

    found = [Step("scores", score_named(trace.score).symbol, np.array(row.scores))]
    if divisor := f"{wording.root_divisor(trace)}{wording.temperature_divisor(trace)}".strip():
        found.append(Step("scaled", divisor, np.array(row.scaled)))
    cap = plain(trace.softcap or 0.0)
    capped = [] if row.capped is None else [Step("capped", f"{cap} tanh(x / {cap})", np.array(row.capped))]
    distance = []
    if row.position is not None:
        alone = wording.distance_of_model(head)[1] if trace.of_model else "as given"  # T5's, or a file's
        learned = wording.position_term(trace) if head.position_vectors is not None else alone
        term = wording.rotated_term(trace) if row.is_rotated else learned
        distance = [Step("distance", f"+ {term}", np.array(row.position))]
    found += [*distance, *capped] if row.is_rotated else [*capped, *distance]
    if distance or is_masked.any():
        is_summed = distance and not (capped and row.is_rotated)
        term = "capped" if capped else "scaled" if divisor else "scores"
        formula = f"{term} + distance" if is_summed else f"{term} + mask"
        found.append(Step("masked" if is_masked.any() else "sum", formula, unmasked(row.masked)))
    shift = f" - {plain(row.shift)}" if row.shift >= 0 else f" + {plain(-row.shift)}"
    formula = f"e^(x{shift})" if row.shift else "e^x"
    found.append(
        Step(
            "exp",
            formula,
            unmasked(row.exps),
            f"{'with the sink' * bool(row.sunk) or 'sum'} {four(row.total)}",
        )
    )
    divided = f"exp / {plain(row.total)}" if row.total else "nothing to share"
    return [*found, Step("weights", divided, unmasked(row.weights), f"sum {four(sum(row.weights))}")]


def _plan_steps(of: _Stepped, title: str, pen: Pen, area: sheets.Area | None) -> sheets.Plan:
    n, columns = len(of.keys), [*of.before, *of.keyed, *of.after]
    widest = max(pen.widest(step.texts(), 1.0) for step in columns)

    def below(width: float) -> tuple[list[str], float]:
        """Return the remarks in lines, and the inches from the columns to the lower edge."""
        lines = [line for text in of.remarks for line in pen.folded(text, width, SMALL)]
        return lines, HEAD * (1.6 + len(lines)) + EDGE

    rest = 2 * HEAD + GAP + (below(area.width)[1] if area else 0.0)
    pitch = sheets.row_pitch(n, ROW, area, pen, title, rest)
    keys = pen.rows(of.keys, pitch, pen.width("key", SMALL), area and STEPS_LABEL * area.width)
    fixed = 2 * EDGE + keys.extent + BETWEEN * (len(columns) - 1)
    width = area.width if area else fixed + max(COLUMN, widest * SMALL) * len(columns)
    column = (width - fixed) / len(columns)
    font = min(SMALL, (column + BETWEEN * 0.8) / widest)
    sheets.check_room(area, column >= LEAST_COLUMN and font >= LEAST_FONT)
    (remarks, foot), (lines, top) = below(width), pen.headed(title, width)
    top = top + 2 * HEAD + GAP
    high = n * pitch if area else max(n * pitch, LEAST_HIGH)

    def draw(sheet: sheets.Sheet) -> None:
        x = EDGE
        for step in of.before:
            x = _draw_step(sheet, step, sheets.Box(x, top, column, high), font)
        x += keys.extent
        sheet.rows(keys, x - GAP, top)
        sheet.text(x - GAP, top - HEAD * 0.7, "key", SMALL, "right", color=pen.faint)
        for step in of.keyed:
            x = _draw_step(sheet, step, sheets.Box(x, top, column, n * pitch), font)
        for step in of.after:
            x = _draw_step(sheet, step, sheets.Box(x, top, column, high), font)
        for line, text in enumerate(remarks):
            sheet.text(EDGE, top + high + HEAD * (1.6 + line + 0.5), text, SMALL, color=pen.faint)
        sheet.note_step(keys.step, "key")

    return sheets.Plan(lines, width, top + high + foot, draw)


def _draw_step(sheet: sheets.Sheet, step: Step, box: sheets.Box, size: float) -> float:
    """Draw a column; return where the next one begins."""
    is_weights = step.name == "weights"
    matrix = Matrix([""] * len(step.values), [""], step.values[:, None], is_weights=is_weights)
    is_signed = bool(np.nanmin(step.values, initial=0.0) < 0)
    scale = shade_range(matrix._replace(is_difference=is_signed))
    shades = draw_cells(sheet, matrix.values, scale, box, is_signed)
    draw_numbers(sheet, matrix, shades, box, is_signed)
    middle = box.x + box.width / 2
    sheet.text(middle, box.y - HEAD * 1.7, step.name, size, "center", weight="bold")
    sheet.text(middle, box.y - HEAD * 0.7, step.formula, size, "center")
    sheet.text(middle, box.y + box.height + HEAD * 0.8, step.below, size, "center", color=sheet.pen.faint)
    return box.x + box.width + BETWEEN
