"""What becomes of a layer's values after attention: W_o joins the heads, a residual is added, a norm may follow.

The length of what each key adds to a query is that of weight · v W_o (Kobayashi et al. 2020, "Attention is Not Only a
Weight: Analyzing Transformers with Vector Norms"), or of all heads' with the residual and the norm, whose scale is
held as the whole sum has it (Kobayashi et al. 2021, "Incorporating Residual and Normalization Layers").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_cli.io.array_types import Array
from attn_cli.io.classes import NamedTuple
from attn_cli.models.logit_parts import FrozenNorm

BLOCK = 1 << 22  # numbers of the heads' parts that are held at once
Freeze = Callable[[Array], FrozenNorm]  # from whole sums (n, d) to the norm that they go through


class Joining(NamedTuple):
    """What follows the heads of a layer."""

    W_o: Array | None  # (heads x d_v, d), as in x W; None where nothing joins the heads
    b_o: Array | None = None
    residual: Array | None = None  # (n_q, d), what the joined heads are added to; None where there is none
    inner: Freeze | None = None  # of the joined heads, before they are added (Gemma)
    outer: Freeze | None = None  # of the sum
    counts: float = 1.0  # times which the joined heads are added

    def part(self, v: Array, head: int, heads: int) -> Array:
        """Return v W_o of one of so many heads, (n, d), of its values v (n, d_v); v where nothing joins the heads."""
        return v if self.W_o is None else v @ np.split(self.W_o, heads)[head]

    def lengths_of_all(self, weights: Array, values: Array, outputs: Array) -> Array:
        """Return the length of what each key adds to a query by all heads together, with the residual, (n, n).

        `weights` (h, n, n), `values` and `outputs` (h, n, d_v) are those of all heads. A query's own x is added to
        what it adds to itself. Biases belong to no key.
        """
        assert self.residual is not None and self.W_o is not None
        own, norms, (h, n, _) = self.residual, list[FrozenNorm](), values.shape
        joined = np.concatenate([*outputs], axis=1) @ self.W_o + (0 if self.b_o is None else self.b_o)
        if self.inner is not None:
            norms.append(self.inner(joined))
            joined = norms[-1].forward(joined)
        if self.outer is not None:
            norms.append(self.outer(self.counts * joined + own))
            own = norms[-1]._replace(shift=None).forward(own)
        factor = self.counts / np.prod([np.ones((n, 1)), *(norm.scale for norm in norms)], axis=0)
        found: Array = np.empty((n, n))
        step = max(1, BLOCK // (h * own.shape[1]))
        for keys in (slice(start, start + step) for start in range(0, n, step)):
            # (keys, h, d)
            made = np.stack([self.part(v[keys], one, h) for one, v in enumerate(values)], axis=1)
            for norm in norms:
                made = norm._replace(shift=None, scale=np.ones(1)).forward(made)
            by_key = weights[:, :, keys].transpose(2, 1, 0)  # (keys, n, h)
            squares = (by_key @ (made @ made.transpose(0, 2, 1)) * by_key).sum(axis=-1)
            found[:, keys] = np.sqrt(np.maximum(squares.T, 0)) * factor
            at = np.arange(n)[keys]
            itself = np.einsum("jh,jhd->jd", by_key[np.arange(len(at)), at], made) * factor[at] + own[at]
            found[at, at] = np.linalg.norm(itself, axis=-1)
        return found
