"""What is made of a trace: the interactive page, and code:numpy, code:torch and code:keras."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.render.formats import FORMATS, Format, Written, portable

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings


def page(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the page, which is one file."""
    from attn_cli.render.page import page

    return Written(portable(page(result.page()), terminal))


def every_head(settings: Settings, view: View) -> Settings:
    """Return the settings with every head: who reads a page chooses among them."""
    return replace(settings, every_head=True)


def code(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a script for the framework that the format names; UsageError for weights that came without scores."""
    from attn_cli.render.code.script import script

    trace = result.trace()
    if not trace.is_scored:
        from attn_cli.render.views.wording import no_arithmetic

        held = "here are" if trace.kind != "show" else f"{trace.embedding.name} holds"
        what = f"-f {view.format} needs queries, keys and values; {held} weights alone."
        raise UsageError(what, no_arithmetic(trace)[1], "--format")
    return Written(script(trace, str(view.format).partition(":")[2]))


REFUSAL = ("A page is for a browser.", "Write it to a file: -o page.html")
FORMATS["page"] = Format("page", page, also=(".html", ".htm"), not_on_terminal=REFUSAL, settings=every_head)
FORMATS["code:numpy"] = Format("trace", code, (".py",))
FORMATS["code:torch"] = Format("trace", code, also=(".py",))
FORMATS["code:keras"] = Format("trace", code, also=(".py",))
