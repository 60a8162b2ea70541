"""The status line: head, layer, mask, temperature with its slider, score; each part is also a place to click."""

from __future__ import annotations

import math
from typing import NamedTuple

from attn_cli.io.terminal import Line, Terminal
from attn_cli.live.actions import HEATS, Seen
from attn_cli.live.state import State
from attn_cli.render.numbers import plain
from attn_cli.render.screen.panes import words
from attn_cli.render.screen.text import cells
from attn_cli.render.views.wording import short

SLIDER = 11  # cells
APART = "  "


class Part(NamedTuple):
    """A part of a line: where it stands, and what a click on it does."""

    start: int
    stop: int
    action: str


def status(
    state: State, seen: Seen, is_busy: bool, width: int, terminal: Terminal
) -> tuple[Line, list[Part]]:
    """Return the status line, and the places in it that can be clicked; less is said where there is less room."""
    parts: list[tuple[str, str]] = []
    for is_long, has_slider in ((True, True), (False, True), (False, False)):
        parts = _parts(state, seen, terminal, is_long, has_slider)
        if sum(cells(text) + len(APART) for text, _ in parts) <= width + len(APART):
            break
    if is_busy:
        parts.append(("...", ""))
    line: list[tuple[str, str]] = []
    places: list[Part] = []
    at = 0
    for text, action in parts:
        shown = terminal.text(text)
        if action:
            places.append(Part(at, at + cells(shown), action))
        line += [(shown, "plain" if action == "slider" else "bold"), (APART, "plain")]
        at += cells(shown) + len(APART)
    return words(line, terminal), places


def _parts(
    state: State, seen: Seen, terminal: Terminal, is_long: bool, has_slider: bool
) -> list[tuple[str, str]]:
    """Return the texts of the line, and what a click on each does."""
    trace = seen.trace
    asked = state.question.settings.head
    head = asked if asked in ("all", "mean") else trace.shown.name
    count = seen.source.layers(trace)
    layer = trace.projection.layer
    heat = plain(trace.temperature)
    found = [(f"head {short(head)}" if is_long else short(head), "head")]
    if layer is not None:
        found.append((f"layer {layer} of {count}" if is_long and count > 1 else f"layer {layer}", "layer"))
    found.append((f"mask {short(trace.mask_name)}", "mask"))
    if trace.is_scored:
        found.append((f"temperature {heat}" if is_long else f"t {heat}", ""))
        if has_slider:
            found.append((slider(trace.temperature, terminal), "slider"))
        found.append((f"score {trace.score}" if is_long else trace.score, "score"))
    else:
        found.append(("weights as given", ""))
    return found


def slider(temperature: float, terminal: Terminal) -> str:
    """Return the slider with its knob at the temperature."""
    least, most = math.log(HEATS[0]), math.log(HEATS[-1])
    share = (math.log(temperature) - least) / (most - least)
    place = round(max(0.0, min(1.0, share)) * (SLIDER - 1))
    rail, knob = ("─", "●") if terminal.unicode else ("-", "O")
    return rail * place + knob + rail * (SLIDER - 1 - place)


def heat_at(place: int) -> float:
    """Return the temperature of a cell of the slider, one of HEATS."""
    share = max(0, min(SLIDER - 1, place)) / (SLIDER - 1)
    least, most = math.log(HEATS[0]), math.log(HEATS[-1])
    wanted = least + share * (most - least)
    return min(HEATS, key=lambda heat: abs(math.log(heat) - wanted))
