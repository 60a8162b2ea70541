"""The program on the screen: Textual's loop, the text line, the worker, recording and replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

from attn_cli.errors import AttnError
from attn_cli.io.escape import visible
from attn_cli.live.board import Board
from attn_cli.live.keys import ACTIONS
from attn_cli.live.paper import Paper
from attn_cli.live.prompt import prompt_for
from attn_cli.live.record import Event, Recorder
from attn_cli.live.replay import Replay
from attn_cli.live.scene import Hit, Remark, compose
from attn_cli.live.tape import Tape
from attn_cli.live.text_line import TextLine
from attn_cli.live.worker import Answer, Worker

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.live.session import Session
    from attn_cli.settings.output import View

INTERRUPTED = 130
SOON = 0.1  # seconds after which an awaited answer shows as awaited


class Answered(Message):
    """The worker has an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class LiveApp(App[int]):
    """attn live. It ends with an exit code as its return value; `failure` is the bug that ended it, if one did."""

    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    TextLine, TextLine:focus { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default;
        text-style: bold; background-tint: transparent; }
    TextLine > .input--cursor { text-style: reverse; background: ansi_default; color: ansi_default; }
    TextLine > .input--selection { text-style: reverse; background: ansi_default; color: ansi_default; }
    Board { height: 1fr; background: ansi_default; color: ansi_default; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("ctrl+q", "leave", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(
        self,
        session: Session,
        view: View,
        terminal: Terminal,
        recorder: Recorder | None = None,
        replay: Replay | None = None,
        driver_class: Any = None,
    ) -> None:
        super().__init__(driver_class=driver_class, ansi_color=True)
        self.session = session
        self.view, self.terminal = view, terminal
        self.tape = Tape(recorder, replay, session.say)
        self.board = Board()
        self.line = TextLine()
        self.worker = Worker(session.source.compute, lambda answer: self.post_message(Answered(answer)))
        self.asked = 0  # the number of the latest question
        self._last_asked: object = None  # which is not answered yet
        self.failure: BaseException | None = None
        self.commands: list[str] = []  # that were asked for

    # Life

    def compose(self) -> ComposeResult:
        """Return the text line and the board."""
        yield self.line
        yield self.board

    def on_mount(self) -> None:
        """Start to compute."""
        self.line.cursor_blink = False
        self.line.rest(self.session)
        self.board.focus()
        self.worker.start()
        self.app_resume_signal.subscribe(self, lambda _: self.repaint())
        if self.session.source.has_text and self.session.state.question.text != self.line.value:
            self.session.say("What a terminal would obey or hide is spelled out in the line.")
        if self.tape.replay.is_on:
            self.run_worker(self.tape.replay.run(self.feed, lambda: self.session.is_behind), exclusive=False)

    def on_board_resized(self) -> None:
        """Draw for the new size."""
        self.draw()

    def action_interrupt(self) -> None:
        """Leave as Ctrl-C does elsewhere."""
        self.exit(INTERRUPTED)

    def action_leave(self) -> None:
        """Leave."""
        self.exit(0)

    def _fatal_error(self) -> None:
        """End; the report is written once the terminal is the user's again."""
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        """Print nothing: there is one place for errors."""
        self._exit_renderables.clear()
        self.failure = self.failure or self._exception

    # Drawing and answers

    def draw(self) -> None:
        """Draw the state as it is."""
        size = self.board.size
        if not size.width or not size.height:
            return
        paper = Paper(size.width, size.height, self.terminal, self.view).sized(size.width, size.height)
        session = self.session
        remark = session.remark
        if self.line.prompt is not None and not remark.text:
            remark = remark._replace(text=self.line.prompt.hint)
        scene = compose(session.state, session.seen, paper, remark, self.line.is_text, session.is_behind)
        if scene.scrolled != session.state.scrolled:
            session.state = replace(session.state, scrolled=scene.scrolled)
        self.board.show(scene)

    def repaint(self) -> None:
        """Write the whole screen anew, as after Ctrl-Z, or where somebody else has written on it."""
        for widget in (self.screen, self.line, self.board):
            widget.refresh()

    def settle(self) -> None:
        """Ask what the state asks, if that is not answered or asked yet, and draw."""
        session = self.session
        if session.is_behind and session.state.question != self._last_asked:
            self._last_asked = session.state.question
            self.asked = self.worker.ask(session.state.question)
            number = self.asked
            self.set_timer(SOON, lambda: self._draw_late(number))
        elif not session.is_behind:
            self.draw()

    def _draw_late(self, number: int) -> None:
        """Show that this answer is awaited, if it still is."""
        if self.session.is_behind and number == self.asked:
            self.draw()

    def on_answered(self, message: Answered) -> None:
        """Take an answer, unless a later question has been asked."""
        answer = message.answer
        if answer.is_bug:
            self.failure = answer.error
            self.exit(70)
        elif answer.number == self.asked:
            self._last_asked = None
            self.session.take(answer)
            self.settle()

    # Keys and clicks

    async def on_event(self, event: events.Event) -> None:
        """Record keys and pastes, and stop a replay at a person's key, before they are obeyed."""
        if (
            isinstance(event, events.Key | events.Paste)
            and not event.is_forwarded
            and self.tape.is_kept(event)
        ):
            return
        await super().on_event(event)

    def feed(self, event: Event) -> None:
        """Do what was recorded."""
        again = self.tape.made(event)
        if isinstance(again, tuple):
            self._click(*again)
        else:
            self.post_message(again)

    def on_key(self, event: events.Key) -> None:
        """Obey a key, where the line is not being typed in."""
        if self.line.has_focus:
            if event.key in ("escape", "tab", "shift+tab"):
                event.prevent_default().stop()
                self._leave_line()
            return
        event.prevent_default().stop()
        action = ACTIONS.get(event.key) or ACTIONS.get(event.character or "")
        if action is not None:
            self.press(action)

    def press(self, action: str) -> None:
        """Do what a key does."""
        session = self.session
        if action == "quit":
            self.exit(0)
            return
        if action == "redraw":
            self.repaint()
            return
        session.remark = Remark()
        if action == "text" and not session.source.has_text:
            session.say("There is no text here: the input is a file.")
        elif prompt := prompt_for(action, session):
            self.line.ask(prompt, session)
        elif action == "text":
            self.line.ask(None, session)
        else:
            session.press(action)
            if action == "command" and session.remark.command:
                self._copy(session.remark.command)
            if action == "undo":
                self.line.rest(session)
        self.settle()

    def on_board_clicked(self, message: Board.Clicked) -> None:
        """Obey a click."""
        hit = message.hit
        if self.line.has_focus:
            self._leave_line()
        self.tape.clicked(hit, message.times)
        self._click(hit, message.times)

    def _click(self, hit: Hit, times: int) -> None:
        if hit.action in ("choose", "slider"):
            self.session.click(hit, times)
            self.settle()
        else:
            self.press(hit.action)

    def _copy(self, command: str) -> None:
        from attn_cli.live.clipboard import copied, osc52

        self.commands = [*(one for one in self.commands if one != command), command]
        if self._driver is not None:
            self._driver.write(osc52(command))
        self.session.remark = self.session.remark._replace(copied=copied())

    # The line

    def _leave_line(self) -> None:
        """Come back to the keys."""
        self.session.stop_typing()
        self.line.rest(self.session)
        self.screen.set_focus(self.board)
        self.settle()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Compute the text as it is typed."""
        if self.line.is_text:
            if event.value != visible(self.session.state.question.text):
                self.session.type_text(event.value)
            self.settle()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take what was typed."""
        prompt = self.line.prompt
        if prompt is None:
            self._leave_line()
            return
        try:
            again = prompt.take(event.value, self.tape.replay.is_on)
        except (AttnError, OSError) as error:
            self.session.say(str(error))
            self.draw()
            return
        if again is not None:
            self.session.say(again)
            self.draw()
            return
        self._leave_line()

    def on_descendant_focus(self) -> None:
        """Say what the keys do now."""
        self.draw()
