"""A comparison as JSON, CSV and TSV, and the sentences printed on standard error beside those."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attn_cli.render.blocks import Say
from attn_cli.render.data.csv import as_text, cell
from attn_cli.render.views.comparison import ending, matrix, sentences
from attn_cli.teach.compare import Change, Comparison

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


def talk_of(comparison: Comparison) -> list[str]:
    """Return what is printed on standard error where the output has no room for sentences."""
    blocks = [*map(Say, sentences(comparison)), *ending(comparison)]
    return [block.text for block in blocks if isinstance(block, Say) and not block.quiet]


def record(comparison: Comparison, steps: bool = False) -> dict[str, object]:
    """Return the comparison as JSON of kind compare."""
    changes = [_change_record(comparison, change) for change in comparison.changes]
    is_pair = len(changes) == 1
    return {
        "schema": "attn/1",
        "kind": "compare",
        "option": comparison.option,
        "values": list(comparison.values),
        "records": [trace.to_dict(steps) for trace in comparison.traces],
        "difference": _finite(comparison.changes[0].difference) if is_pair else None,
        "entropy": list(comparison.entropy),
        "largest_mover": changes[0]["largest_mover"] if is_pair else None,
        "changes": changes,
        "summary": " ".join(sentences(comparison)),
    }


def _change_record(comparison: Comparison, change: Change) -> dict[str, object]:
    trace = comparison.traces[0]
    rows = {i: place for place, i in enumerate(trace.listed)}
    mover = None
    if change.movers:
        most = change.movers[0]
        mover = {
            "query": trace.query_tokens[most.query],
            "key": trace.key_tokens[most.key],
            "cell": [rows[most.query], most.key],
            "from": most.before,
            "to": most.after,
        }
    return {
        "value": comparison.values[change.to],
        "largest_mover": mover,
        "strongest_changed": [rows[i] for i in change.turned],
        "masked_only_before": change.only_before,
        "masked_only_after": change.only_after,
    }


def _finite(matrix: Array) -> list[list[float | None]]:
    return [[None if math.isnan(x) else x for x in row] for row in matrix.tolist()]


def delimited_comparison(comparison: Comparison, separator: str) -> str:
    """Return CSV or TSV: a row for each link, with its weight under each value and, of two, their difference.

    A masked weight is empty, and so is a difference that has a masked side.
    """
    names = [f"{comparison.option}={label}" for label in comparison.labels]
    first = comparison.traces[0]
    sides = [matrix(trace).values for trace in comparison.traces]
    if len(sides) == 2:
        names.append("difference")
        sides.append(comparison.changes[0].difference)
    rows = [["query", "key", *map(cell, names)]]
    for at, i in enumerate(first.listed):
        for j, key in enumerate(first.key_tokens):
            numbers = ["" if math.isnan(side[at, j]) else str(float(side[at, j])) for side in sides]
            rows.append([cell(first.query_tokens[i]), cell(key), *numbers])
    return as_text(rows, separator)
