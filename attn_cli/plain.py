"""Writing without colour, width or Rich: for answers that must come at once."""

from __future__ import annotations

import sys

from attn_cli.errors import WriteError


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
        reason = getattr(error, "strerror", None) or str(error)
        raise WriteError(f"Cannot write to standard output: {reason}.", "Write to a file with -o.") from None
    return 0


def say(text: str) -> None:
    """Write a line of talk to standard error, inert; silence if nobody can hear it."""
    from attn_cli.visible import visible

    if sys.stderr is None:
        return
    encoding = sys.stderr.encoding or "utf-8"
    shown = "\n".join(visible(line) for line in text.split("\n"))
    try:
        sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def count(n: int, one: str, many: str) -> str:
    """Return `1 key` or `3 keys`."""
    return f"{n:,} {one if n == 1 else many}"
