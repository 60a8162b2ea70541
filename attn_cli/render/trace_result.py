"""What a trace has to give: the screen of its weights or its story, its JSON, rows, a page, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.render.result import Record, Result

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render.blocks import Block
    from attn_cli.render.figures.sheet import Drawing
    from attn_cli.settings.output import View
    from attn_cli.trace.steps import Walk
    from attn_cli.trace.trace import Trace


def trace_result(trace: Trace, view: View, walk: Walk | None = None, texts: Sequence[str] = ()) -> Result:
    """Return the result of a trace; with a walk, its steps as `attn explain` shows them.

    A page names the command that makes it from `texts`, the text and its context as they were typed.
    Raises UsageError where the view asks about scores, and there are none.
    """
    from attn_cli.render.views.closing import talk

    if trace.settings.versus is not None and walk is None and not trace.asked:
        hint = "Choose the query row with -q WORD."
        raise UsageError("--versus requires -q, or attn explain.", hint, "--versus")
    if not trace.is_scored:
        trace = _without_scores(trace, view, walk)

    def shown(view: View) -> View:
        return view if trace.is_scored or walk is not None else replace(view, steps=False)

    def record(view: View) -> Record:
        from attn_cli.render.formats.json import keys_in

        is_walk = walk is not None
        return trace.to_dict(shown(view).steps or is_walk, is_walk, keys_in(view, trace.kind))

    def rows(view: View) -> Iterable[Sequence[object]]:
        from attn_cli.render.views.rows import weight_rows

        return weight_rows(trace, view.tidy)

    def drawing(view: View) -> tuple[Drawing, Sequence[str]]:
        from attn_cli.render.figures import other_rows, subject

        is_ignored = shown(view).steps and view.figure != "steps"
        ignored = ["--steps takes no effect here: --figure steps draws the steps of a row."] * is_ignored
        return subject(trace, view), [*talk(trace), *other_rows(trace, view), *ignored]

    def page() -> Page:
        from attn_cli.pipeline.for_page import Page

        return Page([trace], text=(*texts, None)[0], context=(*texts, None, None)[1])

    return Result(
        trace.kind,
        lambda view: trace_blocks(trace, shown(view), walk),
        record,
        rows=rows,
        trace=lambda: trace,
        page=page,
        drawing=drawing,
        remarks=talk(trace),
        has_steps=lambda view: shown(view).steps or walk is not None,
    )


def _without_scores(trace: Trace, view: View, walk: Walk | None) -> Trace:
    """Return a trace of weights that have no scores, with a note on the steps; refuse what is about scores alone."""
    from attn_cli.render.views.wording import no_arithmetic

    what, hint = no_arithmetic(trace)
    if walk is not None and walk.only:
        raise UsageError(what, hint)
    if trace.settings.versus is not None:
        raise UsageError(what, hint, "--versus")
    if not view.steps or walk is not None:
        return trace
    came = "came ready" if trace.kind == "show" else "were made of others"
    return replace(trace, notes=(*trace.notes, f"There are no steps to show: the weights {came}."))


def trace_blocks(trace: Trace, view: View, walk: Walk | None = None) -> Iterator[Block]:
    """Return the blocks of a screen: bars, the table of weights, the story of `attn explain`, or its walk."""
    if view.has_bars or walk is None:
        from attn_cli.render.views import overview

        return overview.bars(trace, view) if view.has_bars else overview.table(trace, view)
    if walk.has_steps or view.steps:
        from attn_cli.render.views.explain import explain

        return explain(trace, view, walk)
    from attn_cli.render.views.story import story

    return story(trace, view)


def render(trace: Trace, view: View, terminal: Terminal, walk: Walk | None = None) -> str:
    """Return the trace as text in the view's format; with a walk, its steps as `attn explain` shows them."""
    return _text(trace_result(trace, view, walk), view, terminal)


def render_blocks(blocks: Iterable[Block], view: View, terminal: Terminal) -> str:
    """Return blocks as text in the view's format; ValueError for one that is not made of blocks."""
    return _text(Result(blocks=lambda view: blocks), view, terminal)


def _text(result: Result, view: View, terminal: Terminal) -> str:
    from attn_cli.render.formats import write

    data = write(result, view, terminal).data
    if not isinstance(data, str):
        raise ValueError(f"{view.format} is not text")
    return data
