"""What layers are built of: norms, activations, positions, attention. Arrays in float32, a batch of texts first."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.io.types import Array, Bools, Ints, NamedTuple

# Of x^12, ..., x^2, 1: a minimax fit to log(p / (1 - p)) / x, where p is the normal distribution's share below x
LOGIT = (3.6112291e-9, -2.6689265e-7, 7.938216e-6, -1.104803e-4, -6.626006e-5, 7.2668567e-2, 1.5957684)
BLOCK = 1 << 19  # scores at a time, of some rows of some heads and texts: they stay in the processor's cache
ROWS, RULED_ROWS = 256, 64  # of them: under a rule, keys that none of the rows may look at are left out
ALL = slice(None)
MODEST = 60.0  # exp of this does not overflow float32, and exp of its negative does not underflow


class Seen(NamedTuple):
    """Who may attend to whom, by a rule for n_k queries and keys; the queries are those from `first` on."""

    rule: Mask
    first: int
    real: Bools | None = None  # (b, n_k), False for padding


class Ready(NamedTuple):
    """What one layer's attention is computed from: b texts, h heads, n_q queries, n_k keys."""

    q: Array  # (b, h, n_q, d_k), rotated by their positions where the model does so
    k: Array  # (b, h, n_k, d_k), likewise
    v: Array  # (b, h, n_k, d_v)
    scale: float
    position: Array | None  # (1, h, n_q, n_k), added to the scaled scores for the distance
    softcap: float | None  # where there is one, c * tanh(score / c) limits the scores to -c..c
    mask: Seen | None  # None: everybody to everybody
    # Of the position, where it is the sum of two: of queries, and of keys (DeBERTa)
    terms: tuple[Array, ...] = ()
    slopes: Array | None = None  # (h,), by which the position falls with each place back (ALiBi)
    sinks: Array | None = None  # (h,), a score of each head that its rows have beside the keys', and no value

    def is_modest(self) -> bool:
        """Tell whether no score can be large: none is more than the product of its vectors' lengths."""
        if self.position is not None or self.sinks is not None:
            return False
        longest = [math.sqrt(np.square(M).sum(axis=-1).max()) for M in (self.q, self.k)]
        return min(math.prod(longest) * self.scale, self.softcap or math.inf) < MODEST

    def part(self, rows: slice, keys: slice = ALL, texts: slice = ALL, heads: slice = ALL) -> Ready:
        """Return what some queries, from `rows.start` on, attend with, and what of some keys, texts and heads."""
        mask, position = self.mask, self.position
        if mask is not None:
            real = None if mask.real is None else mask.real[texts, keys]
            mask = mask._replace(first=mask.first + rows.start, real=real)
        if position is not None:
            position = position[texts if len(position) > 1 else ALL, heads, rows, keys]
        sinks = None if self.sinks is None else self.sinks[heads]
        q, (k, v) = self.q[texts, heads, rows], (M[texts, heads, keys] for M in (self.k, self.v))
        return self._replace(q=q, k=k, v=v, position=position, mask=mask, sinks=sinks)


class Attended(NamedTuple):
    """What attention makes of it."""

    weights: Array  # (b, h, n_q, n_k)
    output: Array  # (b, h, n_q, d_v)


def attend(ready: Ready) -> Attended:
    """Compute attention; where a score is beyond float32, weights and output are NaN."""
    shape = *ready.q.shape[:3], ready.k.shape[2]
    weights = np.empty(shape, np.float32) if ready.mask is None else np.zeros(shape, np.float32)
    return Attended(weights, output_of(ready, weights))


def output_of(ready: Ready, weights: Array | None = None) -> Array:
    """Return what attention makes of the values (b, h, n_q, d_v); its weights are kept if there is a place for them.

    Some heads and rows at a time are computed from scores to output, while they are in the processor's cache: under a
    rule with the keys alone that some of these rows may look at.
    """
    (b, h, n_q, _), n_k, d_v = ready.q.shape, ready.k.shape[2], ready.v.shape[3]
    output: Array = np.empty((b, n_q, h, d_v), np.float32).transpose(0, 2, 1, 3)
    several = min(n_q, ROWS if ready.mask is None or ready.mask.rule.name == "none" else RULED_ROWS)
    texts, heads = (max(1, BLOCK // (several * n_k * one)) for one in (h, 1))
    modest, keys = ready.is_modest(), ALL
    hidden: list[tuple[slice, Bools]] = []
    for start in range(0, n_q, several):
        rows = slice(start, min(start + several, n_q))
        if ready.mask is not None:
            block = range(ready.mask.first + start, ready.mask.first + rows.stop)
            low, high, seen = ready.mask.rule.spans(block.start, block.stop)
            keys, hidden = slice(low, high), list(ready.mask.rule.hidden(block, low, high, seen))
        for text, head in product(range(0, b, texts), range(0, h, heads)):
            at = slice(text, text + texts), slice(head, head + heads)
            part, place = ready.part(rows, keys, *at), output[at][:, :, rows]
            shape = *part.q.shape[:3], part.k.shape[2]
            scores = np.empty(shape, np.float32) if weights is None else weights[at][:, :, rows, keys]
            _weigh(part, scores, hidden, modest)
            np.matmul(scores, part.v, out=place)
    return output


def _weigh(ready: Ready, scores: Array, hidden: list[tuple[slice, Bools]], modest: bool) -> None:
    """Fill `scores` (b, h, n_q, n_k) with weights; with NaN where a score is beyond float32."""
    np.matmul(ready.q * np.float32(ready.scale), np.swapaxes(ready.k, -1, -2), out=scores)
    if ready.position is not None:
        scores += ready.position
    if ready.softcap is not None:
        scores /= np.float32(ready.softcap)
        np.tanh(scores, out=scores)
        scores *= np.float32(ready.softcap)
    if not modest and not np.isfinite(scores).all():
        scores[:] = np.nan
    for columns, shut in hidden:
        np.copyto(scores[..., columns], np.float32(-np.inf), where=shut)
    if ready.mask is not None and ready.mask.real is not None:
        np.copyto(scores, np.float32(-np.inf), where=~ready.mask.real[:, None, None])
    softmax(scores, None if ready.sinks is None else ready.sinks[:, None, None], modest)


def softmax(scores: Array, sinks: Array | None = None, modest: bool = False) -> Array:
    """Return what the core's does, in the same memory; modest scores need no shift before exp."""
    largest = np.zeros((), np.float32)
    if not modest:
        largest = scores.max(axis=-1, keepdims=True)
        largest = largest if sinks is None else np.maximum(largest, sinks)
        scores -= np.where(np.isneginf(largest), 0, largest)
    np.exp(scores, out=scores)
    total = np.matmul(scores, np.ones(scores.shape[-1], np.float32))[..., None]
    if sinks is not None:
        total += np.exp(sinks - largest)
    scores /= np.where(total == 0, 1, total)
    return scores


def mask_of(real_keys: Bools | None, n_q: int, n_k: int, causal: bool, window: int | None) -> Seen | None:
    """Return who may attend to whom; None for everybody to everybody. Fewer queries than keys are the last ones.

    A window of w leaves a query the keys fewer than w places behind, or, where the mask is not causal, at most w
    places away on either side.
    """
    real = None if real_keys is None or real_keys.all() else real_keys
    name = "causal" if causal and n_q > 1 else "none"
    if window is not None and (n_k > window if causal else n_k - 1 > window):
        name = f"window:{window - 1}:0" if causal else f"window:{window}"
    return None if name == "none" and real is None else Seen(Mask(name, n_k, n_k), n_k - n_q, real)


# Norms


def layer_norm(x: Array, gain: Array, shift: Array | None, eps: float) -> Array:
    """Return each row with mean 0 and variance 1, times gain, plus shift (Ba, Kiros and Hinton 2016)."""
    normed: Array = x - x.mean(axis=-1, keepdims=True)
    normed /= np.sqrt((normed * normed).mean(axis=-1, keepdims=True) + np.float32(eps))
    normed *= gain
    if shift is not None:
        normed += shift
    return normed


def rms_norm(x: Array, gain: Array, shift: Array | None, eps: float) -> Array:
    """Return each row divided by its root mean square, times gain (Zhang and Sennrich 2019)."""
    normed: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(eps)) * gain
    return normed


NORMS: dict[str, Callable[[Array, Array, Array | None, float], Array]] = {
    "layer": layer_norm,
    "rms": rms_norm,
    # As Gemma stores it.
    "rms, gain less one": lambda x, gain, shift, eps: rms_norm(x, 1 + gain, shift, eps),
}


# Activations


@np.errstate(over="ignore")  # far below 0, 1 + e^-t is infinite, and x over it is 0
def gelu(x: Array) -> Array:
    """Return x times the normal distribution's share below x (Hendrycks and Gimpel 2016).

    The share is 1 / (1 + e^-t), where t is x times a polynomial of x^2: right to 7e-8, and to rounding.
    """
    square = x * x
    found = square * np.float32(-LOGIT[0])
    for factor in LOGIT[1:-1]:
        found -= np.float32(factor)
        found *= square
    found -= np.float32(LOGIT[-1])
    found *= x
    np.exp(found, out=found)
    found += np.float32(1)
    return np.divide(x, found, out=found)


def gelu_tanh(x: Array) -> Array:
    """Return the approximation of gelu by tanh."""
    slope = math.sqrt(2 / math.pi)
    curved = x * x
    curved *= np.float32(0.044715 * slope)
    curved += np.float32(slope)
    curved *= x
    np.tanh(curved, out=curved)
    curved += 1
    curved *= x
    curved *= np.float32(0.5)
    return curved


def logistic(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    found: Array = np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x))
    return found


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("gelu", "gelu_python"), gelu),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), gelu_tanh),
    "quick_gelu": lambda x: x * logistic(np.float32(1.702) * x),
    "relu": lambda x: np.maximum(x, 0),
    **dict.fromkeys(("silu", "swish"), lambda x: x * logistic(x)),
    "tanh": np.tanh,
}


class Clamp(NamedTuple):
    """The gate of GPT-OSS: x up to a limit times logistic(alpha x), times 1 + what it multiplies, which is clipped."""

    alpha: float
    limit: float

    def gate(self, x: Array) -> Array:
        """Return what is made of the gate."""
        x = np.minimum(x, np.float32(self.limit))
        return x * logistic(np.float32(self.alpha) * x)

    def up(self, x: Array) -> Array:
        """Return what is made of what the gate multiplies."""
        return np.clip(x, np.float32(-self.limit), np.float32(self.limit)) + 1


# Positions


class Rotary(NamedTuple):
    """Queries and keys rotated by position (Su et al. 2021): pairs of the first `dims` numbers of a head.

    The rest is for texts longer than a model was first trained on. `llama3` is (factor, low, high, original length).
    """

    theta: float
    dims: int  # the pair of the last one of an odd number has the number after it
    factor: float = 1.0  # all frequencies are divided by it
    llama3: tuple[float, float, float, float] | None = None
    divisors: tuple[float, ...] = ()  # of the frequencies, one each
    length: float = math.inf  # of a text, beyond which these two hold
    long_divisors: tuple[float, ...] = ()
    growth: float | None = None  # theta grows by it for each `length` more (dynamic NTK)
    gain: float = 1.0  # what is rotated is multiplied by it
    neighbours: bool = False  # whether numbers 2i and 2i + 1 are a pair, or i and i + dims / 2

    @property
    def turned(self) -> int:
        """How many numbers of a head are rotated."""
        return self.dims + self.dims % 2

    def frequencies(self, n: int = 1) -> Array:
        """Return how far each pair turns from one place to the next in a text of n tokens, (turned / 2,)."""
        exponents = np.arange(0, self.dims, 2, dtype=np.float32) / np.float32(self.dims)
        theta, divisors = self.theta, self.divisors
        if n > self.length:
            divisors = self.long_divisors or divisors
            if self.growth is not None:
                theta *= (self.growth * n / self.length - self.growth + 1) ** (self.dims / (self.dims - 2))
        turns = (1 / np.float32(theta) ** exponents).astype(np.float32) / np.float32(self.factor)
        if divisors:
            turns /= np.array(divisors, np.float32)
        if self.llama3 is None:
            return turns
        factor, low, high, length = self.llama3
        seen = length * turns / (2 * math.pi)  # how many whole turns the first training saw
        share = np.clip((seen - low) / (high - low), 0, 1)
        mixed: Array = ((1 - share) * turns / factor + share * turns).astype(np.float32)
        return mixed

    def rotate(self, x: Array, places: Ints) -> Array:
        """Return queries or keys (b, h, n, d_k) rotated by their positions (b, n)."""
        turns = np.stack([self.frequencies(int(own.max()) + 1) for own in places])
        angles = (places.astype(np.float32)[:, None, :, None] * turns[:, None, None]).astype(x.dtype)
        cos, sin = (turn(angles) * x.dtype.type(self.gain) for turn in (np.cos, np.sin))
        half, turned = self.turned // 2, self.turned
        pair = slice(half), slice(half, turned)
        if self.neighbours:
            pair = slice(0, turned, 2), slice(1, turned, 2)
        found = x.copy()
        first, second = (x[..., one] for one in pair)
        found[..., pair[0]] = first * cos - second * sin
        found[..., pair[1]] = second * cos + first * sin
        return found


class BeforeRotation(NamedTuple):
    """Queries and keys (b, h, n, d_k) before they are rotated by their positions (b, n)."""

    q: Array
    k: Array
    rotary: Rotary
    places: Ints

    def rotated(self, head: int) -> tuple[Array, Array]:
        """Return a head's queries and keys (n, d_k) turned, of the first text: in float64, for exact differences."""
        own = (M[:1, head : head + 1].astype(np.float64) for M in (self.q, self.k))
        q, k = (self.rotary.rotate(M, self.places[:1])[0, 0] for M in own)
        return q, k


def sinusoids(n: int, d: int, kind: str = "sines first") -> Array:
    """Return the encodings of n places (n, d): the sines first, then the cosines, as Marian has them.

    The slowest turns by nearly 1/10000 from one place to the next, and by just that in the kind "to the end", whose
    last number is 0 where d is odd (M2M-100).
    """
    to_end = kind == "to the end"
    pairs = np.arange(d // 2 if to_end else (d + 1) // 2)
    angles = np.arange(n)[:, None] / 10000 ** (pairs / max(d // 2 - 1, 1) if to_end else 2 * pairs / d)
    both = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(both, ((0, 0), (0, d % 2)))[:, :d].astype(np.float32)


def as_bfloat16(x: Array) -> Array:
    """Return float32 numbers rounded to those that bfloat16 has."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def slopes(heads: int) -> Array:
    """Return the slope of each head, (h,): 2^(-8/h), 2^(-16/h), ... (ALiBi, Press et al. 2022).

    Where h is no power of two, p, the next one below, gives p of them, and every other of 2p slopes the rest.
    """
    power = 1 << heads.bit_length() - 1
    first, others = np.arange(1, power + 1), np.arange(1, 2 * power, 2)
    both = np.float32(2 ** (-8 / power)) ** first, np.float32(2 ** (-4 / power)) ** others
    return np.concatenate(both)[:heads].astype(np.float32)


def by_slopes(slopes: Array, n_q: int, n_k: int, scale: float | None) -> Array:
    """Return each head's slope times how far a key stands behind, negative, (1, h, n_q, n_k).

    Queries are the last ones of the keys. With a scale, these are bfloat16's products with places, less the query's.
    """
    if scale is not None:
        products = as_bfloat16(slopes[:, None] * as_bfloat16(np.arange(n_k, dtype=np.float32)))
        return (products[None, :, None] - products[None, :, n_k - n_q :, None]) * np.float32(scale)
    row = slopes[:, None] * np.arange(1 - n_k, n_q, dtype=np.float32)
    return np.lib.stride_tricks.sliding_window_view(row, n_k, axis=1)[None, :, ::-1]  # views of one row


def log_buckets(away: Ints, buckets: int, farthest: int) -> Ints:
    """Return the bucket of each distance: half of them near ones singly, the others wider (DeBERTa V2)."""
    middle = buckets // 2
    far = np.maximum(np.abs(away), middle).astype(np.float32) / np.float32(middle)
    # the same logarithm of both, for a share of just 1 must be no more
    share = np.log(far) / np.log(np.full_like(far, (farthest - 1) / middle))
    wide = np.ceil(share * np.float32(middle - 1)) + middle
    return np.where(np.abs(away) <= middle, away, (wide * np.sign(away)).astype(np.intp))


def relative_position_buckets(n_q: int, n_k: int, buckets: int, farthest: int, both_ways: bool) -> Ints:
    """Return the bucket of each distance, (n_q, n_k): near ones singly, far ones in wider buckets (T5).

    Fewer queries than keys are the last ones.
    """
    ahead = np.arange(n_k) - np.arange(n_k - n_q, n_k)[:, None]
    buckets = buckets // 2 if both_ways else buckets
    first = buckets * (ahead > 0) if both_ways else 0
    away = np.abs(ahead) if both_ways else np.maximum(-ahead, 0)
    single = buckets // 2
    share = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(single))
    share /= np.float32(math.log(farthest / single))
    wide = np.minimum(single + (share * np.float32(buckets - single)).astype(np.intp), buckets - 1)
    found: Ints = first + np.where(away < single, away, wide)
    return found
