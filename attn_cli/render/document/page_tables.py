"""A matrix laid out for a page: which digits, which labels upright, which columns and rows on which sheet.

It is the width ladder for paper: digits go before numbers do, numbers before shades, and then columns go to
further sheets. A width is counted in characters, as on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.io.escape import visible
from attn_cli.render.blocks import Maps, Matrix, digits_of, fitting_columns
from attn_cli.render.numbers import Format
from attn_cli.render.screen.maps import map_format
from attn_cli.render.screen.text import cut
from attn_cli.render.width_ladder import Rung, largest, rungs, shading
from attn_cli.settings.output import View

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

PAGE = 100  # characters: about the text of a landscape page
LABEL = 24  # characters of a label before its middle is left out
GAP, HEAT, TAIL = 1.2, 1.4, 6.0  # between columns; a cell without a number; the column of sums
UNFITTED = 12  # columns of a wide matrix of numbers that are shown at least

Cost = Callable[[str], float]


class Sheet(NamedTuple):
    """One table of a matrix: texts and shades are (rows, columns); a shade of -1 is masked."""

    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    shades: Sequence[Sequence[int]]
    sums: Sequence[str] = ()
    told: str = ""  # which part of the matrix this is


class Sheets(NamedTuple):
    """All tables of a matrix, and how to draw them; `bare` cells show their shade alone."""

    parts: list[Sheet]
    turned: bool
    bare: bool
    told: list[str]


class Scale(NamedTuple):
    """What the shades mean: the least and the largest value; both "" where everything is masked."""

    low: str
    high: str
    has_masked: bool


def is_coloured(block: Matrix, view: View) -> bool:
    """Tell whether the matrix is to be drawn with shades."""
    return block.shaded and view.color != "never"


def sheets(block: Matrix, view: View, cost: Cost, tall: int | None = None) -> Sheets:
    """Lay a matrix out for `view.width` characters (else PAGE); `cost` is a label's width, `tall` the most rows.

    A masked value is NaN. Every number stands whole on some sheet, or the cell is bare and `told` says so.
    """
    coloured = is_coloured(block, view)
    room = (view.width or PAGE) - max(map(cost, [block.corner, *block.rows]), default=0.0)
    room = max(10.0, room - (TAIL if block.sums else 0.0))
    few, more = _fitted(block, view, cost, room)
    values = block.values[:, few]
    ways = [r for r in _rungs(block, values, digits_of(block, view.precision)) if r.block < 2]
    ways = [r for r in ways if r.format is not None or coloured]
    names = list(block.columns[few])
    rung, turned, across = _layout(ways, values, names, cost, room)
    form = rung.format or _finest(ways)
    texts = [form.row(row) for row in values.tolist()]
    low, high = _range(block, values)
    shades = shading(values, low, high).tolist()
    parts = [
        _part(block, names, texts, shades, slice(top, end), slice(start, stop))
        for top, end in _spans(len(texts), tall)
        for start, stop in _spans(len(names), across)
    ]
    return Sheets(parts, turned, rung.format is None, _told(rung, len(names), across, more, view))


def _fitted(block: Matrix, view: View, cost: Cost, room: float) -> tuple[slice, str]:
    """Return the columns to show, and what was left out: a `fits` matrix shows those alone that fit."""
    n = block.values.shape[1]
    if not block.fits or n <= UNFITTED:
        return slice(n), block.more
    form = _rungs(block, block.values, digits_of(block, view.precision))[0].format
    assert form is not None
    some = fitting_columns(block, 64)
    widest = max(_widest(form, block.values[:, some]), *map(cost, block.columns[some]))
    across = max(1, min(n, int(room / (widest + GAP))))
    rest = f"{n - across:,} more columns" if across < n else ""
    return fitting_columns(block, across), ", ".join(filter(None, [rest, block.more]))


def _widest(form: Format, values: Array) -> int:
    texts = form.row(values.ravel().tolist()) if values.size else []
    return max([len(text) for text in texts if text != "nan"], default=1)


def _finest(ways: Sequence[Rung]) -> Format:
    found = next(rung.format for rung in ways if rung.format is not None)
    assert found is not None
    return found


def _layout(
    ways: Sequence[Rung], values: Array, names: Sequence[str], cost: Cost, room: float
) -> tuple[Rung, bool, int]:
    """Return the first rung on which all columns fit, labels level or turned, else the last; and how many fit."""
    costs = [cost(name) for name in names]
    for rung in ways:
        least = HEAT if rung.format is None else _widest(rung.format, values) + GAP
        if sum(max(least, label + GAP) for label in costs) <= room:
            return rung, False, len(names)
        if least * len(names) <= room:
            return rung, True, len(names)
    return ways[-1], True, max(1, int(room / least))


def _spans(n: int, most: int | None) -> list[tuple[int, int]]:
    """Cut n things into parts of like size, of `most` at the most."""
    parts = 1 if most is None or n <= most else -(-n // most)
    return list(pairwise([n * part // parts for part in range(parts + 1)]))


def _part(
    block: Matrix,
    names: Sequence[str],
    texts: Sequence[Sequence[str]],
    shades: Sequence[Sequence[int]],
    down: slice,
    along: slice,
) -> Sheet:
    told = []
    if down.stop - down.start < len(texts):
        told.append(f"rows {down.start} to {down.stop - 1} of {len(texts)}")
    if along.stop - along.start < len(names):
        told.append(f"columns {along.start} to {along.stop - 1} of {len(names)}")
    return Sheet(
        block.rows[down],
        names[along],
        [row[along] for row in texts[down]],
        [row[along] for row in shades[down]],
        block.sums[down],
        ", ".join(told),
    )


def _told(rung: Rung, n: int, across: int, more: str, view: View) -> list[str]:
    """Return what was done to fit, in sentences."""
    how = "shades without numbers" if rung.format is None else rung.told
    said = (
        [
            f"To fit: {how}. --precision 3 shows three digits, in several tables if need be; --width allows more."
        ]
        if how
        else []
    )
    if across < n:
        said.append(f"The columns stand in {len(_spans(n, across))} tables.")
    return [*said, f"… {more}"] if more else said


def _rungs(block: Matrix, values: Array, precision: int | None) -> tuple[Rung, ...]:
    return rungs(values, block.is_weights, precision, block.is_difference, block.marks)


def _range(block: Matrix, values: Array) -> tuple[float, float]:
    if block.scale is not None:
        return block.scale
    known = values[~np.isnan(values)]
    if block.is_difference:
        return -largest(known), largest(known)
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def together(parts: Sequence[Matrix]) -> list[Matrix]:
    """Return matrices that stand beside each other with one scale of shades for all."""
    known = np.concatenate([part.values[~np.isnan(part.values)] for part in parts])
    span = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    return [part._replace(scale=span) for part in parts]


def scale(block: Matrix) -> Scale:
    """Return what the shades of a matrix run from and to."""
    has_masked = bool(np.isnan(block.values).any())
    if np.isnan(block.values).all():
        return Scale("", "", has_masked)
    form = _rungs(block, block.values, None)[0].format
    assert form is not None
    low, high = form.row(_range(block, block.values))
    return Scale(low, high, has_masked)


def map_scale(block: Maps) -> Scale:
    """Return what the shades of small multiples run from and to."""
    has_masked = any(bool(np.isnan(values).any()) for values in block.values)
    low, high = map_format(block).row([block.least, block.largest])
    return Scale(low, high, has_masked)


def map_matrix(block: Maps, values: Array) -> Matrix:
    """Return one of the small maps as a matrix of numbers, for where there are no shades."""
    if block.column_numbers is None:
        return Matrix(block.rows, block.columns, values, "query\\key", is_weights=True)
    sheet = map_sheets(block)[0]
    return Matrix(sheet.rows, sheet.columns, values, "query\\key")


def map_sheets(block: Maps) -> list[Sheet]:
    """Return each small map as a sheet: columns are numbered, rows have their numbers and labels."""
    form = map_format(block)
    rows = [f"{i} {name}".rstrip() for i, name in zip(block.row_numbers, block.rows, strict=True)]
    columns = [str(j) for j in block.column_numbers or range(len(block.columns))]
    return [
        Sheet(
            rows,
            columns,
            [form.row(row) for row in values.tolist()],
            shading(values, block.least, block.largest).tolist(),
            told=name,
        )
        for name, values in zip(block.names, block.values, strict=True)
    ]


def map_columns(block: Maps) -> str:
    """Return a sentence that says which key each numbered column of the small maps is; "" where blocks are numbered."""
    if block.column_numbers is not None:
        return ""
    if list(block.rows) == list(block.columns):
        return "Columns are numbered as the rows are."
    return "Columns: " + ", ".join(f"{j} {label(name)}" for j, name in enumerate(block.columns)) + "."


def label(token: str) -> str:
    """Return a token as a label: inert, and without its middle if it is long."""
    return cut(visible(token), LABEL, "…")
