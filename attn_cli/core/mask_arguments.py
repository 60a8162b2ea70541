"""The arguments of `attend` that say who attends to whom, checked: masks, lengths and biases that fit the shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.core.mask_rules import rule_named
from attn_cli.core.masks import AnyMask, Mask, joined, named
from attn_cli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from attn_cli.io.array_types import Array, Ints

    MaskLike = ArrayLike | str | Sequence[Any]  # an array, the name of a rule, or several of both
    MaskAt = Callable[
        [tuple[int, ...], int], Mask | None
    ]  # by a head's leading axes and how many keys are real


def read_mask(
    mask: MaskLike | None, shape: tuple[int, ...], lengths: Ints | None = None
) -> Callable[[tuple[int, ...]], AnyMask | None]:
    """Return what gives the mask of one head of `shape`, by its place among the leading axes.

    A list or tuple in which a name stands is several masks, all of which must allow; any other is an array. With
    `lengths`, of the first leading axes, the keys from there on are hidden, and a rule counts the keys before alone.
    """
    *_, n_q, n_k = shape
    parts: list[Any] = [] if mask is None else [mask]
    if isinstance(mask, (list, tuple)) and any(isinstance(part, str) for part in mask):
        parts = list(mask)
    made = [_rule(part, n_q) if isinstance(part, str) else _array(part, shape) for part in parts]

    def mask_at(at: tuple[int, ...]) -> AnyMask | None:
        real = n_k if lengths is None else int(lengths[at[: lengths.ndim]])
        found = [one(at, real) for one in made]
        if real < n_k:
            found.append(Mask("none", n_q, n_k, padding=range(real, n_k)))
        return joined([mask for mask in found if mask is not None])

    return mask_at


def read_lengths(lengths: ArrayLike, shape: tuple[int, ...]) -> Ints:
    """Return how many keys are real, by the first leading axes of `shape`."""
    *lead, _, n_k = shape
    try:
        array = np.asarray(lengths)
    except ValueError:
        array = np.empty(0)
    if array.dtype.kind not in "iu":
        raise InputError(f"lengths cannot be {lengths!r}.", "Give whole numbers, how many keys are real.")
    first = tuple(lead[: array.ndim])
    if array.ndim > len(lead) or not stretches(array.shape, first):
        raise InputError(
            f"lengths has shape {array.shape}, but the leading axes are {tuple(lead)}.",
            "Give one number for each item of the batch, the first axis.",
        )
    if array.min() < 0 or array.max() > n_k:
        wrong = array.min() if array.min() < 0 else array.max()
        raise InputError(f"lengths cannot hold {wrong}: there are {n_k} keys.")
    return np.broadcast_to(array, first).astype(np.intp)


def _rule(name: str, n_q: int) -> MaskAt:
    rule_named(name)
    return lambda at, real: named(name, n_q, real)


def _array(mask: ArrayLike, shape: tuple[int, ...]) -> MaskAt:
    *lead, n_q, n_k = shape
    try:
        array = np.asarray(mask)
    except ValueError:
        raise InputError(
            "The mask is not a matrix: its rows differ in length.",
            "Several masks at once are joined by &, or listed with the name of a rule.",
        ) from None
    if array.dtype != np.bool_:
        raise InputError(
            f"The mask must be boolean, True = may attend; this one holds {array.dtype}.",
            "Numbers that are added to the scores go into `bias`.",
        )
    if array.ndim < 2 or not stretches(array.shape, shape):
        raise InputError(
            f"The mask has shape {array.shape}, but there are {n_q} queries and {n_k} keys"
            + (f" of {tuple(lead)} heads." if lead else "."),
            f"Its last axes are ({n_q}, {n_k}), (1, {n_k}) to hide keys or ({n_q}, 1) to hide queries; leading "
            "axes are those of Q, or 1.",
        )
    whole = np.broadcast_to(array, (*lead, n_q, n_k))
    return lambda at, real: Mask("given", n_q, n_k, whole[at])


def read_bias(bias: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the bias stretched to `shape`, (..., n_q, n_k)."""
    *_, n_q, n_k = shape
    try:
        with np.errstate(over="ignore"):  # what overflows float32 is an infinity: -1e300 masks
            array = np.asarray(bias, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        hint = "Of a tensor of PyTorch, give bias.detach().float().cpu()."
        raise InputError(
            "The bias must be a matrix of numbers.", hint if hasattr(bias, "detach") else ""
        ) from None
    if not stretches(array.shape, shape):
        raise InputError(
            f"The bias has shape {array.shape}, but there are {n_q} queries and {n_k} keys.",
            f"Its last axes are ({n_q}, {n_k}), (1, {n_k}) for keys or ({n_q}, 1) for queries; leading axes are "
            "those of Q, or 1.",
        )
    return np.broadcast_to(array, shape)


def broadcasts(*shapes: tuple[int, ...]) -> bool:
    """Tell whether arrays of these shapes fit each other."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def stretches(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether an array of the given shape can serve as one of `shape`."""
    return broadcasts(given, shape) and np.broadcast_shapes(given, shape) == shape
