"""A worksheet as Markdown (GitHub's): tables with blanks, formulas as code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_cli.io.escape import visible
from attn_cli.render.document.markdown import escape, prose
from attn_cli.render.worksheet.parts import Ask, Code, Heading, Math, Part, Say, Table, Tables, Title, Words

BLANK = "______"
ASCII = {"×": "*", "·": ".", "≈": "~", "–": "-", "ᵀ": "^T"}


def sheet_markdown(parts: Iterable[Part], unicode: bool = True) -> str:
    """Return the sheet as a Markdown document; without `unicode`, formulas are spelled in ASCII."""
    text = "\n".join(line for part in parts for line in _lines(part))
    if not unicode:
        text = re.sub(r"√(\d+)", r"sqrt(\1)", text)
        text = "".join(ASCII.get(char, char) for char in text)
    return text.rstrip("\n") + "\n"


def _lines(part: Part) -> Iterator[str]:
    match part:
        case Title(text):
            yield from (f"# {prose(text)}", "")
        case Heading(text):
            yield from (f"## {prose(text)}", "")
        case Say(words, _):
            yield from (_words(words), "")
        case Tables(tables):
            for table in tables:
                yield from _table(table)
        case Ask(number, question, answer):
            yield f"{number}. {_words(question)}"
            yield from ("", f"   {_words(answer) if answer else f'Answer: {BLANK * 10}'}", "")


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"## {prose(table.title)}", "")
    if table.formula and not table.is_given:
        yield from (f"{_formula(table.formula)}:", "")
    corner = _formula(table.formula) if table.is_given else ""
    yield f"| {' | '.join([corner, *map(_cell, table.columns)])} |"
    yield "|:--" + "|--:" * len(table.columns) + "|"
    for label, cells in table.rows:
        name = _formula(label.text) if isinstance(label, Math) else escape(label)
        yield f"| {' | '.join([name, *map(_cell, cells)])} |"
    yield ""


def _words(words: Words) -> str:
    shown = ""
    for part in words:  # a full stop is harmless but at the start of a line, and escaped there
        shown += prose(f" {part}")[1:] if isinstance(part, str) and shown else _piece(part)
    return shown


def _piece(part: str | Math | Code) -> str:
    return prose(part) if isinstance(part, str) else _formula(part.text)


def _cell(text: str | None) -> str:
    return BLANK if text is None else text if re.fullmatch("-?[0-9.]+", text) else escape(text)


def _formula(text: str) -> str:
    return f"`{visible(text).replace('`', chr(39))}`"
