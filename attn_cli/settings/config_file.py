"""Settings from files: attn.toml here, then the user's own; each value with the file and the line it comes from.

A file holds long names of options with TOML's own types, for every command, or for one below its name:

    temperature = 0.5
    [masked]
    head = "previous"
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple, TypeAlias

from attn_cli.errors import ConfigError, FileError
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

LARGEST = 1 << 16  # bytes
# What is asked anew each time; and a file that somebody else left in a folder must never make attn write one.
TYPED = {"query": "-q TOKEN", "output": "-o FILE"}
KINDS = {
    field.name: str(field.type).partition(" ")[0]
    for group in (Settings, View)
    for field in fields(group)
    if field.name not in TYPED
}
TAKEN = {"str": "text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false"}
Value: TypeAlias = bool | int | float | str


class Setting(NamedTuple):
    """A value, and the place that it comes from."""

    value: Value
    path: str
    line: int

    @property
    def place(self) -> str:
        """The file and the line, as they are told."""
        return _place(self.path, self.line)


def shown(path: str) -> str:
    """Return a path as it is told: inert, and with ~ for the user's home."""
    home = os.path.join(os.path.expanduser("~"), "")
    return visible(os.path.join("~", path[len(home) :]) if len(home) > 1 and path.startswith(home) else path)


def read(path: str, commands: Collection[str] | None = None) -> dict[tuple[str, str], Setting]:
    """Return what a file sets, by (command, option's field); the command is "" for settings of all commands.

    A table bears the name of one of `commands`; where these are None, any name will do. Raises ConfigError,
    with the line, for what is not TOML, a key that is no setting, or a value of another type.
    """
    text = _text(path)
    try:
        _check_toml(text, path)
        entries = list(_entries(text))
    except RecursionError:
        raise ConfigError(
            f"{visible(path)}: its keys are nested too deeply.", "Keys have one part or two."
        ) from None
    found: dict[tuple[str, str], Setting] = {}
    for line, keys, value in entries:
        where = _place(path, line)
        *table, key = keys if not isinstance(value, dict) else (*keys, "")
        if len(table) > 1 or (table and commands is not None and table[0] not in commands):
            raise _no_table(where, table, commands or ())
        if isinstance(value, dict):
            continue
        name = key.replace("-", "_")
        if name not in KINDS:
            raise _no_setting(where, key, commands or ())
        placed = ("".join(table), name)
        if placed in found:
            raise ConfigError(f"{where}: {visible(key)} is set in line {found[placed].line} already.")
        found[placed] = Setting(_fitting(name, value, where), path, line)
    return found


def in_force(paths: Sequence[str], command: str, commands: Collection[str] | None) -> dict[str, Setting]:
    """Return what these files set for a command; an earlier file counts more, and in a file the command's table."""
    found: dict[str, Setting] = {}
    for path in reversed(paths):
        settings = read(path, commands)
        for wanted in ("", command):
            found |= {name: setting for (table, name), setting in settings.items() if table == wanted}
    return found


class FromFiles:
    """What files set for one command, read when the first value is asked for: help asks for none."""

    def __init__(
        self,
        paths: Sequence[str],
        command: str,
        commands: Collection[str],
        names: Mapping[str, Collection[str]],
    ) -> None:
        """`names` are the fields that the command takes from files, each with values meant for other commands."""
        self.paths = paths
        self.command = command
        self.commands = commands
        self.names = names
        self.found: dict[str, Setting] | None = None

    def origin(self, name: str) -> Setting | None:
        """Return the value that is set for a field, and its place."""
        if name not in self.names:
            return None
        if self.found is None:
            self.found = in_force(self.paths, self.command, self.commands)
        setting = self.found.get(name)
        return None if setting is None or setting.value in self.names[name] else setting

    def get(self, name: str) -> Value | None:
        """Return the value that is set for a field."""
        setting = self.origin(name)
        return None if setting is None else setting.value


def _place(path: str, line: int) -> str:
    return f"{shown(path)}, line {line}"


def _text(path: str) -> str:
    try:
        data = read_bytes(path, LARGEST)
    except FileError as error:
        raise ConfigError(error.message, "Correct it, or move it away.") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(f"{shown(path)} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{_place(path, line)}: this is not UTF-8.", "Save it as UTF-8.") from None


def _check_toml(text: str, path: str) -> None:
    import tomllib  # only those who have such a file pay for it

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why, _, at = str(error).rpartition(" (at ")
        number = re.match(r"line (\d+)", at)
        line = int(number[1]) if number else max(1, len(text.rstrip().splitlines()))
        why = visible(why[:1].lower() + why[1:])
        raise ConfigError(
            f"{_place(path, line)}: {why}.", 'A line is: option = value, text in "quotes".'
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        raise ConfigError(f"{shown(path)} holds a value that is no setting's.") from None


# Strings of TOML's four kinds (each may hold what looks like a key), comments, brackets, and all between them.
_PIECE = re.compile(
    r'"""(?:\\.|(?!""").)*"{3,5}'
    r"|'''(?:(?!''').)*'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|\n|[\[\]{}]|[^\"'\#\n\[\]{}]+",
    re.DOTALL,
)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of sound TOML, each with its first line: it ends with a line, outside all brackets."""
    start = line = 1
    depth = 0
    kept: list[str] = []
    for found in _PIECE.finditer(text + "\n"):
        piece = found[0]
        if piece == "\n" and depth == 0:
            if statement := "".join(kept).strip():
                yield start, statement
            line += 1
            start, kept = line, []
            continue
        line += piece.count("\n")
        depth += (piece in ("[", "{")) - (piece in ("]", "}"))
        kept.append("" if piece.startswith("#") else piece)


def _entries(text: str) -> Iterator[tuple[int, tuple[str, ...], object]]:
    """Yield (line, keys, value) of all that sound TOML says; a table by itself has an empty dict as its value.

    Each statement is sound TOML by itself, so that the parser reads its keys, however they are written.
    """
    import tomllib

    table: tuple[str, ...] = ()
    for line, statement in _statements(text):
        said = tomllib.loads(statement)
        if statement.startswith("["):
            ((table, value),) = _leaves(said)
            yield line, table, value
            continue
        for keys, value in _leaves(said):
            yield line, (*table, *keys), value


def _leaves(said: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in said.items():
        if isinstance(value, dict) and value:
            yield from (((key, *keys), leaf) for keys, leaf in _leaves(value))
        else:
            yield (key,), value


def _fitting(name: str, value: object, where: str) -> Value:
    """Return a value that has the type which its option takes; 1 will do for 1.0, and 3 for the head "3"."""
    kind = KINDS[name]
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    is_huge = isinstance(value, int) and value.bit_length() > 63
    if isinstance(value, int | float) and not is_huge:
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "int" and is_whole:
            return value
        if kind == "float" and (is_whole or isinstance(value, float)):
            return float(value)
        if name == "head" and is_whole:
            return str(value)
    if kind == "str" and isinstance(value, str) and "\0" not in value:
        return os.path.expanduser(value) if value.startswith("~/") else value  # there is no shell to do it
    hint = ""
    if isinstance(value, str):
        hint = "" if kind == "str" else "Take the quotes away." if value.strip() else "Leave the line out."
    elif kind == "str" and not isinstance(value, list | dict):
        hint = "Put it in quotes."
    said = "a number of so many digits" if is_huge else _spelled(value)
    raise ConfigError(f"{where}: {name.replace('_', '-')} cannot be {said}: it takes {TAKEN[kind]}.", hint)


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return f'"{visible(value[:40])}{"..." if len(value) > 40 else ""}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else "a list" if isinstance(value, list) else "a date"


def _no_table(where: str, table: Sequence[str], commands: Collection[str]) -> ConfigError:
    near = _near(table[0], commands) if len(table) == 1 else None
    meant = f"Did you mean [{near}]? " if near else ""
    named = visible(".".join(table)[:60])
    return ConfigError(
        f"{where}: there is no table [{named}].", f"{meant}A table bears a command's name, as [masked]."
    )


def _no_setting(where: str, key: str, commands: Collection[str]) -> ConfigError:
    named = visible(key[:60])
    if key in TYPED:
        return ConfigError(f"{where}: {named} cannot be set in a file.", f"Type it: {TYPED[key]}")
    if key in commands:
        return ConfigError(f"{where}: {named} is a command.", f"Write [{named}], and its settings below.")
    near = _near(name := key.replace("_", "-"), [known.replace("_", "-") for known in KINDS])
    meant = f"Did you mean {near}? " if near and near != name else ""
    return ConfigError(f"{where}: there is no setting {named!r}.", f"{meant}See attn config for all of them.")


def _near(word: str, known: Collection[str]) -> str | None:
    import difflib  # only for help with a mistake

    return next(iter(difflib.get_close_matches(word[:60], known, 1)), None)
