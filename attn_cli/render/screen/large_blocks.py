"""A matrix of few words in large blocks, for a lecture hall: each cell as wide and as tall as the screen allows."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Matrix
from attn_cli.render.numbers import PERCENT, signed, weight
from attn_cli.render.palette import BOLD, SHADES, styles_on
from attn_cli.render.screen.chosen_cell import MARKED, MatrixPart
from attn_cli.render.screen.text import cells, labels, masked_mark, padded, padded_left
from attn_cli.render.shade_scale import shade_range, shading
from attn_cli.render.width_ladder import bars

LABEL = 12
LEAST, MOST = 5, 16  # cells of a block's width
TALLEST = 5
DECIMAL = 7  # cells from which a block has two decimals


def large_blocks(
    block: Matrix, terminal: Terminal, palette: str | None, chosen: tuple[int, int], height: int
) -> MatrixPart | None:
    """Return the matrix in blocks that fill the screen; None where there are too many words for that."""
    n_q, n_k = block.values.shape
    rows = labels(block.rows, terminal, LABEL)
    edge = max(map(cells, rows)) + 1
    wide = min(MOST, ((terminal.width or 80) - edge) // n_k)
    tall = min(TALLEST, (height - 1) // n_q)
    if wide < LEAST or tall < 1:
        return None
    heads = [padded_left(name, wide) for name in labels(block.columns, terminal, wide - 1)]
    lines: list[Line] = [[Segment(padded("", edge)), *(Segment(name, BOLD) for name in heads)]]
    for i, name in enumerate(rows):
        lines += _band(block, i, name, (edge, wide, tall), terminal, palette, chosen)
    return MatrixPart(lines, range(n_q), range(n_k), [], tall)


def _band(
    block: Matrix,
    i: int,
    name: str,
    size: tuple[int, int, int],
    terminal: Terminal,
    palette: str | None,
    chosen: tuple[int, int],
) -> list[Line]:
    """Return the lines of one row of blocks, its numbers on the middle one."""
    edge, wide, tall = size
    styles = styles_on(terminal, palette, False, block.is_difference)
    places = shading(block.values[i], shade_range(block)).tolist()
    form = weight(2) if wide >= DECIMAL else PERCENT
    numbers = (signed(form) if block.is_difference else form).row(block.values[i].tolist())
    lines: list[Line] = []
    for line in range(tall):
        is_middle = line == tall // 2
        label = Segment(
            padded(name if is_middle else "", edge), MARKED if is_middle and i == chosen[0] else BOLD
        )
        made: Line = [label]
        for j, place in enumerate(places):
            is_masked = math.isnan(float(block.values[i, j]))
            text = masked_mark(terminal) if is_masked else numbers[j]
            fill = (
                " " if terminal.colors or place < 0 else bars(terminal)[place * len(bars(terminal)) // SHADES]
            )
            style = (styles[place] if place >= 0 else None) or Style()
            is_chosen = (i, j) == chosen
            made.append(Segment(_cell(text if is_middle else "", wide, fill), MARKED if is_chosen else style))
        lines.append(made)
    return lines


def _cell(text: str, wide: int, fill: str) -> str:
    """Return one line of a block, its number in the middle and a space at its left."""
    shown = f" {text} " if text else ""
    left = (wide - 1 - len(shown)) // 2
    return " " + fill * left + shown + fill * (wide - 1 - len(shown) - left)
