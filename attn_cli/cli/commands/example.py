"""attn example: the worked examples that the project grew from."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import typer

from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import Pause, argument, takes
from attn_cli.cli.origins import prefer_given
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.render.result import OF_RECORD, OF_TRACE, record_result, trace_result
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from attn_cli.teach.examples import EXAMPLES, load

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.teach.examples import Example
    from attn_cli.trace.trace import Trace


@takes("TOKENS VECTORS projection layer COMPUTED PLACED ROWS SCREEN tidy FIGURE")
def example(
    context: typer.Context,
    name: str | None = argument("[NAME]", "Which one; without it, they are listed.", *EXAMPLES, default=None),
    pause: Pause = False,
    *,
    settings: Settings,
    view: View,
) -> None:
    """A worked example from a tutorial.

    NAME is day1, coffee, coffee-notebook, manchester, a2 or dictionary. Any option of attn self recomputes the
    same inputs with that setting.

    Example: attn example coffee --mask causal
    """
    if name is None:
        _list(view, pause)
        return
    if name not in EXAMPLES:
        hint = f"{did_you_mean(name, EXAMPLES)}Examples are {', '.join(EXAMPLES)}."
        raise UsageError(f"There is no example {visible(name)!r}.", hint, "NAME")
    chosen = load(name)
    figures = {"drawing"} if chosen.acts is None and not pause else set()
    what = "--pause" if pause else f"The example {name}"
    view = choose(view, {*OF_TRACE} - {"drawing"} | figures, what, "example")
    if chosen.acts is not None:
        from attn_cli.cli.commands.lookup import dictionary_result  # the others are not lookups

        prepare_index(settings.embedding, "random, ")
        deliver(dictionary_result(chosen.acts, settings_for(settings, view), view), view, pause)
        return
    if (given := chosen.given) is not None:
        settings = prefer_given(context, settings, score=given.score, mask=given.mask, heads=given.heads)
    deliver(trace_result(_trace(chosen, settings_for(settings, view)), view), view, pause)


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


def _list(view: View, pause: bool) -> None:
    view = choose(view, OF_RECORD, "The list of examples", "examples")
    if pause:
        raise UsageError("--pause goes with one example.", f"Name one: {', '.join(EXAMPLES)}.", "--pause")
    examples = [{"name": name, "about": load(name).about} for name in EXAMPLES]

    def table(terminal: Terminal) -> str:
        from attn_cli.render.screen.text import wrapped

        lines = (wrapped(f"{one['name']:<16} {one['about']}", terminal.width, hanging=17) for one in examples)
        return terminal.paint(chain.from_iterable(lines))

    deliver(record_result("examples", {"examples": examples}, table), view)
