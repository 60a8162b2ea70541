"""One session without its screen: state, answers, undo, and what each key makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from attn_cli.errors import AttnError
from attn_cli.live.keys import ACTIONS, MATRICES, WEIGHTS, Seen, State
from attn_cli.live.sources import LiveSource, Question, edited
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from attn_cli.trace.trace import Trace

MOST_UNDONE = 500  # steps back


@dataclass
class Session:
    """The state that keys act on.

    `trace` is the result for `answered`: the current question, unless a newer one is still being computed.
    """

    source: LiveSource
    state: State
    trace: Trace
    answered: Question
    view: View  # how results are shown, also in the files that w writes
    before: Trace | None = None  # of the view before
    left: Trace | None = None  # what was shown when the latest change was made
    said: str = ""  # in the place of the footer, until the next key
    past: list[Question] = field(default_factory=list)  # the questions before this one
    commands: list[str] = field(default_factory=list)  # that were copied
    is_typing: bool = False  # whether the text is being typed, which is one step of undo

    @property
    def seen(self) -> Seen:
        """What is on the screen now."""
        return Seen(self.trace, self.source, self.before, tuple(self.commands))

    @property
    def is_behind(self) -> bool:
        """Whether what is shown does not answer the question yet."""
        return self.answered != self.state.question

    def press(self, action: str, *numbers: int) -> None:
        """Do what a key or a click does; what cannot be done is said."""
        self.said = ""
        if action == "undo":
            self._undo()
        else:
            self._become(lambda: ACTIONS[action](self.state, self.seen, *numbers))

    def type_text(self, text: str) -> None:
        """Take the text as it is typed."""
        if text != self.state.question.text:
            if not self.is_typing:
                self._leave()
                self.is_typing = True
            self.state = replace(self.state, question=self.state.question._replace(text=text))

    def type_number(self, typed: str) -> None:
        """Put a number into the chosen cell of the given matrix that is shown."""
        self.said = ""

        def put() -> State:
            state, question = self.state, self.state.question
            edit = edited(self.seen.matrix(state)[0], state.row, state.column, typed)
            kept = tuple(one for one in question.edits if one[:3] != edit[:3])
            return replace(state, question=question._replace(edits=(*kept, edit)))

        self._become(put)

    def take(self, question: Question, answer: Trace | BaseException) -> None:
        """Take the answer to the latest question; an error leaves what was shown, and is said."""
        if not isinstance(answer, BaseException):
            self.before, self.trace, self.answered, self.said = self.left, answer, question, ""
            if self.state.pane != MATRICES:
                self.state = self.state.at(self.state.row, self.state.column, self.seen.size(self.state))
            return
        self.said = str(answer) if isinstance(answer, AttnError) else "There is not enough memory for this."
        if self.is_typing:  # a text is typed on
            self.answered = question
        else:  # a key that leads nowhere is taken back
            self.past[-1:] = []
            self.state = replace(self.state, question=self.answered)

    def _become(self, act: Callable[[], State]) -> None:
        try:
            state = act()
        except AttnError as error:
            self.said = str(error)
            return
        if state.question != self.state.question:
            self._leave()
        self.state = state

    def _leave(self) -> None:
        self.past = [*self.past[1 - MOST_UNDONE :], self.state.question]
        self.left = self.trace

    def _undo(self) -> None:
        while self.past and self.past[-1] == self.state.question:
            self.past.pop()
        if not self.past:
            self.said = "There is nothing to undo."
            return
        self.left = self.trace
        pane = self.state.pane if self.state.pane == MATRICES else WEIGHTS
        self.state = replace(self.state, question=self.past.pop(), pane=pane)


def begin(source: LiveSource, text: str, settings: Settings, view: View) -> Session:
    """Return a session whose first question is answered; raises what the pipeline raises."""
    question = Question(text, settings)
    trace = source.compute(question)
    row = trace.focus[0]
    state = State(question, row, max(0, int(trace.shown.links.keys[row][0])))
    return Session(source, state, trace, question, view)
