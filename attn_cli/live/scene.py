"""The whole screen below the text line: which panes stand where, the status line, the footer, and what a click hits."""

from __future__ import annotations

from typing import NamedTuple

from attn_cli.io.terminal import Line
from attn_cli.live.actions import Seen
from attn_cli.live.keys import KEYS, TYPING, footer
from attn_cli.live.matrix_panes import given_pane, weights_pane
from attn_cli.live.panes import command_pane, help_pane, steps_pane
from attn_cli.live.paper import Pane, Paper
from attn_cli.live.row_panes import by_hand_pane, row_pane
from attn_cli.live.state import COMMAND, HELP, MATRICES, ROW, STEPS, State
from attn_cli.live.status import Part, status
from attn_cli.render.blocks import Say
from attn_cli.render.screen.text import abreast, filled, fitted, words

WIDE = 120  # columns from which panes stand side by side
SMALL_WIDTH, SMALL_HEIGHT = 50, 14  # below these one pane is shown at a time
TALL = 20  # lines from which the footer may have two
LEAST_SHARE = 4  # of the screen: what a remark may take is one part of so many
LEAST_ROW = 10  # lines of the row's pane that the matrix leaves
SCROLLED = (HELP, COMMAND, STEPS, ROW)
RULE = 3  # cells between two panes


class Remark(NamedTuple):
    """What is said in place of the footer, and the command line with what became of it."""

    text: str = ""
    command: str = ""
    more: str = ""
    copied: str = ""


class Hit(NamedTuple):
    """What a click does: an action of a key, the slider's temperature, or the choice of a cell."""

    action: str
    numbers: tuple[int, ...] = ()


class Scene(NamedTuple):
    """The lines of the screen, and where its parts are."""

    lines: list[Line]
    pane: Pane  # the one with the matrix
    corner: tuple[int, int]  # of that pane: line and cell
    status: tuple[int, list[Part]]  # its line, its parts
    footer: list[tuple[int, Part]]
    scrolled: int  # how far the pane is scrolled down, at most as far as it goes

    def hit(self, x: int, y: int) -> Hit | None:
        """Return what a click at a place does."""
        line, parts = self.status
        if y == line:
            for part in parts:
                if part.start <= x < part.stop:
                    return Hit(part.action, (x - part.start,) if part.action == "slider" else ())
            return None
        for at, part in self.footer:
            if at == y and part.start <= x < part.stop:
                return Hit(part.action)
        top, left = self.corner
        if self.pane.part is None:
            return None
        cell = self.pane.part.cell_at(y - top - self.pane.above, x - left)
        return None if cell is None else Hit("choose", cell)


def compose(state: State, seen: Seen, paper: Paper, remark: Remark, is_typing: bool, is_busy: bool) -> Scene:
    """Return the screen of a state on paper of the whole size below the text line."""
    left_out = frozenset({"edit"} if not seen.source.matrices(state.question) else {"text"})
    if seen.source.layers(seen.trace) < 2:
        left_out |= {"layer"}
    foot, labels = _foot(paper, remark.text or (TYPING if is_typing else ""), left_out)
    height = max(1, paper.height - len(foot) - 1)
    lines, pane, corner, scrolled = _panes(state, seen, paper.sized(paper.width, height), remark)
    line, parts = status(state, seen, is_busy, paper.width, paper.terminal)
    lines = [*lines, fitted(line, paper.width), *foot]
    return Scene(
        lines, pane, corner, (height, parts), [(height + 1 + at, part) for at, part in labels], scrolled
    )


def _foot(paper: Paper, said: str, left_out: frozenset[str]) -> tuple[list[Line], list[tuple[int, Part]]]:
    """Return the footer's lines and its labels with their lines; a remark takes their place."""
    most = 2 if paper.height >= TALL else 1
    labels = footer(paper.width, most, left_out)
    count = labels[-1].line + 1
    if said:
        told = paper.draw([Say(said)], max(count, paper.height // LEAST_SHARE))
        return filled(told, paper.width, max(count, len(told))), []
    rows: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    for label in labels:
        row = rows[label.line]
        row += [("  ", "plain")] if row else []
        row += [(label.typed, "bold"), (f" {label.word}", "plain")]
    lines = [fitted(words(row, paper.terminal), paper.width) for row in rows]
    return lines, [(label.line, Part(label.start, label.stop, label.action)) for label in labels]


def _panes(
    state: State, seen: Seen, paper: Paper, remark: Remark
) -> tuple[list[Line], Pane, tuple[int, int], int]:
    """Return the lines of all panes, the one with the matrix and its corner, and how far it is scrolled."""
    if state.pane in SCROLLED:
        pane = _scrolled_pane(state, seen, paper, remark)
        room = max(1, paper.height - 1)
        start = min(state.scrolled, max(0, len(pane.lines) - room))
        lines = filled(pane.lines[start:], paper.width, room)
        place = words([(_place(len(pane.lines), start, room, paper.width), "dim")], paper.terminal)
        return [*lines, fitted(place, paper.width)], Pane([]), (0, 0), start
    upper = given_pane if state.pane == MATRICES else weights_pane
    lower = weights_pane if state.pane == MATRICES else row_pane
    is_all = state.question.settings.head == "all" and state.pane != MATRICES
    if paper.width < SMALL_WIDTH or paper.height < SMALL_HEIGHT - 3 or state.is_large or is_all:
        pane = upper(state, seen, paper)
        return filled(pane.lines, paper.width, paper.height), pane, (0, 0), 0
    if paper.width >= WIDE:
        half = (paper.width - RULE) // 2
        pane = upper(state, seen, paper.sized(half, paper.height))
        other = lower(state, seen, paper.sized(paper.width - half - RULE, paper.height))
        right = filled(other.lines, paper.width - half - RULE, paper.height)
        return abreast(filled(pane.lines, half, paper.height), right, paper.terminal), pane, (0, 0), 0
    room = max(paper.height // 2, paper.height - LEAST_ROW + bool(state.compared))
    pane = upper(state, seen, paper.sized(paper.width, room))
    rest = paper.height - len(pane.lines)
    other = lower(state, seen, paper.sized(paper.width, rest))
    lines = pane.lines + filled(other.lines, paper.width, rest)
    return filled(lines, paper.width, paper.height), pane, (0, 0), 0


def _place(count: int, start: int, room: int, width: int) -> str:
    """Return the way out of a pane, and which of its lines are seen if these are not all."""
    if count <= room:
        return "Esc: back."
    seen = f"{start + 1}-{min(count, start + room)} of {count}"
    texts = (
        f"Esc: back. Arrows, PgDn: more (lines {seen}).",
        f"Esc: back. Arrows: more ({seen})",
        "Esc: back.",
    )
    return next((text for text in texts if len(text) <= width), texts[-1])


def _scrolled_pane(state: State, seen: Seen, paper: Paper, remark: Remark) -> Pane:
    """Return a pane that has the whole screen, and may be longer than it."""
    if state.pane == HELP:
        return help_pane([(one.typed, one.help) for one in KEYS if one.help], paper)
    if state.pane == COMMAND:
        return command_pane(remark.command, remark.more, remark.copied, paper)
    if state.pane == STEPS:
        return steps_pane(state, seen, paper)
    return by_hand_pane(state, seen, paper)
