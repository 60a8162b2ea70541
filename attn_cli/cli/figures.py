"""Figures on the command line: which one is wanted, what refuses one, and the file that it goes into."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import to_standard_output
from attn_cli.errors import UsageError
from attn_cli.io.atomic import written
from attn_cli.io.console import put_bytes, say
from attn_cli.io.escape import visible
from attn_cli.io.progress import Progress
from attn_cli.render import PICTURES
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.render.figures.sheet import Drawing
    from attn_cli.trace.trace import Trace

ALONE = ("dpi", "size", "title")  # options that say nothing without a figure


def choose_figure(view: View) -> View:
    """Return the view with the figure that it is to draw, if it is to draw one; refuse options that need one."""
    suffix = "" if to_standard_output(view) else os.path.splitext(str(view.output))[1].lower()
    if view.figure is None and suffix in PICTURES and suffix != ".svg" and view.format is None:
        view = replace(view, figure="heatmap")
    if view.figure is None:
        for name in ALONE:
            if getattr(view, name) is not None:
                hint = "Type -o figure.png, or say what to draw: --figure heatmap -o figure.svg."
                raise UsageError(f"--{name} goes with a figure.", hint, f"--{name}")
        return view
    if view.format not in (None, "svg"):
        raise UsageError(
            f"A figure has no {view.format} form.",
            f"Leave out -f, and type -o {view.figure}.png, .pdf or .svg.",
            "--figure",
        )
    if suffix not in PICTURES and not (view.format == "svg" and suffix == ""):
        where = "" if to_standard_output(view) else f", not into {visible(str(view.output))!r}"
        raise UsageError(
            f"A figure goes into a file that ends in .png, .pdf or .svg{where}.",
            f"Type -o {view.figure}.png.",
            "--figure",
        )
    return view


def settings_of_figure(settings: Settings, view: View) -> Settings:
    """Return the settings that a figure needs: all heads for one of all heads.

    Raises MissingExtra without Matplotlib: before the work, and not after it.
    """
    is_every = view.figure == "heads" and settings.head not in ("all", "mean")
    if is_every and settings.head is not None:
        raise UsageError("--figure heads draws every head.", "Leave out --head.", "--head")
    if find_spec("matplotlib") is None:
        from attn_cli.render.figures import not_installed

        raise not_installed()
    return replace(settings, head="all") if is_every else settings


def deliver_figure(trace: Trace, view: View) -> None:
    """Draw a trace; what the figure has no room for goes to standard error."""
    from attn_cli.render.figures.subjects import other_rows, subject
    from attn_cli.render.views.closing import talk

    deliver_drawing(subject(trace, view), view, [*talk(trace), *other_rows(trace, view)])
    if view.steps and view.figure != "steps":
        say("attn: --steps takes no effect here: --figure steps draws the steps of a row.")


def deliver_drawing(shown: Drawing, view: View, remarks: Iterable[str] = ()) -> None:
    """Draw a figure into its file, all or nothing; these remarks, and its own notes, go to standard error."""
    from attn_cli.render.figures import picture

    with Progress("Drawing"):
        data, notes = picture(shown, view)
    if to_standard_output(view):
        put_bytes([data])
    else:
        with written(str(view.output)) as stream:
            stream.write(data)
    for line in (*remarks, *notes):
        say(f"attn: {line}")
