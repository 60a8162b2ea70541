"""What is on the screen: the question that is computed, and where one looks in its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.live.sources import LiveSource, Question

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.trace.trace import Trace

WEIGHTS, ROW, STEPS, MATRICES, HELP, COMMAND = "weights", "row", "steps", "matrices", "help", "command"
OFF, DIFFERENCE, BEFORE = "", "difference", "before"
ORDER = (  # of the steps; those of one pane together
    *(("tokens",), ("x_query",), ("encodings_query",), ("q", "k", "v"), ("scores",), ("scaled_scores",)),
    *(("position_scores",), ("masked_scores",), ("weights",), ("output",)),
)


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
        return tuple(
            names for names in ORDER if there.get(names[0], getattr(head, names[0], None) is not None)
        )
