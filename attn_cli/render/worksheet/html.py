"""A worksheet as an HTML page to print: a box for every blank, A4 pages, nothing torn at their edges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from attn_cli.io.escape import visible
from attn_cli.render.blocks import Heading, Say
from attn_cli.render.worksheet.content import Question, SheetPart, Tables, WorkTable

STYLE = """
@page { size: A4; margin: 11mm 15mm; }
:root { color-scheme: light; }
body { font: 16px/1.4 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em;
  background: #fff; color: #000; }
header { display: flex; justify-content: space-between; align-items: baseline; gap: 2em; }
h1 { font-size: 1.4em; margin: 0 0 .3em; }
h2, caption { font-size: 1em; font-weight: bold; margin: .7em 0 .2em; text-align: left; }
p { margin: .35em 0; }
code, sup { white-space: nowrap; }
code { font: .92em ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
code.command { white-space: normal; }
sup { font-size: .75em; line-height: 1; }
.name { white-space: nowrap; }
.name span { display: inline-block; width: 14em; border-bottom: 1px solid; }
.tables { display: flex; flex-wrap: wrap; align-items: flex-start; gap: .3em 1.8em; }
table { border-collapse: collapse; margin: .2em 0 .5em; }
caption { margin: 0; padding: 0 0 .15em; white-space: nowrap; }
th { font-weight: normal; padding: .1em .45em; }
tbody th { text-align: right; }
.given td { text-align: right; padding: .1em .45em; }
.given thead tr { border-top: 1.5px solid; border-bottom: 1px solid; }
.given tbody { border-bottom: 1.5px solid; }
.given tbody th { text-align: left; }
.boxes thead th { text-align: center; }
.boxes td { border: 1px solid; width: 3.1em; height: 1.9em; padding: 0 .2em; text-align: center; }
.filled td { height: 1.4em; }
.line { height: 1.9em; border-bottom: 1px solid; margin-left: 1.4em; }
.answer { font-style: italic; margin-left: 1.4em; }
.aside { font-size: .85em; }
@media print {
  body { font-size: 9.5pt; line-height: 1.3; max-width: none; margin: 0; padding: 0; }
  body.key { font-size: 9pt; }
  p { margin: .25em 0; }
  h1, h2, caption, p:has(+ .tables) { break-after: avoid; }
  table, .question { break-inside: avoid; }
}
"""


def worksheet_html(parts: Iterable[SheetPart]) -> str:
    """Return the worksheet as an HTML page, with nothing from elsewhere, that is well-formed XML too."""
    parts = list(parts)
    is_blank = any(isinstance(part, Question) and part.answer is None for part in parts)
    title = next(part.text for part in parts if isinstance(part, Heading))
    body = "\n".join(line for part in parts for line in _lines(part, is_blank))
    start = "<body>" if is_blank else '<body class="key">'
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{_plain(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
    ]
    return "\n".join([*head, f"{start}\n{body}\n</body>\n</html>\n"])


def _lines(part: SheetPart, is_blank: bool) -> Iterator[str]:
    match part:
        case Heading(text, 1):
            name = '<p class="name">Name: <span></span></p>' if is_blank else ""
            yield f"<header><h1>{sentence(text)}</h1>{name}</header>"
        case Heading(text):
            yield f"<h2>{sentence(text)}</h2>"
        case Say(text, quiet):
            yield f'<p class="aside">{sentence(text)}</p>' if quiet else f"<p>{sentence(text)}</p>"
        case Tables(tables):
            yield '<div class="tables">'
            for table in tables:
                yield from _table(table, is_blank)
            yield "</div>"
        case Question(number, text, answer):
            yield f'<div class="question"><p>{number}. {sentence(text)}</p>'
            yield (
                f'<p class="answer">{sentence(answer)}</p></div>'
                if answer
                else '<div class="line"></div></div>'
            )


def _table(table: WorkTable, is_blank: bool) -> Iterator[str]:
    """Yield a table to read, or one of boxes, its title and formula above it."""
    formula = f"<code>{_formula(table.formula)}</code>"
    look = "given" if table.is_given else "boxes" if is_blank else "boxes filled"
    yield f'<table class="{look}">'
    if not table.is_given:
        title = sentence(table.title.partition(":")[0])
        yield f"<caption>{' '.join(filter(None, [title, formula]))}</caption>"
    corner = f"<th>{formula}</th>" if table.is_given else "<th></th>"
    heads = "".join(f'<th scope="col">{_plain(name)}</th>' for name in table.columns)
    yield f"<thead><tr>{corner}{heads}</tr></thead><tbody>"
    for label, *cells in table.rows:
        texts = "".join(f"<td>{_plain(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{sentence(label)}</th>{texts}</tr>'
    yield "</tbody></table>"


def sentence(text: str) -> str:
    """Return a sentence; what is between backticks is a formula, or a command where it begins with attn.

    >>> print(sentence("Each `e^-0.7` < 1: run `attn check`."))
    Each <code>e<sup>-0.7</sup></code> &lt; 1: run <code class="command">attn check</code>.
    """
    parts = []
    for n, part in enumerate(text.split("`")):
        if not n % 2:
            parts.append(_plain(part))
        elif part.startswith("attn "):
            parts.append(f'<code class="command">{_plain(part)}</code>')
        else:
            parts.append(f"<code>{_formula(part)}</code>")
    return "".join(parts)


def _formula(text: str) -> str:
    """Return arithmetic, its exponents raised."""
    return re.sub(r"e\^(-?[\w.]+)", r"e<sup>\1</sup>", _plain(text))


def _plain(text: str) -> str:
    return escape(visible(text))
