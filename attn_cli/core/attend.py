"""Attention for programs: `attend` and `strongest_links`, and the choice between the readable and the fast way.

The readable way is attention.py, by blocks of rows where there are many. The fast way, streaming.py, gives the same
numbers to the last few bits, and is imported for large matrices alone. Commands and programs choose between them with
the functions of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import fast
from attn_cli.core.attention import Steps
from attn_cli.core.checks import checked_attention, joined_mask
from attn_cli.core.masks import Mask
from attn_cli.core.scores import scale_of, score_named
from attn_cli.core.top_links import Links, strongest
from attn_cli.errors import InputError, NotFinite

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from attn_cli.core.fast import Report
    from attn_cli.core.streaming import Survey
    from attn_cli.core.tiles import Tiles
    from attn_cli.io.array_types import Array, Bools, Ints

BLOCK_CELLS = 1 << 20  # scores that the readable way holds at once
FAST_BLOCK_CELLS = 1 << 23  # weights that the fast way holds at once, where rows are wanted block by block


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
    is_sound = scale is None or isinstance(scale, (int, float))
    is_sound &= threads is None or (isinstance(threads, int) and threads > 0)
    if mask is None and bias is None and is_sound and (done := fast.at_once(Q, K, V, scale)):
        return done if return_weights else (None, done[1])
    from attn_cli.core.arguments import read_threads  # the commands check their own

    threads = read_threads(threads)
    heads, lead = _read_heads(Q, K, V, mask, bias, scale)
    weights: Array | None
    tiles = [one for head in heads if (one := head.tiles())]
    if len(tiles) == len(heads):
        from attn_cli.core import streaming

        values = [head.V for head in heads]
        if return_weights:
            weights, output = streaming.attended(tiles, values, threads)
        else:
            weights, output = None, streaming.output(tiles, values, threads)
    else:
        found = [_small_or_readable(head, return_weights) for head in heads]
        output = np.stack([output for _, output in found])
        weights = np.stack([one for one, _ in found if one is not None]) if return_weights else None
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
    from attn_cli.core.arguments import read_count, read_threads

    (head, *_), lead = _read_heads(Q, K, V, mask, bias, scale)
    threads, k = read_threads(threads), read_count(k, "k")
    if lead:
        raise InputError("Give one head: matrices without leading axes.")
    if (survey := survey_of(head, k, threads=threads)) is not None:
        return Links(survey.keys, survey.weights), survey.output
    links, outputs, tiles = [], [], head.tiles()
    for rows in blocks_of_rows(head, BLOCK_CELLS):
        weights, output = weigh(head, tiles, rows, threads)
        bias_rows = None if head.bias is None else head.bias[rows.start : rows.stop]
        links.append(strongest(weights, k, joined_mask(head.allowed(rows), bias_rows)))
        outputs.append(output)
    return Links(*(np.concatenate(column) for column in zip(*links, strict=True))), np.concatenate(outputs)


class HeadInput(NamedTuple):
    """One head, ready to attend.

    Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v). To the scaled scores is added `bias` (n_q, n_k), in which -inf masks,
    and what depends on the clipped distance alone, `by_distance` (n_q, 2 reach + 1): from `reach` or more keys to the
    left to `reach` or more to the right.
    """

    Q: Array
    K: Array
    V: Array
    mask: Mask | None = None
    bias: Array | None = None
    by_distance: Array | None = None
    score: str = "scaled"
    scale: float | None = None

    def allowed(self, rows: Sequence[int] | Ints) -> Bools | None:
        """Return the mask of these rows, (rows, n_k); None where there is none."""
        return None if self.mask is None else self.mask.rows(rows)

    def added(self, rows: Ints) -> Array | None:
        """Return what is added to the scaled scores of these rows, (rows, n_k)."""
        bias = None if self.bias is None else self.bias[rows]
        if self.by_distance is None:
            return bias
        reach = self.by_distance.shape[1] // 2
        distance = np.clip(np.arange(len(self.K)) - rows[:, np.newaxis], -reach, reach)
        term = np.take_along_axis(self.by_distance[rows], distance + reach, axis=1)
        return term if bias is None else term + bias

    def steps(self, rows: Sequence[int] | Ints) -> Steps:
        """Return every step of these rows, the readable way."""
        at = np.asarray(rows, dtype=np.intp)
        try:
            return checked_attention(
                self.Q[at], self.K, self.V, self.allowed(at), self.added(at), self.scale, self.score
            )
        except NotFinite as error:
            raise error.among(at.tolist()) from None

    def tiles(self) -> Tiles | None:
        """Return the head ready for the fast way; None where it is small, or only the readable way will do."""
        rows_as_dot = score_named(self.score).as_dot
        if rows_as_dot is None or len(self.Q) * len(self.K) <= fast.SMALL:
            return None
        scale = scale_of(self.score, self.Q.shape[1]) if self.scale is None else self.scale
        Q, K = rows_as_dot(self.Q), rows_as_dot(self.K)
        if not fast.fits(Q, K, self.V, self.bias, self.by_distance, scale=scale):
            return None
        from attn_cli.core.tiles import Tiles

        return Tiles(Q, K, scale, self.mask, self.bias, self.by_distance)


def blocks_of_rows(head: HeadInput, cells: int) -> Iterator[range]:
    """Yield the rows of a head, as many at a time as have so many scores, and one at least."""
    n_q, size = len(head.Q), max(1, cells // len(head.K))
    for start in range(0, n_q, size):
        yield range(start, min(start + size, n_q))


def readable_blocks(head: HeadInput) -> Iterator[Steps]:
    """Yield the steps of some rows after the other, the readable way."""
    for rows in blocks_of_rows(head, BLOCK_CELLS):
        yield head.steps(rows)


def weigh(head: HeadInput, tiles: Tiles | None, rows: range, threads: int | None) -> tuple[Array, Array]:
    """Return the weights (rows, n_k) and the output (rows, d_v) of some rows."""
    if tiles is None:
        steps = head.steps(rows)
        return steps.weights, steps.output
    from attn_cli.core.streaming import attended

    (weights,), (output,) = attended([tiles], [head.V], threads, rows)
    return weights, output


def output_of(head: HeadInput, threads: int | None, report: Report | None) -> Array:
    """Return the output (n_q, d_v) alone; there is never an n_q x n_k array where the fast way will do."""
    tiles = head.tiles()
    if tiles is None:
        return np.concatenate([steps.output for steps in readable_blocks(head)])
    from attn_cli.core.streaming import output

    made: Array = output([tiles], [head.V], threads, report)[0]
    return made


def survey_of(
    head: HeadInput,
    k: int,
    blocks: tuple[int, int] | None = None,
    threads: int | None = None,
    report: Report | None = None,
) -> Survey | None:
    """Return each row's k strongest links and more, as streaming.py does; None where whole rows must be gone over."""
    tiles = head.tiles() if k <= fast.MANY else None
    if tiles is None:
        return None
    from attn_cli.core.streaming import survey

    return survey(tiles, head.V, k, blocks, threads, report)


def _read_heads(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike,
    mask: ArrayLike | str | None, bias: ArrayLike | None, scale: float | None,
) -> tuple[list[HeadInput], tuple[int, ...]]:  # fmt: skip
    """Return what was given as single heads, and the leading axes that they had."""
    from attn_cli.core.arguments import read_bias, read_mask, read_matrices, read_scale

    scale = read_scale(scale)
    Q, K, V = read_matrices(Q, K, V)
    lead = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    shape = (*lead, Q.shape[-2], K.shape[-2])
    Q, K, V = (np.broadcast_to(M, (*lead, *M.shape[-2:])) for M in (Q, K, V))
    mask_at = read_mask(mask, shape)
    biases = None if bias is None else read_bias(bias, shape, Q.dtype)
    scale = scale_of("scaled", Q.shape[-1]) if scale is None else scale
    heads = [
        HeadInput(Q[at], K[at], V[at], mask_at(at), None if biases is None else biases[at], scale=scale)
        for at in np.ndindex(*lead)
    ]
    return heads, lead


def _small_or_readable(head: HeadInput, with_weights: bool) -> tuple[Array | None, Array]:
    """Return one head's weights, where they are wanted, and its output."""
    is_small = len(head.Q) * len(head.K) <= fast.SMALL
    if is_small and head.bias is None and head.scale is not None:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            done = fast.small(head.Q, head.K, head.V, head.scale, head.allowed(range(len(head.Q))))
        if done is not None:
            return done if with_weights else (None, done[1])
    if with_weights:
        steps = head.steps(range(len(head.Q)))
        return steps.weights, steps.output
    return None, np.concatenate([steps.output for steps in readable_blocks(head)])
