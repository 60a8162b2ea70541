"""The whole screen below the text line: which panes stand where, the status line, the footer, and what a click hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attn_cli.core.masks import EXCLUDED
from attn_cli.io.terminal import Line, Terminal
from attn_cli.live.keys import KEYS, MATRICES, SLIDER, TOGETHER, Seen, State, place_of
from attn_cli.live.panes import LONG_PANES, Pane, Paper, given_pane, row_pane, weights_pane
from attn_cli.render import Say, listed, plain, short
from attn_cli.render.screen.text import abreast, cells, filled, fitted, words
from attn_cli.render.views.wording import of_layers
from attn_cli.trace import Trace

WIDE = 120  # columns from which panes stand side by side
SMALL_WIDTH, SMALL_HEIGHT = 50, 11  # of the panes; below these one is shown at a time
TALL = 20  # lines from which the footer may have two
LEAST_SHARE = 4  # of the screen: what a remark may take is one part of so many
LEAST_ROW = 10  # lines of the row's pane that the matrix leaves
RULE = 3  # cells between two panes
LEAST, SHORT, LONG, COUNTED = range(4)  # how much the status says: a slider from SHORT, whole words from LONG
MOST_OFF = 2  # words that are named


class Hit(NamedTuple):
    """What a click does: an action of a key, the slider's temperature, or the choice of a cell."""

    action: str
    numbers: tuple[int, ...] = ()


class Part(NamedTuple):
    """A part of the status line or of the footer: its text, its look, and what a click on it does."""

    text: str
    look: str = "plain"
    hit: Hit | None = None


APART = Part("  ")


class Scene(NamedTuple):
    """The lines of the screen, and what in them can be clicked."""

    lines: list[Line]
    pane: Pane  # the one with the matrix, at the top left
    bars: dict[int, list[Part]]  # lines of words: the status, and below it the footer
    scrolled: int  # how far the pane is scrolled down, at most as far as it goes

    def hit(self, x: int, y: int) -> Hit | None:
        at = x
        for part in self.bars.get(y, ()):
            if at < cells(part.text):
                return Hit("slider", (at,)) if part.hit == Hit("slider") else part.hit
            at -= cells(part.text)
        if y in self.bars or self.pane.part is None:
            return None
        cell = self.pane.part.cell_at(y - self.pane.above, x)
        return None if cell is None else Hit("choose", cell)


def compose(state: State, seen: Seen, paper: Paper, said: str, is_busy: bool) -> Scene:
    """Return the screen of a state on paper of the whole size below the text line; `said` replaces the footer."""
    footer = _footer(seen, state, paper)
    foot = [_line(parts, paper) for parts in footer]
    if said:
        lines = paper.draw([Say(said)], max(len(footer), paper.height // LEAST_SHARE))
        foot, footer = filled(lines, paper.width, max(len(footer), len(lines))), []
    height = max(1, paper.height - len(foot) - 1)
    above, pane, scrolled = _panes(state, seen, paper.sized(paper.width, height))
    status = _status(state, seen, is_busy, paper)
    bars = dict(enumerate([status, *footer], height))
    return Scene([*above, _line(status, paper), *foot], pane, bars, scrolled)


def _line(parts: Sequence[Part], paper: Paper) -> Line:
    return fitted(words([(part.text, part.look) for part in parts], paper.terminal), paper.width)


def _footer(seen: Seen, state: State, paper: Paper) -> list[list[Part]]:
    left_out = {"text" if seen.source.matrices(state.question) else "edit"}
    left_out |= {"layer"} if seen.source.layers(seen.trace) < 2 else set()
    shown = {str(key.id): key for key in KEYS if key.description and key.id not in left_out}
    labels = [
        [Part(str(key.key_display), "bold", Hit(name)), Part(f" {key.description}", hit=Hit(name))]
        for name, key in shown.items()
    ]
    others, ends = labels[:-2], labels[-2:]  # help and quit, the last of KEYS that have labels, always fit
    most = 2 if paper.height >= TALL else 1
    footers = (_laid_out([*others[:n], *ends], paper.width) for n in range(len(others), -1, -1))
    return next((rows for rows in footers if len(rows) <= most), _laid_out(ends, paper.width))


def _laid_out(labels: Sequence[list[Part]], width: int) -> list[list[Part]]:
    rows: list[list[Part]] = []
    for label in labels:
        if rows and _width([*rows[-1], APART, *label]) <= width:
            rows[-1] += [APART, *label]
        else:
            rows.append([*label])
    return rows


def _width(parts: Sequence[Part]) -> int:
    return sum(cells(part.text) for part in parts)


def _status(state: State, seen: Seen, is_busy: bool, paper: Paper) -> list[Part]:
    parts: list[Part] = []
    for room in (COUNTED, LONG, SHORT, LEAST):
        told = [*_told(state, seen, paper.terminal, room), *[Part("...", "bold")] * is_busy]
        clean = (part._replace(text=paper.terminal.text(part.text)) for part in told)
        parts = [one for part in clean for one in (APART, part)][1:]
        if _width(parts) <= paper.width:
            break
    return parts


def _told(state: State, seen: Seen, terminal: Terminal, room: int) -> Iterator[Part]:
    trace, is_long = seen.trace, room >= LONG
    count, layer = seen.source.layers(trace), trace.projection.layer
    yield Part(_head(state, trace, room), "bold", Hit("head"))
    if layer is not None and count > 1:
        yield Part(f"layer {layer}" + of_layers(count) * is_long, "bold", Hit("layer"))
    if out := trace.settings.knock_out:
        yield Part(f"out {listed(out, MOST_OFF)}", "bold")
    mask, off = short(trace.mask_name), listed([short(word) for word in trace.settings.without], MOST_OFF)
    yield Part(f"mask {mask.replace(EXCLUDED, f'off: {off}') if off else mask}", "bold", Hit("mask"))
    if not trace.is_scored:
        yield Part("weights as given", "bold")
        return
    yield Part(f"{'temperature' if is_long else 't'} {plain(trace.temperature)}", "bold")
    if room >= SHORT:
        yield Part(slider(trace.temperature, terminal), hit=Hit("slider"))
    yield Part("score " * is_long + trace.score, "bold", Hit("score"))


def _head(state: State, trace: Trace, room: int) -> str:
    asked, names = state.question.settings.head, trace.head_names
    head = asked if asked in TOGETHER else trace.shown.name
    if room < LONG:
        return short(head)
    is_counted = room >= COUNTED and head in names and len(names) > 1
    return f"head {short(head)}" + (f" ({names.index(head) + 1} of {len(names)})" if is_counted else "")


def slider(temperature: float, terminal: Terminal) -> str:
    """Return the slider with its knob at the temperature."""
    place = round(place_of(temperature))
    rail, knob = ("─", "●") if terminal.unicode else ("-", "O")
    return rail * place + knob + rail * (SLIDER - 1 - place)


def _panes(state: State, seen: Seen, paper: Paper) -> tuple[list[Line], Pane, int]:
    width, height = paper.width, paper.height
    if state.pane in LONG_PANES:
        return _scrolled(LONG_PANES[state.pane](state, seen, paper).lines, state, paper)
    upper, lower = (given_pane, weights_pane) if state.pane == MATRICES else (weights_pane, row_pane)
    is_all = state.question.settings.head == "all" and state.pane != MATRICES
    if width < SMALL_WIDTH or height < SMALL_HEIGHT or state.is_large or is_all:
        pane = upper(state, seen, paper)
        return filled(pane.lines, width, height), pane, 0
    if width >= WIDE:
        half = (width - RULE) // 2
        pane = upper(state, seen, paper.sized(half, height))
        other = lower(state, seen, paper.sized(width - half - RULE, height))
        left, right = filled(pane.lines, half, height), filled(other.lines, width - half - RULE, height)
        return abreast(left, right, paper.terminal), pane, 0
    room = max(height // 2, height - LEAST_ROW + bool(state.compared))
    pane = upper(state, seen, paper.sized(width, room))
    other = lower(state, seen, paper.sized(width, height - len(pane.lines)))
    return filled(pane.lines + other.lines, width, height), pane, 0


def _scrolled(lines: list[Line], state: State, paper: Paper) -> tuple[list[Line], Pane, int]:
    room = max(1, paper.height - 1)
    start = min(state.scrolled, max(0, len(lines) - room))
    seen = f"{start + 1}-{min(len(lines), start + room)} of {len(lines)}"
    texts = (f"Esc: back. Arrows, PgDn: more (lines {seen}).", f"Esc: back. Arrows: more ({seen})")
    said = next((text for text in texts if len(lines) > room and len(text) <= paper.width), "Esc: back.")
    return [*filled(lines[start:], paper.width, room), _line([Part(said, "dim")], paper)], Pane([]), start
