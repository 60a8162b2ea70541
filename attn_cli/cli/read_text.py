"""The text of a command: its argument, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import as_utf8, visible

ONE_STANDARD_INPUT = ("Standard input can be only one of TEXT and CONTEXT.", "Type the other in quotes.")
ONE_TEXT = '"She likes coffee"'


def one_text(texts: Sequence[str] | None, command: str) -> str:
    """Return the one text given, or standard input."""
    texts = texts or []
    if len(texts) > 1:
        raise UsageError(
            f"{len(texts)} texts were given where one is wanted: put quotes round it.",
            f'Try: attn {command} "{visible(" ".join(texts))[:120]}"',
        )
    return read_text(texts[0] if texts else None, command)


def text_and_context(
    texts: Sequence[str] | None, context: str | None, command: str
) -> tuple[str, str | None]:
    """Return the one text given, and the text of --context if there is one."""
    if context == "-" and (not texts or texts == ["-"]):
        raise UsageError(*ONE_STANDARD_INPUT)
    return one_text(texts, command), None if context is None else read_text(context, command)


def read_text(text: str | None, command: str) -> str:
    """Return `text`, or all of standard input where it is `-` or left out."""
    if text is not None and text != "-":
        return as_utf8(text)
    if sys.stdin is None or (text is None and sys.stdin.isatty()):
        raise NoText(command)
    data = piped_in()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("Standard input looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
    return data.decode("utf-8-sig", "replace")


class NoText(UsageError):
    """There is no text, and none is piped in: the command's help is shown."""

    def __init__(self, command: str) -> None:
        arguments = {
            "batch": "sentences.txt",
            "lookup": "colour brand=Porche color=black",
            "cross": '"she" "likes coffee"',
            "compare": '"She likes coffee" --vary score=scaled,dot',
        }
        super().__init__("There is no text.", f"Try: attn {command} {arguments.get(command, ONE_TEXT)}")


class NoFile(NoText):
    """There is no file, and none is piped in: the command's help is shown."""

    def __init__(self, command: str) -> None:
        UsageError.__init__(self, "There is no file.", f"Try: attn {command} FILE")


_piped: tuple[object, bytes] | None = None


def piped_in(most: int = -1) -> bytes:
    """Return all of standard input, or `most` bytes of it; a command that runs a second time gets the same bytes."""
    global _piped
    if _piped is None or _piped[0] is not sys.stdin:
        try:
            _piped = (sys.stdin, sys.stdin.buffer.read(most))
        except OSError as error:
            raise InputError(f"Cannot read standard input: {error.strerror}.") from None
    return _piped[1]
