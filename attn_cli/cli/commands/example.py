"""attn example: the worked examples that the project grew from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from attn_cli.cli.deliver import (
    choose_format,
    deliver_record,
    for_view,
    refuse_figure,
    show,
    terminal_for,
)
from attn_cli.cli.options import Pause, argument, without
from attn_cli.cli.origins import prefer_given
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.settings.output import View
from attn_cli.settings.settings import WITH_MODEL, Settings
from attn_cli.teach.examples import EXAMPLES, load

if TYPE_CHECKING:
    from attn_cli.teach.examples import Example
    from attn_cli.trace.trace import Trace


@without("model", *WITH_MODEL)
def example(
    context: typer.Context,
    name: Annotated[
        str | None, argument("[NAME]", "Which one; without it, they are listed.", *EXAMPLES)
    ] = None,
    pause: Pause = False,
    *,
    settings: Settings,
    view: View,
) -> None:
    """A worked example from a tutorial.

    Its own inputs are day1, coffee, coffee-notebook, manchester, a2 or dictionary. With any option of
    attn self, the same inputs are computed again.

    Example: attn example coffee --mask causal
    """
    view = choose_format(view, settings, "examples" if name is None else "example")
    if name is None:
        if pause:
            raise UsageError("--pause goes with one example.", f"Name one: {', '.join(EXAMPLES)}.", "--pause")
        _list(view)
        return
    if name not in EXAMPLES:
        raise UsageError(
            f"There is no example {visible(name)!r}.",
            f"{did_you_mean(name, EXAMPLES)}Examples are {', '.join(EXAMPLES)}.",
            "NAME",
        )
    if pause:
        refuse_figure(view, "--pause")
    chosen = load(name)
    if chosen.acts is not None:
        refuse_figure(view, "The example dictionary")
        from attn_cli.cli.commands.lookup import show_dictionary  # the others are no lookups

        prepare_index(settings.embedding, "random, ")
        show_dictionary(chosen.acts, settings, view, pause)
        return
    if (given := chosen.given) is not None:
        settings = prefer_given(context, settings, score=given.score, mask=given.mask, heads=given.heads)
    show(_trace(chosen, for_view(settings, view)), view, pause=pause)


def _trace(chosen: Example, settings: Settings) -> Trace:
    from attn_cli.pipeline.sources.matrices import trace_matrices
    from attn_cli.pipeline.sources.text import trace_text

    given = chosen.given
    if given is None:
        return trace_text("example", chosen.text, None, chosen.with_defaults(settings))
    if settings.embedding is None:
        if settings.projection is not None and given.get("Q") is not None:
            raise UsageError(f"{given.name} gives Q, K and V themselves.", "Leave out -p.", "--projection")
        return trace_matrices("example", given, settings)
    if given.tokens is None:
        raise UsageError(f"{given.name} has no words to look up.", "Leave out -e.", "--embedding")
    settings = replace(settings, tokenizer="whitespace", score=settings.score or given.score)
    return trace_text("example", " ".join(given.tokens), None, settings)


def _list(view: View) -> None:
    from attn_cli.render.screen.text import wrapped

    refuse_figure(view, "The list of examples")
    if view.format not in ("table", "json", "jsonl"):
        raise UsageError(f"The list of examples has no {view.format} form.", "Name one of them.", "--format")
    examples = [{"name": name, "about": load(name).about} for name in EXAMPLES]
    terminal = terminal_for(view)
    lines = (
        line
        for one in examples
        for line in wrapped(f"{one['name']:<16} {one['about']}", terminal.width, hanging=17)
    )
    deliver_record("examples", {"examples": examples}, view, lambda: terminal.paint(lines))
