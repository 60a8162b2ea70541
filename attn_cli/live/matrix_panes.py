"""The panes with a matrix whose cells can be chosen: the weights, what changed in them, the given matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.live.actions import Seen
from attn_cli.live.paper import Pane, Paper
from attn_cli.live.state import BEFORE, DIFFERENCE, State
from attn_cli.render.blocks import Block, Maps, Matrix, Say
from attn_cli.render.screen.matrix_pane import large_blocks, matrix_part
from attn_cli.render.shade_scale import weight_range
from attn_cli.render.views.long_text import long_view
from attn_cli.render.views.overview import weight_matrix
from attn_cli.render.views.wording import is_large
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


def weights_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return the matrix of weights, or what stands for it: all heads, a long text's map, what changed."""
    trace, notes = seen.trace, []
    if seen.before is not None and state.compared == BEFORE:
        trace = seen.before
        notes.append("The view before; v: back to now.")
    elif seen.before is not None and state.compared == DIFFERENCE:
        return _difference(state, seen.before, trace, paper)
    if trace.settings.head == "all" and len(trace.heads) > 1:
        return Pane(paper.draw(_all_heads(trace, paper), paper.height))
    if is_large(trace):
        return Pane(paper.draw(long_view(trace, trace.shown, paper.view)))
    return _matrix_pane(state, weight_matrix(trace, trace.shown), notes, paper)


def _matrix_pane(state: State, block: Matrix, notes: list[str], paper: Paper) -> Pane:
    """Return a matrix under its notes, with its legend where there is room."""
    above = paper.draw(map(Say, notes))
    cell = (min(state.row, len(block.rows) - 1), min(state.column, len(block.columns) - 1))
    palette = paper.view.palette
    part = None
    if state.is_large:
        part = large_blocks(block, paper.terminal, palette, cell, paper.height - len(above))
        above += [] if part else paper.draw([Say("Too many words for large blocks here; b: back.")])
    room = paper.height - len(above)
    part = part or matrix_part(block, paper.terminal, palette, cell, room)
    spare = room - len(part.lines)
    legend = part.legend[:1] if spare < len(part.legend) + 1 else part.legend
    return Pane([*above, *part.lines, *legend[: max(0, spare)]], part, len(above))


def _difference(state: State, before: Trace, after: Trace, paper: Paper) -> Pane:
    """Return what changed between two views: the signed difference, or why there is none."""
    from attn_cli.errors import InputError
    from attn_cli.render.views.comparison import sentences
    from attn_cli.render.views.overview import labelled_matrix
    from attn_cli.teach.compare import between

    try:
        comparison = between("view", ("before", "now"), (before, after))
    except InputError as error:
        return Pane(paper.draw([Say(str(error))]))
    said = sentences(comparison)
    if not comparison.changes:
        return Pane(paper.draw(map(Say, [*said, "v: the view before."])))
    block = labelled_matrix(after, comparison.changes[0].difference)._replace(is_difference=True)
    lines = len(paper.draw(map(Say, said)))
    notes = ["Now minus before; v: the view before."]
    if len(block.rows) + lines + 3 <= paper.height:
        notes += said
    return _matrix_pane(state, block, notes, paper)


def _all_heads(trace: Trace, paper: Paper) -> Iterator[Block]:
    """Yield every head as a small map, as many as fit side by side; of a longer text, means of blocks."""
    from attn_cli.trace.head_roles import block_means

    weights = np.stack([head.weights for head in trace.heads])
    allowed = np.ones(weights.shape[1:], np.bool_) if trace.mask is None else trace.mask
    n_q, n_k = weights.shape[1:]
    rows, columns = _map_size(len(weights), n_q, n_k, paper)
    values = list(block_means(weights, allowed, rows, columns))
    known = np.concatenate([one[~np.isnan(one)] for one in values] or [np.zeros(1)])
    scale = weight_range(
        float(known.min(initial=1)), float(known.max(initial=0)), float(known.mean()) if known.size else 0
    )
    names = [head.name for head in trace.heads]
    empty = [""] * rows, [""] * columns
    yield Maps(names, *empty, values, scale, list(range(rows)), list(range(columns)), bands=[""])
    if (rows, columns) != (n_q, n_k):
        yield Say(f"Each map has {rows} x {columns} means of {n_q:,} x {n_k:,} weights. h: one head, whole.")


def _map_size(heads: int, n_q: int, n_k: int, paper: Paper) -> tuple[int, int]:
    """Return how many rows and columns each of so many maps can have, so that all are seen at once."""
    best = (1, 1)
    for across in range(1, heads + 1):
        down = -(-heads // across)
        rows = min(n_q, max(1, (paper.height - 2) // down - 2))
        columns = min(n_k, max(1, (paper.width - 1) // across - 1))
        if rows * columns > best[0] * best[1]:
            best = rows, columns
    return best


def given_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return a given matrix, whose numbers can be chosen and typed anew."""
    given = seen.source.matrices(state.question)
    name = list(given)[state.matrix % len(given)]
    values = np.atleast_2d(given[name])
    block = Matrix(
        _labels(seen.trace, name, values), [str(n) for n in range(values.shape[1])], values, name, shaded=True
    )
    after = "the next matrix" if state.matrix + 1 < len(given) else "the weights"
    note = f"{name} as given. Arrows choose a number, Enter types another one, e: {after}."
    return _matrix_pane(replace(state, is_large=False), block, [note], paper)


def _labels(trace: Trace, name: str, values: Array) -> list[str]:
    """Return the labels of a given matrix's rows: tokens where it has one a token, else numbers."""
    tokens = {"Q": trace.query_tokens, "X": trace.query_tokens}.get(name, trace.key_tokens)
    is_tokens = name in ("Q", "K", "V", "X", "context") and len(tokens) == len(values)
    return list(tokens) if is_tokens else [str(n) for n in range(len(values))]
