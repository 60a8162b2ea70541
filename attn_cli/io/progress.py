"""What long work reports while it runs, and the bar on standard error that shows it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import NamedTuple

BAR = 30  # cells of a progress bar
INTERVAL = 0.1  # seconds between two lines that show a rate


class Stage(NamedTuple):
    """Where work stands: the phase's name, the part of it done (0 to 1), words so far, seconds so far, a note."""

    phase: str
    done: float
    words: int
    seconds: float
    note: str = ""


OnPart = Callable[[float], None]  # gets the part that is done, 0 to 1
StageReport = Callable[[Stage], None]


def part_of(report: OnPart | None, done: int, parts: int) -> OnPart | None:
    """Return a report for one of several equal parts of some work, when `done` of them are complete."""
    return None if report is None else lambda part: report((done + part) / parts)


class Progress:
    """A bar on standard error that says how much is done; silent where it is not a terminal."""

    def __init__(self, label: str, is_seen: bool = True) -> None:
        self.label = label
        self.watched = is_seen and sys.stderr is not None and sys.stderr.isatty()
        self.line = ""
        self.said = -1
        self.began = monotonic()
        self.shown_at = -INTERVAL
        self.at_a_signal = ExitStack()

    def __enter__(self) -> Progress:
        if self.watched:
            from attn_cli.io.signals import cleaned_up

            self.at_a_signal.enter_context(cleaned_up(self._clear))
        return self

    def __exit__(self, *error: object) -> None:
        self._clear()  # whatever happened
        self.at_a_signal.close()

    def _clear(self) -> None:
        if self.line:
            self._show("")

    def __call__(self, done: float) -> None:
        """Show the part that is done, 0 to 1."""
        percent = int(100 * done)
        if self.watched and percent != self.said:
            self.said = percent
            self._show(f"{self.label} {self._bar(done)} {percent:3d} %" if percent < 100 else "")

    def rate(self, done: int, what: str, share: float | None) -> None:
        """Show how many are done, how many a second and, where the share that is done is known, the time left."""
        now = monotonic()
        if not self.watched or now - self.shown_at < INTERVAL:
            return
        self.shown_at = now
        seconds = max(now - self.began, 1e-9)
        speed = f"{done:,} {what}, {done / seconds:,.0f} a second"
        if share is None:
            self._show(f"{self.label} {speed}")
        else:
            left = clock(seconds * (1 - share) / share) if share else "?"
            self._show(f"{self.label} {self._bar(share)} {int(100 * share):3d} %  {speed}, {left} left")

    def _show(self, line: str) -> None:
        width, self.line = len(self.line), line or self.line
        try:
            sys.stderr.write(f"\r{line:{width}}" + ("\r" if not line else ""))
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal has gone: the work goes on
            self.watched = False
        self.line = line  # until here a signal finds the line that it has to clear

    def _bar(self, done: float) -> str:
        full, empty = "━ " if "utf" in (sys.stderr.encoding or "").lower() else "=."
        cells = int(BAR * min(1.0, done))
        return full * cells + empty * (BAR - cells)


def clock(seconds: float) -> str:
    """Return a time as a clock shows it.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
