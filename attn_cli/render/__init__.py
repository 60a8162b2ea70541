"""Trace to text, in every format. Each renderer is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from attn_cli.io.terminal import Terminal
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.render.blocks import Block
    from attn_cli.trace.steps import Walk

SCREENS = ("table", "bars", "markdown", "latex", "html", "svg")  # made of blocks
SUFFIXES = {
    ".txt": "table",
    ".json": "json",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
    ".html": "html",
    ".svg": "svg",
    ".npy": "npy",
    ".py": "code:numpy",
}


def render(trace: Trace, view: View, terminal: Terminal, walk: Walk | None = None) -> str:
    """Return the trace as text in the view's format; with a walk, as `attn explain` tells it."""
    chosen = view.format or "table"
    if chosen in ("json", "jsonl"):
        from attn_cli.render.data.json import dumps

        record = trace.to_dict(steps=view.steps or walk is not None)
        return dumps(record, chosen == "jsonl", not terminal.unicode)
    if chosen in ("csv", "tsv"):
        from attn_cli.render.data.csv import delimited

        return delimited(trace, "," if chosen == "csv" else "\t", view.tidy)
    if chosen.startswith("code:"):
        from attn_cli.render.code.script import script

        return script(trace, chosen.partition(":")[2])
    return render_blocks(trace_blocks(trace, view, walk), view, terminal)


def trace_blocks(trace: Trace, view: View, walk: Walk | None = None) -> Iterator[Block]:
    """Yield the blocks of a screen: bars, the walk, or the table of weights."""
    from attn_cli.render.views.explain import explain
    from attn_cli.render.views.overview import bars, table

    if view.format == "bars":
        return bars(trace, view)
    return table(trace, view) if walk is None else explain(trace, view, walk)


def render_blocks(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    """Return blocks as text in the view's format, one of SCREENS."""
    if view.format == "markdown":
        from attn_cli.render.document.markdown import markdown

        return markdown(blocks, view)
    if view.format == "latex":
        from attn_cli.render.document.latex import latex

        return latex(blocks, view)
    if view.format == "html":
        from attn_cli.render.document.html import html

        return _portable(html(blocks, view), terminal)
    if view.format == "svg":
        from attn_cli.render.document.svg import svg

        return _portable(svg(blocks, view), terminal)
    from attn_cli.render.screen.draw import draw

    return terminal.paint(draw(blocks, view, terminal))


def _portable(page: str, terminal: Terminal) -> str:
    """Return a page, which is UTF-8, in ASCII where the output is not: its characters by their numbers."""
    is_utf8 = terminal.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return page if is_utf8 else page.encode("ascii", "xmlcharrefreplace").decode()
