"""Attention, as the paper has it (Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V

Rows are queries, columns are keys. Leading axes, where there are any, are heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli import fast
from attn_cli.errors import InputError, NotFinite
from attn_cli.masks import Mask, named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from attn_cli.arrays import Array, Bools, Ints
    from attn_cli.tiles import Tiles

WHOLE = 2.0**52
BLOCK_CELLS = 1 << 20
TIED = 0.78  # a number's precision to this power is as far as weights that tie may lie apart: 6e-13, in float32 4e-6


class Steps(NamedTuple):
    """Every intermediate of attention, in the order computed; scores are (..., n_q, n_k)."""

    scores: Array
    scaled_scores: Array
    masked_scores: Array
    weights: Array
    output: Array


class Links(NamedTuple):
    """Each query's strongest keys, (n_q, k), strongest first; key -1 and weight 0 where there is none."""

    keys: Ints
    weights: Array


def project(X: Array, W: Array, b: Array | None = None, layout: str = "in-out") -> Array:
    """Return X W (layout `in-out`, W is d x d_k) or W x for each row x (`out-in`, W is d_k x d), plus b."""
    projected = X @ (W if layout == "in-out" else W.T)
    return projected if b is None else projected + b


def to_digits(M: Array, digits: int) -> Array:
    """Return M in float64, rounded to so many digits after the point: what is written down is what is computed with.

    >>> to_digits(np.array([0.126, -0.001]), 2).tolist()
    [0.13, 0.0]
    """
    M = M.astype(np.float64)
    fine = np.abs(M) < WHOLE  # beyond, a double has no digits after the point
    return np.where(fine, np.round(np.where(fine, M, 0), digits) + 0.0, M)  # the sum makes -0.0 a plain zero


def compare(Q: Array, K: Array, score: str = "scaled") -> Array:
    """Return the scores (n_q, n_k): dot products q.k, or their cosines (0 where a vector is zero)."""
    if score == "cosine":
        Q, K = unit(Q), unit(K)
    return Q @ np.swapaxes(K, -1, -2)


def unit(X: Array) -> Array:
    """Return each row divided by its length; a row of zeros stays one."""
    # What is not finite is told with its score.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _unit(X)


def _unit(X: Array) -> Array:
    X = X / np.where((largest := np.abs(X).max(axis=-1, keepdims=True)) == 0, 1, largest)
    length = np.sqrt((X * X).sum(axis=-1, keepdims=True))
    return X / np.where(length == 0, 1, length)


def softmax(scores: Array) -> Array:
    """Return exp(s_j) / sum of exp(s_j) along each row; -inf gives 0, and a row of only -inf gives zeros.

    >>> softmax(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    largest = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1, total)


def attention_steps(
    Q: Array,
    K: Array,
    V: Array,
    mask: Bools | None = None,
    bias: Array | None = None,
    scale: float = 1.0,
    score: str = "scaled",
) -> Steps:
    """Compute attention and keep every step.

    Q is (..., n_q, d_k), K (..., n_k, d_k), V (..., n_k, d_v); mask and bias are (..., n_q, n_k), True =
    may attend. The bias is added to the scaled scores, and -inf in it masks.
    A row with nothing allowed is zeros.
    Raises InputError, which names query and key, when an allowed score is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scores = compare(Q, K, score)
        scaled_scores = scores * scores.dtype.type(scale)
        masked_scores = scaled_scores if bias is None else scaled_scores + bias
        allowed = _allowed(mask, bias)
        _check_scores(masked_scores, allowed)
        if allowed is not None:
            masked_scores = np.where(allowed, masked_scores, -np.inf).astype(scores.dtype, copy=False)
        weights = softmax(masked_scores)
        output = _weighted_sum(weights, V)
    return Steps(scores, scaled_scores, masked_scores, weights, output)


def _allowed(mask: Bools | None, bias: Array | None) -> Bools | None:
    """Join a boolean mask and a bias that masks by -inf, as float masks do."""
    shut = None if bias is None else np.isneginf(bias)
    if shut is None or not shut.any():
        return mask
    return ~shut if mask is None else mask & ~shut


def _check_scores(scores: Array, allowed: Bools | None) -> None:
    bad = ~np.isfinite(scores)
    if allowed is not None:
        bad &= allowed
    if bad.any():
        *_, i, j = (int(x) for x in np.argwhere(bad)[0])
        raise NotFinite(i, j)


def _weighted_sum(weights: Array, V: Array) -> Array:
    if np.isfinite(V).all():
        return weights @ V
    # A value behind a mask must not be seen: 0 x NaN would be NaN.
    bad: Bools = np.logical_not(np.isfinite(V).all(axis=-1))
    seen = (weights > 0) & bad[..., np.newaxis, :]
    if seen.any():
        j = int(np.argwhere(seen)[0][-1])
        raise NotFinite(None, j)
    return weights @ np.where(bad[..., np.newaxis], 0, V)


def strongest(weights: Array, k: int, mask: Bools | None = None) -> Links:
    """Return the k strongest links of each row of weights (n_q, n_k); ties go to the lowest key.

    BLAS adds up in other orders here and there in a product, so keys that are the same get weights that differ in
    some last bits. What is that close is a tie.
    """
    n_q, n_k = weights.shape
    k = min(k, n_k)
    kept = np.where(mask, weights, -1) if mask is not None else weights
    if k < n_k // 4:
        # The k-th largest weight bounds the candidates; sorting those alone is quicker.
        bound = np.partition(kept, n_k - k, axis=-1)[:, n_k - k]
        with np.errstate(under="ignore"):
            bound -= np.abs(bound) * _tie(bound.dtype)
        keys = np.empty((n_q, k), dtype=np.intp)
        for i, row in enumerate(kept):
            candidates = np.flatnonzero(row >= bound[i])
            keys[i] = candidates[_in_order(row[candidates])[:k]]
    else:
        keys = _in_order(kept)[:, :k]
    found = np.take_along_axis(kept, keys, axis=-1)
    return Links(np.where(found < 0, -1, keys), np.where(found < 0, 0, found).astype(weights.dtype))


def _in_order(weights: Array) -> Ints:
    """Return the places of the weights along the last axis, strongest first; of those that tie the lowest first."""
    order: Ints = np.argsort(-weights, axis=-1, kind="stable")
    found = np.take_along_axis(weights, order, axis=-1)
    lowest = 1 - _tie(weights.dtype)
    unsure = (found[..., 1:] >= found[..., :-1] * lowest) & (order[..., 1:] < order[..., :-1])
    for at in np.argwhere(unsure.any(axis=-1)):
        places, row = order[tuple(at)], found[tuple(at)]
        start = 0
        while start < len(row):  # what ties with the strongest that is left; a chain of ties is not one
            stop = start + int(np.searchsorted(-row[start:], -row[start] * lowest, side="right"))
            places[start:stop].sort()
            start = max(stop, start + 1)
    return order


def _tie(dtype: np.dtype[Any]) -> float:
    """Return how far apart, as a share of them, weights may lie that tie."""
    share: float = float(np.finfo(dtype).eps) ** TIED
    return share


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
        yield weights, output, _allowed(allowed, bias)


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
        yield steps, _allowed(allowed, bias)


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
