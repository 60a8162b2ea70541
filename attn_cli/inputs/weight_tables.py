"""Saved weights as CSV or TSV: a column a key, a row a link (tidy), or bare numbers; what attn itself writes, too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.inputs.csv_matrix import (
    ONE_MATRIX,
    SUFFIXES,
    Line,
    by_separator,
    is_number,
    number_in,
    sheet_of,
    unguarded,
)
from attn_cli.inputs.weight_axes import heads_of_layers
from attn_cli.io.escape import count, visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIDY = ["query", "key", "weight"]
STRONGEST = [*TIDY, "query_row", "key_column"]


class WeightTable(NamedTuple):
    """The contents of a table: weights (layers, heads, n_q, n_k), NaN where a cell is empty, and its labels."""

    weights: NDArray[Any]
    heads: tuple[str, ...]
    queries: list[str] | None
    keys: list[str] | None

    @property
    def mask(self) -> object:
        """What empty cells say: causal, or booleans with True for a cell that is filled; None where all are."""
        n_q, n_k = self.weights.shape[-2:]
        allowed = ~np.isnan(self.weights[0, 0])
        if allowed.all():
            return None
        return "causal" if np.array_equal(allowed, np.tri(n_q, n_k)) and n_q == n_k else allowed


def is_table(data: bytes, name: str) -> bool:
    """Tell by a file's name, or by its first line, whether it is CSV or TSV."""
    if name.lower().endswith(SUFFIXES):
        return True
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    first = start.partition(b"\n")[0].decode("utf-8", "replace")
    if b"\0" in start or first[:1] in ("[", "{"):
        return False
    return any(separator in first for separator in ",;\t") or is_number(first)


def read_table(data: bytes, name: str) -> WeightTable:
    """Return the weights and the labels of CSV or TSV; InputError, with the line, where they are none."""
    table = by_separator(data, name, lambda lines: _table(lines, name))
    empty = np.isnan(table.weights)
    if (empty != empty[0, 0]).any():
        raise InputError(f"{name}: its heads do not have the same empty cells.", "Give one head alone.")
    return table


def _table(lines: list[Line], name: str) -> WeightTable:
    header = lines[0].cells
    at = next((n for n in (1, 2) if header[: n + 1] == ["layer", "head", "query"][2 - n :]), 0)
    if at:
        parts: dict[tuple[str, ...], list[Line]] = {}
        for line in lines[1:]:
            _check_width(line, header, name)
            label = tuple(map(unguarded, line.cells[:at]))
            part = parts.setdefault(label, [lines[0]._replace(cells=header[at:])])
            part.append(line._replace(cells=line.cells[at:]))
        return _of_heads({label: _one(part, name) for label, part in parts.items()}, name)
    if header[0] == "query":
        return _one(lines, name)
    cells, queries, keys = sheet_of(lines, name)
    weights = np.array([[float(cell) for cell in row] for row in cells])
    return WeightTable(weights[np.newaxis, np.newaxis], ("0",), queries, keys)


def _one(lines: list[Line], name: str) -> WeightTable:
    """Return one head's weights, in attn's own form: wide or tidy."""
    header, body = lines[0].cells, lines[1:]
    for line in body:
        _check_width(line, header, name)
    if not body or len(header) < 2:
        raise InputError(f"{name} holds no numbers.", ONE_MATRIX)
    if header == STRONGEST:
        raise InputError(
            f"{name} holds each row's strongest links, and not the weights.",
            "Make it without --top; above a million weights, with --full.",
        )
    if header == TIDY and not _is_wide(body):
        links = [(*map(unguarded, line.cells[:2]), number_in(line, 2, name)) for line in body]
        queries, keys, rows = grid_of(links, name)  # type: ignore[arg-type]  # map of two is two
    else:
        rows = [[number_in(line, j, name) for j in range(1, len(header))] for line in body]
        queries, keys = [unguarded(line.cells[0]) for line in body], list(map(unguarded, header[1:]))
    return WeightTable(np.array(rows)[np.newaxis, np.newaxis], ("0",), queries, keys)


def _is_wide(body: list[Line]) -> bool:
    """Tell whether a table whose header is that of links has two keys of these names: "key weight" was the text."""
    are_numbers = all(is_number(line.cells[1]) or not line.cells[1] for line in body)
    return are_numbers and [line.cells[0] for line in body] == TIDY[1:]


def _of_heads(parts: dict[tuple[str, ...], WeightTable], name: str) -> WeightTable:
    """Return the tables of several heads, by their names behind those of their layers, as one."""
    first = next(iter(parts.values()), None)
    if first is None:
        raise InputError(f"{name} holds no numbers.", ONE_MATRIX)
    for label, part in parts.items():
        if part[2:] != first[2:]:
            head = visible(".".join(label))[:40]
            raise InputError(f"{name}: head {head!r} has other tokens than the first head.")
    layers, heads = heads_of_layers([(label[:-1], label[-1]) for label in parts], name)
    weights = np.concatenate([part.weights for part in parts.values()], axis=1)
    return WeightTable(weights.reshape(layers, len(heads), *weights.shape[-2:]), heads, *first[2:])


def _check_width(line: Line, header: list[str], name: str) -> None:
    if len(line.cells) != len(header):
        held = count(len(line.cells), "cell", "cells")
        raise InputError(
            f"{name}, line {line.number}: the row has {held}, the header {len(header)}.",
            "Give rows of equally many cells.",
        )


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
