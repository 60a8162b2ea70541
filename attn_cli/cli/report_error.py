"""An error becomes one line, or one JSON object, on standard error, and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from typing import Any

from attn_cli import errors
from attn_cli.errors import AttnError, ConfigError, NoMemory, UsageError, WriteError, did_you_mean
from attn_cli.io.console import say
from attn_cli.io.escape import visible
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
    if more and sys.stderr is not None and sys.stderr.isatty():
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
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN) and error.filename is None:
        return NoMemory()
    if isinstance(error, OSError) and error.filename is not None:
        return WriteError(f"Cannot use {visible(os.fsdecode(error.filename))}: {error.strerror}.")
    if isinstance(error, OSError):  # files are guarded where they are opened: this is help being printed
        return WriteError(f"Cannot write to standard output: {error.strerror or error}.")
    is_unloaded = isinstance(error, ImportError) and any(words in str(error) for words in NO_ROOM)
    if isinstance(error, MemoryError) or is_unloaded:
        return NoMemory()
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
    if parameter is not None and context is not None:
        from attn_cli.cli.origins import VARIABLE, origin, place

        if where := place(context, parameter.name):
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
    values: dict[str, str] = {}
    names = {"-f": "format", "--format": "format", "-o": "output", "--output": "output"}
    while args[:1] == ["--"]:  # before the command it ends nothing
        args = args[1:]
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        if arg == "--":
            break
        name, equals, value = arg.partition("=")
        if name in names and (equals or name == arg):
            values[names[name]] = value if equals else following
        elif arg[:2] in names and len(arg) > 2 and arg[1] != "-":
            values[names[arg[:2]]] = arg[2:]
    command = next((arg for arg in args if not arg.startswith("-")), "")
    output = values.get("output")
    if "format" not in values and output in (None, "", "-"):
        values["format"] = os.environ.get("ATTN_FORMAT") or _format_from_files(command)
    return is_json(values.get("format"), output, command)


def _format_from_files(command: str) -> str:
    """Return the format that a configuration file sets; nothing where the file itself is bad."""
    from attn_cli.cli.origins import config_files

    if not (paths := config_files()):
        return ""
    from attn_cli.cli.config_files import in_force

    try:
        found = in_force(paths, command, None).get("format")
    except (ConfigError, RecursionError):
        return ""
    return "" if found is None else str(found.value)
