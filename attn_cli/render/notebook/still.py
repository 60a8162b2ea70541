"""A trace as tables with colours of their own: readable on light and dark notebooks, without script or style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.render.blocks import Matrix
from attn_cli.render.document.page_tables import label
from attn_cli.render.numbers import share, weight
from attn_cli.render.palette import PAPER, RGB, page_colors, ramp, text_on
from attn_cli.render.shade_scale import shade_range, shading
from attn_cli.render.views.wording import head_named, setting_parts, title

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.trace.head import Head
    from attn_cli.trace.trace import Trace

MOST_ROWS, MOST_CELLS = 30, 8_000  # of a table, and of all
MOST_LINKS = 40
BACK, INK, _ = page_colors(PAPER)
ON_CARD = f"background:{BACK};color:{INK}"
CARD = "padding:.6em;overflow-x:auto;font:14px/1.4 system-ui,sans-serif;text-align:left"
TABLE = "margin:.6em 1.5em .6em 0;display:inline-table;border-collapse:collapse"
WHITE = (255, 255, 255)


def still(trace: Trace) -> str:
    """Return a trace's weights as tables: one for each head that is shown, under words on what they are."""
    body = list(_links(trace)) if not trace.whole else list(_matrices(trace))
    about = f"{'; '.join(setting_parts(trace))}."
    notes = "".join(f"<br>{_text(f'Note: {note}')}" for note in trace.notes)
    return (
        f'<div style="{ON_CARD};{CARD}"><div><b>{_text(title(trace))}</b><br>'
        f"{_text(about)}{notes}</div>{''.join(body)}</div>"
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _name(token: str) -> str:
    """Return a token as a label, which leaves the order of what stands around it alone."""
    shown = escape(label(token))
    return shown if shown.isascii() else f"<bdi>{shown}</bdi>"


def _links(trace: Trace) -> Iterator[str]:
    """Yield the strongest links of each row as one table."""
    links = trace.links()
    rows = "".join(
        _row(
            f"<th>{_name(trace.query_tokens[i])}</th><td>{_name(trace.key_tokens[j])}</td><td>{share(w)}</td>"
        )
        for i, j, w in links[:MOST_LINKS]
    )
    more = f" (the first {MOST_LINKS} of {len(links):,})" if len(links) > MOST_LINKS else ""
    yield _table(f"Each row's strongest links{more}", _row("<th>query</th><th>key</th><th>weight</th>"), rows)


def _matrices(trace: Trace) -> Iterator[str]:
    """Yield a table for each shown head, as long as they are not too many."""
    rows, columns = list(trace.listed)[:MOST_ROWS], range(len(trace.key_tokens))[:MOST_ROWS]
    fit = max(1, MOST_CELLS // max(1, len(rows) * len(columns)))
    heads = trace.shown_heads if trace.shown in trace.heads else (trace.shown,)  # a mean is none of the heads
    if len(heads) > fit:
        heads = (trace.shown,)
    for head in heads:
        yield _matrix(trace, head, rows, columns, len(heads) > 1)
    n_q, n_k = len(trace.listed), len(trace.key_tokens)
    left_out = []
    if (len(rows), len(columns)) != (n_q, n_k):
        sides = f"{count(len(rows), 'row', 'rows')} and {count(len(columns), 'column', 'columns')}"
        left_out.append(f"The first {sides} of {n_q:,} x {n_k:,}.")
    if len(heads) == 1 < len(trace.shown_heads) and trace.shown in trace.heads:
        left_out.append(f"One of {len(trace.shown_heads):,} heads.")
    if left_out:
        yield f"<p>{' '.join(left_out)}</p>"


def _matrix(trace: Trace, head: Head, rows: Sequence[int], columns: range, is_one_of_many: bool) -> str:
    """Return a head's weights as a table; a masked one is a dash."""
    values = _values(trace, head, [trace.held(i) for i in rows])[:, : len(columns)]
    shown = Matrix([], [], values, is_weights=True)
    shades = shading(values, shade_range(shown)).tolist()
    form = weight(2 if is_one_of_many else 3)
    lines = []
    for i, numbers, places in zip(rows, values.tolist(), shades, strict=True):
        cells = [_cell(form(w), place) for w, place in zip(numbers, places, strict=True)]
        lines.append(_row(f"<th>{_name(trace.query_tokens[i])}</th>{''.join(cells)}"))
    heads = "".join(f"<th>{_name(trace.key_tokens[j])}</th>" for j in columns)
    size = "11px" if is_one_of_many else "13px"  # so that two and more stand beside each other
    return _table(_caption(trace, head), _row(f"<th>query\\key</th>{heads}"), "".join(lines), size)


def _caption(trace: Trace, head: Head) -> str:
    layer = f"layer {head.layer}, " if head.layer is not None else ""
    name = f"{layer}{head_named(head.name)}" if len(trace.head_names) > 1 or layer else "the weights"
    return f"{name[:1].upper()}{name[1:]}: rows are queries, columns are keys"


def _values(trace: Trace, head: Head, held: Sequence[int]) -> Array:
    """Return a head's weights in these rows, NaN where masked."""
    values: Array = head.weights[held]
    allowed = trace.mask_of(head)
    return values if allowed is None else np.where(allowed[held], values, np.nan)


def _shade(rgb: RGB) -> str:
    """Return the look of a cell; dark ink is that of the whole table."""
    return f"background:#{bytes(rgb).hex()}" + (";color:#fff" if text_on(rgb) == WHITE else "")


_SHADES = [_shade(rgb) for rgb in ramp(PAPER)]


def _cell(text: str, place: int) -> str:
    return f'<td style="{_SHADES[place]}">{text}</td>' if place >= 0 else "<td>–</td>"


def _row(cells: str) -> str:
    """Return a row with colours of its own: notebooks have some for every second row."""
    return f'<tr style="{ON_CARD}">{cells}</tr>'


def _table(caption: str, head: str, rows: str, size: str = "13px") -> str:
    return (
        f'<table style="{ON_CARD};{TABLE};font-size:{size}">'
        f'<caption style="{ON_CARD};text-align:left">{_text(caption)}</caption>'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table>"
    )
