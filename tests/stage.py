"""A terminal with a person before it: what attn shows is read from its screen, keys are pressed, its size changes."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable

import pyte

from tests import preloaded
from tests.shell import Env, surroundings

LIMIT = 60.0  # seconds: far more than any answer takes, also on a busy machine


class Stage:
    """A run of attn on a terminal of its own, which is the terminal of its session, too."""

    def __init__(self, *args: str, columns=80, rows=24, env: Env = None, stdin: int | None = None):
        self.terminal, its = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(its)
        streams = (its if stdin is None else stdin, its, its)
        self.run = preloaded.Request(args, surroundings(env), os.getcwd(), own_session=True).start(streams)
        self.its = its  # held, so that what it was set to can be read at the end
        self.shown = b""
        self._draw_anew()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *raised: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.run.pid, signal.SIGKILL)
        with contextlib.suppress(EOFError):  # its code has been asked for
            self.run.wait(LIMIT)
        self.run.close()
        os.close(self.terminal)
        os.close(self.its)

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self.terminal, key.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> bool:
        """Read what is there, or comes in time; return whether it was anything."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        self.shown += os.read(self.terminal, 1 << 16)
        return True

    def screen(self) -> list[str]:
        if (self.drawn.columns, self.drawn.lines) != (self.columns, self.rows):
            self._draw_anew()
        self.stream.feed(self.shown[self.fed :])
        self.fed = len(self.shown)
        return [line.rstrip() for line in self.drawn.display]

    def _draw_anew(self) -> None:
        self.fed, self.drawn = 0, pyte.Screen(self.columns, self.rows)
        self.stream = pyte.ByteStream(self.drawn)

    def wait_for(self, wanted: str | Callable[["Stage"], bool]) -> list[str]:
        """Wait until the screen's last line ends so, or until it is so, and return the screen."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            screen = self.screen()
            if screen[-1].endswith(wanted) if isinstance(wanted, str) else wanted(self):
                return screen
            self.read(0.2)
        raise AssertionError(f"{wanted} was not shown, but:\n" + "\n".join(self.screen()))

    def code(self) -> int:
        """Return the exit code, when attn has ended by itself, and all that it wrote is read."""
        ready: list[int] = [self.terminal]
        while ready and ready != [self.run.status]:
            ready = select.select([self.terminal, self.run.status], [], [], LIMIT)[0]
            if self.terminal in ready:
                self.read(0)
        return self.run.wait(LIMIT)

    def modes(self) -> list[object]:
        """Return how the terminal is set now: echo, whole lines, and all else."""
        return termios.tcgetattr(self.its)

    def count(self) -> int:
        """Return how many parts there are, as the corner says, once it says so."""
        corner = re.compile(r"part \d+ of (\d+)")
        screen = self.wait_for(lambda stage: corner.search(stage.screen()[-1]) is not None)
        return int(corner.findall(screen[-1])[0])
