"""Blocks on a screen, and in documents: table, bars, markdown, latex, html and svg."""

from __future__ import annotations

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


def markdown(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as Markdown."""
    from attn_cli.render.documents.markdown import markdown

    return Written(markdown(result.blocks(view), view))


def latex(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as a LaTeX file."""
    from attn_cli.render.documents.latex import latex

    return Written(latex(result.blocks(view), view))


def html(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as a static page."""
    from attn_cli.render.documents.html import html

    return Written(portable(html(result.blocks(view), view), terminal))


def svg(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as a picture of the screen."""
    from attn_cli.render.documents.svg import svg

    return Written(portable(svg(result.blocks(view), view), terminal))


FORMATS["table"] = Format("blocks", screen, (".txt",), also=DRAWN, is_screen=True)
FORMATS["bars"] = Format("bars", screen, also=(".txt", *DRAWN), is_screen=True)
FORMATS["markdown"] = Format("blocks", markdown, (".md", ".markdown"))
FORMATS["latex"] = Format("blocks", latex, (".tex",))
FORMATS["html"] = Format("blocks", html, (".html", ".htm"))
FORMATS["svg"] = Format("blocks", svg, (".svg",))
