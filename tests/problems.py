"""Problems of attention of every kind, and how near the fast ways come to the readable core.

`made` makes one from a few words and a seed; `compared` solves it every way.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from attn_cli import attend
from attn_cli.core import heads, streaming as streams
from attn_cli.core.attend import small, strongest_links
from attn_cli.core.heads import checked_attention, fits
from attn_cli.core.masks import Mask, named, with_padding
from attn_cli.pipeline import long_text
from attn_cli.trace.row import entropy

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}  # times the largest score, where that is above 1
DTYPES = tuple(TOLERANCE)
SCORES = ("plain", "flat", "sharp", "huge", "aligned", "opposite", "outlier", "words", "one word", "denormal")
RULES = ("none", "causal", "causal-bottom-right", "window:0", "window:2", "window:3:0", "window:1:4")
RULES += ("window:999999999", "array", "sparse")
PADDINGS = ("none", "right", "left", "all")
BIASES = ("none", "normal", "shut", "low", "slopes", "numbers for a mask")
DISTANCES = ("none", "0", "1", "3", "9", "strong")
CAPS = ("none", "0.5", "30", "2000")  # beyond 60 exponentials of float32 need a shift
LOOSE = 4  # times the tolerance may what is made of long sums be off: entropy, a bit of it, and the map
CHECKED = 200  # rows, of which the order of links is checked
TIES = 16  # equal keys may score unequal by so many last bits


class Kind(NamedTuple):
    """A kind of problem, in words; with `seed` it is one problem."""

    n_q: int
    n_k: int
    d_k: int
    d_v: int
    dtype: str = "float64"
    scores: str = "plain"
    rule: str = "none"
    padding: str = "none"
    bias: str = "none"
    distance: str = "none"
    cap: str = "none"
    seed: int = 0


def some(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


LENGTHS = st.integers(1, 13)
KINDS = st.builds(  # for Hypothesis
    Kind,
    LENGTHS,
    LENGTHS,
    st.sampled_from([1, 2, 3, 8, 65]),
    st.integers(1, 5),
    *map(st.sampled_from, (DTYPES, SCORES, RULES, PADDINGS, BIASES, DISTANCES, CAPS)),
    st.integers(0, 2**32 - 1),
)


class Problem(NamedTuple):
    """One head; `added` (n_q, n_k) is what bias and distance add to the scores together."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    scale: float
    mask: object
    bias: np.ndarray | None
    by_distance: np.ndarray | None
    softcap: float | None

    @property
    def head(self):
        added = (self.mask, self.bias, self.by_distance)
        return heads.HeadInput(*self[:3], *added, scale=self.scale, softcap=self.softcap)

    @property
    def allowed(self):
        return None if self.mask is None else self.mask.rows(range(len(self.Q)))

    @property
    def added(self):
        if self.by_distance is None:
            return self.bias
        reach = self.by_distance.shape[1] // 2
        i, j = np.indices((len(self.Q), len(self.K)))
        far = self.by_distance[i, np.clip(j - i, -reach, reach) + reach]
        return far if self.bias is None else far + self.bias

    @property
    def is_fast(self):
        return fits(self.Q, self.K, self.V, self.bias, self.by_distance, scale=self.scale)


def made(kind):
    draw = np.random.default_rng([kind.seed, kind.n_q, kind.n_k, kind.d_k, kind.d_v])
    Q, K = _queries_and_keys(draw, kind)
    V = draw.standard_normal((kind.n_k, kind.d_v))
    if kind.scores == "denormal":
        V *= np.finfo(kind.dtype).tiny / 4
    by_distance = None
    if kind.distance != "none":
        reach, strength = (2, 60) if kind.distance == "strong" else (int(kind.distance), 1)
        by_distance = draw.standard_normal((kind.n_q, 2 * reach + 1)) * strength
    given = (Q, K, V, _bias(draw, kind), by_distance)
    made = [None if M is None else M.astype(kind.dtype) for M in given]
    cap = None if kind.cap == "none" else float(kind.cap)
    return Problem(*made[:3], 1 / math.sqrt(kind.d_k), _mask(draw, kind), *made[3:], cap)


def _queries_and_keys(draw, kind):
    Q, K = draw.standard_normal((kind.n_q, kind.d_k)), draw.standard_normal((kind.n_k, kind.d_k))
    if kind.scores in ("words", "one word"):
        K = K[draw.integers(0, 1 if kind.scores == "one word" else min(5, kind.n_k), kind.n_k)]
    if kind.scores == "aligned":
        Q, K = np.abs(Q), np.abs(K)
    if kind.scores == "opposite":  # every score is as far below the bound as can be
        Q = np.abs(Q[:1]) * np.linspace(1, 20, kind.n_q)[:, np.newaxis]
        K = -np.abs(Q[:1]) * np.linspace(1, 2, kind.n_k)[:, np.newaxis]
    if kind.scores == "outlier":  # one long key, that half of the queries do not look at
        K[kind.n_k // 2] = 0
        K[kind.n_k // 2, 0] = 1e4
        Q[::2, 0] = 0
    largest = np.abs(Q @ K.T).max() / math.sqrt(kind.d_k)
    wanted = {"flat": 1e-3, "sharp": 100.0, "huge": 1e4, "denormal": np.finfo(kind.dtype).tiny}
    factor = math.sqrt(wanted[kind.scores] / largest) if kind.scores in wanted else 1.0
    return Q * factor, K * factor


def _mask(draw, kind):
    shape = (kind.n_q, kind.n_k)
    if kind.rule in ("array", "sparse"):
        allowed = draw.random(shape) < (0.6 if kind.rule == "array" else 0.1)
        allowed[draw.random(kind.n_q) < 0.2] = False
        mask = Mask("given", *shape, allowed)
    else:
        mask = named(kind.rule, *shape)
    if kind.padding == "none":
        return mask
    many = kind.n_k if kind.padding == "all" else int(draw.integers(0, kind.n_k + 1))
    run = range(kind.n_k - many, kind.n_k) if kind.padding == "right" else range(many)
    return with_padding(mask, *shape, run)


def _bias(draw, kind):
    if kind.bias == "none":
        return None
    shape = (kind.n_q, kind.n_k)
    bias = draw.standard_normal(shape) * 3
    shut = draw.random(shape) < 0.4
    if kind.bias == "shut":
        bias[shut | (draw.random(shape[0]) < 0.2)[:, np.newaxis]] = -np.inf
    if kind.bias == "low":  # whole rows, with which the bound of the scores goes down
        bias -= (draw.random(shape[0]) < 0.5)[:, np.newaxis] * draw.choice([50.0, 1e3])
    if kind.bias == "slopes":  # as Press, Smith and Lewis 2022 (ALiBi) have them
        i, j = np.indices(shape)
        bias = -np.abs(i - j) * draw.choice([0.01, 0.5, 8.0])
    if kind.bias == "numbers for a mask":
        bias[shut] = draw.choice([-1e4, -1e9, -1e30])
    return bias


@contextmanager
def tiled(rows=None, wide=None, base_2=None) -> Iterator[None]:
    """Work by tiles of so many rows and keys, which makes small problems have many; with powers of 2, or of e."""
    with pytest.MonkeyPatch.context() as patch:
        if base_2 is not None:
            patch.setattr(streams, "has_quick_exp2", lambda: base_2)
        if rows is not None:
            few = {"TILE": rows * wide * 8, "TILE_KEYS": wide, "ROW_BLOCK_BYTES": 1, "MIN_THREADED_SCORES": 0}
            few |= {"MOST_ROWS": rows, "MOST_MASKED_ROWS": rows, "FEWEST_ROWS": 1}
            for name, value in few.items():
                patch.setattr(streams, name, value)
            patch.setattr(heads, "SMALL", 0)
            patch.setattr(long_text, "MAP", wide)  # blocks a side: of several rows and keys each
        yield


def compared(problem, k=3, threads=1):
    """Yield (what, error as a share of the tolerance) for every way to solve the problem."""
    Q, K, V, scale, *_, cap = problem
    added, allowed = problem.added, problem.allowed
    with np.errstate(all="ignore"):
        core = checked_attention(Q, K, V, allowed, added, scale, softcap=cap)
    seen = np.isfinite(core.masked_scores)
    counted = [core.masked_scores] if cap is None else [core.masked_scores, core.scaled_scores]
    tolerance = TOLERANCE[Q.dtype.name] * max(1.0, *(float(np.abs(M[seen]).max(initial=0)) for M in counted))

    def share(ours, theirs):
        assert ours.shape == theirs.shape and ours.dtype == Q.dtype
        return float(np.abs(ours - theirs).max()) / tolerance

    def strays(ours):
        """Tell how far an output strays, from the core or, where that strays to the other side, from float64."""
        if (found := share(ours, core.output)) <= 1:
            return found
        with np.errstate(all="ignore"):
            wide = (M.astype(np.float64) for M in (Q, K, V))
            exact = checked_attention(*wide, allowed, added, scale, softcap=cap)
        return min(found, float(np.abs(ours - exact.output).max()) / tolerance)

    weights, output = attend(Q, K, V, allowed, added, scale, threads=threads, softcap=cap)
    yield "attend: weights", share(weights, core.weights)
    yield "attend: output", strays(output)
    options = {"threads": threads, "softcap": cap}
    alone = attend(Q, K, V, allowed, added, scale, return_weights=False, **options)[1]
    yield "attend: output alone", strays(alone)
    links, output = strongest_links(Q, K, V, k, allowed, added, scale, **options)
    yield "strongest_links: output", strays(output)
    yield "strongest_links: weights", share(*_linked(links, core.weights, seen, k))
    check_order(links, Q, K, scale, added, seen, cap)
    if added is None and cap is None and (done := small(Q, K, V, scale, allowed)):
        yield "small: weights", share(done[0], core.weights)
        yield "small: output", strays(done[1])
    if not problem.is_fast:
        return
    head = streams.Tiles(problem.head)
    weights, output = streams.attended([head], True, threads)
    yield "attended: weights", share(weights[0], core.weights)
    yield "attended: output", strays(output[0])
    assert not weights[0][~seen].any(), "a masked cell is 0 and nothing else"
    yield "output", strays(streams.attended([head], False, threads)[1][0])
    kept = long_text.RowSums(len(Q), len(K), k)
    streams.attended([head], False, threads, each=lambda rows, *made: kept.add(rows, *made, seen[rows]))
    found = kept.summary()
    yield "rows: output", strays(found.output)
    yield "rows: weights", share(*_linked(found.links, core.weights, seen, k))
    check_order(found.links, Q, K, scale, added, seen, cap)
    bits = entropy(core.weights.astype(np.float64))
    off = float(np.abs(found.view.entropy - bits).max())
    yield "rows: entropy", off / (LOOSE * tolerance * max(1, bits.max()))
    (n_q, n_k), (down, across) = core.weights.shape, found.view.counts.shape  # of a map
    above = (np.arange(n_q) * down // n_q == np.arange(down)[:, np.newaxis]).astype(float)
    beside = (np.arange(n_k) * across // n_k)[:, np.newaxis] == np.arange(across)
    sums, counts = above @ core.weights.astype(np.float64) @ beside, above @ seen @ beside
    ours = np.where(counts > 0, found.view.means * counts, 0)
    yield "rows: sums", float(np.abs(ours - sums).max()) / (LOOSE * tolerance) / len(Q)
    np.testing.assert_array_equal(found.view.counts, counts)
    np.testing.assert_array_equal(found.view.allowed, seen.sum(axis=1))
    rows = range(len(Q) // 3, len(Q) - len(Q) // 4)
    weights, output = streams.attended([head], True, threads, rows=rows)
    yield "attended: weights of some rows", share(weights[0], core.weights[rows.start : rows.stop])
    yield "attended: output of some rows", share(output[0], core.output[rows.start : rows.stop])


def _linked(links, weights, seen, k):
    """Return the weights of links, and what they are in the matrix."""
    assert links.keys.shape == links.weights.shape == (len(weights), min(k, weights.shape[1]))
    assert ((links.keys >= 0).sum(axis=1) == np.minimum(links.keys.shape[1], seen.sum(axis=1))).all()
    close = np.finfo(weights.dtype).eps ** (2 / 3)  # so close weights tie, and the lower key comes first
    assert (links.weights[:, 1:] <= links.weights[:, :-1] * (1 + close)).all(), "strongest first"
    found = np.take_along_axis(weights, np.maximum(links.keys, 0), axis=1)
    return links.weights, np.where(links.keys < 0, 0, found).astype(weights.dtype)


def check_order(links, Q, K, scale, added, seen, cap=None):
    """Check that no stronger link was left out, and that of keys that are the same the lower one comes first."""
    rows = slice(None, None, -(-len(Q) // CHECKED))
    linked, seen, added = links.keys[rows], seen[rows], None if added is None else added[rows]
    # Pair by pair, without BLAS: keys that are the same get the same bits.
    scores = np.einsum("id,jd->ij", Q[rows].astype(np.float64), K.astype(np.float64)) * scale
    largest = 0 if cap is None else np.abs(scores).max()
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    scores = np.where(seen, scores if added is None else scores + added, -np.inf)
    least = max(largest, np.abs(np.where(seen, scores, 0)).max())
    near = TIES * np.finfo(Q.dtype).eps * (100 + 2 * least)
    for keys, row in zip(linked, scores, strict=True):
        keys = keys[keys >= 0]
        assert len(set(keys)) == len(keys)
        counts = np.maximum(row, row.max() - 80)  # below, weights are all the same 0 in float32
        best = np.sort(counts)[::-1][: len(keys)]
        assert (np.abs(counts[keys] - best) <= near).all(), "a link that is stronger was left out"
        for place, key in enumerate(keys):  # of two that tie the lower key comes first
            assert np.isin(np.flatnonzero(row[:key] == row[key]), keys[:place]).all()
