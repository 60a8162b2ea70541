"""Small multiples: the weights of several heads as small maps of shades, as many beside each other as fit."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment

from attn_cli.render.blocks import Maps
from attn_cli.render.ladder import BARS, DIGITS, shading
from attn_cli.render.numbers import weight
from attn_cli.render.palette import BOLD, SHADES, inks, ramp_name
from attn_cli.render.text import cells, cut, labels, padded, wrapped
from attn_cli.terminal import Line, Terminal
from attn_cli.view import View

LABEL, GAP, UNLIMITED = 10, 3, 100


def draw_maps(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield bands of maps, each with its head's name above it and the queries at its left."""
    width = terminal.width or UNLIMITED
    digits = len(str(max([*block.row_numbers, len(block.columns) - 1])))
    names = labels(block.rows, terminal, LABEL)
    rows = [f"{i:>{digits}} {name}" for i, name in zip(block.row_numbers, names, strict=True)]
    edge = max(map(cells, rows))
    n = len(block.columns)
    cell = 2 if edge + 1 + 2 * n <= width else 1
    across = max(1, (width - edge) // (cell * n + GAP))
    ramp = BARS if terminal.unicode else DIGITS
    masked = "–" if terminal.unicode else "-"
    styles = inks(ramp_name(view.palette, terminal), terminal.colors) if terminal.colors else [None] * SHADES
    for start in range(0, len(block.names), across):
        yield []
        span = range(start, min(start + across, len(block.names)))
        heads = "".join(
            f"{'':{GAP}}{padded(cut(terminal.text(block.names[m]), cell * n), cell * n)}" for m in span
        )
        yield [Segment(" " * edge + heads.rstrip(), BOLD)]
        numbers = "".join(str(j % 10).rjust(cell) for j in range(n))
        yield [Segment(" " * edge + "".join(" " * GAP + numbers for _ in span))]
        shade = [shading(block.values[m], 0.0, block.largest).tolist() for m in span]
        for i, label in enumerate(rows):
            line = [Segment(padded(label, edge), BOLD)]
            for places in shade:
                line.append(Segment(" " * GAP))
                for place in places[i]:
                    mark = masked if place < 0 else ramp[place * len(ramp) // SHADES]
                    line.append(
                        Segment(
                            mark.rjust(cell) if place < 0 else mark * cell,
                            styles[place] if place >= 0 else None,
                        )
                    )
            yield line
    steps = [(i * (SHADES - 1)) // (len(ramp) - 1) for i in range(len(ramp))]
    low, high = weight(3).row([0.0, block.largest])
    told = f"Columns are numbered as the rows are. shades: {low} to {high}"
    if terminal.width is None or len(told) + len(ramp) <= width:
        line = [Segment(f"Columns are numbered as the rows are. shades: {low} ")]
        line += [Segment(char, styles[step]) for char, step in zip(ramp, steps, strict=True)]
        yield [*line, Segment(f" {high}")]
    else:
        yield from wrapped(told, terminal.width)
