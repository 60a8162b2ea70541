"""Text and bytes to standard output and standard error, without Rich."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

from attn_cli.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

if TYPE_CHECKING:
    Buffer = bytes | memoryview
NARROWEST, WIDEST = 20, 10_000  # columns
USUAL_WIDTH = 80  # of a terminal that does not know its own
HANGING = 2  # spaces before the further lines of a message


def put_plain(text: str) -> int:
    """Write text to standard output now, and return 0; raise WriteError if nothing can be written."""
    if sys.stdout is None:
        raise WriteError("Standard output is closed.", "Write to a file with -o.")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        return put_plain(text.encode(encoding, "backslashreplace").decode(encoding))
    except (OSError, ValueError) as error:
        raise _unwritten(error) from None
    return 0


def put_bytes(parts: Iterable[Buffer]) -> None:
    """Write bytes to standard output, one part after the other; raise WriteError if they cannot be written."""
    if sys.stdout is None:
        raise WriteError("Standard output is closed.", "Write to a file with -o.")
    for part in parts:
        try:
            sys.stdout.buffer.write(part)
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            raise _unwritten(error) from None
    put_plain("")


def _unwritten(error: Exception) -> WriteError:
    why = getattr(error, "strerror", None) or str(error)
    return WriteError(f"Cannot write to standard output: {why}.", "Write to a file with -o.")


def columns(text: str) -> int | None:
    """Return the width that a text states, brought within bounds; None for what is no number above 0."""
    is_number = text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0
    return min(max(int(text), NARROWEST), WIDEST) if is_number else None


def stream_width(environ: Mapping[str, str], stream: IO[str] | None) -> int | None:
    """Return the columns of COLUMNS, else of the terminal that `stream` is; None for what is no terminal."""
    if wanted := columns(environ.get("COLUMNS", "")):
        return wanted
    if stream is None or not stream.isatty():
        return None
    try:
        now = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        now = 0
    return min(max(now, NARROWEST), WIDEST) if now else USUAL_WIDTH


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
    """Return how many columns a text takes."""
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
            width = stream_width(os.environ, sys.stderr) or USUAL_WIDTH
            lines = [part for line in lines for part in folded(line, width, HANGING)]
        encoding = sys.stderr.encoding or "utf-8"
        shown = "".join(f"{line}\n" for line in lines)
        sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        return
