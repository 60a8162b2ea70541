"""attn self, masked, cross, explain: attention of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from attn_cli.commands.common import Progress, one_text, read_text, ready, settled, show
from attn_cli.errors import NoText, UsageError
from attn_cli.options import Texts, takes
from attn_cli.steps import chosen_steps
from attn_cli.trace import Settings
from attn_cli.view import View


@takes(Settings, View)
def self_(texts: Texts = None, *, settings: Settings, view: View) -> None:
    """Self-attention: every word of a text looks at every word.

    Queries, keys and values all come from the same text.

    Example: attn self "The cat sat on the mat"
    """
    view = settled(view)
    text = one_text(texts, "self")
    from attn_cli.pipeline import trace_self  # NumPy is loaded once there is something to compute

    ready(settings.embedding, "random, ")
    show(trace_self(text, settings, Progress("Attending")), view)


@takes(Settings, View)
def masked(texts: Texts = None, *, settings: Settings, view: View) -> None:
    """Masked self-attention: a word looks only at itself and back.

    Example: attn masked "The cat sat on the mat"
    """
    view = settled(view)
    text = one_text(texts, "masked")
    from attn_cli.pipeline import trace_masked  # NumPy is loaded once there is something to compute

    ready(settings.embedding, "random, ")
    show(trace_masked(text, settings, Progress("Attending")), view)


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
    *,
    settings: Settings,
    view: View,
) -> None:
    """Cross-attention: the words of one text look at another.

    Queries come from TEXT, keys and values from CONTEXT. With one argument, it is CONTEXT and TEXT is standard input.

    Example: attn cross "she" "likes coffee"
    """
    view = settled(view)
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
    from attn_cli.pipeline import trace_cross

    second = read_text(context, "cross")
    ready(settings.embedding, "random, ")
    show(trace_cross(text, second, settings, Progress("Attending")), view)


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
    view = settled(view)
    parts = chosen_steps(only, start)
    if context == "-" and (not texts or texts == ["-"]):
        raise UsageError("Standard input can be only one of TEXT and CONTEXT.", "Type the other in quotes.")
    text = one_text(texts, "explain")
    second = None if context is None else read_text(context, "explain")
    is_masked = (settings.mask or "none") != "none"
    from attn_cli.pipeline import trace_text

    kind = "cross" if second is not None else "masked" if is_masked else "self"
    ready(settings.embedding, "random, ")
    trace = trace_text(kind, text, second, settings, Progress("Attending"), name_outputs=True)
    show(trace, view, parts, pause)
