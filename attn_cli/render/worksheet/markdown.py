"""A worksheet as Markdown (GitHub's): tables with blanks, formulas as code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_cli.render.blocks import Heading, Say
from attn_cli.render.documents.markdown import cell, code, prose, table
from attn_cli.render.worksheet.content import Question, SheetPart, Tables, WorkTable

BLANK = "______"
ASCII = {"×": "*", "·": ".", "≈": "~", "–": "-", "ᵀ": "^T"}


def worksheet_markdown(parts: Iterable[SheetPart], unicode: bool = True) -> str:
    """Return the worksheet as a Markdown document; without `unicode`, formulas are spelled in ASCII."""
    text = "\n".join(line for part in parts for line in _lines(part))
    if not unicode:
        text = re.sub(r"√(\d+)", r"sqrt(\1)", text)
        text = "".join(ASCII.get(char, char) for char in text)
    return text.rstrip("\n") + "\n"


def _lines(part: SheetPart) -> Iterator[str]:
    match part:
        case Heading(text, level):
            yield from (f"{'#' * level} {prose(text)}", "")
        case Say(text, _):
            yield from (_sentence(text), "")
        case Tables(tables):
            for one in tables:
                yield from _table(one)
        case Question(number, text, answer):
            yield from (f"{number}. {_sentence(text)}", "")
            yield from (f"   {_sentence(answer) if answer else f'Answer: {BLANK * 10}'}", "")


def _table(work: WorkTable) -> Iterator[str]:
    if work.title:
        yield from _lines(Heading(work.title))
    if work.formula and not work.is_given:
        yield from (f"{code(work.formula)}:", "")
    corner = f"`{work.formula}`" if work.is_given else ""
    header = [corner, *work.columns]
    yield from table(header, work.rows, _sentence, lambda text: cell(text) if text else BLANK)


def _sentence(text: str) -> str:
    """Return a sentence; a formula or a command in it is code."""
    # Escaped as inside a line: a full stop does harm at the start of a line alone.
    return "".join(code(part) if n % 2 else prose(f" {part}")[1:] for n, part in enumerate(text.split("`")))
