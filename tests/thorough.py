"""How much a test tries: a part by default, so that a run stays short; all of it where THOROUGH is set.

With THOROUGH=rest, a run of everything has what a run without it leaves out, and what looks at streams.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_THOROUGH = bool(os.environ.get("THOROUGH"))
IS_REST = os.environ.get("THOROUGH") == "rest"
ALL_TESTS = 3000  # a run of at least so many is one of everything, not of what somebody works on
FEW_CASES = 3
EVERY = 4  # case of a test with more
OF_STREAMS = "tests/io/"

takes_long = pytest.mark.takes_long  # left out of a run of everything


def often(count: int) -> int:
    """Return how many of `count` random cases this run tries."""
    return count if IS_THOROUGH else -(-count // 3)


def some(cases: Iterable[T], turn: int = 0) -> Iterator[T]:
    """Return the cases that this run tries: a third of them, another third at each `turn`."""
    return iter(cases) if IS_THOROUGH else islice(cases, turn % 3, None, 3)


def tries_more(test: pytest.Item) -> bool:
    """Tell whether a test may try more cases where THOROUGH is set, or looks at streams: its module says so."""
    module = getattr(test, "module", None)
    has_more = getattr(module, "often", None) is often or getattr(module, "some", None) is some
    return has_more or test.nodeid.startswith(OF_STREAMS)


def thinned(tests: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the tests to run: of a test with many cases one in EVERY.

    >>> [*thinned([*(f"test_many[{n}]" for n in range(1, 6)), "test_few[1]", "test_few[2]"])]
    ['test_many[1]', 'test_many[5]', 'test_few[1]', 'test_few[2]']
    """
    for _, group in groupby(tests, lambda test: test.partition("[")[0]):
        cases = [*group]
        yield from cases[::EVERY] if len(cases) > FEW_CASES else cases
