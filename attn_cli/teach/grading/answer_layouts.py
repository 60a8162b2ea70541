"""The forms in which a step may be handed in: heads side by side, one above the other, or their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.teach.grading.replay import SCORES, Plan, Problem, values

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

MASKED_BELOW = -999.0  # a score below it, and far below all others, is what -1e9 leaves: masked


class Form(NamedTuple):
    """A way to write a step down, and what it may be then: one array for each way to come to it."""

    name: str  # one, stack, side, below, mean, sum, head, layer
    arrays: list[Array]


def forms(
    problem: Problem,
    plan: Plan,
    step: str,
    known: Mapping[str, list[Array]],
    target: str,
    digits: int | None,
) -> list[Form]:
    """Return the forms in which a step is right under a plan, the usual one first."""
    arrays = known[step]
    mixed = arrays + rounded(arrays, digits)  # heads that were rounded before they were put together
    if problem.heads == 1 or step == "layer_output":
        found = [Form("one", [array[0] for array in arrays])]
    elif target not in ("mean", "all"):
        more = ("stack", "side") if step in ("q", "k", "v") else ("stack",) if step in SCORES else ()
        found = [_form(name, arrays) for name in (target, *more)]
    elif step in ("q", "k", "v"):
        found = [_form("side", arrays), _form("stack", arrays)]
    elif step in SCORES:
        found = [_form("stack", arrays), _form("mean", mixed)]
    elif target == "all":
        found = [_form(name, arrays) for name in (("stack", "side") if step == "output" else ("stack",))]
    else:
        found = [_form("mean", mixed)]
    if step == "output" and target == "mean":  # with W_o, the layer's output is meant by some
        layers = values(problem, plan, "layer_output", {"output": arrays})
        found += [Form("layer", [array[0] for array in layers])] if layers else []
    if plan.apart and step in (*SCORES, "weights", "output"):
        ways = ("stack", "side", "below", *map(str, range(problem.heads)))
        found += [_form(name, arrays) for name in ways]
        found.append(_form("sum", mixed))
    return found


def _form(name: str, arrays: list[Array]) -> Form:
    """Write each array (heads, rows, columns) down in a form; a number is that head alone."""
    if name == "stack":
        return Form(name, arrays)
    if name == "side":
        return Form(name, [np.concatenate(list(array), axis=-1) for array in arrays])
    if name == "below":
        return Form(name, [np.concatenate(list(array), axis=0) for array in arrays])
    if name == "mean":
        return Form(name, [np.mean(array, axis=0) for array in arrays])
    if name == "sum":
        return Form(name, [np.sum(array, axis=0) for array in arrays])
    return Form("head", [array[int(name)] for array in arrays])


def rounded(arrays: list[Array], digits: int | None) -> list[Array]:
    """Return a step that was not given as somebody has it who rounds every step: one array, or none."""
    return [] if digits is None or not arrays else [np.round(arrays[-1], digits)]


def shaped(given: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the matrix in that shape, if only axes of one are between; None if not."""
    if given.shape == shape:
        return given
    without_batch = given.reshape(given.shape[-len(shape) :]) if _has_batch(given, len(shape)) else given
    if without_batch.shape == shape:
        return without_batch
    is_line = given.ndim == 1 and 1 in shape[-2:] and given.size == int(np.prod(shape))
    return given.reshape(shape) if is_line else None


def _has_batch(given: Array, axes: int) -> bool:
    return given.ndim > axes and set(given.shape[: given.ndim - axes]) == {1}


def own(given: Array, step: str, arrays: list[Array], target: str, digits: int | None) -> list[Array]:
    """Return somebody's own numbers with an axis of heads, to go on from: one array, or none.

    Masked cells, which hold no number, hold the computed ones, rounded. The mean of heads leads nowhere.
    """
    usual = arrays[0]
    heads = len(usual)
    alone = shaped(given, usual.shape[1:]) if heads == 1 or target.isdigit() else None
    if alone is not None:
        whole = np.copy(usual)
        whole[0 if heads == 1 else int(target)] = alone
    elif (stack := shaped(given, usual.shape)) is not None:
        whole = stack
    elif given.shape == (usual.shape[1], heads * usual.shape[2]) and step in ("q", "k", "v"):
        whole = np.stack(np.split(given, heads, axis=1))
    else:
        return []
    behind = (rounded(arrays, digits) or arrays)[-1]
    return [np.where(blank(whole, step, usual), behind, whole)]


def blank(given: Array, step: str, usual: Array) -> Bools:
    """Return which cells hold no number, or in scores one as far below all others as -1e9, that says: masked."""
    if step not in SCORES:
        return ~np.isfinite(given)
    largest = float(np.max(np.abs(usual), initial=0.0, where=np.isfinite(usual)))
    with np.errstate(invalid="ignore"):
        return ~np.isfinite(given) | (given < min(MASKED_BELOW, -100 * largest))
