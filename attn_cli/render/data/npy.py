"""Weights as a NumPy file, a block of rows at a time: a matrix of any size, in little memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.settings.settings import Settings
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


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
