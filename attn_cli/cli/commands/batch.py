"""attn batch: lines in, JSON Lines out, in order and in constant memory; or a folder of parts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from attn_cli.batch import Job, storage
from attn_cli.cli import deliver, read_text
from attn_cli.cli.options import SETTINGS, argument, option, own, takes
from attn_cli.core.threads import processors
from attn_cli.errors import InputError, UsageError, count, did_you_mean, refuse, shell_quote, visible
from attn_cli.io.console import is_terminal
from attn_cli.io.progress import Progress
from attn_cli.io.types import replace
from attn_cli.render.result import OF_RECORD, keys_in, needs_weights
from attn_cli.settings import ALL, Settings, View, declare
from attn_cli.settings.output import ALL_KEYS, names_of

if TYPE_CHECKING:
    from attn_cli.batch.run import Engine, LinesReport

DEFAULT_FIELDS = "query_tokens,key_tokens,weights,summary"
OF_HEADS = ",heads.layer,heads.name,heads.weights"  # of several
SEPARATED = ("csv", "tsv")  # forms that hold links alone
DASK = "dask"
CONNECT_TIMEOUT = 30.0  # seconds to wait for a scheduler
SHORTEST, LONGEST = 0.1, 86_400
MOST_WORKERS = 256
FILES_HELP = "A text a line: plain, .gz or .xz, or a URL; - is standard input."
KIND_HELP = (
    "Which attention; masked has the heads of roles here. For cross a line is TEXT, a tab, CONTEXT; pair is self of "
    "two texts in one sequence, TEXT, a tab, TEXT (with --model)."
)
GOING_HELP = "Write an error object for a bad line, and go on."
FORM_HELP = "jsonl, csv or tsv, or for a file: jsonl.gz, jsonl.zst, parquet, arrow, or npz (into a folder)."
WORKERS_HELP = "Processes that compute; the output does not depend on it.  [default: one per processor]"
ENGINE_HELP = "What computes the parts of -o DIR/: this program, or Dask."
ADDRESS_HELP = "Address of a Dask scheduler, as tcp://host:8786.  [default: start a local cluster]"
TIMEOUT_HELP = f"How long to wait for the scheduler to answer.  [default: {CONNECT_TIMEOUT:g}]"
FIELDS_HELP = (
    f"Only these keys of the JSON, or all.  [default: {DEFAULT_FIELDS}; with --top links, not weights]"
)
Fields = Annotated[str | None, option(SETTINGS["fields"], FIELDS_HELP)]
Kind = Literal["self", "masked", "cross", "pair"]


class Asked(NamedTuple):
    """What was asked for, beside the settings and the view."""

    files: Sequence[str]
    kind: str
    form: str | None
    workers: int | None
    engine: str
    scheduler: str | None
    seconds: float | None
    force: bool
    output: str  # the file or folder; nothing for standard output

    @property
    def is_folder(self) -> bool:
        """Whether parts are written into a folder."""
        return self.output.endswith(("/", os.sep)) or os.path.isdir(self.output)


@takes("TOKENS VECTORS model MODEL COMPUTED PLACED ROWS next next_at output tidy steps by_hand")
def batch(
    settings: Settings,
    view: View,
    files: list[str] | None = argument("[FILE]...", FILES_HELP, default=None),
    kind: Kind = own("", KIND_HELP, declare.ATTENTION, default="self"),
    keep_going: bool = own("", GOING_HELP, declare.OUTPUT, "--keep-going", default=False),
    written_as: str | None = own("FORM", FORM_HELP, declare.OUTPUT, "--format", "-f"),
    workers: int | None = own("N", WORKERS_HELP, declare.OUTPUT, min=1, max=MOST_WORKERS, show_default=False),
    engine: Literal["local", "dask"] = own("", ENGINE_HELP, declare.OUTPUT, default="local"),
    scheduler: str | None = own("ADDRESS", ADDRESS_HELP, declare.OUTPUT),
    connect_timeout: float | None = own("SECONDS", TIMEOUT_HELP, declare.OUTPUT),
    force: bool = own("", "Start a run into a folder anew.", declare.OUTPUT, "--force", default=False),
    fields: Fields = None,
) -> None:
    """One text per line in, one JSON record per line out, in the same order.

    Each record has the numbers that attn self (or masked -p roles, or cross) prints for the line with -f jsonl. The
    first bad line ends the run; with --keep-going an error object stands in its place, and the exit code is 65.

    Example: attn batch sentences.txt | jq -c .summary
    """
    files = files or []
    if kind == "pair":
        kind, settings = "self", replace(settings, pair="")  # each line brings its own
    if files in ([], ["-"]) and (sys.stdin is None or (not files and sys.stdin.isatty())):
        raise read_text.NoText("batch")
    chosen = fields
    if fields is None:  # all with --steps; links, not weights, with --top
        usual = DEFAULT_FIELDS + OF_HEADS * (ALL in (settings.head, settings.layer))
        usual = usual if settings.top is None else usual.replace("weights", "links")
        fields = ALL_KEYS if view.steps else usual
    view = replace(view, fields=fields)
    output = "" if view.to_standard_output else str(view.output)
    asked = Asked(files, kind, written_as, workers, engine, scheduler, connect_timeout, force, output)
    form = _form(view, asked)
    view = replace(view, tidy=view.tidy or form in SEPARATED)
    hint = "Leave it out: a table of links always has the same columns."
    for name, is_given in (("--fields", chosen is not None), ("--steps", view.steps)):
        refuse(view.tidy and is_given, f"{name} does not apply to rows of links.", hint, name)
    _check(asked, settings)
    lines, refused = _run(asked, settings, view, form, keep_going)
    if refused:
        said = f"{refused:,} of {count(lines, 'line', 'lines')} {'was' if refused == 1 else 'were'} refused."
        raise InputError(said, "An error object stands in the place of each.")


def _form(view: View, asked: Asked) -> str:
    """Return the form that -f or the file's suffix asks for; UsageError for one that is not there or does not fit."""
    from attn_cli.batch.forms import FORMS, form_of

    output, is_folder = asked.output, asked.is_folder
    name, suffix = visible(output), form_of(output)
    form = asked.form or suffix or "jsonl"
    is_url = "://" in output and not is_folder
    refuse(is_url, f"{name} is one file.", "Give a folder: a URL that ends in /", "--output")
    if output and not is_folder and view.to_ordinary_file:
        form = asked.form or suffix or str(deliver.with_format(View(output=output), OF_RECORD).format)
        is_another = suffix is not None and suffix != form and form in FORMS
        hint = "Leave out -f, or give another suffix."
        refuse(is_another, f"{name} cannot hold {form}.", hint, "--output")
    if form not in FORMS:
        said = f"attn batch has no {visible(form)} form" + (f" for {name}." if output else ".")
        known = f"Its forms are {', '.join(FORMS)}; -f names one, or the suffix of -o."
        option = "--output" if asked.form is None else "--format"
        raise UsageError(said, f"{did_you_mean(form, FORMS)}{known}", option)
    said = f"{form} is written in parts, each of which is held in memory."
    refuse(FORMS[form].is_whole and not is_folder, said, "Give a folder: -o DIR/", "--output")
    is_shown = not output and is_terminal(sys.stdout)
    hint = f"Write it to a file: -o records.{form}"
    refuse(is_shown and not FORMS[form].is_text, f"-f {form} is not text.", hint, "--format")
    tables = ", ".join(name for name, one in FORMS.items() if one.is_table)
    hint = f"Give a file, or -f: {tables}."
    refuse(view.tidy and not FORMS[form].is_table, "--tidy requires a table.", hint, "--tidy")
    for file in asked.files or ("-",):
        is_same = os.path.exists(file) and os.path.exists(output) and os.path.samefile(file, output)
        said = f"{visible(file)} is the file that is read: it would be replaced."
        refuse(is_same, said, "Write to another.", "--output")
    deliver.check_fields(replace(view, format="jsonl", tidy=False), asked.kind)
    return form


def _check(asked: Asked, settings: Settings) -> None:
    is_dask, has_scheduler, is_folder = asked.engine == DASK, asked.scheduler is not None, asked.is_folder
    own_workers = "--workers is for a cluster of this machine: a scheduler has its own."
    no_pipe = "A run into a folder must be able to reread its input to resume, and a pipe cannot be reread."
    file = "Give a file, or write to one."
    dash = "Standard input (-) cannot be read beside files."
    refuse(asked.force and not is_folder, "--force requires -o DIR/, a folder of parts.", "", "--force")
    no_folder = "--engine dask writes a folder of parts."
    refuse(is_dask and not is_folder, no_folder, "Give one: -o DIR/", "--output")
    refuse(is_folder and "-" in (asked.files or "-"), no_pipe, file, "--output")
    refuse("-" in asked.files and len(asked.files) > 1, dash, "Give - alone, or files.")
    if asked.seconds is not None:
        said = f"--connect-timeout cannot be {asked.seconds:g}."
        hint = f"Give seconds from {SHORTEST:g} to {LONGEST:,}."
        refuse(not SHORTEST <= asked.seconds <= LONGEST, said, hint, "--connect-timeout")
        refuse(not has_scheduler, "--connect-timeout requires --scheduler.", "", "--connect-timeout")
    if has_scheduler:
        refuse(not is_dask, "--scheduler requires --engine dask.", "", "--scheduler")
        refuse(asked.workers is not None, own_workers, "", "--workers")
        for path in (settings.embedding, settings.projection, settings.mask, settings.model):
            is_relative = path is not None and os.path.exists(path) and not os.path.isabs(path)
            name, whole = visible(str(path)), shell_quote(os.path.abspath(str(path)))
            said = f"The workers of a scheduler may be in another folder: {name} is not the same there."
            refuse(is_relative, said, f"Give the whole path: {whole}")


def _run(asked: Asked, settings: Settings, view: View, form: str, keep_going: bool) -> tuple[int, int]:
    inputs: list[storage.Input] = []  # none for standard input
    if asked.files and asked.files != ["-"]:
        inputs = storage.inputs_of(asked.files)
    else:
        read_text.wait_for_input()
    read_text.prepare_index(settings.embedding, "random, ")
    job = _job(asked.kind, settings, view, form, keep_going, bool(inputs))
    if asked.is_folder:
        return _into_folder(asked, job, inputs)
    from attn_cli.batch.run import write_stream  # NumPy is loaded once there is something to compute

    # Progress must be seen, and must not stand between the records on one terminal.
    is_seen = bool(asked.output) or not is_terminal(sys.stdout)
    with Progress("Attending", is_seen) as progress, deliver.byte_stream(view) as stream:
        return write_stream(job, inputs, asked.workers or processors(), stream, _shown(progress))


def _shown(progress: Progress) -> LinesReport:
    return lambda lines, share: progress.rate(lines, "lines", share)


def _job(kind: str, settings: Settings, view: View, form: str, keep_going: bool, is_whole: bool) -> Job:
    from attn_cli.batch import forms, records

    if view.tidy:
        keys = records.keys_of_links(settings)
    else:
        keys = tuple(names_of(forms.keys_of_form(form, keys_in(view, kind), view.steps)))
    ascii_only, keep_weights = not view.terminal().unicode, needs_weights(view, kind)
    return Job(
        kind, settings, keys, view.steps, keep_going, form, view.tidy, ascii_only, keep_weights, is_whole
    )


def _into_folder(asked: Asked, job: Job, files: Sequence[storage.Input]) -> tuple[int, int]:
    from attn_cli.batch.folder import absolute, folder_of  # loads NumPy
    from attn_cli.batch.run import write_folder

    workers, folder = asked.workers or processors(), folder_of(asked.output)
    with ExitStack() as closing:
        if asked.engine == DASK:
            from attn_cli.batch.cluster import Dask
            from attn_cli.batch.compute import Computer

            with Computer(job):  # what would be wrong with every line is said before anything is started
                files = [file._replace(path=absolute(file.path)) for file in files]
            closing.callback(folder.tidy)  # of what its workers were writing when they were ended
            dask = Dask(workers, asked.scheduler, asked.seconds or CONNECT_TIMEOUT)
            engine: Engine = closing.enter_context(dask)
        else:
            from attn_cli.batch.workers import Local

            engine = Local(workers)
        progress = closing.enter_context(Progress("Attending"))
        return write_folder(job, files, folder, engine, asked.force, _shown(progress))
