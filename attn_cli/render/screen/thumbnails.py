"""Many small maps on one screen: band by band, with no more than a name above each map, and one legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Maps
from attn_cli.render.palette import BOLD, SHADES, styles_on
from attn_cli.render.screen.shade_line import shade_line
from attn_cli.render.screen.text import UNLIMITED, cells, cut, masked_mark, padded
from attn_cli.render.shade_scale import legend, shading
from attn_cli.render.width_ladder import bars
from attn_cli.settings.output import View

if TYPE_CHECKING:
    from rich.style import Style

APART = 1  # cells between two maps


def draw_thumbnails(block: Maps, view: View, terminal: Terminal) -> Iterator[Line]:
    """Yield the maps of each band on as few lines as fit it, of like length, and the legend of all."""
    styles = styles_on(terminal, view.palette, is_ink=not terminal.is_picture)
    edge = max(map(cells, block.bands)) + 1
    width = terminal.width or UNLIMITED
    wide = max([len(block.columns), *(cells(terminal.text(name)) for name in block.names)])
    wide = max(len(block.columns), min(wide, width - edge))
    across = max(1, (width - edge + APART) // (wide + APART))
    each = len(block.names) // len(block.bands)
    across = -(-each // -(-each // across))  # no line is nearly empty
    for band, title in enumerate(block.bands):
        start, stop = band * each, (band + 1) * each
        for first in range(start, stop, across):
            yield []
            label = padded(title if first == start else "", edge)
            yield from _line_of_maps(
                block, range(first, min(first + across, stop)), label, wide, styles, terminal
            )
    yield from shade_line(legend(block), bars(terminal), styles, terminal)


def _line_of_maps(
    block: Maps, span: range, label: str, wide: int, styles: Sequence[Style | None], terminal: Terminal
) -> Iterator[Line]:
    ramp, masked = bars(terminal), masked_mark(terminal)
    names = [padded(cut(terminal.text(block.names[m]), wide), wide) for m in span]
    yield [Segment((label + (" " * APART).join(names)).rstrip(), BOLD)]
    shade = [shading(block.values[m], block.scale).tolist() for m in span]
    gap = " " * (wide - len(block.columns) + APART)
    for i in range(len(block.rows)):
        line = [Segment(" " * cells(label))]
        for m, places in enumerate(shade):
            line += [Segment(gap)] if m else []
            for place in places[i]:
                is_masked = place < 0
                text = masked if is_masked else ramp[place * len(ramp) // SHADES]
                line.append(Segment(text, None if is_masked else styles[place]))
        yield line
