"""Trace to text, in every format. Each renderer is loaded when it is asked for."""

from __future__ import annotations

from attn_cli.terminal import Terminal
from attn_cli.trace import Trace
from attn_cli.view import View

FORMATS = ("table", "bars", "json", "jsonl", "csv", "tsv", "markdown")
SUFFIXES = {
    ".txt": "table",
    ".json": "json",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".md": "markdown",
    ".markdown": "markdown",
}


def render(trace: Trace, view: View, terminal: Terminal, walk: bool = False) -> str:
    """Return the trace as text in the view's format; with `walk`, as `attn explain` tells it."""
    chosen = view.format or "table"
    if chosen in ("json", "jsonl"):
        from attn_cli.render.json import dumps

        record = trace.to_dict(steps=view.steps or walk)
        return dumps(record, chosen == "jsonl", not terminal.unicode)
    if chosen in ("csv", "tsv"):
        from attn_cli.render.delimited import delimited

        return delimited(trace, "," if chosen == "csv" else "\t", view.tidy)
    from attn_cli.render.screens import bars, explain, table

    blocks = bars if chosen == "bars" else explain if walk else table
    if chosen == "markdown":
        from attn_cli.render.markdown import markdown

        return markdown(blocks(trace, view), view)
    from attn_cli.render.draw import draw

    return terminal.paint(draw(blocks(trace, view), view, terminal))
