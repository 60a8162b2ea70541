"""Standard output and standard error, without Rich: streams that lose nothing, what goes to them, and the pager."""

from __future__ import annotations

import errno
import io
import os
import sys

from attn_cli.errors import WriteError, visible

TYPE_CHECKING = False  # `attn --version` needs no typing
if TYPE_CHECKING:
    from collections.abc import Iterable
    from subprocess import Popen
    from typing import IO, Any, TextIO

MOST = 1 << 30  # bytes in one call: Linux takes at most 2 GiB
NARROWEST, WIDEST = 20, 10_000  # columns
USUAL_WIDTH = 80  # of a terminal that does not know its own


class CheckedStream(io.FileIO):
    """A raw stream whose write() takes every byte, or raises OSError; Python's own may take fewer, silently."""

    def write(self, data: Any, /) -> int:
        """Write all of `data`, bytes of any kind, and return how many; wait where the descriptor is full for now."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            try:
                count = os.write(self.fileno(), view[at : at + MOST])
            except BlockingIOError:
                import select  # only where a stream does not block

                select.select([], [self], [])
                continue
            if not count:
                raise OSError(errno.EIO, "No byte was taken")
            at += count
        return len(view)


def check_standard_streams() -> None:
    """Replace the standard streams by ones that take everything, unbuffered: a failed write leaves no rest."""
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is not None and os.name == "posix":
            raw: Any = CheckedStream(stream.fileno(), "wb", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, stream.errors, newline="\n"))


def _put(data: str | bytes | memoryview) -> None:
    """Write to standard output, text at once; WriteError where it is closed, or where it cannot be written to."""
    if sys.stdout is None:
        raise WriteError("Standard output is closed.", "Write to a file with -o.")
    try:
        if isinstance(data, str):
            sys.stdout.write(data)
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(data)
    except (BrokenPipeError, UnicodeEncodeError):
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise WriteError(f"Cannot write to standard output: {why}.", "Write to a file with -o.") from None


def put_plain(text: str) -> int:
    """Write text to standard output now, and return 0; raise WriteError if nothing can be written."""
    try:
        _put(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        return put_plain(text.encode(encoding, "backslashreplace").decode(encoding))
    return 0


def put_bytes(parts: Iterable[bytes | memoryview]) -> None:
    """Write bytes to standard output, one part after the other; raise WriteError if they cannot be written."""
    for part in parts:
        _put(part)
    _put("")


def columns(text: str) -> int | None:
    """Return the width that a text states, brought within bounds; None for what is not a number above 0."""
    is_number = text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0
    return min(max(int(text), NARROWEST), WIDEST) if is_number else None


def is_terminal(stream: IO[str] | None) -> bool:
    """Tell whether a standard stream is there, and a terminal."""
    return stream is not None and stream.isatty()


def stream_width(stream: IO[str] | None) -> int | None:
    """Return the columns of COLUMNS, else of the terminal that `stream` is; None for what is not a terminal."""
    if wanted := columns(os.environ.get("COLUMNS", "")):
        return wanted
    if stream is None or not is_terminal(stream):
        return None
    try:
        now = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        now = 0
    return columns(str(now)) or USUAL_WIDTH


def folded(text: str, width: int, hanging: int = 0) -> list[str]:
    """Break a line at its spaces into lines of at most `width` cells; a longer word is left whole.

    Lines after the first are indented by `hanging` spaces, where there is room.

    >>> folded("Cannot read /a/long/path/to.npy: no such file.", 20, 2)
    ['Cannot read', '  /a/long/path/to.npy:', '  no such file.']
    """
    if _cells(text) <= width:
        return [text]
    indent = " " * hanging if width > 4 * hanging else ""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line.strip() and _cells(f"{line} {word}") > width:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # only text beyond ASCII needs the tables

    return sum(1 + (east_asian_width(char) in "WF") for char in text if not combining(char))


def say(text: str, is_data: bool = False) -> None:
    """Write a message, inert, to standard error if it is open; a terminal gets lines that fit, unless it `is_data`."""
    if sys.stderr is None:
        return
    lines = [visible(line) for line in text.split("\n")]
    try:
        if sys.stderr.isatty() and not is_data:
            width = stream_width(sys.stderr) or USUAL_WIDTH
            lines = [part for line in lines for part in folded(line, width, 2)]
        encoding = sys.stderr.encoding or "utf-8"
        shown = "".join(f"{line}\n" for line in lines)
        sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        return


# A long screen goes through the user's pager, as git does it; a short one, and what is not a screen, does not. The
# pager's name comes from the environment alone, never from a file that lies in some folder.
VARIABLES = ("ATTN_PAGER", "PAGER")
OPTIONS = {"LESS": "FIRX", "LV": "-c"}  # quit if it fits, search in any case, colours, screen left as is
NOT_FOUND = (2, 126, 127)  # what a shell ends with where it cannot read the line, or cannot run the program
FOR_A_SHELL = frozenset("|&;<>()$`\\\"'*?[#~=%")  # as git has it: a pager with one of these is a shell's line
_COLOUR = "\x1b\\[[0-9;]*m"
is_paged = True  # `--no-pager` prints every screen plainly


def put_screen(text: str) -> None:
    """Write a screen to standard output: on a terminal that is too small for it, through the user's pager."""
    variable = next((name for name in VARIABLES if name in os.environ), "")
    command = os.environ[variable].strip() if variable else "less"
    is_wanted = command not in ("", "cat") and _is_too_long(text)
    if not is_wanted or not _paged(command, text):
        put_plain(text)
        if variable and is_wanted:
            say(f"attn: Cannot run the pager {visible(command[:60])!r}, so there is none. Change {variable}.")


def _is_too_long(text: str) -> bool:
    """Tell whether the terminal can page, and cannot show all of this."""
    if not is_paged or os.name != "posix" or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return False
    import re

    shown = re.sub(_COLOUR, "", text.removesuffix("\n")).split("\n")
    wrapped = sum(max(1, -(-len(line) // columns)) for line in shown) if columns else 0
    return 0 < lines <= wrapped  # the last line is the prompt's


def _paged(command: str, text: str) -> bool:
    """Give a screen to the pager, and wait until it ends; return whether it could be run."""
    import signal  # only a long screen needs these
    import subprocess

    by_shell = not FOR_A_SHELL.isdisjoint(command)
    arguments = ["/bin/sh", "-c", command] if by_shell else command.split()
    data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    from attn_cli.io.signals import cleaned_up, handled

    # Ctrl-C means what the pager makes of it, and nothing to attn; what is ignored would be ignored by the pager too.
    with handled(lambda number, frame: None, signal.SIGINT, signal.SIGQUIT):
        try:
            process = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=_environment(text))
        except OSError:
            return False
        with cleaned_up(lambda: _end(process)):
            process.communicate(data)  # who has seen enough may quit before the end
    return not (by_shell and process.returncode in NOT_FOUND)


def _environment(text: str) -> dict[str, str]:
    mine = OPTIONS | dict(os.environ)  # the user's own options count more
    if "utf" in (sys.stdout.encoding or "utf-8").lower():
        mine.setdefault("LESSCHARSET", "utf-8")  # in a C locale less spells UTF-8 out
    if "LESS" in os.environ and "\x1b[" in text:
        mine["LESS"] = f"-R {mine['LESS']}"  # else it spells our colours out; what follows counts more
    return mine


def _end(process: Popen[bytes]) -> None:
    """End the pager, which sets the terminal right, and wait for that, though not for ever."""
    import time

    process.terminate()
    for _ in range(100):
        if os.waitpid(process.pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
