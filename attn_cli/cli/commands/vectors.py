"""attn vectors: what sets of word vectors there are, what is known of them, neighbours, analogies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import SETTINGS, NameOrFile, Vectors, argument, of_record, option
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import InputError, fixed, visible
from attn_cli.io.console import WIDEST, say
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_RECORD, Record, record_result
from attn_cli.settings import View

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.vectors import Vectors as WordVectors

Top = Annotated[int, option(SETTINGS["top"], "How many words.")]
Precision = Annotated[int, option(SETTINGS["precision"], "Digits shown.")]


@of_record
def list_(view: View) -> None:
    """The sets of word vectors that have a name.

    The bundled one, those that were imported, and those that were downloaded.

    Example: attn vectors list
    """
    from attn_cli.vectors.names import listing

    view = choose(view, OF_RECORD)
    listed = listing()
    rows = [("name", "words", "dim", "format", "file")]
    for one in listed:
        count, dim = ("?" if number is None else f"{number:,}" for number in (one.words, one.dim))
        path = "comes with attn" if one.source == "bundled" else one.path or ""
        rows.append((one.name, count, dim, one.format.partition(":")[0], path))
    record = {"vectors": [one._asdict() for one in listed]}
    result = record_result("vectors-list", record, lambda terminal: _aligned(rows, terminal.width, (1, 2)))
    deliver(result, view)


@of_record
def info(view: View, source: NameOrFile = None) -> None:
    """Describe a set of word vectors: size, format, origin.

    Example: attn vectors info
    """
    from attn_cli.vectors import lookup, open_vectors

    view = choose(view, OF_RECORD)
    about = open_vectors.describe(lookup.open_table(prepare_index(source)))
    told = [(key, value) for key, value in about.items() if value is not None and key != "about"]
    noted = about["about"] if isinstance(about["about"], dict) else {}
    told += [(key, _parsed(value)) for key, value in noted.items()]

    def described(terminal: Terminal) -> str:
        width, texts = terminal.width or WIDEST, (f"{key:<12} {_plain(value)}" for key, value in told)
        lines = (line for text in texts for line in wrap(visible(text), width, subsequent_indent=" " * 13))
        return "".join(f"{line}\n" for line in lines)

    deliver(record_result("vectors", about, described), view)


@of_record
def nearest(
    view: View,
    word: str = argument("WORD", "The word whose neighbours are wanted."),
    embedding: Vectors = None,
    top: Top = 10,
    precision: Precision = 3,
) -> None:
    """The words nearest to a word, by cosine.

    A word without a vector is replaced by the known one with the nearest spelling; a message says so.

    Example: attn vectors nearest colour
    """
    from attn_cli.vectors import lookup, spelling

    view, table = _opened(embedding, view, top, precision)
    with Progress("Searching") as progress:
        found = lookup.look_up_all([word], table, progress).get(word)
        near = {} if found else spelling.closest([word], table, progress)
        found = found or (lookup.look_up(near[word], table) if near else None)
        hint = "" if found else spelling.did_you_mean([word], table, progress)
    if found is None:
        said = f"{table.name} has no vector for {visible(word)!r}."
        raise InputError(said, hint.strip() or "Check its spelling.")
    if near:
        say(f"attn: no vector for {visible(word)!r} in {table.name}: {visible(found[0])!r} is taken instead.")
    form, vector = found
    with Progress("Searching") as progress:
        neighbours = lookup.nearest(table, vector, top, [form], progress)
    record: Record = {"word": word, "found": form, "embedding": table.name}
    _answer("nearest", record, neighbours, view, precision)


@of_record
def analogy(
    view: View,
    a: str = argument("A", "As A is ..."),
    b: str = argument("B", "... to B, ..."),
    c: str = argument("C", "... so is C to what?"),
    embedding: Vectors = None,
    top: Top = 10,
    precision: Precision = 3,
) -> None:
    """What is to C as B is to A: the words nearest to B - A + C.

    Nearest by cosine, where each vector counts at length one. The three words themselves are left out.

    Example: attn vectors analogy man king woman
    """
    from attn_cli.vectors import lookup, spelling

    view, table = _opened(embedding, view, top, precision)
    words = (a, b, c)
    with Progress("Searching") as progress:
        found = lookup.look_up_all(words, table, progress)
        unknown = [word for word in dict.fromkeys(words) if word not in found]
        hint = spelling.did_you_mean(unknown, table, progress)
    if unknown:
        named = ", ".join(repr(visible(word)) for word in unknown)
        raise InputError(f"{table.name} has no vector for {named}.", hint.strip() or "Check the spelling.")
    known = [found[word][0] for word in words]
    with Progress("Searching") as progress:
        answers = lookup.analogy(table, known, [found[word][1] for word in words], top, progress)
    record: Record = {"words": words, "found": known, "embedding": table.name}
    _answer("analogy", record, answers, view, precision)


def _opened(embedding: str | None, view: View, top: int, precision: int) -> tuple[View, WordVectors]:
    from attn_cli.vectors.lookup import open_table

    SETTINGS["top"].check(top)
    SETTINGS["precision"].check(precision)
    return choose(view, OF_RECORD), open_table(prepare_index(embedding))


def _answer(
    kind: str, record: Record, found: Sequence[tuple[str, float]], view: View, precision: int
) -> None:
    rows = [(near, fixed(cosine, precision)) for near, cosine in found]
    listed = [{"word": near, "cosine": cosine} for near, cosine in found]
    deliver(record_result(kind, record | {"neighbours": listed}, lambda terminal: _aligned(rows)), view)


def _aligned(rows: Sequence[Sequence[str]], width: int | None = None, right: Sequence[int] = ()) -> str:
    from attn_cli.render.screen.text import aligned  # loads Rich

    return aligned(rows, right, width)


def _parsed(noted: object) -> object:
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(str(noted)), dict):
            return found
    return noted


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(f"{value:,}" if isinstance(value, int) else str(value))
