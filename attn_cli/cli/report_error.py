"""An error becomes one line, or one JSON object, on standard error, and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from contextlib import suppress
from typing import Any

from attn_cli import errors
from attn_cli.cli.origins import VARIABLE, config_files, origin, place
from attn_cli.errors import AttnError, ConfigError, NoMemory, UsageError, WriteError, did_you_mean, visible
from attn_cli.io.console import is_terminal, say
from attn_cli.settings.output import is_json

_MAKING = "python -m data.making"
_DEEP = "pretrained freeze layers heads width wide threads dropout teacher text"  # options of training
MOVED = {  # what left the program, and what does it in a copy of the repository
    "attn bench": "python -m tests.bench",
    **{f"attn learn {name}": f"{_MAKING} {name}" for name in ("passages", "pretrain", "language")},
    **{f"attn learn train --{name}": f"{_MAKING} train --{name}" for name in _DEEP.split()},
}
LONGEST = 600  # characters of a message: what was typed may be longer than any screen
# All that the loader of compiled modules says of a want of memory.
NO_ROOM = ("Cannot allocate memory", "failed to map segment", "cannot map zero-fill")


def report(error: BaseException, args: list[str]) -> int:
    """Say what went wrong on standard error and return the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else errors.USAGE
    exit_code = getattr(error, "exit_code", None) if type(error).__name__ == "Exit" else None
    if exit_code is not None and (exit_code or sys.stdout is not None):
        return int(exit_code)
    known = _known(error)
    if known.message.startswith("standard input"):  # the name of what was read begins the sentence
        known.message = "S" + known.message[1:]
    if len(known.message) > LONGEST:
        known.message = f"{known.message[: LONGEST // 2]}...{known.message[-LONGEST // 3 :]}"
    line, _, more = known.hint.partition("\n")
    if more and is_terminal(sys.stderr):
        say(more)  # help is for a person who watches; a script gets the one line
    if _wants_json(args):
        say(json.dumps(known.as_record()), is_data=True)
    else:
        say(f"attn: {known.message}" + (f" {line}" if line else ""))
    return known.code


def _known(error: BaseException) -> AttnError:
    if isinstance(error, AttnError):
        return error
    if type(error).__name__ == "Exit":  # help was asked for, and cannot be printed
        return WriteError("Standard output is closed.")
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return _usage(error)
    if isinstance(error, OSError) and error.filename is not None:
        return WriteError(f"Cannot use {visible(os.fsdecode(error.filename))}: {error.strerror}.")
    has_no_room = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)
    is_unloaded = isinstance(error, ImportError) and any(words in str(error) for words in NO_ROOM)
    if isinstance(error, MemoryError) or has_no_room or is_unloaded:
        return NoMemory()
    if isinstance(error, OSError):  # files are guarded where they are opened: this is help being printed
        return WriteError(f"Cannot write to standard output: {error.strerror or error}.")
    if isinstance(error, RecursionError):
        return errors.InputError("The input is nested too deeply.")
    from traceback import extract_tb  # only for a bug

    text = visible(f"{type(error).__name__}: {error}"[:200])
    last = extract_tb(error.__traceback__)[-1:]
    where = [f"{os.path.basename(frame.filename)}, line {frame.lineno}" for frame in last]
    hint = "Please report it with the command that you typed."
    return AttnError(f"A bug in attn: {text} ({(*where, 'place unknown')[0]}).", hint)


def _usage(error: Any) -> AttnError:
    is_unknown = hasattr(error, "possibilities")
    said = error.message if is_unknown else error.format_message()  # Typer's own guess
    message = (visible(" ".join(str(said).split())).rstrip(".") + ".").replace("?.", "?")
    message = re.sub(r" Recognized values: .*", " Give 1 or 0.", message)
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if moved := where_it_went(f"{getattr(context, 'command_path', '')} {getattr(error, 'option_name', '')}"):
        return moved
    near = nearest_choice(error, parameter)
    if is_unknown:
        options = [one for one in error.ctx.command.get_params(error.ctx) if one.param_type_name == "option"]
        known = [name for one in options for name in (*one.opts, *one.secondary_opts)]
        near = did_you_mean(error.option_name, known)
    if parameter is not None and context is not None and (where := place(context, parameter.name)):
        is_variable = origin(context, parameter.name) == VARIABLE
        hint = f"Change or unset {where}." if is_variable else "Change that line."
        return ConfigError(f"{where}: {message}", near + hint)
    hint = f"{near}See {context.command_path if context is not None else 'attn'} --help."
    if message.startswith("Missing command") and context is not None:
        from attn_cli.cli.help import short_help  # only for help

        hint += "\n" + short_help(context, sys.stderr)
    return UsageError(message, hint)


def where_it_went(typed: str) -> UsageError | None:
    """Return the error for a command or an option that has left the program; None for any other."""
    if typed not in MOVED:
        return None
    return UsageError(f"{typed} has left the program.", f"In a copy of the repository: {MOVED[typed]}")


def nearest_choice(error: Any, parameter: Any) -> str:
    """Return the question which of a parameter's choices a refused value was meant to be, or nothing."""
    refused = re.match(r"(['\"])(.*)\1 is not one of ", str(getattr(error, "message", "")), re.DOTALL)
    choices = getattr(getattr(parameter, "type", None), "choices", ())
    return did_you_mean(refused[2], map(str, choices)) if refused else ""


def _wants_json(args: list[str]) -> bool:
    """Tell whether the result was to be JSON: then the error is, too, even one of wrong usage."""
    from argparse import ArgumentParser  # Typer's has refused them

    while args[:1] == ["--"]:  # before the command it ends nothing
        args = args[1:]
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-f", "--format", nargs="?")
    parser.add_argument("-o", "--output", nargs="?")
    found, _ = parser.parse_known_args(args)
    command = next((arg for arg in args if not arg.startswith("-")), "")
    format = found.format
    if not format and found.output in (None, "", "-"):
        format = os.environ.get("ATTN_FORMAT")
        if not format and (paths := config_files()):
            from attn_cli.cli.config_files import in_force

            with suppress(ConfigError, RecursionError, KeyError):  # a bad file sets nothing
                format = str(in_force(paths, command, None)["format"].value)
    return is_json(format, found.output, command)
