"""Rows of query, key and weight put back into a matrix, by their order: words may be repeated, links masked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isqrt
from typing import NamedTuple

from attn_cli.errors import InputError

TOLERANCE = 1e-2
NAN = float("nan")

Link = tuple[str, str, float]


class Grid(NamedTuple):
    """A matrix with its labels; NaN is a pair without a link."""

    queries: list[str]
    keys: list[str]
    weights: list[list[float]]


def grid_of(links: Sequence[Link], name: str) -> Grid:
    """Return the matrix that links are the rows of, one after the other.

    Words that are repeated are told apart by the order. Of several ways to read it, one whose rows sum to one is
    taken, and one with the same words on both sides. Raises InputError where there are several still, or none.
    """
    found = read = [*_whole(links), *_causal(links)]
    if len(found) > 1:
        found = [grid for grid in found if _sums_to_one(grid)]
    if len(found) > 1:
        found = [grid for grid in found if _is_square(grid)]
    if not read and (merged := _by_runs(links)) is not None:
        found = [merged]
    if len(found) != 1:
        raise InputError(
            f"{name}: words are repeated, and the order of its {len(links):,} links does not tell which is which.",
            "Use the wide form: -f csv without --tidy.",
        )
    return found[0]


def _whole(links: Sequence[Link]) -> list[Grid]:
    """Return the readings in which every query has a link to every key."""
    queries, keys = [link[0] for link in links], [link[1] for link in links]
    total, found = len(links), []
    divisors = {
        n for small in range(1, isqrt(total) + 1) if total % small == 0 for n in (small, total // small)
    }
    for n_k in sorted(divisors):
        rows = total // n_k
        if keys == keys[:n_k] * rows and queries == [query for query in queries[::n_k] for _ in range(n_k)]:
            weights = [[link[2] for link in links[n_k * i : n_k * (i + 1)]] for i in range(rows)]
            found.append(Grid(queries[::n_k], keys[:n_k], weights))
    return found


def _causal(links: Sequence[Link]) -> list[Grid]:
    """Return the reading in which each query has links to the keys up to itself, if it is one."""
    n = (isqrt(8 * len(links) + 1) - 1) // 2
    if n < 2 or n * (n + 1) // 2 != len(links):
        return []
    tokens = [link[1] for link in links[-n:]]
    weights = []
    for i in range(n):
        row = links[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2]
        if [link[1] for link in row] != tokens[: i + 1] or {link[0] for link in row} != {tokens[i]}:
            return []
        weights.append([*(link[2] for link in row), *[NAN] * (n - i - 1)])
    return [Grid(tokens, tokens, weights)]


def _by_runs(links: Sequence[Link]) -> Grid | None:
    """Return the reading in which a query's links stand together, and each key has one place in every row."""
    rows = [list(run) for _, run in groupby(links, key=lambda link: link[0])]
    queries = [row[0][0] for row in rows]
    if any(sum(link[2] for link in row) > 1 + TOLERANCE for row in rows):
        return None
    for keys in (queries, list(dict.fromkeys(link[1] for link in links))):
        places = [_places([link[1] for link in row], keys) for row in rows]
        if all(places):
            weights = [[NAN] * len(keys) for _ in rows]
            for i, (row, columns) in enumerate(zip(rows, places, strict=True)):
                for link, j in zip(row, columns, strict=True):
                    weights[i][j] = link[2]
            return Grid(queries, keys, weights)
    return None


def _places(row: list[str], keys: list[str]) -> list[int]:
    """Return the places of a row's keys among all, in order; none where there is no way, or more than one."""
    first = _leftmost(row, keys)
    last = [len(keys) - 1 - j for j in reversed(_leftmost(row[::-1], keys[::-1]))]
    return first if first == last else []


def _leftmost(row: list[str], keys: list[str]) -> list[int]:
    found: list[int] = []
    for key in row:
        try:
            found.append(keys.index(key, found[-1] + 1 if found else 0))
        except ValueError:
            return []
    return found


def _sums_to_one(grid: Grid) -> bool:
    return all(abs(sum(w for w in row if w == w) - 1) <= TOLERANCE for row in grid.weights)


def _is_square(grid: Grid) -> bool:
    return grid.queries == grid.keys
