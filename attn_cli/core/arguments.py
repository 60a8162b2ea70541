"""The arguments of `attend`, checked: matrices, masks and biases that fit each other."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.core.masks import Mask, named
from attn_cli.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from attn_cli.io.array_types import Array


def read_scale(scale: object) -> float | None:
    """Return the scale as a number; None stands for 1/sqrt(d_k)."""
    if scale is None:
        return None
    try:
        if isinstance(scale, (str, bytes)):
            raise TypeError
        return float(scale)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"scale cannot be {scale!r}.", "Give a number, or None for 1/sqrt(d_k).") from None


def read_count(value: object, name: str) -> int:
    """Return a whole number of at least 1."""
    try:
        if (found := index(value)) >= 1:  # type: ignore[arg-type]
            return found
    except TypeError:
        pass
    raise InputError(f"{name} cannot be {value!r}.", "Give a whole number, 1 or more.")


def read_threads(threads: object) -> int | None:
    """Return the most threads to use; None stands for one a processor."""
    return None if threads is None else read_count(threads, "threads")


def read_matrices(*given: ArrayLike) -> tuple[Array, Array, Array]:
    """Return Q, K and V as arrays of one floating dtype, whose shapes fit each other."""
    Q, K, V = (_numbers(M, name) for name, M in zip("QKV", given, strict=True))
    check_fit(Q, K, V)
    for (one, M), (other, N) in ((("Q", Q), ("K", K)), (("K", K), ("V", V)), (("Q", Q), ("V", V))):
        if not _broadcasts(M.shape[:-2], N.shape[:-2]):
            raise InputError(
                f"{one} has shape {M.shape} and {other} {N.shape}: their leading axes do not fit."
            )
    dtype = np.result_type(Q, K, V)
    if dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return Q.astype(dtype, copy=False), K.astype(dtype, copy=False), V.astype(dtype, copy=False)


def check_fit(Q: Array, K: Array, V: Array) -> None:
    """Raise InputError unless queries and keys have equally many columns, and keys and values equally many rows."""
    if Q.shape[-1] != K.shape[-1]:
        raise InputError(
            f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns."
        )
    if K.shape[-2] != V.shape[-2]:
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")


def read_mask(
    mask: ArrayLike | str | None, shape: tuple[int, ...]
) -> Callable[[tuple[int, ...]], Mask | None]:
    """Return what gives the mask of one head of `shape`, by its place among the leading axes."""
    *lead, n_q, n_k = shape
    if mask is None:
        return lambda at: None
    if isinstance(mask, str):
        rule = named(mask, n_q, n_k)
        return lambda at: rule
    try:
        array = np.asarray(mask)
    except ValueError:
        raise InputError("The mask is not a matrix: its rows differ in length.") from None
    if array.dtype != np.bool_:
        raise InputError(
            f"The mask must be boolean, True = may attend; this one holds {array.dtype}.",
            "Numbers that are added to the scores go into `bias`.",
        )
    if array.shape[-2:] != (n_q, n_k) or not _stretches(array.shape, shape):
        raise InputError(f"The mask has shape {array.shape}, but there are {n_q} queries and {n_k} keys.")
    whole = np.broadcast_to(array, (*lead, n_q, n_k))
    return lambda at: Mask("given", n_q, n_k, whole[at])


def read_bias(bias: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the bias stretched to `shape`, (..., n_q, n_k)."""
    *_, n_q, n_k = shape
    try:
        with np.errstate(over="ignore"):  # what overflows float32 is an infinity: -1e300 masks
            array = np.asarray(bias, dtype=dtype)
    except (TypeError, ValueError):
        raise InputError("The bias must be a matrix of numbers.") from None
    if not _stretches(array.shape, shape):
        raise InputError(f"The bias has shape {array.shape}, but there are {n_q} queries and {n_k} keys.")
    return np.broadcast_to(array, shape)


def _numbers(given: ArrayLike, name: str) -> Array:
    try:
        M = np.asarray(given)
    except ValueError:
        raise InputError(f"{name} must be a matrix of numbers: its rows differ in length.") from None
    if M.dtype.kind not in "fiub":
        raise InputError(f"{name} must be a matrix of numbers; it holds {M.dtype}.")
    if M.ndim < 2 or 0 in M.shape:
        raise InputError(f"{name} must be a matrix of numbers, at least 1 x 1; its shape is {M.shape}.")
    return M


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _stretches(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether an array of the given shape can serve as one of `shape`."""
    return _broadcasts(given, shape) and np.broadcast_shapes(given, shape) == shape
