"""Trace to text, in every format. Each format has its writer in WRITERS, which is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.io.terminal import Terminal
from attn_cli.settings.output import View
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.render.blocks import Block
    from attn_cli.trace.steps import Walk

    OfBlocks = Callable[[Iterable[Block], View, Terminal], str]
    OfTrace = Callable[[Trace, View, Terminal, Walk | None], str]


def _screen(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    from attn_cli.render.screen.draw import draw

    return terminal.paint(draw(blocks, view, terminal))


def _markdown(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    from attn_cli.render.formats.markdown import markdown

    return markdown(blocks, view)


def _latex(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    from attn_cli.render.formats.latex import latex

    return latex(blocks, view)


def _html(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    from attn_cli.render.formats.html import html

    return portable(html(blocks, view), terminal)


def _svg(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    from attn_cli.render.formats.svg import svg

    return portable(svg(blocks, view), terminal)


def portable(page: str, terminal: Terminal) -> str:
    """Return a page, which is UTF-8, in ASCII where the output is not: its characters by their numbers."""
    is_utf8 = terminal.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return page if is_utf8 else page.encode("ascii", "xmlcharrefreplace").decode()


def _json(trace: Trace, view: View, terminal: Terminal, walk: Walk | None) -> str:
    from attn_cli.io.json_text import dumps

    is_walk = walk is not None
    record = trace.to_dict(view.steps or is_walk, is_walk, keys_in(view, trace.kind))
    return dumps(record, view.format == "jsonl", not terminal.unicode)


def keys_in(view: View, kind: str) -> tuple[str, ...] | None:
    """Return the keys that the view chooses of a record of this kind, in their order; None for all."""
    if view.fields is None:
        return None
    from attn_cli.settings.output import ADDED, chosen_keys  # only those who choose keys need them

    return chosen_keys(view.fields, kind, tuple(ADDED))


def needs_weights(view: View, kind: str) -> bool:
    """Return whether the view shows what a layer projects with: every step, or a key of the JSON that --steps adds."""
    if view.steps or view.fields is None:
        return view.steps
    from attn_cli.trace.trace import OF_STEPS, OF_WEIGHTS  # only those who choose keys need them

    return not {*(keys_in(view, kind) or ())}.isdisjoint((*OF_STEPS, *OF_WEIGHTS))


def _csv(trace: Trace, view: View, terminal: Terminal, walk: Walk | None) -> str:
    from attn_cli.render.formats.weights import delimited

    return delimited(trace, "," if view.format == "csv" else "\t", view.tidy)


def _code(trace: Trace, view: View, terminal: Terminal, walk: Walk | None) -> str:
    from attn_cli.render.code.script import script

    return script(trace, str(view.format).partition(":")[2])


def _page(trace: Trace, view: View, terminal: Terminal, walk: Walk | None) -> str:
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render.page import page

    return portable(page(Page([trace])), terminal)


class Writer(NamedTuple):
    """How a format is written: from blocks, or from a trace alone; and the files that it goes into.

    A suffix of `suffixes` chooses the format; `also` takes it where -f chooses it.
    """

    suffixes: tuple[str, ...] = ()
    of_blocks: OfBlocks | None = None
    of_trace: OfTrace | None = None  # neither: it is not text
    also: tuple[str, ...] = ()


DRAWN = (".svg", ".html", ".htm")  # files into which tables and bars are drawn
WRITERS = {
    "table": Writer((".txt",), _screen, also=DRAWN),
    "bars": Writer((), _screen, also=(".txt", *DRAWN)),
    "json": Writer((".json",), of_trace=_json),
    "jsonl": Writer((".jsonl",), of_trace=_json, also=(".json",)),  # one line of JSON is JSON
    "csv": Writer((".csv",), of_trace=_csv),
    "tsv": Writer((".tsv",), of_trace=_csv),
    "markdown": Writer((".md", ".markdown"), _markdown),
    "latex": Writer((".tex",), _latex),
    "html": Writer((".html", ".htm"), _html),
    "svg": Writer((".svg",), _svg),
    "npy": Writer((".npy",)),
    "page": Writer(of_trace=_page, also=(".html", ".htm")),
    "code:numpy": Writer((".py",), of_trace=_code),
    "code:torch": Writer(of_trace=_code, also=(".py",)),
    "code:keras": Writer(of_trace=_code, also=(".py",)),
}
SUFFIXES = {suffix: name for name, writer in WRITERS.items() for suffix in writer.suffixes}
NEUTRAL = (".txt", "")  # such a file may hold any format; so may one whose suffix says nothing to attn
FOREIGN = (".pdf", ".png", ".jpg", ".jpeg", ".gif", ".npz")  # files that attn does not write
PICTURES = (".png", ".pdf", ".svg")  # files that figures are drawn into; without --figure, .svg is a screen
SCREENS = tuple(name for name, writer in WRITERS.items() if writer.of_blocks)


def fits(format: str, suffix: str) -> bool:
    """Tell whether a file with this suffix, in small letters, can hold the format.

    >>> fits("bars", ".svg"), fits("csv", ".dat"), fits("html", ".svg"), fits("latex", ".pdf")
    (True, True, False, False)
    """
    says_something = suffix not in NEUTRAL and suffix in (*SUFFIXES, *FOREIGN)
    return not says_something or suffix in (*WRITERS[format].suffixes, *WRITERS[format].also)


def render(trace: Trace, view: View, terminal: Terminal, walk: Walk | None = None) -> str:
    """Return the trace as text in the view's format; with a walk, its steps as `attn explain` shows them."""
    write = WRITERS[view.format or "table"].of_trace
    if write is not None:
        return write(trace, view, terminal, walk)
    return render_blocks(trace_blocks(trace, view, walk), view, terminal)


def trace_blocks(trace: Trace, view: View, walk: Walk | None = None) -> Iterator[Block]:
    """Return the blocks of a screen: bars, the table of weights, the story of `attn explain`, or its walk."""
    if view.has_bars or walk is None:
        from attn_cli.render.views import overview

        return overview.bars(trace, view) if view.has_bars else overview.table(trace, view)
    if walk.has_steps or view.steps:
        from attn_cli.render.views.explain import explain

        return explain(trace, view, walk)
    from attn_cli.render.views.story import story

    return story(trace, view)


def render_blocks(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    """Return blocks as text in the view's format, one of SCREENS."""
    write = WRITERS[view.format or "table"].of_blocks
    if write is None:
        raise ValueError(f"{view.format} is not made of blocks")
    return write(blocks, view, terminal)
