"""What a command reads before it computes: its text, and the index of a large file of vectors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from attn_cli.errors import InputError, UsageError, as_utf8, refuse, shell_quote, visible
from attn_cli.io.files import first_bytes, looks_like_file, packing, read_bytes
from attn_cli.io.progress import Progress
from attn_cli.settings import Settings, check_length, text_limit

if TYPE_CHECKING:
    from attn_cli.inputs.saved_weights import Saved

ONE_STANDARD_INPUT = ("Standard input can be only one of TEXT and CONTEXT.", "Type the other in quotes.")
ONE_TEXT = '"She likes coffee"'


def one_text(texts: Sequence[str] | None, command: str, settings: Settings) -> str:
    """Return the one text given, or standard input."""
    texts = texts or []
    if len(texts) > 1:
        whole = " ".join(texts)[:120]
        hint = f"Try: attn {command} {'-- ' * whole.startswith('-')}{shell_quote(whole, double=True)}"
        raise UsageError(f"{len(texts)} texts were given where one is wanted: put quotes round it.", hint)
    return read_text(texts[0] if texts else None, command, settings)


def text_and_context(
    texts: Sequence[str] | None, context: str | None, command: str, settings: Settings
) -> tuple[str, str | None]:
    """Return the one text given, and the text of --context if there is one."""
    refuse(context == "-" and (not texts or texts == ["-"]), *ONE_STANDARD_INPUT)
    text = one_text(texts, command, settings)
    return text, None if context is None else read_text(context, command, settings)


def two_texts(texts: Sequence[str], settings: Settings, command: str = "cross") -> list[str]:
    """Return the two texts of a command: of one argument, standard input is the first."""
    said = f"{len(texts)} texts were given where two are wanted: put quotes round each."
    refuse(len(texts) > 2, said, NoText(command).hint)
    said, hint = ONE_STANDARD_INPUT
    said = said.replace("TEXT and CONTEXT", "CLEAN and CORRUPT") if command == "patch" else said
    refuse(texts.count("-") > 1 or [*texts] == ["-"], said, hint)
    if not texts:
        raise NoText(command)
    if len(texts) == 2:
        return [read_text(text, command, settings) for text in texts]
    with suppress(NoText):
        if (first := read_text(None, command, settings)).strip():
            return [first, as_utf8(texts[0])]
    raise UsageError("The second text is missing.", NoText(command).hint)


def read_text(text: str | None, command: str, settings: Settings) -> str:
    """Return `text`, or all of standard input where it is `-` or left out; no more is read than a text may have."""
    if text is not None and text != "-":
        return as_utf8(text)
    if sys.stdin is None or (text is None and sys.stdin.isatty()):
        raise NoText(command)
    data = piped_in(text_limit(settings) + 1)
    check_length(len(data), settings)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("Standard input looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
    return data.decode("utf-8-sig", "replace")


class NoText(UsageError):
    """There is no text (for show: no file), and none is piped in: the command's help is shown."""

    def __init__(self, command: str) -> None:
        arguments = {
            "batch": "sentences.txt",
            "lookup": "colour brand=Porche color=black",
            "cross": '"she" "likes coffee"',
            "patch": '"The cat sat on the" "The cat slept in the"',
            "compare": '"She likes coffee" --vary score=scaled,dot',
            "show": "FILE",
            "heads": '"She likes coffee" -m DIR',
        }
        what = "file" if command == "show" else "text"
        super().__init__(f"There is no {what}.", f"Try: attn {command} {arguments.get(command, ONE_TEXT)}")


def labelled_weights(
    file: str | None,
    command: str,
    array: str | None = None,
    batch: int | None = None,
    tokens: str | None = None,
    context_tokens: str | None = None,
) -> Saved:
    """Return the weights in a file, or in standard input, with the tokens that were typed for queries and for keys."""
    from attn_cli.inputs.record import MOST_BYTES
    from attn_cli.inputs.saved_weights import read_saved
    from attn_cli.inputs.weight_axes import Typed, typed_tokens

    if file is not None and file != "-":
        data, name = read_bytes(file, MOST_BYTES), visible(as_utf8(file))
    elif sys.stdin is None or (file is None and sys.stdin.isatty()):
        raise NoText(command)
    else:
        data, name = piped_in(MOST_BYTES + 1), "standard input"
    if len(data) > MOST_BYTES:
        raise InputError(f"Standard input holds more than {MOST_BYTES:,} bytes.", "Save one layer alone.")
    queries = None if tokens is None else typed_tokens(tokens, "--tokens", batch)
    keys = None if context_tokens is None else typed_tokens(context_tokens, "--context-tokens", batch)
    return read_saved(data, name, array, batch, Typed(queries, keys))


_piped: tuple[object, bytes] | None = None


def piped_in(most: int = -1) -> bytes:
    """Return all of standard input, or `most` bytes of it; a command that runs a second time gets the same bytes."""
    global _piped
    if _piped is None or _piped[0] is not sys.stdin:
        try:
            wait_for_input()
            _piped = (sys.stdin, sys.stdin.buffer.read(most))
        except OSError as error:
            raise InputError(f"Cannot read standard input: {error.strerror}.") from None
    return _piped[1]


def wait_for_input() -> None:
    """Let reading standard input wait for what has not arrived yet, which would be taken for its end."""
    with suppress(OSError, ValueError, AttributeError):  # no real stream, or Windows
        os.set_blocking(sys.stdin.fileno(), True)


@contextmanager
def attention_progress(embedding: str | None, label: str = "Attending") -> Iterator[Progress]:
    """Show the progress of attention over these vectors, after their index is built."""
    prepare_index(embedding, "random, ")
    with Progress(label) as progress:
        yield progress


def prepare_index(embedding: str | None, others: str = "") -> str:
    """Return the name or path of the vectors; index a large file at its first use, and say so on standard error.

    `others` are further names that the command takes, for the message of an unknown one.
    """
    path = embedding or "word2vec"
    if path in ("word2vec", "random"):
        return path  # the usual case pays for nothing
    from attn_cli.vectors import lookup, open_vectors

    is_file = looks_like_file(path) and os.path.isfile(path)
    if is_file and os.path.getsize(path) < open_vectors.INDEXED_FROM and not packing(first_bytes(path)):
        return path
    from attn_cli.io.console import say

    with Progress("Indexing") as progress:
        note = open_vectors.keep_index(lookup.open_table(path, others), progress)
    if note:
        say(f"attn: {note}")
    return path
