"""What attn batch does with its files and options: the form, the job, and the run into a stream or a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.cli.deliver import byte_stream, check_fields, with_format
from attn_cli.cli.read_text import NoText, prepare_index, wait_for_input
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import count, shell_quote, visible
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_RECORD
from attn_cli.settings.output import ALL_KEYS, View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.batch.inputs import Input
    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Feed
    from attn_cli.batch.parts import AnyRun

DEFAULT_FIELDS = "query_tokens,key_tokens,weights,summary"
ONE_MACHINE, DASK = "local", "dask"
CONNECT_TIMEOUT = 30.0  # seconds to wait for a scheduler
SHORTEST, LONGEST = 0.1, 86_400


class Asked(NamedTuple):
    """What was asked for, beside the settings and the view."""

    files: Sequence[str]
    kind: str
    keep_going: bool
    form: str | None
    workers: int | None
    force: bool
    engine: str
    scheduler: str | None
    connect_timeout: float | None


def run_batch(asked: Asked, settings: Settings, view: View) -> tuple[int, int]:
    """Do what was asked; return how many lines there were, and how many of them were refused."""
    is_folder = _is_folder(view)
    view, form = _with_form(
        replace(view, fields=view.fields or default_fields(settings, view)), asked, is_folder
    )
    _check(asked, settings, is_folder)
    if asked.engine == DASK:
        return _on_cluster(asked, settings, view, form)
    # Progress must be seen, and must not stand between the records on one terminal.
    is_seen = not view.to_standard_output or sys.stdout is None or not sys.stdout.isatty()
    files = _files(asked.files)
    with _opened(files) as feed:
        prepare_index(settings.embedding, "random, ")
        from attn_cli.batch.run import Run  # NumPy is loaded once there is something to compute
        from attn_cli.batch.workers import default_workers

        run = Run(
            _job(asked, settings, view, form, bool(files)), feed, asked.workers or default_workers(), files
        )
        with Progress("Attending", is_seen) as progress:
            if is_folder:
                _into_folder(run, str(view.output), asked.force, progress)
            else:
                with byte_stream(view) as stream:
                    run.write(stream, lambda lines: progress.rate(lines, "lines", run.done))
    return run.lines, run.refused


def _on_cluster(asked: Asked, settings: Settings, view: View, form: str) -> tuple[int, int]:
    """Let a cluster write the parts of a folder."""
    files = _files(asked.files)
    prepare_index(settings.embedding, "random, ")
    from attn_cli.batch.cluster import Cluster  # NumPy and Dask are loaded once there is something to compute
    from attn_cli.batch.cluster_run import ClusterRun
    from attn_cli.batch.compute import Computer
    from attn_cli.batch.folder import tidy
    from attn_cli.batch.workers import default_workers

    job = _job(asked, settings, view, form, True)
    with Computer(job):  # what would be wrong with every line is said before anything is started
        pass
    timeout = CONNECT_TIMEOUT if asked.connect_timeout is None else asked.connect_timeout
    try:
        with (
            Cluster(asked.workers or default_workers(), asked.scheduler, timeout) as cluster,
            Progress("Attending") as progress,
        ):
            run = ClusterRun(job, files, cluster)
            _into_folder(run, str(view.output), asked.force, progress)
    finally:
        tidy(str(view.output))
    return run.lines, run.refused


def _into_folder(run: AnyRun, output: str, force: bool, progress: Progress) -> None:
    """Write parts into a folder, or go on where a run that was ended has left off."""
    from attn_cli.batch.folder import folder_of
    from attn_cli.batch.parts import check_inputs, open_run
    from attn_cli.io.console import say

    folder = folder_of(output)
    check_inputs(folder, run.files)
    with folder.locked():
        manifest = open_run(folder, run, force)
        done = f"{count(manifest.lines, 'line', 'lines')} in {count(len(manifest.parts), 'part', 'parts')}"
        if manifest.complete:
            bad = f", {manifest.refused:,} of them refused" if manifest.refused else ""
            say(f"attn: {folder.name} is complete: {done}{bad}. --force writes it anew.")
            return
        if manifest.parts:
            say(f"attn: {folder.name} has {done}: going on.")
        run.write_parts(folder, manifest, lambda lines: progress.rate(lines, "lines", run.done))


# What is asked for


def default_fields(settings: Settings, view: View) -> str:
    """Return the fields where none are asked for: all with --steps; links, not weights, with --top."""
    if view.steps:
        return ALL_KEYS
    return DEFAULT_FIELDS if settings.top is None else DEFAULT_FIELDS.replace("weights", "links")


def _check(asked: Asked, settings: Settings, is_folder: bool) -> None:
    """Refuse options that do not go together."""
    is_on_cluster = asked.engine == DASK
    if asked.force and not is_folder:
        raise UsageError("--force goes with -o DIR/, a folder of parts.", option="--force")
    if is_on_cluster and not is_folder:
        raise UsageError("--engine dask writes a folder of parts.", "Give one: -o DIR/", "--output")
    if is_folder and "-" in (asked.files or "-"):
        raise UsageError(
            "A run into a folder reads a file, which it can read again: a pipe cannot be continued.",
            "Give a file, or write to one.",
            "--output",
        )
    if "-" in asked.files and len(asked.files) > 1:
        raise UsageError("Standard input (-) cannot be read beside files.", "Give - alone, or files.")
    if asked.connect_timeout is not None and not SHORTEST <= asked.connect_timeout <= LONGEST:
        raise UsageError(
            f"--connect-timeout cannot be {asked.connect_timeout:g}.",
            f"Give seconds from {SHORTEST:g} to {LONGEST:,}.",
            "--connect-timeout",
        )
    if asked.scheduler is None:
        if asked.connect_timeout is not None:
            raise UsageError("--connect-timeout goes with --scheduler.", option="--connect-timeout")
        return
    if not is_on_cluster:
        raise UsageError("--scheduler goes with --engine dask.", option="--scheduler")
    if asked.workers is not None:
        raise UsageError(
            "--workers is for a cluster of this machine: a scheduler has its own.", option="--workers"
        )
    for path in (settings.embedding, settings.projection, settings.mask, settings.model):
        if path is not None and os.path.exists(path) and not os.path.isabs(path):
            raise UsageError(
                f"The workers of a scheduler may be in another folder: {visible(path)} is not the same there.",
                f"Give the whole path: {shell_quote(os.path.abspath(path))}",
            )


def _is_folder(view: View) -> bool:
    """Tell whether the output is a folder of parts."""
    output = str(view.output or "")
    return not view.to_standard_output and (output.endswith(("/", os.sep)) or os.path.isdir(output))


def _with_form(view: View, asked: Asked, is_folder: bool) -> tuple[View, str]:
    """Return the view, and the form that is asked for by -f, or by a file's suffix.

    UsageError for one that there is not, that does not fit the output, or where the input would be replaced.
    """
    from attn_cli.batch.forms import FORMS, form_of

    name = asked.form
    output = "" if view.to_standard_output else str(view.output)
    form = name or form_of(output) or "jsonl"
    if "://" in output and not is_folder:
        raise UsageError(f"{visible(output)} is one file.", "Give a folder: a URL that ends in /", "--output")
    if output and not is_folder and view.to_ordinary_file:
        suffix = form_of(output)
        form = name or suffix or str(with_format(View(output=output), OF_RECORD).format)
        if suffix is not None and suffix != form and form in FORMS:
            raise UsageError(
                f"{visible(output)} cannot hold {form}.", "Leave out -f, or give another suffix.", "--output"
            )
    _check_form(form, name, output, is_folder)
    for file in asked.files or ("-",):
        if os.path.exists(file) and os.path.exists(output) and os.path.samefile(file, output):
            raise UsageError(
                f"{visible(file)} is the file that is read: it would be replaced.",
                "Write to another.",
                "--output",
            )
    check_fields(replace(view, format="jsonl"), asked.kind)
    return view, form


def _check_form(form: str, name: str | None, output: str, is_folder: bool) -> None:
    """Refuse a form that there is not, or that its output cannot take."""
    from attn_cli.batch.forms import FORMS

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
    if form != "jsonl" and not output and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(f"-f {form} is not text.", f"Write it to a file: -o records.{form}", "--format")


# The input


def _files(names: Sequence[str]) -> list[Input]:
    """Return the files that are read; none for standard input."""
    if not names or names == ["-"]:
        return []
    from attn_cli.batch.inputs import inputs_of

    return inputs_of(names)


@contextmanager
def _opened(files: Sequence[Input]) -> Iterator[Feed]:
    """Open files, packed or not, or standard input."""
    from attn_cli.batch.lines import Feed, Source, open_feed

    if files:
        with open_feed(files) as feed:
            yield feed
        return
    wait_for_input()
    assert sys.stdin is not None  # there is a text
    yield Feed([Source(sys.stdin.buffer, sys.stdin.buffer, "standard input")])


def check_text(files: Sequence[str]) -> None:
    """Raise NoText where there is nothing to read: no file, and a terminal."""
    if files in ([], ["-"]) and (sys.stdin is None or (not files and sys.stdin.isatty())):
        raise NoText("batch")


def _job(asked: Asked, settings: Settings, view: View, form: str, is_whole: bool) -> Job:
    """Return what is to be done with every line."""
    from attn_cli.batch.forms import FORMS
    from attn_cli.batch.job import Job
    from attn_cli.render.formats.json import keys_in, needs_weights
    from attn_cli.trace.trace import KEYS, OF_STEPS

    kind = asked.kind
    keys = keys_in(view, kind) or tuple(key for key in KEYS if view.steps or key not in OF_STEPS)
    if FORMS[form].has_extra:
        from attn_cli.batch.tables import columns_of  # only those who ask for columns need pyarrow

        if FORMS[form].pack is None:
            keys = columns_of(keys, keys_in(view, kind) is None)
    ascii_only = not view.terminal().unicode
    keep_weights = needs_weights(view, kind)
    return Job(kind, settings, keys, view.steps, asked.keep_going, form, ascii_only, keep_weights, is_whole)
