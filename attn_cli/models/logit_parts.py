"""What each part of a model adds to a logit: direct logit attribution, from one pass and one way back.

A word's vector goes up through sums and norms. With each norm's scale held as it was, and each activation above the
layers as a ratio, all of that is linear: so the row of the output table that makes the logit is taken back down,
from where each part was added, and the part's value is its product with that row. The parts sum to the logit.
The last norm's gain and centering are in every part: without them, the figures are not of this model's logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from attn_cli.io.types import Array, NamedTuple, dataclass

MLP = -1  # among a layer's heads: the network after them


class FrozenNorm(NamedTuple):
    """A norm as it acted on rows x (..., d): (x - mean, where it `centres`) gain / scale + shift, the scale held."""

    gain: Array
    shift: Array | None
    scale: Array  # (..., 1)
    centres: bool

    @classmethod
    def of(cls, x: Array, gain: Array, shift: Array | None, eps: float, centres: bool) -> FrozenNorm:
        """Return the norm as it acts on x (..., d)."""
        centred = x - x.mean(axis=-1, keepdims=True) if centres else x
        return cls(gain, shift, np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps), centres)

    def forward(self, x: Array) -> Array:
        """Return the normed rows."""
        centred = x - x.mean(axis=-1, keepdims=True) if self.centres else x
        normed: Array = centred * self.gain / self.scale
        return normed if self.shift is None else normed + self.shift

    def back(self, u: Array) -> Array:
        """Return the row that makes of the norm's input what u (d,) makes of its output, but for the shift."""
        scaled: Array = u * self.gain / self.scale
        return scaled - scaled.mean() if self.centres else scaled


class Part(NamedTuple):
    """What a part adds to a logit. A head's has its b_v in it; b_o is the attention's bias."""

    part: str
    value: float
    layer: int | None = None
    head: int | None = None
    attention: str | None = None  # self, masked or cross, of heads


class Heads(NamedTuple):
    """What a layer's heads gave at the place."""

    layer: int
    attention: str
    output: Array  # (h, d_v)
    weights: Array  # (h, n_k), of the place's row
    v: Array  # (h or fewer, n_k, d_v): once for heads in a row that share it
    joining: Callable[[], tuple[Array, Array | None]]  # W_o (h d_v, d) and b_o, read when they are wanted


# From the row above it to the row below it, and what it adds.
Step = Callable[[Array], tuple[Array, list[Part]]]


@dataclass(frozen=True, eq=False)
class Trail:
    """What the vector at one place of a text went through on its way up, from the first to the last."""

    place: int
    steps: list[Step] = field(default_factory=list)
    moved: dict[tuple[int, str], Array] = field(default_factory=dict)  # of a layer's heads and keys, (h, n_k)

    def row(self, X: Array) -> Array:
        """Return the place's row (d,) of X (n, d) or (1, n, d)."""
        found: Array = X.reshape(-1, X.shape[-1])[self.place].astype(np.float64)
        return found

    def added(
        self, part: str, X: Array, layer: int | None = None, after: FrozenNorm | None = None, scale: float = 1
    ) -> None:
        """Note that this was added to the vector, times `scale`, through a norm `after` it where there is one."""
        made = self.row(X)

        def back(u: Array) -> tuple[Array, list[Part]]:
            own, shifts = _through(after, u * scale, layer)
            return u, [Part(part, float(made @ own), layer), *shifts]

        self.steps.append(back)

    def attended(self, heads: Heads, after: FrozenNorm | None = None, scale: float = 1) -> None:
        """Note that what these heads gave was joined and added, times `scale`, through a norm `after` it."""
        layer, attention, output, weights, v, joining = heads

        def back(u: Array) -> tuple[Array, list[Part]]:
            own, shifts = _through(after, u * scale, layer)
            W_o, b_o = joining()
            by_head = (W_o @ own).reshape(output.shape)
            values = (output * by_head).sum(axis=1)
            each = np.repeat(v, len(output) // len(v), axis=0)
            self.moved[layer, attention] = weights * np.einsum("hkd,hd->hk", each, by_head)
            parts = [Part("head", float(one), layer, h, attention) for h, one in enumerate(values)]
            if b_o is not None:
                parts.append(Part("attention bias", float(b_o @ own), layer, None, attention))
            return u, [*parts, *shifts]

        self.steps.append(back)

    def normed(self, norm: FrozenNorm, part: str = "norm bias", layer: int | None = None) -> None:
        """Note that the vector went through a norm, whose shift is this part."""
        self.steps.append(lambda u: _through(norm, u, layer, part))

    def mapped(self, W: Array, b: Array | None, part: str) -> None:
        """Note that the vector was multiplied with W (in, out), or by each number of W (d,), and that b was added."""

        def back(u: Array) -> tuple[Array, list[Part]]:
            return (W @ u if W.ndim == 2 else W * u), [] if b is None else [Part(part, float(b @ u))]

        self.steps.append(back)

    def parts(self, u: Array) -> list[Part]:
        """Return what each part adds to the product of the last vector with u (d,), in the order of the model."""
        found = list[Part]()
        for step in reversed(self.steps):
            u, parts = step(u)
            found[:0] = parts
        return found


def _through(
    norm: FrozenNorm | None, u: Array, layer: int | None, part: str = "norm bias"
) -> tuple[Array, list[Part]]:
    if norm is None:
        return u, []
    return norm.back(u), [] if norm.shift is None else [Part(part, float(norm.shift @ u), layer)]


class Cut(NamedTuple):
    """Heads that are knocked out: what they give is set to zero, or to its mean over the text; networks to zero."""

    heads: tuple[tuple[int, int], ...]  # of a layer, from 0, its head, or MLP
    kind: str  # self, masked or cross
    side: str = ""  # encoder or decoder
    with_mean: bool = False

    def of(self, layer: int, output: Array) -> Array:
        """Return the heads' outputs (..., h, n, d_v) of this layer with those that are knocked out."""
        if out := [head for one, head in self.heads if one == layer and head != MLP]:
            kept, output = output[..., out, :, :], output.copy()
            output[..., out, :, :] = kept.mean(axis=-2, keepdims=True) if self.with_mean else 0
        return output


# What becomes of a layer's values after attention: W_o joins the heads, a residual is added, a norm may follow

BLOCK = 1 << 22  # numbers of the heads' parts that are held at once
Freeze = Callable[[Array], FrozenNorm]  # from whole sums (n, d) to the norm that they go through


class Joining(NamedTuple):
    """What follows the heads of a layer.

    The length of what each key adds to a query is that of weight · v W_o (Kobayashi et al. 2020, "Attention is Not
    Only a Weight: Analyzing Transformers with Vector Norms"), or of all heads' with the residual and the norm, whose
    scale is held as the whole sum has it (Kobayashi et al. 2021, "Incorporating Residual and Normalization Layers").
    """

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
