"""What a notebook shows of a trace: the interactive page, and a table for where no script may run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape

from attn_cli.io.escape import count, visible
from attn_cli.io.files import beside
from attn_cli.pipeline.norms import drawn
from attn_cli.render.blocks import Matrix
from attn_cli.render.documents import label
from attn_cli.render.numbers import exact, share, weight
from attn_cli.render.page import page
from attn_cli.render.page.script import read
from attn_cli.render.palette import PAPER, page_colors, ramp, text_on
from attn_cli.render.shade_scale import shade_range, shading
from attn_cli.render.views.origins import setting_parts
from attn_cli.render.views.wording import head_named, title
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

NO_SCRIPT = ".attn-live { display: none; } .attn-live + .attn-still { display: block; }"


def notebook_html(trace: Trace) -> str:
    """Return a trace as HTML for a notebook: the interactive page in a frame, and the same weights as a table.

    The table is seen where scripts or frames are taken out, and on paper. Nothing is loaded from elsewhere. Weights
    that are too many for a page, and each row's strongest links alone, are a table in any case.
    """
    page = live(trace)
    if not page:
        return still(trace)
    # The style has rules of classes alone, for any number of outputs may stand in one notebook. What the notebook
    # removes (a frame, a style) leaves the table. The frame follows the notebook's theme, and not that of the system.
    return (
        f"<style>\n{beside(__file__, 'notebook.css')}</style><noscript><style>{NO_SCRIPT}</style></noscript>\n{page}\n"
        f'<div class="attn-still">{still(trace)}</div>'
    )


MOST_ROWS, MOST_CELLS = 30, 8_000  # of a table, and of all
MOST_LINKS = 40
BACK, *_ = page_colors(PAPER)
ON_CARD = f"background:{BACK};color:#000"  # as `text_on` has it for light shades
CARD = "padding:.6em;overflow-x:auto;font:14px/1.4 system-ui,sans-serif;text-align:left"
TABLE = "margin:.6em 1.5em .6em 0;display:inline-table;border-collapse:collapse"
WHITE = (255, 255, 255)
_SHADES = ramp(PAPER)


def still(trace: Trace) -> str:
    """Return a trace's weights as tables: one for each head that is shown, under words on what they are."""
    trace = drawn(trace)
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
    rows = [
        f"<th>{_name(trace.query_tokens[i])}</th><td>{_name(trace.key_tokens[j])}</td><td>{share(w)}</td>"
        for i, j, w in links[:MOST_LINKS]
    ]
    more = f" (the first {MOST_LINKS} of {len(links):,})" if len(links) > MOST_LINKS else ""
    heads = f"<th>query</th><th>key</th><th>{trace.drawn}</th>"
    yield _table(f"Each row's strongest links{more}", heads, rows)


def _matrices(trace: Trace) -> Iterator[str]:
    """Yield a table for each shown head, as long as they are not too many."""
    n_q, n_k = len(trace.listed), len(trace.key_tokens)
    rows, columns = list(trace.listed)[:MOST_ROWS], range(min(n_k, MOST_ROWS))
    has_head = trace.shown in trace.heads  # a mean is none of them
    heads = trace.shown_heads if has_head else (trace.shown,)
    if len(heads) > max(1, MOST_CELLS // max(1, len(rows) * len(columns))):
        heads = (trace.shown,)
    for head in heads:
        yield _matrix(trace, head, rows, columns, len(heads) > 1)
    left_out = []
    if (len(rows), len(columns)) != (n_q, n_k):
        sides = f"{count(len(rows), 'row', 'rows')} and {count(len(columns), 'column', 'columns')}"
        left_out.append(f"The first {sides} of {n_q:,} x {n_k:,}.")
    if len(heads) == 1 < len(trace.shown_heads) and has_head:
        left_out.append(f"One of {len(trace.shown_heads):,} heads.")
    if left_out:
        yield f"<p>{' '.join(left_out)}</p>"


def _matrix(trace: Trace, head: Head, rows: Sequence[int], columns: range, is_one_of_many: bool) -> str:
    """Return a head's weights as a table; a masked one is a dash."""
    values = trace.visible_weights(head, rows)[:, : len(columns)]
    matrix = Matrix([], [], values, is_weights=trace.drawn == "weight")
    shades, form = shading(values, shade_range(matrix)).tolist(), exact(matrix)
    form = weight(2) if is_one_of_many and matrix.is_weights else form
    lines = []
    for i, numbers, places in zip(rows, values.tolist(), shades, strict=True):
        cells = "".join(_cell(form(w), place) for w, place in zip(numbers, places, strict=True))
        lines.append(f"<th>{_name(trace.query_tokens[i])}</th>{cells}")
    heads = "".join(f"<th>{_name(trace.key_tokens[j])}</th>" for j in columns)
    layer = f"layer {head.layer}, " if head.layer is not None else ""
    name = f"{layer}{head_named(head.name)}" if len(trace.head_names) > 1 or layer else f"the {trace.drawn}s"
    caption = f"{name[:1].upper()}{name[1:]}: rows are queries, columns are keys"
    size = "11px" if is_one_of_many else "13px"  # so that two and more stand beside each other
    return _table(caption, f"<th>query\\key</th>{heads}", lines, size)


def _cell(text: str, place: int) -> str:
    """Return a cell on its shade; dark ink is that of the whole table."""
    if place < 0:
        return "<td>–</td>"
    ink = ";color:#fff" if text_on(_SHADES[place]) == WHITE else ""
    return f'<td style="background:#{bytes(_SHADES[place]).hex()}{ink}">{text}</td>'


def _table(caption: str, head: str, rows: Iterable[str], size: str = "13px") -> str:
    """Return a table whose rows have colours of their own: notebooks have some for every second row."""
    head, *made = (f'<tr style="{ON_CARD}">{row}</tr>' for row in (head, *rows))
    return (
        f'<table style="{ON_CARD};{TABLE};font-size:{size}">'
        f'<caption style="{ON_CARD};text-align:left">{_text(caption)}</caption>'
        f"<thead>{head}</thead><tbody>{''.join(made)}</tbody></table>"
    )


MOST_EXACT = 30_000  # numbers of heads that are held in full: 240 KB
MOST_NUMBERS = 600_000  # of all heads, as 8-bit weights: 800 KB
MOST_SHOWN = 90_000  # of the shown head, which is held in full: 720 KB
ROW, AROUND, PICTURES, LOWEST, HIGHEST = 40, 350, 200, 480, 960  # pixels

# In a frame of some hundred pixels the heads and the matrix come first. What belongs to a file of its own is left out.
LOOK = """
body { padding: .2rem; }
#type-says, #copy-link { display: none; }
"""

# What the frame tells its page once that is there: the scheme that the style of the output gave to the frame.
TELL = "this.contentWindow.postMessage({attnScheme: getComputedStyle(this).colorScheme}, '*')"


def _look() -> str:
    """Return the style of a page in a notebook: `LOOK`, and the page's own colours for the scheme that it is told."""
    colours = re.findall(r"--back:[^\n}]*", read("page.css"))  # light, dark, and those for paper
    schemes = zip(("light", "dark"), colours[:2], strict=True)
    rules = (f':root[data-scheme="{name}"] {{ color-scheme: {name}; {line} }}\n' for name, line in schemes)
    return LOOK + "".join(rules)


def live(trace: Trace) -> str:
    """Return the frame with the page; nothing where the trace has no whole matrix, or one too large for a notebook."""
    size = trace.weights.size
    if not trace.whole or size > MOST_SHOWN or size * len(trace.heads) > MOST_NUMBERS:
        return ""
    # Only for those who look at a page.
    from attn_cli.pipeline.for_page import Page

    layers = [*_layers(trace)]
    number = trace.shown.layer if trace.has_layers else trace.projection.layer
    shown = next(n for n, layer in enumerate(layers) if layer.projection.layer == number)
    found = page(Page(layers, len(layers), shown, most_exact=MOST_EXACT), _look())
    fitting = AROUND + ROW * len(trace.query_tokens) + (PICTURES if len(trace.heads) > 1 else 0)
    height = min(HIGHEST, max(LOWEST, fitting))
    # A srcdoc in single quotes: the page has hardly any, and a thousand double ones.
    source = found.replace("&", "&amp;").replace("'", "&#39;")
    return (
        '<iframe class="attn-live" sandbox="allow-scripts allow-downloads" allow="clipboard-write" '
        f'onload="{TELL}" title="{escape(visible(title(trace)))}" style="height: {height}px" '
        f"srcdoc='{source}'></iframe>"
    )


def _layers(trace: Trace) -> Iterator[Trace]:
    """Yield the trace of each layer, where there are several; else the trace itself."""
    if not trace.has_layers:
        yield trace
        return
    for number in dict.fromkeys(head.layer for head in trace.heads):
        heads = tuple(replace(head, layer=None) for head in trace.heads if head.layer == number)
        shown = next((head for head in heads if head.name == trace.shown.name), heads[0])
        mask = trace.mask_of(heads[0])
        about = trace.projection._replace(layer=number)
        yield replace(trace, heads=heads, shown=shown, mask=mask, projection=about)
