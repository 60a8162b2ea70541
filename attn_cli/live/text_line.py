"""The line at the top: the text while nothing is typed, what is typed, or the answer to a question."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.widgets import Input

from attn_cli.errors import UsageError, did_you_mean, visible
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import replace
from attn_cli.live.keys import MATRICES
from attn_cli.live.session import Session
from attn_cli.settings import View
from attn_cli.trace import Trace

TYPING = "Type: attention follows. Enter or Esc: back to the keys."


class Prompt(NamedTuple):
    """What the line asks for: what it says, how the answer begins, and what is done with the answer.

    `take` gets the answer, and whether a replay gave it; it returns why the answer is to be given again, or "".
    """

    hint: str
    start: str
    take: Callable[[str, bool], str] | None = None  # None: the text is typed, and followed letter by letter


class TextLine(Input):
    """The line that is typed in; nothing that is typed or pasted into it is obeyed by the terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,tab,shift+tab", "app.leave_line")]

    def __init__(self, session: Session) -> None:
        super().__init__(select_on_focus=False)
        self.session = session
        self.prompt = Prompt(TYPING, "")

    def validate_value(self, value: str) -> str:
        """Spell out what a terminal would obey or hide."""
        return visible(value)

    def ask(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.value = visible(prompt.start)
        self.cursor_position = len(self.value)
        self.screen.set_focus(self)  # at once: the next key may be here already

    def rest(self) -> None:
        """Show what stands in the line while nothing is typed: the text, or the name of the file."""
        source, text = self.session.source, self.session.state.question.text
        self.prompt = Prompt(TYPING, text)
        self.value = visible(text if source.has_text else source.start[-1])


def prompt_for(action: str, session: Session) -> Prompt | None:
    """Return what an action asks for in the line, if it asks for anything."""
    if action == "text" and session.source.has_text:
        return Prompt(TYPING, session.state.question.text)
    if action == "open" and session.state.pane == MATRICES:
        return _numbering(session)
    return _writing(session) if action == "write" else None


def _writing(session: Session) -> Prompt:
    confirmed: list[str] = []

    def take(path: str, is_replayed: bool) -> str:
        if os.path.lexists(path) and path not in confirmed:
            if is_replayed:
                return f"{visible(path)} exists, and a replay overwrites nothing."
            confirmed.append(path)
            return f"{visible(path)} exists. Enter again overwrites it; Esc does not."
        session.said = save(session.trace, session.view, path)
        return ""

    names = (f"attn-live{f'-{n}' if n else ''}.svg" for n in range(1000))
    free = next(name for name in names if not os.path.lexists(name))
    return Prompt("Write the view to this file: .svg, .html, .json and others. Esc: do not.", free, take)


def _numbering(session: Session) -> Prompt:
    state = session.state
    name, matrix = session.seen.matrix(state)
    now = matrix[state.column] if matrix.ndim == 1 else matrix[state.row, state.column]

    def take(typed: str, is_replayed: bool) -> str:
        session.type_number(typed)
        return session.said

    hint = f"{name}, row {state.row}, column {state.column}: type a number. Esc: leave it."
    return Prompt(hint, f"{now:.6g}", take)


def save(trace: Trace, view: View, path: str) -> str:
    """Write a trace to a file, all or nothing, and return what was done; raise UsageError for another suffix."""
    from attn_cli.io.atomic import written
    from attn_cli.render.formats import FORMATS, render, suffixes

    suffix = os.path.splitext(path)[1].lower()
    format = suffixes().get(suffix, "")
    if not format or format == "figure" or FORMATS[format].not_on_terminal:
        near = did_you_mean(suffix, suffixes())
        raise UsageError(f"Cannot save the view as {visible(path)!r}.", f"{near}Use .svg, .html or .json.")
    width = None if format in ("html", "json") else view.width
    asked = replace(view, format=format, width=width, steps=format == "json" and trace.is_scored)
    text = render(trace, asked, Terminal(width))
    with written(path) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))
    return f"Written: {visible(path)}"
