"""attn self, masked, cross, explain: attention of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attn_cli.cli.deliver import deliver, deliver_json, settled, show, terminal_for
from attn_cli.cli.options import Texts, takes
from attn_cli.cli.read_text import one_text, read_text
from attn_cli.cli.ready_vectors import ready
from attn_cli.errors import NoText, UsageError
from attn_cli.io.progress_bar import Progress
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from attn_cli.trace.steps import chosen_steps

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

Part = Annotated[
    Literal["mask"] | None,
    typer.Option("--show", help="Show the mask itself: in words, as frameworks write it, and what it does."),
]


@takes(Settings, View)
def self_(texts: Texts = None, part: Part = None, *, settings: Settings, view: View) -> None:
    """Self-attention: every word of a text looks at every word.

    Queries, keys and values all come from the same text.

    Example: attn self "The cat sat on the mat"
    """
    view = _settled(view, part, settings)
    text = one_text(texts, "self")
    from attn_cli.pipeline.from_text import trace_self  # NumPy is loaded once there is something to compute

    ready(settings.embedding, "random, ")
    with Progress("Attending") as progress:
        trace = trace_self(text, settings, progress)
    _show(trace, view, part)


@takes(Settings, View)
def masked(texts: Texts = None, part: Part = None, *, settings: Settings, view: View) -> None:
    """Masked self-attention: a word looks only at itself and back.

    With --show mask, the mask in words, as each framework writes it, and what it does to the numbers.

    Example: attn masked "The cat sat on the mat"
    """
    view = _settled(view, part, settings)
    text = one_text(texts, "masked")
    from attn_cli.pipeline.from_text import trace_masked  # NumPy is loaded once there is something to compute

    ready(settings.embedding, "random, ")
    with Progress("Attending") as progress:
        trace = trace_masked(text, settings, progress)
    _show(trace, view, part)


@takes(Settings, View)
def cross(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT] CONTEXT",
            help="Queries come from TEXT, keys and values from CONTEXT; - is standard input.",
            show_default=False,
        ),
    ] = None,
    part: Part = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Cross-attention: the words of one text look at another.

    Queries come from TEXT, keys and values from CONTEXT. With one argument, it is CONTEXT and TEXT is standard input.

    Example: attn cross "she" "likes coffee"
    """
    view = _settled(view, part, settings)
    texts = texts or []
    if len(texts) > 2:
        raise UsageError(
            f"{len(texts)} texts were given where two are wanted: put quotes round each.",
            'Try: attn cross "she" "likes coffee"',
        )
    if texts.count("-") > 1 or (len(texts) == 1 and texts[0] == "-"):
        raise UsageError("Standard input can be only one of TEXT and CONTEXT.", "Type the other in quotes.")
    given, context = texts if len(texts) == 2 else (None, texts[0] if texts else None)
    if context is None:
        raise NoText("cross")
    text = read_text(given, "cross")
    from attn_cli.pipeline.from_text import trace_cross

    second = read_text(context, "cross")
    ready(settings.embedding, "random, ")
    with Progress("Attending") as progress:
        trace = trace_cross(text, second, settings, progress)
    _show(trace, view, part)


@takes(Settings, View)
def explain(
    texts: Texts = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="TEXT", help="Keys and values come from this second text."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="STEPS", help="Only these steps, such as scores,weights."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="From this step on, such as softmax."),
    ] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Wait for a key before each part; q stops. Nothing is cleared.")
    ] = False,
    *,
    settings: Settings,
    view: View,
) -> None:
    """The walk: every step, every number, one sentence each.

    It opens with one row by hand (that of the main verb, if the heads find one; -q takes any), goes on
    to the whole matrix, the mask and how sharp the weights are, and ends with who attends to whom.

    Example: attn explain "The quick brown fox jumped over the lazy dog" -q jumped
    """
    view = settled(view, settings)
    parts = chosen_steps(only, start)
    if parts.only and view.format not in ("table", "markdown", "latex", "html", "svg", "json", "jsonl"):
        option = "--only" if only is not None else "--from"
        raise UsageError(
            f"{option} goes with the walk, and {view.format} has none.",
            "Use table, markdown, latex, html or svg; json holds every step.",
            "--format",
        )
    if context == "-" and (not texts or texts == ["-"]):
        raise UsageError("Standard input can be only one of TEXT and CONTEXT.", "Type the other in quotes.")
    text = one_text(texts, "explain")
    second = None if context is None else read_text(context, "explain")
    is_masked = (settings.mask or "none") != "none"
    from attn_cli.pipeline.from_text import trace_text

    kind = "cross" if second is not None else "masked" if is_masked else "self"
    ready(settings.embedding, "random, ")
    with Progress("Attending") as progress:
        trace = trace_text(kind, text, second, settings, progress, name_outputs=True)
    show(trace, view, parts, pause)


def _settled(view: View, part: str | None, settings: Settings) -> View:
    """Return the view with its format chosen, one that the part has."""
    from attn_cli.render import SCREENS

    view = settled(view, settings)
    if part is not None and view.format not in (*SCREENS, "json", "jsonl"):
        raise UsageError(
            f"--show {part} has no {view.format} form.",
            "Use table, markdown, latex, html, svg or json.",
            "--format",
        )
    return view


def _show(trace: Trace, view: View, part: str | None) -> None:
    """Write the trace, or the part of it that is asked for."""
    if part is None:
        show(trace, view)
        return
    from attn_cli.render import render_blocks
    from attn_cli.render.views.mask import mask_lab, mask_views

    if view.format in ("json", "jsonl"):
        deliver_json(trace.to_dict(view.steps) | {"mask_views": mask_views(trace)}, view)
        return
    terminal = terminal_for(view)
    view = replace(view, width=terminal.width)
    deliver(render_blocks(mask_lab(trace, view), view, terminal), view)
