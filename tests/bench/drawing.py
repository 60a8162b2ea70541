"""A coloured 100 x 100 weight table: our renderable against rich.table.Table of Text cells."""

import statistics
import time

import numpy as np

from attn_cli.render.grid import Grid
from attn_cli.render.palette import shades
from attn_cli.terminal import TRUECOLOR, Terminal
from tests.bench.opponents import rich_table

N, WIDTH = 100, 700


def rows(pairs: int = 5) -> list[tuple[str, str, float, float]]:
    """Return (case, opponent, median ratio, ratio to reach)."""
    weights = np.random.default_rng(0).dirichlet(np.ones(N), N)
    tokens = [f"w{i}" for i in range(N)]
    terminal = Terminal(WIDTH, TRUECOLOR)
    styles = list(shades("viridis", TRUECOLOR))

    def ours() -> str:
        grid = Grid(tokens, tokens, weights, precision=3)
        return terminal.paint(grid.lines(terminal))

    def theirs() -> str:
        return rich_table(tokens, weights, styles, WIDTH)

    ratios = []
    ours(), theirs()
    for _ in range(pairs):
        start = time.process_time()
        ours()
        middle = time.process_time()
        theirs()
        ratios.append((middle - start) / (time.process_time() - middle))
    return [("weight table, 100 x 100", "rich.table.Table of Text", statistics.median(ratios), 1 / 20)]
