"""Every key: what it does to the state, and how the footer and the help name it. Nothing here computes or draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from textual.binding import Binding

from attn_cli.core.mask_rules import mask_examples
from attn_cli.core.scores import SCORES
from attn_cli.live.state import (
    BEFORE,
    COMMAND,
    DIFFERENCE,
    HELP,
    MATRICES,
    OFF,
    ROW,
    STEPS,
    WEIGHTS,
    Seen,
    State,
)
from attn_cli.render.numbers import plain
from attn_cli.settings.settings import ALL, MEAN, ROLLOUT

TEMPERATURES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
SLIDER = 11  # cells
TOGETHER = (MEAN, ALL, ROLLOUT)  # of all heads; the last of all layers, too
PAGE = 10  # lines, rows or columns that a page key moves by
SCROLLED = (HELP, COMMAND, STEPS, ROW)  # panes that have the whole screen, and may be longer than it


class Refused(Exception):
    """A key has nothing to do here; the message says why."""


def _key(keys: str, action: str, typed: str = "", label: str = "", help: str = "") -> Binding:
    """Return a row of the table: keys, their action, how they are written, in the footer and in the help."""
    return Binding(keys, f"app.press('{action}')", label, key_display=typed, tooltip=help, id=action)


KEYS = [
    _key("t,i", "text", "t", "text", "Type another text; Esc or Enter comes back to the keys."),
    _key("enter", "open", "Enter", "why", "The arithmetic of the chosen row, by hand; again: back."),
    _key("up,k", "up", "arrows", "cell", "Choose a cell: its row's bars and arithmetic follow."),
    _key("m", "mask", "m", "mask", "The next mask: none, causal and the others; M goes back."),
    _key("M", "mask_back"),
    _key(
        *("h", "head", "h", "head"),
        "The next head; then their mean, all at once, and the rollout of several layers; H goes back.",
    ),
    _key("H", "head_back"),
    _key("l", "layer", "l", "layer", "The next layer, where there are several; L goes back. All: see c."),
    _key("L", "layer_back"),
    _key("s", "score", "s", "score", "The next score function; S goes back."),
    _key("S", "score_back"),
    _key(
        *("+,=", "hotter", "+ -", "heat"),
        "The temperature: + is hotter, flatter weights; - is colder, sharper weights.",
    ),
    _key("-", "colder"),
    _key("0", "usual_heat", "0", "", "The temperature back to 1."),
    _key(*("x", "off", "x", "word off"), "Hide the chosen column's word from every query, or show it again."),
    _key(
        *("v", "compare", "v", "compare"),
        "What changed since the view before: the difference, before, now.",
    ),
    _key("d", "step", "d", "steps", "The steps in turn: tokens, X, Q K V, scores to output; D goes back."),
    _key("D", "step_back"),
    _key(
        *("e", "edit", "e", "edit"),
        "Given matrices: choose a number with the arrows, Enter types another one.",
    ),
    _key("b", "large", "b", "big", "Large blocks for a lecture hall, and back."),
    _key("u", "undo", "u", "undo", "Undo the last change."),
    _key(
        *("c", "command", "c", "command"),
        "The command line of this view; copied where the terminal allows it.",
    ),
    _key("w", "write", "w", "save", "Write the view to a file: .svg, .html, .json and others."),
    _key("?", "help", "?", "help", "These keys."),
    _key("q", "quit", "q", "quit", "Leave; Ctrl-C does too."),
    _key("down,j", "down"),
    _key("left", "left"),
    _key("right", "right"),
    _key("home", "first", "Home End", "", "The first and the last column; PgUp and PgDn turn pages."),
    _key("end", "last"),
    _key("pageup", "page_up"),
    _key("pagedown,space", "page_down"),
    _key("tab,shift+tab", "pane", "Tab", "", "On a small screen: the matrix, or its row."),
    _key("escape", "close", "Esc", "", "Out of a pane, back to the matrix."),
    _key("ctrl+l", "redraw"),
]
NUMBERS = {str(key.id): 0 for key in KEYS} | {"slider": 1, "choose": 2}  # that each action takes


def _next(names: Sequence[str], now: str, by: int) -> str:
    return names[(names.index(now) + by) % len(names)] if now in names else names[0]


def _need_scores(seen: Seen, what: str) -> None:
    if not seen.trace.is_scored:
        raise Refused(f"These weights have no scores, so {what}.")


def _head(state: State, seen: Seen, by: int) -> State:
    names = seen.trace.head_names
    if len(names) < 2:
        raise Refused("There is one head.")
    asked = state.question.settings.head
    now = asked if asked in TOGETHER else seen.trace.shown.name
    together = TOGETHER if seen.source.has_rollout(seen.trace) else TOGETHER[:2]
    return state.setting(head=_next([*names, *together], now, by))


def _layer(state: State, seen: Seen, by: int) -> State:
    count = seen.source.layers(seen.trace)
    if count < 2:
        raise Refused("There is one layer here; -p roles-deep has more, and so has a model (-m).")
    now = seen.trace.projection.layer
    return state.setting(layer=((count - 1 if now is None else now) + by) % count, head=None)


def _mask(state: State, seen: Seen, by: int) -> State:
    asked = state.question.settings.mask
    now = asked or ("causal" if seen.trace.mask_name.startswith("causal") else "none")
    return state.setting(mask=_next(mask_examples(), now, by), mask_true=None)


def _score(state: State, seen: Seen, by: int) -> State:
    _need_scores(seen, "there is no score function to change")
    return state.setting(score=_next(tuple(SCORES), seen.trace.score, by))


def with_temperature(state: State, seen: Seen, to: float) -> State:
    """Return the state with another temperature."""
    _need_scores(seen, "there is no temperature to change")
    return state.setting(temperature=to)


def _step_temperature(state: State, seen: Seen, by: int) -> State:
    now = state.question.settings.temperature
    others = [one for one in TEMPERATURES if (one > now if by > 0 else one < now)]
    if not others:
        end = "highest" if by > 0 else "lowest"
        raise Refused(f"The temperature, {plain(now)}, is already the {end} available.")
    return with_temperature(state, seen, others[0] if by > 0 else others[-1])


def temperature_at(place: int) -> float:
    """Return the temperature of a cell of the slider, one of TEMPERATURES."""
    least, most = math.log(TEMPERATURES[0]), math.log(TEMPERATURES[-1])
    wanted = least + (most - least) * place / (SLIDER - 1)
    return min(TEMPERATURES, key=lambda one: abs(math.log(one) - wanted))


def _off(state: State, seen: Seen) -> State:
    """Hide the word of the chosen column, or show it again."""
    _need_scores(seen, "no word can be hidden")
    word, off = seen.trace.key_tokens[state.column], state.question.settings.without
    return state.setting(without=tuple(one for one in off if one != word) if word in off else (*off, word))


def _move(state: State, seen: Seen, rows: int, columns: int) -> State:
    if state.pane in SCROLLED and rows:
        return replace(state, scrolled=max(0, state.scrolled + rows))
    return state.at(state.row + rows, state.column + columns, seen.size(state))


def _compare(state: State, seen: Seen) -> State:
    """Show the difference, the view before, and now again, in turn."""
    if seen.before is None:
        raise Refused("There is no view before this one: change something, then compare.")
    compared = _next((OFF, DIFFERENCE, BEFORE), state.compared, 1)
    return replace(state, compared=compared, pane=WEIGHTS)


def _step(state: State, seen: Seen, by: int) -> State:
    _need_scores(seen, "there are no steps to show")
    if state.pane != STEPS:
        return replace(state.showing(STEPS), step=0 if by > 0 else len(seen.steps) - 1)
    step = state.step + by
    return replace(state.showing(STEPS), step=step) if 0 <= step < len(seen.steps) else state.showing(WEIGHTS)


def _edit(state: State, seen: Seen) -> State:
    """Show the given matrices, one after the other, then the weights again."""
    given = seen.source.matrices(state.question)
    if not given:
        raise Refused("Only small matrices that are given (--matrices FILE) can be edited.")
    number = state.matrix + 1 if state.pane == MATRICES else 0
    pane = MATRICES if number < len(given) else WEIGHTS
    return replace(state, pane=pane, matrix=number % len(given), row=0, column=0)


def _toggle(state: State, seen: Seen, pane: str) -> State:
    return state.showing(WEIGHTS if state.pane == pane else pane)


def _cover(state: State, seen: Seen, pane: str) -> State:
    """Cover the present pane with another one, and uncover it at the same key."""
    if state.pane == pane:
        return state.showing(state.under)
    under = state.under if state.pane in (HELP, COMMAND) else state.pane
    return replace(state.showing(pane), under=under)


def _close(state: State, seen: Seen) -> State:
    if state.pane in (HELP, COMMAND):
        return state.showing(state.under)
    return replace(state.showing(WEIGHTS), compared=OFF)


def _end(state: State, seen: Seen, is_last: bool) -> State:
    return replace(state, column=seen.size(state)[1] - 1 if is_last else 0)


ACTIONS: dict[str, Callable[..., State]] = {  # of a state, what is seen, and the numbers of a click
    "head": partial(_head, by=1),
    "head_back": partial(_head, by=-1),
    "layer": partial(_layer, by=1),
    "layer_back": partial(_layer, by=-1),
    "mask": partial(_mask, by=1),
    "mask_back": partial(_mask, by=-1),
    "score": partial(_score, by=1),
    "score_back": partial(_score, by=-1),
    "hotter": partial(_step_temperature, by=1),
    "colder": partial(_step_temperature, by=-1),
    "usual_heat": partial(with_temperature, to=1.0),
    "slider": lambda state, seen, place: with_temperature(state, seen, temperature_at(place)),
    "off": _off,
    "compare": _compare,
    "step": partial(_step, by=1),
    "step_back": partial(_step, by=-1),
    "edit": _edit,
    "large": lambda state, seen: replace(state, is_large=not state.is_large),
    "open": partial(_toggle, pane=ROW),
    "pane": partial(_toggle, pane=ROW),
    "help": partial(_cover, pane=HELP),
    "command": partial(_cover, pane=COMMAND),
    "close": _close,
    "choose": lambda state, seen, row, column: state.at(row, column, seen.size(state)),
    "up": partial(_move, rows=-1, columns=0),
    "down": partial(_move, rows=1, columns=0),
    "left": partial(_move, rows=0, columns=-1),
    "right": partial(_move, rows=0, columns=1),
    "page_up": partial(_move, rows=-PAGE, columns=0),
    "page_down": partial(_move, rows=PAGE, columns=0),
    "first": partial(_end, is_last=False),
    "last": partial(_end, is_last=True),
}
