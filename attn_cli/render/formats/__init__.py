"""The formats that a result is written in: each file of this folder registers its own in FORMATS.

To add one, add a file here: help, suffixes, refusals and every command that has what it needs follow, but for `attn
batch` and `attn generate`, which write while they compute, in forms of their own. All are loaded by every command:
what is heavy is imported by the function that writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from attn_cli.io.types import NamedTuple
from attn_cli.render.result import Result, trace_result

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render import Block
    from attn_cli.render.walk import Walk
    from attn_cli.settings import Settings, View
    from attn_cli.trace import Trace


class Written(NamedTuple):
    """A result in a format, as text or as parts of bytes, and what it has no room for: that is said beside it."""

    data: str | Iterable[bytes | memoryview]
    remarks: Sequence[str] = ()


class Format(NamedTuple):
    """What a result must have for a format, how it is written, and the files that it goes into."""

    needs: str  # one of the things that a Result has: blocks, bars, record, rows, trace, page, drawing
    write: Callable[[Result, View, Terminal], Written]
    suffixes: tuple[str, ...] = ()  # that choose it
    also: tuple[str, ...] = ()  # that take it where -f chooses it
    is_screen: bool = False  # for people at a terminal; the other formats are for files and programs
    is_typed: bool = True  # whether -f names it
    is_tidy: bool = False  # whether it has a row a link, always or with --tidy
    not_on_terminal: tuple[str, ...] = ()  # the message, and the hint, where it would go to a terminal
    # What it needs of the settings; it refuses what it cannot be of.
    settings: Callable[[Settings, View], Settings] = lambda settings, view: settings


FORMATS: dict[str, Format] = {}
# In --help.
IN_ORDER = (
    "table bars json jsonl csv tsv markdown latex html svg npy parquet page code:numpy code:torch code:keras"
)
DRAWN = (".svg", ".html", ".htm")  # files into which tables and bars are drawn
NEUTRAL = (".txt", "")  # such a file may hold any format; so may one whose suffix says nothing to attn
FOREIGN = (".jpg", ".jpeg", ".gif", ".npz")  # files that attn does not write


def formats() -> tuple[str, ...]:
    """Return the names that -f takes."""
    return tuple(name for name, one in FORMATS.items() if one.is_typed)


def suffixes() -> dict[str, str]:
    """Return the format that each suffix chooses."""
    return {suffix: name for name, one in FORMATS.items() for suffix in one.suffixes}


def fits(format: str, suffix: str) -> bool:
    """Tell whether a file with this suffix, in small letters, can hold the format.

    >>> fits("bars", ".svg"), fits("csv", ".dat"), fits("html", ".svg"), fits("latex", ".pdf")
    (True, True, False, False)
    """
    says_nothing = suffix in NEUTRAL or suffix not in (*suffixes(), *FOREIGN)
    return says_nothing or suffix in (*FORMATS[format].suffixes, *FORMATS[format].also)


def is_given(name: str, can: Collection[str]) -> bool:
    """Tell whether a result that has `can` can be written in a format: it has what that needs, or that itself."""
    return name in can or FORMATS[name].needs in can


def write(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a result in the view's format."""
    name = "figure" if view.figure is not None else view.format or "table"
    if name in result.texts:
        return Written(result.texts[name](terminal))
    return FORMATS[name].write(result, view, terminal)


def render(trace: Trace, view: View, terminal: Terminal, walk: Walk | None = None) -> str:
    """Return the trace as text in the view's format; with a walk, its steps as `attn explain` shows them."""
    return _text(trace_result(trace, view, walk), view, terminal)


def render_blocks(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    """Return blocks as text in the view's format; ValueError for one that is not made of blocks."""
    return _text(Result(blocks=lambda view: blocks), view, terminal)


def _text(result: Result, view: View, terminal: Terminal) -> str:
    data = write(result, view, terminal).data
    if not isinstance(data, str):
        raise ValueError(f"{view.format} is not text")
    return data


def portable(page: str, terminal: Terminal) -> str:
    """Return a page, which is UTF-8, in ASCII where the output is not: its characters by their numbers."""
    is_utf8 = terminal.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return page if is_utf8 else page.encode("ascii", "xmlcharrefreplace").decode()


for _file in sorted(os.listdir(os.path.dirname(__file__))):
    if _file.endswith(".py") and _file != "__init__.py":
        import_module(f"{__name__}.{_file[:-3]}")
for _name in sorted(FORMATS, key=lambda name: (*IN_ORDER.split(), name).index(name)):  # others follow
    FORMATS[_name] = FORMATS.pop(_name)
