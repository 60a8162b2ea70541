"""Attention for programs: `attend` and `strongest_links`, and the choice between the readable and the fast way.

The readable way is attention.py, by blocks of rows where there are many. The fast way gives the same numbers to the
last few bits: of small matrices here, of large ones in streaming.py, which is imported for them alone. It returns
weights and output, or, without an n_q x n_k array, the output alone or some rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from attn_cli.core import heads as one_head, scores
from attn_cli.core.arguments import read_count, read_heads, read_threads
from attn_cli.core.heads import HeadInput, Links, blocks_of_rows
from attn_cli.errors import InputError
from attn_cli.io.types import Array, Bools, OnPart

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from attn_cli.core.arguments import MaskLike
    from attn_cli.core.attention import Steps
    from attn_cli.core.streaming import OnRows, Tiles

    OnSeenRows = Callable[[range, Array, Array, Bools | None], None]

FAST_BLOCK_CELLS = 1 << 23  # weights that the fast way holds at once, where rows are wanted block by block
MODEST = 60.0  # exp of this does not overflow float32, and exp of its negative does not underflow
MODEST_SQUARES = MODEST**2
NARROW = 16


@overload
def attend(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, mask: MaskLike | None = None, bias: ArrayLike | None = None,
    scale: float | None = None, return_weights: bool = True, threads: int | None = None, *, grouped: bool = False,
    softcap: float | None = None, lengths: ArrayLike | None = None, steps: Literal[False] = False,
) -> tuple[Array | None, Array]: ...  # fmt: skip
@overload
def attend(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, mask: MaskLike | None = None, bias: ArrayLike | None = None,
    scale: float | None = None, return_weights: Literal[True] = True, threads: int | None = None, *,
    grouped: bool = False, softcap: float | None = None, lengths: ArrayLike | None = None, steps: Literal[True],
) -> Steps: ...  # fmt: skip
def attend(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    mask: MaskLike | None = None,
    bias: ArrayLike | None = None,
    scale: float | None = None,
    return_weights: bool = True,
    threads: int | None = None,
    *,
    grouped: bool = False,
    softcap: float | None = None,
    lengths: ArrayLike | None = None,
    steps: bool = False,
) -> tuple[Array | None, Array] | Steps:
    """Return (weights, output) of scaled dot-product attention.

    Q (..., n_q, d_k), K (..., n_k, d_k), V (..., n_k, d_v) -> weights (..., n_q, n_k), output (..., n_q, d_v), in the
    dtype of the inputs (integers become float64; float16 and ml_dtypes' bfloat16 are computed in float32). Leading
    axes are heads.

    - mask: boolean, True = may attend, (..., n_q, n_k) or with 1 for any axis along which it does not change; or a
      rule: "causal", "causal-bottom-right", "window:N", "window:L:R". A list with a rule in it, as ["causal", array],
      is several masks, all of which must allow.
    - bias: added to the scaled scores; -inf masks.
    - scale: None is 1/sqrt(d_k).
    - return_weights: with False, weights is None, and no n_q x n_k matrix is made.
    - threads: the most that large work goes to, None being one a processor; results do not depend on it.
    - grouped: the last leading axis of K and V may be shorter than that of Q: each of their heads serves as many heads
      of Q in a row (grouped-query attention; with one head, multi-query).
    - softcap: c replaces a scaled score s by c tanh(s / c), before bias and mask.
    - lengths: (batch,), how many keys of each item of the batch, the first leading axis, are real: those after them are
      padding, which nothing attends to. "causal-bottom-right" then lets the last query see the last real key.
    - steps: return them all instead, by name, each (..., n_q, n_k): scores, scaled_scores, capped_scores, bias,
      masked_scores, weights; then output, and log_sum_exp (..., n_q). Of float16 and bfloat16, scores are float32.

    Raises InputError (a ValueError) when shapes do not fit or an allowed score is not finite.

    >>> weights, output = attend([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[2.0], [4.0]])
    >>> weights.tolist(), output.tolist()
    ([[0.5, 0.5]], [[3.0]])
    """
    is_sound = scale is None or isinstance(scale, (int, float))
    is_sound &= threads is None or (isinstance(threads, int) and threads > 0)
    is_plain = mask is bias is softcap is lengths is None and not (grouped or steps)
    if is_plain and is_sound and (done := at_once(Q, K, V, scale)):
        return done if return_weights else (None, done[1])
    given, threads = read_heads(Q, K, V, mask, bias, scale, grouped, softcap, lengths), read_threads(threads)
    if steps:
        if not return_weights:
            raise InputError("With steps=True the weights are returned: leave out return_weights=False.")
        return given.steps()
    weights, output = _attended(given.heads, return_weights, threads)
    return None if weights is None else given.together(weights), given.together(output)


def strongest_links(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    k: int,
    mask: MaskLike | None = None,
    bias: ArrayLike | None = None,
    scale: float | None = None,
    threads: int | None = None,
    *,
    softcap: float | None = None,
    lengths: int | None = None,
) -> tuple[Links, Array]:
    """Return each query's k strongest links and the output, of one head, without an n_q x n_k matrix.

    Everything else is as in `attend`; Q is (n_q, d_k), K (n_k, d_k), V (n_k, d_v). Ties go to the lowest key.

    >>> links, output = strongest_links([[1.0], [0.0]], [[2.0], [2.0], [9.0]], [[1.0], [1.0], [4.0]], k=1)
    >>> links.keys.tolist(), output.shape
    ([[2], [0]], (2, 1))
    """
    given = read_heads(Q, K, V, mask, bias, scale, softcap=softcap, lengths=lengths)
    threads, k = read_threads(threads), read_count(k, "k")
    if given.lead:
        raise InputError("Give one head: matrices without leading axes.")
    (head,) = given.heads
    k = min(k, len(head.K))
    links = Links(np.empty((len(head.Q), k), np.intp), np.empty((len(head.Q), k), head.V.dtype))

    def keep(rows: range, weights: Array, output: Array, allowed: Bools | None) -> None:
        at = slice(rows.start, rows.stop)
        links.keys[at], links.weights[at] = one_head.strongest(weights, k, allowed)

    output = go_over(head, keep, threads)
    return Links(links.keys, given.returned(links.weights)), given.returned(output)


def go_over(head: HeadInput, each: OnSeenRows, threads: int | None, report: OnPart | None = None) -> Array:
    """Call `each` with some rows at a time, their weights (rows, n_k), their output (rows, d_v), and their mask.

    Several threads may call it, in any order. The weights are overwritten afterwards. All output is returned.
    """

    def with_mask(rows: range, weights: Array, output: Array) -> None:
        bias = None if head.bias is None else head.bias[rows.start : rows.stop]
        each(rows, weights, output, one_head.joined_mask(head.allowed(rows), bias))

    output: Array = _attended([head], False, threads, report, with_mask)[1][0]
    return output


def tiles_of(head: HeadInput) -> Tiles | None:
    """Return a head ready for the fast way; None where it is small, or only the readable way will do."""
    rows_as_dot = scores.score_named(head.score).as_dot
    if rows_as_dot is None or head.sink is not None or len(head.Q) * len(head.K) <= one_head.SMALL:
        return None
    scale = scores.scale_of(head.score, head.Q.shape[1]) if head.scale is None else head.scale
    ready = head._replace(Q=rows_as_dot(head.Q), K=rows_as_dot(head.K), scale=scale)
    if not one_head.fits(ready.Q, ready.K, ready.V, ready.bias, ready.by_distance, scale=scale):
        return None
    from attn_cli.core.streaming import Tiles

    return Tiles(ready)


def weigh(head: HeadInput, tiles: Tiles | None, rows: range, threads: int | None) -> tuple[Array, Array]:
    """Return the weights (rows, n_k) and the output (rows, d_v) of some rows."""
    if tiles is None:
        steps = head.steps(rows)
        return steps.weights, steps.output
    from attn_cli.core import streaming

    weights, output = streaming.attended([tiles], True, threads, rows=rows)
    assert weights is not None  # they were asked for
    return weights[0], output[0]


def output_of(head: HeadInput, threads: int | None, report: OnPart | None) -> Array:
    """Return the output (n_q, d_v) alone; there is never an n_q x n_k array where the fast way will do."""
    output: Array = _attended([head], False, threads, report)[1][0]
    return output


def _attended(
    heads: Sequence[HeadInput], with_weights: bool, threads: int | None, report: OnPart | None = None,
    each: OnRows | None = None,
) -> tuple[Array | None, Array]:  # fmt: skip
    """Return the heads' weights (heads, n_q, n_k), where they are wanted, and their output (heads, n_q, d_v)."""
    tiles, first = [ready for head in heads if (ready := tiles_of(head))], heads[0]
    if len(tiles) == len(heads):
        from attn_cli.core import streaming

        return streaming.attended(tiles, with_weights, threads, report, each=each)
    output = np.empty((len(heads), len(first.Q), first.V.shape[1]), first.V.dtype)
    weights = np.empty((len(heads), len(first.Q), len(first.K)), output.dtype) if with_weights else None
    for number, head in enumerate(heads):
        for rows, its_weights, its_output in _small_or_readable(head):
            at = number, slice(rows.start, rows.stop)
            output[at] = its_output
            if weights is not None:
                weights[at] = its_weights
            if each:
                each(rows, its_weights, its_output)
            if report:  # of one head
                report(rows.stop / len(head.Q))
    return weights, output


def _small_or_readable(head: HeadInput) -> Iterator[tuple[range, Array, Array]]:
    """Yield some rows of a head, their weights and their output: all rows where it is small and plain."""
    more = (head.bias, head.by_distance, head.softcap, head.sink)
    is_plain = head.score == "scaled" and all(one is None for one in more)
    if is_plain and head.scale is not None and len(head.Q) * len(head.K) <= one_head.SMALL:
        rows = range(len(head.Q))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            done = small(head.Q, head.K, head.V, head.scale, head.allowed(rows))
        if done is not None:
            yield rows, *done
            return
    for rows in blocks_of_rows(head):
        steps = head.steps(rows)
        yield rows, steps.weights, steps.output


def at_once(Q: object, K: object, V: object, scale: float | None) -> tuple[Array, Array] | None:
    """Return (weights, output) of one small head, given as plain arrays; None where anything must be checked."""
    if not (type(Q) is type(K) is type(V) is np.ndarray and Q.dtype is K.dtype is V.dtype):
        return None
    if not Q.ndim == K.ndim == V.ndim == 2:
        return None
    (n_q, d_k), (n_k, d) = Q.shape, K.shape
    if d != d_k or len(V) != n_k or not 0 < n_q * n_k <= one_head.SMALL or not d_k * V.shape[1]:
        return None
    try:
        return small(Q, K, V, 1 / math.sqrt(d_k) if scale is None else scale)
    except (RuntimeWarning, FloatingPointError):  # if the caller raises them; errstate is too slow
        return None


def small(
    Q: Array, K: Array, V: Array, scale: float, allowed: Bools | None = None
) -> tuple[Array, Array] | None:
    """Return (weights, output) of one head of up to about 128 x 128; None where the readable core must do it.

    Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v), all of one dtype. Scores of modest size need no shift before exp;
    the sum of their squares shows that they are, and that all are finite.
    """
    char = Q.dtype.char
    if char not in "fd":
        return None
    weights: Array = Q.dot(K.T)
    n_k = weights.shape[1]
    factor, ones = _constants(scale, n_k, char)
    weights *= factor
    if not np.vdot(weights, weights) < MODEST_SQUARES and not np.abs(weights).max() < MODEST:
        return None
    np.exp(weights, out=weights)
    if allowed is not None:
        weights *= allowed
    total = weights.dot(ones)
    if allowed is not None:
        total[total == 0] = 1
    weights /= total
    output: Array = weights.dot(V)
    return (weights, output) if np.vdot(output, output) < math.inf else None


@lru_cache
def _constants(scale: float, n_k: int, char: str) -> tuple[Array, Array]:
    """Return the scale as an array, which NumPy multiplies by faster than by a Python float, and ones.

    A product with a column of ones sums rows; a product with a square of ones also broadcasts the sums.
    """
    with np.errstate(over="ignore"):  # a scale that is infinite in float32 is refused by the score check
        factor = np.array(scale, char)
    return factor, np.ones((n_k, n_k if n_k <= NARROW else 1), char)
