"""The same text under two or three values of one option: every trace, and what changed between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, SettingError, UsageError
from attn_cli.pipeline.embed import settings_for_positions
from attn_cli.pipeline.from_text import trace_text
from attn_cli.settings.settings import SHOWN_ONLY, Settings
from attn_cli.trace.diagnostics import entropy as bits
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.core.fast import Report
    from attn_cli.io.array_types import Array

SAME = 1e-12  # two weights that differ by less are one
MOST_MOVERS = 100  # that are kept, unless --top asks for more
VARIED = tuple(field.name for field in fields(Settings) if field.name not in SHOWN_ONLY)

Value = str | float | bool | None  # None is the default


class Mover(NamedTuple):
    """A link whose weight changed: the places of its query and key, and the weight before and after."""

    query: int
    key: int
    before: float
    after: float


class Change(NamedTuple):
    """What changed from the first value to another one, over the rows shown; links masked in either are left out."""

    to: int  # the other value's place
    difference: Array  # (rows shown, n_k), after - before; NaN where masked in either
    movers: tuple[Mover, ...]  # the largest, the largest first; only what moved by more than SAME
    turned: tuple[int, ...]  # queries whose strongest key is another one now
    only_before: int  # how many links are masked before alone
    only_after: int
    output: float | None  # the largest change of an output number; None where the outputs differ in shape


@dataclass(frozen=True, eq=False)
class Comparison:
    """One trace for each value of one option; `changes` is empty where the tokens differ."""

    option: str  # a field of Settings
    values: tuple[Value, ...]
    traces: tuple[Trace, ...]
    entropy: tuple[float | None, ...]  # bits, the mean over the rows shown; None if all are fully masked
    changes: tuple[Change, ...]  # from the first value to each other one

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as they are typed."""
        return tuple(written(value) for value in self.values)

    @property
    def same_tokens(self) -> bool:
        """Whether all sides have the same tokens, so that cells can be compared one by one."""
        first = self.traces[0]
        return all(
            (trace.query_tokens, trace.key_tokens) == (first.query_tokens, first.key_tokens)
            for trace in self.traces
        )


def written(value: Value) -> str:
    """Return a value as it is typed.

    >>> written(0.5), written(2.0), written(True), written(None)
    ('0.5', '2', 'yes', 'default')
    """
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def compare(
    text: str,
    context: str | None,
    settings: Settings,
    option: str,
    values: Sequence[Value],
    report: Report | None = None,
) -> Comparison:
    """Trace a text once for each value of the option, a field of Settings, and compare the weights.

    With a context it is cross-attention. Raises UsageError for an option that changes no number or a value that
    it does not take, and InputError where there are too many weights to lay side by side.
    """
    if option not in VARIED:
        raise UsageError(f"--vary cannot vary {option!r}.", f"Choose one of {', '.join(VARIED)}.", "--vary")
    if settings.head == "all" or (option == "head" and "all" in values):
        raise UsageError("One head is compared at a time.", "Give a head's name, or mean.", "--head")
    traces: list[Trace] = []
    for value in values:
        trace = _traced(text, context, settings, option, value, report)
        traces.append(trace)
        if trace.condensed:
            raise InputError(
                f"{len(trace.query_tokens):,} x {len(trace.key_tokens):,} weights are too many to lay side by side.",
                "Give a shorter text, or insist with --full.",
            )
    comparison = Comparison(option, tuple(values), tuple(traces), tuple(map(mean_entropy, traces)), ())
    if not comparison.same_tokens:
        return comparison
    changes = tuple(_change(traces[0], trace, to) for to, trace in enumerate(traces[1:], 1))
    return replace(comparison, changes=changes)


def _traced(
    text: str, context: str | None, settings: Settings, option: str, value: Value, report: Report | None
) -> Trace:
    chosen = getattr(Settings(), option) if value is None else value
    if (
        option == "positions"
    ):  # which bring the identity with them: both sides have it, so that one thing varies
        settings = settings_for_positions(replace(settings, positions="sinusoidal"))
    try:
        settings = replace(settings, **{option: chosen})  # type: ignore[arg-type]  # it is checked when it is made
        is_masked = (settings.mask or "none") != "none"
        kind = "cross" if context is not None else "masked" if is_masked else "self"
        return trace_text(kind, text, context, settings, report)
    except UsageError as error:
        if error.option == "--" + option.replace("_", "-"):  # the value was given to --vary
            message = error.of_option if isinstance(error, SettingError) else error.message
            raise UsageError(message, error.hint, "--vary") from None
        raise


def mean_entropy(trace: Trace) -> float | None:
    """Return the mean entropy in bits of the rows shown (Shannon 1948): 0 is one key, log2 n all n alike.

    A fully masked row has no distribution, and so does not count; None if no row is left.
    """
    weights = trace.weights[[trace.held(i) for i in trace.listed]]
    weights = weights[weights.any(axis=1)]
    if not len(weights):
        return None
    return max(0.0, float(bits(weights).mean()))


def _change(before: Trace, after: Trace, to: int) -> Change:
    rows = [before.held(i) for i in before.listed]
    old, new = (_visible_weights(trace, rows) for trace in (before, after))
    difference = new - old
    size = np.nan_to_num(np.abs(difference))
    order = np.argsort(-size, axis=None, kind="stable")
    most = min(int(np.count_nonzero(size > SAME)), max(MOST_MOVERS, before.settings.top or 0))
    cells = [divmod(int(place), size.shape[1]) for place in order[:most]]
    movers = tuple(Mover(before.listed[i], j, float(old[i, j]), float(new[i, j])) for i, j in cells)
    hidden_before, hidden_after = np.isnan(old), np.isnan(new)
    return Change(
        to,
        difference,
        movers,
        tuple(i for at, i in enumerate(before.listed) if _turned(old[at], new[at])),
        int((hidden_before & ~hidden_after).sum()),
        int((hidden_after & ~hidden_before).sum()),
        _largest_change(before.output, after.output),
    )


def _largest_change(old: Array | None, new: Array | None) -> float | None:
    if old is None or new is None or old.shape != new.shape:
        return None
    return float(np.abs(new - old).max())


def _visible_weights(trace: Trace, rows: list[int]) -> Array:
    """Return the rows' weights, (rows, n_k), NaN where masked: masked is not zero, and has no difference."""
    weights = trace.weights[rows]
    return weights if trace.mask is None else np.where(trace.mask[rows], weights, np.nan)


def _turned(old: Array, new: Array) -> bool:
    """Tell whether a query's strongest key is another one: no key is strongest, or as strong, in both."""
    if np.isnan(old).all() or np.isnan(new).all():
        return False
    strongest = (old >= np.nanmax(old) - SAME) & (new >= np.nanmax(new) - SAME)
    return not strongest.any()
