"""Weights as CSV or TSV: wide (a column a key) or tidy (a row a link); no cell is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from attn_cli.io.csv_matrix import FORMULA_STARTS
from attn_cli.io.escape import visible
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace


def delimited(trace: Trace, separator: str, tidy: bool = False) -> str:
    """Return the weights as delimited text: wide, empty where masked, or `query,key,weight` rows.

    Several heads get a first column `head`, and those of several layers one before it, `layer`. Where only the
    strongest links are kept, the rows are tidy; those of a long text, whose words are repeated, also have the
    positions of query and key.
    """
    is_mean = trace.settings.head == "mean" and not trace.has_layers
    heads = (trace.shown,) if is_mean else trace.shown_heads
    tidy = tidy or not trace.whole
    columns = ["query", "key", "weight"] if tidy else ["query", *map(cell, trace.key_tokens)]
    columns += ["query_row", "key_column"] if trace.condensed else []
    body = ((head, row) for head in heads for row in (_tidy if tidy else _wide)(trace, head))
    if len(heads) == 1 and not trace.has_layers:
        return as_text([columns, *(row for _, row in body)], separator)
    layer = ["layer"] if trace.has_layers else []
    rows = ([*([head.layer] if layer else []), cell(head.name), *row] for head, row in body)
    return as_text([[*layer, "head", *columns], *rows], separator)


def as_text(rows: Iterable[Iterable[object]], separator: str) -> str:
    """Return rows of cells as delimited text."""
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
    return out.getvalue()


def cell(text: str) -> str:
    """Return text as a cell that nothing obeys: control characters spelled out, and no formula."""
    shown = visible(text)
    return "'" + shown if text[:1] in FORMULA_STARTS else shown


def _wide(trace: Trace, head: Head) -> list[list[object]]:
    rows: list[list[object]] = []
    mask = trace.mask_of(head)
    for i in trace.listed:
        weights = head.weights[trace.held(i)].tolist()
        may = [True] * len(weights) if mask is None else mask[trace.held(i)].tolist()
        cells = [weight if allowed else "" for weight, allowed in zip(weights, may, strict=True)]
        rows.append([cell(trace.query_tokens[i]), *cells])
    return rows


def _tidy(trace: Trace, head: Head) -> list[list[object]]:
    keys = list(map(cell, trace.key_tokens))
    if not trace.whole:
        return [
            [cell(trace.query_tokens[i]), keys[j], weight, *((i, j) if trace.condensed else ())]
            for i, j, weight in trace.links(head)
        ]
    return [
        [query, key, weight]
        for query, *weights in _wide(trace, head)
        for key, weight in zip(keys, weights, strict=True)
        if weight != ""
    ]
