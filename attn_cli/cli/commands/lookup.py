"""attn lookup: a dictionary asked for the key as written, for the nearest key, and for a share of every value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import argument, own, takes
from attn_cli.cli.read_text import NoText, attention_progress, read_text
from attn_cli.inputs.key_value_pairs import Pairs, dictionary, pairs_from, pairs_in
from attn_cli.io.escape import as_utf8, visible
from attn_cli.render.result import OF_TRACE, Result, trace_result
from attn_cli.settings.declare import ATTENTION, INPUT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from attn_cli.render.blocks import Block
    from attn_cli.teach.examples import Acts
    from attn_cli.teach.soft_dictionary import DictionaryExample, Lookup


# A dictionary's keys have no order, and there is one query.
@takes("TOKENS VECTORS COMPUTED versus top dtype SCREEN tidy")
def lookup(
    words: list[str] | None = argument(
        "[QUERY] KEY=VALUE...",
        "What to look for, and the dictionary; - as QUERY is standard input.",
        default=None,
    ),
    source: str | None = own("FILE", "More pairs, from a JSON object of keys and values.", INPUT, "--from"),
    own_projection: str | None = own(
        "NAME|FILE",
        "W_q and W_k: identity, random, or a file.  [default: identity]",
        ATTENTION,
        "--projection",
        "-p",
        values=("identity", "random"),
    ),
    *,
    settings: Settings,
    view: View,
) -> None:
    """Look up a query in three ways: exact match, nearest key, and attention (a soft lookup).

    The value of the key as written; the value of the nearest key; a share of every value, which is attention.
    A key of several words is the mean of their vectors. Where all values are numbers, they are weighted.

    Example: attn lookup colour brand=Porche model=Taycan color=black
    """
    view = choose(view, {*OF_TRACE} - {"drawing"}, "lookup", "lookup")
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

    settings = settings_for(replace(settings, projection=own_projection), view)
    with attention_progress(settings.embedding, "Looking") as progress:
        found = look_up(text, pairs, settings, progress)
    from attn_cli.render.views.soft_dictionary import lookup as screen

    deliver(_result(found, view, lambda view: screen(found, view)), view)


def _pairs(arguments: list[str], source: str | None) -> Pairs:
    typed = pairs_from(arguments)
    if source is None:
        return dictionary(typed)
    from attn_cli.inputs.record import read_record  # only those who give a file need it

    return dictionary([*pairs_in(read_record(source), visible(source)), *typed])


def dictionary_result(acts: Acts, settings: Settings, view: View) -> Result:
    """Compute the worked example of a dictionary, and return what it has to give."""
    from attn_cli.render.views.soft_dictionary import story
    from attn_cli.teach.soft_dictionary import dictionary_example

    one = dictionary_example(acts, settings)
    return _result(one, view, lambda view: story(one, acts, view))


def _result(
    found: Lookup | DictionaryExample, view: View, blocks: Callable[[View], Iterable[Block]]
) -> Result:
    of_trace = trace_result(found.trace, view)
    return replace(of_trace, blocks=blocks, record=lambda view: found.to_dict(view.steps))
