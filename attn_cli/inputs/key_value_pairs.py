"""A dictionary as the user gives it: KEY=VALUE arguments, or an object in a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from attn_cli.errors import LONGEST, InputError, UsageError, listed, visible
from attn_cli.inputs.csv_matrix import is_number

MOST_PAIRS = 2000
TRY = 'Write KEY=VALUE, as in: attn lookup colour color=black "top speed=250"'


class Pairs(NamedTuple):
    """A dictionary: a value, as typed, for each key; and notes on its input."""

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()


def pairs_from(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return (key, value) of each KEY=VALUE, cut at the first = and stripped."""
    pairs = []
    for argument in arguments:
        key, equals, value = (part.strip() for part in argument.partition("="))
        shown = repr(visible(argument[:LONGEST]))
        if not equals:
            raise UsageError(f"{shown} is not a pair: it has no =.", TRY)
        if not key or not value:
            raise UsageError(f"{shown} has no {'value' if key else 'key'}.", TRY)
        pairs.append((key, value))
    return pairs


def pairs_in(record: Mapping[str, object], name: str) -> list[tuple[str, str]]:
    """Return (key, value) of each pair in an object of texts and numbers."""
    pairs = []
    for key, value in record.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        text = str(value).strip() if is_number or isinstance(value, str) else ""
        if not key.strip() or not text:
            what = f"the value of {visible(key[:LONGEST])!r} is neither a text nor a number"
            hint = 'Write an object such as {"color": "black", "top speed": 250}.'
            raise InputError(f"{name}: {what if key.strip() else 'a key is empty'}.", hint)
        pairs.append((key.strip(), text))
    return pairs


def dictionary(pairs: Iterable[tuple[str, str]]) -> Pairs:
    """Return a dictionary of these pairs; of a repeated key the last value counts, with a note."""
    values = dict(pairs := list(pairs))
    if not values:
        raise UsageError("There is no pair to look up in.", TRY)
    if len(values) > MOST_PAIRS:
        raise InputError(f"{len(values):,} pairs are too many: {MOST_PAIRS:,} are the limit.")
    repeated = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
    counted = f"Given more than once: {listed(repeated)}. As in a Python dictionary, the last value counts."
    notes = [counted] if repeated else []
    words = [value for value in values.values() if not is_number(value)]
    if 0 < len(words) < len(values):
        notes.append(f"{visible(words[0][:LONGEST])!r} is not a number, so all values count as words.")
    return Pairs(MappingProxyType(values), tuple(notes))


def numbers_of(pairs: Pairs) -> list[float] | None:
    """Return the values as numbers; None if one is not a number."""
    values = pairs.values.values()
    if not all(map(is_number, values)):
        return None
    for value in values:
        if not math.isfinite(float(value)):
            said = f"The value {visible(value[:LONGEST])} is more than a number can hold."
            raise InputError(said, "Give a smaller one.")
    return [float(value) for value in values]
