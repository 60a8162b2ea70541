"""Weights as a NumPy file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.render.formats import FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings
    from attn_cli.trace.head import Head
    from attn_cli.trace.trace import Trace

ALONE = "npy holds the weights alone; the steps show in table, markdown and json."


def write(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the weights of the result's trace, and its remarks but for the one that not all weights are kept."""
    from attn_cli.pipeline.notes import kept_note

    trace = result.trace()
    held = kept_note(len(trace.query_tokens), len(trace.key_tokens))  # here all are written
    remarks = [line for line in result.remarks if line != held]
    return Written(_with_progress(trace), [*remarks, *([ALONE] if view.steps and trace.is_scored else [])])


def _with_progress(trace: Trace) -> Iterator[memoryview]:
    from attn_cli.io.progress import Progress

    with Progress("Writing") as progress:
        yield from npy(trace, progress)


def check(settings: Settings, view: View | None = None) -> Settings:
    """Return the settings; raise UsageError for some that leave no matrix to write."""
    if settings.top is not None:
        raise UsageError(
            "--top does not apply to -f npy: a matrix has all links.",
            "Leave out --top, or use -f csv.",
            "--top",
        )
    return settings


def npy(trace: Trace, report: Callable[[float], None] | None = None) -> Iterator[memoryview]:
    """Yield the parts of an .npy file: weights (n_q, n_k), or (heads, n_q, n_k) with --head all; 0 where masked.

    With --layer all they are (layers, heads, n_q, n_k), of one head a layer where one was asked for.

    `numpy.load(file, mmap_mode="r")` reads a row of it without the rest.
    """
    import io

    import numpy as np

    check(trace.settings)
    several = trace.has_layers or trace.settings.head == "all"
    heads = trace.heads if several else (trace.shown,)
    layers = len({head.layer for head in heads})
    stacked = (layers, len(heads) // layers) if trace.has_layers else (len(heads),) if several else ()
    rows = len(trace.listed)
    header = {
        "descr": np.lib.format.dtype_to_descr(trace.weights.dtype),
        "fortran_order": False,
        "shape": (*stacked, rows, len(trace.key_tokens)),
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
        yield head.weights[[trace.row_in_arrays(i) for i in trace.listed]]
    elif trace.condensed and trace.source is not None:
        yield from trace.source.blocks(head.name)
    else:
        yield head.weights


HINT = "Write it to a file: -o weights.npy"
FORMATS["npy"] = Format(
    "trace", write, (".npy",), not_on_terminal=("-f npy is not text.", HINT), settings=check
)
