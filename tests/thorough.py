"""How much a test tries: a part by default, so that a run stays short; all of it where THOROUGH is set."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_THOROUGH = bool(os.environ.get("THOROUGH"))
ALL_TESTS = 3000  # a run of at least so many is one of everything, not of what somebody works on
FEW_CASES = 3

takes_long = pytest.mark.skipif(not IS_THOROUGH, reason="takes long: THOROUGH=1 runs it")


def often(count: int) -> int:
    """Return how many of `count` random cases this run tries."""
    return count if IS_THOROUGH else -(-count // 3)


def some(cases: Iterable[T], turn: int = 0) -> Iterator[T]:
    """Return the cases that this run tries: a third of them, another third at each `turn`."""
    return iter(cases) if IS_THOROUGH else islice(cases, turn % 3, None, 3)


def thinned(tests: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the tests to run: of a test with many cases every third, where all tests are run.

    >>> many = [f"test_many[{n}]" for n in range(ALL_TESTS)] + ["test_few[a]", "test_few[b]", "test_alone"]
    >>> kept = [*thinned(many)]
    >>> len(kept) == len(many) if IS_THOROUGH else (kept[:2], kept[-3:]) == (many[:4:3], many[-3:])
    True
    >>> [*thinned(many[:100])] == many[:100]
    True
    """
    for _, group in groupby(tests, lambda test: test.partition("[")[0]):
        cases = [*group]
        has_many = len(cases) > FEW_CASES and len(tests) >= ALL_TESTS and not IS_THOROUGH
        yield from cases[::3] if has_many else cases
