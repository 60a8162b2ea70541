"""Blocks to HTML: one static page, with nothing from elsewhere, that is well-formed XML too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from attn_cli.io.escape import visible
from attn_cli.render.blocks import Bars, Beside, Block, Columns, Formula, Heading, Links, Maps, Matrix, Say
from attn_cli.render.document.page_tables import (
    Scale,
    Sheet,
    Sheets,
    is_coloured,
    label,
    map_columns,
    map_matrix,
    map_scale,
    map_sheets,
    scale,
    sheets,
    together,
)
from attn_cli.render.numbers import number, share
from attn_cli.render.palette import DARK, RGB, SHADES, page_colours, page_ramp, ramp, strong, text_on
from attn_cli.render.screen.text import LEFTWARD
from attn_cli.settings.output import View

_LEFTWARD = re.compile(f"[{LEFTWARD}]+")

STYLE = """
:root { color-scheme: %(scheme)s; }
body { font: 1.125rem/1.45 system-ui, sans-serif; margin: 2rem; background: %(back)s; color: %(ink)s; }
h1 { font-size: 1.5em; margin: 0 0 .4em; }
h2 { font-size: 1.25em; margin: 1.4em 0 .4em; }
h3 { font-size: 1.05em; margin: 1.2em 0 .3em; }
p { margin: .4em 0; max-width: 60em; overflow-wrap: anywhere; }
p.aside { font-size: .85em; }
code { font: .95em ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6em 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding: .2em 0; }
thead tr { border-top: 2px solid; border-bottom: 1px solid; }
tbody { border-bottom: 2px solid; }
th, td { padding: .22em .5em; text-align: right; white-space: nowrap; }
th:first-child, td.text, th.text { text-align: left; }
th.up { vertical-align: bottom; padding: .3em 0; text-align: center; }
th.up span { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
.weights td, .weights thead th { text-align: center; }
.weights thead th:first-child { text-align: left; }
.weights td.sum { text-align: right; padding-left: 1em; }
td.heat { padding: 0; min-width: 1.1em; height: 1.1em; text-align: center; line-height: 1; }
.tight { font-size: .8em; }
.tight th, .tight td.sum { padding-top: 0; padding-bottom: 0; }
.maps { display: flex; flex-wrap: wrap; gap: 1.2em 1.8em; margin: .8em 0; }
.beside { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.maps table { margin: 0; font-size: .75em; }
.maps thead tr, .maps tbody { border: 0; }
.maps th { padding: 0 .4em 0 0; font-weight: normal; }
.maps thead th { padding: 0; text-align: center; font-size: .8em; }
.bar { display: inline-block; height: 1em; vertical-align: middle; }
.ramp { display: inline-block; width: 1em; height: 1em; vertical-align: -.15em; }
@page { size: A4 landscape; margin: 12mm; }
@media print { body { margin: 0; font-size: 10pt; background: #fff; color: #000; }
  h1, h2, h3 { break-after: avoid; } tr { break-inside: avoid; } .wide { overflow: visible; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""


def html(blocks: Iterable[Block], view: View) -> str:
    """Return the blocks as an HTML page; shades are classes of its own style sheet."""
    name = page_ramp(view.palette)
    listed = list(blocks)
    body = [line for block in listed for line in _lines(block, view)]
    title = next((block.text for block in listed if isinstance(block, Heading)), "Attention")
    dark = name in DARK
    page = {"scheme": "dark", "back": "#101418", "ink": "#eceff1"} if dark else {}
    page = page or {"scheme": "light", "back": "#fff", "ink": "#111"}
    text = "\n".join(body)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{escape(visible(title))}</title>",
            f"<style>{STYLE % page}{_shade_rules(text, name)}</style>",
            "</head>",
            f"<body>\n{text}\n</body>\n</html>\n",
        ]
    )


def _shade_rules(text: str, name: str) -> str:
    """Return the rules of the shades that the page uses: `s` a cell's colours, `b` a bar's."""
    used = {(found[1], int(found[2])) for found in re.finditer(r'class="[a-z ]*\b([sdb])(\d+)"', text)}
    colours = {"s": ramp(name), "d": page_colours(name, is_difference=True)}
    bars = strong(name)
    rules = [
        f".{kind}{n} {{ background: {_hex(colours[kind][n])}; color: {_hex(text_on(colours[kind][n]))}; }}\n"
        if kind in colours
        else f".b{n} {{ background: {_hex(bars[n])}; }}\n"
        for kind, n in sorted(used)
    ]
    return "".join(rules)


def _hex(colour: RGB) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def _text(text: str) -> str:
    """Return text as HTML; words that run from right to left leave the order of all else alone."""
    shown = escape(visible(text))
    return shown if shown.isascii() else _LEFTWARD.sub(r"<bdi>\g<0></bdi>", shown)


def _lines(block: Block, view: View) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"<h{level}>{_text(text)}</h{level}>"
        case Say(text, quiet):
            if text:
                yield (f'<p class="aside">{_text(text)}</p>' if quiet else f"<p>{_text(text)}</p>")
        case Formula(text, before):
            words = f"{_text(before)} " if before else ""
            yield f"<p>{words}<code>{_text(text.strip())}</code></p>"
        case Matrix():
            yield from _matrix(block, view)
        case Beside(titles, parts):
            yield '<div class="beside">'
            for title, part in zip(titles, together(parts), strict=True):
                yield "<div>"
                yield from _lines(Heading(title, 3), view)
                yield from _matrix(part, view)
                yield "</div>"
            yield "</div>"
        case Maps():
            yield from _maps(block, view)
        case Columns(header, rows):
            yield from _table(header, rows)
        case Links(rows, none):
            yield from _links(rows, none)
        case Bars():
            yield from _bars(block, view)


def _label(name: str) -> str:
    """Return a label, and as its title the whole token where it had to be cut."""
    shown = label(name)
    whole = visible(name)
    return escape(shown) if shown == whole else f'<span title="{escape(whole)}">{escape(shown)}</span>'


def _matrix(block: Matrix, view: View) -> Iterator[str]:
    laid = sheets(block, view, lambda name: float(len(label(name))))
    coloured = is_coloured(block, view)
    for sheet in laid.parts:
        yield from _sheet(sheet, block, laid, coloured)
    if coloured and block.marks is None:
        yield _legend(scale(block), "d" if block.is_difference else "s")
    for sentence in laid.told:
        yield f'<p class="aside">{_text(sentence)}</p>'


def _sheet(sheet: Sheet, block: Matrix, laid: Sheets, coloured: bool) -> Iterator[str]:
    kind = "tight weights" if laid.bare else "weights" if block.is_weights else "numbers"
    yield f'<div class="wide"><table class="{kind}">'
    if sheet.told:
        yield f"<caption>{_text(sheet.told.capitalize())}</caption>"
    names = [_label(name) for name in sheet.columns]
    if laid.turned:
        heads = "".join(f'<th scope="col" class="up"><span>{name}</span></th>' for name in names)
    else:
        heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    tail = '<th scope="col">sum</th>' if sheet.sums else ""
    yield f'<thead><tr><th scope="col">{_label(block.corner)}</th>{heads}{tail}</tr></thead><tbody>'
    for i, name in enumerate(sheet.rows):
        cells = [
            _cell(text, place, coloured, laid.bare, "d" if block.is_difference else "s")
            for text, place in zip(sheet.texts[i], sheet.shades[i], strict=True)
        ]
        total = f'<td class="sum">{escape(sheet.sums[i])}</td>' if sheet.sums else ""
        yield f'<tr><th scope="row">{_label(name)}</th>{"".join(cells)}{total}</tr>'
    yield "</tbody></table></div>"


def _cell(text: str, place: int, coloured: bool, bare: bool, kind: str = "s") -> str:
    """Return a cell: a number on its shade, or the shade alone with the number as its title."""
    if place < 0:
        return f'<td class="{"heat" if bare else "masked"}" title="masked">–</td>'
    if bare:
        return f'<td class="heat {kind}{place}" title="{text}"></td>'
    return f'<td class="{kind}{place}">{text}</td>' if coloured else f"<td>{text}</td>"


def _legend(told: Scale, kind: str = "s") -> str:
    masked = " – masked" if told.has_masked else ""
    if told.low == told.high:
        return f'<p class="aside">{f"All are {told.low}." if told.low else ""}{masked}</p>'
    patches = "".join(f'<span class="ramp {kind}{i * (SHADES - 1) // 15}"></span>' for i in range(16))
    return f'<p class="aside">Shades: {told.low} {patches} {told.high}{masked}</p>'


def _maps(block: Maps, view: View) -> Iterator[str]:
    """Yield small maps, as many beside each other as the window has room for."""
    if view.color == "never":
        for name, values in zip(block.names, block.values, strict=True):
            if name:
                yield from _lines(Heading(f"Head {name}"), view)
            yield from _matrix(map_matrix(block, values), view)
        return
    yield '<div class="maps">'
    for sheet in map_sheets(block):
        heads = "".join(f'<th scope="col">{int(name) % 10}</th>' for name in sheet.columns)
        if block.column_numbers is not None:
            heads = "".join(f'<th scope="col" class="up"><span>{name}</span></th>' for name in sheet.columns)
        caption = f"<caption>{_label(sheet.told)}</caption>" if sheet.told else ""
        yield f"<table>{caption}<thead><tr><td></td>{heads}</tr></thead><tbody>"
        for name, texts, places in zip(sheet.rows, sheet.texts, sheet.shades, strict=True):
            cells = [_cell(text, place, True, True) for text, place in zip(texts, places, strict=True)]
            yield f'<tr><th scope="row">{_label(name)}</th>{"".join(cells)}</tr>'
        yield "</tbody></table>"
    yield "</div>"
    if told := map_columns(block):
        yield f"<p>{_text(told)}</p>"
    yield _legend(map_scale(block))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{_text(name)}</th>' for name in header)
    yield f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in rows:
        cells = "".join(f"<td>{_text(text)}</td>" for text in row[1:])
        yield f'<tr><th scope="row">{_label(row[0])}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _links(rows: Sequence[tuple[str, Sequence[tuple[str, str]]]], none: str) -> Iterator[str]:
    most = max([1, *(len(links) for _, links in rows)])
    yield '<div class="wide"><table><tbody>'
    for query, links in rows:
        cells = [f'<td class="text">{_label(key)}</td><td>{_text(weight)}</td>' for key, weight in links]
        cells = cells or [f'<td class="text">{_text(none)}</td><td></td>']
        blank = "<td></td><td></td>" * (most - len(cells))
        yield f'<tr><th scope="row">{_label(query)}</th>{"".join(cells)}{blank}</tr>'
    yield "</tbody></table></div>"


def _bars(block: Bars, view: View) -> Iterator[str]:
    show = share if view.precision is None else number(view.precision)
    yield '<div class="wide"><table>' + (f"<caption>{_text(block.title)}</caption>" if block.title else "")
    yield "<tbody>"
    for name, value in block.items:
        part = 0.0 if value is None or block.largest <= 0 else min(1.0, value / block.largest)
        place = SHADES // 2 if view.color == "never" else round(part * (SHADES - 1))
        bar = f'<span class="bar b{place}" style="width:{20 * part:.2f}em"></span>' if part else ""
        told = "masked" if value is None else show(value)
        yield f'<tr><th scope="row">{_label(name)}</th><td>{told}</td><td class="text">{bar}</td></tr>'
    yield "</tbody></table></div>"
