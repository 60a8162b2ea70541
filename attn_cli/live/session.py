"""One session without its screen: state, answers, undo, and what each key makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attn_cli.errors import AttnError
from attn_cli.live.actions import ACTIONS, Refused, Seen, chosen, heated
from attn_cli.live.command_line import command_line, unsaid
from attn_cli.live.panes import steps_of
from attn_cli.live.scene import Hit, Remark
from attn_cli.live.sources import edited
from attn_cli.live.state import COMMAND, MATRICES, WEIGHTS, History, Question, State
from attn_cli.live.status import heat_at

if TYPE_CHECKING:
    from attn_cli.live.sources import Source
    from attn_cli.live.worker import Answer
    from attn_cli.settings.output import View
    from attn_cli.trace.trace import Trace


@dataclass
class Session:
    """The state that keys act on.

    `trace` is the result for `answered`: the current question, unless a newer one is still being computed.
    """

    source: Source
    state: State
    trace: Trace
    answered: Question
    before: Trace | None = None  # of the view before
    left: Trace | None = None  # what was shown when the latest change was made
    remark: Remark = field(default_factory=Remark)
    history: History = field(default_factory=History)
    is_typing: bool = False  # whether the text is being typed, which is one step of undo
    view: View | None = None  # how results are shown, also in the files that w writes

    @property
    def seen(self) -> Seen:
        """What is on the screen now."""
        return Seen(self.trace, self.source, self.before, steps_of(self.trace))

    @property
    def is_behind(self) -> bool:
        """Whether what is shown does not answer the question yet."""
        return self.answered != self.state.question

    def press(self, action: str) -> None:
        """Do what a key does; what cannot be done is said in a remark."""
        self.remark = Remark()
        if action == "undo":
            self._undo()
            return
        if action in ACTIONS:
            self._become(lambda state: ACTIONS[action](state, self.seen))
        if self.state.pane == COMMAND:
            line = command_line(replace(self.state, pane=self.state.under), self.seen)
            more = unsaid(line, self.state.question, self.source.layers(self.trace))
            self.remark = Remark(command=line, more=more)

    def click(self, hit: Hit, times: int) -> None:
        """Do what a click does: choose a cell, a second time open it; move the slider; or press a key."""
        if hit.action == "choose":
            is_again = times > 1
            self.remark = Remark()
            self._become(lambda state: chosen(state, self.seen, *hit.numbers))
            if is_again:
                self.press("open")
        elif hit.action == "slider":
            self.remark = Remark()
            self._become(lambda state: heated(state, self.seen, heat_at(hit.numbers[0])))
        else:
            self.press(hit.action)

    def type_text(self, text: str) -> None:
        """Take the text as it is typed."""
        if text != self.state.question.text:
            if not self.is_typing:
                self._leave()
                self.is_typing = True
            self.state = self.state.asking(text=text)

    def type_number(self, typed: str) -> None:
        """Put a number into the chosen cell of the given matrix that is shown."""
        given = self.source.matrices(self.state.question)
        name = list(given)[self.state.matrix % len(given)]

        def put(state: State) -> State:
            edit = edited(given[name], name, state.row, state.column, typed)
            kept = tuple(one for one in state.question.edits if one[:3] != edit[:3])
            return state.asking(edits=(*kept, edit))

        self._become(put)

    def take(self, answer: Answer) -> None:
        """Take the answer to the latest question; an error leaves what was shown, and is said."""
        if answer.trace is not None:
            self.before = self.left
            self.trace, self.answered = answer.trace, answer.question
            self.remark = self.remark._replace(text="")
            if self.state.pane != MATRICES:
                self.state = self.state.within(len(self.trace.query_tokens), len(self.trace.key_tokens))
            return
        error = answer.error
        self.say(str(error) if isinstance(error, AttnError) else "There is not enough memory for this.")
        if not self.is_typing:  # a key that leads nowhere is taken back; a text is typed on
            self.history.past[-1:] = []
            kept = self.state
            self.state = replace(kept, question=self.answered)
        else:
            self.answered = answer.question

    def say(self, text: str) -> None:
        """Say something in the place of the footer, until the next key."""
        self.remark = Remark(text)

    def stop_typing(self) -> None:
        """Let the next change of the text be a step of its own."""
        self.is_typing = False

    def _become(self, act: Callable[[State], State]) -> None:
        try:
            state = act(self.state)
        except (Refused, AttnError) as error:
            self.say(str(error))
            return
        if state.question != self.state.question:
            self._leave()
        self.state = state

    def _leave(self) -> None:
        """Keep what is there before a change."""
        self.history.keep(self.state)
        self.left = self.trace

    def _undo(self) -> None:
        before = self.history.back(self.state)
        if before is None:
            self.say("There is nothing to undo.")
            return
        self.left = self.trace
        pane = self.state.pane if self.state.pane == MATRICES else WEIGHTS
        self.state = replace(self.state, question=before.question, pane=pane)
