"""Write a command's result: choose the format, render, send it to a file or to standard output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.console import put_plain
from attn_cli.io.escape import shell_quote, visible
from attn_cli.io.pager import put_screen
from attn_cli.io.progress import Progress
from attn_cli.settings.output import View

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render.blocks import Block
    from attn_cli.settings.settings import Settings
    from attn_cli.trace.steps import Walk
    from attn_cli.trace.trace import Trace

LEAST_ROOM = 20  # characters of the last column of a table of text
STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
ON_TERMINALS = ("table", "bars")  # what people read there; the other formats are for files and programs
# Blocks of any kind, or a record.
BLOCK_FORMS = ("table", "json", "jsonl", "markdown", "latex", "html", "svg")


def choose_format(
    view: View,
    settings: Settings | None = None,
    kind: str = "self",
    added: tuple[str, ...] = (),
    figures: bool = True,
) -> View:
    """Return the view with its format: the one given, else the output file's suffix, else a table.

    What a format cannot do is refused here, before minutes of work, and so are keys (--fields) that JSON of this
    `kind` does not have; `added` are those that another option adds. A figure has the format svg and says in
    `View.figure` what it draws; without `figures` there are none.
    """
    from attn_cli.render import DRAWN, SUFFIXES

    if view.output in STANDARD_OUTPUT:
        view = replace(view, output="-")
    if figures and (view.output or view.figure or view.dpi or view.size or view.title is not None):
        from attn_cli.cli.figures import choose_figure  # a screen needs none of it

        view = choose_figure(view)
    chosen, as_bars = "svg" if view.figure else view.format, False
    if not to_standard_output(view):
        path = str(view.output)
        suffix = os.path.splitext(path)[1].lower()
        if is_ordinary(path) and not view.figure:
            _check_suffix(chosen, suffix, path, figures)
        if chosen is None:
            chosen = SUFFIXES.get(suffix)
        elif chosen in ON_TERMINALS and suffix in DRAWN:
            as_bars = chosen == "bars"
            chosen = SUFFIXES[suffix]
    if view.tidy and (chosen or "table") not in ("csv", "tsv"):
        raise UsageError("--tidy goes with -f csv or -f tsv.", option="--tidy")
    if view.fields is not None:
        _check_fields(view.fields, chosen or "table", kind, added)
    if chosen == "npy" and settings is not None:
        _check_npy(settings, view)
    if chosen == "page" and to_standard_output(view) and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("A page is for a browser.", "Write it to a file: -o page.html", "--format")
    return replace(view, format=chosen or "table", as_bars=as_bars)


def refuse_figure(view: View, what: str) -> None:
    """Refuse a figure of what has none."""
    if view.figure is not None:
        raise UsageError(
            f"{what} has no figure.", "Leave out --figure, or write a file that is no picture.", "--figure"
        )


def for_view(settings: Settings, view: View) -> Settings:
    """Return the settings that the view needs: every head where its reader chooses among them, a figure's rows."""
    if view.format == "page":
        return replace(settings, every_head=True)
    if view.figure is None:
        return settings
    from attn_cli.cli.figures import settings_of_figure  # a screen needs none of it

    return settings_of_figure(settings, view)


def _check_suffix(format: str | None, suffix: str, path: str, figures: bool = False) -> None:
    """Refuse a file whose suffix stands for no format, or for another one than -f."""
    from attn_cli.render import PICTURES, SUFFIXES, WRITERS, fits

    known = list(dict.fromkeys([*SUFFIXES, *(PICTURES if figures else ())]))
    if format is None:
        if suffix not in SUFFIXES:
            raise UsageError(
                f"No format is known by the suffix of {visible(path)!r}.",
                f"{did_you_mean(suffix, known)}Use {' '.join(known)}, or choose one with -f.",
                "--output",
            )
    elif not fits(format, suffix):
        right = (*WRITERS[format].suffixes, *WRITERS[format].also)[0]
        other = f", or leave out -f for {SUFFIXES.get(suffix, 'a figure')}" if suffix in known else ""
        raise UsageError(
            f"{visible(path)!r} cannot hold {format}.",
            f"Type -o {shell_quote(path.removesuffix(path[-len(suffix) :]) + right)}{other}.",
            "--output",
        )


def _check_fields(fields: str, format: str, kind: str, added: tuple[str, ...]) -> None:
    from attn_cli.settings.output import chosen_keys  # only those who choose keys need them

    if format not in ("json", "jsonl"):
        raise UsageError("--fields goes with -f json or -f jsonl.", option="--fields")
    chosen_keys(fields, kind, added)


def choose_form(view: View, command: str, figures: bool = False) -> View:
    """Return the view with its format, one of BLOCK_FORMS."""
    view = choose_format(view, figures=figures)
    if view.as_bars or view.format not in BLOCK_FORMS:
        hint = f"Use -f {', '.join(BLOCK_FORMS)}."
        form = "bars" if view.as_bars else view.format
        raise UsageError(f"{command} has no {form} form.", hint, "--format")
    return view


def record_view(format: str | None, output: str | None) -> View:
    """Return the view of a small record: table, json or jsonl."""
    view = choose_format(View(format=format, output=output), figures=False)
    if view.format not in ("table", "json", "jsonl"):
        raise UsageError(
            f"This command has no {view.format} form" + (f" for {visible(output)}." if output else "."),
            "Use -f table, json or jsonl.",
            "--format",
        )
    return view


def _check_npy(settings: Settings, view: View) -> None:
    from attn_cli.render.formats.weights import check

    check(settings)
    if to_standard_output(view) and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("-f npy is not text.", "Write it to a file: -o weights.npy", "--format")


def to_standard_output(view: View) -> bool:
    """Tell whether the result goes to standard output."""
    return view.output in (None, "-")


def is_ordinary(path: str) -> bool:
    """Tell whether a path is that of a file, existing or new: no device and no pipe."""
    return not os.path.exists(path) or os.path.isfile(path)


def terminal_for(view: View) -> Terminal:
    """Return the terminal that the view's output goes to."""
    from attn_cli.io.terminal import detect

    stream = sys.stdout if to_standard_output(view) else None
    return detect(os.environ, stream, view.color, view.width)


def with_width(view: View) -> View:
    """Return the view with the width of its terminal."""
    return replace(view, width=terminal_for(view).width)


def show(
    trace: Trace, view: View, walk: Walk | None = None, pause: bool = False, texts: Sequence[str] = ()
) -> None:
    """Render a trace and write it out, waiting for a key before each part if wanted; remarks go to standard error.

    A page names the command that makes it from `texts`, the text and its context as they were typed.
    """
    from attn_cli.io.console import say
    from attn_cli.render import render
    from attn_cli.render.views.closing import talk

    if trace.settings.versus is not None and walk is None and not trace.asked:
        hint = "Name the row that looks: -q WORD."
        raise UsageError("--versus goes with -q, or with attn explain.", hint, "--versus")
    if not trace.is_scored:
        trace, view = _without_scores(trace, view, walk)
    if pause:
        from attn_cli.cli.present import present
        from attn_cli.render import trace_blocks

        present(lambda view: trace_blocks(trace, view, walk), view)
        return
    if view.figure is not None:
        from attn_cli.cli.figures import deliver_figure  # those who ask for a figure need it

        deliver_figure(trace, view)
        return
    if view.format == "npy":
        _deliver_npy(trace, view)
        return
    if view.format == "page" and texts:
        from attn_cli.pipeline.for_page import Page

        show_page(Page([trace], text=texts[0], context=texts[1] if len(texts) > 1 else None), view)
        return
    terminal = terminal_for(view)
    deliver(render(trace, replace(view, width=terminal.width), terminal, walk), view)
    if view.format in ("csv", "tsv"):
        for line in talk(trace):
            say(f"attn: {line}")
        if view.steps or walk is not None:
            say("attn: csv and tsv hold the weights alone; the steps show in table, markdown and json.")


def _without_scores(trace: Trace, view: View, walk: Walk | None) -> tuple[Trace, View]:
    """Return what can be shown of weights that have no scores; refuse what is about scores alone."""
    from attn_cli.render.views.wording import no_arithmetic

    what, hint = no_arithmetic(trace)
    if (view.format or "").startswith("code:"):
        held = "here are" if trace.kind != "show" else f"{trace.embedding.name} holds"
        raise UsageError(
            f"-f {view.format} needs queries, keys and values; {held} weights alone.", hint, "--format"
        )
    if walk is not None and walk.only:
        raise UsageError(what, hint)
    if trace.settings.versus is not None:
        raise UsageError(what, hint, "--versus")
    if view.steps and walk is None:
        came = "came ready" if trace.kind == "show" else "were made of others"
        note = f"There are no steps to show: the weights {came}."
        trace, view = replace(trace, notes=(*trace.notes, note)), replace(view, steps=False)
    return trace, view


def show_page(page: Page, view: View) -> None:
    """Write an interactive page."""
    from attn_cli.render import portable
    from attn_cli.render.page import page as written_page

    deliver(portable(written_page(page), terminal_for(view)), view)


def _deliver_npy(trace: Trace, view: View) -> None:
    """Write the weights as a NumPy file; a terminal cannot take it."""
    from attn_cli.io.console import put_bytes, say
    from attn_cli.pipeline.notes import kept_note
    from attn_cli.render.formats.weights import npy
    from attn_cli.render.views.closing import talk

    with Progress("Writing") as progress:
        parts = npy(trace, progress)
        if to_standard_output(view):
            put_bytes(parts)
        else:
            from attn_cli.io.atomic import written

            with written(str(view.output)) as stream:
                for part in parts:
                    stream.write(part)
    for line in talk(trace):
        if line != kept_note(len(trace.query_tokens), len(trace.key_tokens)):  # here all are written
            say(f"attn: {line}")
    if view.steps:
        say("attn: npy holds the weights alone; the steps show in table, markdown and json.")


def deliver(text: str, view: View) -> None:
    """Write text to the view's file, all or nothing, or to standard output; a long screen goes through the pager."""
    if view.format in ON_TERMINALS and view.output is None:
        put_screen(text)
        return
    with writer(view) as write:
        write(text)


@contextmanager
def writer(view: View) -> Iterator[Callable[[str], object]]:
    """Give the function that writes text: to standard output at once, or to a file that holds all or nothing."""
    if to_standard_output(view):
        yield put_plain
        return
    from attn_cli.io.atomic import written

    with written(str(view.output)) as stream:
        yield lambda text: stream.write(text.encode("utf-8", "backslashreplace"))


class _StandardOutput(io.RawIOBase):
    """Standard output as a stream of bytes, each write of which is complete when it returns."""

    def __init__(self) -> None:
        self.done = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.done

    def write(self, data: Any, /) -> int:
        from attn_cli.io.console import put_bytes

        put_bytes([data])
        self.done += len(data)
        return len(data)


@contextmanager
def byte_stream(view: View) -> Iterator[IO[bytes]]:
    """Give a stream of bytes, as `writer` does for text."""
    if to_standard_output(view):
        yield cast("IO[bytes]", _StandardOutput())
        return
    from attn_cli.io.atomic import written

    with written(str(view.output)) as stream:
        yield stream


def deliver_json(record: dict[str, object], view: View) -> None:
    """Write a record, or what --fields chooses of it, as JSON, in ASCII where the terminal has nothing else."""
    from attn_cli.io.json_text import dumps
    from attn_cli.render import keys_in

    if (keys := keys_in(view, str(record["kind"]))) is not None:
        record = {key: record.get(key) for key in keys}

    deliver(dumps(record, view.format == "jsonl", not terminal_for(view).unicode), view)


def deliver_record(kind: str, record: Mapping[str, object], view: View, text: Callable[[], str]) -> None:
    """Write a small record as JSON, or as the text of its table."""
    if view.format == "table":
        deliver(text(), view)
    else:
        deliver_json({"schema": "attn/1", "kind": kind, **record}, view)


def deliver_blocks(blocks: Iterable[Block], view: View) -> None:
    """Write blocks in the view's format."""
    from attn_cli.render import render_blocks

    terminal = terminal_for(view)
    deliver(render_blocks(blocks, replace(view, width=terminal.width), terminal), view)


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = (), width: int | None = None) -> str:
    """Return rows as lines of columns, two spaces apart; those numbered in `right` are right-aligned.

    Where the lines would be wider than `width`, the last column shows the ends of its texts, as of paths.

    >>> print(aligned([("word", "n"), ("cat", "12")], right=(1,)), end="")
    word   n
    cat   12
    """
    table = [[visible(cell) for cell in row] for row in rows]
    if not table:
        return ""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = widths[-1]
    if width is not None:
        room = max(LEAST_ROOM, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    lines = []
    for *cells, last in table:
        if len(last) > room:
            last = f"…{last[1 - room :]}"
        cells.append(last)
        padded = [
            cell.rjust(size) if n in right else cell.ljust(size)
            for n, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)
