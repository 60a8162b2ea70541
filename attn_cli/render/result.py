"""What a command has to give, from which every format is written; and what a trace gives of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from attn_cli.errors import refuse
from attn_cli.io.types import dataclass, replace
from attn_cli.settings import NORM, View, output

if TYPE_CHECKING:
    from types import ModuleType

    from attn_cli.io.terminal import Terminal
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render import Block
    from attn_cli.render.figures.sheet import Drawing
    from attn_cli.render.walk import Walk
    from attn_cli.trace import Trace

Record = dict[str, object]
Figure: TypeAlias = "tuple[Drawing, Sequence[str]]"  # and what to say beside it
# What the result of a trace has; of bars its blocks are made where the view asks for them.
OF_TRACE = ("blocks", "bars", "record", "rows", "trace", "page", "drawing")
OF_BLOCKS = ("blocks", "record")
OF_RECORD = ("table", "record")  # the text of a table, and no blocks


def _lacks(*_: object) -> NoReturn:
    raise ValueError("this result has nothing that the format needs")


@dataclass(frozen=True)
class Result:
    """What a command has to give; a format needs one of these. What there is not raises ValueError.

    `drawing` gives that of --figure, and what to say beside it; `texts` are laid out already, by format.
    """

    kind: str = ""  # of its record
    blocks: Callable[[View], Iterable[Block]] = _lacks
    record: Callable[[View], Record] = _lacks
    records: list[Record] = field(default_factory=list)  # of several answers: jsonl has each on a line
    rows: Callable[[View], Iterable[Sequence[object]]] = _lacks  # of cells: text, numbers, None
    trace: Callable[[], Trace] = _lacks
    page: Callable[[], Page] = _lacks
    drawing: Callable[[View], Figure] = _lacks
    texts: Mapping[str, Callable[[Terminal], str]] = field(default_factory=dict)
    remarks: Callable[[], Sequence[str]] = tuple  # what rows have no room for
    # Whether its screen shows steps, which rows do not.
    has_steps: Callable[[View], bool] = lambda view: False

    @property
    def has_trace(self) -> bool:
        """Whether it is the result of one trace."""
        return self.trace is not _lacks


def result_of(
    kind: str, found: Any, views: ModuleType, *more: object, drawing: Callable[[View], Figure] = _lacks
) -> Result:
    """Return the result of what a command found, shown by a module of views: its screen (of `more` too) and rows."""
    return Result(
        kind,
        lambda view: views.screen(found, *more, view),
        lambda view: found.record(),
        rows=lambda view: views.rows(found),
        drawing=drawing,
    )


def record_result(
    kind: str, record: Mapping[str, object], table: Callable[[Terminal], str] | None = None
) -> Result:
    """Return the result of a small record: its JSON, and the text of its table if that is laid out already."""
    texts = {} if table is None else {"table": table}
    return Result(kind, record=lambda view: {"schema": "attn/1", "kind": kind, **record}, texts=texts)


def figure_of(draw: str, *found: object, notes: Sequence[str]) -> Callable[[View], Figure]:
    """Return what draws a figure by `draw`, `heatmap.compared` of render.figures, loaded then; and notes."""
    module, _, name = draw.partition(".")

    def drawing(view: View) -> Figure:
        return getattr(import_module(f"attn_cli.render.figures.{module}"), name)(*found, view), notes

    return drawing


def keys_in(view: View, kind: str) -> output.Keys | None:
    """Return the keys that the view chooses of a record of this kind, in their order; None for all."""
    if view.fields is None:
        return None
    return output.chosen_keys(view.fields, kind, None)


def readable(trace: Trace) -> Trace:
    """Return the trace as screens and figures show it: a model's byte-level tokens are text."""
    from attn_cli.text.wordpieces import as_text  # imports NumPy, as a trace does

    if not (trace.of_model or trace.kind == "show"):
        return trace
    queries, keys = as_text(trace.query_tokens), as_text(trace.key_tokens)
    if (queries, keys) == (trace.query_tokens, trace.key_tokens):
        return trace
    shown = dict(zip(trace.query_tokens, queries, strict=True))
    found = (trace.next_words, *(trace.next_words_at or ()))
    last, *every = (one and one._replace(token=shown.get(one.token, one.token)) for one in found)
    at = tuple(filter(None, every)) or None
    return replace(trace, query_tokens=queries, key_tokens=keys, next_words=last, next_words_at=at)


def needs_weights(view: View, kind: str) -> bool:
    """Return whether the view shows what a layer projects with: every step, or a key of the JSON that --steps adds."""
    if view.steps or view.fields is None:
        return view.steps
    # Only those who choose keys need them.
    from attn_cli.trace import OF_STEPS, OF_WEIGHTS, asks_for_steps

    keys = keys_in(view, kind) or {}
    return asks_for_steps(keys) or not keys.keys().isdisjoint((*OF_STEPS, *OF_WEIGHTS))


def trace_result(trace: Trace, view: View, walk: Walk | None = None, texts: Sequence[str] = ()) -> Result:
    """Return the result of a trace; with a walk, its steps. A page names its command by `texts`, as they were typed.

    Raises UsageError where the view asks about scores, and there are none.
    """
    from attn_cli.pipeline.beside import drawn

    is_wrong = trace.settings.versus is not None and walk is None and not trace.asked
    hint = "Choose the query row with -q WORD."
    refuse(is_wrong, "--versus requires -q, or attn explain.", hint, "--versus")
    computed, trace = trace, drawn(trace)
    if not trace.is_scored:
        trace = _without_scores(trace, view, walk)
    computed = computed if trace.drawn == NORM else trace

    is_walk = walk is not None

    def shown(view: View) -> View:
        return view if trace.is_scored or is_walk else replace(view, steps=False)

    def record(view: View) -> Record:
        steps = (view if computed.is_scored else shown(view)).steps or is_walk
        return computed.to_dict(steps, is_walk, keys_in(view, trace.kind))

    def rows(view: View) -> Iterable[Sequence[object]]:
        from attn_cli.render.views.overview import weight_rows

        return weight_rows(trace, view.tidy)

    def remarks(trace: Trace = trace) -> list[str]:
        from attn_cli.render.views.origins import talk  # JSON does without, and without Rich

        return talk(trace)

    def drawing(view: View) -> Figure:
        from attn_cli.render.figures import other_rows, subject

        is_ignored = shown(view).steps and view.figure != "steps"
        ignored = ["--steps takes no effect here: --figure steps draws the steps of a row."] * is_ignored
        seen = readable(trace)
        view = replace(view, shades="auto") if trace.drawn == NORM else view  # norms have no largest one
        return subject(seen, view), [*remarks(seen), *other_rows(seen, view), *ignored]

    def page() -> Page:
        from attn_cli.pipeline.for_page import Page

        return Page([computed], text=(*texts, None)[0], context=(*texts, None, None)[1])

    return Result(
        trace.kind,
        lambda view: trace_blocks(readable(trace), shown(view), walk),
        record,
        rows=rows,
        trace=lambda: trace,
        page=page,
        drawing=drawing,
        remarks=remarks,
        has_steps=lambda view: shown(view).steps or is_walk,
    )


def _without_scores(trace: Trace, view: View, walk: Walk | None) -> Trace:
    """Return a trace of weights that have no scores, with a note on the steps; refuse what is about scores alone."""
    from attn_cli.render.views.wording import no_arithmetic

    has_only = walk is not None and bool(walk.only)
    option = "" if has_only else "--versus"
    refuse(has_only or trace.settings.versus is not None, *no_arithmetic(trace), option)
    if not view.steps or walk is not None:
        return trace
    came = "the weights came ready" if trace.kind == "show" else "the weights were made of others"
    came = "the norms were made of the weights" if trace.drawn == NORM else came
    return replace(trace, notes=(*trace.notes, f"There are no steps to show: {came}."))


def trace_blocks(trace: Trace, view: View, walk: Walk | None = None) -> Iterator[Block]:
    """Return the blocks of a screen: bars, the table of weights, the story of `attn explain`, or its walk."""
    if view.has_bars or walk is None:
        from attn_cli.render.views import overview

        return overview.bars(trace, view) if view.has_bars else overview.table(trace, view)
    from attn_cli.render.views.explain import explain, story

    return explain(trace, view, walk) if walk.has_steps or view.steps else story(trace, view)
