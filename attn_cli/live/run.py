"""attn live from its inputs to its end: what it needs is checked, the screen is taken and given back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import CreateError, MissingExtra, UsageError
from attn_cli.io.escape import visible

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.live.record import Event, Recorder
    from attn_cli.live.session import Session
    from attn_cli.live.sources import Source
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings

EXAMPLE = "The quick brown fox jumped over the lazy dog"
DUMB = ("", "dumb", "unknown")


class Lecture(NamedTuple):
    """What is recorded and replayed; nothing by default."""

    record: str | None = None
    events: tuple[Event, ...] = ()
    pace: float = 1.0


def check_screen() -> None:
    """Raise UsageError where there is no keyboard or no screen, MissingExtra where Textual is not installed."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "attn live reads keys, and standard input is not a terminal.", "For a text in a pipe: attn self -"
        )
    if sys.stdout is None or not sys.stdout.isatty():
        raise UsageError(
            "attn live draws on the screen, and standard output is not a terminal.",
            "For a file: attn self TEXT -o FILE",
        )
    if sys.platform == "win32" or os.environ.get("TERM", "") in DUMB:
        raise UsageError(
            "attn live needs a terminal that can be drawn on.", "attn explain TEXT shows the same in lines."
        )
    try:
        import textual  # noqa: F401  # nobody else pays for it
    except ImportError:
        raise MissingExtra("attn live needs Textual: pip install 'attn-cli[live]'") from None


def begin(source: Source, text: str, settings: Settings) -> Session:
    """Return a session whose first question is answered; raises what the pipeline raises."""
    from attn_cli.live.session import Session
    from attn_cli.live.state import Question, State

    question = Question(text, settings)
    trace = source.compute(question)
    row = trace.focus[0]
    links = trace.shown.links.keys[row]
    column = max(0, int(links[0]))
    return Session(source, State(question, row, column), trace, question)


def run(session: Session, view: View, lecture: Lecture) -> None:
    """Show the screen until somebody leaves; afterwards print the commands that were asked for.

    Raises the error of a bug, and KeyboardInterrupt at Ctrl-C, once the terminal is as it was.
    """
    from attn_cli.io.console import put_plain
    from attn_cli.live import driver
    from attn_cli.live.app import INTERRUPTED, LiveApp
    from attn_cli.live.replay import Replay

    terminal = _terminal(view)
    session.view = view
    if not terminal.unicode:
        session.say("This locale is not UTF-8, so shades are digits. LC_ALL=C.UTF-8 has blocks.")
    driver.guest = driver.Guest("utf-8" if terminal.unicode else "ascii")
    with _recording(session, lecture.record) as recorder, driver.guest.visiting():
        app = LiveApp(
            session, view, terminal, recorder, Replay(lecture.events, lecture.pace), driver.GuestDriver
        )
        code = app.run()
    if app.failure is not None:
        raise app.failure
    if app.commands:
        put_plain("".join(f"{command}\n" for command in app.commands))
    if code == INTERRUPTED:
        raise KeyboardInterrupt


def _terminal(view: View) -> Terminal:
    """Return the terminal, with the encoding that the locale says; Python itself takes UTF-8 for granted in C."""
    from attn_cli.io.terminal import detect

    terminal = detect(os.environ, sys.stdout, view.color, view.width)
    named = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    is_utf8 = "utf8" in named.lower().replace("-", "")
    return terminal if is_utf8 else terminal._replace(encoding="ascii")


@contextlib.contextmanager
def _recording(session: Session, path: str | None) -> Iterator[Recorder | None]:
    """Give what records into a file, and close it at the end."""
    if path is None:
        yield None
        return
    from attn_cli.live.record import Recorder

    text = session.state.question.text if session.source.has_text else None
    try:
        recorder = Recorder(path, text)
    except OSError as error:
        raise CreateError(
            f"Cannot create {visible(path)}: {error.strerror}.", "Choose another place."
        ) from None
    with contextlib.closing(recorder):
        yield recorder
