"""A text under several values of one option, or with words swapped: every trace, and what changed between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import SettingError, UsageError, refuse_input
from attn_cli.io.types import Array, NamedTuple, OnPart, dataclass, replace
from attn_cli.pipeline.embed import settings_for_positions
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings import ALL, CONFLICTS_WITH_MODEL, SHOWN_ONLY, USUAL, Settings, beside_model, declared
from attn_cli.trace import Trace, entropy as bits

if TYPE_CHECKING:
    from attn_cli.teach.moved import Moved

SAME = 1e-12  # weights that differ by less count as equal
TEXT = "text"  # what is varied, where it is no option
MOST_MOVERS = 100  # kept, unless --top asks for more
VARIED = tuple(field.name for field in fields(Settings) if field.name not in SHOWN_ONLY)
Value = str | float | bool | None  # None is the default
Values = Sequence[Value]
Report = OnPart | None
Two = tuple[str, str]


class Swap(NamedTuple):
    """A token, and what stands in its place."""

    old: str
    new: str


Swaps = tuple[Swap, ...]


class Mover(NamedTuple):
    """A link whose weight changed: the indices of its query and key, and the weight before and after."""

    query: int
    key: int
    before: float
    after: float


class Change(NamedTuple):
    """What changed from the reference to another value, over the rows shown; links masked in either are left out."""

    to: int  # the index of the other value
    difference: Array  # (rows shown, n_k), after - before; NaN where masked in either
    movers: tuple[Mover, ...]  # the largest changes above SAME, the largest first
    strongest_changed: tuple[int, ...]  # queries whose strongest key changed
    only_before: int  # links that are masked only before
    only_after: int
    output: float | None  # the largest change of an output number; None where the shapes differ


@dataclass(frozen=True, eq=False)
class Comparison:
    """One trace for each value of one option or text; without `changes` where tokens differ and were not swapped."""

    option: str  # a field of Settings, or text
    values: tuple[Value, ...]
    traces: tuple[Trace, ...]
    entropy: tuple[float | None, ...]  # bits, the mean over the rows shown; None if all are fully masked
    reference: int  # the index of the value that the others are compared with
    changes: tuple[Change, ...]  # from the reference to each other value, in their order
    swaps: Swaps = ()  # the words that were replaced, where the text itself was varied
    moved: Moved | None = None  # every head of two models, or of a model under two texts

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as the user types them; texts are too long for labels."""
        if self.option == TEXT:
            return ("before", "after") if self.swaps else ("first", "second")
        names = [trace.embedding.name or "" for trace in self.traces]  # of models, without their folders
        is_clear = self.moved is not None and len(set(names)) == len(names)
        return tuple(names) if is_clear else tuple(map(written, self.values))

    @property
    def same_tokens(self) -> bool:
        """Whether all sides have the same tokens, so that cells can be compared one by one."""
        return len({(trace.query_tokens, trace.key_tokens) for trace in self.traces}) == 1

    @property
    def same_cells(self) -> bool:
        """Whether cells can be compared one by one: with the same tokens, or with as many of two texts."""
        sizes = {(len(trace.query_tokens), len(trace.key_tokens)) for trace in self.traces}
        is_in_place = self.moved is None or bool(self.changes)
        return self.same_tokens or (self.option == TEXT and len(sizes) == 1 and is_in_place)


def written(value: Value) -> str:
    """Return a value as the user types it: 0.5, 2 for 2.0, yes, default for None."""
    if value is None or isinstance(value, bool):
        return {None: "default", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def compare(
    text: str, context: str | None, settings: Settings, option: str, values: Values, report: Report = None
) -> Comparison:
    """Trace a text once for each value of the option, a field of Settings, and compare the weights.

    Two values are compared in their order. Of three, the default is what the others are compared with, wherever it
    stands; without it, the first. A context makes it cross-attention.
    Raises UsageError for an option that changes no number and for a value that the option does not take, and
    InputError for too many weights.
    """
    if option not in VARIED:
        raise UsageError(f"--vary cannot vary {option!r}.", f"Choose one of {', '.join(VARIED)}.", "--vary")
    if settings.model is not None and option in CONFLICTS_WITH_MODEL:
        raise beside_model(option)
    check_one_head(settings, option, values)
    asked, reference = (text, context, settings, option, report), 0
    traces = list[Trace]()
    for value in values:
        traces.append(_trace(*asked, value))
        _check_size(traces[-1])  # before the others are computed
    if len(values) > 2:
        of_model = option in ("head", "layer") and traces[0].learned is not None  # it says which it shows
        reference = _default_among(option, values, settings, _trace(*asked, None) if of_model else traces[0])
    return between(option, tuple(values), tuple(traces), reference)


def compare_texts(
    texts: Two, context: str | None, settings: Settings, models: Sequence[str], report: Report = None
) -> Comparison:
    """Trace two texts with the same settings, over the same context if there is one, and compare the weights.

    With a model on disk, or with two for one text, every head is measured, and of those that the settings ask for the
    one that differs most is shown. Raises InputError for models that do not fit each other.
    """
    check_one_head(settings)
    moved, is_in_place = None, True
    if models:
        from attn_cli.teach.moved import measure_moved  # only for models on disk

        moved = measure_moved(texts, context, settings, (models[0], models[-1]))
        settings, is_in_place = moved.choose(settings), all(i == j for i, j in (*moved.queries, *moved.keys))
    if len(models) == 2:
        return replace(compare(texts[0], context, settings, "model", models, report), moved=moved)
    kind = "cross" if context is not None else settings.kind_of_text
    first, second = (trace_text(kind, text, context, settings, report) for text in texts)
    found = replace(between(TEXT, texts, (first, second)), moved=moved)
    return found if is_in_place else replace(found, changes=())


def check_one_head(settings: Settings, option: str = "", values: Values = ()) -> None:
    """Raise UsageError where all heads, or all layers, are asked for."""
    for name, hint in (("head", "Give a head's name, or mean."), ("layer", "Give a layer's number.")):
        if ALL in (getattr(settings, name), *(values if option == name else ())):
            raise UsageError(f"One {name} is compared at a time.", hint, f"--{name}")


def _check_size(trace: Trace) -> None:
    size = f"{len(trace.query_tokens):,} x {len(trace.key_tokens):,}"
    hint = "Give a shorter text, or insist with --full."
    refuse_input(trace.condensed, f"{size} weights are too many to lay side by side.", hint)


def between(
    option: str, values: tuple[Value, ...], traces: tuple[Trace, ...], reference: int = 0, swaps: Swaps = ()
) -> Comparison:
    """Compare traces; that of index `reference` is what the others differ from. InputError for too many weights."""
    for trace in traces:
        _check_size(trace)
    comparison = Comparison(option, values, traces, tuple(map(_mean_entropy, traces)), reference, (), swaps)
    others = enumerate(traces) if comparison.same_cells else ()
    changes = tuple(_change(traces[reference], trace, to) for to, trace in others if to != reference)
    return replace(comparison, changes=changes)


def _default_among(option: str, values: Values, settings: Settings, trace: Trace) -> int:
    """Return the index of the value that the option has where it is left out; 0 if it is not among them."""
    field = declared(Settings)[option]
    projections = {None: USUAL.projection, "word2vec": USUAL.projection, "random": "random"}
    # Some defaults depend on the command, the model or the vectors.
    depends = {"mask": "none", "head": trace.shown.name, "layer": str(trace.projection.layer)}
    depends["oov"] = "model" if trace.learned is not None else "zero"
    usual = depends | {"projection": projections.get(settings.embedding, "identity")}
    names = {None, usual.get(option, field.unset) if field.default is None else field.default}
    return next((n for n, value in enumerate(values) if value in names or written(value) in names), 0)


def _trace(
    text: str, context: str | None, settings: Settings, option: str, report: Report, value: Value
) -> Trace:
    chosen = getattr(Settings(), option) if value is None else value
    if option == "positions":  # implies the identity projection: both sides get it, so that one thing varies
        settings = settings_for_positions(replace(settings, positions="sinusoidal"))
    try:
        if declared(Settings)[option].is_repeated and isinstance(chosen, str):
            chosen = (chosen,)
        settings = replace(settings, **{option: chosen})  # type: ignore[arg-type]  # it is checked when it is made
        kind = "cross" if context is not None else settings.kind_of_text
        return trace_text(kind, text, context, settings, report)
    except UsageError as error:
        if error.option == "--" + option.replace("_", "-"):  # the value was given to --vary
            message = error.of_option if isinstance(error, SettingError) else error.message
            raise UsageError(message, error.hint, "--vary") from None
        raise


def _mean_entropy(trace: Trace) -> float | None:
    """Return the mean entropy in bits of the rows shown that are not fully masked (Shannon 1948); None if all are."""
    weights = trace.weights[[trace.row_in_arrays(i) for i in trace.listed]]
    weights = weights[weights.any(axis=1)]
    return max(0.0, float(bits(weights).mean())) if len(weights) else None


def _change(before: Trace, after: Trace, to: int) -> Change:
    old, new = (trace.visible_weights(trace.shown, before.listed) for trace in (before, after))
    difference = new - old
    size = np.nan_to_num(np.abs(difference))
    order = np.argsort(-size, axis=None, kind="stable")
    most = min(int(np.count_nonzero(size > SAME)), max(MOST_MOVERS, before.settings.top or 0))
    cells = [divmod(int(place), size.shape[1]) for place in order[:most]]
    hidden = [np.isnan(old), np.isnan(new)]
    seen = (np.where(np.isnan(one), -np.inf, one) for one in (old, new))
    strongest = [one >= one.max(axis=1, keepdims=True) - SAME for one in seen]
    keeps = np.logical_and(*strongest).any(axis=1)  # some key is strongest, or as strong, in both
    a, b = before.output, after.output
    movers = tuple(Mover(before.listed[i], j, float(old[i, j]), float(new[i, j])) for i, j in cells)
    changed = tuple(i for i, is_kept in zip(before.listed, keeps, strict=True) if not is_kept)
    before_only, after_only = (int((one & ~other).sum()) for one, other in (hidden, hidden[::-1]))
    largest = None if a is None or b is None or a.shape != b.shape else float(np.abs(b - a).max())
    return Change(to, difference, movers, changed, before_only, after_only, largest)
