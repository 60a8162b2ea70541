"""Blocks on a screen: table, and bars in the place of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.formats import DRAWN, FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View


def screen(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the blocks as lines of the terminal."""
    from attn_cli.render.screen.draw import draw

    return Written(terminal.paint(draw(result.blocks(view), view, terminal)))


FORMATS["table"] = Format("blocks", screen, (".txt",), also=DRAWN, is_screen=True)
FORMATS["bars"] = Format("bars", screen, also=(".txt", *DRAWN), is_screen=True)
