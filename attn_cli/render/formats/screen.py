"""Blocks on a screen and in documents; and what is made of a trace: figures, the interactive page, and scripts.

--figure says what is drawn, and the suffix of the output how: .png, .pdf or .svg.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.render.formats import DRAWN, FORMATS, Format, Written, portable

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings


def screen(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as lines of the terminal."""
    from attn_cli.render.screen.draw import draw

    return Written(terminal.paint(draw(result.blocks(view), view, terminal)))


def document(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as a document, by the module that is named as the view's format is."""
    name = str(view.format)
    made: str = getattr(import_module(f"attn_cli.render.documents.{name}"), name)(result.blocks(view), view)
    return Written(portable(made, terminal) if name in MARKED_UP else made)


MARKED_UP = ("html", "svg")
FORMATS["table"] = Format("blocks", screen, (".txt",), also=DRAWN, is_screen=True)
FORMATS["bars"] = Format("bars", screen, also=(".txt", *DRAWN), is_screen=True)
FORMATS["markdown"] = Format("blocks", document, (".md", ".markdown"))
FORMATS["latex"] = Format("blocks", document, (".tex",))
FORMATS["html"] = Format("blocks", document, (".html", ".htm"))
FORMATS["svg"] = Format("blocks", document, (".svg",))


PICTURES = (".png", ".pdf", ".svg")  # without --figure, .svg is a screen
ALONE = ("dpi", "size", "title")  # options that say nothing without a figure


def figure(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a figure, and what it has no room for."""
    from attn_cli.io.progress import Progress
    from attn_cli.render.figures import picture

    drawing, remarks = result.drawing(view)
    with Progress("Drawing"):
        data, notes = picture(drawing, view)
    return Written([data], [*remarks, *notes])


def view_of_figure(view: View, suffix: str) -> View:
    """Return the view with the figure that it is to draw, if it is to draw one; refuse options that need one."""
    if view.figure is None and suffix in FORMATS["figure"].suffixes and view.format is None:
        view = replace(view, figure="heatmap")
    if view.figure is None:
        for name in (name for name in ALONE if getattr(view, name) is not None):
            hint = "Type -o figure.png, or say what to draw: --figure heatmap -o figure.svg."
            raise UsageError(f"--{name} applies only to figures.", hint, f"--{name}")
        return view
    if view.format not in (None, "svg"):
        hint = f"Leave out -f, and type -o {view.figure}.png, .pdf or .svg."
        raise UsageError(f"A figure has no {view.format} form.", hint, "--figure")
    if suffix not in PICTURES and not (view.format == "svg" and suffix == ""):
        where = "" if view.to_standard_output else f", not into {visible(str(view.output))!r}"
        what = f"A figure goes into a file that ends in .png, .pdf or .svg{where}."
        raise UsageError(what, f"Type -o {view.figure}.png.", "--figure")
    return replace(view, format="svg")


def settings_of_figure(settings: Settings, view: View) -> Settings:
    """Return the settings that a figure needs: all heads for one of all; MissingExtra without Matplotlib."""
    is_every = view.figure == "heads" and settings.head not in ("all", "mean")
    if is_every and settings.head is not None:
        raise UsageError("--figure heads draws every head.", "Leave out --head.", "--head")
    if find_spec("matplotlib") is None:
        from attn_cli.render.figures import not_installed

        raise not_installed()
    return replace(settings, head="all") if is_every else settings


def page(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the page, which is one file."""
    from attn_cli.render.page import page

    return Written(portable(page(result.page()), terminal))


def code(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a script for the framework that the format names; UsageError for weights that came without scores."""
    from attn_cli.render.code import script

    trace = result.trace()
    if not trace.is_scored:
        from attn_cli.render.views.wording import no_arithmetic

        held = "here are" if trace.kind != "show" else f"{trace.embedding.name} holds"
        what = f"-f {view.format} needs queries, keys and values; {held} weights alone."
        raise UsageError(what, no_arithmetic(trace)[1], "--format")
    return Written(script(trace, str(view.format).partition(":")[2]))


FORMATS["page"] = Format(
    "page",
    page,
    also=(".html", ".htm"),
    not_on_terminal=("A page is for a browser.", "Write it to a file: -o page.html"),
    settings=lambda settings, view: replace(settings, every_head=True),  # who reads a page chooses among them
)
FORMATS["code:numpy"] = Format("trace", code, (".py",))
FORMATS["code:torch"] = Format("trace", code, also=(".py",))
FORMATS["code:keras"] = Format("trace", code, also=(".py",))
FORMATS["figure"] = Format(
    "drawing", figure, (".png", ".pdf"), (".svg",), is_typed=False, settings=settings_of_figure
)
