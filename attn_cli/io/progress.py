"""The bar on standard error that shows how far long work is."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import monotonic
from typing import Self

from attn_cli.io.console import say
from attn_cli.io.types import Stage

BAR = 30  # cells of a progress bar
INTERVAL = 0.1  # seconds between two lines that show a rate
LONG = 20.0  # seconds of the whole from which on a bar says how many are left
SELDOM = 5.0  # seconds between two lines about training, at least


class Bar:
    """A line on standard error that is drawn anew; silent where that is not a terminal."""

    def __init__(self, label: str = "", is_seen: bool = True) -> None:
        self.label, self.line = label, ""
        self.watched = is_seen and sys.stderr is not None and sys.stderr.isatty()
        self.at_a_signal = ExitStack()

    def __enter__(self) -> Self:
        if self.watched:
            from attn_cli.io.signals import cleaned_up

            self.at_a_signal.enter_context(cleaned_up(self.clear))
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()  # whatever happened
        self.at_a_signal.close()

    def clear(self) -> None:
        """Take the bar away, until there is more to show."""
        if self.line:
            self.show("")

    def show(self, line: str) -> None:
        """Show a line in the place of the last one."""
        width, self.line = len(self.line), line or self.line
        try:
            sys.stderr.write(f"\r{line:{width}}" + ("\r" if not line else ""))
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal has gone: the work goes on
            self.watched = False
        self.line = line  # until here a signal finds the line that it has to clear

    def bar(self, done: float) -> str:
        """Return the bar for the part that is done."""
        full, empty = "━ " if "utf" in (sys.stderr.encoding or "").lower() else "=."
        cells = int(BAR * min(1.0, done))
        return full * cells + empty * (BAR - cells)


class Progress(Bar):
    """A bar that says how much of some work is done."""

    def __init__(self, label: str, is_seen: bool = True) -> None:
        super().__init__(label, is_seen)
        self.said, self.began, self.shown_at = -1, monotonic(), -INTERVAL

    def tell(self, text: str) -> None:
        """Say what long work it is, before it is done."""
        if self.watched:
            say(f"attn: {text}")

    def __call__(self, done: float) -> None:
        """Show the part that is done, 0 to 1."""
        percent, seconds = int(100 * done), monotonic() - self.began
        if self.watched and percent != self.said:
            self.said = percent
            left = f", {_left(seconds, done)} left" if seconds > LONG * done > 0 else ""
            self.show(f"{self.label} {self.bar(done)} {percent:3d} %{left}" if percent < 100 else "")

    def rate(self, done: int, what: str, share: float | None) -> None:
        """Show how many are done, how many a second and, where the share that is done is known, the time left."""
        now = monotonic()
        if not self.watched or now - self.shown_at < INTERVAL:
            return
        self.shown_at, seconds = now, max(now - self.began, 1e-9)
        part = "" if share is None else f"{self.bar(share)} {int(100 * share):3d} %  "
        left = "" if share is None else f", {_left(seconds, share) if share else '?'} left"
        self.show(f"{self.label} {part}{done:,} {what}, {done / seconds:,.0f} a second{left}")


class TrainingBar(Bar):
    """The progress of training: a bar on a terminal, else, unless quiet, a line now and then."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__()
        self.quiet, self.said, self.at = quiet, ("", -1), 0.0

    def __call__(self, stage: Stage) -> None:
        """Show how far training is: phase, part done, words per second, time left."""
        rate = stage.words / stage.seconds if stage.seconds else 0.0
        note = f"  {stage.note}" if stage.note else ""
        speed = f"{note}  {rate:,.0f} words/s  {_left(stage.seconds, stage.done)} left"
        if self.watched:
            from shutil import get_terminal_size  # loads compression, for a watched training alone

            line = f"{stage.phase} {self.bar(stage.done)} {stage.done:4.0%}{speed}"
            self.show(line[: get_terminal_size().columns - 1])
            return
        step, is_new = (stage.phase, int(10 * stage.done)), stage.phase != self.said[0]
        if step != self.said and not self.quiet and (is_new or stage.seconds - self.at >= SELDOM):
            self.said, self.at = step, stage.seconds
            say(f"attn: {stage.phase}: {stage.done:4.0%}{speed} in this pass")

    def tell(self, line: str) -> None:
        """Print a line above the bar."""
        self.clear()
        say(line)


def _left(seconds: float, done: float) -> str:
    return clock(seconds * (1 - done) / done if done else 0.0)


def clock(seconds: float) -> str:
    """Return a time as a clock shows it.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
