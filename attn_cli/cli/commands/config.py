"""attn config: the settings in force, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import SETTINGS, argument, of_record, single_command, without
from attn_cli.cli.origins import FILE, HERE, VARIABLE, origin, user_config, with_origin
from attn_cli.errors import SettingError, UsageError, did_you_mean, near_names
from attn_cli.io.console import WIDEST
from attn_cli.io.escape import visible
from attn_cli.render.result import OF_RECORD, record_result
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal

OTHER_VARIABLES = ("ATTN_MIRROR", "ATTN_PAGER")  # that no option has
NARROWEST = 12  # cells for a value, below which names stand above their values


class InForce(NamedTuple):
    """A setting: its value (None where the command chooses, as `default` says), and where that comes from."""

    name: str
    value: object
    source: str  # default, environment or file
    variable: str | None
    file: str | None
    line: int | None
    default: str | None


class ConfigFile(NamedTuple):
    """A configuration file: whether it exists, and the commands that have a table in it."""

    path: str
    exists: bool
    tables: tuple[str, ...]


@of_record
def config(
    context: typer.Context,
    command: Annotated[str | None, argument("[COMMAND]", "Show the settings of this command only.")] = None,
    *,
    view: View,
) -> None:
    """The settings in force, and where each comes from.

    Precedence: the command line, then environment variables (ATTN_TEMPERATURE), then attn.toml in this folder, then
    the user's own file. A line of a file is: temperature = 0.5

    Example: attn config masked
    """
    view = choose(view, OF_RECORD)
    root: Any = context.find_root()
    commands = root.command.list_commands(root)
    if command is not None and command not in commands:
        raise UsageError(
            f"There is no command {visible(command[:60])!r}.",
            f"{did_you_mean(command, commands)}Commands are {', '.join(commands)}.",
            "COMMAND",
        )
    settings = _in_force(root, command)
    files = [_config_file(path, commands) for path in (HERE, user_config()) if path is not None]
    unknown = _unknown_variables(root)
    record = {
        "command": command,
        "settings": [one._asdict() for one in settings],
        "files": [one._asdict() for one in files],
        "unknown_variables": [{"name": name, "meant": near} for name, near in unknown],
    }

    def table(terminal: Terminal) -> str:
        lines = _screen(settings, files, unknown, command, terminal.width or WIDEST)
        return "".join(f"{line}\n" for line in lines)

    deliver(record_result("config", record, table), view)


# What is in force


@without("output")
def _all_settings(*, settings: Settings, view: View) -> None:
    """Take every setting, and check its value."""


def _in_force(root: Any, command: str | None) -> list[InForce]:
    """Return each setting of a command, or of all commands, as a run without options has it."""
    every: Any = single_command("config", _all_settings)
    ctx = every.make_context(command or "", [], parent=root)
    try:
        for name, setting in SETTINGS.items():
            setting.check(ctx.params.get(name, setting.default))
    except SettingError as error:
        raise with_origin(error, ctx) from None
    options = {option.name: option for option in every.params if option.envvar}
    if command is not None:
        own = {option.name: option for option in reversed(_parameters(root, command)) if option.envvar}
        options = {name: own[name] for name in options if name in own}
    return [_setting(ctx, option) for option in options.values()]


def _setting(ctx: Any, option: Any) -> InForce:
    source = origin(ctx, option.name)
    value = ctx.params[option.name] if source in (VARIABLE, FILE) else option.default
    unset = SETTINGS[option.name].unset or None if option.default is None else None
    found = InForce(option.name.replace("_", "-"), value, "default", None, None, None, unset)
    if source == VARIABLE:
        return found._replace(source="environment", variable=option.envvar)
    if source == FILE:
        line = ctx.default_map.origin(option.name)
        return found._replace(source="file", file=line.path, line=line.line)
    return found


def _parameters(root: Any, command: str) -> list[Any]:
    """Return the parameters of a command, or of all verbs of a noun."""
    found = root.command.get_command(root, command)
    verbs = [found.get_command(root, verb) for verb in getattr(found, "commands", ())]
    return [option for one in (found, *verbs) for option in one.params]


def _config_file(path: str, commands: Sequence[str]) -> ConfigFile:
    from attn_cli.settings.config_file import read_config

    if not os.path.exists(path):
        return ConfigFile(path, False, ())
    tables = dict.fromkeys(table for table, _ in read_config(path, commands) if table)
    return ConfigFile(path, True, tuple(tables))


def _unknown_variables(root: Any) -> list[tuple[str, str | None]]:
    """Return each variable that begins with ATTN_ and is not an option's, with the one that was probably meant."""
    commands = root.command.list_commands(root)
    known = {str(option.envvar) for name in commands for option in _parameters(root, name) if option.envvar}
    known |= set(OTHER_VARIABLES)
    found = sorted(name for name in os.environ if name.startswith("ATTN_") and os.environ[name])
    return [(name, next(iter(near_names(name, sorted(known))), None)) for name in found if name not in known]


# How it is shown


def _screen(
    settings: Sequence[InForce],
    files: Sequence[ConfigFile],
    unknown: Sequence[tuple[str, str | None]],
    command: str | None,
    width: int,
) -> Iterator[str]:
    from attn_cli.settings.config_file import FileValue, short_path

    def written(one: InForce) -> tuple[str, str, str]:
        value = str(one.value).lower() if isinstance(one.value, bool) else visible(str(one.value))
        source = one.variable or "default"
        if one.file is not None and one.line is not None:
            source = FileValue("", one.file, one.line).place
        return one.name, (one.default or "not set") if one.value is None else value, source

    rows = [written(one) for one in settings]
    yield from (
        _table([("setting", "value", "from"), *rows], width) if rows else ["This command has no settings."]
    )
    yield ""
    for file in files:
        yield from _paragraph(f"{short_path(file.path)}: {'read' if file.exists else 'not there'}.", width)
        others = [f"[{table}]" for table in file.tables if table != command]
        if others:
            yield from _paragraph(f"Tables for single commands: {', '.join(others)}.", width, "  ")
    for name, near in unknown:
        meant = f" Did you mean {near}?" if near else ""
        yield from _paragraph(f"{visible(name)} is not a variable of attn.{meant}", width)


def _table(rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Yield rows of three columns; where they are too narrow, each origin stands on a line of its own."""
    from attn_cli.render.screen.text import cells, padded

    first = max(len(row[0]) for row in rows)
    last = max(cells(row[2]) for row in rows)
    room = width - first - last - 4
    middle = min(max(cells(row[1]) for row in rows), room)
    for name, value, source in rows:
        if room >= NARROWEST:
            lines = list(_paragraph(value, middle, hanging=0))
            yield f"{name:<{first}}  {padded(lines[0], middle)}  {source}"
            yield from (f"{'':<{first}}  {line}" for line in lines[1:])
        elif name != rows[0][0]:
            yield from _paragraph(f"{name} = {value}", width)
            yield from _paragraph(source, width, "    ")


def _paragraph(text: str, width: int, indent: str = "", hanging: int = 2) -> Iterator[str]:
    from attn_cli.render.screen.text import wrapped

    for line in wrapped(text, width, indent, hanging=hanging):
        yield "".join(part.text for part in line).rstrip()
