"""`w`: the view as a file, in the format that its suffix stands for."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.io.terminal import Terminal

if TYPE_CHECKING:
    from attn_cli.settings.output import View
    from attn_cli.trace.trace import Trace

NAME = "attn-live"


def free_name() -> str:
    """Return a name for a picture that no file here has."""
    number = 0
    while os.path.lexists(name := f"{NAME}{f'-{number}' if number else ''}.svg"):
        number += 1
    return name


def save(trace: Trace, view: View, path: str) -> str:
    """Write a trace to a file, all or nothing, and return what was done; raise UsageError for another suffix."""
    from attn_cli.io.atomic import written
    from attn_cli.render.formats import FORMATS, suffixes
    from attn_cli.render.trace_result import render

    suffix = os.path.splitext(path)[1].lower()
    format = suffixes().get(suffix, "")
    if not format or format == "figure" or FORMATS[format].not_on_terminal:
        near = did_you_mean(suffix, suffixes())
        raise UsageError(f"No view is written to {visible(path)!r}.", f"{near}Use .svg, .html or .json.")
    width = None if format in ("html", "json") else view.width
    asked = replace(view, format=format, width=width, steps=format == "json" and trace.is_scored)
    text = render(trace, asked, Terminal(width))
    with written(path) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))
    return f"Written: {visible(path)}"
