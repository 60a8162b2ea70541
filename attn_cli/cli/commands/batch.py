"""attn batch: lines in, JSON Lines out, in order and in constant memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attn_cli.cli.deliver import byte_stream, choose_format, is_ordinary, terminal_for, to_standard_output
from attn_cli.cli.options import OF_FIGURES, SETTINGS, argument, option, own, without
from attn_cli.cli.read_text import NoText, prepare_index, wait_for_input
from attn_cli.errors import InputError, UsageError, did_you_mean
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
    from attn_cli.batch.run import Run

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
        str | None,
        own(
            "FORM",
            "JSON Lines, or for a file: jsonl.gz, jsonl.zst, parquet, arrow, or npz (into a folder).",
            "--format",
            "-f",
            group=OUTPUT,
        ),
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
    force: Annotated[
        bool, typer.Option("--force", help="Start a run into a folder anew.", rich_help_panel=OUTPUT)
    ] = False,
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
    view = replace(view, fields=fields or default_fields(settings, view))
    is_folder = _is_folder(view)
    view, form = _with_form(view, written_as, file, is_folder)
    if force and not is_folder:
        raise UsageError("--force goes with -o DIR/, a folder of parts.", option="--force")
    if is_folder and file in (None, "-"):
        raise UsageError(
            "A run into a folder reads a file, which it can read again: a pipe cannot be continued.",
            "Give a file, or write to one.",
            "--output",
        )
    # Progress must be seen, and must not stand between the records on one terminal.
    is_seen = not to_standard_output(view) or sys.stdout is None or not sys.stdout.isatty()
    with _opened(file) as source:
        prepare_index(settings.embedding, "random, ")
        from attn_cli.batch.run import Run  # NumPy is loaded once there is something to compute
        from attn_cli.batch.workers import default_workers

        job = _job(kind, settings, view, keep_going, form, bool(source.size))
        run = Run(job, source, workers or default_workers())
        with Progress("Attending", is_seen) as progress:
            report = partial(_report, progress, source)
            if is_folder:
                _into_folder(run, str(file), str(view.output), force, report)
            else:
                with byte_stream(view) as stream:
                    run.write(stream, report)
    if run.refused:
        lines = (
            f"{run.refused:,} of {count(run.lines, 'line', 'lines')} "
            f"{'was' if run.refused == 1 else 'were'} refused."
        )
        raise InputError(lines, "An error object stands in the place of each.")


def _report(progress: Progress, source: Source, lines: int) -> None:
    progress.rate(lines, "lines", source.done)


def _into_folder(run: Run, file: str, output: str, force: bool, report: Callable[[int], None]) -> None:
    """Write parts into a folder, or go on where a run that was ended has left off."""
    from attn_cli.batch.parts import Folder, fingerprint, run_of
    from attn_cli.io.console import say

    folder = Folder(output)
    with folder.locked():
        manifest = folder.opened(fingerprint(file), run_of(run.job), force)
        done = f"{count(manifest.lines, 'line', 'lines')} in {count(len(manifest.parts), 'part', 'parts')}"
        if manifest.complete:
            bad = f", {manifest.refused:,} of them refused" if manifest.refused else ""
            say(f"attn: {folder.name} is complete: {done}{bad}. --force writes it anew.")
            return
        if manifest.parts:
            say(f"attn: {folder.name} has {done}: going on.")
        run.write_parts(folder, manifest, report)


def default_fields(settings: Settings, view: View) -> str:
    """Return the fields where none are asked for: all with --steps; links, not weights, with --top."""
    if view.steps:
        return ALL_KEYS
    return DEFAULT_FIELDS if settings.top is None else DEFAULT_FIELDS.replace("weights", "links")


def _is_folder(view: View) -> bool:
    """Tell whether the output is a folder of parts."""
    output = str(view.output or "")
    return not to_standard_output(view) and (output.endswith(os.sep) or os.path.isdir(output))


def _with_form(view: View, name: str | None, file: str | None, is_folder: bool) -> tuple[View, str]:
    """Return the view, and the form that is asked for by -f, or by a file's suffix.

    UsageError for one that there is not, that does not fit the output, or where the input would be replaced.
    """
    from attn_cli.batch.forms import FORMS, form_of

    output = "" if to_standard_output(view) else str(view.output)
    form = name or form_of(output) or "jsonl"
    if output and not is_folder and is_ordinary(output):
        suffix = form_of(output)
        form = name or suffix or str(choose_format(View(output=output), figures=False).format)
        if suffix is not None and suffix != form and form in FORMS:
            raise UsageError(
                f"{visible(output)} cannot hold {form}.", "Leave out -f, or give another suffix.", "--output"
            )
    if form not in FORMS:
        raise UsageError(
            f"attn batch has no {visible(form)} form" + (f" for {visible(output)}." if output else "."),
            f"{did_you_mean(form, FORMS)}Its forms are {', '.join(FORMS)}; -f names one, or the suffix of -o.",
            "--format" if name is not None else "--output",
        )
    if FORMS[form].is_whole and not is_folder:
        raise UsageError(
            f"{form} is written in parts, each of which is held in memory.",
            "Give a folder: -o DIR/",
            "--output",
        )
    if form != "jsonl" and to_standard_output(view) and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(f"-f {form} is not text.", f"Write it to a file: -o records.{form}", "--format")
    paths = (file or "-", output)
    if all(map(os.path.exists, paths)) and os.path.samefile(*paths):
        raise UsageError(
            f"{visible(str(file))} is the file that is read: it would be replaced.",
            "Write to another.",
            "--output",
        )
    choose_format(replace(view, format="jsonl", output=None), figures=False)  # which checks --fields
    return view, form


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


def _job(kind: str, settings: Settings, view: View, keep_going: bool, form: str, is_whole: bool) -> Job:
    """Return what is to be done with every line."""
    from attn_cli.batch.forms import FORMS
    from attn_cli.batch.job import Job
    from attn_cli.render import keys_in, needs_weights
    from attn_cli.trace.as_json import KEYS, OF_STEPS

    keys = keys_in(view, kind) or tuple(key for key in KEYS if view.steps or key not in OF_STEPS)
    if FORMS[form].has_extra:
        from attn_cli.batch.tables import columns_of  # only those who ask for columns need pyarrow

        if FORMS[form].pack is None:
            keys = columns_of(keys, keys_in(view, kind) is None)
    ascii_only = not terminal_for(view).unicode
    return Job(
        kind, settings, keys, view.steps, keep_going, form, ascii_only, needs_weights(view, kind), is_whole
    )
