"""The screen that attn live is a guest on: checked, taken, drawn on through one gate, given back on every way out."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from attn_cli.errors import INTERRUPTED
from attn_cli.io import console, signals
from attn_cli.io.terminal import terminal_of
from attn_cli.live.app import LiveApp
from attn_cli.live.recording import Recorder, Replay
from attn_cli.live.session import Session

PATIENCE = 0.5  # seconds that a signal waits for a write to end, and between two looks at the terminal
# Mouse, paste, focus and keyboard reports off, line wrap on, the first screen, the cursor.
GIVE_BACK = (
    "".join(f"\x1b[?{mode}l" for mode in (1000, 1002, 1003, 1015, 1006, 1016, 2004, 2048, 1004, 2026))
    + "\x1b[?7h\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h"
)


class Gate:
    """Where the screen is written: standard output's descriptor, until the gate is shut."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self.descriptor = descriptor
        self.encoding = encoding
        self.is_shut = False
        self._writing = threading.Lock()

    def write(self, text: str) -> int:
        """Write text, or nothing once the gate is shut or the terminal has gone."""
        data = text.encode(self.encoding, "replace")
        with self._writing, contextlib.suppress(OSError):
            while data and not self.is_shut:
                data = data[os.write(self.descriptor, data) :]
        return len(text)

    def flush(self) -> None:
        return

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def shut(self, last: str) -> None:
        """Write a last text, and let nothing follow it."""
        self.is_shut = True
        is_free = self._writing.acquire(timeout=PATIENCE)
        try:
            with contextlib.suppress(OSError):
                os.write(self.descriptor, last.encode("ascii"))
        finally:
            if is_free:
                self._writing.release()


class Guest:
    """The terminal as it was found, and the gate through which it is drawn on."""

    def __init__(self, encoding: str) -> None:
        self.gate = Gate(sys.__stdout__.fileno() if sys.__stdout__ else 1, encoding)
        self.keyboard = sys.__stdin__.fileno() if sys.__stdin__ else 0
        self.modes: list[Any] = termios.tcgetattr(self.keyboard)
        self.has_screen = False

    @contextlib.contextmanager
    def visiting(self) -> Iterator[None]:
        """Give the terminal back at the end of the block, and at any signal that ends the process in it."""
        with signals.handled(self._quit, signal.SIGQUIT), signals.cleaned_up(self.give_back):
            try:
                yield
            finally:
                self.give_back()

    def give_back(self) -> None:
        """Set the terminal as it was found; its first screen is shown if it is not yet."""
        if self.has_screen:
            self.gate.shut(GIVE_BACK)
            self.has_screen = False
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self.keyboard) == os.getpgrp():  # in the background the modes are somebody else's
                termios.tcsetattr(self.keyboard, termios.TCSAFLUSH, self.modes)

    def _quit(self, number: int, frame: object) -> None:
        self.give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class GuestDriver(LinuxDriver):
    """Textual's driver, drawing through the gate; it ends as at SIGHUP when the terminal goes without one."""

    def __init__(self, guest: Guest, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.guest = guest
        self._file: Any = guest.gate

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size that the terminal has now, whatever COLUMNS says."""
        try:
            size = os.get_terminal_size(self.guest.gate.descriptor)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def start_application_mode(self) -> None:
        self.guest.has_screen = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        super().close()
        self.guest.has_screen = False

    def run_input_thread(self) -> None:
        """Read keys; where the terminal has gone, end the process."""
        threading.Thread(target=self._watch, name="attn-terminal", daemon=True).start()
        with contextlib.suppress(OSError):
            super().run_input_thread()
        if not self.exit_event.is_set():
            self._end()

    def _watch(self) -> None:
        """Wait for the terminal to go: Textual's thread takes its end for a pause, and reads it without end."""
        hung_up = select.poll()
        hung_up.register(self.fileno, 0)  # no event but that it has gone
        while not self.exit_event.is_set():
            for _, event in hung_up.poll(1000 * PATIENCE):
                if event != select.POLLNVAL:  # macOS does not watch terminals: there SIGHUP has to tell
                    self._end()
                return

    def _end(self) -> None:
        is_heard = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGHUP if is_heard else signal.SIGTERM)

    def _sigtstp_application(self, *_: Any) -> None:
        """Stop between two callbacks: a handler that writes may wait for a lock that the code below it holds."""
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_: Any) -> None:
        """Take the terminal again between two callbacks; a vanishing terminal sends this signal, too."""
        self._loop.call_soon_threadsafe(self._take_again)

    def _take_again(self) -> None:
        """Take the terminal again, also after a stop that gave no time to give it back."""
        if self._auto_restart:
            if self.guest.has_screen:
                self.suspend_application_mode()
                self._must_signal_resume = True
            self.resume_application_mode()


def run(session: Session, record: str | None, replay: Replay) -> None:
    """Show the screen until somebody leaves; afterwards print the commands that were asked for.

    Raises the error of a bug, and KeyboardInterrupt at Ctrl-C, once the terminal is as it was.
    """
    terminal = terminal_of(False, session.view.color, session.view.width)
    # The encoding is that of the locale: Python itself takes UTF-8 for granted in C.
    named = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    if "utf8" not in named.lower().replace("-", ""):
        terminal = terminal._replace(encoding="ascii")
    if not terminal.unicode:
        session.said = "This locale is not UTF-8, so shades are digits. LC_ALL=C.UTF-8 has blocks."
    guest = Guest("utf-8" if terminal.unicode else "ascii")
    text = session.state.question.text if session.source.has_text else None
    recorder = Recorder(record, text) if record is not None else None
    with recorder.stream if recorder is not None else contextlib.nullcontext(), guest.visiting():
        app = LiveApp(session, terminal, recorder, replay)
        driver: Any = partial(GuestDriver, guest)
        app.driver_class = driver
        code = app.run()
    if app.failure is not None:
        raise app.failure
    if session.commands:
        console.put_plain("".join(f"{command}\n" for command in session.commands))
    if code == INTERRUPTED:
        raise KeyboardInterrupt
