"""Who may look at whom: boolean masks, True = may attend.

Rows are queries, columns are keys. A mask is kept as a rule and made row by row, so that a long text
never needs all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.plural import count

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools, Ints

RULES = ("none", "causal", "causal-bottom-right")  # and window:N
_WINDOW = re.compile(r"window:([0-9]{1,9})")


class Mask(NamedTuple):
    """A mask over n_q queries and n_k keys: a rule by name, or an array where the name is a file's.

    Keys that are padding are hidden from every query, whatever the rule says.
    """

    name: str
    n_q: int
    n_k: int
    array: Bools | None = None
    padding: range = range(0)

    @property
    def told(self) -> str:
        """What the mask is called: its rule, padding, or both."""
        names = [] if self.name == "none" else [self.name]
        return ", ".join(names + ["padding"] * bool(self.padding))

    def rows(self, rows: Sequence[int] | Ints, low: int = 0, high: int | None = None) -> Bools:
        """Return the mask of these queries over the keys from `low` up to `high`, else over all n_k."""
        high = self.n_k if high is None else high
        allowed = self._by_rule(np.asarray(rows, dtype=np.intp), low, high)
        allowed[:, max(0, self.padding.start - low) : max(0, self.padding.stop - low)] = False
        return allowed

    def _by_rule(self, rows: Ints, low: int, high: int) -> Bools:
        if self.array is not None:
            return self.array[rows, low:high]
        i = rows[:, np.newaxis]
        j = np.arange(low, high)
        if self.name == "none":
            return np.ones((len(rows), high - low), dtype=np.bool_)
        if self.name == "causal":
            return j <= i
        if self.name == "causal-bottom-right":
            return j <= i + (self.n_k - self.n_q)
        near: Bools = np.abs(i - j) <= window_size(self.name)
        return near

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

    def cuts(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the keys at which, for the queries from `start` up to `stop`, a part that all of them see may end."""
        left, right = self._reach()
        found = [self.padding.start, self.padding.stop] if self.padding else []
        if left is not None:
            found.append(stop - left - 1)
        if right is not None:
            found.append(start + right + 1)
        return tuple(found)

    def hidden(self, start: int, stop: int, low: int, high: int) -> Bools | None:
        """Return what is hidden of a tile, the queries from `start` up to `stop` by the keys from `low` up to `high`.

        None where nothing is. True = may not attend, the other way round than everywhere else.
        """
        if self.array is None and not (self.padding.start < high and low < self.padding.stop):
            left, right = self._reach()
            is_seen_left = left is None or low >= stop - 1 - left
            if is_seen_left and (right is None or high - 1 <= start + right):
                return None
        hidden: Bools = ~self.rows(range(start, stop), low, high)
        return hidden if hidden.any() else None

    def _reach(self) -> tuple[int | None, int | None]:
        """Return how far a query sees to the left and to the right of its own number; None is without end."""
        if self.array is not None or self.name == "none":
            return None, None
        if self.name == "causal":
            return None, 0
        if self.name == "causal-bottom-right":
            return None, self.n_k - self.n_q
        return window_size(self.name), window_size(self.name)


def is_window(name: str) -> bool:
    """Tell whether this is the name of a window, and of nothing else."""
    return _WINDOW.fullmatch(name) is not None


def window_size(name: str) -> int:
    """Return N of `window:N`."""
    found = _WINDOW.fullmatch(name)
    if not found:
        raise UsageError(
            f"There is no mask {visible(name)!r}.",
            "Masks are none, causal, causal-bottom-right, window:N (N is 0 or more), or a file.",
            option="--mask",
        )
    return int(found[1])


def named(name: str, n_q: int, n_k: int) -> Mask | None:
    """Return the mask of that name for n_q queries and n_k keys; None for `none`."""
    if name == "none":
        return None
    if name not in RULES:
        window_size(name)
    return Mask(name, n_q, n_k)


def with_padding(mask: Mask | None, n_q: int, n_k: int, padding: range) -> Mask:
    """Return the mask that also hides the keys `padding`; None allows everything else."""
    return (mask or Mask("none", n_q, n_k))._replace(padding=padding)


def widened(mask: Mask, n_q: int, n_k: int, queries: range, keys: range) -> Mask:
    """Return a mask over n_q x n_k whose part at `queries` and `keys` is `mask`; the rest is allowed."""
    array = np.ones((n_q, n_k), dtype=np.bool_)
    array[queries.start : queries.stop, keys.start : keys.stop] = mask.rows(range(mask.n_q))
    return Mask(mask.name, n_q, n_k, array)


def from_array(name: str, values: object, mask_true: str, n_q: int, n_k: int) -> Mask:
    """Return the mask that `values` (n_q, n_k) states; `mask_true` says what True means in it.

    Values are booleans, or the numbers 0 and 1. `allowed` is the polarity of torch's
    scaled_dot_product_attention and of Keras, `blocked` that of torch's MultiheadAttention.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"The mask in {name} is not a rectangle: its rows differ in length.") from None
    if array.dtype != np.bool_ and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        raise InputError(
            f"The mask in {name} holds other values than true and false (or 1 and 0).",
            "State for each query which keys it may attend to.",
        )
    if array.shape != (n_q, n_k):
        raise InputError(
            f"The mask in {name} has shape {array.shape}, but there are {count(n_q, 'query', 'queries')} and "
            f"{count(n_k, 'key', 'keys')}.",
            f"Give {count(n_q, 'row', 'rows')} of {count(n_k, 'value', 'values')}.",
        )
    allowed = array.astype(np.bool_)
    return Mask(name, n_q, n_k, allowed if mask_true == "allowed" else ~allowed)
