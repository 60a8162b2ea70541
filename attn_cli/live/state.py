"""What is on the screen: the question that is computed, where one looks in it, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from attn_cli.settings.settings import Settings

MOST_UNDONE = 500  # steps back


class Edit(NamedTuple):
    """One number of a given matrix that was typed anew."""

    matrix: str
    row: int
    column: int
    value: float


class Question(NamedTuple):
    """All that a trace depends on."""

    text: str
    settings: Settings
    edits: tuple[Edit, ...] = ()


WEIGHTS, ROW, STEPS, MATRICES, HELP, COMMAND = "weights", "row", "steps", "matrices", "help", "command"
OFF, DIFFERENCE, BEFORE = "", "difference", "before"


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

    def asking(self, **changes: object) -> State:
        """Return the state with another question."""
        return replace(self, question=self.question._replace(**changes))  # type: ignore[arg-type]

    def setting(self, **changes: object) -> State:
        """Return the state with other settings; raises SettingError for a value that one cannot have."""
        return self.asking(settings=replace(self.question.settings, **changes))  # type: ignore[arg-type]

    def within(self, n_q: int, n_k: int) -> State:
        """Return the state with its cell inside a matrix of this size."""
        row, column = min(self.row, n_q - 1), min(self.column, n_k - 1)
        return self if (row, column) == (self.row, self.column) else replace(self, row=row, column=column)


@dataclass
class History:
    """The questions before this one, the latest last."""

    past: list[State] = field(default_factory=list)

    def keep(self, state: State) -> None:
        """Keep a state that is about to be left."""
        if not self.past or self.past[-1].question != state.question:
            self.past.append(state)
            del self.past[:-MOST_UNDONE]

    def back(self, now: State) -> State | None:
        """Return the latest kept state with another question, and forget it; None at the beginning."""
        while self.past:
            before = self.past.pop()
            if before.question != now.question:
                return before
        return None
