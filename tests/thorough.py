"""How much a test tries: a third by default, so that a run stays short; all of it where THOROUGH is set."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

IS_THOROUGH = bool(os.environ.get("THOROUGH"))


def often(count: int) -> int:
    """Return how many of `count` random cases this run tries."""
    return count if IS_THOROUGH else -(-count // 3)


def some(cases: Iterable[T], turn: int = 0) -> Iterator[T]:
    """Return the cases that this run tries: a third of them, another third at each `turn`."""
    return iter(cases) if IS_THOROUGH else islice(cases, turn % 3, None, 3)
