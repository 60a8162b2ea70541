"""attn lookup: a dictionary asked for the key as written, for the nearest key, and for a share of every value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from attn_cli.cli.deliver import choose_format, deliver_blocks, deliver_json, show
from attn_cli.cli.options import OF_FIGURES, argument, own, without
from attn_cli.cli.read_text import NoText, attending, read_text
from attn_cli.inputs.key_value_pairs import Pairs, dictionary, pairs_from, pairs_in
from attn_cli.io.escape import as_utf8, visible
from attn_cli.settings.declare import ATTENTION, INPUT
from attn_cli.settings.output import View
from attn_cli.settings.settings import WITH_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attn_cli.render.blocks import Block
    from attn_cli.teach.examples import Acts
    from attn_cli.teach.soft_dictionary import DictionaryExample, Lookup

# A dictionary's keys have no order, and there is one query. Its projection is an option of its own, with another
# default.
NOT_OFFERED = (
    *("model", *WITH_MODEL, "projection", "layer", "query", "full", "pad", "pad_side", "positions"),
)


@without(*NOT_OFFERED, *OF_FIGURES)
def lookup(
    words: Annotated[
        list[str] | None,
        argument(
            "[QUERY] KEY=VALUE...", "What to look for, and the dictionary; - as QUERY is standard input."
        ),
    ] = None,
    source: Annotated[
        str | None, own("FILE", "More pairs, from a JSON object of keys and values.", "--from", group=INPUT)
    ] = None,
    own_projection: Annotated[
        str | None,
        own(
            "NAME|FILE",
            "W_q and W_k: identity, random, or a file.  [default: identity]",
            "--projection",
            "-p",
            group=ATTENTION,
            values=("identity", "random"),
        ),
    ] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Look up a query in three ways: exact match, nearest key, and attention (a soft lookup).

    The value of the key as written; the value of the nearest key; a share of every value, which is attention.
    A key of several words is the mean of their vectors. Where all values are numbers, they are weighted.

    Example: attn lookup colour brand=Porche model=Taycan color=black
    """
    view = choose_format(view, settings, "lookup", figures=False)
    words = [as_utf8(word) for word in words or []]
    if not words and source is None:
        raise NoText("lookup")
    is_named = bool(words) and "=" not in words[0]
    query, arguments = (words[0], words[1:]) if is_named else (None, words)
    pairs = _pairs(arguments, source)
    text = read_text(query, "lookup", settings).strip()
    if not text:
        raise NoText("lookup")
    from attn_cli.teach.soft_dictionary import look_up  # NumPy is loaded once there is something to compute

    with attending(settings.embedding, "Looking") as progress:
        found = look_up(text, pairs, replace(settings, projection=own_projection), progress)
    from attn_cli.render.views.soft_dictionary import lookup as screen

    _show(found, screen(found, view), view)


def _pairs(arguments: list[str], source: str | None) -> Pairs:
    typed = pairs_from(arguments)
    if source is None:
        return dictionary(typed)
    from attn_cli.inputs.record import read_record  # only those who give a file need it

    return dictionary([*pairs_in(read_record(source), visible(source)), *typed])


def show_dictionary(acts: Acts, settings: Settings, view: View, pause: bool) -> None:
    """Compute the worked example of a dictionary, and write it out, or present it part by part."""
    from attn_cli.render.views.soft_dictionary import story
    from attn_cli.teach.soft_dictionary import dictionary_example

    one = dictionary_example(acts, settings)
    if pause:
        from attn_cli.cli.present import present

        present(lambda view: story(one, acts, view), view)
        return
    _show(one, story(one, acts, view), view)


def _show(found: Lookup | DictionaryExample, blocks: Iterable[Block], view: View) -> None:
    """Write a screen of blocks or a record of its own; in other formats the weights, as of any trace."""
    from attn_cli.render import SCREENS

    if view.format in ("json", "jsonl"):
        deliver_json(found.to_dict(view.steps), view)
    elif view.format in SCREENS:
        deliver_blocks(blocks, view)
    else:
        show(found.trace, view)
