"""The layouts in which a step may be given: heads stacked, side by side, one below the other, or their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.teach.grading.replay import SCORE_STEPS, Problem, Procedure, possible_arrays

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

MASKED_BELOW = -999.0  # a score below this, and far below all others, is a masked one such as -1e9

# From one array (heads, rows, columns); a number as a layout's name is that head alone.
_LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "stack": lambda heads: heads,
    "side": lambda heads: np.concatenate(list(heads), axis=-1),
    "below": lambda heads: np.concatenate(list(heads), axis=0),
    "mean": lambda heads: np.asarray(np.mean(heads, axis=0)),
    "sum": lambda heads: np.asarray(np.sum(heads, axis=0)),
}


def accepted_layouts(
    problem: Problem, procedure: Procedure, step: str, arrays: list[Array], target: str, digits: int | None
) -> list[list[Array]]:
    """Return a step's arrays, (heads, rows, columns) each, in every layout that is accepted, the usual one first.

    `target` is "mean", "all" or the number of the head that is asked for; `digits` are those of a student who
    rounded each head before joining them.
    """

    def laid_out(layout: str) -> list[Array]:
        heads = arrays + rounded(arrays, digits) if layout in ("mean", "sum") else arrays
        lay_out = _LAYOUTS.get(layout)
        return [array[int(layout)] if lay_out is None else lay_out(array) for array in heads]

    found = [laid_out(layout) for layout in _usual_layouts(problem, step, target)]
    if step == "output" and target == "mean":  # with W_o, some give the layer's output
        layer = possible_arrays(problem, procedure, "layer_output", {"output": arrays})
        found += [[array[0] for array in layer]] if layer else []
    if procedure.heads_apart and step in (*SCORE_STEPS, "weights", "output"):
        others = ("stack", "side", "below", *map(str, range(problem.heads)), "sum")
        found += [laid_out(layout) for layout in others]
    return found


def _usual_layouts(problem: Problem, step: str, target: str) -> tuple[str, ...]:
    if problem.heads == 1 or step == "layer_output":
        return ("0",)
    is_projected = step in ("q", "k", "v")
    if target not in ("mean", "all"):
        return (target, *(("stack", "side") if is_projected else ("stack",) if step in SCORE_STEPS else ()))
    if is_projected:
        return ("side", "stack")
    if step in SCORE_STEPS:
        return ("stack", "mean")
    if target == "mean":
        return ("mean",)
    return ("stack", "side") if step == "output" else ("stack",)


def rounded(arrays: list[Array], digits: int | None) -> list[Array]:
    """Return the step rounded as by a student who rounds each step: one array, or none."""
    return [] if digits is None or not arrays else [np.round(arrays[-1], digits)]


def fit_shape(given: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the matrix in that shape, where only axes of length one differ; None if it does not fit."""
    if given.shape == shape:
        return given
    extra = given.ndim - len(shape)
    if extra > 0 and set(given.shape[:extra]) == {1} and given.shape[extra:] == shape:
        return given.reshape(shape)
    is_line = given.ndim == 1 and 1 in shape[-2:] and given.size == int(np.prod(shape))
    return given.reshape(shape) if is_line else None


def submitted_heads(
    given: Array, step: str, arrays: list[Array], target: str, digits: int | None
) -> list[Array]:
    """Return the student's own numbers as (heads, rows, columns), to compute the next step from: one array, or none.

    Masked cells, which hold no number, get the computed one, rounded. Heads cannot be taken back out of their mean.
    """
    usual = arrays[0]
    heads = len(usual)
    alone = fit_shape(given, usual.shape[1:]) if heads == 1 or target.isdigit() else None
    if alone is not None:
        own = np.copy(usual)
        own[0 if heads == 1 else int(target)] = alone
    elif (stack := fit_shape(given, usual.shape)) is not None:
        own = stack
    elif given.shape == (usual.shape[1], heads * usual.shape[2]) and step in ("q", "k", "v"):
        own = np.stack(np.split(given, heads, axis=1))
    else:
        return []
    computed = (rounded(arrays, digits) or arrays)[-1]
    return [np.where(masked_cells(own, step, usual), computed, own)]


def masked_cells(given: Array, step: str, usual: Array) -> Bools:
    """Return which cells stand for masked: they hold no number, or a score far below all others, as -1e9."""
    if step not in SCORE_STEPS:
        return ~np.isfinite(given)
    largest = float(np.max(np.abs(usual), initial=0.0, where=np.isfinite(usual)))
    with np.errstate(invalid="ignore"):
        return ~np.isfinite(given) | (given < min(MASKED_BELOW, -100 * largest))
