"""How far training is, on standard error: a bar where somebody watches, else a line now and then."""

from __future__ import annotations

import sys
from types import TracebackType

from attn_cli.io.console import say
from attn_cli.io.progress import Stage

SELDOM = 5.0


class TrainingBar:
    """A progress callback: phase, part done, words per second, time left."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet  # where nobody watches, say nothing
        self.bar: object = None
        self.said: tuple[str, int] = ("", -1)
        self.at = 0.0

    def __enter__(self) -> TrainingBar:
        if sys.stderr is not None and sys.stderr.isatty():
            # Rich's console and progress are slow to import: only a watched training pays for them.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = progress.add_task("reading", total=1.0, told="")
            progress.start()
            self.bar = progress
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()  # type: ignore[attr-defined]

    def __call__(self, stage: Stage) -> None:
        """Show where training stands."""
        rate = stage.words / stage.seconds if stage.seconds else 0.0
        left = stage.seconds * (1 - stage.done) / stage.done if stage.done else 0.0
        note = f"  {stage.note}" if stage.note else ""
        told = f"{stage.done:4.0%}{note}  {rate:,.0f} words/s  {_clock(left)} left in this pass"
        if self.bar is not None:
            self.bar.update(self.task, description=stage.phase, completed=stage.done, told=told)  # type: ignore[attr-defined]
            return
        step = (stage.phase, int(10 * stage.done))
        is_new = stage.phase != self.said[0]
        if step != self.said and not self.quiet and (is_new or stage.seconds - self.at >= SELDOM):
            self.said, self.at = step, stage.seconds
            say(f"attn: {stage.phase}: {told}")

    def tell(self, line: str) -> None:
        """Say a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)  # type: ignore[attr-defined]
        else:
            say(line)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
