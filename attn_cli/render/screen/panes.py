"""Panes of a full screen: lines cut and padded to a width, beside each other, and lines of plain words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.screen.text import cells, cut

LOOKS = {"plain": None, "bold": Style(bold=True), "reverse": Style(reverse=True), "dim": Style(dim=True)}
RULE, ASCII_RULE = "│", "|"


def words(parts: Sequence[tuple[str, str]], terminal: Terminal) -> Line:
    """Return a line of texts, each with its look, a name of LOOKS."""
    return [Segment(terminal.text(text), LOOKS[look]) for text, look in parts]


def fitted(line: Line, width: int) -> Line:
    """Return a line cut, or padded with spaces, to exactly `width` cells."""
    used = cells("".join([segment.text for segment in line]))  # measured once: most lines fit
    if used <= width:
        return [*line, Segment(" " * (width - used))] if used < width else list(line)
    kept: Line = []
    room = width
    for segment in line:
        wide = cells(segment.text)
        if wide > room:
            kept.append(Segment(cut(segment.text, room, ""), segment.style) if room else Segment(""))
            room -= cells(kept[-1].text)
            break
        kept.append(segment)
        room -= wide
    return [*kept, Segment(" " * room)] if room else kept


def filled(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return exactly `height` lines of `width` cells."""
    kept = [fitted(line, width) for line in lines[:height]]
    return kept + [fitted([], width)] * (height - len(kept))


def abreast(left: Sequence[Line], right: Sequence[Line], terminal: Terminal) -> list[Line]:
    """Return the lines of two panes of one height beside each other, with a rule between them."""
    rule = Segment(f" {RULE if terminal.unicode else ASCII_RULE} ", LOOKS["dim"])
    return [[*one, rule, *other] for one, other in zip(left, right, strict=True)]
