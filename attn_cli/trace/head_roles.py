"""What a head measurably does on a text: the share of attention that goes to each pattern, and the name for it.

The patterns are those that Clark et al. 2019 ("What Does BERT Look At?", section 3) and Olsson et al. 2022
("In-context Learning and Induction Heads") describe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.text.wordpieces import is_special
from attn_cli.trace.row import entropy

MIN_GAIN = 0.5  # a head is named if its share is this far from a uniform head's to all of the attention,
LEAD = 0.1  # ... this much above the share of every other pattern,
MIN_ROWS = 2  # ... and possible in this many rows
MIN_UNIFORM_OVERLAP = 0.8  # of a bag-of-words head's attention is shared with a uniform one, at least
MIXED, BAG = "mixed", "bag-of-words"


class Text(NamedTuple):
    """What patterns depend on: the tokens, and whether both sides are one text. None where nobody knows them."""

    queries: Sequence[str] | None
    keys: Sequence[str] | None
    is_one: bool  # the queries are the keys: query i is at the place of key i


class Pattern(NamedTuple):
    """Which links belong to a pattern: links (n_q, n_k), the rows that have one, a uniform head's share in them."""

    links: Bools
    rows: Bools
    even: float | None  # None where no row has one


class Role(NamedTuple):
    """What one head does: its share of each pattern (None where no row has it), its mean entropy in bits, its name."""

    shares: dict[str, float | None]
    entropy: float | None  # None where every row is fully masked
    name: str

    @property
    def share(self) -> float | None:
        """The share of the pattern that the head is named for."""
        return self.shares.get(self.name)


def _plain(token: str) -> str:
    """Return a token without what marks the start of a word, and without capitals."""
    return (token.lstrip(" \u0120\u2581") or token).casefold()


def is_separator(token: str) -> bool:
    """Tell whether a token separates: it frames the text, as [SEP], or is punctuation alone."""
    return is_special(token) or is_mark(token)


def is_mark(token: str) -> bool:
    """Tell whether a token is punctuation alone, and no special token."""
    return not is_special(token) and not any(char.isalnum() for char in _plain(token))


class _Pairs(NamedTuple):
    """What is known of each query and key, (n_q, n_k): nothing is so where there are no tokens, or not one text."""

    is_one: bool
    same: Bools  # the same word
    separates: Bools  # a key that separates, but for the first one

    @staticmethod
    def of(text: Text, n_q: int, n_k: int) -> _Pairs:
        found = _Pairs(text.is_one, *np.zeros((2, n_q, n_k), np.bool_))
        if text.keys is not None:
            found.separates[:, 1:] = [is_separator(token) for token in text.keys[1:]]
        if text.keys is not None and text.queries is not None:
            queries, keys = ([_plain(token) for token in tokens] for tokens in (text.queries, text.keys))
            number = {word: n for n, word in enumerate((*queries, *keys))}
            of_queries, of_keys = (np.array([number[word] for word in side]) for side in (queries, keys))
            found.same[:] = of_queries[:, np.newaxis] == of_keys
        return found

    def step(self, by: int) -> Bools:
        n_q, n_k = self.same.shape
        return np.eye(n_q, n_k, by, dtype=np.bool_) & self.is_one

    def first(self) -> Bools:
        links = np.zeros_like(self.same)
        links[int(self.is_one) :, 0] = True  # the first token's own row looks at itself
        return links

    def induction(self) -> Bools:
        """Return the links to a token that stands after an earlier occurrence of the query's token."""
        links = np.zeros_like(self.same)
        links[:, 1:] = np.tri(len(links), links.shape[1] - 1, -1, dtype=np.bool_) & self.same[:, :-1]
        return links & self.is_one & ~self.step(0)


PATTERNS: dict[str, Callable[[_Pairs], Bools]] = {
    "previous": lambda pairs: pairs.step(-1),
    "next": lambda pairs: pairs.step(1),
    "itself": lambda pairs: pairs.step(0),
    "first": _Pairs.first,
    "separators": lambda pairs: pairs.separates & ~pairs.step(0),
    "same": lambda pairs: pairs.same & ~pairs.step(0),
    "induction": _Pairs.induction,
}


def find_patterns(text: Text, allowed: Bools) -> dict[str, Pattern]:
    """Return each pattern's links among those that the mask (n_q, n_k) allows."""
    pairs, counts, found = _Pairs.of(text, *allowed.shape), allowed.sum(axis=1), {}
    for name, links_of in PATTERNS.items():
        links = links_of(pairs) & allowed
        sizes = links.sum(axis=1)
        rows = sizes > 0
        even = float((sizes[rows] / counts[rows]).mean()) if rows.any() else None
        found[name] = Pattern(links, rows, even)
    return found


def measure(weights: Array, allowed: Bools, patterns: dict[str, Pattern]) -> Role:
    """Return what a head with these weights (n_q, n_k) does, where `allowed` (n_q, n_k) may be looked at.

    A share is the mean, over the rows where the pattern is possible, of the weight that goes there. That of
    bag-of-words is the part of the weight that overlaps with a uniform distribution over the allowed keys, over
    the rows that may look at two keys or more.

    >>> text, allowed = Text(None, None, True), np.ones((4, 4), np.bool_)
    >>> role = measure(np.eye(4)[[0, 0, 1, 2]], allowed, find_patterns(text, allowed))
    >>> role.name, role.shares["previous"], role.shares["itself"], role.entropy
    ('previous', 1.0, 0.25, 0.0)
    """
    shares, seeing = measure_shares(weights, allowed, patterns), allowed.any(axis=1)
    bits = float(entropy(weights[seeing]).mean()) if seeing.any() else None
    return Role(shares, bits, named(shares, patterns))


def measure_shares(weights: Array, allowed: Bools, patterns: dict[str, Pattern]) -> dict[str, float | None]:
    """Return the shares of a head's weights alone, as `measure` does."""
    shares: dict[str, float | None] = {
        name: float(weights[one.links].sum() / one.rows.sum()) if one.rows.any() else None
        for name, one in patterns.items()
    }
    counts = allowed.sum(axis=1)
    choosing, even = counts > 1, allowed / np.maximum(counts, 1)[:, np.newaxis]
    alike = np.minimum(weights, even).sum(axis=1)[choosing]
    shares[BAG] = float(alike.mean()) if len(alike) else None
    return {name: None if share is None else min(share, 1.0) for name, share in shares.items()}


def named(shares: dict[str, float | None], patterns: dict[str, Pattern]) -> str:
    """Return the pattern that is clearly the largest, else bag-of-words where attention is nearly even, else mixed."""
    known = {name: share for name in patterns if (share := shares[name]) is not None}
    ranked = sorted(known, key=lambda name: -known[name])
    if ranked:
        best, others = ranked[0], [known[name] for name in ranked[1:]]
        even = patterns[best].even or 0.0
        leads = known[best] - max(others, default=0.0) >= LEAD
        if leads and known[best] >= even + MIN_GAIN * (1 - even) and patterns[best].rows.sum() >= MIN_ROWS:
            return best
    bag = shares[BAG]
    return BAG if bag is not None and bag >= MIN_UNIFORM_OVERLAP else MIXED


def rolled_out(below: Array | None, weights: Array) -> Array:
    """Return attention rollout (n, n) after one more layer's heads (h, n, n); `below` is that of the layers so far.

    A layer is half the mean of its heads and half the identity, for the residual connection; its rows are normalised,
    and it is multiplied with the layers below (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers",
    section 3).

    >>> rolled_out(None, np.array([[[1.0, 0.0], [1.0, 0.0]]])).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    layer = 0.5 * weights.mean(axis=0) + 0.5 * np.eye(weights.shape[-1])
    layer /= layer.sum(axis=1, keepdims=True)
    rolled: Array = layer if below is None else layer @ below
    return rolled


def block_means(weights: Array, allowed: Bools, rows: int, columns: int) -> Array:
    """Return the mean allowed weight of each of rows x columns blocks, for each head of (h, n_q, n_k); NaN if none."""
    starts = [np.arange(parts) * n // parts for parts, n in zip((rows, columns), allowed.shape, strict=True)]
    both = weights * allowed, allowed.astype(np.float64)
    in_rows = (np.add.reduceat(values, starts[0], axis=-2) for values in both)
    sums, counts = (np.add.reduceat(values, starts[1], axis=-1) for values in in_rows)
    empty, is_seen = np.full_like(sums, np.nan), np.broadcast_to(counts > 0, sums.shape)
    return np.divide(sums, counts, out=empty, where=is_seen)
