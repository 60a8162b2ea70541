"""attn config: the settings in force, and where each comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any, NamedTuple

import typer

from attn_cli.cli.deliver import deliver, deliver_json, settled, terminal_for, viewed
from attn_cli.cli.options import HERE, Command, Output, RecordFormat, blamed, takes, user_config
from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check

BESIDES = ("ATTN_MIRROR",)  # variables that are no option's
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


class Looked(NamedTuple):
    """A file of settings: whether it is there, and the commands that have a table in it."""

    path: str
    exists: bool
    tables: tuple[str, ...]


def config(
    context: typer.Context,
    command: Annotated[
        str | None,
        typer.Argument(metavar="[COMMAND]", help="What holds for this command.", show_default=False),
    ] = None,
    format: RecordFormat = None,
    output: Output = None,
) -> None:
    """The settings in force, and where each comes from.

    What is typed counts most, then variables (ATTN_TEMPERATURE), then attn.toml in this folder, then the user's own
    file. A line of a file is: temperature = 0.5

    Example: attn config masked
    """
    view = viewed(format, output)
    root: Any = context.find_root()
    commands = root.command.list_commands(root)
    if command is not None and command not in commands:
        raise UsageError(
            f"There is no command {visible(command[:60])!r}.",
            f"Commands are {', '.join(commands)}.",
            "COMMAND",
        )
    found = _in_force(root, command)
    files = [_looked(path, commands) for path in (HERE, user_config()) if path is not None]
    strange = _strange(root)
    if view.format != "table":
        record = {
            "settings": [one._asdict() for one in found],
            "files": [one._asdict() for one in files],
            "unknown_variables": [{"name": name, "meant": near} for name, near in strange],
        }
        deliver_json({"schema": "attn/1", "kind": "config", "command": command, **record}, view)
        return
    width = terminal_for(view).width or 10_000
    deliver("".join(f"{line}\n" for line in _screen(found, files, strange, command, width)), view)


# What is in force


@takes(Settings, View, without=("output",))
def _all_settings(*, settings: Settings, view: View) -> None:
    """Every setting."""


def _in_force(root: Any, command: str | None) -> list[InForce]:
    """Return each setting of a command, or of all, as a run of it that types nothing would find it."""
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(cls=Command)(_all_settings)
    every: Any = typer.main.get_command(alone)
    ctx = every.make_context(command or "", [], parent=root)
    values = ctx.params
    try:
        check(Settings(**{field.name: values[field.name] for field in fields(Settings)}))
        settled(View(precision=values["precision"], width=values["width"]))
    except UsageError as error:
        raise blamed(error, ctx) from None
    options = {option.name: option for option in every.params if option.envvar}
    if command is not None:
        own = {option.name: option for option in reversed(_parameters(root, command)) if option.envvar}
        options = {name: own[name] for name in options if name in own}
    return [_setting(ctx, option) for option in options.values()]


def _setting(ctx: Any, option: Any) -> InForce:
    source = ctx.get_parameter_source(option.name).name
    said = re.search(r"\[default: (.*)\]", option.help)
    default = said[1] if said else None
    value = option.default if source == "DEFAULT" else ctx.params[option.name]
    found = InForce(option.name.replace("_", "-"), value, "default", None, None, None, default)
    if source == "ENVIRONMENT":
        return found._replace(source="environment", variable=option.envvar)
    if source == "DEFAULT_MAP":
        origin = ctx.default_map.origin(option.name)
        return found._replace(source="file", file=origin.path, line=origin.line)
    return found


def _parameters(root: Any, command: str) -> list[Any]:
    """Return the parameters of a command, or of all verbs of a noun."""
    found = root.command.get_command(root, command)
    verbs = getattr(found, "commands", {}).values()
    return [option for one in (found, *verbs) for option in one.params]


def _looked(path: str, commands: Sequence[str]) -> Looked:
    from attn_cli.settings.config_file import read

    if not os.path.exists(path):
        return Looked(path, False, ())
    return Looked(path, True, tuple(dict.fromkeys(table for table, _ in read(path, commands) if table)))


def _strange(root: Any) -> list[tuple[str, str | None]]:
    """Return each variable that begins like one of attn's and is none, with the one that was meant."""
    given = sorted(name for name in os.environ if name.startswith("ATTN_") and os.environ[name])
    commands = root.command.list_commands(root)
    known = {str(option.envvar) for name in commands for option in _parameters(root, name) if option.envvar}
    known |= set(BESIDES)
    import difflib  # only for help with a mistake

    return [
        (name, next(iter(difflib.get_close_matches(name[:60], sorted(known), 1)), None))
        for name in given
        if name not in known
    ]


# How it is shown


def _screen(
    found: Sequence[InForce],
    files: Sequence[Looked],
    strange: Sequence[tuple[str, str | None]],
    command: str | None,
    width: int,
) -> Iterator[str]:
    from attn_cli.settings.config_file import shown

    rows = [(one.name, _value(one), _origin(one)) for one in found]
    yield from (
        _table([("setting", "value", "from"), *rows], width) if rows else ["This command has no settings."]
    )
    yield ""
    for one in files:
        yield from _paragraph(f"{shown(one.path)}: {'read' if one.exists else 'not there'}.", width)
        others = [f"[{table}]" for table in one.tables if table != command]
        if others:
            yield from _paragraph(f"Tables for single commands: {', '.join(others)}.", width, "  ")
    for name, near in strange:
        meant = f" Did you mean {near}?" if near else ""
        yield from _paragraph(f"{visible(name)} is no variable of attn.{meant}", width)


def _value(one: InForce) -> str:
    if one.value is None:
        return one.default or "not set"
    return str(one.value).lower() if isinstance(one.value, bool) else visible(str(one.value))


def _origin(one: InForce) -> str:
    if one.file is None:
        return one.variable or "default"
    from attn_cli.settings.config_file import shown

    return f"{shown(one.file)}, line {one.line}"


def _table(rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Yield rows of three columns; where a value has no room beside its origin, each stands on a line of its own."""
    from attn_cli.render.screen.text import cells, padded, wrapped

    edge = max(len(row[0]) for row in rows)
    last = max(cells(row[2]) for row in rows)
    room = min(max(cells(row[1]) for row in rows), width - edge - last - 4)
    for name, value, origin in rows:
        if room >= NARROWEST:
            lines = ["".join(part.text for part in line) for line in wrapped(value, room)]
            yield f"{name:<{edge}}  {padded(lines[0], room)}  {origin}"
            yield from (f"{'':<{edge}}  {line}" for line in lines[1:])
        elif name != rows[0][0]:
            yield from _paragraph(f"{name} = {value}", width)
            yield from _paragraph(origin, width, "    ")


def _paragraph(text: str, width: int, indent: str = "") -> Iterator[str]:
    from attn_cli.render.screen.text import wrapped

    yield from (
        "".join(part.text for part in line).rstrip() for line in wrapped(text, width, indent, hanging=2)
    )
