"""Standard output and standard error, without Rich: streams that lose nothing, text and bytes that go to them."""

from __future__ import annotations

import errno
import io
import os
import sys

from attn_cli.errors import WriteError

TYPE_CHECKING = False  # `attn --version` needs no typing
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO, Any, TextIO

MOST = 1 << 30  # bytes in one call: Linux takes at most 2 GiB
NARROWEST, WIDEST = 20, 10_000  # columns
USUAL_WIDTH = 80  # of a terminal that does not know its own
HANGING = 2  # spaces before the further lines of a message


class CheckedStream(io.FileIO):
    """A raw stream whose write() takes every byte, or raises OSError.

    Python's own raw streams return how many bytes were taken, and whoever does not look loses the rest: on a disk
    that fills up, in a non-blocking pipe, in a pipe whose writer was stopped and continued.
    """

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
    """Replace standard output and standard error by streams that take everything, whatever the environment says.

    Nothing is buffered beneath the text: after a failed write no rest waits to be written a second time.
    """
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
    """Write a message to standard error, inert; do nothing where it is closed.

    A terminal gets lines that fit, broken between words. Elsewhere, and where it is data, a line stays one line.
    """
    from attn_cli.io.escape import visible

    if sys.stderr is None:
        return
    lines = [visible(line) for line in text.split("\n")]
    try:
        if sys.stderr.isatty() and not is_data:
            width = stream_width(sys.stderr) or USUAL_WIDTH
            lines = [part for line in lines for part in folded(line, width, HANGING)]
        encoding = sys.stderr.encoding or "utf-8"
        shown = "".join(f"{line}\n" for line in lines)
        sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        return
