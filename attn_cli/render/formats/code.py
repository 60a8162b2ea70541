"""Scripts that compute a trace again: code:numpy, code:torch and code:keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.render.formats import FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View


def write(result: Result, view: View, terminal: Terminal) -> Written:
    """Return a script for the framework that the format names; UsageError for weights that came without scores."""
    from attn_cli.render.code.script import script

    trace = result.trace()
    if not trace.is_scored:
        from attn_cli.render.views.wording import no_arithmetic

        held = "here are" if trace.kind != "show" else f"{trace.embedding.name} holds"
        what = f"-f {view.format} needs queries, keys and values; {held} weights alone."
        raise UsageError(what, no_arithmetic(trace)[1], "--format")
    return Written(script(trace, str(view.format).partition(":")[2]))


FORMATS["code:numpy"] = Format("trace", write, (".py",))
FORMATS["code:torch"] = Format("trace", write, also=(".py",))
FORMATS["code:keras"] = Format("trace", write, also=(".py",))
