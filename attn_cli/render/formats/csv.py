"""Rows as CSV or TSV; no cell is a formula to a spreadsheet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.formats import FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View

ALONE = "csv and tsv hold the weights alone; the steps show in table, markdown and json."


def csv(result: Result, view: View, terminal: Terminal) -> Written:
    """Return rows with commas between their cells."""
    return _delimited(result, view, ",")


def tsv(result: Result, view: View, terminal: Terminal) -> Written:
    """Return rows with tabs between their cells."""
    return _delimited(result, view, "\t")


def _delimited(result: Result, view: View, separator: str) -> Written:
    import csv
    import io

    out = io.StringIO()
    rows = ([_cell(value) for value in row] for row in result.rows(view))
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
    return Written(out.getvalue(), [*result.remarks, *([ALONE] if result.has_steps(view) else [])])


def _cell(value: object) -> object:
    """Return text as a cell that nothing obeys: control characters spelled out, and no formula."""
    if not isinstance(value, str):
        return value
    from attn_cli.inputs.csv_matrix import FORMULA_STARTS
    from attn_cli.io.escape import visible

    shown = visible(value)
    return "'" + shown if value[:1] in FORMULA_STARTS else shown


FORMATS["csv"] = Format("rows", csv, (".csv",))
FORMATS["tsv"] = Format("rows", tsv, (".tsv",))
