"""The arguments of `attend`, checked, and made into single heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.core import attention, masks, scores
from attn_cli.core.heads import HeadInput
from attn_cli.errors import InputError, refuse_input
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, NDArray, Scalar

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    MaskLike = ArrayLike | str | Sequence[Any]  # an array, the name of a rule, or several of both
    Shape = tuple[int, ...]

SMALLEST_CAP, LARGEST_CAP = 1e-6, 1e30


class Given(NamedTuple):
    """What was given, as single heads in the order of the leading axes that they had, and the dtype to return."""

    heads: list[HeadInput]
    lead: Shape
    dtype: np.dtype[Any]

    def together(self, made: Array) -> Array:
        """Return what was made of each head, (heads, ...), under the leading axes and in the dtype to return."""
        return self.returned(made.reshape(*self.lead, *made.shape[1:]))

    def returned(self, made: Array) -> Array:
        """Return an array in the dtype to return."""
        if made.dtype == self.dtype:
            return made
        with np.errstate(under="ignore"):
            return made.astype(self.dtype)

    def steps(self) -> attention.Steps:
        """Return every step of all heads, the readable way; scores stay in the dtype in which they are computed."""
        fields = zip(*(head.steps(range(len(head.Q))) for head in self.heads), strict=True)
        steps = attention.Steps._make(
            None if each[0] is None else np.stack(each).reshape(*self.lead, *each[0].shape) for each in fields
        )
        return steps._replace(weights=self.returned(steps.weights), output=self.returned(steps.output))


def read_heads(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, mask: MaskLike | None = None,
    bias: ArrayLike | None = None, scale: float | None = None, grouped: bool = False,
    softcap: float | None = None, lengths: ArrayLike | None = None,
) -> Given:  # fmt: skip
    """Return the arguments of `attend` as single heads."""
    if scale is not None:
        scale = _number(scale, "scale", "Give a number, or None for 1/sqrt(d_k).")
    softcap = read_softcap(softcap)
    (Q, K, V), dtype = _matrices(Q, K, V)
    lead, kv_lead = _leading_axes(Q, K, V, grouped)
    shape = (*lead, Q.shape[-2], K.shape[-2])
    if lead:
        Q = np.broadcast_to(Q, (*lead, *Q.shape[-2:]))
        K, V = (np.broadcast_to(M, (*kv_lead, *M.shape[-2:])) for M in (K, V))
    mask_at = _read_mask(mask, shape, None if lengths is None else _read_lengths(lengths, shape))
    biases = None if bias is None else _read_bias(bias, shape, Q.dtype)
    scale = scores.scale_of("scaled", Q.shape[-1]) if scale is None else scale
    heads = []
    for at in np.ndindex(*lead):
        kv_at = (*at[:-1], at[-1] * kv_lead[-1] // lead[-1]) if grouped else at
        added = None if biases is None else biases[at]
        heads.append(HeadInput(Q[at], K[kv_at], V[kv_at], mask_at(at), added, scale=scale, softcap=softcap))
    return Given(heads, lead, dtype)


def _leading_axes(Q: Array, K: Array, V: Array, grouped: bool) -> tuple[Shape, Shape]:
    """Return the leading axes of all heads, and those of keys and values, of which there are fewer where grouped."""
    if not grouped and Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]:
        return Q.shape[:-2], Q.shape[:-2]
    are_groups = (
        min(Q.ndim, K.ndim, V.ndim) > 2 and K.shape[-3] == V.shape[-3] and Q.shape[-3] % K.shape[-3] == 0
    )
    batch = _broadcast(Q.shape[:-3], K.shape[:-3], V.shape[:-3]) if are_groups else None
    if grouped and batch is None:
        said = f"Q has shape {Q.shape}, K {K.shape} and V {V.shape}: these are not groups of heads."
        hint = "With grouped=True, K and V have equally many heads, Q a multiple of them, and other axes fit."
        raise InputError(said, hint)
    if grouped and batch is not None:
        return (*batch, Q.shape[-3]), (*batch, K.shape[-3])
    for (one, M), (other, N) in ((("Q", Q), ("K", K)), (("K", K), ("V", V)), (("Q", Q), ("V", V))):
        if _broadcast(M.shape[:-2], N.shape[:-2]) is None:
            said = f"{one} has shape {M.shape} and {other} {N.shape}: their leading axes do not fit."
            hint = "" if batch is None else "With grouped=True, heads of Q share heads of K and V."
            raise InputError(said, hint)
    lead = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    return lead, lead


def _number(
    value: object, name: str, hint: str, bounds: tuple[float, float] | None = None, read: Any = float
) -> float:
    """Return what `read` makes of a value, within bounds; raise InputError for text, or where it makes nothing."""
    if not isinstance(value, (str, bytes)):
        with suppress(TypeError, ValueError):
            found: float = read(value)
            if bounds is None or bounds[0] <= found <= bounds[1]:
                return found
    raise InputError(f"{name} cannot be {value!r}.", hint)


def read_softcap(softcap: object) -> float | None:
    """Return what bounds the scores as a number; None stands for no bound."""
    hint = f"Give a number from {SMALLEST_CAP:g} to {LARGEST_CAP:g}, or None for no cap."
    return None if softcap is None else _number(softcap, "softcap", hint, (SMALLEST_CAP, LARGEST_CAP))


def read_count(value: object, name: str) -> int:
    """Return a whole number of at least 1."""
    return int(_number(value, name, "Give a whole number, 1 or more.", (1, inf), index))


def read_threads(threads: object) -> int | None:
    """Return the most threads to use; None stands for one per processor."""
    return None if threads is None else read_count(threads, "threads")


def _matrices(*given: ArrayLike) -> tuple[tuple[Array, Array, Array], np.dtype[Any]]:
    """Return Q, K and V, whose rows and columns fit each other, in one dtype to compute in; and that of the results.

    The two differ in half precision: float16 and bfloat16 are computed in float32.
    """
    Q, K, V = (_numbers(M, name) for name, M in zip("QKV", given, strict=True))
    check_fit(Q, K, V)
    dtype, dtypes = Q.dtype, {M.dtype for M in (Q, K, V)}
    if len(dtypes) > 1:  # NumPy does not know what bfloat16 becomes beside other types
        dtype = np.result_type(*(np.dtype(np.float32) if _is_bfloat16(one) else one for one in dtypes))
    if dtype.kind != "f" and not _is_bfloat16(dtype):
        dtype = np.dtype(np.float64)
    inner = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    return (Q.astype(inner, copy=False), K.astype(inner, copy=False), V.astype(inner, copy=False)), dtype


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.name == "bfloat16"  # of the package ml_dtypes; NumPy has none of its own


def check_fit(Q: Array, K: Array, V: Array, *, hint: str = "") -> None:
    """Raise InputError unless queries and keys have equally many columns, and keys and values equally many rows."""
    said = f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns."
    refuse_input(Q.shape[-1] != K.shape[-1], said, hint)
    said = f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row."
    refuse_input(K.shape[-2] != V.shape[-2], said)


def _numbers(given: ArrayLike, name: str) -> Array:
    must = f"{name} must be a matrix of numbers"
    try:
        M = np.asarray(given)
    except ValueError:
        raise InputError(f"{must}: its rows differ in length.") from None
    except (TypeError, RuntimeError) as error:  # a tensor with a gradient, in bfloat16 or on another device
        why = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")
        hint = f"Of a tensor of PyTorch, give {name}.detach().float().cpu()."
        raise InputError(f"{name} cannot be read as an array: {why}.", hint) from None
    if M.dtype.kind not in "fiub" and not _is_bfloat16(M.dtype):
        raise InputError(f"{must}; it holds {M.dtype}.")
    if M.ndim < 2 or 0 in M.shape:
        raise InputError(f"{must}, at least 1 x 1; its shape is {M.shape}.")
    return M


def _read_mask(
    mask: MaskLike | None, shape: Shape, lengths: Ints | None = None
) -> Callable[[Shape], masks.Mask | None]:
    """Return what gives the mask of one head of `shape`, by its place among the leading axes.

    A list or tuple in which a name stands is several masks, all of which must allow; any other is an array. With
    `lengths`, of the first leading axes, the keys from there on are hidden, and a rule counts the keys before alone.
    """
    *_, n_q, n_k = shape
    parts: list[Any] = [] if mask is None else [mask]
    if isinstance(mask, (list, tuple)) and any(isinstance(part, str) for part in mask):
        parts = list(mask)
    parts = [part if isinstance(part, str) else _array(part, shape) for part in parts]

    def mask_at(at: Shape) -> masks.Mask | None:
        real = n_k if lengths is None else int(lengths[at[: lengths.ndim]])
        found = [
            masks.named(part, n_q, real) if isinstance(part, str) else masks.Mask("given", n_q, n_k, part[at])
            for part in parts
        ]
        if real < n_k:
            found.append(masks.Mask("none", n_q, n_k, padding=range(real, n_k)))
        return masks.joined([mask for mask in found if mask is not None])

    return mask_at


def _read_lengths(lengths: ArrayLike, shape: Shape) -> Ints:
    """Return how many keys are real, by the first leading axes of `shape`."""
    *lead, _, n_k = shape
    try:
        array = np.asarray(lengths)
    except ValueError:
        array = np.empty(0)
    if array.dtype.kind not in "iu":
        raise InputError(f"lengths cannot be {lengths!r}.", "Give whole numbers, how many keys are real.")
    first = tuple(lead[: array.ndim])
    if not stretches(array.shape, first):
        said = f"lengths has shape {array.shape}, but the leading axes are {tuple(lead)}."
        raise InputError(said, "Give one number for each item of the batch, the first axis.")
    if array.min() < 0 or array.max() > n_k:
        wrong = array.min() if array.min() < 0 else array.max()
        raise InputError(f"lengths cannot hold {wrong}: there are {n_k} keys.")
    return np.broadcast_to(array, first).astype(np.intp)


def _array(mask: ArrayLike, shape: Shape) -> Bools:
    """Return a mask stretched to `shape`, (..., n_q, n_k)."""
    try:
        array = np.asarray(mask)
    except ValueError:
        hint = "Several masks at once are joined by &, or listed with the name of a rule."
        raise InputError("The mask is not a matrix: its rows differ in length.", hint) from None
    if array.dtype != np.bool_:
        said = f"The mask must be boolean, True = may attend; this one holds {array.dtype}."
        raise InputError(said, "Numbers that are added to the scores go into `bias`.")
    return _stretched("mask", array, shape, 2)


def _read_bias(bias: ArrayLike, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return the bias stretched to `shape`, (..., n_q, n_k)."""
    try:
        with np.errstate(over="ignore"):  # what overflows float32 is an infinity: -1e300 masks
            array = np.asarray(bias, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        hint = "Of a tensor of PyTorch, give bias.detach().float().cpu()." if hasattr(bias, "detach") else ""
        raise InputError("The bias must be a matrix of numbers.", hint) from None
    return _stretched("bias", array, shape)


def _stretched(name: str, array: NDArray[Scalar], shape: Shape, axes: int = 0) -> NDArray[Scalar]:
    """Return the array stretched to `shape`, (..., n_q, n_k), where it has as many `axes` at least and fits."""
    *lead, n_q, n_k = shape
    if array.ndim >= axes and stretches(array.shape, shape):
        return np.broadcast_to(array, shape)
    heads = f" of {tuple(lead)} heads" if lead else ""
    raise InputError(
        f"The {name} has shape {array.shape}, but there are {n_q} queries and {n_k} keys{heads}.",
        f"Its last axes are ({n_q}, {n_k}), (1, {n_k}) for keys or ({n_q}, 1) for queries; leading axes are those of "
        "Q, or 1.",
    )


def _broadcast(*shapes: Shape) -> Shape | None:
    """Return what shape arrays of these shapes broadcast to; None where they do not fit each other."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def stretches(given: Shape, shape: Shape) -> bool:
    """Tell whether an array of the given shape can serve as one of `shape`."""
    return _broadcast(given, shape) == shape
