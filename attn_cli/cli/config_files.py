"""Settings from files: attn.toml here, then the user's own; each value with the file and the line it comes from.

A file holds long names of options with TOML's own types, for every command, or for one below its name:

    temperature = 0.5
    [masked]
    head = "previous"
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from typer.core import TyperCommand

from attn_cli.errors import ConfigError, FileError, did_you_mean, near_names, visible
from attn_cli.io.files import read_bytes
from attn_cli.render.formats import formats
from attn_cli.settings import Settings, View, declare, declared

SETTINGS = declared(Settings) | declared(View)
IN_FILES = {name: one for name, one in SETTINGS.items() if one.has_variable and one.in_files}
TAKES = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}
MOST_BYTES, MOST_LINES = 1 << 16, 200  # of a file, and of one value in it


class FileValue(NamedTuple):
    """A value, and the file and line that set it."""

    value: declare.Value | tuple[object]  # the tuple is of an option that may be repeated
    path: str
    line: int

    @property
    def place(self) -> str:
        """The file and the line, for messages."""
        return f"{short_path(self.path)}, line {self.line}"


class FileDefaults:
    """What files set for a command, as Click asks for it; they are read at the first question, and help asks none."""

    def __init__(self, command: TyperCommand, ctx: Any, paths: list[str]) -> None:
        self.options = {str(option.name): option for option in command.params if option.envvar}
        self.read = cache(lambda: self._read(ctx, paths))

    def _read(self, ctx: Any, paths: list[str]) -> dict[str, FileValue]:
        root = ctx.find_root()
        command = ctx.command_path.split(" ")[1]  # of a verb, its noun
        found = in_force(paths, command, root.command.list_commands(root))
        own = getattr(getattr(self.options.get("format"), "type", None), "choices", ())
        if "format" in found and found["format"].value in {*formats()} - {*own}:
            del found["format"]  # asked for in general, and meant for other commands
        for name, option in self.options.items():
            if option.multiple and name in found:
                found[name] = found[name]._replace(value=(found[name].value,))
        return found

    def origin(self, name: str) -> FileValue | None:
        """Return the value that is set for an option, and its place."""
        return self.read().get(name) if name in self.options else None

    def get(self, name: str) -> declare.Value | tuple[object] | None:
        """Return the value that is set for an option."""
        return found.value if (found := self.origin(name)) is not None else None


def short_path(path: str) -> str:
    """Return a path for messages: inert, and with ~ for the user's home."""
    home = os.path.join(os.path.expanduser("~"), "")
    return visible(os.path.join("~", path[len(home) :]) if len(home) > 1 and path.startswith(home) else path)


def in_force(paths: Sequence[str], command: str, commands: Collection[str] | None) -> dict[str, FileValue]:
    """Return what these files set for a command; an earlier file counts more, and in a file the command's table."""
    found: dict[str, FileValue] = {}
    for path in reversed(paths):
        settings = read_config(path, commands)
        for wanted in ("", command):
            found |= {name: value for (table, name), value in settings.items() if table == wanted}
    return found


def read_config(path: str, commands: Collection[str] | None = None) -> dict[tuple[str, str], FileValue]:
    """Return what a file sets, by (command, setting); the command is "" for settings of all commands.

    A table bears the name of one of `commands`; where these are None, any name will do. Raises ConfigError,
    with the line, for what is not TOML, a key that is not a setting, or a value of another type.
    """
    found: dict[tuple[str, str], FileValue] = {}
    for line, keys, value in _entries(path):
        where = FileValue("", path, line).place
        *table, key = keys if not isinstance(value, dict) else (*keys, "")
        if len(table) > 1 or (table and commands is not None and table[0] not in commands):
            raise _no_table(where, table, commands or ())
        if isinstance(value, dict):
            continue
        name = key.replace("-", "_")
        if name not in IN_FILES:
            raise _no_setting(where, key, commands or ())
        placed = ("".join(table), name)
        if placed in found:
            raise ConfigError(f"{where}: {key} is set in line {found[placed].line} already.")
        found[placed] = FileValue(_typed(name, value, where), path, line)
    return found


def _entries(path: str) -> Iterator[tuple[int, tuple[str, ...], object]]:
    """Yield (line, keys, value) of all that a file says; a table by itself has an empty dict as its value."""
    text, table = _text(path), tuple[str, ...]()
    try:
        for line, said, is_table in _statements(text, path):
            for keys, value in _leaves(said):
                table = keys if is_table else table
                yield line, keys if is_table else (*table, *keys), value
    except RecursionError:
        deep = f"{visible(path)}: its keys are nested too deeply."
        raise ConfigError(deep, "Keys have one part or two.") from None


def _text(path: str) -> str:
    data = b""
    try:
        data = read_bytes(path, MOST_BYTES)
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            said = f"{short_path(path)} looks like UTF-16."
            raise ConfigError(said, "Convert it: iconv -f UTF-16 -t UTF-8")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileError as error:
        raise ConfigError(error.message, "Correct it, or move it away.") from None
    except UnicodeDecodeError as error:
        where = FileValue("", path, data.count(b"\n", 0, error.start) + 1).place
        raise ConfigError(f"{where}: this is not UTF-8.", "Save it as UTF-8.") from None


def _statements(text: str, path: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yield the first line of each statement, what it says, and whether it is a table's heading.

    A statement of sound TOML is sound by itself, and no beginning of its lines is.
    """
    unfit = ConfigError(f"{short_path(path)} holds a value that is not a setting's.")
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why, _, at = str(error).rpartition(" (at ")
        found = re.match(r"line (\d+)", at)
        last = int(found[1]) if found else max(1, len(text.rstrip().splitlines()))
        where, why = FileValue("", path, last).place, visible(why[:1].lower() + why[1:])
        raise ConfigError(f"{where}: {why}.", 'A line is: option = value, text in "quotes".') from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        raise unfit from None
    kept: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        kept.append(line)
        with suppress(tomllib.TOMLDecodeError):
            yield number + 1 - len(kept), tomllib.loads("\n".join(kept)), kept[0].lstrip().startswith("[")
            kept = []
        if len(kept) > MOST_LINES:
            raise unfit


def _leaves(said: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in said.items():
        if isinstance(value, dict) and value:
            yield from (((key, *keys), leaf) for keys, leaf in _leaves(value))
        else:
            yield (key,), value


def _typed(name: str, value: object, where: str) -> declare.Value:
    """Return a value that has the type of its setting; 1 will do for 1.0, and 3 for the head "3"."""
    kind = IN_FILES[name].type
    is_huge = isinstance(value, int) and value.bit_length() > 63
    if type(value) is kind and not is_huge and "\0" not in str(value):
        # There is no shell to expand the user's home.
        return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value
    if type(value) is int and not is_huge and (kind is float or name == "head"):
        return kind(value)
    hint = "Put it in quotes." if kind is str and not isinstance(value, str | list | dict) else ""
    if isinstance(value, str) and kind is not str:
        hint = "Remove the quotes." if value.strip() else "Remove the line."
    written = "a number of that many digits" if is_huge else "a list" if isinstance(value, list) else "a date"
    if isinstance(value, str):
        written = f'"{visible(value[:40])}{"..." * (len(value) > 40)}"'
    elif isinstance(value, int | float) and not is_huge:
        written = str(value).lower()
    raise ConfigError(f"{where}: {name.replace('_', '-')} cannot be {written}: it takes {TAKES[kind]}.", hint)


def _no_table(where: str, table: Sequence[str], commands: Collection[str]) -> ConfigError:
    near = near_names(table[0], commands) if len(table) == 1 else []
    hint = f"{f'Did you mean [{near[0]}]? ' if near else ''}A table bears a command's name, as [masked]."
    return ConfigError(f"{where}: there is no table [{visible('.'.join(table)[:60])}].", hint)


def _no_setting(where: str, key: str, commands: Collection[str]) -> ConfigError:
    named, name = visible(key[:60]), key.replace("_", "-")
    if (known := SETTINGS.get(key)) is not None:
        typed = f"Type it: {known.short} {known.metavar}"
        return ConfigError(f"{where}: {named} cannot be set in a file.", typed)
    if key in commands:
        return ConfigError(f"{where}: {named} is a command.", f"Write [{named}], and its settings below.")
    near = did_you_mean(name, [one.replace("_", "-") for one in IN_FILES])
    return ConfigError(f"{where}: there is no setting {named!r}.", f"{near}See attn config for all of them.")
