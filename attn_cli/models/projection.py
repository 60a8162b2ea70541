"""What turns word vectors into queries, keys and values: identity, random or given projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attention import project, to_digits
from attn_cli.errors import InputError, UsageError
from attn_cli.models.relative_position import Position
from attn_cli.trace.trace import Projected

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given
    from attn_cli.io.array_types import Array

MOST_WEIGHTS = 100_000_000


class HeadWeights(NamedTuple):
    """One head's weights, as its layout has them: W (d, d_k), or (d_k, d) in out-in; b (d_k,) or None."""

    name: str
    W_q: Array
    W_k: Array
    W_v: Array
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    position: Position | None = None

    def queries(self, X: Array, layout: str) -> Array:
        """Return Q (n, d_k) of X (n, d)."""
        return project(X, self.W_q, self.b_q, layout)

    def keys(self, X: Array, layout: str) -> Array:
        """Return K (n, d_k) of X (n, d)."""
        return project(X, self.W_k, self.b_k, layout)

    def values(self, X: Array, layout: str) -> Array:
        """Return V (n, d_v) of X (n, d)."""
        return project(X, self.W_v, self.b_v, layout)


class Projection(NamedTuple):
    """The heads of one attention layer, and W_o where their outputs are joined."""

    about: Projected
    heads: tuple[HeadWeights, ...]
    W_o: Array | None = None
    b_o: Array | None = None

    def joined(self, outputs: list[Array]) -> Array | None:
        """Return the heads' outputs side by side, times W_o, (n_q, d_model); None without a W_o."""
        if self.W_o is None:
            return None
        side_by_side = np.concatenate(outputs, axis=-1)
        rows, rule = side_by_side.shape[-1], self.about.layout or "in-out"
        if self.W_o.shape[0 if rule == "in-out" else 1] != rows:
            raise InputError(
                f"W_o has shape {self.W_o.shape}, but the heads' outputs side by side have {rows} columns."
            )
        made = self.W_o.shape[1 if rule == "in-out" else 0]
        if self.b_o is not None and len(self.b_o) != made:
            raise InputError(f"b_o has {len(self.b_o)} numbers, but W_o makes {made}.")
        with np.errstate(over="ignore", invalid="ignore"):
            joined = project(side_by_side, self.W_o, self.b_o, rule)
        if not np.isfinite(joined).all():
            raise InputError("The outputs times W_o are more than a number can hold.", "Scale them down.")
        return joined


def rounded(projection: Projection, digits: int) -> Projection:
    """Return the projection with every weight, bias and position term rounded to so many digits."""

    def short(M: Array | None) -> Array | None:
        return None if M is None else to_digits(M, digits)

    heads = tuple(
        HeadWeights(
            head.name,
            to_digits(head.W_q, digits),
            to_digits(head.W_k, digits),
            to_digits(head.W_v, digits),
            short(head.b_q),
            short(head.b_k),
            short(head.b_v),
            head.position
            and Position(to_digits(head.position.R, digits), to_digits(head.position.b, digits)),
        )
        for head in projection.heads
    )
    return Projection(projection.about, heads, short(projection.W_o), short(projection.b_o))


def identity(d: int, heads: int) -> Projection:
    """Return the projection that changes nothing: Q = K = V = X, its columns split among the heads."""
    _check_size(d)
    eye = np.eye(d)
    parts = np.split(eye, _share(d, heads) * np.arange(1, heads), axis=1)
    made = tuple(HeadWeights(str(h), W, W, W) for h, W in enumerate(parts))
    return Projection(Projected("identity", "identity", "in-out", None, None), made)


def random(d: int, heads: int, seed: int) -> Projection:
    """Return heads of normal random weights of variance 1/d; a head's depend on seed and number alone."""
    _check_size(d)
    d_k = _share(d, heads)
    made = []
    for h in range(heads):
        draw = np.random.default_rng([seed, h])
        W_q, W_k, W_v = (draw.standard_normal((d, d_k)) / np.sqrt(d) for _ in range(3))
        made.append(HeadWeights(str(h), W_q, W_k, W_v))
    return Projection(Projected("random", "random", "in-out", seed, None), tuple(made))


def from_given(given: Given, heads: int, layout: str, source: str) -> Projection:
    """Return the heads that given W_q, W_k, W_v (and b, W_o) make; their output columns are split."""
    axis = 1 if layout == "in-out" else 0
    missing = [name for name in ("W_q", "W_k", "W_v") if given.get(name) is None]
    if missing:
        raise InputError(f"{given.name} holds no {' and no '.join(missing)}.", "Give W_q, W_k and W_v.")
    W_q, W_k, W_v = (given.arrays[name] for name in ("W_q", "W_k", "W_v"))
    if W_q.shape[axis] != W_k.shape[axis]:
        raise InputError(
            f"W_q has shape {W_q.shape} and W_k {W_k.shape}: queries and keys must have the same length d_k."
        )
    parts = [split(W, heads, axis) for W in (W_q, W_k, W_v)]
    biases = [_split_bias(given, name, heads) for name in ("b_q", "b_k", "b_v")]
    for (name, bias), W in zip(zip(("b_q", "b_k", "b_v"), biases, strict=True), parts, strict=True):
        if bias[0] is not None and bias[0].shape[0] != W[0].shape[axis]:
            n, W_name = len(given.arrays[name]), name.replace("b", "W")
            raise InputError(
                f"{name} has {n} numbers and {W_name} shape {given.arrays[W_name].shape}: with layout {layout}, "
                f"{name} needs one number for each {'column' if axis else 'row'} of {W_name}."
            )
    d_k = parts[0][0].shape[axis]
    positions: Sequence[Position | None] = given_positions(given, heads, d_k) or [None] * heads
    made = tuple(
        HeadWeights(
            str(h),
            parts[0][h],
            parts[1][h],
            parts[2][h],
            biases[0][h],
            biases[1][h],
            biases[2][h],
            positions[h],
        )
        for h in range(heads)
    )
    about = Projected(source, given.name, layout, None, None)
    return Projection(about, made, given.get("W_o"), given.get("b_o"))


def given_positions(given: Given, heads: int, d_k: int) -> list[Position] | None:
    """Return each head's position term, as attn's own JSON holds it; None where there is none."""
    R, b = given.get("position_vectors"), given.get("position_biases")
    if R is None or b is None:
        return None
    if R.shape != (heads, b.shape[1], d_k) or len(b) != heads or b.shape[1] % 2 == 0:
        raise InputError(
            f"{given.name}: position_vectors {R.shape} and position_biases {b.shape} do not fit {heads} heads of {d_k}."
        )
    return [Position(R[h], b[h]) for h in range(heads)]


def _check_size(d: int) -> None:
    if d * d > MOST_WEIGHTS:
        raise InputError(
            f"Vectors of {d:,} numbers would need weights of {d * d:,} numbers.",
            "Use at most 10,000 (--dim).",
        )


def _share(d: int, heads: int) -> int:
    if d % heads:
        raise UsageError(
            f"{d} numbers cannot be shared equally among {heads} heads.",
            dividing(d),
            option="--heads",
        )
    return d // heads


def dividing(d: int) -> str:
    """Return a sentence with the numbers of heads that can share d numbers equally."""
    return f"Heads that divide {d}: {', '.join(str(n) for n in range(1, d + 1) if d % n == 0)}."


def split(W: Array, heads: int, axis: int) -> list[Array]:
    """Split W (or Q, K, V) into equal shares for the heads, along `axis`."""
    return np.split(W, _share(W.shape[axis], heads) * np.arange(1, heads), axis=axis)


def _split_bias(given: Given, name: str, heads: int) -> list[Array | None]:
    bias = given.get(name)
    return [None] * heads if bias is None else [*split(bias, heads, 0)]
