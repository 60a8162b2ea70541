"""A shaded matrix drawn by attn, and by rich.table.Table of Text cells: the two sides of a benchmark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_cli.errors import AttnError
from attn_cli.io.terminal import TRUECOLOR, Terminal
from attn_cli.render.blocks import Matrix
from attn_cli.render.numbers import weight
from attn_cli.render.palette import shades
from attn_cli.render.screen.grid import Grid
from tests.bench.cases import Case
from tests.bench.sides import Sides

if TYPE_CHECKING:
    from rich.style import Style

    from attn_cli.io.types import Array

LABEL, CELL, DIGITS = 12, 5, 3
_SGR = re.compile("\x1b\\[[0-9;]*m")
_NUMBER = re.compile(r"(?<![\w.])(?:\.\d+|1\.00)")


def drawing(case: Case, threads: int) -> Sides:
    """Return both sides of drawing tokens x tokens weights with three digits, in full colour, on one page."""
    import numpy as np  # screens of other commands need it for their numbers alone

    n = case.tokens
    weights = np.random.default_rng(0).dirichlet(np.ones(n), n)
    tokens = [f"w{i}" for i in range(n)]
    matrix = Matrix(tokens, tokens, weights, is_weights=True, shaded=True, digits=DIGITS)
    width = LABEL + (CELL + 1) * n
    terminal = Terminal(width, TRUECOLOR)
    styles = list(shades("viridis", TRUECOLOR))

    def ours() -> str:
        return terminal.paint(Grid(matrix, terminal).lines())

    def theirs() -> str:
        return with_rich(tokens, weights, styles, width)

    return Sides(ours, theirs, lambda: _show_the_same(ours(), theirs(), n))


def with_rich(tokens: Sequence[str], weights: Array, styles: Sequence[Style], width: int) -> str:
    """Draw a shaded matrix with rich.table.Table of Text cells, at its best: no box, no padding, styles cached."""
    import numpy as np
    from rich.console import Console  # slow to import, and no screen needs them
    from rich.table import Table
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=width)
    table = Table(box=None, padding=0, show_header=True, pad_edge=False)
    table.add_column("", width=LABEL)
    for token in tokens:
        table.add_column(Text(token), width=CELL, no_wrap=True)
    low, high = weights.min(), weights.max()
    places = np.rint((weights - low) / (high - low) * (len(styles) - 1)).astype(int).tolist()
    shown = weight(DIGITS)
    for token, row, place in zip(tokens, weights.tolist(), places, strict=True):
        cells = [Text(f" {text}", styles[p]) for text, p in zip(shown.row(row), place, strict=True)]
        table.add_row(Text(token), *cells)
    console.print(table)
    return out.getvalue()


def _show_the_same(one: str, other: str, n: int) -> None:
    """Raise AttnError unless both drawings have the same numbers in the n rows below the header."""
    ours, theirs = (
        [_NUMBER.findall(line) for line in _SGR.sub("", text).splitlines()[1 : n + 1]]
        for text in (one, other)
    )
    if ours != theirs or [len(row) for row in ours] != [n] * n:
        raise AttnError("Two drawings of one matrix show different numbers, so nothing was timed.")
