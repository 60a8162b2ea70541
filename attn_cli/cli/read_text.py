"""The text of a command: its argument, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attn_cli.errors import InputError, NoText, UsageError
from attn_cli.io.escape import as_utf8, visible


def one_text(texts: Sequence[str] | None, command: str) -> str:
    """Return the one text given, or standard input."""
    texts = texts or []
    if len(texts) > 1:
        raise UsageError(
            f"{len(texts)} texts were given where one is wanted: put quotes round it.",
            f'Try: attn {command} "{visible(" ".join(texts))[:120]}"',
        )
    return read_text(texts[0] if texts else None, command)


def read_text(text: str | None, command: str) -> str:
    """Return `text`, or all of standard input where it is `-` or left out."""
    if text is not None and text != "-":
        return as_utf8(text)
    if sys.stdin is None or (text is None and sys.stdin.isatty()):
        raise NoText(command)
    try:
        data = piped_in()
    except OSError as error:
        raise InputError(f"Cannot read standard input: {error.strerror}.") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("Standard input looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
    return data.decode("utf-8-sig", "replace")


_piped: tuple[object, bytes] | None = None


def piped_in(most: int = -1) -> bytes:
    """Return all of standard input (or `most` bytes of it), also when a command runs again and asks anew."""
    global _piped
    if _piped is None or _piped[0] is not sys.stdin:
        _piped = (sys.stdin, sys.stdin.buffer.read(most))
    return _piped[1]
