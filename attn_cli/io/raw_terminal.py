"""A terminal that is taken over for a while, keys at once and unseen, and given back whatever happens."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import sys
import termios
from types import FrameType
from typing import Any

from attn_cli.io import console, signals

ESCAPE_WAIT = 0.05  # seconds in which the rest of a key follows its first byte, over a slow line too
REDRAW, GONE = "redraw", "gone"  # what key() returns besides keys
CLEAR = "\x1b[2J\x1b[H"
SECOND_SCREEN = b"\x1b[?1049h\x1b[?25l"  # without a cursor
FIRST_SCREEN = b"\x1b[0m\x1b[?25h\x1b[?1049l"
_FALLBACK = os.terminal_size((80, 24))
_ENDS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGQUIT


class NoKeyboard(Exception):
    """There is no terminal to read keys from."""


class RawTerminal:
    """The terminal of this process, taken over inside a `with` block; raises NoKeyboard where there is none.

    With `second_screen`, the terminal's second screen is shown, and the first one comes back unchanged.
    """

    def __init__(self, second_screen: bool = False) -> None:
        self.second_screen = second_screen
        self.waiting: list[str] = []  # keys that were read and not yet asked for
        self.taken = False
        self.undo = contextlib.ExitStack()
        # Past the stream, which a signal may have interrupted.
        self.screen = console.CheckedStream(sys.stdout.fileno(), "wb", closefd=False)
        try:
            self.keyboard = os.open("/dev/tty", os.O_RDONLY)  # standard input may be the text
        except OSError:
            raise NoKeyboard from None
        self.undo.callback(os.close, self.keyboard)
        try:
            self.before = termios.tcgetattr(self.keyboard)
        except termios.error:
            self.undo.close()
            raise NoKeyboard from None
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        self.undo.callback(os.close, self.woken)
        self.undo.callback(os.close, self.wake)

    def __enter__(self) -> RawTerminal:
        self.undo.enter_context(signals.cleaned_up(self._give_back))
        self.undo.callback(self._give_back)
        # A signal that comes just before the wait for a key would else be acted upon after that key only.
        before = signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        self.undo.callback(signal.set_wakeup_fd, before)
        acts = {signal.SIGTSTP: self._stop, signal.SIGCONT: self._go_on, signal.SIGQUIT: self._quit}
        for number, act in {**acts, signal.SIGWINCH: self._call_for_drawing}.items():
            self.undo.enter_context(signals.handled(act, number))
        try:
            self._take()
        except (OSError, termios.error):  # it has just gone
            self.undo.close()
            raise NoKeyboard from None
        return self

    def __exit__(self, *error: object) -> None:
        self.undo.close()

    def key(self, seconds: float | None = None) -> str | None:
        """Return the next key; None if none comes in time; REDRAW where all must be drawn anew; GONE at the end."""
        if not self.waiting:
            self._read(seconds)
        return self.waiting.pop(0) if self.waiting else None

    def _read(self, seconds: float | None) -> None:
        ready = select.select([self.keyboard, self.woken], [], [], seconds)[0]
        if self.woken in ready:
            os.read(self.woken, 4096)
            self.waiting.append(REDRAW)
        elif self.keyboard in ready:
            data = more = self._bytes()
            while more and is_unfinished(data) and select.select([self.keyboard], [], [], ESCAPE_WAIT)[0]:
                more = self._bytes()
                data += more
            self.waiting += names_of(data) or [GONE]

    def _bytes(self) -> bytes:
        try:
            return os.read(self.keyboard, 1024)
        except OSError:  # the terminal has been closed
            return b""

    def size(self) -> os.terminal_size:
        """Return how many columns and lines the screen has now."""
        try:
            size = os.get_terminal_size(self.screen.fileno())
        except OSError:
            return _FALLBACK
        return os.terminal_size((size.columns or _FALLBACK.columns, size.lines or _FALLBACK.lines))

    def draw(self, text: str, last_line: str) -> None:
        """Show a text on a cleared screen, and a line at its bottom."""
        lines = text.removesuffix("\n").replace("\n", "\r\n")
        console.put_plain(f"{CLEAR}{lines}\x1b[{self.size().lines};1H{last_line}")

    def _take(self) -> None:
        self.taken = True
        modes = termios.tcgetattr(self.keyboard)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6] = list(self.before[6])
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        # Ctrl-\ dumps core.
        modes[6][termios.VQUIT] = bytes([os.fpathconf(self.keyboard, "PC_VDISABLE") & 0xFF])
        self._set(modes)
        if self.second_screen:
            self.screen.write(SECOND_SCREEN)

    def _give_back(self) -> None:
        # One that came just after the last step would give it back a second time.
        with signals.put_off(*_ENDS):
            if not self.taken:
                return
            with contextlib.suppress(OSError, termios.error):
                if os.tcgetpgrp(self.keyboard) == os.getpgrp():  # else the modes are somebody else's
                    self._set(self.before)
            with contextlib.suppress(OSError):
                if self.second_screen:
                    self.screen.write(FIRST_SCREEN)
            self.taken = False

    def _set(self, modes: list[Any]) -> None:
        while True:
            try:
                termios.tcsetattr(self.keyboard, termios.TCSANOW, modes)
            except termios.error as error:
                if error.args[0] != errno.EINTR:  # it was stopped, in the background, and goes on
                    raise
            else:
                return

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Give the terminal back, stop as Ctrl-Z wants it, and take the terminal again when it goes on."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._go_on(number, frame)  # SIGCONT does so too, and is not sent where nothing can be stopped

    def _quit(self, number: int, frame: FrameType | None) -> None:
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _go_on(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError, termios.error):  # it has gone: the next key is GONE
            self._take()
        self._call_for_drawing(number, frame)

    def _call_for_drawing(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been called for already, often
            os.write(self.wake, b"!")


# A key is one character, or Esc and what follows it; two Escs where Alt is held down.
_KEY = re.compile("\x1b{1,2}(?:\\[\\[?[0-?]*[ -/]*[@-~]?|O.?)|\x1b[^\x1b[O]|.", re.DOTALL)
_UNFINISHED = re.compile("\x1b(\\[\\[?[0-?]*[ -/]*|O)?$")
_MODIFIER = re.compile("1?;[0-9]+(?=.$)")  # Shift, Alt or Control, held down with a named key
_NAMES = {"\x0c": "redraw", "\x1b": "escape"}
_NAMES |= dict.fromkeys("\r\n", "enter") | dict.fromkeys("\x7f\b", "backspace")
_NAMES |= {"\x1b[5~": "pageup", "\x1b[6~": "pagedown"}
_NAMES |= {f"\x1b[{code}~": "home" for code in (1, 7)} | {f"\x1b[{code}~": "end" for code in (4, 8)}
for _letter, _name in zip("ABCDHF", ("up", "down", "right", "left", "home", "end"), strict=True):
    _NAMES |= {f"\x1b[{_letter}": _name, f"\x1bO{_letter}": _name}


def names_of(data: bytes) -> list[str]:
    r"""Return the names of the keys that sent these bytes; a character is its own name, an unknown key its bytes.

    >>> names_of(b"n 12")
    ['n', ' ', '1', '2']
    >>> names_of(b"q\r\x1b[6~\x1b[1;5C\x1b")
    ['q', 'enter', 'pagedown', 'right', 'escape']
    """
    keys = _KEY.findall(data.decode("utf-8", "replace"))
    return [_NAMES.get(_MODIFIER.sub("", key.replace("\x1b\x1b", "\x1b")), key) for key in keys]


def is_unfinished(data: bytes) -> bool:
    r"""Tell whether the bytes end inside a key that sends several, or with an Esc, which may begin one.

    >>> is_unfinished(b"\x1b"), is_unfinished(b"\x1b[6"), is_unfinished(b"q")
    (True, True, False)
    """
    return _UNFINISHED.search(data.decode("utf-8", "replace")) is not None
