"""Blocks on a screen, and in documents: table, bars, markdown, latex, html and svg."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from attn_cli.render.formats import DRAWN, FORMATS, Format, Written, portable

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View


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
