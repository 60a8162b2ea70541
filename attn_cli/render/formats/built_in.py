"""The formats of attn's own: records, rows and arrays for programs, screens, documents, figures, pages and scripts.

--figure says what is drawn, and the suffix of the output how: .png, .pdf or .svg.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError, refuse, visible
from attn_cli.io.progress import Progress
from attn_cli.io.types import replace
from attn_cli.render.formats import DRAWN, FORMATS, Format, Written, portable
from attn_cli.render.result import Result, keys_in
from attn_cli.settings import NORM, Settings, View, output

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.trace import Trace

STEPS_ELSEWHERE = "the weights alone; the steps show in table, markdown and json."


def json(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the record over several lines, or what --fields chooses of it; of jsonl, each record on a line."""
    from attn_cli.io.json_text import dumps

    is_lines, keys = view.format == "jsonl", keys_in(view, result.kind)
    records = (is_lines and result.records) or [result.record(view)]
    return Written("".join(dumps(output.cut(one, keys), is_lines, not terminal.unicode) for one in records))


def csv(result: Result, view: View, terminal: Terminal) -> Written:
    """Return rows with commas between their cells, or tabs for tsv; no cell is a formula to a spreadsheet."""
    import csv

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
    what = "--top does not apply to -f npy: a matrix has all links."
    refuse(settings.top is not None, what, "Leave out --top, or use -f csv.", "--top")
    return settings


def npy_parts(trace: Trace) -> Iterator[memoryview]:
    """Yield the parts of an .npy file: weights (n_q, n_k), 0 where masked; numpy.load can map it row by row.

    With --head all they are (heads, n_q, n_k), with --layer all (layers, heads, n_q, n_k), of one head where asked.
    """
    import numpy as np

    check_npy(trace.settings)
    several = trace.has_layers or trace.settings.head == "all"
    heads = trace.heads if several else (trace.shown,)
    layers = len({head.layer for head in heads})
    stacked = (layers, len(heads) // layers) if trace.has_layers else (len(heads),) * several
    shape = (*stacked, len(trace.listed), len(trace.key_tokens))
    opening, done = io.BytesIO(), 0
    kind = np.lib.format.dtype_to_descr(trace.weights.dtype)
    header = {"descr": kind, "fortran_order": False, "shape": shape}
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
    from attn_cli.batch import forms, records

    if not result.has_trace or (trace := result.trace()).drawn == NORM:
        names, *cells = result.rows(view)
        columns = zip(*cells, strict=True) if cells else ([] for _ in names)
        values = ([None if value == "" else value for value in column] for column in columns)
        return Written([forms.parquet_of(dict(zip(map(str, names), values, strict=True)))], result.remarks())
    record = trace.to_dict(keys=output.keys_named(records.keys_of_links(trace.settings)))
    data = forms.parquet_of(records.columns_of([(1, record)]), trace.settings.dtype)
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


def screen(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as lines of the terminal."""
    from attn_cli.render.screen.draw import draw

    return Written(terminal.paint(draw(result.blocks(view), view, terminal)))


def document(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as a document, by the module that is named as the view's format is."""
    name = str(view.format)
    made: str = getattr(import_module(f"attn_cli.render.documents.{name}"), name)(result.blocks(view), view)
    return Written(portable(made, terminal) if name in MARKED_UP else made)


MARKED_UP = ("html", "svg")
FORMATS["table"] = Format("blocks", screen, (".txt",), also=DRAWN, is_screen=True)
FORMATS["bars"] = Format("bars", screen, also=(".txt", *DRAWN), is_screen=True)
FORMATS["markdown"] = Format("blocks", document, (".md", ".markdown"))
FORMATS["latex"] = Format("blocks", document, (".tex",))
FORMATS["html"] = Format("blocks", document, (".html", ".htm"))
FORMATS["svg"] = Format("blocks", document, (".svg",))


PICTURES = (".png", ".pdf", ".svg")  # without --figure, .svg is a screen
ALONE = ("dpi", "size", "title")  # options that say nothing without a figure


def figure(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a figure, and what it has no room for."""
    from attn_cli.render.figures import picture

    drawing, remarks = result.drawing(view)
    with Progress("Drawing"):
        data, notes = picture(drawing, view)
    return Written([data], [*remarks, *notes])


def view_of_figure(view: View, suffix: str) -> View:
    """Return the view with the figure that it is to draw, if it is to draw one; refuse options that need one."""
    if view.figure is None and suffix in FORMATS["figure"].suffixes and view.format is None:
        view = replace(view, figure="heatmap")
    if view.figure is None:
        hint = "Type -o figure.png, or say what to draw: --figure heatmap -o figure.svg."
        for name in ALONE:
            refuse(getattr(view, name) is not None, f"--{name} applies only to figures.", hint, f"--{name}")
        return view
    hint = f"Leave out -f, and type -o {view.figure}.png, .pdf or .svg."
    refuse(view.format not in (None, "svg"), f"A figure has no {view.format} form.", hint, "--figure")
    where = "" if view.to_standard_output else f", not into {visible(str(view.output))!r}"
    what = f"A figure goes into a file that ends in .png, .pdf or .svg{where}."
    is_picture = suffix in PICTURES or (view.format == "svg" and suffix == "")
    refuse(not is_picture, what, f"Type -o {view.figure}.png.", "--figure")
    return replace(view, format="svg")


def settings_of_figure(settings: Settings, view: View) -> Settings:
    """Return the settings that a figure needs: all heads for one of all; MissingExtra without Matplotlib."""
    is_every = view.figure == "heads" and settings.head not in ("all", "mean")
    is_wrong = is_every and settings.head is not None
    refuse(is_wrong, "--figure heads draws every head.", "Leave out --head.", "--head")
    if find_spec("matplotlib") is None:
        from attn_cli.render.figures import not_installed

        raise not_installed()
    return replace(settings, head="all") if is_every else settings


def page(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the page, which is one file."""
    from attn_cli.render.page import page

    return Written(portable(page(result.page()), terminal))


def code(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a script for the framework that the format names; UsageError for weights that came without scores."""
    from attn_cli.render.code import script

    trace = result.trace()
    if not trace.is_scored:
        from attn_cli.render.views.wording import no_arithmetic

        held = "here are" if trace.kind != "show" else f"{trace.embedding.name} holds"
        what = f"-f {view.format} needs queries, keys and values; {held} weights alone."
        raise UsageError(what, no_arithmetic(trace)[1], "--format")
    return Written(script(trace, str(view.format).partition(":")[2]))


FORMATS["page"] = Format(
    "page",
    page,
    also=(".html", ".htm"),
    not_on_terminal=("A page is for a browser.", "Write it to a file: -o page.html"),
    settings=lambda settings, view: replace(settings, every_head=True),  # who reads a page chooses among them
)
FORMATS["code:numpy"] = Format("trace", code, (".py",))
FORMATS["code:torch"] = Format("trace", code, also=(".py",))
FORMATS["code:keras"] = Format("trace", code, also=(".py",))
FORMATS["figure"] = Format(
    "drawing", figure, (".png", ".pdf"), (".svg",), is_typed=False, settings=settings_of_figure
)
