"""The interactive page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.formats import FORMATS, Format, Written, portable

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings


def write(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the page, which is one file."""
    from attn_cli.render.page import page

    return Written(portable(page(result.page()), terminal))


def every_head(settings: Settings, view: View) -> Settings:
    """Return the settings with every head: who reads a page chooses among them."""
    from dataclasses import replace

    return replace(settings, every_head=True)


REFUSAL = ("A page is for a browser.", "Write it to a file: -o page.html")
FORMATS["page"] = Format("page", write, also=(".html", ".htm"), not_on_terminal=REFUSAL, settings=every_head)
