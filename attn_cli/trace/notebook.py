"""A small matrix as HTML, for notebooks: shaded cells, no script, no style from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attn_cli.io.escape import visible

MOST = 60


def html_table(rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | None]]) -> str:
    """Return an HTML table of weights (None is masked); a deeper blue is a larger weight."""
    largest = max((cell for row in cells for cell in row if cell is not None), default=0.0) or 1.0
    head = "".join(f"<th>{_text(name)}</th>" for name in columns[:MOST])
    lines = [f"<tr><th></th>{head}</tr>"]
    for name, row in list(zip(rows, cells, strict=True))[:MOST]:
        drawn = "".join(_cell(cell, largest) for cell in row[:MOST])
        lines.append(f"<tr><th>{_text(name)}</th>{drawn}</tr>")
    cut = f"<p>The first {MOST} rows and columns.</p>" if max(len(rows), len(columns)) > MOST else ""
    return f"<table>{''.join(lines)}</table>{cut}"


def _text(token: str) -> str:
    return escape(visible(token[:80]))


def _cell(weight: float | None, largest: float) -> str:
    if weight is None:
        return "<td>–</td>"
    share = weight / largest
    ink = "#fff" if share > 0.6 else "#000"
    return f'<td style="background:rgba(8,48,107,{share:.2f});color:{ink}">{weight:.3f}</td>'
