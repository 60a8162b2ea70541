"""Weights as CSV or TSV: wide (a column a key) or tidy (a row a link); no cell is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.inputs.csv_matrix import FORMULA_STARTS
from attn_cli.io.escape import visible
from attn_cli.settings.settings import Settings
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


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


def check(settings: Settings) -> None:
    """Raise UsageError for settings that leave no matrix to write."""
    if settings.top is not None:
        raise UsageError(
            "--top does not go with -f npy: a matrix has all links.",
            "Leave out --top, or use -f csv.",
            "--top",
        )


def npy(trace: Trace, report: Callable[[float], None] | None = None) -> Iterator[memoryview]:
    """Yield the parts of an .npy file: weights (n_q, n_k), or (heads, n_q, n_k) with --head all; 0 where masked.

    With --layer all they are (layers, heads, n_q, n_k), of one head a layer where one was asked for.

    `numpy.load(file, mmap_mode="r")` reads a row of it without the rest.
    """
    check(trace.settings)
    several = trace.has_layers or trace.settings.head == "all"
    heads = trace.heads if several else (trace.shown,)
    layers = len({head.layer for head in heads})
    stacked = (layers, len(heads) // layers) if trace.has_layers else (len(heads),) if several else ()
    rows = len(trace.listed)
    shape = (rows, len(trace.key_tokens))
    header = {
        "descr": np.lib.format.dtype_to_descr(trace.weights.dtype),
        "fortran_order": False,
        "shape": (*stacked, *shape),
    }
    opening = io.BytesIO()
    np.lib.format.write_array_header_1_0(opening, header)
    yield opening.getbuffer()
    done = 0
    for head in heads:
        for weights in _blocks(trace, head):
            yield np.ascontiguousarray(weights).data.cast("B")
            done += len(weights)
            if report:
                report(done / (rows * len(heads)))


def _blocks(trace: Trace, head: Head) -> Iterator[Array]:
    if trace.asked:
        yield head.weights[[trace.held(i) for i in trace.listed]]
    elif trace.condensed and trace.source is not None:
        yield from trace.source.blocks(head.name)
    else:
        yield head.weights
