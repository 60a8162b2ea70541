"""A shaded matrix drawn by attn, and by rich.table.Table of Text cells: the two sides of a race."""

from __future__ import annotations

import io
import re

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attn_cli.errors import AttnError
from attn_cli.io.terminal import TRUECOLOR, Terminal
from attn_cli.render import Matrix
from attn_cli.render.numbers import weight
from attn_cli.render.ramps import shades
from attn_cli.render.screen.grid import Grid
from tests.bench.sides import Case, Sides
from tests.shell import plain

LABEL, CELL, DIGITS = 12, 5, 3
_NUMBER = re.compile(r"(?<![\w.])(?:\.\d+|1\.00)")


def drawing(case: Case, threads: int) -> Sides:
    """Return both sides of drawing tokens x tokens weights with three digits, in full colour, on one page.

    rich.table.Table is at its best: no box, no padding, styles made once.
    """
    n = case.tokens
    weights = np.random.default_rng(0).dirichlet(np.ones(n), n)
    tokens = [f"w{i}" for i in range(n)]
    matrix = Matrix(tokens, tokens, weights, is_weights=True, shaded=True, digits=DIGITS)
    terminal = Terminal(LABEL + (CELL + 1) * n, TRUECOLOR)
    styles = list(shades("viridis", TRUECOLOR))

    def ours() -> str:
        return terminal.paint(Grid(matrix, terminal).lines())

    def theirs() -> str:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, color_system="truecolor", width=terminal.width)
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

    def check() -> None:
        screens = (plain(side()).splitlines()[1 : n + 1] for side in (ours, theirs))
        one, other = ([_NUMBER.findall(line) for line in lines] for lines in screens)
        if one != other or [len(row) for row in one] != [n] * n:
            raise AttnError("Two drawings of one matrix show different numbers, so nothing was timed.")

    return Sides(ours, theirs, check)
