"""Weights as CSV or TSV: wide (a column a key) or tidy (a row a link); never a formula for a spreadsheet."""

from __future__ import annotations

import csv
import io

from attn_cli.io.escape import visible
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace


def delimited(trace: Trace, separator: str, tidy: bool = False) -> str:
    """Return the weights as delimited text: wide, empty where masked, or `query,key,weight` rows.

    Several heads get a first column `head`. Where only the strongest links are kept, the rows are tidy; those of a
    long text, whose words come again and again, also tell the places of query and key.
    """
    heads = (trace.shown,) if trace.settings.head == "mean" else trace.shown_heads
    several = len(heads) > 1
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    tidy = tidy or not trace.whole
    columns = ["query", "key", "weight"] if tidy else ["query", *map(cell, trace.key_tokens)]
    columns += ["query_row", "key_column"] if trace.condensed else []
    writer.writerow(["head", *columns] if several else columns)
    for head in heads:
        for row in _tidy(trace, head) if tidy else _wide(trace, head):
            writer.writerow([cell(head.name), *row] if several else row)
    return out.getvalue()


def cell(text: str) -> str:
    """Return text as an inert cell: spelled-out control characters, and no formula."""
    shown = visible(text)
    return "'" + shown if text[:1] in ("=", "+", "-", "@", "\t") else shown


def _wide(trace: Trace, head: Head) -> list[list[object]]:
    rows: list[list[object]] = []
    for i in trace.listed:
        weights = head.weights[trace.held(i)].tolist()
        may = [True] * len(weights) if trace.mask is None else trace.mask[trace.held(i)].tolist()
        cells = [weight if allowed else "" for weight, allowed in zip(weights, may, strict=True)]
        rows.append([cell(trace.query_tokens[i]), *cells])
    return rows


def _tidy(trace: Trace, head: Head) -> list[list[object]]:
    if not trace.whole:
        places = trace.condensed
        return [
            [cell(trace.query_tokens[i]), cell(trace.key_tokens[j]), w, *((i, j) if places else ())]
            for i, j, w in trace.links(head)
        ]
    return [
        [row[0], cell(key), weight]
        for row in _wide(trace, head)
        for key, weight in zip(trace.key_tokens, row[1:], strict=True)
        if weight != ""
    ]
