"""Results for programs: the record as JSON, rows as CSV and TSV, weights as a NumPy file, links as a Parquet table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.render.formats import FORMATS, Format, Written
from attn_cli.render.result import Result, keys_in
from attn_cli.settings.settings import NORM, Settings

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.settings.output import View
    from attn_cli.trace.trace import Trace

STEPS_ELSEWHERE = "the weights alone; the steps show in table, markdown and json."


def json(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the record over several lines, or what --fields chooses of it; of jsonl, each record on a line."""
    from attn_cli.io.escape import dumps
    from attn_cli.settings.output import cut

    is_lines, keys = view.format == "jsonl", keys_in(view, result.kind)
    records = (is_lines and result.records) or [result.record(view)]
    return Written("".join(dumps(cut(one, keys), is_lines, not terminal.unicode) for one in records))


def csv(result: Result, view: View, terminal: Terminal) -> Written:
    """Return rows with commas between their cells, or tabs for tsv; no cell is a formula to a spreadsheet."""
    import csv
    import io

    from attn_cli.inputs.csv_matrix import as_cell

    out = io.StringIO()
    rows = ([as_cell(value) for value in row] for row in result.rows(view))
    csv.writer(out, delimiter="\t" if view.format == "tsv" else ",", lineterminator="\n").writerows(rows)
    alone = [f"csv and tsv hold {STEPS_ELSEWHERE}"] if result.has_steps(view) else []
    return Written(out.getvalue(), [*result.remarks(), *alone])


def npy(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the weights of the result's trace, and its remarks but for the one that not all weights are kept."""
    from attn_cli.pipeline.beside import kept_note

    trace = result.trace()
    held = kept_note(len(trace.query_tokens), len(trace.key_tokens))  # here all are written
    alone = [f"npy holds {STEPS_ELSEWHERE}"] if view.steps and trace.is_scored else []
    return Written(npy_parts(trace), [*(line for line in result.remarks() if line != held), *alone])


def check_npy(settings: Settings, view: View | None = None) -> Settings:
    """Return the settings; raise UsageError for some that leave no matrix to write."""
    if settings.top is not None:
        what = "--top does not apply to -f npy: a matrix has all links."
        raise UsageError(what, "Leave out --top, or use -f csv.", "--top")
    return settings


def npy_parts(trace: Trace) -> Iterator[memoryview]:
    """Yield the parts of an .npy file: weights (n_q, n_k), 0 where masked; numpy.load can map it row by row.

    With --head all they are (heads, n_q, n_k), with --layer all (layers, heads, n_q, n_k), of one head where asked.
    """
    import io

    import numpy as np

    from attn_cli.io.progress import Progress

    check_npy(trace.settings)
    several = trace.has_layers or trace.settings.head == "all"
    heads = trace.heads if several else (trace.shown,)
    layers = len({head.layer for head in heads})
    stacked = (layers, len(heads) // layers) if trace.has_layers else (len(heads),) * several
    shape = (*stacked, len(trace.listed), len(trace.key_tokens))
    opening, done = io.BytesIO(), 0
    header = np.lib.format.header_data_from_array_1_0(trace.weights) | {
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(opening, header)
    yield opening.getbuffer()
    with Progress("Writing") as progress:
        for head in heads:
            blocks = iter([head.weights])
            if trace.asked:
                blocks = iter([head.weights[[trace.row_in_arrays(i) for i in trace.listed]]])
            elif trace.condensed and trace.source is not None:
                blocks = trace.source(head.name)
            for weights in blocks:
                yield np.ascontiguousarray(weights).data.cast("B")
                done += len(weights)
                progress(done / (len(trace.listed) * len(heads)))


def parquet(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the links of the result's trace as a table, and what it has no room for; else the result's rows."""
    from attn_cli.batch.forms import parquet_of
    from attn_cli.batch.records import columns_of, keys_of_links
    from attn_cli.settings.output import keys_named

    if not result.has_trace or (trace := result.trace()).drawn == NORM:
        names, *cells = result.rows(view)
        columns = zip(*cells, strict=True) if cells else ([] for _ in names)
        values = ([None if value == "" else value for value in column] for column in columns)
        return Written([parquet_of(dict(zip(map(str, names), values, strict=True)))], result.remarks())
    record = trace.to_dict(keys=keys_named(keys_of_links(trace.settings)))
    data = parquet_of(columns_of([(1, record)]), trace.settings.dtype)
    alone = [f"parquet holds {STEPS_ELSEWHERE}"]
    return Written([data], [*result.remarks(), *alone * result.has_steps(view)])


def check_pyarrow(settings: Settings, view: View) -> Settings:
    """Return the settings; raise MissingExtra without pyarrow: before the work, and not after it."""
    from attn_cli.batch.forms import load_pyarrow

    load_pyarrow()
    return settings


FORMATS["json"] = Format("record", json, (".json",))
FORMATS["jsonl"] = Format("record", json, (".jsonl",), also=(".json",))  # one line of JSON is JSON
FORMATS["csv"] = Format("rows", csv, (".csv",), is_tidy=True)
FORMATS["tsv"] = Format("rows", csv, (".tsv",), is_tidy=True)
_NOT_TEXT = {
    one: (f"-f {one} is not text.", f"Write it to a file: -o weights.{one}") for one in ("npy", "parquet")
}
FORMATS["npy"] = Format("trace", npy, (".npy",), not_on_terminal=_NOT_TEXT["npy"], settings=check_npy)
FORMATS["parquet"] = Format(
    "rows", parquet, (".parquet",), not_on_terminal=_NOT_TEXT["parquet"], settings=check_pyarrow, is_tidy=True
)
