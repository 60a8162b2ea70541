"""What panes are drawn on and what they are: blocks, the same as on every other screen, drawn to a pane's size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from attn_cli.io.terminal import Line, Terminal
from attn_cli.render.blocks import Block
from attn_cli.render.screen.draw import draw
from attn_cli.render.screen.matrix_pane import MatrixPart
from attn_cli.settings.output import View

FAR = 400  # lines of a pane that can be scrolled through


class Paper(NamedTuple):
    """What a pane is drawn on: its size, its terminal, how results are shown."""

    width: int
    height: int
    terminal: Terminal
    view: View

    def sized(self, width: int, height: int) -> Paper:
        """Return paper of another size."""
        terminal = self.terminal._replace(width=width)
        return Paper(width, height, terminal, replace(self.view, width=max(20, width)))

    def draw(self, blocks: Iterable[Block], most: int = FAR) -> list[Line]:
        """Return the first lines of blocks."""
        return list(islice(draw(blocks, self.view, self.terminal), most))


class Pane(NamedTuple):
    """The lines of a pane, and the matrix among them whose cells can be chosen."""

    lines: list[Line]
    part: MatrixPart | None = None
    above: int = 0  # lines above the matrix
