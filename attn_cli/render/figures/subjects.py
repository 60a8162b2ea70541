"""What a figure shows of a trace: for each kind, the matrices, rows and numbers that it draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.errors import UsageError
from attn_cli.io.escape import count
from attn_cli.render.blocks import Bars, Maps, Matrix, ShadeRange
from attn_cli.render.figures.bars import Rowed
from attn_cli.render.figures.heads import Multiples
from attn_cli.render.figures.heatmap import Heat
from attn_cli.render.figures.links import Linked
from attn_cli.render.figures.sheet import Drawing
from attn_cli.render.figures.steps import Step, Stepped
from attn_cli.render.numbers import four, plain
from attn_cli.render.shade_scale import FULL, FULL_DIFFERENCE, sharing_scale, weight_range
from attn_cli.render.views.comparison import names_of
from attn_cli.render.views.heads import KINDS as WHOLE_KINDS
from attn_cli.render.views.heads import WORDS
from attn_cli.render.views.overview import largest_weight, listed_weights, weight_matrix
from attn_cli.render.views.wording import (
    head_named,
    kind_of,
    position_term,
    quoted_at,
    root_divisor,
    rotated_term,
    temperature_divisor,
)
from attn_cli.settings.output import View
from attn_cli.trace.head import Head
from attn_cli.trace.row import Row
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.every_head import EveryHead
    from attn_cli.teach.compare import Comparison

MOST = 200  # tokens of figures that have a line for each
HEADS_ACROSS = 6


def heatmap(trace: Trace, view: View) -> Drawing:
    """Return the weights of the shown head; of a text too long for them, the means of blocks."""
    _refuse_top(trace, "heatmap")
    title = f"{kind_of(trace)}{_head(trace, trace.shown)}"
    if not trace.condensed or trace.asked:
        matrix = weight_matrix(trace, trace.shown).fixed(view.precision)
        return Heat(title, [matrix._replace(scale=FULL) if view.shades == "full" else matrix])
    found = trace.long_view
    if found is None:
        raise UsageError("There are too many weights for a heat map.", "Give fewer tokens.", "--figure")
    rows, columns = ([f"{edge:,}" for edge in edges[:-1]] for edges in (found.query_edges, found.key_edges))
    axes = (
        f"query, in blocks of up to {_largest(found.query_edges)}",
        f"key, in blocks of up to {_largest(found.key_edges)}",
    )
    known = found.means[~np.isnan(found.means)]
    scale = weight_range(float(known.min()), float(known.max()), float(known.mean()))
    means = Matrix(rows, columns, found.means, shaded=True, scale=scale)
    return Heat(title, [means], measure="mean weight", axes=axes)


def links(trace: Trace, view: View) -> Drawing:
    """Return the links of the listed queries, with --top the strongest of each."""
    _refuse_long(trace, "links", len(trace.query_tokens), len(trace.key_tokens))
    weights = listed_weights(trace, trace.shown)
    has_masked = bool(np.isnan(weights).any())
    if (top := trace.settings.top) is not None and top < weights.shape[1]:
        least = -np.sort(-np.nan_to_num(weights), axis=1)[:, top - 1 : top]
        weights = np.where(weights >= least, weights, np.nan)
    most = 1.0 if view.shades == "full" else float(np.nan_to_num(weights).max(initial=0.0)) or 1.0
    title = f"{kind_of(trace)}{_head(trace, trace.shown)}"
    return Linked(title, trace.query_tokens, trace.key_tokens, trace.listed, weights, most, has_masked)


def bars(trace: Trace, view: View) -> Drawing:
    """Return the weights of one row: the first that was asked for, else the one that explain chooses."""
    i = trace.focus[0]
    weights = trace.shown.weights[trace.row_in_arrays(i)]
    mask = trace.mask_of(trace.shown)
    allowed = np.ones(len(weights), bool) if mask is None else mask[trace.row_in_arrays(i)]
    top = trace.settings.top
    kept = range(len(weights)) if top is None else [j for j, _ in _strongest(trace, i, top)]
    _refuse_long(trace, "bars", len(kept))
    items = [(trace.key_tokens[j], float(weights[j]) if allowed[j] else None) for j in kept]
    largest = 1.0 if view.shades == "full" else max([weight or 0.0 for _, weight in items], default=0.0)
    few = "" if top is None else f", the {len(items)} strongest of {len(weights):,} keys"
    title = f"What {quoted_at(trace.query_tokens, i)} looks at{_head(trace, trace.shown)}{few}"
    return Rowed(title, Bars(title, items, largest), view.precision)


def heads(trace: Trace, view: View) -> Drawing:
    """Return every head's weights."""
    _refuse_top(trace, "heads")
    if trace.condensed:
        raise UsageError(
            "There are too many weights for a figure of all heads.", "Give fewer tokens.", "--figure"
        )
    if len(trace.heads) < len(trace.head_names):
        hint = 'Compute all of them: --head all, or Settings(head="all").'
        raise UsageError(f"One head of {len(trace.head_names)} was computed.", hint, "--head")
    names = [f"head {head.name}" if head.name.isdigit() else head.name for head in trace.heads]
    values = [listed_weights(trace, head) for head in trace.heads]
    largest = max(largest_weight(trace, trace.listed), *(float(np.nan_to_num(one).max()) for one in values))
    scale = FULL if view.shades == "full" else ShadeRange(0.0, largest)
    queries = [trace.query_tokens[i] for i in trace.listed]
    layers = list(dict.fromkeys(head.layer for head in trace.heads)) if trace.has_layers else []
    bands = [f"layer {layer}" for layer in layers]
    maps = Maps(
        names, queries, trace.key_tokens, values, scale, list(trace.listed), is_weights=True, bands=bands
    )
    across = min(HEADS_ACROSS, math.ceil(math.sqrt(len(names) * 1.5)))
    if layers:
        across = len(names) // len(layers)
    title = f"{kind_of(trace)}, {count(across if layers else len(names), 'head', 'heads')}"
    if layers:
        title += f" in each of {count(len(layers), 'layer', 'layers')}"
    return Multiples(title, maps, across)


def steps(trace: Trace, view: View) -> Drawing:
    """Return the way of one row to its weights and its output."""
    i, head = trace.focus[0], trace.stepped_head
    row = trace.row(i, head)
    if row is None:
        raise UsageError(
            "These weights came without queries, keys and scores: there are no steps to draw.",
            "--figure bars draws one row of them.",
            "--figure",
        )
    _refuse_long(trace, "steps", len(trace.key_tokens))
    query = [Step("query", "q", head.q[i], _numbers(head.q[i]))] if head.q is not None else []
    output = (
        [Step("output", "Σ weight · v", head.output[i], _numbers(head.output[i]))]
        if head.output is not None
        else []
    )
    title = f"From {quoted_at(trace.query_tokens, i)} to its weights{_head(trace, head)}"
    remarks = ["Each column has shades of its own."]
    if row.total == 0:
        remarks.append("It may look at nothing: its weights and its output are zeros.")
    elif np.isinf(row.masked).any():
        remarks.append("Hatched: masked, which is not a number.")
    return Stepped(title, trace.key_tokens, query, _keyed(trace, head, row), output, remarks)


def _keyed(trace: Trace, head: Head, row: Row) -> list[Step]:
    """Return the columns that have a number for each key."""
    score = score_named(trace.score)
    is_masked = np.isinf(row.masked)

    def column(name: str, formula: str, numbers: list[float], below: str = "", may_hide: bool = True) -> Step:
        values = np.array(numbers)
        values = np.where(is_masked, np.nan, values) if may_hide else values
        return Step(name, formula, values, below, name == "weights")

    found = [column("scores", score.symbol, row.scores, may_hide=False)]
    divisor = f"{root_divisor(trace)}{temperature_divisor(trace)}"
    if divisor:
        found.append(column("scaled", divisor.strip(), row.scaled, may_hide=False))
    cap = plain(trace.softcap or 0.0)
    capped = (
        [] if row.capped is None else [column("capped", f"{cap} tanh(x / {cap})", row.capped, may_hide=False)]
    )
    found += [] if row.is_rotated else capped
    if row.position is not None:
        alone = "learned" if trace.of_model else "as given"  # T5's, or a file's
        learned = position_term(trace) if head.position_vectors is not None else alone
        term = rotated_term(trace) if row.is_rotated else learned
        formula = f"+ {term}"
        found.append(column("distance", formula, row.position, may_hide=False))
    found += capped if row.is_rotated else []
    if row.position is not None or is_masked.any():
        is_summed = row.position is not None and not (capped and row.is_rotated)
        term = "capped" if capped else "scaled" if divisor else "scores"
        formula = f"{term} + distance" if is_summed else f"{term} + mask"
        found.append(column("masked" if is_masked.any() else "sum", formula, row.masked))
    shift = f" - {plain(row.shift)}" if row.shift >= 0 else f" + {plain(-row.shift)}"
    found.append(column("exp", f"e^(x{shift})" if row.shift else "e^x", row.exps, f"sum {four(row.total)}"))
    divided = f"exp / {plain(row.total)}" if row.total else "nothing to share"
    found.append(column("weights", divided, row.weights, f"sum {four(sum(row.weights))}"))
    return found


def compared(comparison: Comparison, view: View) -> Drawing:
    """Return the sides of a comparison beside each other, in one scale of shades, and the difference of two."""
    first = comparison.traces[0]
    if not comparison.same_tokens:
        raise UsageError("The tokens differ between the sides.", "Draw one attn self for each.", "--figure")
    _refuse_top(first, "heatmap")
    _refuse_long(first, "heatmap of a comparison", len(first.listed), len(first.key_tokens))
    if first.condensed:
        raise UsageError("There are too many weights for a heat map.", "Give fewer tokens.", "--figure")
    sides = [weight_matrix(trace, trace.shown).fixed(view.precision) for trace in comparison.traces]
    sides = [side._replace(scale=FULL) for side in sides] if view.shades == "full" else sharing_scale(sides)
    names = list(names_of(comparison))
    if len(sides) == 2:
        change = sides[0]._replace(values=comparison.changes[0].difference, is_difference=True)
        sides.append(change._replace(scale=FULL_DIFFERENCE if view.shades == "full" else None))
        names.append(f"{names[1]} minus {names[0]}")
    return Heat(f"{kind_of(first)} by {comparison.option.replace('_', '-')}", sides, names)


def every_head(found: EveryHead, view: View) -> Drawing:
    """Return all layers and heads, a line for each layer, each named by what it does."""
    heads = len(found.layers[0].heads)
    names = [
        f"{head} {WORDS[role.name][0]}"
        for layer in found.layers
        for head, role in zip(layer.heads, layer.roles, strict=True)
    ]
    values = [one for layer in found.layers for one in layer.maps]
    rows, columns = values[0].shape
    queries, keys = found.source.query_tokens, found.source.key_tokens
    has_tokens = (rows, columns) == (len(queries), len(keys))
    if not has_tokens:
        queries = keys = ()
    most = max(float(np.nan_to_num(one).max(initial=0.0)) for one in values)
    scale = FULL if view.shades == "full" else ShadeRange(0.0, most)
    bands = [f"layer {layer.number}" for layer in found.layers]
    maps = Maps(names, queries, keys, values, scale, list(range(rows)), is_weights=has_tokens, bands=bands)
    layers = count(len(found.layers), "layer", "layers")
    title = f"{WHOLE_KINDS[found.source.kind]}: {layers}, {count(heads, 'head', 'heads')} each"
    measure = "weight" if has_tokens else "mean weight"
    return Multiples(title, maps, heads, measure, has_tokens)


KINDS: dict[str, Callable[[Trace, View], Drawing]] = {
    "heatmap": heatmap,
    "links": links,
    "bars": bars,
    "heads": heads,
    "steps": steps,
}


def subject(trace: Trace, view: View) -> Drawing:
    """Return what the view's figure shows of a trace; UsageError where it cannot be drawn."""
    return KINDS[view.figure or "heatmap"](trace, view)


def other_rows(trace: Trace, view: View) -> list[str]:
    """Return what to say where several rows were asked for, and the figure has room for one."""
    if view.figure not in ("bars", "steps") or len(trace.focus) == 1:
        return []
    rows = ", ".join(str(i) for i in trace.focus[1:4]) + (", ..." if len(trace.focus) > 4 else "")
    return [f"The figure shows row {trace.focus[0]} of those that match; -q {rows} would be another."]


def _head(trace: Trace, head: Head) -> str:
    if len(trace.head_names) == 1:
        return ""
    if head.name in ("mean", "rollout"):
        return f", {head.name} of the heads" if head.name == "mean" else ", attention rollout"
    layer = "" if head.layer is None else f", layer {head.layer}"
    return f"{layer}, {head_named(head.name)}"


def _strongest(trace: Trace, i: int, k: int) -> list[tuple[int, float]]:
    found = trace.shown.links
    pairs = zip(found.keys[i, :k].tolist(), found.weights[i, :k].tolist(), strict=True)
    return [(j, weight) for j, weight in pairs if j >= 0]


def _largest(edges: tuple[int, ...]) -> str:
    return f"{int(np.diff(edges).max()):,}"


def _numbers(vector: Array) -> str:
    return count(len(vector), "number", "numbers")


def _refuse_top(trace: Trace, kind: str) -> None:
    if trace.settings.top is not None:
        hint = "--figure links and --figure bars show the strongest links alone."
        raise UsageError(f"--figure {kind} draws all weights, without --top.", hint, "--top")


def _refuse_long(trace: Trace, kind: str, *tokens: int) -> None:
    if max(tokens, default=0) > MOST:
        hint = "--top K shows the strongest." if kind == "bars" else "--figure heatmap takes more."
        raise UsageError(
            f"--figure {kind} draws up to {MOST} tokens; here are {max(tokens):,}.", hint, "--figure"
        )
