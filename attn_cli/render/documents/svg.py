"""Blocks to SVG: the screen as a picture, its runs of text stretched to their cells, shades and bars as rectangles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rich.style import Style

from attn_cli.errors import visible
from attn_cli.io.terminal import TRUECOLOR, Line, Terminal
from attn_cli.render import Block, ramps
from attn_cli.render.documents import PAGE, title
from attn_cli.render.screen.draw import draw
from attn_cli.render.screen.text import LEFTWARD, cells
from attn_cli.settings import View

CELL, LINE, SIZE, BASE, EDGE = 12, 24, 20, 17, 24  # pixels: a cell's width and height, the font, its baseline
FAMILY = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
UP, UPPER = "▁▂▃▄▅▆▇█", "▀"
ALONG = "▏▎▍▌▋▊▉█"
_BLOCKS = f"{UP}{UPPER}{ALONG}"
_RUNS = re.compile(
    rf"(?P<block>([{_BLOCKS}])\2*)|(?P<gap> {{2,}})|(?P<text>[{LEFTWARD}]+|(?:(?! {{2,}})[^{_BLOCKS}{LEFTWARD}])+)"
)


def svg(blocks: Iterable[Block], view: View) -> str:
    """Return the screen of `view.width` cells (else PAGE) as an SVG image."""
    name, blocks, colors = (
        view.palette or ramps.PAPER,
        list(blocks),
        0 if view.color == "never" else TRUECOLOR,
    )
    terminal = Terminal(view.width or PAGE, colors, dark=name in ramps.DARK, is_picture=colors > 0)
    return picture(list(draw(blocks, view, terminal)), name, title(blocks))


def picture(lines: Sequence[Line], palette: str, about: str) -> str:
    """Return lines of a terminal as an SVG image, on the background of a palette."""
    back, ink, _ = ramps.page_colors(palette)
    across = max([20, *(sum(cells(text) for text, _, _ in line) for line in lines)])
    width, height = across * CELL + 2 * EDGE, max(1, len(lines)) * LINE + 2 * EDGE
    drawn = [item for n, line in enumerate(lines) for item in _line(line, EDGE + n * LINE, ink, back)]
    size = f'width="{width}" height="{height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img" '
        'xml:space="preserve" direction="ltr">',
        f"<title>{escape(visible(about))}</title>",
        f'<rect {size} fill="{back}"/>',
        f'<g font-family="{FAMILY}" font-size="{SIZE}" fill="{ink}" shape-rendering="crispEdges">',
    ]
    return "\n".join([*head, *drawn, "</g>", "</svg>\n"])


def _line(line: Line, top: int, plain: str, paper: str) -> Iterator[str]:
    """Yield one line: backgrounds, blocks and texts from left to right; `plain` is the colour of plain text."""
    at = 0
    for text, style, _ in line:
        wide = cells(text)
        back, ink = _colour(style.bgcolor if style else None), _colour(style.color if style else None)
        if style is not None and style.reverse:
            back, ink = ink or plain, back or paper
        if back:
            # The gap before a number is half on its left and half on its right.
            gap = CELL // 2 if text.startswith(" ") else 0
            yield _rect(EDGE + at * CELL + gap, top, wide * CELL, LINE, back)
        for match in _RUNS.finditer(text):
            place = at + cells(text[: match.start()])
            if match["text"]:
                yield from _text(match[0], place, top, style, ink)
            elif match["block"] and (not back or match[0][0] == UPPER):  # on a shade, the shade says it
                yield from _block(match[0], EDGE + place * CELL, top, ink or plain)
        at += wide


def _colour(color: object) -> str:
    triplet = getattr(color, "triplet", None)
    return triplet.hex if triplet is not None else ""


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>'


def _block(marks: str, x: int, top: int, fill: str) -> Iterator[str]:
    """Yield a run of equal block characters as a rectangle: eighths of a cell's height, or of its width."""
    if marks[0] == UPPER:
        yield _rect(x, top, len(marks) * CELL, LINE // 2, fill)
    elif marks[0] in UP:
        tall = LINE * (UP.index(marks[0]) + 1) / 8
        yield _rect(x, top + LINE - tall, len(marks) * CELL, tall, fill)
    else:
        wide = CELL * (ALONG.index(marks[0]) + 1) / 8
        yield from (_rect(x + n * CELL, top, wide, LINE, fill) for n in range(len(marks)))


def _text(text: str, place: int, top: int, style: Style | None, ink: str) -> Iterator[str]:
    """Yield a run of text, stretched to the cells that it takes; a space at its ends needs no ink."""
    if shown := text.strip(" "):
        wide, x = cells(shown), EDGE + (place + cells(text) - cells(text.lstrip(" "))) * CELL
        length = f' textLength="{wide * CELL}" lengthAdjust="spacingAndGlyphs"' if wide else ""
        look = ' font-weight="bold"' if style is not None and style.bold else ""
        fill = f' fill="{ink}"' if ink else ""
        yield f'<text x="{x}" y="{top + BASE}"{length}{look}{fill}>{escape(visible(shown))}</text>'
