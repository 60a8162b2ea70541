"""attn batch: lines in, JSON Lines out, in order and in constant memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attn_cli.cli.deliver import byte_writer, choose_format, is_ordinary, terminal_for, to_standard_output
from attn_cli.cli.options import OF_FIGURES, SETTINGS, argument, option, own, without
from attn_cli.cli.read_text import NoText, prepare_index, wait_for_input
from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.io.progress import Progress
from attn_cli.settings.declare import ATTENTION, OUTPUT
from attn_cli.settings.json_keys import ALL_KEYS
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Source

DEFAULT_FIELDS = "query_tokens,key_tokens,weights,summary"
MOST_WORKERS = 256
FIELDS_HELP = (
    f"Only these keys of the JSON, or all.  [default: {DEFAULT_FIELDS}; with --top links, not weights]"
)


@without("format", "fields", "tidy", "precision", "color", "palette", "shades", "width", *OF_FIGURES)
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
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=MOST_WORKERS,
            help="Processes that compute; the output does not depend on it.  [default: one per processor]",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    fields: Annotated[str | None, option(SETTINGS["fields"], FIELDS_HELP)] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Lines in, JSON Lines out: a text a line, a record a line, in order.

    Each record has the numbers that attn self (or masked, or cross) prints for the line with -f jsonl. The first bad
    line ends the run; with --keep-going an error object stands in its place, and the exit code is 65.

    Example: attn batch sentences.txt | jq -c .summary
    """
    view = _as_json_lines(replace(view, fields=fields or default_fields(settings, view)), written_as, file)
    # Progress must be seen, and must not stand between the records on one terminal.
    is_seen = not to_standard_output(view) or sys.stdout is None or not sys.stdout.isatty()
    with _opened(file) as source:
        prepare_index(settings.embedding, "random, ")
        from attn_cli.batch.lines import Chunks  # NumPy is loaded once there is something to compute
        from attn_cli.batch.run import written_chunks
        from attn_cli.batch.workers import default_workers

        job = _job(kind, settings, view, keep_going)
        total = refused = 0
        with Progress("Attending", is_seen) as progress, byte_writer(view) as write:
            for chunk in written_chunks(job, Chunks(source), workers or default_workers()):
                if chunk.data:
                    write(chunk.data)
                total, refused = total + chunk.lines, refused + chunk.refused
                if chunk.error is not None:
                    raise chunk.error
                progress.rate(total, "lines", source.done)
    if refused:
        lines = f"{refused:,} of {count(total, 'line', 'lines')} {'was' if refused == 1 else 'were'} refused."
        raise InputError(lines, "An error object stands in the place of each.")


def default_fields(settings: Settings, view: View) -> str:
    """Return the fields where none are asked for: all with --steps; links, not weights, with --top."""
    if view.steps:
        return ALL_KEYS
    return DEFAULT_FIELDS if settings.top is None else DEFAULT_FIELDS.replace("weights", "links")


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


@contextmanager
def _opened(file: str | None) -> Iterator[Source]:
    """Open a regular file, packed or not, or standard input."""
    from attn_cli.batch.lines import Source, open_lines

    if file in (None, "-"):
        if sys.stdin is None or (file is None and sys.stdin.isatty()):
            raise NoText("batch")
        wait_for_input()
        yield Source(sys.stdin.buffer, sys.stdin.buffer, 0, "standard input")
        return
    with open_lines(str(file)) as source:
        yield source


def _job(kind: str, settings: Settings, view: View, keep_going: bool) -> Job:
    """Return what is to be done with every line."""
    from attn_cli.batch.job import Job
    from attn_cli.render import keys_in
    from attn_cli.trace.as_json import KEYS, OF_STEPS

    keys = keys_in(view, kind) or tuple(key for key in KEYS if view.steps or key not in OF_STEPS)
    ascii_only = not terminal_for(view).unicode
    return Job(kind, settings, keys, view.steps, keep_going, "jsonl", ascii_only)
