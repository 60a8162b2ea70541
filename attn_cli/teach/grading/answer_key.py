"""The right answer, from a file of inputs, which are computed with, or from a file of results, which are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.matrices import Given, given_from, read_record
from attn_cli.io.escape import visible
from attn_cli.pipeline.from_matrices import trace_matrices
from attn_cli.teach.grading.replay import RIGHT, STEPS, Problem, problem_of, values
from attn_cli.teach.grading.submission import handed_from

if TYPE_CHECKING:
    from pathlib import Path

    from attn_cli.io.array_types import Array
    from attn_cli.settings.settings import Settings
    from attn_cli.trace.trace import Trace

LEAST = 1e-6  # temperature
MASKED = ("scores", "scaled_scores", "masked_scores")  # steps that may hold null, where masked


class Right(NamedTuple):
    """The right answer to compare with; `half_units` says how finely a file of results was written."""

    name: str
    problem: Problem
    target: str  # whose weights are asked for: "mean", "all", or a head's number
    head_names: tuple[str, ...]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    half_units: Mapping[str, float]
    guesses: bool  # whether enough is known to look for mistakes
    notes: tuple[str, ...] = ()

    def of_head(self, name: str | None) -> Right:
        """Return the same, with that head's weights asked for, where there is such a head."""
        if name == "mean":
            return self._aimed("mean")
        return self if name not in self.head_names else self._aimed(str(self.head_names.index(name)))

    def _aimed(self, target: str) -> Right:
        averaged = target == "mean" and self.problem.heads > 1
        return self._replace(target=target, problem=self.problem._replace(averaged=averaged))


def read_right(path: str | Path, settings: Settings) -> Right:
    """Read the file that holds the right answer: what can be computed with, or results alone.

    Raises InputError where it holds neither.
    """
    record = read_record(path, as_written=True)
    name = visible(str(path))
    own = record.get("schema") == "attn/1"
    if own and not record.get("heads"):  # made without --steps: its weights and output are right results
        labels = {"tokens": record.get("query_tokens"), "context_tokens": record.get("key_tokens")}
        return _results(record, given_from({**labels, "mask": record.get("mask")}, name), settings)
    given = _from_x(record, name) if own else given_from(record, name)
    if given.get("X") is None and any(given.get(letter) is None for letter in "QKV"):
        return _results(record, given, settings)
    if own and settings.temperature == 1:
        settings = replace(settings, temperature=_temperature(record, name))
        given = given._replace(ignored=())  # attn ignores nothing else of its own
    names = _head_names(record) if own else ()
    if settings.head in names:
        settings = replace(settings, head=str(names.index(settings.head)))
    right = _computed(given, settings)
    if len(names) == len(right.head_names):
        right = right._replace(head_names=names)
    head = record.get("head") if own and settings.head is None else None
    return right.of_head(head) if isinstance(head, str) else right


def _head_names(record: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names that the heads have in attn's own JSON."""
    heads = record.get("heads")
    parts = heads if isinstance(heads, list) else []
    return tuple(str(head.get("name")) for head in parts if isinstance(head, dict))


def _from_x(record: Mapping[str, object], name: str) -> Given:
    """Take attn's own JSON, from X on where it can be done: then a transposed W can be told."""
    is_cross = record.get("x_key") is not None and record.get("x_key") != record.get("x_query")
    begun = {"X": record.get("x_query"), "context": record.get("x_key") if is_cross else None}
    given = given_from({**record, **begun}, name)
    starts: tuple[str, ...] = ("X", "context")
    with_w = all(given.get(W) is not None for W in ("W_q", "W_k", "W_v"))
    if with_w and given.get("X") is not None and record.get("query_rows") is None:
        starts = ("Q", "K", "V")
    arrays = {key: array for key, array in given.arrays.items() if key not in starts}
    inner = 1 if given.layout == "out-in" else 0
    if with_w and "W_o" in arrays and arrays["W_o"].shape[inner] != arrays["W_v"].shape[1 - inner]:
        del arrays["W_o"]  # joins more heads than are there
        arrays.pop("b_o", None)
    return given._replace(arrays=arrays)


def _temperature(record: Mapping[str, object], name: str) -> float:
    value = record.get("temperature", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not LEAST <= value <= 1 / LEAST:
        raise InputError(f"{name}: temperature should be a number from {LEAST:g} up.")
    return float(value)


def _computed(given: Given, settings: Settings) -> Right:
    """Compute all steps of all heads."""
    settings = replace(settings, full=True, query=None, top=None)
    target = settings.head or "mean"
    if target not in ("mean", "all"):
        named = trace_matrices("check", given, settings)  # refuses a head that is not there
        target = str(named.head_names.index(named.shown.name))
    trace = trace_matrices("check", given, replace(settings, head="mean"))
    problem = problem_of(trace, target == "mean")
    return Right(
        given.name,
        problem,
        target,
        trace.head_names,
        trace.query_tokens,
        trace.key_tokens,
        {},
        True,
        trace.notes,
    )


def _results(record: Mapping[str, object], given: Given, settings: Settings) -> Right:
    """Take the results of a file without inputs; mistakes can be guessed as far as they explain each other."""
    if settings.head is not None:
        raise UsageError(
            f"{given.name} holds results alone, and not by heads.", "Leave out --head.", option="--head"
        )
    if not any(name in record for name in (*STEPS, *"QKV")) and not isinstance(record.get("heads"), list):
        raise InputError(
            f"{given.name} holds nothing to compare with.",
            "Give Q, K and V, or X with W_q, W_k and W_v, or right results such as weights.",
        )
    handed = handed_from(record, given.name)
    right = {}
    for step, matrix in handed.steps.items():
        right[step] = _sound(step, matrix.values, given.name)
    n_q, n_k = _shape(right)
    labels = _labelled(given, n_q, n_k, settings)
    problem = Problem(right, mask=labels.mask, factor=_factor(right))
    if problem.factor is not None:
        factor, root = _divided(problem.factor, settings.temperature)
        problem = problem._replace(factor=factor, root=root)
    half_units = {step: handed.steps[step].half_unit for step in right}
    guesses = problem.heads == 1 and _explained(problem, half_units)
    return Right(
        given.name,
        problem,
        "all" if problem.heads > 1 else "mean",
        tuple(map(str, range(problem.heads))),
        labels.query_tokens,
        labels.key_tokens,
        half_units,
        guesses,
        _notes(given.name, settings, guesses),
    )


def _notes(name: str, settings: Settings, guesses: bool) -> tuple[str, ...]:
    """Return what is to be known of results: what they cannot tell, and each option that changes nothing."""
    idle = [
        option for option in ("score", "heads", "layout", "round") if getattr(settings, option) is not None
    ]
    much = "not every mistake" if guesses else "no mistake"
    return (
        f"{name} holds results alone: without the inputs {much} can be told.",
        *(f"--{option} counts only with inputs." for option in idle),
    )


def _sound(step: str, values: Array, name: str) -> Array:
    """Return a step with an axis of heads; only a masked score may be no number."""
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise InputError(f"{name}: {step} has shape {values.shape}; it should have rows and columns.")
    bad = ~np.isfinite(values)
    if bad.any() and not (step in MASKED and not np.isposinf(values).any()):
        place = tuple(int(n) for n in np.argwhere(bad)[0])
        raise InputError(f"{name}: {step} holds a number that is not finite, at {place}.")
    whole = values if values.ndim == 3 else values[np.newaxis]
    return np.where(np.isfinite(whole), whole, -np.inf)


def _shape(right: Mapping[str, Array]) -> tuple[int, int]:
    """Return how many queries and keys there are, as far as the results tell."""
    for step in ("weights", *MASKED):
        if step in right:
            return right[step].shape[1], right[step].shape[2]
    n_q = next((right[step].shape[1] for step in ("q", "output", "layer_output") if step in right), 1)
    return n_q, next((right[step].shape[1] for step in ("k", "v") if step in right), n_q)


def _labelled(given: Given, n_q: int, n_k: int, settings: Settings) -> Trace:
    """Return a trace of zeros: it has the mask and the labels, made and checked as always."""
    zeros: dict[str, Array] = {"Q": np.zeros((n_q, 1)), "K": np.zeros((n_k, 1)), "V": np.zeros((n_k, 1))}
    plain = Given(given.name, zeros, given.tokens, given.context_tokens, mask=given.mask)
    return trace_matrices("check", plain, replace(settings, heads=None, full=True))


def _factor(right: Mapping[str, Array]) -> float | None:
    """Return what the scores were multiplied by to become the scaled scores, where both are given."""
    if "scores" not in right or "scaled_scores" not in right:
        return None
    scores, scaled = right["scores"], right["scaled_scores"]
    if scores.shape != scaled.shape:
        return None
    both = np.isfinite(scores) & np.isfinite(scaled)
    length = float((scores[both] ** 2).sum())
    factor = float((scores[both] * scaled[both]).sum()) / length if length else 0.0
    return factor if factor > 0 else None


def _divided(factor: float, temperature: float) -> tuple[float, float | None]:
    """Return the factor, and the root of d_k in it: that of a whole number, where rounding alone is between."""
    d_k = round(1 / (factor * temperature) ** 2)
    if d_k > 1 and abs(factor * temperature * d_k**0.5 - 1) < 0.02:
        return 1 / (d_k**0.5 * temperature), d_k**0.5
    return factor, None


def _explained(problem: Problem, half_units: Mapping[str, float]) -> bool:
    """Tell whether a result follows from others, and none contradicts them: else no mistake can be looked for."""
    followed = False
    known: dict[str, list[Array]] = {}
    for step in STEPS:
        known[step] = values(problem, RIGHT, step, known)
        right = problem.right.get(step)
        if right is None or not known[step] or known[step][0] is right:
            continue
        made, known[step] = known[step][0], [right]
        followed = True
        if made.shape != right.shape:
            return False
        shut = np.isneginf(made) | np.isneginf(right)
        apart = np.abs(np.where(shut, 0, made) - np.where(shut, 0, right))
        if (apart > 0.001 + 2 * half_units[step]).any():
            return False
    return followed
