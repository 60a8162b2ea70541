"""What turns word vectors into queries, keys and values: identity, random or given projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from attn_cli.core.attention import project
from attn_cli.core.heads import HeadWeights, Position
from attn_cli.errors import InputError, UsageError, refuse_input
from attn_cli.io.types import Array, NamedTuple
from attn_cli.settings import LIKENESS
from attn_cli.trace import Projected

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given

Part = TypeVar("Part")
LENGTHEN, KIND = 5, 4  # of likeness: what each query is multiplied by, and what its kind of word adds to that
MOST_WEIGHTS = 100_000_000
WHOLE = 2.0**52  # from here on, a double has no digits after the point


class Projection(NamedTuple):
    """The heads of one attention layer, and W_o (heads x d_v, d_model) where their outputs are joined.

    All weights stand as in x W, whatever the layout of the file: `about.layout` only says how to show them.
    """

    about: Projected
    heads: tuple[HeadWeights, ...]
    W_o: Array | None = None
    b_o: Array | None = None

    @property
    def output_weights_as_given(self) -> Array | None:
        """W_o in the layout in which it came."""
        return self.W_o.T if self.W_o is not None and self.about.layout == "out-in" else self.W_o

    def joined(self, outputs: list[Array]) -> Array | None:
        """Return the heads' outputs side by side, times W_o, (n_q, d_model); None without a W_o."""
        if self.W_o is None:
            return None
        side_by_side = np.concatenate(outputs, axis=-1)
        columns = side_by_side.shape[-1]
        shape = self.W_o.shape if self.about.layout != "out-in" else self.W_o.shape[::-1]
        said = f"W_o has shape {shape}, but the heads' outputs side by side have {columns} columns."
        refuse_input(len(self.W_o) != columns, said)
        if self.b_o is not None and len(self.b_o) != self.W_o.shape[1]:
            raise InputError(f"b_o has {len(self.b_o)} numbers, but W_o makes {self.W_o.shape[1]}.")
        with np.errstate(over="ignore", invalid="ignore"):
            joined = project(side_by_side, self.W_o, self.b_o)
        if not np.isfinite(joined).all():
            raise InputError("The outputs times W_o are more than a number can hold.", "Scale them down.")
        return joined


def to_digits(M: Array, digits: int) -> Array:
    """Return M in float64, rounded to so many digits after the point.

    >>> to_digits(np.array([0.126, -0.001]), 2).tolist()
    [0.13, 0.0]
    """
    M = M.astype(np.float64)
    fine = np.abs(M) < WHOLE
    return np.where(fine, np.round(np.where(fine, M, 0), digits) + 0.0, M)  # the sum makes -0.0 a plain zero


def rounded(projection: Projection, digits: int) -> Projection:
    """Return the projection with every weight, bias and position term rounded to so many digits."""

    def short(M: Array | None) -> Array | None:
        return None if M is None else to_digits(M, digits)

    heads = []
    for name, W_q, W_k, W_v, b_q, b_k, b_v, position in projection.heads:
        W_q, W_k, W_v = (to_digits(M, digits) for M in (W_q, W_k, W_v))
        term = position and Position(*(to_digits(M, digits) for M in position))
        heads.append(HeadWeights(name, W_q, W_k, W_v, short(b_q), short(b_k), short(b_v), term))
    return Projection(projection.about, tuple(heads), short(projection.W_o), short(projection.b_o))


def identity(d: int, heads: int) -> Projection:
    """Return the projection that changes nothing: Q = K = V = X, its columns split among the heads."""
    _check_size(d)
    made = tuple(HeadWeights(str(h), W, W, W) for h, W in enumerate(split(np.eye(d), heads, 1)))
    return Projection(Projected("identity", "identity", "in-out"), made)


def random(d: int, heads: int, seed: int) -> Projection:
    """Return heads of normal random weights of variance 1/d; a head's depend on seed and number alone."""
    _check_size(d)
    d_k = _share(d, heads)
    made = []
    for h in range(heads):
        draw = np.random.default_rng([seed, h])
        made.append(HeadWeights(str(h), *draw.standard_normal((3, d, d_k)) / np.sqrt(d)))
    return Projection(Projected("random", "random", "in-out", seed), tuple(made))


def likeness(U: Array) -> Projection:
    """Return the head whose words look for words of like meaning: W_q = 5 (I + 4 U U^T), and W_k = W_v = I.

    The columns of U (d, directions) are those that tell kinds of words apart, such as nouns from verbs:
    `python -m data.making likeness` finds them, and tries the two numbers.
    """
    W, U = np.eye(len(U)), U.astype(np.float64)
    head = HeadWeights(LIKENESS, LENGTHEN * (W + KIND * U @ U.T), W, W)
    return Projection(Projected("learned", LIKENESS, "in-out", None, 0), (head,))


def from_given(given: Given, heads: int, layout: str, source: str) -> Projection:
    """Return the heads that given W_q, W_k, W_v (and b, W_o) make; their output columns are split.

    The given matrices are turned to x W here, once: from here on `layout` is a label.
    """
    axis = 1 if layout == "in-out" else 0
    missing = [name for name in ("W_q", "W_k", "W_v") if given.get(name) is None]
    if missing:
        raise InputError(f"{given.name} holds no {' and no '.join(missing)}.", "Give W_q, W_k and W_v.")
    W_q, W_k = given.arrays["W_q"], given.arrays["W_k"]
    kv_heads = kv_head_count(given, heads)
    if W_q.shape[axis] * kv_heads != W_k.shape[axis] * heads:
        ours, theirs = (f" of {heads} heads", f" of {kv_heads}") if kv_heads < heads else ("", "")
        said = f"W_q{ours} has shape {W_q.shape} and W_k{theirs} {W_k.shape}"
        raise InputError(f"{said}: queries and keys must have the same length d_k.")
    parts, biases = [], []
    for name, W_name, n in (("b_q", "W_q", heads), ("b_k", "W_k", kv_heads), ("b_v", "W_v", kv_heads)):
        W, bias = given.arrays[W_name], given.get(name)
        parts.append(shared(split(in_out(W, layout), n, 1), heads))
        biases.append([None] * heads if bias is None else shared(split(bias, n, 0), heads))
        if bias is not None and len(bias) != W.shape[axis]:
            needed = f"{name} needs one number for each {'column' if axis else 'row'} of {W_name}."
            said = f"{name} has {len(bias)} numbers and {W_name} shape {W.shape}: with layout {layout}"
            raise InputError(f"{said}, {needed}")
    d_k = parts[0][0].shape[1]
    positions: Sequence[Position | None] = given_positions(given, heads, d_k) or [None] * heads
    columns = zip(*parts, *biases, positions, strict=True)
    made = tuple(HeadWeights(str(h), *column) for h, column in enumerate(columns))
    W_o, about = given.get("W_o"), Projected(source, given.name, layout)
    return Projection(about, made, None if W_o is None else in_out(W_o, layout), given.get("b_o"))


def kv_head_count(given: Given, heads: int) -> int:
    """Return how many heads of keys and values there are; raise InputError where `heads` cannot share them."""
    kv_heads = given.kv_heads or heads
    said = f"{given.name}: {heads} heads of Q cannot share {kv_heads} of K and V."
    refuse_input(heads % kv_heads, said, "heads needs to be a multiple of kv_heads.")
    return kv_heads


def shared(parts: Sequence[Part], heads: int) -> list[Part]:
    """Return one part for each head, where each part serves equally many heads in a row.

    >>> shared(["a", "b"], 4)
    ['a', 'a', 'b', 'b']
    """
    return [part for part in parts for _ in range(heads // len(parts))]


def in_out(W: Array, layout: str | None) -> Array:
    """Return W as in x W, turned where the layout says that it came as in W x."""
    return W.T if layout == "out-in" else W


def given_positions(given: Given, heads: int, d_k: int) -> list[Position] | None:
    """Return each head's position term, as attn's own JSON holds it; None where there is none."""
    R, b = given.get("position_vectors"), given.get("position_biases")
    if R is None or b is None:
        return None
    if R.shape != (heads, b.shape[1], d_k) or len(b) != heads or b.shape[1] % 2 == 0:
        said = f"{given.name}: position_vectors {R.shape} and position_biases {b.shape} do not fit"
        raise InputError(f"{said} {heads} heads of {d_k}.")
    return [Position(R[h], b[h]) for h in range(heads)]


def _check_size(d: int) -> None:
    need = f"Vectors of {d:,} numbers would need weights of {d * d:,} numbers."
    refuse_input(d * d > MOST_WEIGHTS, need, "Use at most 10,000 (--dim).")


def _share(d: int, heads: int) -> int:
    if d % heads:
        what = f"{d} numbers cannot be shared equally among {heads} heads."
        raise UsageError(what, dividing(d), "--heads")
    return d // heads


def dividing(d: int) -> str:
    """Return a sentence with the numbers of heads that can share d numbers equally."""
    return f"Heads that divide {d}: {', '.join(str(n) for n in range(1, d + 1) if d % n == 0)}."


def split(W: Array, heads: int, axis: int) -> list[Array]:
    """Split W (or Q, K, V) into equal shares for the heads, along `axis`."""
    _share(W.shape[axis], heads)
    return np.split(W, heads, axis=axis)
