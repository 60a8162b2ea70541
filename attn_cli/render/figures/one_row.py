"""One row of weights: a bar for each key, as long as its weight, or the steps from the query to them and the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.errors import UsageError, count
from attn_cli.io.types import Array, NamedTuple
from attn_cli.render import Bars, Matrix, four, plain, quoted_at, ramps
from attn_cli.render.figures import maps, sheet as sheets
from attn_cli.render.figures.pen import EDGE, GAP, LEAST_FONT, ROW, SMALL, on_paper
from attn_cli.render.numbers import bar_numbers
from attn_cli.render.views import wording
from attn_cli.settings import View
from attn_cli.trace import Head, Row, Trace

PITCH = (0.01, 0.34)  # inches of a row, at least and at most
BARS_LABEL, STEPS_LABEL = 0.4, 0.2  # of a given width, for the tokens
SPAN, LEAST_SPAN = 4.0, 0.5  # inches of the longest bar
THICK = 0.72  # of a row
LEAST_HIGH, COLUMN, BETWEEN = 1.4, 0.78, 0.22  # inches of a column of numbers
LEAST_COLUMN = 0.15  # in a given size


def bars(trace: Trace, view: View) -> sheets.Drawing:
    """Return the weights of one row: the first that was asked for, else the one that explain chooses."""
    i = trace.focus[0]
    weights = trace.visible_weights(trace.shown, [i])[0]
    kept, few = list(range(len(weights))), ""
    if (top := trace.settings.top) is not None:
        kept = [j for j in trace.shown.links.keys[i, :top].tolist() if j >= 0]
        few = f", the {len(kept)} strongest of {len(weights):,} keys"
    sheets.refuse_long("bars", len(kept))
    items = [(trace.key_tokens[j], None if np.isnan(weights[j]) else float(weights[j])) for j in kept]
    largest = 1.0 if view.shades == "full" else max([weight or 0.0 for _, weight in items], default=0.0)
    does = "looks at" if trace.drawn == "weight" else "takes (norm)"
    token = quoted_at(trace.query_tokens, i)
    title = f"What {token} {does}{sheets.head_title(trace, trace.shown)}{few}"
    shown = Bars(title, items, largest)
    return sheets.Drawing(title, [token for token, _ in items], partial(_plan_bars, shown, view.precision))


def _plan_bars(of: Bars, precision: int | None, frame: sheets.Frame) -> sheets.Plan:
    pen, n, numbers = frame.pen, len(of.items), bar_numbers(of, precision)
    pitch = frame.row_pitch(n, PITCH, EDGE)
    keys = pen.rows([token for token, _ in of.items], pitch, most=frame.width and BARS_LABEL * frame.width)
    fixed = keys.extent + pen.widest(numbers, keys.font) + GAP + 2 * EDGE
    width = frame.width or fixed + SPAN
    span, left, top = width - fixed, EDGE + keys.extent, frame.top(width)
    frame.check_room(span >= LEAST_SPAN)
    colors = ramps.strong(pen.palette)

    def draw(sheet: sheets.Sheet) -> None:
        from matplotlib.patches import Rectangle

        sheet.rows(keys, left - GAP, top)
        for row, ((_, value), number) in enumerate(zip(of.items, numbers, strict=True)):
            length, middle = of.length(value), top + (row + 0.5) * pitch
            color, corner = colors[int(length * (ramps.SHADES - 1))], (left, middle - THICK * pitch / 2)
            bar = Rectangle(corner, length * span, THICK * pitch, facecolor=on_paper(color), linewidth=0)
            sheet.axes.add_patch(bar)
            if row % keys.step == 0 or value is None:
                ink = pen.faint if value is None else pen.ink
                sheet.text(left + length * span + GAP, middle, number, keys.font, color=ink)
        sheet.axes.plot([left, left], [top, top + n * pitch], color=pen.faint, linewidth=0.8)
        sheet.note_step(keys.step, "key")

    return sheets.Plan(width, top + n * pitch + EDGE, draw)


class Step(NamedTuple):
    """One column: its name and its formula above, its numbers (n,), NaN where masked, and what stands below."""

    name: str
    formula: str
    values: Array
    below: str = ""


def steps(trace: Trace, view: View) -> sheets.Drawing:
    """Return the way of one row to its weights and its output."""
    i, head, keys = trace.focus[0], trace.stepped_head, trace.key_tokens
    row = trace.row(i, head)
    if row is None:
        what = "These weights came without queries, keys and scores: there are no steps to draw."
        raise UsageError(what, "--figure bars draws one row of them.", "--figure")
    sheets.refuse_long("steps", len(keys))
    query, output = (
        [] if vectors is None else [Step(*name, vectors[i], count(len(vectors[i]), "number", "numbers"))]
        for name, vectors in ((("query", "q"), head.q), (("output", "Σ weight · v"), head.output))
    )
    remarks = ["Each column has shades of its own; zero has no colour where there are signs."]
    if row.total == 0:
        remarks.append("It may look at nothing: its weights and its output are zeros.")
    elif np.isinf(row.masked).any():
        remarks.append("Hatched: masked, which is not a number.")
    title = f"From {quoted_at(trace.query_tokens, i)} to its weights{sheets.head_title(trace, head)}"
    plan = partial(_plan_steps, keys, [query, _keyed(trace, head, row), output], remarks)
    return sheets.Drawing(title, keys, plan)


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
    total = f"{'with the sink' if row.sunk else 'sum'} {four(row.total)}"
    divided = f"exp / {plain(row.total)}" if row.total else "nothing to share"
    weights = Step("weights", divided, unmasked(row.weights), f"sum {four(sum(row.weights))}")
    return [*found, Step("exp", formula, unmasked(row.exps), total), weights]


def _plan_steps(
    tokens: Sequence[str], steps: Sequence[Sequence[Step]], remarks: Sequence[str], frame: sheets.Frame
) -> sheets.Plan:
    """Place the columns of the query, of its keys and of its output."""
    pen, n, (before, keyed, after) = frame.pen, len(tokens), steps
    columns = [*before, *keyed, *after]
    widest = pen.widest([text for step in columns for text in (step.name, step.formula, step.below)], 1.0)

    def below(width: float) -> tuple[list[str], float]:
        # The remarks in lines, and the inches from the columns to the lower edge.
        lines = [line for text in remarks for line in pen.folded(text, width, SMALL)]
        return lines, ROW * (1.6 + len(lines)) + EDGE

    pitch = frame.row_pitch(n, PITCH, 2 * ROW + GAP + (below(frame.width)[1] if frame.width else 0.0))
    keys = pen.rows(tokens, pitch, pen.width("key", SMALL), frame.width and STEPS_LABEL * frame.width)
    fixed = 2 * EDGE + keys.extent + BETWEEN * (len(columns) - 1)
    width = frame.width or fixed + max(COLUMN, widest * SMALL) * len(columns)
    column = (width - fixed) / len(columns)
    font = min(SMALL, (column + BETWEEN * 0.8) / widest)
    frame.check_room(column >= LEAST_COLUMN and font >= LEAST_FONT)
    (lines, foot), top = below(width), frame.top(width) + 2 * ROW + GAP
    high = n * pitch if frame.size else max(n * pitch, LEAST_HIGH)

    def draw(sheet: sheets.Sheet) -> None:
        x = EDGE
        for step in before:
            x = _draw_step(sheet, step, sheets.Box(x, top, column, high), font)
        x += keys.extent
        sheet.rows(keys, x - GAP, top)
        sheet.text(x - GAP, top - ROW * 0.7, "key", SMALL, "right", color=pen.faint)
        for some, tall in ((keyed, n * pitch), (after, high)):
            for step in some:
                x = _draw_step(sheet, step, sheets.Box(x, top, column, tall), font)
        for line, text in enumerate(lines):
            sheet.text(EDGE, top + high + ROW * (1.6 + line + 0.5), text, SMALL, color=pen.faint)
        sheet.note_step(keys.step, "key")

    return sheets.Plan(width, top + high + foot, draw)


def _draw_step(sheet: sheets.Sheet, step: Step, box: sheets.Box, size: float) -> float:
    """Draw a column; return where the next one begins."""
    matrix = Matrix([""] * len(step.values), [""], step.values[:, None], is_weights=step.name == "weights")
    is_signed = bool(np.nanmin(step.values, initial=0.0) < 0)
    scale = ramps.shade_range(matrix._replace(is_difference=is_signed))
    shades = maps.draw_cells(sheet, matrix.values, scale, box, is_signed)
    maps.draw_numbers(sheet, matrix, shades, box, is_signed)
    middle = box.x + box.width / 2
    sheet.text(middle, box.y - ROW * 1.7, step.name, size, "center", weight="bold")
    sheet.text(middle, box.y - ROW * 0.7, step.formula, size, "center")
    sheet.text(middle, box.y + box.height + ROW * 0.8, step.below, size, "center", color=sheet.pen.faint)
    return box.x + box.width + BETWEEN
