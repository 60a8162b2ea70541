"""Rows of weights: one query's way to them, why its strongest key leads, and diagnostics of how spread out they are."""

from __future__ import annotations

import math
import sys
from functools import cached_property, cmp_to_key

import numpy as np

from attn_cli.io.types import Array, Bools, NamedTuple, dataclass

LARGEST_ROUNDED = 1000.0  # larger scores tie as these do: the softmax sees their differences alone
UNIFORM_RATIO = 1.25  # the largest weight over the smallest: up to here a row is nearly uniform
TARGET_SHARE = 0.95
STEPS = 100  # of Newton's method; ten or twenty are enough
TIE_TOLERANCE = 1e-12  # scores closer than this share the first place
LONGER = 1.001
LARGEST_GAP = 1e300  # of two scores whose difference no number holds


class Because(NamedTuple):
    """How far a query's winner is ahead of one rival; places count in the whole text.

    content + distance is the difference of the two scores that the softmax gets. Where vectors are rotated by position
    and scores are capped, it is the difference before the cap, which keeps their order.
    """

    query: str
    query_index: int
    winner: str
    winner_index: int
    rival: str
    rival_index: int
    content: float  # scaled (and capped) score of the winner less that of the rival
    distance: float | None  # the winner's position score less the rival's; None without a position term
    decided: str  # content, distance or mask; both where these are equal, neither where the scores are

    @property
    def lead(self) -> float:
        """How much higher the winner's score is."""
        return _kept(self.content + (self.distance or 0.0))


@dataclass(frozen=True, eq=False, repr=False)
class Row:
    """One query's way to its weights, number by number; a masked key has no exp and no weight.

    Where scores are capped, `capped` is the capped content, or the capped sum of content and distance where these are
    one score (`is_rotated`). weight = exp / total, where exp = e^(masked score - shift). The shift is 0 unless e^score
    would be unwieldy (beyond e^30); it cancels out.
    """

    query: int
    query_token: str
    key_tokens: tuple[str, ...]
    rivals: tuple[int, ...]  # the keys that the winner is to be compared with, beside the runner-up
    scores: list[float]
    scaled: list[float]
    terms: list[list[float]] | None  # the two that the position is the sum of: of the query, and of the keys
    position: list[float] | None
    capped: list[float] | None
    is_rotated: bool
    masked: list[float]  # -inf where masked
    shift: float
    exps: list[float]
    total: float  # of the exps, and of a sink's
    sunk: float  # exp of the sink's score; 0 where there is none
    weights: list[float]
    rounding: float  # the relative difference up to which two scores tie

    @property
    def content(self) -> list[float]:
        """What a key's content contributes to its score, beside its distance."""
        return self.scaled if self.capped is None or self.is_rotated else self.capped

    @property
    def summed(self) -> list[float]:
        """The sums of content and distance, masked keys' too."""
        return [a + b for a, b in zip(self.content, self.position or [0.0] * len(self.content), strict=True)]

    def is_masked(self, j: int) -> bool:
        """Return whether the query may not look at key j."""
        return self.masked[j] == -math.inf

    def lead(self, values: list[float], one: int, other: int) -> float:
        """Return how much larger the value of one key is than that of another; 0 where it is rounding alone.

        BLAS adds in different orders in different parts of a product: the scores of identical keys may differ.
        """
        by = values[one] - values[other]
        size = min(max(1.0, abs(values[one])), LARGEST_ROUNDED)
        return 0.0 if abs(by) <= self.rounding * size else by

    @cached_property
    def strongest(self) -> list[int]:
        """The keys that the query may look at, largest scores first; of those that tie, the first in the text."""

        def after(one: int, other: int) -> int:
            by = self.lead(self.masked, other, one)
            return (1 if by > 0 else -1) if by else one - other

        allowed = (j for j in range(len(self.masked)) if not self.is_masked(j))
        order = sorted(allowed, key=lambda j: -self.masked[j])  # so that few are left to compare
        return sorted(order, key=cmp_to_key(after))

    def because(self) -> list[Because]:
        """Return why the query looks at its strongest key and not at the runner-up, nor at each of `rivals`.

        Empty where it may look at nothing.
        """
        if self.total == 0:
            return []
        winner, *others = self.strongest
        rivals = dict.fromkeys([*others[:1], *self.rivals])
        return [self.against(winner, j) for j in rivals if j != winner]

    def against(self, winner: int, rival: int) -> Because:
        """Return how far the winner is ahead of a rival; what is too large for a number is the largest."""
        content = _kept(self.lead(self.content, winner, rival))
        distance = None if self.position is None else _kept(self.lead(self.position, winner, rival))
        if self.is_masked(rival):
            decided = "mask"
        elif content + (distance or 0.0) == 0:
            decided = "neither"
        elif distance is None or content > distance:
            decided = "content"
        else:
            decided = "both" if distance == content else "distance"
        chosen, other = self.key_tokens[winner], self.key_tokens[rival]
        return Because(self.query_token, self.query, chosen, winner, other, rival, content, distance, decided)


def _kept(difference: float) -> float:
    """Return a difference, or the largest number there is where it overflows."""
    return max(-sys.float_info.max, min(sys.float_info.max, difference))


class Diagnosis(NamedTuple):
    """The diagnostics of one query's row; None where one does not apply."""

    entropy: float | None  # bits; None where everything is masked
    most: float | None  # bits: log2 of how many keys are allowed
    nearly_uniform: bool
    longer: int | None  # the key that won by its length ...
    nearer: int | None  # ... over this one, whose direction is nearer to the query's
    temperature_95: float | None  # at this --temperature the strongest key has 95 %


def entropy(weights: Array) -> Array:
    """Return the entropy of each row of weights, in bits: 0 for one key alone, log2 n for n equal weights.

    H = -sum of w log2 w (Shannon 1948, "A Mathematical Theory of Communication", section 6).

    Weights that do not sum to one are divided by their sum: it tells how the keys share what a sink leaves to them.

    >>> entropy(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.25, 0.25, 0.0]])).tolist()
    [1.5, 0.0, 1.0]
    """
    bits: Array = -(weights * np.log2(np.where(weights > 0, weights, 1.0))).sum(axis=-1)
    total = weights.sum(axis=-1)
    total = np.where(total > 0, total, 1.0)
    return np.maximum(bits / total + np.log2(total), 0)  # rounding may leave less than nothing


def temperatures(scores: Array, temperature: float, share: float = TARGET_SHARE) -> list[float | None]:
    """Return, for each row, the temperature at which its largest score has this share of the softmax.

    `scores` (rows, n_k) go to the softmax now, divided by `temperature` already; -inf is masked. None where
    no temperature does it: one key has all, or several share the first place.

    >>> found = temperatures(np.array([[math.log(19.0), 0.0], [1.0, 1.0]]), 1.0)
    >>> round(found[0], 12), found[1]
    (1.0, None)
    """
    if scores.shape[1] < 2:
        return [None] * len(scores)
    ordered = np.sort(np.where(np.isfinite(scores), scores, -np.inf), axis=-1)[:, ::-1]
    largest = ordered[:, :1]
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.minimum(largest - ordered[:, 1:], LARGEST_GAP)
    is_there = np.isfinite(ordered[:, 1:])
    gaps = np.where(is_there, gaps, 0.0)
    leads = gaps[:, 0] > TIE_TOLERANCE * np.maximum(1.0, np.abs(largest[:, 0]))
    rows, x = np.flatnonzero(is_there[:, 0] & leads), np.zeros(len(scores))
    x[rows] = _sharpness(gaps[rows], is_there[rows], share)
    return [temperature / one if one > 0 else None for one in x.tolist()]


def _sharpness(gaps: Array, is_there: Bools, share: float) -> Array:
    """Return what each row's scores must be multiplied by, (rows,), for the largest to get this share.

    `gaps` (rows, n) lie between the largest score and the others; those that are not there do not count.
    log(sum of exp(-gap x)) falls and is convex in x, so Newton's steps from 0 never pass the root.
    """
    target = math.log(1 / share - 1)  # of the others' exps together, when the largest's is 1
    least, beyond = gaps[:, 0], gaps - gaps[:, :1]
    found, left = np.zeros(len(gaps)), np.arange(len(gaps))
    for _ in range(STEPS):
        with np.errstate(under="ignore", over="ignore"):
            x = found[left]
            exps = np.where(is_there, np.exp(-beyond * x[:, np.newaxis]), 0.0)
            total = exps.sum(axis=-1)
            error = np.log(total) - least * x - target
            step = error * total / (gaps * exps).sum(axis=-1)
        found[left] = x + step
        goes_on = np.abs(step) > 1e-15 * found[left]
        if not goes_on.any():
            break
        left, gaps, beyond, least, is_there = (M[goes_on] for M in (left, gaps, beyond, least, is_there))
    return found


def decided_by_length(scores: Array, K: Array, allowed: Bools) -> list[tuple[int, int] | None]:
    """Return (winner, nearest) for each row whose largest q·k is a longer key's than the one nearest in direction.

    `scores` (rows, n_k) are dot products with the keys K (n_k, d_k); those not allowed do not count.
    """
    lengths, rows = np.linalg.norm(K, axis=-1), np.arange(len(scores))
    may = allowed & (lengths > 0)
    dots = np.where(may, scores, -np.inf)
    along = np.where(may, scores / np.where(lengths > 0, lengths, 1.0), -np.inf)  # cosine x |q|
    winner, nearest = dots.argmax(axis=1), along.argmax(axis=1)
    clearly = along[rows, nearest] > along[rows, winner] * (1 + 1e-9)
    by_length = clearly & (lengths[winner] > LONGER * lengths[nearest])
    columns = (winner.tolist(), nearest.tolist(), by_length.tolist())
    return [(won, near) if is_so else None for won, near, is_so in zip(*columns, strict=True)]


def diagnose(
    weights: Array,
    allowed: Bools | None,
    masked_scores: Array | None,
    temperature: float,
    dots: Array | None = None,
    K: Array | None = None,
) -> list[Diagnosis]:
    """Return a Diagnosis of each row of weights (rows, n_k).

    `masked_scores` are what the softmax was taken of, None where nobody knows; `dots` are the products q·k with
    the keys K, None where more than they decided.
    """
    may = np.ones(weights.shape, dtype=np.bool_) if allowed is None else allowed
    most, least = (np.where(may, weights, -np.inf).max(axis=-1), np.where(may, weights, np.inf).min(axis=-1))
    columns = (
        entropy(weights).tolist(),
        may.sum(axis=-1).tolist(),
        (most <= UNIFORM_RATIO * least).tolist(),
        [None] * len(weights) if dots is None or K is None else decided_by_length(dots, K, may),
        [None] * len(weights) if masked_scores is None else temperatures(masked_scores, temperature),
    )
    found = []
    for bits, n, even, pair, at in zip(*columns, strict=True):
        longer, nearer = pair or (None, None)
        own = Diagnosis(bits, math.log2(n or 1), even and n > 1, longer, nearer, at)
        found.append(own if n else Diagnosis(None, None, False, None, None, None))
    return found
