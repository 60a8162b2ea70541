"""The answer key: computed from a file of inputs, or taken from a file of results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.inputs.matrices import Given, given_from
from attn_cli.inputs.record import read_record
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.settings import Settings
from attn_cli.teach.effects import GIVEN, STEPS, solve
from attn_cli.teach.replay import CORRECT, GRADED_STEPS, SCORE_STEPS, Problem, possible_arrays, problem_from
from attn_cli.teach.submission import Record, matrix_from, submission_from

LOWEST_TEMPERATURE = 1e-6


class AnswerKey(NamedTuple):
    """What an answer is compared with."""

    name: str
    problem: Problem
    target: str  # whose weights are asked for: "mean", "all", or a head's number
    head_names: tuple[str, ...]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    half_units: Mapping[str, float]  # half a unit of the last digit of each step in a file of results
    guesses: bool  # whether enough is known to look for mistakes
    notes: tuple[str, ...] = ()

    def of_head(self, name: str) -> AnswerKey:
        """Return the same key with that head's weights asked for, where there is such a head, or their mean."""
        if name != "mean" and name not in self.head_names:
            return self
        target = "mean" if name == "mean" else str(self.head_names.index(name))
        wants_mean = target == "mean" and self.problem.heads > 1
        return self._replace(target=target, problem=self.problem._replace(wants_mean=wants_mean))


def read_answer_key(path: str, settings: Settings) -> AnswerKey:
    """Read the key: computed from inputs, else the results in the file; InputError where it holds neither."""
    record, name = read_record(path, as_written=True), visible(str(path))
    topic = record.get("topic")
    if isinstance(topic, str) and topic in GIVEN:
        return _from_effects(record, topic, name)
    is_own = record.get("schema") == "attn/1"
    if is_own and not record.get("heads"):  # made without --steps: its weights and output are correct results
        labels = {"tokens": record.get("query_tokens"), "context_tokens": record.get("key_tokens")}
        return _from_results(record, given_from({**labels, "mask": record.get("mask")}, name), settings)
    given = _given_from_trace(record, name) if is_own else given_from(record, name)
    from_scores = given.scores is not None and not {"weights", "output"} & record.keys()
    if given.get("X") is None and any(given.get(letter) is None for letter in "QKV") and not from_scores:
        return _from_results(record, given, settings)
    return _from_trace(record, given, settings) if is_own else _from_inputs(given, settings)


def _from_effects(record: Record, topic: str, name: str) -> AnswerKey:
    """Compute the steps of an exercise on norms, or on the parts of a logit."""
    given = {letter: matrix_from(record.get(letter), f"{name}: {letter}").values for letter in GIVEN[topic]}
    try:
        with np.errstate(all="ignore"):  # numbers too large are refused below
            problem = solve(topic, given)
        bad = not all(step.ndim == 3 and np.isfinite(step).all() for step in problem.steps.values())
    except (ValueError, IndexError):
        bad = True
    if bad:
        raise InputError(f"{name}: {', '.join(given)} do not fit together.", "Are all of the sheet's sizes?")
    count, words = problem.steps[STEPS[topic][-1]].shape[-1], record.get("words")
    tokens = tuple(map(str, words if isinstance(words, list) and len(words) == count else range(count)))
    return AnswerKey(name, problem, "mean", ("0",), tokens, tokens, {}, True)


def _from_trace(record: Record, given: Given, settings: Settings) -> AnswerKey:
    """Compute all steps of attn's own JSON, under its temperature, with the names of its heads."""
    if settings.temperature == 1:
        value, least = record.get("temperature", 1.0), LOWEST_TEMPERATURE
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1 / least:
            raise InputError(f"{given.name}: temperature should be a number from {least:g} up.")
        settings = replace(settings, temperature=float(value))
        given = given._replace(ignored=())  # the temperature was all that is ignored in attn's own JSON
    heads, shown, asked = record.get("heads"), record.get("head"), settings.head
    parts = heads if isinstance(heads, list) else []
    names = tuple(str(head.get("name")) for head in parts if isinstance(head, dict))
    if asked in names:
        settings = replace(settings, head=str(names.index(asked)))
    key = _from_inputs(given, settings)
    if len(names) == len(key.head_names):
        key = key._replace(head_names=names)
    return key.of_head(shown) if isinstance(shown, str) and asked is None else key


def _given_from_trace(record: Record, name: str) -> Given:
    """Take attn's own JSON, from X on where possible, so that a transposed W can be recognized."""
    is_cross = record.get("x_key") is not None and record.get("x_key") != record.get("x_query")
    inputs = {"X": record.get("x_query"), "context": record.get("x_key") if is_cross else None}
    given = given_from({**record, **inputs}, name)
    has_W = all(given.get(W) is not None for W in ("W_q", "W_k", "W_v"))
    left_out: tuple[str, ...] = ("X", "context")
    if given.get("X") is not None and has_W and record.get("query_rows") is None:
        left_out = ("Q", "K", "V")
    arrays = {key: array for key, array in given.arrays.items() if key not in left_out}
    inner = 1 if given.layout == "out-in" else 0
    if has_W and "W_o" in arrays and arrays["W_o"].shape[inner] != arrays["W_v"].shape[1 - inner]:
        del arrays["W_o"]  # it joins more heads than the file holds
        arrays.pop("b_o", None)
    return given._replace(arrays=arrays)


def _from_inputs(given: Given, settings: Settings) -> AnswerKey:
    """Compute all steps of all heads."""
    settings = replace(settings, full=True)
    target = settings.head or "mean"
    if target not in ("mean", "all"):
        named = trace_matrices("check", given, settings)  # refuses a head that does not exist
        target = str(named.head_names.index(named.shown.name))
    trace = trace_matrices("check", given, replace(settings, head="mean"))
    problem = problem_from(trace, target == "mean")
    if given.scores is not None:  # what came before them is not known
        unknown = SCORE_STEPS[: SCORE_STEPS.index(given.scores.name)]
        steps = {name: step for name, step in problem.steps.items() if name not in unknown}
        problem = problem._replace(steps=steps)
    tokens = (trace.query_tokens, trace.key_tokens)
    return AnswerKey(given.name, problem, target, trace.head_names, *tokens, {}, True, trace.notes)


def _from_results(record: Record, given: Given, settings: Settings) -> AnswerKey:
    """Take the results of a file without inputs; mistakes are looked for as far as the results explain each other."""
    if settings.head is not None:
        said = f"{given.name} holds results alone, and not by heads."
        raise UsageError(said, "Leave out --head.", option="--head")
    has_heads = isinstance(record.get("heads"), list)
    if not has_heads and not record.keys() & {*GRADED_STEPS, *"QKV"}:
        hint = "Give Q, K and V, or X with W_q, W_k and W_v, or right results such as weights."
        raise InputError(f"{given.name} holds nothing to compare with.", hint)
    results = submission_from(record, given.name).steps
    steps = {step: _checked(step, matrix.values, given.name) for step, matrix in results.items()}
    half_units = {step: matrix.half_unit for step, matrix in results.items()}
    # A trace of zeros: its mask and its labels are checked as in any trace.
    n_q, n_k = _sizes(steps)
    zeros: dict[str, Array] = {name: np.zeros((n, 1)) for name, n in (("Q", n_q), ("K", n_k), ("V", n_k))}
    plain = Given(given.name, zeros, given.tokens, given.context_tokens, mask=given.mask)
    labels = trace_matrices("check", plain, replace(settings, heads=None, full=True))
    scale, sqrt_d_k = _scale(steps, settings.temperature)
    problem = Problem(steps, mask=labels.mask, scale=scale, sqrt_d_k=sqrt_d_k)
    guesses = problem.heads == 1 and _explain_each_other(problem, half_units)
    idle = [name for name in ("score", "heads", "layout", "round") if getattr(settings, name) is not None]
    which = "not every mistake" if guesses else "no mistake"
    notes = [f"{given.name} holds results alone: without the inputs {which} can be identified."]
    notes += [f"--{option} has an effect only with inputs." for option in idle]
    target, names = "all" if problem.heads > 1 else "mean", tuple(map(str, range(problem.heads)))
    tokens = (labels.query_tokens, labels.key_tokens)
    return AnswerKey(given.name, problem, target, names, *tokens, half_units, guesses, tuple(notes))


def _checked(step: str, values: Array, name: str) -> Array:
    """Return a step as (heads, rows, columns); only a masked score may be blank, and becomes -inf."""
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise InputError(f"{name}: {step} has shape {values.shape}; it should have rows and columns.")
    bad = ~np.isfinite(values)
    if bad.any() and step not in SCORE_STEPS:  # a score of +inf was refused where it was read
        place = tuple(int(n) for n in np.argwhere(bad)[0])
        raise InputError(f"{name}: {step} holds a number that is not finite, at {place}.")
    heads = values if values.ndim == 3 else values[np.newaxis]
    return np.where(np.isfinite(heads), heads, -np.inf)


def _sizes(steps: Mapping[str, Array]) -> tuple[int, int]:
    """Return how many queries and keys there are, as far as the results show."""
    for step in ("weights", *SCORE_STEPS):
        if step in steps:
            return steps[step].shape[1], steps[step].shape[2]
    n_q = next((steps[step].shape[1] for step in ("q", "output", "layer_output") if step in steps), 1)
    return n_q, next((steps[step].shape[1] for step in ("k", "v") if step in steps), n_q)


def _scale(steps: Mapping[str, Array], temperature: float) -> tuple[float | None, float | None]:
    """Return the scale by least squares, and sqrt(d_k), where rounding alone hides a whole d_k: then both are exact."""
    scores, scaled = steps.get("scores"), steps.get("scaled_scores")
    if scores is None or scaled is None or scores.shape != scaled.shape:
        return None, None
    both = np.isfinite(scores) & np.isfinite(scaled)
    square = float((scores[both] ** 2).sum())
    scale = float((scores[both] * scaled[both]).sum()) / square if square else 0.0
    if scale <= 0:
        return None, None
    d_k = round(1 / (scale * temperature) ** 2)
    if d_k > 1 and abs(scale * temperature * d_k**0.5 - 1) < 0.02:
        return 1 / (d_k**0.5 * temperature), d_k**0.5
    return scale, None


def _explain_each_other(problem: Problem, half_units: Mapping[str, float]) -> bool:
    """Tell whether some result follows from the others and none contradicts them; else no mistake can be looked for."""
    followed = False
    known: dict[str, list[Array]] = {}
    for step in GRADED_STEPS:
        known[step] = possible_arrays(problem, CORRECT, step, known)
        given = problem.steps.get(step)
        if given is None or not known[step] or known[step][0] is given:
            continue
        computed, known[step] = known[step][0], [given]
        followed = True
        if computed.shape != given.shape:
            return False
        masked = np.isneginf(computed) | np.isneginf(given)
        apart = np.abs(np.where(masked, 0, computed) - np.where(masked, 0, given))
        if (apart > 0.001 + 2 * half_units[step]).any():
            return False
    return followed
