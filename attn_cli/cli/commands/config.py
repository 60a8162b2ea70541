"""attn config: the settings in force, and where each comes from; attn schema: the JSON Schema of what attn prints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from attn_cli.cli.config_files import FileValue, read_config, short_path
from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import SETTINGS, argument, of_record, single_command, takes
from attn_cli.cli.origins import FILE, HERE, VARIABLE, origin, user_config, with_origin
from attn_cli.errors import SettingError, UsageError, did_you_mean, near_names, visible
from attn_cli.io.console import WIDEST, put_plain
from attn_cli.io.terminal import Terminal
from attn_cli.render.result import OF_RECORD, record_result
from attn_cli.settings import Settings, View, output

Record = dict[str, Any]  # of the JSON
OTHER_VARIABLES = ("ATTN_MIRROR", "ATTN_PAGER")  # that no option has
NARROWEST = 12  # cells for a value, below which names stand above their values
COMMAND = argument("[COMMAND]", "Show the settings of this command only.", default=None)


def schema() -> None:
    """Print the JSON Schema of all that attn prints as JSON.

    Example: attn schema > attn.schema.json
    """
    put_plain(output.schema_text())


@of_record
def config(context: typer.Context, view: View, command: str | None = COMMAND) -> None:
    """The settings in force, and where each comes from.

    Precedence: the command line, then environment variables (ATTN_TEMPERATURE), then attn.toml in this folder, then
    the user's own file. A line of a file is: temperature = 0.5

    Example: attn config masked
    """
    view = choose(view, OF_RECORD)
    root: Any = context.find_root()
    commands = root.command.list_commands(root)
    if command is not None and command not in commands:
        hint = f"{did_you_mean(command, commands)}Commands are {', '.join(commands)}."
        raise UsageError(f"There is no command {visible(command[:60])!r}.", hint, "COMMAND")
    record: Record = {"command": command, "settings": _in_force(root, command), "files": []}
    for path in filter(None, (HERE, user_config())):
        exists = os.path.exists(path)
        tables = dict.fromkeys(table for table, _ in read_config(path, commands) if table) if exists else ()
        record["files"].append({"path": path, "exists": exists, "tables": [*tables]})
    record["unknown_variables"] = _unknown_variables(root, commands)

    def table(terminal: Terminal) -> str:
        return "".join(f"{line}\n" for line in _screen(record, terminal.width or WIDEST))

    deliver(record_result("config", record, table), view)


@takes(" ".join(name for name in SETTINGS if name != "output"))
def _all_settings(settings: Settings, view: View) -> None:
    """Take every setting, and check its value."""


def _in_force(root: Any, command: str | None) -> list[Record]:
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


def _setting(ctx: Any, option: Any) -> Record:
    """Return a setting: its value (None where the command chooses, as `default` says), and where that comes from."""
    name = str(option.name)
    source = {VARIABLE: "environment", FILE: "file"}.get(origin(ctx, name), "default")
    line = ctx.default_map.origin(name) if source == "file" else None
    return {
        "name": name.replace("_", "-"),
        "value": option.default if source == "default" else ctx.params[name],
        "source": source,
        "variable": option.envvar if source == "environment" else None,
        "file": line and line.path,
        "line": line and line.line,
        "default": SETTINGS[name].unset or None if option.default is None else None,
    }


def _parameters(root: Any, command: str) -> list[Any]:
    found = root.command.get_command(root, command)
    verbs = [found.get_command(root, verb) for verb in getattr(found, "commands", ())]
    return [option for one in (found, *verbs) for option in one.params]


def _unknown_variables(root: Any, commands: Sequence[str]) -> list[Record]:
    """Return each variable that begins with ATTN_ and is not an option's, with the one that was probably meant."""
    known = {str(option.envvar) for name in commands for option in _parameters(root, name) if option.envvar}
    known |= set(OTHER_VARIABLES)
    found = sorted(name for name, value in os.environ.items() if name.startswith("ATTN_") and value)
    unknown = [name for name in found if name not in known]
    return [{"name": name, "meant": (*near_names(name, sorted(known)), None)[0]} for name in unknown]


def _screen(record: Record, width: int) -> Iterator[str]:
    rows = [("setting", "value", "from")]
    for one in record["settings"]:
        value = str(one["value"]).lower() if isinstance(one["value"], bool) else visible(str(one["value"]))
        place = FileValue("", one["file"], one["line"]).place if one["file"] else one["variable"]
        unset = one["default"] or "not set"
        rows.append((one["name"], unset if one["value"] is None else value, place or "default"))
    yield from _table(rows, width) if len(rows) > 1 else ["This command has no settings."]
    yield ""
    for file in record["files"]:
        said = "read" if file["exists"] else "not there"
        yield from _paragraph(f"{short_path(file['path'])}: {said}.", width)
        if others := [f"[{table}]" for table in file["tables"] if table != record["command"]]:
            yield from _paragraph(f"Tables for single commands: {', '.join(others)}.", width, "  ")
    for one in record["unknown_variables"]:
        meant = f" Did you mean {one['meant']}?" if one["meant"] else ""
        yield from _paragraph(f"{visible(one['name'])} is not a variable of attn.{meant}", width)


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
