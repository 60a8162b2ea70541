"""The library function: shapes checked, then the readable or the fast way, chosen here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.core import fast
from attn_cli.core.attention import BLOCK_CELLS, Steps, attention_steps, joined_mask
from attn_cli.core.masks import Mask, named
from attn_cli.core.top_links import Links, strongest
from attn_cli.errors import InputError, NotFinite

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from attn_cli.core.tiles import Tiles
    from attn_cli.io.array_types import Array, Bools


def attend(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    mask: ArrayLike | str | None = None,
    bias: ArrayLike | None = None,
    scale: float | None = None,
    return_weights: bool = True,
    threads: int | None = None,
) -> tuple[Array | None, Array]:
    """Return (weights, output) of scaled dot-product attention.

    Q (..., n_q, d_k), K (..., n_k, d_k), V (..., n_k, d_v) -> weights (..., n_q, n_k), output
    (..., n_q, d_v), in the dtype of the inputs (integers become float64). Leading axes are heads.
    `mask` is boolean, True = may attend, or "causal", "causal-bottom-right", "window:N"; `bias` is added
    to the scaled scores; `scale` None is 1/sqrt(d_k). With return_weights=False, weights is None and
    no n_q x n_k matrix is made. Large work goes to at most `threads` threads, None being one a processor;
    the results do not depend on how many.
    Raises InputError (a ValueError) when shapes do not fit or an allowed score is not finite.

    >>> weights, output = attend([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[2.0], [4.0]])
    >>> weights.tolist(), output.tolist()
    ([[0.5, 0.5]], [[3.0]])
    """
    _check_threads(threads)
    if mask is None and bias is None:
        done = fast.at_once(Q, K, V, scale)
        if done is not None:
            return done if return_weights else (None, done[1])
    heads, lead, factor = _heads(Q, K, V, mask, bias, scale)
    weights: Array | None
    if heads[0].cells > fast.SMALL and all(_is_fast(head, factor) for head in heads):
        tiles = [fast.tiled(head.Q, head.K, factor, head.mask, head.bias) for head in heads]
        values = [head.V for head in heads]
        if return_weights:
            weights, output = fast.attended(tiles, values, threads)
        else:
            weights, output = None, fast.output(tiles, values, threads)
    else:
        found = [_by_rows(head, factor, return_weights) for head in heads]
        output = np.stack([output for _, output in found])
        weights = (
            np.stack([weights for weights, _ in found if weights is not None]) if return_weights else None
        )
    weights = None if weights is None else weights.reshape(*lead, *weights.shape[1:])
    return weights, output.reshape(*lead, *output.shape[1:])


def strongest_links(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    k: int,
    mask: ArrayLike | str | None = None,
    bias: ArrayLike | None = None,
    scale: float | None = None,
    threads: int | None = None,
) -> tuple[Links, Array]:
    """Return each query's k strongest links and the output, of one head, without an n_q x n_k matrix.

    Everything else is as in `attend`; Q is (n_q, d_k), K (n_k, d_k), V (n_k, d_v). Ties go to the lowest key.

    >>> links, output = strongest_links([[1.0], [0.0]], [[2.0], [2.0], [9.0]], [[1.0], [1.0], [4.0]], k=1)
    >>> links.keys.tolist(), output.shape
    ([[2], [0]], (2, 1))
    """
    (head, *_), lead, factor = _heads(Q, K, V, mask, bias, scale)
    _check_threads(threads)
    if lead or k < 1:
        raise InputError("Give one head, matrices without leading axes, and k of 1 or more.")
    if head.cells > fast.SMALL and _is_fast(head, factor):
        tiles = fast.tiled(head.Q, head.K, factor, head.mask, head.bias)
        if k <= fast.MANY:
            found = fast.survey(tiles, head.V, k, threads=threads)
            return Links(found.keys, found.weights), found.output
        blocks = _weighed(head, tiles, threads)
    else:
        blocks = ((steps.weights, steps.output, allowed) for steps, allowed in _blocks(head, factor))
    links, outputs = [], []
    for weights, output, allowed in blocks:
        links.append(strongest(weights, k, allowed))
        outputs.append(output)
    return Links(*(np.concatenate(column) for column in zip(*links, strict=True))), np.concatenate(outputs)


class _Head(NamedTuple):
    """One head, ready to attend."""

    Q: Array
    K: Array
    V: Array
    mask: Mask | None
    bias: Array | None

    @property
    def cells(self) -> int:
        return len(self.Q) * len(self.K)


def _heads(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike,
    mask: ArrayLike | str | None, bias: ArrayLike | None, scale: float | None,
) -> tuple[list[_Head], tuple[int, ...], float]:  # fmt: skip
    """Return what was given as single heads, the leading axes that they had, and the scale."""
    Q, K, V = _matrices(Q, K, V)
    lead = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    shape = (*lead, Q.shape[-2], K.shape[-2])
    Q, K, V = (np.broadcast_to(M, (*lead, *M.shape[-2:])) for M in (Q, K, V))
    masks = _masks(mask, shape)
    biases = None if bias is None else _fitting_bias(bias, shape, Q.dtype)
    heads = [
        _Head(Q[at], K[at], V[at], masks(at), None if biases is None else biases[at])
        for at in np.ndindex(*lead)
    ]
    return heads, lead, float(1 / np.sqrt(Q.shape[-1]) if scale is None else scale)


def _is_fast(head: _Head, scale: float) -> bool:
    return fast.fits(head.Q, head.K, head.V, head.bias, scale=scale)


def _by_rows(head: _Head, scale: float, with_weights: bool) -> tuple[Array | None, Array]:
    """Return one head's weights, where they are wanted, and its output, as the formula has them."""
    if head.cells <= fast.SMALL and head.bias is None:
        allowed = None if head.mask is None else head.mask.rows(range(len(head.Q)))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            done = fast.small(head.Q, head.K, head.V, scale, allowed)
        if done is not None:
            return done if with_weights else (None, done[1])
    if with_weights:
        (steps,) = (steps for steps, _ in _blocks(head, scale, len(head.Q)))
        return steps.weights, steps.output
    return None, np.concatenate([steps.output for steps, _ in _blocks(head, scale)])


def _weighed(head: _Head, tiles: Tiles, threads: int | None) -> Iterator[tuple[Array, Array, Bools | None]]:
    """Yield weights and output of some rows after the other, by tiles, and whom these may look at."""
    size = max(1, BLOCK_CELLS // len(head.K))
    for start in range(0, len(head.Q), size):
        rows = range(start, min(start + size, len(head.Q)))
        (weights,), (output,) = fast.attended([tiles], [head.V], threads, rows=rows)
        allowed = None if head.mask is None else head.mask.rows(rows)
        bias = None if head.bias is None else head.bias[rows.start : rows.stop]
        yield weights, output, joined_mask(allowed, bias)


def _blocks(head: _Head, scale: float, size: int | None = None) -> Iterator[tuple[Steps, Bools | None]]:
    """Yield the steps of some rows after the other, and whom these may look at."""
    n_q = len(head.Q)
    size = size or max(1, BLOCK_CELLS // len(head.K))
    for start in range(0, n_q, size):
        rows = slice(start, min(start + size, n_q))
        allowed = None if head.mask is None else head.mask.rows(range(rows.start, rows.stop))
        bias = None if head.bias is None else head.bias[rows]
        try:
            steps = attention_steps(head.Q[rows], head.K, head.V, allowed, bias, scale)
        except NotFinite as error:
            raise error.among(range(rows.start, rows.stop)) from None
        yield steps, joined_mask(allowed, bias)


def _check_threads(threads: int | None) -> None:
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise InputError(f"threads cannot be {threads!r}.", "Give a whole number, 1 or more.")


def _matrices(*given: ArrayLike) -> tuple[Array, Array, Array]:
    Q, K, V = (_numbers(M, name) for name, M in zip("QKV", given, strict=True))
    if Q.shape[-1] != K.shape[-1]:
        raise InputError(
            f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns."
        )
    if K.shape[-2] != V.shape[-2]:
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")
    for (one, M), (other, N) in ((("Q", Q), ("K", K)), (("K", K), ("V", V)), (("Q", Q), ("V", V))):
        if not _broadcasts(M.shape[:-2], N.shape[:-2]):
            raise InputError(
                f"{one} has shape {M.shape} and {other} {N.shape}: their leading axes do not fit."
            )
    dtype = np.result_type(Q, K, V)
    if dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return Q.astype(dtype, copy=False), K.astype(dtype, copy=False), V.astype(dtype, copy=False)


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


def _masks(mask: ArrayLike | str | None, shape: tuple[int, ...]) -> Callable[[tuple[int, ...]], Mask | None]:
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


def _fitting_bias(bias: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    *_, n_q, n_k = shape
    with np.errstate(over="ignore"):  # what float32 cannot hold is an infinity: -1e300 masks
        array = np.asarray(bias, dtype=dtype)
    if not _stretches(array.shape, shape):
        raise InputError(f"The bias has shape {array.shape}, but there are {n_q} queries and {n_k} keys.")
    return np.broadcast_to(array, shape)
