"""attn batch: lines in, JSON Lines out, in order and in constant memory."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from attn_cli.cli.deliver import choose_format, is_ordinary, terminal_for, to_standard_output, writer
from attn_cli.cli.options import OF_FIGURES, argument, own, without
from attn_cli.cli.read_text import NoText, prepare_index, wait_for_input
from attn_cli.errors import FileError, InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.io.progress import Progress
from attn_cli.settings.declare import ATTENTION, OUTPUT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

LONGEST_LINE = 1 << 20  # bytes
MOST_TOKENS = 5_000  # of a line: its weights are the square
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UTF_8 = b"\xef\xbb\xbf"
OF_A_LINE = ("--query", "--without")  # they name a token, which some lines may have
PROBE = "x"  # a text that fails where every text would


@without("format", "tidy", "precision", "color", "palette", "shades", "width", *OF_FIGURES)
def batch(
    file: Annotated[
        str | None, argument("[FILE]", "A text a line: plain, .gz or .xz; - is standard input.")
    ] = None,
    kind: Annotated[
        Literal["self", "masked", "cross"],
        typer.Option(
            "--kind",
            help="Which attention; for cross a line is TEXT, a tab, CONTEXT.",
            rich_help_panel=ATTENTION,
        ),
    ] = "self",
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Write an error object for a bad line, and go on.", rich_help_panel=OUTPUT
        ),
    ] = False,
    written_as: Annotated[
        str | None, own("jsonl", "JSON Lines, the one format.", "--format", "-f", group=OUTPUT)
    ] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Lines in, JSON Lines out: a text a line, a record a line, in order.

    Each record is what attn self (or masked, or cross) prints for the line with -f jsonl. The first bad line ends the
    run; with --keep-going an error object stands in its place, and the exit code is 65.

    Example: attn batch sentences.txt | jq -c .summary
    """
    view = _as_json_lines(view, written_as, file)
    # Progress must be seen, and must not stand between the records on one terminal.
    is_seen = not to_standard_output(view) or sys.stdout is None or not sys.stdout.isatty()
    with _opened(file) as source:
        prepare_index(settings.embedding, "random, ")
        answers = _answers(source, kind, settings, view, keep_going)
        with Progress("Attending", is_seen) as progress, writer(view) as write:
            total = refused = 0
            for total, (answer, is_refused) in enumerate(answers, 1):
                write(answer)
                refused += is_refused
                if source.size:
                    progress(min(1.0, source.raw.tell() / source.size))
                else:
                    progress.count(total, "lines")
    if refused:
        lines = f"{refused:,} of {count(total, 'line', 'lines')} {'was' if refused == 1 else 'were'} refused."
        raise InputError(lines, "An error object stands in the place of each.")


def _as_json_lines(view: View, format: str | None, file: str | None) -> View:
    """Return the view of JSON Lines; UsageError for another format, or where the input would be replaced."""
    output = "" if to_standard_output(view) else str(view.output)
    asked = format or (choose_format(View(output=output), figures=False).format if output else "jsonl")
    if asked != "jsonl" and (format is not None or is_ordinary(output)):
        raise UsageError(
            f"attn batch has no {visible(str(asked))} form" + (f" for {visible(output)}." if output else "."),
            "It writes JSON Lines: leave out -f, and give -o a name that ends in .jsonl.",
            "--format" if format is not None else "--output",
        )
    paths = (file or "-", output)
    if all(map(os.path.exists, paths)) and os.path.samefile(*paths):
        raise UsageError(
            f"{visible(str(file))} is the file that is read: it would be replaced.",
            "Write to another.",
            "--output",
        )
    return choose_format(replace(view, format="jsonl"), figures=False)


# The input


class Source(NamedTuple):
    """An open input: its lines, the file as it lies on the disk, and that file's bytes (0 for a pipe)."""

    stream: IO[bytes]
    raw: IO[bytes]
    size: int
    name: str


class _Unpacked(io.RawIOBase):
    """Pieces of bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self.rest:
            self.rest = memoryview(next(self.pieces, b""))
        part = self.rest[: len(buffer)]
        buffer[: len(part)] = part
        self.rest = self.rest[len(part) :]
        return len(part)


@contextmanager
def _opened(file: str | None) -> Iterator[Source]:
    """Open a regular file, packed or not, or standard input."""
    if file in (None, "-"):
        if sys.stdin is None or (file is None and sys.stdin.isatty()):
            raise NoText("batch")
        wait_for_input()
        yield Source(sys.stdin.buffer, sys.stdin.buffer, 0, "standard input")
        return
    from attn_cli.io.compressed import packing, pieces
    from attn_cli.io.files import regular

    name = visible(str(file))
    with regular(str(file)).open("rb") as raw:
        try:
            packed = packing(raw.read(6))
            raw.seek(0)
        except OSError as error:
            raise FileError(f"Cannot read {name}: {error.strerror or error}.") from None
        stream: IO[bytes] = io.BufferedReader(_Unpacked(pieces(raw, packed, name))) if packed else raw
        yield Source(stream, raw, os.path.getsize(str(file)), name)


def _lines(source: Source) -> Iterator[str | None]:
    """Yield each line's text, without its end; None for one that is longer than LONGEST_LINE."""
    from attn_cli.io.compressed import packing

    is_first = True
    while line := _read(source):
        if is_first:
            if line[:2] in UTF_16:
                raise InputError(f"{source.name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
            if packed := packing(line[:6]):
                raise InputError(f"{source.name} is packed.", f"Unpack it: {packed} -dc FILE | attn batch")
            line = line.removeprefix(UTF_8)
            is_first = False
        is_long = len(line) > LONGEST_LINE
        yield None if is_long else line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        while is_long and line and not line.endswith(b"\n"):
            line = _read(source)


def _read(source: Source) -> bytes:
    try:
        return source.stream.readline(LONGEST_LINE + 1)
    except OSError as error:
        raise FileError(f"Cannot read {source.name}: {error.strerror or error}.") from None


# The answers


def _answers(
    source: Source, kind: str, settings: Settings, view: View, keep_going: bool
) -> Iterator[tuple[str, bool]]:
    """Yield each line's record, or its error object, and whether it was refused.

    Raise the error of a refused line, with its number, unless `keep_going`.
    """
    from attn_cli.render import needs_weights, render
    from attn_cli.render.data.json import dumps

    terminal = terminal_for(view)
    with ExitStack() as opened:
        compute = _computing(kind, settings, opened, needs_weights(view, kind))
        for number, text in enumerate(_lines(source), 1):
            try:
                yield render(compute(text), view, terminal), False
            except (InputError, UsageError) as error:
                if isinstance(error, UsageError) and error.option not in OF_A_LINE:
                    raise  # it would be wrong for every line
                error.line = number
                if not keep_going:
                    raise
                yield dumps(error.as_record(), True, not terminal.unicode), True


def _computing(
    kind: str, settings: Settings, opened: ExitStack, keep_weights: bool
) -> Callable[[str | None], Trace]:
    """Return the function that makes a line a Trace; raise at once what would be wrong with every line.

    What lines share is opened once; `opened` closes it.
    """
    from attn_cli.io.files import looks_like_file

    # NumPy is loaded once there is something to compute.
    from attn_cli.pipeline.embed import Shared, open_shared
    from attn_cli.pipeline.from_text import settings_for_masked, trace_text
    from attn_cli.text.tokenize import tokenize

    if kind == "masked":
        settings = settings_for_masked(settings)
    if settings.model is None:
        shared = open_shared(settings)
    else:
        from attn_cli.pipeline.from_checkpoint import open_model

        shared = Shared(model=opened.enter_context(open_model(settings.model)))

    def compute(line: str | None) -> Trace:
        hint = "Break it into sentences, one a line."
        if line is None:
            raise InputError(f"This line is longer than {LONGEST_LINE:,} bytes.", hint)
        if len(line) > MOST_TOKENS and len(tokenize(line, settings.tokenizer, True).tokens) > MOST_TOKENS:
            raise InputError(f"This line has more than {MOST_TOKENS:,} tokens.", hint)
        if kind != "cross":
            return trace_text(kind, line, None, settings, shared=shared, keep_weights=keep_weights)
        text, tab, context = line.partition("\t")
        if not tab or "\t" in context:
            raise InputError(
                f"{'No tab' if not tab else 'More than one tab'} in this line.",
                "Give TEXT, one tab, CONTEXT.",
            )
        return trace_text(kind, text, context, settings, shared=shared, keep_weights=keep_weights)

    of_each = settings.mask is not None and looks_like_file(settings.mask)  # its shape fits only some lines
    oov = "zero" if settings.oov in ("error", "skip") else settings.oov
    usual = replace(settings, query=None, without=(), oov=oov, mask=None if of_each else settings.mask)
    if settings.model is None:  # whose tokens may not have the probe's
        trace_text(kind, PROBE, PROBE if kind == "cross" else None, usual, shared=shared)
    return compute
