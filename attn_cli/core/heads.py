"""One head ready to attend, and its rows the readable way, by blocks where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import fast
from attn_cli.core.attention import Steps
from attn_cli.core.checks import checked_attention
from attn_cli.core.masks import AnyMask
from attn_cli.core.scores import scale_of, score_named
from attn_cli.errors import NotFinite

if TYPE_CHECKING:
    from attn_cli.core.tiles import Tiles
    from attn_cli.io.array_types import Array, Bools, Ints

BLOCK_CELLS = 1 << 20  # scores that the readable way holds at once


class HeadInput(NamedTuple):
    """One head, ready to attend.

    Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v). To the scaled scores, which `softcap` bounds, is added `bias` (n_q, n_k),
    in which -inf masks, and what depends on the clipped distance alone, `by_distance` (n_q, 2 reach + 1): from `reach`
    or more keys to the left to `reach` or more to the right.
    """

    Q: Array
    K: Array
    V: Array
    mask: AnyMask | None = None
    bias: Array | None = None
    by_distance: Array | None = None
    score: str = "scaled"
    scale: float | None = None
    softcap: float | None = None
    steady: bool = False  # whether every process must find the same digits, whatever is faster there

    def allowed(self, rows: Sequence[int] | Ints) -> Bools | None:
        """Return the mask of these rows, (rows, n_k); None where there is none."""
        return None if self.mask is None else self.mask.rows(rows, 0, len(self.K))

    def added(self, rows: Ints) -> Array | None:
        """Return what is added to the scaled scores of these rows, (rows, n_k)."""
        bias = None if self.bias is None else self.bias[rows]
        if self.by_distance is None:
            return bias
        term = spread(self.by_distance[rows], rows, len(self.K))
        return term if bias is None else term + bias

    def steps(self, rows: Sequence[int] | Ints) -> Steps:
        """Return every step of these rows, the readable way."""
        at = np.asarray(rows, dtype=np.intp)
        try:
            return checked_attention(
                self.Q[at],
                self.K,
                self.V,
                self.allowed(at),
                self.added(at),
                self.scale,
                self.score,
                self.softcap,
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

        return Tiles(Q, K, scale, self.mask, self.bias, self.by_distance, self.softcap, self.steady)


def spread(by_distance: Array, rows: Ints, n_k: int) -> Array:
    """Return what depends on the clipped distance, (..., rows, 2 reach + 1), for each of n_k keys: (..., rows, n_k)."""
    reach = by_distance.shape[-1] // 2
    distance = np.clip(np.arange(n_k) - rows[:, np.newaxis], -reach, reach)
    term: Array = by_distance[..., np.arange(len(rows))[:, np.newaxis], distance + reach]
    return term


def blocks_of_rows(head: HeadInput, cells: int | None = None) -> Iterator[range]:
    """Yield the rows of a head, as many at a time as have so many scores (BLOCK_CELLS), and one at least."""
    n_q, size = len(head.Q), max(1, (cells or BLOCK_CELLS) // len(head.K))
    for start in range(0, n_q, size):
        yield range(start, min(start + size, n_q))


def readable_blocks(head: HeadInput) -> Iterator[Steps]:
    """Yield the steps of some rows after the other, the readable way."""
    for rows in blocks_of_rows(head):
        yield head.steps(rows)
