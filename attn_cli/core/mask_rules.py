"""Mask rules: which keys each query may attend to, by name. A new rule is a new entry of MASKS.

A rule is computed from places alone: query i, key j, and how many there are of each. NumPy is not imported here,
because the command line reads the names before it needs NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools, Ints

Reach = tuple[int | None, int | None]
EVERYWHERE: Reach = (None, None)


class MaskRule(NamedTuple):
    """One rule. Its callables take, after what is named here, the numbers that its name holds (N of `window:N`)."""

    words: Callable[..., str]  # (is_self): one sentence, what query i may look at
    comment: str  # the same in a script, with {} for each number
    lines: Mapping[str, str]  # by framework: an expression for the mask, of n_q and n_k, with {} as above
    # (n_q, n_k): how far to the left and to the right of its own place a query sees; None is without end.
    reach: Callable[..., Reach] = lambda n_q, n_k, *numbers: EVERYWHERE
    # (i, j, n_q, n_k), i a column and j a row of places: who may attend to whom, where reach does not say it all.
    allowed: Callable[..., Bools] | None = None
    form: str = ""  # how a name with numbers is typed
    numbers: int = 0
    javascript: str = (
        ""  # in a page: an expression of i, j, n_q, n_k and its numbers a and b; without, no page has it
    )
    corner: str = ""  # of a causal rule: from which corner of the matrix it starts
    keras_argument: str = ""  # of keras.layers.Attention, where the layer knows the rule

    def rows(self, i: Ints, j: Ints, n_q: int, n_k: int, *numbers: int) -> Bools:
        """Return the mask of the queries i (rows, 1) over the keys j (columns,)."""
        if self.allowed is not None:
            allowed: Bools = (i == i) & (j == j) & self.allowed(i, j, n_q, n_k, *numbers)  # (rows, columns)
            return allowed
        left, right = self.reach(n_q, n_k, *numbers)
        if left is None:
            return (i == i) & (j == j) if right is None else j <= i + right
        return j >= i - left if right is None else (j >= i - left) & (j <= i + right)


MASKS: dict[str, MaskRule] = {  # by name up to the first colon; rules that share it differ in their numbers
    "none": MaskRule(
        words=lambda is_self: "Every query may look at every key.",
        comment="No mask.",
        lines={},
        javascript="true",
    ),
    "causal": MaskRule(
        words=lambda is_self: (
            f"Query i may look at the keys 0 to i{': at itself and back' if is_self else ''}."
        ),
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
    "window": MaskRule(
        words=lambda is_self, n: (
            f"A query may look at keys that stand at most {n:,} place{'s' * (n != 1)} away."
        ),
        comment="Window mask: each query sees the keys whose positions differ from its own by at most {}.",
        lines={
            "numpy": "np.abs(np.arange(n_q)[:, None] - np.arange(n_k)) <= {}",
            "torch": "(torch.arange(n_q)[:, None] - torch.arange(n_k)).abs() <= {}",
            "keras": "ops.abs(ops.arange(n_q)[:, None] - ops.arange(n_k)) <= {}",
        },
        reach=lambda n_q, n_k, n: (n, n),
        javascript="Math.abs(i - j) <= a",
        form="window:N",
        numbers=1,
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
        form="window:L:R",
        numbers=2,
    ),
}


def _places(n: int, side: str) -> str:
    return f"{n:,} place{'s' * (n != 1)} {side}" if n else "its own place"


def mask_forms() -> tuple[str, ...]:
    """Return how each rule is typed: none, causal, window:N."""
    return tuple(rule.form or name for name, rule in MASKS.items())


def mask_examples() -> tuple[str, ...]:
    """Return a name of each rule: none, causal, window:1."""
    return tuple(re.sub(":[A-Z]", ":1", form) for form in mask_forms())


def find_rule(name: str) -> tuple[MaskRule, tuple[int, ...]] | None:
    """Return the rule of that name and the numbers in it; None if there is none."""
    stem, *numbers = name.split(":")
    if not all(re.fullmatch("[0-9]{1,9}", n) for n in numbers):
        return None
    for key, rule in MASKS.items():
        if key.partition(":")[0] == stem and rule.numbers == len(numbers):
            return rule, tuple(map(int, numbers))
    return None


def rule_named(name: str) -> tuple[MaskRule, tuple[int, ...]]:
    """Return the rule of that name and the numbers in it; raise UsageError if none has it."""
    found = find_rule(name)
    if found is None:
        numbers = dict.fromkeys(letter for form in mask_forms() for letter in form.split(":")[1:])
        near = did_you_mean(name, mask_forms())
        hint = f"{near}Masks are {', '.join(mask_forms())} ({', '.join(numbers)}: 0 or more), or a file."
        raise UsageError(f"There is no mask {name!r}.", hint, "--mask")
    return found
