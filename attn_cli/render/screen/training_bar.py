"""The progress of training on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from attn_cli.io.console import say
from attn_cli.io.progress import Stage, clock
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from rich.progress import Progress

SELDOM = 5.0  # seconds between two lines, at least


class TrainingBar:
    """A progress callback: phase, part done, words per second, time left."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet  # print nothing where standard error is not a terminal
        self.bar: Progress | None = None
        self.said: tuple[str, int] = ("", -1)
        self.at = 0.0
        self.at_a_signal = ExitStack()

    def __enter__(self) -> TrainingBar:
        if sys.stderr is not None and sys.stderr.isatty():
            # Rich's console and progress are slow to import: only a watched training pays for them.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            layout = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
            self.bar = Progress(*layout, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("reading", total=1.0, status="")
            self.bar.start()
            self.at_a_signal.enter_context(cleaned_up(self.bar.stop))
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            with suppress(OSError):
                self.bar.stop()
        self.at_a_signal.close()

    def __call__(self, stage: Stage) -> None:
        """Show how far training is."""
        rate = stage.words / stage.seconds if stage.seconds else 0.0
        left = stage.seconds * (1 - stage.done) / stage.done if stage.done else 0.0
        note = f"  {stage.note}" if stage.note else ""
        status = f"{stage.done:4.0%}{note}  {rate:,.0f} words/s  {clock(left)} left in this pass"
        if self.bar is not None:
            with suppress(OSError):  # the terminal may be gone: the work goes on
                self.bar.update(self.task, description=stage.phase, completed=stage.done, status=status)
            return
        step = (stage.phase, int(10 * stage.done))
        is_new = stage.phase != self.said[0]
        if step != self.said and not self.quiet and (is_new or stage.seconds - self.at >= SELDOM):
            self.said, self.at = step, stage.seconds
            say(f"attn: {stage.phase}: {status}")

    def tell(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar is not None:
            with suppress(OSError):
                self.bar.console.print(line, markup=False, highlight=False)
        else:
            say(line)
