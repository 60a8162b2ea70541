"""The line at the top: the text while nothing is typed, what is typed, or the answer to a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

from attn_cli.io.escape import visible
from attn_cli.live.prompt import Prompt

if TYPE_CHECKING:
    from attn_cli.live.session import Session


class TextLine(Input):
    """The line that is typed in; nothing that is typed or pasted into it is obeyed by the terminal."""

    def __init__(self) -> None:
        super().__init__(select_on_focus=False)
        self.prompt: Prompt | None = None  # what the line asks for, if not for the text

    @property
    def is_text(self) -> bool:
        """Whether the text is typed in it, and not the answer to a prompt."""
        return self.has_focus and self.prompt is None

    def validate_value(self, value: str) -> str:
        """Spell out what a terminal would obey or hide."""
        return visible(value)

    def ask(self, prompt: Prompt | None, session: Session) -> None:
        """Open the line: for the answer to a prompt, or for the text."""
        self.prompt = prompt
        self.value = visible(prompt.start if prompt else session.state.question.text)
        self.cursor_position = len(self.value)
        self.screen.set_focus(self)  # at once: the next key may be here already

    def rest(self, session: Session) -> None:
        """Show what stands in the line while nothing is typed: the text, or the name of the file."""
        self.prompt = None
        source = session.source
        self.value = visible(session.state.question.text if source.has_text else source.start[-1])
