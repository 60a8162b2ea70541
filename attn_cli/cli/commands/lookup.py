"""attn lookup: a dictionary asked for the key as written, for the nearest key, and for a share of every value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from attn_cli.cli.deliver import deliver, settled, show, terminal_for
from attn_cli.cli.options import offers, takes
from attn_cli.cli.read_text import read_text
from attn_cli.cli.ready_vectors import ready
from attn_cli.errors import NoText
from attn_cli.inputs.key_value_pairs import Pairs, dictionary, pairs_from, pairs_in
from attn_cli.io.escape import as_utf8, visible
from attn_cli.io.progress_bar import Progress
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attn_cli.render.blocks import Block
    from attn_cli.teach.dictionary_example import Told
    from attn_cli.teach.examples import Acts
    from attn_cli.teach.soft_dictionary import Lookup

# What a dictionary has no use for: its keys have no order, and there is one query. Its projection is an option of
# its own, because the default is another.
NOT_OFFERED = ("projection", "layer", "query", "full", "pad", "pad_side", "positions")


@takes(Settings, View, without=NOT_OFFERED)
def lookup(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUERY] KEY=VALUE...",
            help="What to look for, and the dictionary; - as QUERY is standard input.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="More pairs, from a JSON object of keys and values."),
    ] = None,
    own_projection: Annotated[
        str | None,
        typer.Option(
            "--projection",
            "-p",
            metavar="NAME|FILE",
            help="W_q and W_k: identity, random, or a file.  [default: identity]",
            autocompletion=offers("identity", "random"),
        ),
    ] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """A dictionary, asked three times: exactly, by likeness, softly.

    The value of the key as written; the value of the nearest key; a share of every value, which is attention.
    A key of several words is the mean of their vectors. Where all values are numbers, they are weighted.

    Example: attn lookup colour brand=Porche model=Taycan color=black
    """
    view = settled(view, settings)
    words = [as_utf8(word) for word in words or []]
    if not words and source is None:
        raise NoText("lookup")
    is_named = bool(words) and "=" not in words[0]
    query, arguments = (words[0], words[1:]) if is_named else (None, words)
    pairs = _pairs(arguments, source)
    text = read_text(query, "lookup").strip()
    if not text:
        raise NoText("lookup")
    from attn_cli.teach.soft_dictionary import look_up  # NumPy is loaded once there is something to compute

    ready(settings.embedding, "random, ")
    with Progress("Looking") as progress:
        found = look_up(text, pairs, replace(settings, projection=own_projection), progress)
    from attn_cli.render.views.soft_dictionary import lookup as screen

    _show(found, screen(found, view), view)


def _pairs(arguments: list[str], source: str | None) -> Pairs:
    typed = pairs_from(arguments)
    if source is None:
        return dictionary(typed)
    from attn_cli.inputs.matrices import read_record  # only those who give a file need it

    return dictionary([*pairs_in(read_record(source), visible(source)), *typed])


def show_told(acts: Acts, settings: Settings, view: View) -> None:
    """Compute the worked example of a dictionary, and write it out."""
    from attn_cli.render.views.soft_dictionary import story
    from attn_cli.teach.dictionary_example import told

    one = told(acts, settings)
    _show(one, story(one, acts, view), view)


def _show(found: Lookup | Told, blocks: Iterable[Block], view: View) -> None:
    """Write a screen of blocks or a record of its own; in other formats the weights, as of any trace."""
    from attn_cli.render import SCREENS, render_blocks
    from attn_cli.render.data.json import dumps

    terminal = terminal_for(view)
    if view.format in ("json", "jsonl"):
        record = found.to_dict(view.steps)
        deliver(dumps(record, view.format == "jsonl", not terminal.unicode), view)
    elif view.format in SCREENS:
        deliver(render_blocks(blocks, replace(view, width=terminal.width), terminal), view)
    else:
        show(found.trace, view)
