"""The status line: head, layer, mask, temperature with its slider, score; each part is also a place to click."""

from __future__ import annotations

import math
from typing import NamedTuple

from attn_cli.core.masks import OFF
from attn_cli.io.terminal import Line, Terminal
from attn_cli.live.actions import HEATS, TOGETHER, Seen
from attn_cli.live.state import State
from attn_cli.render.numbers import plain
from attn_cli.render.screen.text import cells, listed, words
from attn_cli.render.views.wording import short
from attn_cli.trace.trace import Trace

SLIDER = 11  # cells
LEAST, SHORT, LONG, COUNTED = range(4)  # how much the line says: a slider from SHORT, whole words from LONG
APART = "  "
MOST_OFF = 2  # words that are named


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
    for room in (COUNTED, LONG, SHORT, LEAST):
        parts = _parts(state, seen, terminal, room)
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


def _parts(state: State, seen: Seen, terminal: Terminal, room: int) -> list[tuple[str, str]]:
    """Return the texts of the line, and what a click on each does."""
    trace, is_long = seen.trace, room >= LONG
    count = seen.source.layers(trace)
    layer = trace.projection.layer
    heat = plain(trace.temperature)
    found = [(_head(state, trace, room), "head")]
    if layer is not None and count > 1:
        found.append((f"layer {layer} of {count}" if is_long else f"layer {layer}", "layer"))
    found.append((f"mask {_mask(trace)}", "mask"))
    if trace.is_scored:
        found.append((f"temperature {heat}" if is_long else f"t {heat}", ""))
        if room >= SHORT:
            found.append((slider(trace.temperature, terminal), "slider"))
        found.append((f"score {trace.score}" if is_long else trace.score, "score"))
    else:
        found.append(("weights as given", ""))
    return found


def _head(state: State, trace: Trace, room: int) -> str:
    """Return the head that is shown, and which of how many it is."""
    asked, names = state.question.settings.head, trace.head_names
    head = asked if asked in TOGETHER else trace.shown.name
    if room < LONG:
        return short(head)
    place = f" ({names.index(head) + 1} of {len(names)})" if head in names and len(names) > 1 else ""
    return f"head {short(head)}{place if room >= COUNTED else ''}"


def _mask(trace: Trace) -> str:
    """Return the rule of the mask; words that are off are named."""
    off = listed([short(word) for word in trace.settings.without], MOST_OFF)
    return short(trace.mask_name).replace(OFF, f"off: {off}") if off else short(trace.mask_name)


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
