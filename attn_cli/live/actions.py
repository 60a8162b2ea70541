"""What keys and clicks do: functions from a state to the next one. None of them computes or draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.core.mask_rules import mask_examples
from attn_cli.core.scores import SCORES
from attn_cli.live.state import BEFORE, COMMAND, DIFFERENCE, HELP, MATRICES, OFF, ROW, STEPS, WEIGHTS, State
from attn_cli.render.numbers import plain
from attn_cli.settings.settings import ALL, MEAN, ROLLOUT

if TYPE_CHECKING:
    from attn_cli.live.sources import Source
    from attn_cli.trace.trace import Trace

HEATS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
TOGETHER = (MEAN, ALL, ROLLOUT)  # of all heads; the last of all layers, too
PAGE = 10  # lines, rows or columns that a page key moves by


class Seen(NamedTuple):
    """What is on the screen while a key is pressed."""

    trace: Trace
    source: Source
    before: Trace | None  # of the view before
    steps: tuple[tuple[str, ...], ...]  # the names of the steps that there are, those of one pane together


class Refused(Exception):
    """A key has nothing to do here; the message says why."""


Action = Callable[[State, Seen], State]


def _next(names: Sequence[str], now: str, by: int) -> str:
    return names[(names.index(now) + by) % len(names)] if now in names else names[0]


def _heads(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        names = seen.trace.head_names
        if len(names) < 2:
            raise Refused("There is one head.")
        asked = state.question.settings.head
        now = asked if asked in TOGETHER else seen.trace.shown.name
        together = TOGETHER if seen.source.has_rollout(seen.trace) else TOGETHER[:2]
        return state.setting(head=_next([*names, *together], now, by))

    return act


def _layers(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        count = seen.source.layers(seen.trace)
        if count < 2:
            raise Refused("There is one layer here; -p roles-deep has more, and so has a model (-m).")
        now = seen.trace.projection.layer
        return state.setting(layer=((count - 1 if now is None else now) + by) % count, head=None)

    return act


def _masks(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        asked = state.question.settings.mask
        now = asked or ("causal" if seen.trace.mask_name.startswith("causal") else "none")
        return state.setting(mask=_next(mask_examples(), now, by), mask_true=None)

    return act


def _scores(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        if not seen.trace.is_scored:
            raise Refused("These weights have no scores, so there is no score function to change.")
        return state.setting(score=_next(tuple(SCORES), seen.trace.score, by))

    return act


def heated(state: State, seen: Seen, to: float) -> State:
    """Return the state with another temperature."""
    if not seen.trace.is_scored:
        raise Refused("These weights have no scores, so there is no temperature to change.")
    return state.setting(temperature=to)


def _heat(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        now = state.question.settings.temperature
        others = [heat for heat in HEATS if (heat > now if by > 0 else heat < now)]
        if not others:
            raise Refused(
                f"The temperature, {plain(now)}, is already the {'highest' if by > 0 else 'lowest'} available."
            )
        return heated(state, seen, others[0] if by > 0 else others[-1])

    return act


def _off(state: State, seen: Seen) -> State:
    """Switch the word of the chosen column off, or on again."""
    if not seen.trace.is_scored:
        raise Refused("These weights have no scores, so no word can be hidden.")
    word, off = seen.trace.key_tokens[state.column], state.question.settings.without
    return state.setting(without=tuple(one for one in off if one != word) if word in off else (*off, word))


def _move(rows: int, columns: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        if state.pane in (HELP, COMMAND, STEPS, ROW) and rows:
            return replace(state, scrolled=max(0, state.scrolled + rows))
        n_q, n_k = _size(state, seen)
        row = max(0, min(n_q - 1, state.row + rows))
        return replace(state, row=row, column=max(0, min(n_k - 1, state.column + columns)))

    return act


def _size(state: State, seen: Seen) -> tuple[int, int]:
    """Return the size of the matrix that the arrows move in."""
    if state.pane == MATRICES:
        given = list(seen.source.matrices(state.question).values())
        shape = given[state.matrix % len(given)].shape
        return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])
    return len(seen.trace.query_tokens), len(seen.trace.key_tokens)


def _compare(state: State, seen: Seen) -> State:
    """Turn from now to the difference, to the view before, and back."""
    if seen.before is None:
        raise Refused("There is no view before this one: change something, then compare.")
    order = (OFF, DIFFERENCE, BEFORE)
    return replace(state, compared=_next(order, state.compared, 1), pane=WEIGHTS)


def _steps(by: int) -> Action:
    def act(state: State, seen: Seen) -> State:
        if not seen.trace.is_scored:
            raise Refused("These weights have no scores, so there are no steps to show.")
        if state.pane != STEPS:
            return replace(state, pane=STEPS, step=0 if by > 0 else len(seen.steps) - 1, scrolled=0)
        step = state.step + by
        if not 0 <= step < len(seen.steps):
            return replace(state, pane=WEIGHTS, scrolled=0)
        return replace(state, step=step, scrolled=0)

    return act


def _edit(state: State, seen: Seen) -> State:
    """Show the given matrices, one after the other, then the weights again."""
    given = seen.source.matrices(state.question)
    if not given:
        raise Refused("Only small matrices that are given (--matrices FILE) can be edited.")
    if state.pane != MATRICES:
        return replace(state, pane=MATRICES, matrix=0, row=0, column=0)
    if state.matrix + 1 < len(given):
        return replace(state, matrix=state.matrix + 1, row=0, column=0)
    return replace(state, pane=WEIGHTS, row=0, column=0)


def _turned(pane: str) -> Action:
    def act(state: State, seen: Seen) -> State:
        return replace(state, pane=WEIGHTS if state.pane == pane else pane, scrolled=0)

    return act


def _covered(pane: str) -> Action:
    """Cover the present pane with another one, and uncover it at the same key."""

    def act(state: State, seen: Seen) -> State:
        if state.pane == pane:
            return replace(state, pane=state.under, scrolled=0)
        under = state.under if state.pane in (HELP, COMMAND) else state.pane
        return replace(state, pane=pane, under=under, scrolled=0)

    return act


def _close(state: State, seen: Seen) -> State:
    if state.pane in (HELP, COMMAND):
        return replace(state, pane=state.under, scrolled=0)
    return replace(state, pane=WEIGHTS, compared=OFF, scrolled=0)


def _end(is_last: bool) -> Action:
    def act(state: State, seen: Seen) -> State:
        return replace(state, column=_size(state, seen)[1] - 1 if is_last else 0)

    return act


def chosen(state: State, seen: Seen, row: int, column: int) -> State:
    """Return the state with a cell chosen."""
    n_q, n_k = _size(state, seen)
    return replace(state, row=max(0, min(n_q - 1, row)), column=max(0, min(n_k - 1, column)))


ACTIONS: dict[str, Action] = {
    "head": _heads(1),
    "head_back": _heads(-1),
    "layer": _layers(1),
    "layer_back": _layers(-1),
    "mask": _masks(1),
    "mask_back": _masks(-1),
    "score": _scores(1),
    "score_back": _scores(-1),
    "hotter": _heat(1),
    "colder": _heat(-1),
    "usual_heat": lambda state, seen: heated(state, seen, 1.0),
    "off": _off,
    "compare": _compare,
    "step": _steps(1),
    "step_back": _steps(-1),
    "edit": _edit,
    "large": lambda state, seen: replace(state, is_large=not state.is_large),
    "open": _turned(ROW),
    "pane": _turned(ROW),
    "help": _covered(HELP),
    "command": _covered(COMMAND),
    "close": _close,
    "up": _move(-1, 0),
    "down": _move(1, 0),
    "left": _move(0, -1),
    "right": _move(0, 1),
    "page_up": _move(-PAGE, 0),
    "page_down": _move(PAGE, 0),
    "first": _end(False),
    "last": _end(True),
}
