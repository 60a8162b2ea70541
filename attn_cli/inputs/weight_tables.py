"""Saved weights as CSV or TSV: a column a key, a row a link (tidy), or bare numbers; what attn itself writes, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.inputs.tidy_links import grid_of
from attn_cli.inputs.weight_axes import heads_of_layers
from attn_cli.io.csv_matrix import (
    ONE_MATRIX,
    SUFFIXES,
    Line,
    by_separator,
    number_in,
    sheet_of,
    unguarded,
)
from attn_cli.io.decimals import is_number
from attn_cli.io.escape import visible
from attn_cli.io.plural import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIDY = ["query", "key", "weight"]
STRONGEST = [*TIDY, "query_row", "key_column"]


class Table(NamedTuple):
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


def read_table(data: bytes, name: str) -> Table:
    """Return the weights and the labels of CSV or TSV; InputError, with the line, where they are none."""
    table = by_separator(data, name, lambda lines: _table(lines, name))
    empty = np.isnan(table.weights)
    if (empty != empty[0, 0]).any():
        raise InputError(f"{name}: its heads do not have the same empty cells.", "Give one head alone.")
    return table


def _table(lines: list[Line], name: str) -> Table:
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
    return Table(weights[np.newaxis, np.newaxis], ("0",), queries, keys)


def _one(lines: list[Line], name: str) -> Table:
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
    return Table(np.array(rows)[np.newaxis, np.newaxis], ("0",), queries, keys)


def _is_wide(body: list[Line]) -> bool:
    """Tell whether a table whose header is that of links has two keys of these names: "key weight" was the text."""
    are_numbers = all(is_number(line.cells[1]) or not line.cells[1] for line in body)
    return are_numbers and [line.cells[0] for line in body] == TIDY[1:]


def _of_heads(parts: dict[tuple[str, ...], Table], name: str) -> Table:
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
    return Table(weights.reshape(layers, len(heads), *weights.shape[-2:]), heads, *first[2:])


def _check_width(line: Line, header: list[str], name: str) -> None:
    if len(line.cells) != len(header):
        held = count(len(line.cells), "cell", "cells")
        raise InputError(
            f"{name}, line {line.number}: the row has {held}, the header {len(header)}.",
            "Give rows of equally many cells.",
        )
