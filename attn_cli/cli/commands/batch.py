"""attn batch: lines in, JSON Lines out, in order and in constant memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import typer

from attn_cli.cli.batch_run import CONNECT_TIMEOUT, DEFAULT_FIELDS, BatchOptions, check_text, run_batch
from attn_cli.cli.options import OF_FIGURES, SETTINGS, argument, option, own, without
from attn_cli.errors import InputError
from attn_cli.io.escape import count
from attn_cli.settings.declare import ATTENTION, OUTPUT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

MOST_WORKERS = 256
FIELDS_HELP = (
    f"Only these keys of the JSON, or all.  [default: {DEFAULT_FIELDS}; with --top links, not weights]"
)
written = partial(typer.Option, rich_help_panel=OUTPUT)
of_output = partial(own, group=OUTPUT)

Files = Annotated[
    list[str] | None,
    argument("[FILE]...", "A text a line: plain, .gz or .xz, or a URL; - is standard input."),
]
Kind = Annotated[
    Literal["self", "masked", "cross"],
    written(help="Which attention; for cross a line is TEXT, a tab, CONTEXT.", rich_help_panel=ATTENTION),
]
KeepGoing = Annotated[bool, written("--keep-going", help="Write an error object for a bad line, and go on.")]
FORM_HELP = "JSON Lines, or for a file: jsonl.gz, jsonl.zst, parquet, arrow, or npz (into a folder)."
Form = Annotated[str | None, of_output("FORM", FORM_HELP, "--format", "-f")]
WORKERS_HELP = "Processes that compute; the output does not depend on it.  [default: one per processor]"
Workers = Annotated[
    int | None, written(metavar="N", min=1, max=MOST_WORKERS, help=WORKERS_HELP, show_default=False)
]
Engine = Annotated[
    Literal["local", "dask"], written(help="What computes the parts of -o DIR/: this program, or Dask.")
]
ADDRESS_HELP = "Address of a Dask scheduler, as tcp://host:8786.  [default: start a local cluster]"
TIMEOUT_HELP = f"How long to wait for the scheduler to answer.  [default: {CONNECT_TIMEOUT:g}]"
Scheduler = Annotated[str | None, of_output("ADDRESS", ADDRESS_HELP)]
ConnectTimeout = Annotated[float | None, of_output("SECONDS", TIMEOUT_HELP)]
Force = Annotated[bool, written("--force", help="Start a run into a folder anew.")]


@without("format", "fields", "tidy", "precision", "color", "palette", "shades", "width", *OF_FIGURES)
def batch(
    files: Files = None,
    kind: Kind = "self",
    keep_going: KeepGoing = False,
    written_as: Form = None,
    workers: Workers = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    connect_timeout: ConnectTimeout = None,
    force: Force = False,
    fields: Annotated[str | None, option(SETTINGS["fields"], FIELDS_HELP)] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """One text per line in, one JSON record per line out, in the same order.

    Each record has the numbers that attn self (or masked, or cross) prints for the line with -f jsonl. The first bad
    line ends the run; with --keep-going an error object stands in its place, and the exit code is 65.

    Example: attn batch sentences.txt | jq -c .summary
    """
    check_text(files or [])
    asked = BatchOptions(
        files or [], kind, keep_going, written_as, workers, force, engine, scheduler, connect_timeout
    )
    lines, refused = run_batch(asked, settings, replace(view, fields=fields))
    if refused:
        raise InputError(
            f"{refused:,} of {count(lines, 'line', 'lines')} {'was' if refused == 1 else 'were'} refused.",
            "An error object stands in the place of each.",
        )
