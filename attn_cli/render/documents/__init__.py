"""Blocks as documents, and here a matrix laid out for a page: digits, upright labels, what goes into which table.

It is the width ladder for paper, in characters: digits go first, then numbers, then columns go to further tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from attn_cli.errors import visible
from attn_cli.io.types import Array, NamedTuple
from attn_cli.render import Block, Heading, Maps, Matrix, numbers, ramps
from attn_cli.render.screen.text import cut
from attn_cli.settings import View

PAGE = 100  # characters: about the text of a landscape page
LABEL = 24  # characters of a label before its middle is left out
GAP, HEAT, TAIL = 1.2, 1.4, 6.0  # between columns; a cell without a number; the column of sums
UNFITTED = 12  # columns of a wide matrix of numbers that are shown at least
Width = Callable[[str], float]


class Table(NamedTuple):
    """One table of a matrix: texts and shades are (rows, columns); a shade of -1 is masked."""

    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    shades: Sequence[Sequence[int]]
    sums: Sequence[str] = ()
    caption: str = ""  # which part of the matrix this is

    def lines(self) -> Iterator[tuple[str, list[tuple[str, int]], Sequence[str]]]:
        """Yield each row: its label, its cells' texts and shades, and its sum if it has one."""
        for i, (name, texts, shades) in enumerate(zip(self.rows, self.texts, self.shades, strict=True)):
            yield name, list(zip(texts, shades, strict=True)), self.sums[i : i + 1]


class Layout(NamedTuple):
    """All tables of a matrix, and how to draw them; `bare` cells show their shade alone."""

    tables: list[Table]
    turned: bool
    bare: bool
    notes: list[str]


def is_coloured(block: Matrix, view: View) -> bool:
    """Tell whether the matrix is to be drawn with shades."""
    return block.shaded and view.color != "never"


def laid_out(block: Matrix, view: View, width: Width, tall: int | None = None) -> Layout:
    """Lay a matrix out for `view.width` characters (else PAGE), with at most `tall` rows in a table.

    A masked value is NaN; `width` measures a label. Every number is whole in some table, or the cell is bare and
    `notes` says so.
    """
    coloured = is_coloured(block, view)
    room = (view.width or PAGE) - max(map(width, [block.corner, *block.rows]), default=0.0)
    room = max(10.0, room - (TAIL if block.sums else 0.0))
    block = block.fixed(view.precision)
    if block.fits and block.values.shape[1] > UNFITTED:  # those columns alone that fit
        some = block.nearby(64)
        widest = max(_widest(numbers.exact(block), block.values[:, some]), *map(width, block.columns[some]))
        block = block.narrowed(max(1, int(room / (widest + GAP))))
    ways = [rung for rung in numbers.rungs(block) if rung.block < 2 and (rung.format is not None or coloured)]
    rung, turned, across = _columns_that_fit(ways, block, width, room)
    form = rung.format or next(way.format for way in ways if way.format is not None)
    texts = [form.row(row) for row in block.values.tolist()]
    shades = ramps.shading(block.values, ramps.shade_range(block)).tolist()
    tables, notes, sides = [], list[str](), (len(texts), len(block.columns))
    for down, along in product(spans(sides[0], tall), spans(sides[1], across)):
        named = zip(("rows", "columns"), (down, along), sides, strict=True)
        said = [
            f"{name} {part.start} to {part.stop - 1} of {n}" for name, part, n in named if part != slice(0, n)
        ]
        kept, shaded = [row[along] for row in texts[down]], [row[along] for row in shades[down]]
        labels = block.rows[down], block.columns[along]
        tables.append(Table(*labels, kept, shaded, block.sums[down], ", ".join(said)))
    if how := "shades without numbers" if rung.format is None else rung.name:
        hint = "--precision 3 shows three digits, in several tables if need be; --width allows more."
        notes.append(f"To fit: {how}. {hint}")
    if across < len(block.columns):
        notes.append(f"The columns stand in {len(spans(len(block.columns), across))} tables.")
    notes += [f"… {block.more}"] if block.more else []
    return Layout(tables, turned, rung.format is None, notes)


def _widest(form: numbers.Format, values: Array) -> int:
    texts = form.row(values.ravel().tolist()) if values.size else []
    return max([len(text) for text in texts if text != "nan"], default=1)


def _columns_that_fit(
    ways: Sequence[numbers.Rung], block: Matrix, width: Width, room: float
) -> tuple[numbers.Rung, bool, int]:
    """Return the first rung on which all columns fit, labels level or turned, else the last; and how many fit."""
    names = list(map(width, block.columns))
    for rung in ways:
        least = HEAT if rung.format is None else _widest(rung.format, block.values) + GAP
        if sum(max(least, name + GAP) for name in names) <= room:
            return rung, False, len(names)
        if least * len(names) <= room:
            return rung, True, len(names)
    return ways[-1], True, max(1, int(room / least))


def spans(n: int, most: int | None) -> list[slice]:
    """Cut n things into parts of like size, of `most` at the most."""
    parts = 1 if most is None or n <= most else -(-n // most)
    return [slice(n * part // parts, n * (part + 1) // parts) for part in range(parts)]


def title(blocks: Iterable[Block]) -> str:
    """Return the title of a page: its first heading."""
    return next((block.text for block in blocks if isinstance(block, Heading)), "Attention")


def without_maps(blocks: Iterable[Block], view: View) -> Iterator[Block]:
    """Yield the blocks; where there are no shades, small maps become matrices of numbers."""
    for block in blocks:
        if not isinstance(block, Maps) or view.color != "never":
            yield block
            continue
        for (name, matrix), table in zip(block.matrices(), map_tables(block), strict=True):
            if name:
                yield Heading(f"Head {name}")
            if block.column_numbers is not None:
                matrix = matrix._replace(rows=table.rows, columns=table.columns, is_weights=False)
            yield matrix


def map_tables(block: Maps) -> list[Table]:
    """Return each small map as a table: columns are numbered, rows have their numbers and labels."""
    form = numbers.map_format(block)
    rows = [f"{i} {name}".rstrip() for i, name in zip(block.row_numbers, block.rows, strict=True)]
    columns = [str(j) for j in block.column_numbers or range(len(block.columns))]
    shaded = [ramps.shading(values, block.scale).tolist() for values in block.values]
    texts = [[form.row(row) for row in values.tolist()] for values in block.values]
    made = zip(block.names, texts, shaded, strict=True)
    return [Table(rows, columns, text, shades, caption=name) for name, text, shades in made]


def map_columns(block: Maps) -> str:
    """Return a sentence that says which key each numbered column of the small maps is; "" where blocks are numbered."""
    if block.column_numbers is not None:
        return ""
    if list(block.rows) == list(block.columns):
        return numbers.NUMBERED
    return "Columns: " + ", ".join(f"{j} {label(name)}" for j, name in enumerate(block.columns)) + "."


def label(token: str) -> str:
    """Return a token as a label: escaped, and without its middle if it is long."""
    return cut(visible(token), LABEL, "…")
