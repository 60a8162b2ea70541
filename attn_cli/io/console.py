"""Text and bytes to standard output and standard error, without Rich."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from attn_cli.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Buffer = bytes | memoryview


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


def say(text: str) -> None:
    """Write a message to standard error, inert; do nothing where it is closed."""
    from attn_cli.io.escape import visible

    if sys.stderr is None:
        return
    encoding = sys.stderr.encoding or "utf-8"
    shown = "\n".join(visible(line) for line in text.split("\n"))
    try:
        sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
