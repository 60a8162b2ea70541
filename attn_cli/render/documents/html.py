"""Blocks to HTML: one static page, with nothing from elsewhere, that is well-formed XML too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from attn_cli.errors import visible
from attn_cli.io.files import beside
from attn_cli.render import (
    Bars,
    Beside,
    Block,
    Columns,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Say,
    documents as pages,
    numbers,
)
from attn_cli.render.ramps import (
    DARK,
    PAPER,
    SHADES,
    Legend,
    legend,
    on_scale,
    ramp,
    sharing_scale,
    strong,
    text_on,
)
from attn_cli.render.screen.text import LEFTWARD
from attn_cli.settings import View

_LEFTWARD = re.compile(f"[{LEFTWARD}]+")
LEAST_ACROSS = 4  # maps of a band, so that a few are not larger than they need be


def html(blocks: Iterable[Block], view: View) -> str:
    """Return the blocks as an HTML page; shades are classes of its own style sheet."""
    name, listed = view.palette or PAPER, list(on_scale(blocks, view))
    body = [line for block in pages.without_maps(listed, view) for line in _lines(block, view)]
    look = ("dark", "#101418", "#eceff1") if name in DARK else ("light", "#fff", "#111")
    style = beside(__file__, "document.css")
    for part, value in zip(("@scheme@", "@back@", "@ink@"), look, strict=True):
        style = style.replace(part, value)
    # The rules of the shades that the page uses: `s` and `d` are a cell's colours, `b` a bar's.
    colours = {"s": ramp(name), "d": ramp(name, is_difference=True), "b": strong(name)}
    used = set(re.findall(r'class="[a-z ]*\b([sdb])(\d+)"', "\n".join(body)))
    for kind, n in sorted((kind, int(n)) for kind, n in used):
        back = colours[kind][n]
        ink = "" if kind == "b" else f" color: #{bytes(text_on(back)).hex()};"
        style += f".{kind}{n} {{ background: #{bytes(back).hex()};{ink} }}\n"
    return html_page(escape(visible(pages.title(listed))), style, body)


def html_page(title: str, style: str, lines: Iterable[str], body: str = "<body>") -> str:
    """Return a page of lines of HTML, with the start tag of its body."""
    head = beside(__file__, "document.html").rstrip("\n").replace("@style@", style).replace("@title@", title)
    return "\n".join([head, body, *lines, "</body>\n</html>\n"])


def _text(text: str) -> str:
    """Return text as HTML; words that run from right to left leave the order of all else alone."""
    shown = escape(visible(text))
    return shown if shown.isascii() else _LEFTWARD.sub(r"<bdi>\g<0></bdi>", shown)


def _lines(block: Block, view: View) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"<h{level}>{_text(text)}</h{level}>"
        case Say(text, quiet) if text:
            yield f'<p class="aside">{_text(text)}</p>' if quiet else f"<p>{_text(text)}</p>"
        case Formula(text, before):
            words = f"{_text(before)} " if before else ""
            yield f"<p>{words}<code>{_text(text.strip())}</code></p>"
        case Matrix():
            yield from _matrix(block, view)
        case Beside(titles, parts):
            yield '<div class="beside">'
            for title, part in zip(titles, sharing_scale(parts), strict=True):
                yield f"<div>\n<h3>{_text(title)}</h3>"
                yield from _matrix(part, view)
                yield "</div>"
            yield "</div>"
        case Maps():
            yield from _bands(block) if block.bands else _maps(block)
            yield _legend(legend(block))
        case Columns(header, rows):
            heads = "".join(f'<th scope="col">{_text(name)}</th>' for name in header)
            made = (_row(row[0], [f"<td>{_text(text)}</td>" for text in row[1:]]) for row in rows)
            yield from _table(f"><thead><tr>{heads}</tr></thead><tbody>", made)
        case Links():
            yield from _links(block)
        case Bars():
            yield from _bars(block, view)


def _label(name: str) -> str:
    """Return a label, and as its title the whole token where it had to be cut."""
    shown, whole = pages.label(name), visible(name)
    return escape(shown) if shown == whole else f'<span title="{escape(whole)}">{escape(shown)}</span>'


def _matrix(block: Matrix, view: View) -> Iterator[str]:
    layout = pages.laid_out(block, view, lambda name: float(len(pages.label(name))))
    coloured = pages.is_coloured(block, view)
    kind = "d" if block.is_difference else "s"
    looks = "tight weights" if layout.bare else "weights" if block.is_weights else "numbers"
    for table in layout.tables:
        caption = f"<caption>{_text(table.caption.capitalize())}</caption>\n" if table.caption else ""
        tail = '<th scope="col">sum</th>' if table.sums else ""
        heads = f'<th scope="col">{_label(block.corner)}</th>{_heads(table.columns, layout.turned)}{tail}'
        rows = _rows(table, layout.bare, kind if coloured else "")
        yield from _table(f' class="{looks}">\n{caption}<thead><tr>{heads}</tr></thead><tbody>', rows)
    if coloured and block.marks is None:
        yield _legend(legend(block), kind)
    for note in layout.notes:
        yield f'<p class="aside">{_text(note)}</p>'


def _table(opening: str, rows: Iterable[str]) -> Iterator[str]:
    """Yield a table that may be wider than the window; its rows follow the opening."""
    yield from (f'<div class="wide"><table{opening}', *rows, "</tbody></table></div>")


def _heads(names: Iterable[str], turned: bool) -> str:
    look = '<th scope="col" class="up"><span>{}</span></th>' if turned else '<th scope="col">{}</th>'
    return "".join(look.format(_label(name)) for name in names)


def _rows(table: pages.Table, bare: bool, kind: str) -> Iterator[str]:
    for name, cells, total in table.lines():
        sums = [f'<td class="sum">{escape(text)}</td>' for text in total]
        yield _row(name, [*(_cell(text, place, bare, kind) for text, place in cells), *sums])


def _row(name: str, cells: Iterable[str]) -> str:
    return f'<tr><th scope="row">{_label(name)}</th>{"".join(cells)}</tr>'


def _cell(text: str, place: int, bare: bool, kind: str) -> str:
    """Return a cell: a number, on its shade if there is a kind of those, or the shade with the number as its title."""
    if place < 0:
        return f'<td class="{"heat" if bare else "masked"}" title="masked">–</td>'
    if bare:
        return f'<td class="heat {kind}{place}" title="{text}"></td>'
    return f'<td class="{kind}{place}">{text}</td>' if kind else f"<td>{text}</td>"


def _legend(legend: Legend, kind: str = "s") -> str:
    text = f"All are {legend.low}." * bool(legend.low)
    if legend.low != legend.high:
        patches = "".join(f'<span class="ramp {kind}{i * (SHADES - 1) // 15}"></span>' for i in range(16))
        text = f"Shades: {legend.low} {patches} {legend.high}"
    return f'<p class="aside">{text}{f" ({legend.more})" * bool(legend.more)}{" – masked" * legend.has_masked}</p>'


def _maps(block: Maps) -> Iterator[str]:
    """Yield small maps, as many beside each other as the window has room for."""
    turned = block.column_numbers is not None
    yield '<div class="maps">'
    for table in pages.map_tables(block):
        caption = f"<caption>{_label(table.caption)}</caption>" if table.caption else ""
        heads = _heads(table.columns if turned else (name[-1] for name in table.columns), turned)
        yield f"<table>{caption}<thead><tr><td></td>{heads}</tr></thead><tbody>"
        yield from (*_rows(table, True, "s"), "</tbody></table>")
    yield "</div>"
    if columns := pages.map_columns(block):
        yield f"<p>{_text(columns)}</p>"


def _bands(block: Maps) -> Iterator[str]:
    """Yield the maps of each band on one line, their cells as large as the window has room for."""
    tables = pages.map_tables(block)
    each = len(tables) // len(block.bands)
    across = max(each, LEAST_ACROSS) * (len(block.columns) + 2)
    for number, band in enumerate(block.bands):
        if band.strip():
            yield f"<h3>Layer {_text(band.strip())}</h3>"
        yield f'<div class="wide"><div class="band" style="--across:{across};--maps:{each}">'
        for table in tables[number * each : (number + 1) * each]:
            yield f"<div><p>{_text(table.caption)}</p><table><tbody>"
            for name, cells, _ in table.lines():
                made = (_cell(text, place, True, "s") for text, place in cells)
                yield f'<tr title="{_text(name)}">{"".join(made)}</tr>'
            yield "</tbody></table></div>"
        yield "</div></div>"


def _links(block: Links) -> Iterator[str]:
    most = max([1, *(len(links) for _, links in block.rows)])
    rows = []
    for query, links in block.rows:
        cells = [f'<td class="text">{_label(key)}</td><td>{_text(weight)}</td>' for key, weight in links]
        cells = cells or [f'<td class="text">{_text(block.none)}</td><td></td>']
        rows.append(_row(query, [*cells, *["<td></td><td></td>"] * (most - len(cells))]))
    return _table("><tbody>", rows)


def _bars(block: Bars, view: View) -> Iterator[str]:
    rows = []
    for (name, value), text in zip(block.items, numbers.bar_numbers(block, view.precision), strict=True):
        part = block.length(value)
        place = SHADES // 2 if view.color == "never" else round(part * (SHADES - 1))
        bar = f'<span class="bar b{place}" style="width:{20 * part:.2f}em"></span>' if part else ""
        rows.append(_row(name, [f'<td>{text}</td><td class="text">{bar}</td>']))
    caption = f"<caption>{_text(block.title)}</caption>" if block.title else ""
    return _table(f">{caption}\n<tbody>", rows)
