"""The program on the screen: Textual's loop, its board and its text line, and answers computed beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from attn_cli.errors import BUG, INTERRUPTED, AttnError, visible
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import replace
from attn_cli.live import keys, panes, sources, text_line
from attn_cli.live.recording import Event, Recorder, Replay
from attn_cli.live.scene import Hit, Scene, compose
from attn_cli.live.session import Session, command_line, osc52

MENDED = (AttnError, MemoryError, RecursionError)  # errors that a user can mend; all others are bugs
NONE = Replay()
SOON = 0.1  # seconds after which an awaited answer shows as awaited


class Board(Widget, can_focus=True):
    """Shows a scene line by line; only lines that changed are written to the terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.KEYS]
    app: LiveApp

    def __init__(self) -> None:
        super().__init__(id="board")
        self.scene: Scene | None = None
        self.strips: list[Strip] = []

    def show(self, scene: Scene) -> None:
        self.scene, width = scene, self.size.width
        strips = [Strip(line, width) for line in scene.lines]
        for y in range(max(len(strips), len(self.strips))):
            if self.strips[y : y + 1] != strips[y : y + 1]:
                self.refresh(Region(0, y, width, 1))
        self.strips = strips

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self.strips[y].adjust_cell_length(width) if y < len(self.strips) else Strip.blank(width)

    def on_resize(self) -> None:
        self.strips = []
        self.app.draw()

    def hit(self, x: int, y: int | None = None) -> Hit:
        """Return what a click at a place does; without y, in the status line."""
        scene = self.scene
        return (scene and scene.hit(x, min(scene.bars) if y is None else y)) or Hit("")

    def on_click(self, event: events.Click) -> None:
        hit = self.hit(event.x, event.y)
        if hit.action not in ("", "slider"):
            self.app.click(hit)
        if hit.action == "choose" and event.chain > 1:
            self.app.click(Hit("open"))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self.hit(event.x, event.y).action == "slider":
            self.capture_mouse()
            self.on_mouse_move(event)

    def on_mouse_move(self, event: events.MouseEvent) -> None:
        hit = self.hit(event.x)
        if self.app.mouse_captured is self and hit.action == "slider":
            self.app.click(hit)

    def on_mouse_up(self) -> None:
        self.release_mouse()

    def on_mouse_scroll_down(self) -> None:
        self.app.click(Hit("down"))

    def on_mouse_scroll_up(self) -> None:
        self.app.click(Hit("up"))


class LiveApp(App[int]):
    """attn live. It ends with an exit code as its return value; `failure` is the bug that ended it, if one did."""

    CSS_PATH = "live.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", f"exit({INTERRUPTED})", priority=True),
        Binding("ctrl+q", "press('quit')", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(
        self, session: Session, terminal: Terminal, recorder: Recorder | None = None, replay: Replay = NONE
    ) -> None:
        super().__init__(ansi_color=True)
        self.session, self.terminal, self.recorder, self.replay = session, terminal, recorder, replay
        self.board, self.line = Board(), text_line.TextLine(session)
        self.is_computing = False
        self.news = ""  # said after a key or a click, until the next one
        self.failure: BaseException | None = None

    def compose(self) -> ComposeResult:
        yield self.line
        yield self.board

    def on_mount(self) -> None:
        """Give the keys to the board, or to a replay."""
        self.line.cursor_blink = False
        self.line.rest()
        self.board.focus()
        self.app_resume_signal.subscribe(self, lambda _: self.repaint())
        if self.session.source.has_text and self.session.state.question.text != self.line.value:
            self.session.said = "What a terminal would obey or hide is spelled out in the line."
        if self.replay.is_on:
            self.run_worker(self.replay.run(self._do, lambda: self.is_calm))

    def action_exit(self, code: int) -> None:
        self.exit(code)

    def _fatal_error(self) -> None:
        """End; the report is written once the terminal is the user's again."""
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        """Print nothing: there is one place for errors."""
        self._exit_renderables.clear()
        self.failure = self.failure or self._exception

    @property
    def is_calm(self) -> bool:
        """Whether all that was pressed has been obeyed and answered."""
        nodes = (self, self.screen, self.board, self.line)
        return not self.session.is_behind and not any(node.message_queue_size for node in nodes)

    def draw(self) -> None:
        session, (width, height) = self.session, self.board.size
        if width and height:
            said = session.said or self.news or (self.line.prompt.hint if self.focused is self.line else "")
            paper = panes.Paper(width, height, self.terminal, session.view).sized(width, height)
            scene = compose(session.state, session.seen, paper, said, session.is_behind)
            session.state = replace(session.state, scrolled=scene.scrolled)
            self.board.show(scene)

    def repaint(self) -> None:
        """Write the whole screen anew, as after Ctrl-Z, or where somebody else has written on it."""
        for widget in (self.screen, self.line, self.board):
            widget.refresh()

    def settle(self) -> None:
        """Draw, once what the state asks is answered."""
        if not self.session.is_behind:
            self.draw()
        elif not self.is_computing:
            self.is_computing = True
            self.run_worker(self._answer())

    async def _answer(self) -> None:
        """Answer one question after the other, the latest always next; what is no longer asked for is dropped."""
        session = self.session
        while session.is_behind and self.failure is None:
            question = session.state.question
            late = self.set_timer(SOON, self.draw)
            answer = await sources.computed(session.source, question)
            late.stop()
            if isinstance(answer, BaseException) and not isinstance(answer, MENDED):
                self.failure = answer
                self.exit(BUG)
            elif question == session.state.question:
                session.take(question, answer)
        self.is_computing = False
        self.draw()

    async def on_event(self, event: events.Event) -> None:
        """Stop a replay at a person's key, and record keys and pastes, before they are obeyed."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            news = ""
            if self.replay.is_on and isinstance(event, events.Key):
                if self.replay.interrupted(event.key):
                    return
                news = "The replay has stopped; the keys are yours."
            self._record(event, news)
        await super().on_event(event)

    async def _do(self, event: Event) -> None:
        if event.kind == "do":
            self.click(Hit(event.value, event.numbers))
            return
        again = events.Key(event.value, event.character) if event.kind == "key" else events.Paste(event.value)
        self._record(again)
        await super().on_event(again)

    def _record(self, what: events.Key | events.Paste | Hit, news: str = "") -> None:
        """Record what is done, and keep the news to be said with what comes of it."""
        self.news = news
        if self.recorder is None:
            return
        try:
            if isinstance(what, Hit):
                self.recorder.write("do", what.action, numbers=what.numbers)
            elif isinstance(what, events.Key):
                self.recorder.write("key", what.key, character=what.character)
            else:
                self.recorder.write("paste", what.text)
        except OSError as error:  # a full disk ends the recording, not the lecture
            self.recorder = None
            self.news = f"The recording has ended: {error.strerror or error}."

    def click(self, hit: Hit) -> None:
        self._record(hit)
        self.action_press(hit.action, hit.numbers)

    def action_press(self, action: str, numbers: Sequence[int] = ()) -> None:
        """Do what a key or a click does."""
        session = self.session
        if action == "quit":
            self.exit(0)
        elif action == "redraw":
            self.repaint()
        elif prompt := text_line.prompt_for(action, session):
            session.said = ""
            self.line.ask(prompt)
        elif action == "text":
            session.said = "There is no text here: the input is a file."
        else:
            session.press(action, *numbers)
            if action == "command" and session.state.pane == keys.COMMAND:
                command = command_line(session.state, session.seen)
                session.commands = [*(one for one in session.commands if one != command), command]
                if self._driver is not None:
                    self._driver.write(osc52(command))
            if action in ("undo", "write_on"):
                self.line.rest()
        self.settle()

    def action_leave_line(self) -> None:
        self.screen.set_focus(self.board)
        self.settle()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Compute the text as it is typed."""
        if self.focused is self.line and self.line.prompt.take is None:
            if event.value != visible(self.session.state.question.text):
                self.session.type_text(event.value)
            self.settle()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        take = self.line.prompt.take
        try:
            again = take(event.value, self.replay.is_on) if take else ""
        except (AttnError, OSError) as error:
            again = str(error)
        if again:
            self.session.said = again
            self.draw()
        else:
            self.action_leave_line()

    def on_descendant_focus(self) -> None:
        """Say what the keys do now; on the board, after Esc or a click, no text is being typed any more."""
        if self.focused is self.board:
            self.session.is_typing = False
            self.line.rest()
        self.draw()
