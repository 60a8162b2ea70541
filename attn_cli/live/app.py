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
from attn_cli.live.panes import Paper
from attn_cli.live.prompt import Prompt, prompt_for
from attn_cli.live.record import Event, Recorder
from attn_cli.live.replay import Replay
from attn_cli.live.scene import Hit, compose
from attn_cli.live.worker import Answer, Worker

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.live.session import Session
    from attn_cli.settings.output import View

INTERRUPTED = 130
SOON = 0.1  # seconds after which an awaited answer shows as awaited


class TextLine(Input):
    """The line that is typed in; nothing that is typed or pasted into it is obeyed by the terminal."""

    def validate_value(self, value: str) -> str:
        """Spell out what a terminal would obey or hide."""
        return visible(value)


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
        self.recorder, self.replay = recorder, replay or Replay()
        self.board = Board()
        self.line = TextLine(select_on_focus=False)
        self.prompt: Prompt | None = None  # what the line asks for, if not for the text
        self.worker = Worker(session.source.compute, lambda answer: self.post_message(Answered(answer)))
        self.asked = 0
        self.failure: BaseException | None = None
        self.fed: set[int] = set()  # events that the replay has made, and that are on their way
        self.commands: list[str] = []  # that were asked for

    # Life

    def compose(self) -> ComposeResult:
        """Return the text line and the board."""
        yield self.line
        yield self.board

    def on_mount(self) -> None:
        """Start to compute."""
        self.line.cursor_blink = False
        self.line.value = self._line()
        self.board.focus()
        self.worker.start()
        self.app_resume_signal.subscribe(self, lambda _: self.repaint())
        if self.session.source.has_text and self.session.state.question.text != self.line.value:
            self.session.say("What a terminal would obey or hide is spelled out in the line.")
        if self.replay.is_on:
            self.run_worker(self.replay.run(self.feed, lambda: self.session.is_behind), exclusive=False)

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
        is_typing = self.line.has_focus and self.prompt is None
        remark = session.remark
        if self.prompt is not None and not remark.text:
            remark = remark._replace(text=self.prompt.hint)
        scene = compose(session.state, session.seen, paper, remark, is_typing, session.is_behind)
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

    _last_asked: object = None

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
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            if id(event) in self.fed:
                self.fed.discard(id(event))
            elif self.replay.is_on and isinstance(event, events.Key):
                if self.replay.pressed(event.key):
                    return
                self.session.say("The replay has stopped; the keys are yours.")
            if self.recorder is not None:
                self._record(event)
        await super().on_event(event)

    def feed(self, event: Event) -> None:
        """Do what was recorded."""
        if event.kind == "do":
            self._click(Hit(event.value, tuple(map(int, event.numbers))), int(event.character or 1))
            return
        is_key = event.kind == "key"
        sent = events.Key(event.value, event.character) if is_key else events.Paste(event.value)
        self.fed.add(id(sent))
        self.post_message(sent)

    def _record(self, event: events.Key | events.Paste) -> None:
        if isinstance(event, events.Key):
            self._add("key", event.key, event.character)
        else:
            self._add("paste", event.text)

    def _add(
        self, kind: str, value: str, character: str | None = None, numbers: tuple[int, ...] = ()
    ) -> None:
        """Record an event; a full disk ends the recording, not the lecture."""
        if self.recorder is None:
            return
        try:
            self.recorder.add(kind, value, character, tuple(map(float, numbers)))
        except OSError as error:
            self.recorder = None
            self.session.say(f"The recording has ended: {error.strerror or error}.")

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
        if action == "text" and not session.source.has_text:
            session.say("There is no text here: the input is a file.")
        elif prompt := prompt_for(action, session):
            self._open_line(prompt)
        elif action == "text":
            self._open_line(None)
        else:
            session.press(action)
            if action == "command" and session.remark.command:
                self._copy(session.remark.command)
            if action == "undo":
                self.line.value = self._line()
        self.settle()

    def on_board_clicked(self, message: Board.Clicked) -> None:
        """Obey a click."""
        hit = message.hit
        if self.line.has_focus:
            self._leave_line()
        if self.recorder is not None:
            self._add("do", hit.action, str(message.times), hit.numbers)
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

    def _open_line(self, prompt: Prompt | None) -> None:
        self.prompt = prompt
        self.line.value = visible(prompt.start if prompt else self.session.state.question.text)
        self.line.cursor_position = len(self.line.value)
        self.line.focus()

    def _line(self) -> str:
        """Return what stands in the line while nothing is typed: the text, or the name of the file."""
        source = self.session.source
        return visible(self.session.state.question.text if source.has_text else source.start[-1])

    def _leave_line(self) -> None:
        """Come back to the keys."""
        self.prompt = None
        self.session.stop_typing()
        self.line.value = self._line()
        self.board.focus()
        self.settle()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Compute the text as it is typed."""
        if self.line.has_focus and self.prompt is None:
            if event.value != visible(self.session.state.question.text):
                self.session.type_text(event.value)
            self.settle()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take what was typed."""
        if self.prompt is None:
            self._leave_line()
            return
        prompt = self.prompt
        try:
            again = prompt.take(event.value, self.replay.is_on)
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
