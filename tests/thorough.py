"""How much a test tries: a part by default, so that a run stays short; all of it where THOROUGH is set.

With THOROUGH=rest, a run of everything has what a run without it leaves out, and what looks at streams.
"""

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from itertools import groupby, islice
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_THOROUGH = bool(os.environ.get("THOROUGH"))
IS_REST = os.environ.get("THOROUGH") == "rest"
ALL_TESTS = 3000  # a run of at least so many is one of everything, not of what somebody works on
FEW_CASES = 3
EVERY = 4  # case of a test with more like ones
MOST_LIKE = 16  # cases of a test with many of them
OF_STREAMS = "tests/io/"

takes_long = pytest.mark.takes_long  # left out of a run of everything
like_cases = pytest.mark.like_cases  # what one case finds, most of the others would find: a run tries some


def often(count: int) -> int:
    """Return how many of `count` random cases this run tries."""
    return count if IS_THOROUGH else -(-count // 3)


def some(cases: Iterable[T], turn: int = 0) -> Iterator[T]:
    """Return the cases that this run tries: a third of them, another third at each `turn`."""
    return iter(cases) if IS_THOROUGH else islice(cases, turn % 3, None, 3)


def tries_more(test: pytest.Item) -> bool:
    """Tell whether a test tries more where THOROUGH is set, as its module or Hypothesis does, or looks at streams."""
    module = getattr(test, "module", None)
    has_more = getattr(module, "often", None) is often or getattr(module, "some", None) is some
    draws = getattr(getattr(test, "obj", None), "is_hypothesis_test", False)
    return has_more or draws or test.nodeid.startswith(OF_STREAMS)


def thinned(tests: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests to run: a few of like cases, of a grid as many as have each value, and all others."""
    for _, group in groupby(tests, lambda test: test.nodeid.partition("[")[0]):
        cases = [*group]
        if len(cases) > FEW_CASES and cases[0].get_closest_marker(like_cases.name) is not None:
            yield from cases[:: max(EVERY, -(-len(cases) // MOST_LIKE))]
        else:
            yield from (cases[place] for place in covering([_values(case) for case in cases]))


def covering(cases: Sequence[Set[Hashable]]) -> list[int]:
    """Return the places of cases that together have each value: a list of cases is kept, a grid has its diagonal.

    >>> covering([{"a"}, {"b"}, {"c"}])
    [0, 1, 2]
    >>> covering([{"a", 1}, {"a", 2}, {"a", 3}, {"b", 1}, {"b", 2}, {"b", 3}])
    [0, 2, 4]
    """
    seen: set[Hashable] = set()
    kept = set()
    for is_worth in (Set.isdisjoint, lambda case, seen: not case <= seen):
        for place, case in enumerate(cases):
            if is_worth(case, seen):
                kept.add(place)
                seen |= case
    return sorted(kept)


def _values(test: pytest.Item) -> Set[Hashable]:
    """Return what makes a case: which of the values each list of parameters has given it."""
    left = {name: id(value) for name, value in getattr(getattr(test, "callspec", None), "params", {}).items()}
    found: set[Hashable] = set()
    for mark in test.iter_markers("parametrize"):
        names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        found.add((*names, *(left.pop(name, None) for name in names)))
    return found | {*left.items()}
