"""The one way out: choose the format before the work, and write the result after it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeAlias, cast

from attn_cli.errors import UsageError, did_you_mean, refuse, shell_quote, visible
from attn_cli.io.console import is_terminal, put_bytes, put_plain, put_screen, say
from attn_cli.io.types import replace
from attn_cli.render.formats import DRAWN, FORMATS, fits, formats, is_given, suffixes, write
from attn_cli.render.result import Result
from attn_cli.settings import Settings, View, output

Names: TypeAlias = Collection[str]


def choose(
    view: View, can: Names, what: str = "This command", kind: str = "self", figures: Sequence[str] = ()
) -> View:
    """Return the view with its format: the one given, else the output file's suffix, else a table.

    `can` is what the result will have for a format, or formats themselves. What cannot be done is refused here, before
    minutes of work, and so are keys (--fields) that JSON of this `kind` does not have, or only with another option than
    `what`. A figure has the format svg and says in `View.figure` what it draws, of `figures` one.
    """
    view = with_format(view, can)
    is_matrix = view.figure is not None or not FORMATS[str(view.format)].is_tidy
    known = " or ".join(f"-f {name}" for name, one in FORMATS.items() if one.is_tidy)
    refuse(view.tidy and is_matrix, f"--tidy requires {known}.", option="--tidy")
    if view.fields is not None:
        check_fields(view, kind, what)
    name, figure = "bars" if view.as_bars else str(view.format), view.figure
    hint = "Leave out --figure, or write a file that is not a picture."
    refuse(figure is not None and "drawing" not in can, f"{what} has no figure.", hint, "--figure")
    if figure is not None and figures and figure not in figures:
        hint = f"--figure {figures[0]} is its own."
        raise UsageError(f"{what} has no figure of {figure}.", hint, "--figure")
    hint = f"Use -f {', '.join(one for one in formats() if is_given(one, can))}."
    refuse(figure is None and not is_given(name, can), f"{what} has no {name} form.", hint, "--format")
    refusal = FORMATS[name].not_on_terminal
    if refusal and view.to_standard_output:
        refuse(is_terminal(sys.stdout), refusal[0], refusal[1], "--format")
    return view


def with_format(view: View, can: Names) -> View:
    """Return the view with its format; UsageError for a file whose suffix stands for none, or for another one."""
    path = "" if view.to_standard_output else str(view.output)
    suffix = os.path.splitext(path)[1].lower()
    if path or view.figure or view.dpi or view.size or view.title is not None:
        from attn_cli.render.formats.built_in import view_of_figure

        view = view_of_figure(view, suffix)
    if view.figure is not None or not path:
        return replace(view, format=view.format or "table")
    if view.to_ordinary_file:
        _check_suffix(view.format, suffix, path, can)
    found = suffixes().get(suffix, "table")
    if view.format is None:
        return replace(view, format=found)
    if FORMATS[view.format].is_screen and suffix in DRAWN:
        return replace(view, format=found, as_bars=view.format == "bars")
    return view


def _check_suffix(format: str | None, suffix: str, path: str, can: Names) -> None:
    names = suffixes()
    known = [one for one, name in names.items() if is_given(name, can)]
    if format is None and suffix not in names:
        hint = f"{did_you_mean(suffix, known)}Use {' '.join(known)}, or choose one with -f."
        raise UsageError(f"No format is known by the suffix of {visible(path)!r}.", hint, "--output")
    if format is None or fits(format, suffix):
        return
    right = (*FORMATS[format].suffixes, *FORMATS[format].also)[0]
    named = "a figure" if names.get(suffix) == "figure" else names.get(suffix)
    other = f", or leave out -f for {named}" if suffix in known else ""
    hint = f"Type -o {shell_quote(path[: -len(suffix)] + right)}{other}."
    raise UsageError(f"{visible(path)!r} cannot hold {format}.", hint, "--output")


def check_fields(view: View, kind: str, what: str = "") -> None:
    """Refuse --fields beside a format without keys, and keys that JSON of this kind does not have."""
    has_none = view.figure is not None or FORMATS[str(view.format)].needs != "record"
    refuse(has_none, "--fields requires -f json or -f jsonl.", option="--fields")
    output.chosen_keys(view.fields, kind, what)


def settings_for(settings: Settings, view: View) -> Settings:
    """Return the settings that the view's format needs: every head for a page; UsageError for what it cannot be of."""
    return FORMATS["figure" if view.figure is not None else str(view.format)].settings(settings, view)


def deliver(result: Result, view: View, pause: bool = False) -> None:
    """Write a result in the view's format, all or nothing; what the format has no room for is said beside it.

    It goes into the view's file, or to standard output: there a long screen goes through the pager, or is shown part
    by part if wanted.
    """
    if pause:
        from attn_cli.cli.present import present

        present(result.blocks, view)
        return
    data, remarks = write(result, view.with_width(), view.terminal())
    if isinstance(data, str) and view.output is None and FORMATS[view.format or "table"].is_screen:
        put_screen(data)
    elif isinstance(data, str) and view.to_standard_output:
        put_plain(data)
    else:
        is_said = view.to_ordinary_file and is_terminal(sys.stderr)
        with byte_stream(view) as stream:
            for part in [data.encode("utf-8", "backslashreplace")] if isinstance(data, str) else data:
                stream.write(part)
        if is_said:
            say(f"attn: wrote {visible(str(view.output))}.")
    for line in remarks:
        say(f"attn: {line}")


def in_a_pipe(view: View, format: str) -> View:
    """Return the view with this format where none is named, and standard output is no terminal."""
    is_piped = not view.format and view.to_standard_output and not is_terminal(sys.stdout)
    return replace(view, format=format) if is_piped else view


def stream(parts: Mapping[str, Iterable[str]], view: View) -> bool:
    """Write the parts of the view's format to standard output, each as it comes; False where it is not to be so."""
    if not view.to_standard_output or str(view.format) not in parts:
        return False
    for part in parts[str(view.format)]:
        put_plain(part)
    return True


class _StandardOutput(io.RawIOBase):
    """Standard output as a stream of bytes, each write of which is complete when it returns."""

    done = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.done

    def write(self, data: Any, /) -> int:
        put_bytes([data])
        self.done += len(data)
        return len(data)


@contextmanager
def byte_stream(view: View) -> Iterator[IO[bytes]]:
    """Give a stream of bytes: to standard output at once, or to a file that holds all or nothing."""
    if view.to_standard_output:
        yield cast("IO[bytes]", _StandardOutput())
        return
    from attn_cli.io.atomic import written

    with written(str(view.output)) as stream:
        yield stream
