"""What is on the screen, and every key: what it does to that, and how the footer and the help name it.

Nothing here computes or draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partialmethod

from textual.binding import Binding

from attn_cli.core import masks, scores
from attn_cli.errors import refuse
from attn_cli.io.types import Array, NamedTuple, dataclass, replace
from attn_cli.live.sources import LiveSource, Question
from attn_cli.render import plain
from attn_cli.settings import ALL, BETWEEN, DEFAULTS, MEAN, ROLLOUT
from attn_cli.trace import Trace

WEIGHTS, ROW, STEPS, MATRICES, HELP, COMMAND = "weights", "row", "steps", "matrices", "help", "command"
OFF, DIFFERENCE, BEFORE = "", "difference", "before"
ORDER = (  # of the steps; those of one pane together
    *(("tokens",), ("x_query",), ("encodings_query",), ("q", "k", "v"), ("scores",), ("scaled_scores",)),
    *(("position_scores",), ("masked_scores",), ("weights",), ("output",)),
)
TEMPERATURES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
SLIDER = 11  # cells
TOGETHER = (MEAN, ALL, ROLLOUT)  # of all heads; the last of all layers, too
NEXT_HEAD = "The next head; then their mean, all at once, and the rollout of several layers; H goes back."
HOTTER = "The temperature: + is hotter, flatter weights; - is colder, sharper weights."
PAGE = 10  # lines, rows or columns that a page key moves by
COVERS = (HELP, COMMAND)
SCROLLED = (*COVERS, STEPS, ROW)  # panes that have the whole screen, and may be longer than it


@dataclass(frozen=True)
class State:
    """The question, the chosen cell, and which pane is shown."""

    question: Question
    row: int = 0
    column: int = 0
    pane: str = WEIGHTS
    under: str = WEIGHTS  # the pane that help and the command line cover
    step: int = 0  # of the steps' pane
    matrix: int = 0  # of the pane of given matrices
    compared: str = OFF  # whether the view before is shown, or the difference from it
    is_large: bool = False
    scrolled: int = 0

    def setting(self, **changes: object) -> State:
        """Return the state with other settings; raises SettingError for a value that one cannot have."""
        settings = replace(self.question.settings, **changes)  # type: ignore[arg-type]
        return replace(self, question=self.question._replace(settings=settings))

    def at(self, row: int, column: int, size: tuple[int, int]) -> State:
        """Return the state with a cell chosen, the nearest one inside a matrix of this size."""
        row, column = max(0, min(row, size[0] - 1)), max(0, min(column, size[1] - 1))
        return replace(self, row=row, column=column)

    def showing(self, pane: str) -> State:
        """Return the state with another pane, from its top."""
        return replace(self, pane=pane, scrolled=0)


class Seen(NamedTuple):
    """What is on the screen while a key is pressed."""

    trace: Trace
    source: LiveSource
    before: Trace | None = None  # of the view before
    copied: tuple[str, ...] = ()  # the command lines that were copied

    def size(self, state: State) -> tuple[int, int]:
        """Return the size of the matrix that the arrows move in."""
        if state.pane == MATRICES:
            shape = self.matrix(state)[1].shape
            return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])
        return len(self.trace.query_tokens), len(self.trace.key_tokens)

    def matrix(self, state: State) -> tuple[str, Array]:
        """Return the given matrix that the state shows, and its name."""
        given = list(self.source.matrices(state.question).items())
        return given[state.matrix % len(given)]

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The names of the steps that the trace has, Q, K and V together."""
        trace, head = self.trace, self.trace.stepped_head
        there = {
            "tokens": trace.query_ids is not None,
            "x_query": trace.x_query is not None,
            "encodings_query": trace.placed is not None,
            "masked_scores": trace.mask is not None,
        }
        return tuple(step for step in ORDER if there.get(step[0], getattr(head, step[0], None) is not None))


def _key(keys: str, action: str, label: str = "", help: str = "", typed: str = "") -> Binding:
    """Return a binding: keys, what they do, their label in the footer, their help, and how they are typed."""
    name, _, numbers = action.rstrip(")").partition("(")
    call = f"app.press('{name}', [{numbers}])"
    return Binding(keys, call, label, key_display=typed or keys[0], tooltip=help, id=name)


# Keys without words of their own: those that go back, and what everybody knows.
SILENT = (
    "M mask(-1); H head(-1); L layer(-1); S score(-1); - hotter(-1); D step(-1); down,j down; end end(1); "
    f"left move(0, -1); right move(0, 1); pageup move({-PAGE}, 0); pagedown,space move({PAGE}, 0); ctrl+l redraw"
)
KEYS = [
    _key("t,i", "text", "text", "Type another text; Esc or Enter comes back to the keys."),
    _key("enter", "open", "why", "The arithmetic of the chosen row, by hand; again: back.", "Enter"),
    _key("up,k", "up", "cell", "Choose a cell: its row's bars and arithmetic follow.", "arrows"),
    _key("m", "mask", "mask", "The next mask: none, causal and the others; M goes back."),
    _key("h", "head", "head", NEXT_HEAD),
    _key("l", "layer", "layer", "The next layer, where there are several; L goes back. All: see c."),
    _key("s", "score", "score", "The next score function; S goes back."),
    _key("+,=", "hotter", "heat", HOTTER, "+ -"),
    _key("0", "usual_heat", "", "The temperature back to 1."),
    _key("x", "off", "word off", "Hide the chosen column's word from every query, or show it again."),
    _key("o", "knock_out", "", "Knock the head out: layers above, and the guess, are new; again: back in."),
    _key("p", "pieces", "", "Join a model's word pieces to words, or show them apart again."),
    _key("g", "write_on", "", "A model that says the next token writes it; at first it may only name it."),
    _key("a", "between", "", "Of a pair of texts (--pair): from a to a, a to b, b to a, b to b; all again."),
    _key("v", "compare", "compare", "What changed since the view before: the difference, before, now."),
    _key("d", "step", "steps", "The steps in turn: tokens, X, Q K V, scores to output; D goes back."),
    _key("e", "edit", "edit", "Given matrices: choose a number with the arrows, Enter types another one."),
    _key("b", "large", "big", "Large blocks for a lecture hall, and back."),
    _key("u", "undo", "undo", "Undo the last change."),
    _key("c", "command", "command", "The command line of this view; copied where the terminal allows it."),
    _key("w", "write", "save", "Write the view to a file: .svg, .html, .json and others."),
    _key("?", "help", "help", "These keys."),
    _key("q", "quit", "quit", "Leave; Ctrl-C does too."),
    _key("home", "end(0)", "", "The first and the last column; PgUp and PgDn turn pages.", "Home End"),
    _key("tab,shift+tab", "pane", "", "On a small screen: the matrix, or its row.", "Tab"),
    _key("escape", "close", "", "Out of a pane, back to the matrix.", "Esc"),
    *(_key(*silent.split(" ", 1)) for silent in SILENT.split("; ")),
]
# How many numbers each action takes.
NUMBERS = {str(key.id): 0 for key in KEYS} | {"slider": 1, "end": 1, "choose": 2, "move": 2}


def _next(names: Sequence[str], now: str, by: int = 1) -> str:
    return names[(names.index(now) + by) % len(names)] if now in names else names[0]


def place_of(temperature: float) -> float:
    """Return where on the slider a temperature stands: from 0, its first cell, to SLIDER - 1."""
    least, now, most = map(math.log, (TEMPERATURES[0], temperature, TEMPERATURES[-1]))
    return max(0.0, min(1.0, (now - least) / (most - least))) * (SLIDER - 1)


def temperature_at(place: int) -> float:
    """Return the temperature of a cell of the slider, one of TEMPERATURES."""
    return min(TEMPERATURES, key=lambda one: abs(place_of(one) - place))


@dataclass(frozen=True)
class Press:
    """What keys and clicks do: a method for each action, which takes its numbers and returns the state that follows."""

    state: State
    seen: Seen

    def _need_scores(self, what: str) -> None:
        refuse(not self.seen.trace.is_scored, f"These weights have no scores, so {what}.")

    def head(self, by: int = 1) -> State:
        names, asked = self.seen.trace.head_names, self.state.question.settings.head
        refuse(len(names) < 2, "There is one head.")
        now = asked if asked in TOGETHER else self.seen.trace.shown.name
        together = TOGETHER if self.seen.source.has_rollout(self.seen.trace) else TOGETHER[:2]
        return self.state.setting(head=_next([*names, *together], now, by))

    def layer(self, by: int = 1) -> State:
        count, now = self.seen.source.layers(self.seen.trace), self.seen.trace.projection.layer
        refuse(count < 2, "There is one layer here; -p roles-deep has more, and so has a model (-m).")
        return self.state.setting(layer=((count - 1 if now is None else now) + by) % count, head=None)

    def mask(self, by: int = 1) -> State:
        usual = "causal" if self.seen.trace.mask_name.startswith("causal") else "none"
        now = self.state.question.settings.mask or usual
        return self.state.setting(mask=_next(masks.mask_examples(), now, by), mask_true=None)

    def score(self, by: int = 1) -> State:
        self._need_scores("there is no score function to change")
        return self.state.setting(score=_next(tuple(scores.SCORES), self.seen.trace.score, by))

    def usual_heat(self, to: float = 1.0) -> State:
        self._need_scores("there is no temperature to change")
        return self.state.setting(temperature=to)

    def hotter(self, by: int = 1) -> State:
        now = self.state.question.settings.temperature
        others = [one for one in TEMPERATURES if (one - now) * by > 0]
        end = "highest" if by > 0 else "lowest"
        refuse(not others, f"The temperature, {plain(now)}, is already the {end} available.")
        return self.usual_heat(others[0] if by > 0 else others[-1])

    def slider(self, place: int) -> State:
        return self.usual_heat(temperature_at(place))

    def off(self) -> State:
        self._need_scores("no word can be hidden")
        word, off = self.seen.trace.key_tokens[self.state.column], self.state.question.settings.without
        without = tuple(one for one in off if one != word) if word in off else (*off, word)
        return self.state.setting(without=without)

    def knock_out(self) -> State:
        settings, trace = self.state.question.settings, self.seen.trace
        refuse(settings.head in TOGETHER, "Choose one head with h: o knocks it out.")
        one = f"{trace.projection.layer or 0}.{trace.shown.name}"
        out, told = settings.knock_out, settings.next
        if told is None and (trace.kind == "masked" or settings.projection == DEFAULTS["masked"].projection):
            told = DEFAULTS["masked"].next  # a model that guesses says its guess
        others = tuple(part for part in out if part != one)
        return self.state.setting(knock_out=others if one in out else (*out, one), next=told)

    def pieces(self) -> State:
        return self.state.setting(join_pieces=not self.state.question.settings.join_pieces)

    def write_on(self) -> State:
        trace, question = self.seen.trace, self.state.question
        found, length = trace.next_words, len(trace.query_tokens)
        can_write = trace.of_model or question.settings.projection == DEFAULTS["masked"].projection or found
        why = "These heads say no next token: attn live TEXT -p language, or -m MODEL, writes."
        refuse(not can_write, why)
        if found is None and not question.settings.next:
            return self.state.setting(next=DEFAULTS["masked"].next)
        said = () if found is None or found.fills else found.words
        words = [one.word for one in said if one.id is not None]
        refuse(not words, "This model says no next token: it writes nothing.")
        if self.state.row >= length:  # the token before is still being read
            return self.state
        text = question.text + (words[0] if trace.of_model else f" {words[0]}")
        return replace(self.state, question=question._replace(text=text), row=length)

    def between(self) -> State:
        return self.state.setting(between=_next(BETWEEN, self.state.question.settings.between))

    def compare(self) -> State:
        refuse(self.seen.before is None, "There is no view before this one: change something, then compare.")
        compared = _next((OFF, DIFFERENCE, BEFORE), self.state.compared)
        return replace(self.state, compared=compared, pane=WEIGHTS)

    def step(self, by: int = 1) -> State:
        self._need_scores("there are no steps to show")
        count, step = len(self.seen.steps), self.state.step + by
        if self.state.pane != STEPS:
            step = 0 if by > 0 else count - 1
        is_there = 0 <= step < count
        return replace(self.state.showing(STEPS), step=step) if is_there else self.state.showing(WEIGHTS)

    def edit(self) -> State:
        given = self.seen.source.matrices(self.state.question)
        refuse(not given, "Only small matrices that are given (--matrices FILE) can be edited.")
        number = self.state.matrix + 1 if self.state.pane == MATRICES else 0
        pane = MATRICES if number < len(given) else WEIGHTS
        return replace(self.state, pane=pane, matrix=number % len(given), row=0, column=0)

    def large(self) -> State:
        return replace(self.state, is_large=not self.state.is_large)

    def open(self) -> State:
        return self.state.showing(WEIGHTS if self.state.pane == ROW else ROW)

    def cover(self, pane: str) -> State:
        """Cover the present pane with another one, and uncover it at the same key."""
        shown = self.state.under if self.state.pane == pane else pane
        under = self.state.under if self.state.pane in COVERS else self.state.pane
        return replace(self.state.showing(shown), under=under)

    def close(self) -> State:
        if self.state.pane in COVERS:
            return self.state.showing(self.state.under)
        return replace(self.state.showing(WEIGHTS), compared=OFF)

    def choose(self, row: int, column: int) -> State:
        return self.state.at(row, column, self.seen.size(self.state))

    def move(self, rows: int, columns: int) -> State:
        if self.state.pane in SCROLLED and rows:
            return replace(self.state, scrolled=max(0, self.state.scrolled + rows))
        return self.choose(self.state.row + rows, self.state.column + columns)

    def end(self, is_last: int) -> State:
        return replace(self.state, column=is_last and self.seen.size(self.state)[1] - 1)

    pane = open
    up = partialmethod(move, -1, 0)
    down = partialmethod(move, 1, 0)
    help = partialmethod(cover, HELP)
    command = partialmethod(cover, COMMAND)
