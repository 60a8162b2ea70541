"""One session without its screen: state, answers, undo, what each key makes of them, and the command that shows it."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from attn_cli.errors import AttnError, InputError, shell_quote
from attn_cli.io.types import replace
from attn_cli.live.keys import COMMAND, MATRICES, ROW, STEPS, WEIGHTS, Press, Seen, State
from attn_cli.live.sources import Edit, LiveSource, Question
from attn_cli.render.walk import NAMES
from attn_cli.settings import Settings, View, as_typed, declared
from attn_cli.trace import Trace

OF_ROWS = ("query", "versus")
CHUNK = 700  # bytes: GNU screen passes on no longer string
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
            self._become(lambda: getattr(Press(self.state, self.seen), action)(*numbers))

    def type_text(self, text: str) -> None:
        if text != self.state.question.text:
            if not self.is_typing:
                self._leave()
                self.is_typing = True
            self.state = replace(self.state, question=self.state.question._replace(text=text))

    def type_number(self, typed: str) -> None:
        self.said = ""

        def put() -> State:
            state, question = self.state, self.state.question
            name, _ = self.seen.matrix(state)
            try:
                value = float(typed.replace(",", "."))
            except ValueError:
                raise InputError(f"{typed[:40]!r} is not a number.", "Type one such as 0.5.") from None
            if not abs(value) <= 1e100:
                raise InputError(f"{name} cannot hold {typed[:40]!r}.", "Type a finite number.")
            edit = Edit(name, state.row, state.column, value)
            kept = tuple(one for one in question.edits if one[:3] != edit[:3])
            return replace(state, question=question._replace(edits=(*kept, edit)))

        self._become(put)

    def take(self, question: Question, answer: Trace | BaseException) -> None:
        """Take the answer to the latest question; an error leaves what was shown, and is said."""
        if not isinstance(answer, BaseException):
            self.before, self.trace, self.answered, self.said = self.left, answer, question, ""
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


def command_line(state: State, seen: Seen) -> str:
    """Return the line to type in a shell for the state's pane, or for the one that the command line covers."""
    state = replace(state, pane=state.under) if state.pane == COMMAND else state
    question = state.question
    source, text = seen.source, question.text
    is_compared = state.compared and state.pane == WEIGHTS and not source.start
    varied = _varied(question, seen.before) if is_compared else None
    usual = "explain" if state.pane in (ROW, STEPS) else "compare" if varied else "self"
    options = as_typed(question.settings, (*OF_ROWS, *(varied or ())[:1]), short=True)
    if varied:
        options += ["--vary", varied[1]]
    elif state.pane == ROW:
        options += ["-q", _row(seen.trace.query_tokens, state.row)]
    elif state.pane == STEPS and not source.start:
        options += ["--only", ",".join(NAMES[name][0] for name in seen.steps[state.step])]
    if source.temperature is not None and question.settings.temperature == 1:
        options += ["-t", "1"]  # not what the file states
    if not source.has_text:
        words = [*(f"./{word}" if word.startswith("-") else word for word in source.start), *options]
    elif text.startswith("-") and text != "-":
        words = [usual, *options, "--", text]
    else:
        words = [usual, text, *options]
    before = "printf %s - | " * (source.has_text and text == "-")  # which, typed, is standard input
    return before + " ".join(map(shell_quote, ["attn", *words]))


def _varied(question: Question, before: Trace | None) -> tuple[str, str] | None:
    """Return the one setting that differs from the view before, and what --vary takes; None if it is not one alone."""
    if before is None:
        return None
    old, new = before.settings, question.settings
    names = [name for name in declared(Settings) if getattr(old, name) != getattr(new, name)]
    if len(names) != 1 or isinstance(getattr(new, names[0]), tuple):
        return None
    usual = {"mask": "none", "score": "scaled"}
    values = [getattr(one, names[0]) for one in (old, new)]
    written = [f"{one:.12g}" if isinstance(one, float) else one or usual.get(names[0]) for one in values]
    return None if None in written else (names[0], f"{names[0].replace('_', '-')}={written[0]},{written[1]}")


def unsaid(line: str, question: Question, layers: int) -> str:
    """Return what the line does not say of the view, or which option says more, or who reads it; nothing otherwise."""
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in question.text):
        return "U+FFFD stands in the line for characters that no argument can hold."
    if question.edits:
        return "The numbers that were typed are not in that file: w writes a .json, which attn compute reads."
    if "$'" in line:
        return "It is written for bash and zsh, which read $'...' as the same text."
    return "All layers at once: --layer all in place of one." if layers > 1 else ""


def _row(tokens: tuple[str, ...], row: int) -> str:
    """Return a token, or the number of its row where that is another one's token, or it occurs more than once."""
    same = [token for token in tokens if token.casefold() == tokens[row].casefold()]
    is_plain = len(same) == 1 and not tokens[row].startswith("-")
    return tokens[row] if is_plain or str(row) in tokens else str(row)


def osc52(text: str) -> str:
    """Return what a terminal is sent to put a text on its clipboard; GNU screen is told to pass it on."""
    code = f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"
    if "STY" not in os.environ or "TMUX" in os.environ:
        return code
    return "".join(f"\x1bP{code[at : at + CHUNK]}\x1b\\" for at in range(0, len(code), CHUNK))


def copied() -> str:
    """Return a sentence on where the copy is."""
    tmux = "to tmux, and to the clipboard where tmux may (set-clipboard on)"
    where = tmux if "TMUX" in os.environ else "to the clipboard where the terminal allows it (OSC 52)"
    return f"Copied {where}. It is printed at the end, too."
