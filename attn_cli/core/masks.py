"""Masks: which query may attend to which key. True = may attend; rows are queries, columns are keys.

A rule is computed from positions alone: query i, key j, and how many there are of each; a new rule is a new entry of
MASKS. A mask is kept as a rule and made row by row, so that a long text never needs all of it at once. NumPy is
imported where a mask is made, because the command line reads the names before it needs NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.types import Bools, Ints, NamedTuple


class MaskRule(NamedTuple):
    """One rule. Its callables take, after what is named here, the numbers that its name holds (N of `window:N`)."""

    words: Callable[..., str]  # (is_self): one sentence, what query i may look at
    comment: str  # the same in a script, with {} for each number
    lines: Mapping[str, str]  # by framework: an expression for the mask, of n_q and n_k, with {} as above
    # (n_q, n_k): how far to the left and to the right of its own place a query sees; None is without end.
    reach: Callable[..., tuple[int | None, int | None]] = lambda n_q, n_k, *numbers: (None, None)
    # (i, j, n_q, n_k), i a column and j a row of places: who may attend to whom, where reach does not say it all.
    allowed: Callable[..., Bools] | None = None
    javascript: str = ""  # an expression of i, j, n_q, n_k and its numbers a and b; without, no page has it
    corner: str = ""  # of a causal rule: from which corner of the matrix it starts
    keras_argument: str = ""  # of keras.layers.Attention, where the layer knows the rule

    def rows(self, i: Ints, j: Ints, n_q: int, n_k: int, *numbers: int) -> Bools:
        """Return the mask of the queries i (rows, 1) over the keys j (columns,)."""
        left, right = self.reach(n_q, n_k, *numbers)
        seen: Bools = (i == i) & (j == j) if right is None else j <= i + right  # (rows, columns)
        if left is not None:
            seen &= j >= i - left
        return seen if self.allowed is None else seen & self.allowed(i, j, n_q, n_k, *numbers)


MASKS: dict[str, MaskRule] = {  # by how a name is typed: N, L and R stand for numbers
    "none": MaskRule(lambda is_self: "Every query may look at every key.", "No mask.", {}, javascript="true"),
    "causal": MaskRule(
        words=lambda is_self: f"Query i may look at the keys 0 to i{': at itself and back' * is_self}.",
        comment="Causal mask, from the top left corner: each query sees the keys up to its own position.",
        lines={
            "numpy": "np.tril(np.ones((n_q, n_k), dtype=bool))",
            "torch": "torch.ones(n_q, n_k, dtype=torch.bool).tril()",
            "keras": "ops.tril(ops.ones((n_q, n_k))) > 0",
        },
        reach=lambda n_q, n_k: (None, 0),
        javascript="j <= i",
        corner="top-left",
        keras_argument="use_causal_mask=True",
    ),
    "causal-bottom-right": MaskRule(
        words=lambda is_self: (
            "The last query may look at every key, and each query before it at one key less."
        ),
        comment="Causal mask, from the bottom right corner: the last query sees every key.",
        lines={
            "numpy": "np.tril(np.ones((n_q, n_k), dtype=bool), n_k - n_q)",
            "torch": "torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)",
            "keras": "ops.tril(ops.ones((n_q, n_k)), n_k - n_q) > 0",
        },
        reach=lambda n_q, n_k: (None, n_k - n_q),
        javascript="j <= i + n_k - n_q",
        corner="bottom-right",
    ),
    "window:N": MaskRule(
        words=lambda is_self, n: f"A query may look at keys that stand at most {_places(n, 'away')}.",
        comment="Window mask: each query sees the keys whose positions differ from its own by at most {}.",
        lines={
            "numpy": "np.abs(np.arange(n_q)[:, None] - np.arange(n_k)) <= {}",
            "torch": "(torch.arange(n_q)[:, None] - torch.arange(n_k)).abs() <= {}",
            "keras": "ops.abs(ops.arange(n_q)[:, None] - ops.arange(n_k)) <= {}",
        },
        reach=lambda n_q, n_k, n: (n, n),
        javascript="Math.abs(i - j) <= a",
    ),
    "window:L:R": MaskRule(
        words=lambda is_self, left, right: (
            f"A query may look at the keys from {_places(left, 'before its own')} to {_places(right, 'after it')}."
        ),
        comment="Window mask: each query sees the keys from {} before its own position to {} after it.",
        lines={
            "numpy": "np.triu(np.tril(np.ones((n_q, n_k), dtype=bool), {1}), -{0})",
            "torch": "torch.ones(n_q, n_k, dtype=torch.bool).tril({1}).triu(-{0})",
            "keras": "ops.triu(ops.tril(ops.ones((n_q, n_k)), {1}), -{0}) > 0",
        },
        reach=lambda n_q, n_k, left, right: (left, right),
        javascript="j >= i - a && j <= i + b",
    ),
}


def _places(n: int, side: str) -> str:
    return f"{n:,} place{'s' * (n != 1)} {side}" if n or side == "away" else "its own place"


def mask_examples() -> tuple[str, ...]:
    """Return a name of each rule: none, causal, window:1."""
    return tuple(re.sub(":[A-Z]", ":1", form) for form in MASKS)


def find_rule(name: str) -> tuple[MaskRule, tuple[int, ...]] | None:
    """Return the rule of that name and the numbers in it; None if there is none."""
    stem, *numbers = name.split(":")
    if not numbers and name in MASKS:
        return MASKS[name], ()
    for form, rule in MASKS.items():
        if form.split(":")[0] == stem and form.count(":") == len(numbers):
            is_whole = all(re.fullmatch("[0-9]{1,9}", n) for n in numbers)
            return (rule, tuple(map(int, numbers))) if is_whole else None
    return None


def rule_named(name: str) -> tuple[MaskRule, tuple[int, ...]]:
    """Return the rule of that name and the numbers in it; raise UsageError if none has it."""
    if (found := find_rule(name)) is not None:
        return found
    numbers = dict.fromkeys(letter for form in MASKS for letter in form.split(":")[1:])
    known = f"Masks are {', '.join(MASKS)} ({', '.join(numbers)}: 0 or more), or a file."
    raise UsageError(f"There is no mask {name!r}.", did_you_mean(name, MASKS) + known, "--mask")


PADDING, EXCLUDED = "padding", "words off"


class Mask(NamedTuple):
    """A mask over n_q queries and n_k keys: a rule by name, or an array where the name is a file's.

    Padding keys, and those that are `excluded`, are masked for every query, whatever the rule says. Where there is
    `also` another mask, both must allow.
    """

    name: str
    n_q: int
    n_k: int
    array: Bools | None = None
    padding: range = range(0)
    excluded: tuple[int, ...] = ()  # single keys
    also: Mask | None = None

    @property
    def label(self) -> str:
        """What the mask is called: its rule, padding, keys that are off, or several of these."""
        names = [] if self.name == "none" else [self.name]
        return ", ".join(names + [PADDING] * bool(self.padding) + [EXCLUDED] * bool(self.excluded))

    def rows(self, rows: Sequence[int] | Ints, low: int = 0, high: int | None = None) -> Bools:
        """Return the mask of these queries over the keys from `low` up to `high`, else over all n_k."""
        import numpy as np

        high, at = self.n_k if high is None else high, np.asarray(rows, dtype=np.intp)
        if self.array is not None:
            allowed: Bools = self.array[at, low:high]
        else:
            rule, numbers = rule_named(self.name)
            allowed = rule.rows(at[:, np.newaxis], np.arange(low, high), self.n_q, self.n_k, *numbers)
        for off in self._off():
            allowed[:, max(0, off.start - low) : max(0, off.stop - low)] = False
        return allowed if self.also is None else allowed & self.also.rows(rows, low, high)

    def _off(self) -> list[range]:
        return [off for off in (self.padding, *(range(key, key + 1) for key in self.excluded)) if off]

    def hidden(self, block: range, low: int, high: int, seen: range) -> Iterator[tuple[slice, Bools]]:
        """Yield the columns of a tile in which something may be hidden, and what is, (rows, columns).

        Its rows are a block of queries, its columns the keys from `low` up to `high`; those in `seen` are seen by all.
        """
        for start, stop in ((low, min(seen.start, high)), (max(seen.stop, low), high)):
            if start < stop:
                yield slice(start - low, stop - low), ~self.rows(block, start, stop)

    def spans(self, start: int, stop: int) -> tuple[int, int, range]:
        """Return the keys, from and up to, outside which the queries from `start` up to `stop` see nothing.

        With them come some keys, a range, that all of these queries are sure to see.
        """
        low, high, first, last = 0, self.n_k, 0, 0
        if self.array is None:
            rule, numbers = rule_named(self.name)
            left, right = rule.reach(self.n_q, self.n_k, *numbers)
            low = 0 if left is None else max(0, start - left)
            high = self.n_k if right is None else min(self.n_k, stop + right)
            if rule.allowed is None:  # the reach says all of it
                first = 0 if left is None else max(0, stop - 1 - left)
                last = self.n_k if right is None else start + right + 1
        for off in self._off():
            low = off.stop if off.start <= low < off.stop else low
            high = off.start if off.start < high <= off.stop else high
            first, last = (
                (max(first, off.stop), last) if off.start <= first else (first, min(last, off.start))
            )
        if self.also is not None:
            its_low, its_high, its_seen = self.also.spans(start, stop)
            low, high = max(low, its_low), min(high, its_high)
            first, last = max(first, its_seen.start), min(last, its_seen.stop)
        return low, max(low, high), range(first, max(first, last))


def joined(masks: Sequence[Mask]) -> Mask | None:
    """Return one mask for several, all of which must allow; None for none."""
    whole = None
    for mask in sorted(masks, key=lambda mask: mask.n_k):  # the one of most keys stands for all of them
        whole = mask if whole is None else mask._replace(also=whole)
    return whole


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


def widened(mask: Mask, n_q: int, n_k: int, queries: range, keys: range) -> Mask:
    """Return a mask over n_q x n_k whose part at `queries` and `keys` is `mask`; the rest is allowed."""
    import numpy as np

    array = np.ones((n_q, n_k), dtype=np.bool_)
    array[queries.start : queries.stop, keys.start : keys.stop] = mask.rows(range(mask.n_q))
    return Mask(mask.name, n_q, n_k, array)
