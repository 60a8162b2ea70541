"""What a notebook shows of a trace: the interactive page, and a table for where no script may run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from attn_cli.errors import count, visible
from attn_cli.io.files import beside
from attn_cli.io.types import replace
from attn_cli.pipeline.beside import drawn
from attn_cli.render import Matrix, documents, numbers, ramps, share
from attn_cli.render.page import page
from attn_cli.render.page.script import read
from attn_cli.render.views import origins, wording
from attn_cli.trace import Head, Trace

NO_SCRIPT = ".attn-live { display: none; } .attn-live + .attn-still { display: block; }"


def notebook_html(trace: Trace) -> str:
    """Return a trace as HTML for a notebook: the interactive page in a frame, and the same weights as a table.

    The table is seen where scripts or frames are taken out, and on paper. Nothing is loaded from elsewhere. Weights
    that are too many for a page, and each row's strongest links alone, are a table in any case.
    """
    if not (page := live(trace)):
        return still(trace)
    # The style has rules of classes alone, for any number of outputs may stand in one notebook. What the notebook
    # removes (a frame, a style) leaves the table. The frame follows the notebook's theme, and not that of the system.
    return (
        f"<style>\n{beside(__file__, 'notebook.css')}</style><noscript><style>{NO_SCRIPT}</style></noscript>\n{page}\n"
        f'<div class="attn-still">{still(trace)}</div>'
    )


MOST_ROWS, MOST_CELLS = 30, 8_000  # of a table, and of all
MOST_LINKS = 40
BACK, *_ = ramps.page_colors(ramps.PAPER)
ON_CARD = f"background:{BACK};color:#000"  # as `text_on` has it for light shades
CARD = "padding:.6em;overflow-x:auto;font:14px/1.4 system-ui,sans-serif;text-align:left"
TABLE = "margin:.6em 1.5em .6em 0;display:inline-table;border-collapse:collapse"
_INKS = {(0, 0, 0): "", (255, 255, 255): ";color:#fff"}  # dark ink is that of the whole table
_SHADES = ramps.ramp(ramps.PAPER)
_LOOKS = [f' style="background:#{bytes(one).hex()}{_INKS[ramps.text_on(one)]}"' for one in _SHADES]


def still(trace: Trace) -> str:
    """Return a trace's weights as tables: one for each head that is shown, under words on what they are."""
    trace = drawn(trace)
    body = list(_links(trace)) if not trace.whole else list(_matrices(trace))
    said = [f"{'; '.join(origins.setting_parts(trace))}.", *(f"Note: {note}" for note in trace.notes)]
    about = "<br>".join([f"<b>{_text(wording.title(trace))}</b>", *map(_text, said)])
    return f'<div style="{ON_CARD};{CARD}"><div>{about}</div>{"".join(body)}</div>'


def _text(text: str) -> str:
    return escape(visible(text))


def _name(token: str) -> str:
    """Return a token as a label, which leaves the order of what stands around it alone."""
    shown = escape(documents.label(token))
    return shown if shown.isascii() else f"<bdi>{shown}</bdi>"


def _links(trace: Trace) -> Iterator[str]:
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
    sides = f"{count(len(rows), 'row', 'rows')} and {count(len(columns), 'column', 'columns')}"
    left_out = [f"The first {sides} of {n_q:,} x {n_k:,}."] * ((len(rows), len(columns)) != (n_q, n_k))
    if len(heads) == 1 < len(trace.shown_heads) and has_head:
        left_out.append(f"One of {len(trace.shown_heads):,} heads.")
    if left_out:
        yield f"<p>{' '.join(left_out)}</p>"


def _matrix(trace: Trace, head: Head, rows: Sequence[int], columns: range, is_one_of_many: bool) -> str:
    values = trace.visible_weights(head, rows)[:, : len(columns)]
    matrix = Matrix([], [], values, is_weights=trace.drawn == "weight")
    shades = ramps.shading(values, ramps.shade_range(matrix)).tolist()
    form = numbers.weight(2) if is_one_of_many and matrix.is_weights else numbers.exact(matrix)
    lines = []
    for i, texts, places in zip(rows, map(form.row, values.tolist()), shades, strict=True):
        shown = zip(texts, places, strict=True)
        cells = (f"<td{_LOOKS[n]}>{text}</td>" if n >= 0 else "<td>–</td>" for text, n in shown)
        lines.append(f"<th>{_name(trace.query_tokens[i])}</th>{''.join(cells)}")
    heads = "".join(f"<th>{_name(trace.key_tokens[j])}</th>" for j in columns)
    layer = f"layer {head.layer}, " if head.layer is not None else ""
    is_named = len(trace.head_names) > 1 or layer
    name = f"{layer}{wording.head_named(head.name)}" if is_named else f"the {trace.drawn}s"
    caption = f"{name[:1].upper()}{name[1:]}: rows are queries, columns are keys"
    size = "11px" if is_one_of_many else "13px"  # so that two and more stand beside each other
    return _table(caption, f"<th>query\\key</th>{heads}", lines, size)


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
    # The page's own colours, light, dark, and those for paper: for the scheme that it is told.
    colours = zip(("light", "dark"), re.findall(r"--back:[^\n}]*", read("page.css")), strict=False)
    rules = (f':root[data-scheme="{name}"] {{ color-scheme: {name}; {line} }}\n' for name, line in colours)
    found = page(Page(layers, len(layers), shown, most_exact=MOST_EXACT), LOOK + "".join(rules))
    fitting = AROUND + ROW * len(trace.query_tokens) + PICTURES * (len(trace.heads) > 1)
    height = min(HIGHEST, max(LOWEST, fitting))
    # A srcdoc in single quotes: the page has hardly any, and a thousand double ones.
    source = found.replace("&", "&amp;").replace("'", "&#39;")
    return (
        '<iframe class="attn-live" sandbox="allow-scripts allow-downloads" allow="clipboard-write" '
        f'onload="{TELL}" title="{escape(visible(wording.title(trace)))}" style="height: {height}px" '
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
        about = trace.projection._replace(layer=number)
        yield replace(trace, heads=heads, shown=shown, mask=trace.mask_of(heads[0]), projection=about)
