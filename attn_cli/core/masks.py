"""Boolean masks: which query may attend to which key. True = may attend.

Rows are queries, columns are keys. A mask is kept as a rule and made row by row, so that a long text
never needs all of it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.mask_rules import EVERYWHERE, Reach, rule_named

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools, Ints


PADDING, EXCLUDED = "padding", "words off"


class Mask(NamedTuple):
    """A mask over n_q queries and n_k keys: a rule by name, or an array where the name is a file's.

    Padding keys, and those that are `excluded`, are masked for every query, whatever the rule says.
    """

    name: str
    n_q: int
    n_k: int
    array: Bools | None = None
    padding: range = range(0)
    excluded: tuple[int, ...] = ()  # single keys

    @property
    def label(self) -> str:
        """What the mask is called: its rule, padding, keys that are off, or several of these."""
        names = [] if self.name == "none" else [self.name]
        return ", ".join(names + [PADDING] * bool(self.padding) + [EXCLUDED] * bool(self.excluded))

    def rows(self, rows: Sequence[int] | Ints, low: int = 0, high: int | None = None) -> Bools:
        """Return the mask of these queries over the keys from `low` up to `high`, else over all n_k."""
        high = self.n_k if high is None else high
        allowed = self._by_rule(np.asarray(rows, dtype=np.intp), low, high)
        allowed[:, max(0, self.padding.start - low) : max(0, self.padding.stop - low)] = False
        allowed[:, [key - low for key in self.excluded if low <= key < high]] = False
        return allowed

    def _by_rule(self, rows: Ints, low: int, high: int) -> Bools:
        if self.array is not None:
            return self.array[rows, low:high]
        rule, numbers = rule_named(self.name)
        return rule.rows(rows[:, np.newaxis], np.arange(low, high), self.n_q, self.n_k, *numbers)

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the keys, from and up to, outside which the queries from `start` up to `stop` see nothing."""
        left, right = self._reach()
        low = 0 if left is None else max(0, start - left)
        high = self.n_k if right is None else min(self.n_k, stop + right)
        if self.padding.start <= low < self.padding.stop:
            low = self.padding.stop
        if self.padding.start < high <= self.padding.stop:
            high = self.padding.start
        return low, max(low, high)

    def range_ends(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the possible boundaries of key ranges that every query from `start` up to `stop` sees."""
        left, right = self._reach()
        found = [self.padding.start, self.padding.stop] if self.padding else []
        if left is not None:
            found.append(stop - left - 1)
        if right is not None:
            found.append(start + right + 1)
        return tuple(found)

    def hidden(self, start: int, stop: int, low: int, high: int) -> Bools | None:
        """Return what is masked in a tile: queries from `start` up to `stop`, keys from `low` up to `high`.

        None where nothing is. True = may not attend, the opposite of everywhere else.
        """
        is_band = self.array is None and rule_named(self.name)[0].allowed is None  # `_reach` says all of it
        is_open = not any(low <= key < high for key in self.excluded)
        if is_band and is_open and not (self.padding.start < high and low < self.padding.stop):
            left, right = self._reach()
            is_seen_left = left is None or low >= stop - 1 - left
            if is_seen_left and (right is None or high - 1 <= start + right):
                return None
        hidden: Bools = ~self.rows(range(start, stop), low, high)
        return hidden if hidden.any() else None

    def _reach(self) -> Reach:
        """Return how far a query sees to the left and to the right of its own number; None is without end."""
        if self.array is not None:
            return EVERYWHERE
        rule, numbers = rule_named(self.name)
        return rule.reach(self.n_q, self.n_k, *numbers)


class AllOf(NamedTuple):
    """Several masks at once: a query may attend to a key where all of them allow it."""

    masks: tuple[Mask, ...]

    def rows(self, rows: Sequence[int] | Ints, low: int = 0, high: int | None = None) -> Bools:
        """Return the mask of these queries over the keys from `low` up to `high`, as `Mask.rows`."""
        high = max(mask.n_k for mask in self.masks) if high is None else high
        allowed: Bools = np.logical_and.reduce([mask.rows(rows, low, high) for mask in self.masks])
        return allowed

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the keys outside which these queries see nothing, as `Mask.span`."""
        lows, highs = zip(*(mask.span(start, stop) for mask in self.masks), strict=True)
        return max(lows), max(*lows, min(highs))

    def range_ends(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the keys at which a part that all of these queries see may end, as `Mask.cuts`."""
        return tuple(cut for mask in self.masks for cut in mask.range_ends(start, stop))

    def hidden(self, start: int, stop: int, low: int, high: int) -> Bools | None:
        """Return what is masked in a tile, None for nothing, as `Mask.hidden`."""
        hidden = None
        for mask in self.masks:
            found = mask.hidden(start, stop, low, high)
            hidden = found if hidden is None else hidden if found is None else hidden | found
        return hidden


AnyMask = Mask | AllOf


def joined(masks: Sequence[Mask]) -> AnyMask | None:
    """Return one mask for several, all of which must allow; None for none."""
    return None if not masks else masks[0] if len(masks) == 1 else AllOf(tuple(masks))


def named(name: str, n_q: int, n_k: int) -> Mask | None:
    """Return the mask of that name for n_q queries and n_k keys; None for `none`."""
    rule_named(name)
    return None if name == "none" else Mask(name, n_q, n_k)


def with_padding(mask: Mask | None, n_q: int, n_k: int, padding: range) -> Mask:
    """Return the mask that also hides the keys `padding`; None allows everything else."""
    return (mask or Mask("none", n_q, n_k))._replace(padding=padding)


def rule_in(label: str) -> str:
    """Return the name of the rule in a mask's label; `none` where there is none.

    >>> rule_in("causal, padding"), rule_in("words off")
    ('causal', 'none')
    """
    for more in (EXCLUDED, PADDING):
        label = "none" if label == more else label.removesuffix(f", {more}")
    return label


def with_excluded(mask: Mask | None, n_q: int, n_k: int, keys: tuple[int, ...]) -> Mask | None:
    """Return the mask that also hides these keys; None allows everything else."""
    return (mask or Mask("none", n_q, n_k))._replace(excluded=keys) if keys else mask


def widened(mask: Mask, n_q: int, n_k: int, queries: range, keys: range) -> Mask:
    """Return a mask over n_q x n_k whose part at `queries` and `keys` is `mask`; the rest is allowed."""
    array = np.ones((n_q, n_k), dtype=np.bool_)
    array[queries.start : queries.stop, keys.start : keys.stop] = mask.rows(range(mask.n_q))
    return Mask(mask.name, n_q, n_k, array)
