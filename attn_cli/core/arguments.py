"""The arguments of `attend`, checked, and made into single heads."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.core.attention import Steps
from attn_cli.core.heads import HeadInput
from attn_cli.core.mask_rules import rule_named
from attn_cli.core.masks import AnyMask, Mask, joined, named
from attn_cli.core.scores import scale_of
from attn_cli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from attn_cli.io.array_types import Array, Ints

SMALLEST_CAP, LARGEST_CAP = 1e-6, 1e30


class Given(NamedTuple):
    """What was given, as single heads in the order of the leading axes that they had, and the dtype to return."""

    heads: list[HeadInput]
    lead: tuple[int, ...]
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

    def steps(self) -> Steps:
        """Return every step of all heads, the readable way; scores stay in the dtype in which they are computed."""
        n_q = range(len(self.heads[0].Q))
        fields = zip(*(head.steps(n_q) for head in self.heads), strict=True)
        steps = Steps._make(
            None if each[0] is None else np.stack(each).reshape(*self.lead, *each[0].shape) for each in fields
        )
        return steps._replace(weights=self.returned(steps.weights), output=self.returned(steps.output))


def read_heads(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, mask: MaskLike | None = None,
    bias: ArrayLike | None = None, scale: float | None = None, grouped: bool = False,
    softcap: float | None = None, lengths: ArrayLike | None = None,
) -> Given:  # fmt: skip
    """Return the arguments of `attend` as single heads."""
    scale, softcap = read_scale(scale), read_softcap(softcap)
    (Q, K, V), dtype = read_matrices(Q, K, V)
    lead, kv_lead = leading_axes(Q, K, V, grouped)
    shape = (*lead, Q.shape[-2], K.shape[-2])
    if lead:
        Q = np.broadcast_to(Q, (*lead, *Q.shape[-2:]))
        K, V = (np.broadcast_to(M, (*kv_lead, *M.shape[-2:])) for M in (K, V))
    mask_at = read_mask(mask, shape, None if lengths is None else read_lengths(lengths, shape))
    biases = None if bias is None else read_bias(bias, shape, Q.dtype)
    scale = scale_of("scaled", Q.shape[-1]) if scale is None else scale
    heads = []
    for at in np.ndindex(*lead):
        kv_at = (*at[:-1], at[-1] * kv_lead[-1] // lead[-1]) if grouped else at
        head_bias = None if biases is None else biases[at]
        heads.append(
            HeadInput(Q[at], K[kv_at], V[kv_at], mask_at(at), head_bias, scale=scale, softcap=softcap)
        )
    return Given(heads, lead, dtype)


def leading_axes(Q: Array, K: Array, V: Array, grouped: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the leading axes of all heads, and those of keys and values, of which there are fewer where grouped."""
    if not grouped:
        if Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]:
            return Q.shape[:-2], Q.shape[:-2]
        for (one, M), (other, N) in ((("Q", Q), ("K", K)), (("K", K), ("V", V)), (("Q", Q), ("V", V))):
            if not broadcasts(M.shape[:-2], N.shape[:-2]):
                raise InputError(
                    f"{one} has shape {M.shape} and {other} {N.shape}: their leading axes do not fit.",
                    "With grouped=True, heads of Q share heads of K and V." if _are_groups(Q, K, V) else "",
                )
        lead = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
        return lead, lead
    if not _are_groups(Q, K, V):
        raise InputError(
            f"Q has shape {Q.shape}, K {K.shape} and V {V.shape}: these are no groups of heads.",
            "With grouped=True, K and V have equally many heads, Q a multiple of them, and other axes fit.",
        )
    batch = np.broadcast_shapes(Q.shape[:-3], K.shape[:-3], V.shape[:-3])
    return (*batch, Q.shape[-3]), (*batch, K.shape[-3])


def _are_groups(Q: Array, K: Array, V: Array) -> bool:
    """Tell whether each head of K and V can serve a group of heads of Q; heads are the last leading axis."""
    if min(Q.ndim, K.ndim, V.ndim) < 3 or not broadcasts(Q.shape[:-3], K.shape[:-3], V.shape[:-3]):
        return False
    return bool(K.shape[-3] == V.shape[-3] and Q.shape[-3] % K.shape[-3] == 0)


def read_scale(scale: object) -> float | None:
    """Return the scale as a number; None stands for 1/sqrt(d_k)."""
    if scale is None:
        return None
    if (found := _number(scale)) is None:
        raise InputError(f"scale cannot be {scale!r}.", "Give a number, or None for 1/sqrt(d_k).")
    return found


def read_softcap(softcap: object) -> float | None:
    """Return what bounds the scores as a number; None stands for no bound."""
    if softcap is None:
        return None
    found = _number(softcap)
    if found is None or not SMALLEST_CAP <= found <= LARGEST_CAP:
        hint = f"Give a number from {SMALLEST_CAP:g} to {LARGEST_CAP:g}, or None for no cap."
        raise InputError(f"softcap cannot be {softcap!r}.", hint)
    return found


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, (str, bytes)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


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


def read_matrices(*given: ArrayLike) -> tuple[tuple[Array, Array, Array], np.dtype[Any]]:
    """Return Q, K and V, whose rows and columns fit each other, in one dtype to compute in; and that of the results.

    They differ in half precision: float16 and bfloat16 are computed in float32.
    """
    Q, K, V = (_numbers(M, name) for name, M in zip("QKV", given, strict=True))
    check_fit(Q, K, V)
    dtypes = [M.dtype for M in (Q, K, V)]
    dtype = dtypes[0]
    if len(set(dtypes)) > 1:  # NumPy does not know what bfloat16 becomes beside other types
        dtype = np.result_type(*(np.dtype(np.float32) if _is_bfloat16(one) else one for one in dtypes))
    if dtype.kind != "f" and not _is_bfloat16(dtype):
        dtype = np.dtype(np.float64)
    inner = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    return (Q.astype(inner, copy=False), K.astype(inner, copy=False), V.astype(inner, copy=False)), dtype


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype is that of the package ml_dtypes; NumPy has none of its own."""
    return dtype.name == "bfloat16"


def check_fit(Q: Array, K: Array, V: Array) -> None:
    """Raise InputError unless queries and keys have equally many columns, and keys and values equally many rows."""
    if Q.shape[-1] != K.shape[-1]:
        raise InputError(
            f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns."
        )
    if K.shape[-2] != V.shape[-2]:
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")


def _numbers(given: ArrayLike, name: str) -> Array:
    try:
        M = np.asarray(given)
    except ValueError:
        raise InputError(f"{name} must be a matrix of numbers: its rows differ in length.") from None
    except (
        TypeError,
        RuntimeError,
    ) as error:  # a tensor that has a gradient, is in bfloat16 or on another device
        why = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")
        raise InputError(
            f"{name} cannot be read as an array: {why}.",
            f"Of a tensor of PyTorch, give {name}.detach().float().cpu().",
        ) from None
    if M.dtype.kind not in "fiub" and not _is_bfloat16(M.dtype):
        raise InputError(f"{name} must be a matrix of numbers; it holds {M.dtype}.")
    if M.ndim < 2 or 0 in M.shape:
        raise InputError(f"{name} must be a matrix of numbers, at least 1 x 1; its shape is {M.shape}.")
    return M


if TYPE_CHECKING:
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
