"""--pause: a screen in front of an audience, one part at a time, forward and back at a key."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial

from attn_cli.errors import UsageError
from attn_cli.io import console, raw_terminal, signals
from attn_cli.render import Block
from attn_cli.render.formats import render_blocks
from attn_cli.render.screen.draw import parts_of, screenfuls
from attn_cli.settings import View

Blocks = Callable[[View], Iterable[Block]]  # of a screen, for a view that knows its width

FORWARD = (" ", "enter", "right", "n", "pagedown")
BACK = ("left", "b", "p", "pageup", "backspace")
FIRST, LAST = ("g", "home"), ("G", "end")
STOP = ("q", "Q", "escape", "\x1b", "gone")
WAIT = 1.0  # seconds after which a number without Enter is taken as it stands
HINT = "space: on   b: back   ?: all keys   q: quit"
THE_END = "End. Press again to quit."
PROMPT = "-- any key continues, q quits --"
KEYS = """\
space Enter right n PgDn    on: a screenful, or a part
left b p PgUp Backspace     back
down up                     the same within a tall part
3                           part 3 (of ten or more: 3 Enter)
g Home   G End              the first part, the last part
q Esc                       quit: what was shown stays
Ctrl-Z                      to the shell; fg comes back

Any key goes back to the part.
"""


def present(blocks: Blocks, view: View) -> None:
    """Show a screen part by part, at the keys of who presents it.

    Where no person watches (standard output is not a terminal, or there is no keyboard), all is printed at once. On a
    terminal that can clear nothing, one part follows the other.
    """
    if view.format != "table" or not view.to_standard_output:
        option = "--format" if view.to_standard_output else "--pause"
        raise UsageError("--pause works on the screen only.", "Leave out -f and -o.", option)
    if console.is_terminal(sys.stdout) and os.name == "posix":
        if os.environ.get("TERM", "") in ("", "dumb"):
            _scroll(blocks, view)
            return
        with contextlib.suppress(raw_terminal.NoKeyboard):
            with raw_terminal.RawTerminal(second_screen=True) as screen:
                presenter = Presenter(blocks, view, screen)
                presenter.run()
            console.put_plain(presenter.shown())
            return
    console.say("attn: --pause waits only on a terminal, and not on Windows.")
    view = view.with_width()
    console.put_plain(render_blocks(blocks(view), view, view.terminal()))


class Presenter:
    """A screen on a terminal: its parts, which one is shown, which screenful of it, and what the keys do."""

    def __init__(self, blocks: Blocks, view: View, screen: raw_terminal.RawTerminal) -> None:
        self.blocks, self.view, self.screen = blocks, view, screen
        self.part, self.at = 0, 0  # and the screenful of the part
        self.typed = ""  # digits of a part's number that may go on
        self.jumped = False  # whether the last key was a digit that needed no Enter
        self.remark = HINT
        self.is_over = False  # whether another key forward leaves
        self.seen: set[int] = set()
        self._lay_out()

    def run(self) -> None:
        """Draw, and obey keys until one of them leaves."""
        while True:
            self._draw()
            key = self.screen.key(WAIT if self.typed else None)
            if key == "redraw":
                self._lay_out()
                continue
            self.remark = ""
            if key == "?":
                self.screen.draw(KEYS, "")
                while self.screen.key() == "redraw":
                    self._lay_out()
                    self.screen.draw(KEYS, "")
            elif not self._takes_number(key) and (key in STOP or not self._move(str(key))):
                return

    def shown(self) -> str:
        """Return every part that was shown, once, in the order of the screen."""
        view, terminal = self.view.with_width(), self.view.terminal()
        return "".join(render_blocks(self.parts[number], view, terminal) for number in sorted(self.seen))

    def _lay_out(self) -> None:
        """Make the parts for the size that the terminal has now, and stay at about the same place."""
        self.parts = list(parts_of(self.blocks(self.view.with_width()))) or [[]]
        at, before = self.at, len(getattr(self, "screenfuls", "1"))
        self._open(min(self.part, len(self.parts) - 1))
        self.at = at * len(self.screenfuls) // before

    def _open(self, part: int, at_its_end: bool = False) -> None:
        columns, rows = self.screen.size()
        view, terminal = self.view.with_width(), self.view.terminal()
        self.part = part
        self.screenfuls = screenfuls(self.parts[part], view, terminal, columns, max(1, rows - 1))
        self.at = len(self.screenfuls) - 1 if at_its_end else 0

    def _draw(self) -> None:
        self.seen.add(self.part)
        corner = f"part {self.part + 1} of {len(self.parts)}"
        if len(self.screenfuls) > 1:
            corner += f", {self.at + 1}/{len(self.screenfuls)}"
        room = self.screen.size().columns - 1
        left = f"part: {self.typed}" if self.typed else self.remark
        if len(left) + 2 + len(corner) > room:
            left = ""
        self.screen.draw(self.screenfuls[self.at], left + f"{corner:>{room - len(left)}}"[:room])

    def _move(self, key: str) -> bool:
        """Go where a key leads, if it leads anywhere; return False to leave."""
        ends, self.is_over = self.is_over, False
        if key in (*FORWARD, "down") and self.at + 1 < len(self.screenfuls):
            self.at += 1
        elif key in (*BACK, "up") and self.at:
            self.at -= 1
        elif key in FORWARD and self.part + 1 < len(self.parts):
            self._open(self.part + 1)
        elif key in FORWARD:
            self.is_over, self.remark = True, THE_END
            return not ends
        elif key in BACK and self.part:
            self._open(self.part - 1, at_its_end=True)
        elif key in FIRST:
            self._open(0)
        elif key in LAST:
            self._open(len(self.parts) - 1)
        return True

    def _takes_number(self, key: str | None) -> bool:
        """Obey a digit, or what ends or drops a number, and tell whether it was one; 7 of 9 parts needs no Enter."""
        jumped, self.jumped = self.jumped, False
        if jumped and key == "enter":  # who types it after any number does not go on by it
            return True
        if key is not None and key.isascii() and key.isdigit():
            self.typed = (self.typed + key).lstrip("0")
            if int(self.typed or "0") * 10 <= len(self.parts):
                return True
        elif not self.typed or key not in (None, "enter"):
            had, self.typed = self.typed, self.typed[:-1] if key == "backspace" else ""
            return bool(had) and key in ("backspace", "escape")
        self.jumped = key not in (None, "enter")
        number, self.typed = int(self.typed), ""
        if number <= len(self.parts):
            self._open(number - 1)
        else:
            self.remark = f"There are {len(self.parts)} parts."
        return True


def _scroll(blocks: Blocks, view: View) -> None:
    view, terminal = view.with_width(), view.terminal()
    is_watched = True
    for number, part in enumerate(parts_of(blocks(view))):
        if number and is_watched:
            key = _prompted()
            if key in STOP:
                return
            is_watched = key is not None
        console.put_plain(render_blocks(part, view, terminal))


def _prompted() -> str | None:
    """Ask for a key on standard error and return it; None where there is no keyboard."""

    def put(text: str) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(text)
            sys.stderr.flush()

    clear = partial(put, "\r" + " " * len(PROMPT) + "\r")
    put(PROMPT)
    with signals.cleaned_up(clear):
        try:
            while (key := _pressed()) == "redraw":  # it was stopped, and goes on
                put(f"\r{PROMPT}")
            return key
        finally:
            clear()


def _pressed() -> str | None:
    with contextlib.suppress(raw_terminal.NoKeyboard), raw_terminal.RawTerminal() as keyboard:
        return keyboard.key()
    return None
