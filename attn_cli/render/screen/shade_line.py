"""The line under a matrix that says what its shades mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.palette import SHADES
from attn_cli.render.screen.text import cells, masked_mark, wrapped
from attn_cli.render.shade_scale import Legend


def shade_line(
    legend: Legend, ramp: str, styles: Sequence[Style | None], terminal: Terminal
) -> Iterator[Line]:
    """Yield the legend of shades: a patch of each, from the least value to the largest, where there is room."""
    masked = f"{masked_mark(terminal)} masked" if legend.has_masked else ""
    if not legend.low:
        yield from wrapped(masked, terminal.width)
        return
    tail = "".join(f"   {part}" for part in (legend.more, masked) if part)
    if legend.low == legend.high:
        yield from wrapped(f"shades: all are {legend.low}{tail}", terminal.width)
        return
    steps = [(i * (SHADES - 1)) // (len(ramp) - 1) for i in range(len(ramp))]
    line = [Segment(f"shades: {legend.low} ")]
    line += [Segment(char, styles[step]) for char, step in zip(ramp, steps, strict=True)]
    line.append(Segment(f" {legend.high}{tail}"))
    if terminal.width is None or sum(cells(part.text) for part in line) <= terminal.width:
        yield line
    else:
        yield from wrapped(f"shades: {legend.low} to {legend.high}{tail}", terminal.width)


def patch(style: Style | None) -> Style | None:
    """Return the style of a patch in the legend: a cell's background, without its text."""
    if style is None or style.bgcolor is None:
        return style
    return Style(color=style.bgcolor, bgcolor=style.bgcolor)
