"""Saved weights as CSV or TSV: a column a key, a row a link (tidy), or bare numbers; what attn itself writes, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from math import isqrt, nan
from typing import Any

import numpy as np

from attn_cli.errors import InputError, count, refuse_input, visible
from attn_cli.inputs import csv_matrix, weight_axes
from attn_cli.io.types import NamedTuple, NDArray

TIDY = ["query", "key", "weight"]
STRONGEST = "holds each row's strongest links, and not the weights."
WHOLE = "Make it without --top; above a million weights, with --full."
TOLERANCE = 1e-2
Link = tuple[str, str, float]


class WeightTable(NamedTuple):
    """The contents of a table: weights (layers, heads, n_q, n_k), NaN where a cell is empty, and its labels."""

    weights: NDArray[Any]
    heads: tuple[str, ...]
    queries: list[str] | None
    keys: list[str] | None

    @property
    def mask(self) -> object:
        """What empty cells say: causal, or booleans with True for a cell that is filled; None where all are."""
        allowed = ~np.isnan(self.weights[0, 0])
        if allowed.all():
            return None
        return "causal" if np.array_equal(allowed, np.tri(len(allowed))) else allowed


class Grid(NamedTuple):
    """A matrix with its labels; NaN is a pair without a link."""

    queries: list[str] | None
    keys: list[str] | None
    weights: list[list[float]]


def is_table(data: bytes, name: str) -> bool:
    """Tell by a file's name, or by its first line, whether it is CSV or TSV."""
    if csv_matrix.is_csv(name):
        return True
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    first = start.partition(b"\n")[0].decode("utf-8", "replace")
    if b"\0" in start or first[:1] in ("[", "{"):
        return False
    return any(separator in first for separator in ",;\t") or csv_matrix.is_number(first)


def read_table(data: bytes, name: str) -> WeightTable:
    """Return the weights and the labels of CSV or TSV; InputError, with the line, where they are none."""
    table = csv_matrix.by_separator(data, name, lambda lines: _table(lines, name))
    empty = np.isnan(table.weights)
    if (empty != empty[0, 0]).any():
        raise InputError(f"{name}: its heads do not have the same empty cells.", "Give one head alone.")
    return table


def _table(lines: list[csv_matrix.Line], name: str) -> WeightTable:
    """Return the weights of one head, or of several, whose rows begin with the head, or the layer and the head."""
    header = lines[0].cells
    at = next((n for n in (1, 2) if header[: n + 1] == ["layer", "head", "query"][2 - n :]), 0)
    if at:
        parts: dict[tuple[str, ...], list[csv_matrix.Line]] = {}
        for line in lines[1:]:
            _check_width(line, header, name)
            part = parts.setdefault(tuple(map(csv_matrix.unguarded, line.cells[:at])), [])
            part.append(line._replace(cells=line.cells[at:]))
        first = lines[0]._replace(cells=header[at:])
        grids = {label: _head([first, *part], name) for label, part in parts.items()}
    else:
        grids = {("0",): _head(lines, name)}
    refuse_input(not grids, f"{name} holds no numbers.", csv_matrix.ONE_MATRIX)
    queries, keys, _ = next(iter(grids.values()))
    for label, grid in grids.items():
        if grid[:2] != (queries, keys):
            head = visible(".".join(label))[:40]
            raise InputError(f"{name}: head {head!r} has other tokens than the first head.")
    layers, heads = weight_axes.heads_of_layers([(label[:-1], label[-1]) for label in grids], name)
    weights = np.array([grid.weights for grid in grids.values()])
    return WeightTable(weights.reshape(layers, len(heads), *weights.shape[1:]), heads, queries, keys)


def _head(lines: list[csv_matrix.Line], name: str) -> Grid:
    """Return one head's weights: from links, a row each, or from a matrix with labels or without."""
    header, body = lines[0].cells, lines[1:]
    refuse_input(header == [*TIDY, "query_row", "key_column"], f"{name} {STRONGEST}", WHOLE)
    for line in body if header[0] == "query" else ():
        _check_width(line, header, name)
    # Below the header of links there may be two keys of these names: "key weight" was the text.
    is_filled = all(len(line.cells) > 1 and csv_matrix.is_number(line.cells[1] or "0") for line in body)
    is_wide = is_filled and [line.cells[0] for line in body] == TIDY[1:]
    if header == TIDY and body and not is_wide:
        names = [[csv_matrix.unguarded(cell) for cell in line.cells[:2]] for line in body]
        numbers = [csv_matrix.number_in(line, 2, name) for line in body]
        links = [(query, key, number) for (query, key), number in zip(names, numbers, strict=True)]
        return grid_of(links, name)
    cells, queries, keys = csv_matrix.sheet_of(lines, name)
    return Grid(queries, keys, [list(map(float, row)) for row in cells])


def _check_width(line: csv_matrix.Line, header: list[str], name: str) -> None:
    if len(line.cells) != len(header):
        held = count(len(line.cells), "cell", "cells")
        said = f"{name}, line {line.number}: the row has {held}, the header {len(header)}."
        raise InputError(said, "Give rows of equally many cells.")


def grid_of(links: Sequence[Link], name: str) -> Grid:
    """Return the matrix that links are the rows of, one after the other.

    Words that are repeated are told apart by the order. Of several ways to read it, one whose rows sum to one is
    taken, and one with the same words on both sides. Raises InputError where there are several still, or none.
    """
    found = read = list(_whole_or_causal(links))
    if len(found) > 1:
        found = [grid for grid in found if (abs(np.nansum(grid.weights, axis=1) - 1) <= TOLERANCE).all()]
    if len(found) > 1:
        found = [grid for grid in found if grid.queries == grid.keys]
    if not read and (merged := _by_runs(links)) is not None:
        found = [merged]
    order = f"the order of its {len(links):,} links does not tell which is which"
    hint = "Use the wide form: -f csv without --tidy."
    refuse_input(len(found) != 1, f"{name}: words are repeated, and {order}.", hint)
    return found[0]


def _whole_or_causal(links: Sequence[Link]) -> Iterator[Grid]:
    """Yield the readings in which every query has a link to every key, then that with the keys up to itself."""
    total = len(links)
    small = [n for n in range(1, isqrt(total) + 1) if total % n == 0]
    for n_k in sorted({*small, *(total // n for n in small)}):
        if grid := _read_as(links, [n_k] * (total // n_k)):
            yield grid
    n = (isqrt(8 * total + 1) - 1) // 2
    if n >= 2 and n * (n + 1) // 2 == total:
        grid = _read_as(links, range(1, n + 1))
        if grid is not None and grid.queries == grid.keys:
            yield grid


def _read_as(links: Sequence[Link], lengths: Sequence[int]) -> Grid | None:
    """Return the matrix whose rows have so many links each, to the first keys of the last row; None if it is none."""
    rows = [links[end - n : end] for n, end in zip(lengths, accumulate(lengths), strict=True)]
    queries, keys = [row[0][0] for row in rows], [link[1] for link in rows[-1]]
    for query, row in zip(queries, rows, strict=True):
        if any(link[0] != query or link[1] != key for link, key in zip(row, keys, strict=False)):
            return None
    return Grid(queries, keys, [[*(one[2] for one in row), *[nan] * (len(keys) - len(row))] for row in rows])


def _by_runs(links: Sequence[Link]) -> Grid | None:
    """Return the reading in which a query's links stand together, and each key has one place in every row."""
    rows = [list(run) for _, run in groupby(links, key=lambda link: link[0])]
    queries = [row[0][0] for row in rows]
    if any(sum(link[2] for link in row) > 1 + TOLERANCE for row in rows):
        return None
    for keys in (queries, list(dict.fromkeys(link[1] for link in links))):
        places = [_places([link[1] for link in row], keys) for row in rows]
        if all(places):
            weights = np.full((len(rows), len(keys)), nan)
            for to, row, columns in zip(weights, rows, places, strict=True):
                to[columns] = [link[2] for link in row]
            return Grid(queries, keys, weights.tolist())
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
