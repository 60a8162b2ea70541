"""What a worksheet is made of: words, formulas, tables with blanks, questions. Two writers turn it into a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Math(NamedTuple):
    """Arithmetic or a formula, which holds no token: 2×1 + 0×(-1) = 2, e^0.707, Q Kᵀ / √2."""

    text: str


class Code(NamedTuple):
    """What is typed in a shell."""

    text: str


Words = Iterable[str | Math | Code]


class Title(NamedTuple):
    """The title of the sheet."""

    text: str


class Heading(NamedTuple):
    """The heading of a part."""

    text: str


class Say(NamedTuple):
    """A paragraph; a quiet one is an aside."""

    words: Words
    quiet: bool = False


class Table(NamedTuple):
    """A matrix with its title; a cell is text, or None: a blank to write in."""

    title: str
    formula: str
    columns: Sequence[str]
    rows: Sequence[tuple[str | Math, Sequence[str | None]]]
    is_given: bool = False


class Tables(NamedTuple):
    """Tables that may stand beside each other."""

    tables: Sequence[Table]


class Ask(NamedTuple):
    """A question, and its answer; without one there is room to write."""

    number: int
    question: Words
    answer: Words | None


Part = Title | Heading | Say | Tables | Ask


def as_text(words: Words) -> str:
    """Return words without a form: formulas as they are."""
    return "".join(part if isinstance(part, str) else part.text for part in words)
