"""Settings from files: attn.toml here, then the user's own; each value with the file and the line it comes from.

A file holds long names of options with TOML's own types, for every command, or for one below its name:

    temperature = 0.5
    [masked]
    head = "previous"
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from attn_cli.errors import ConfigError, FileError, did_you_mean, near_names
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.settings.declare import Value, declared
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

MAX_CONFIG_BYTES = 1 << 16  # bytes
ALL = declared(Settings) | declared(View)
SETTINGS = {name: setting for name, setting in ALL.items() if setting.in_files}
TAKES = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


class FileValue(NamedTuple):
    """A value, and the file and line that set it."""

    value: Value
    path: str
    line: int

    @property
    def place(self) -> str:
        """The file and the line, for messages."""
        return _place(self.path, self.line)


def short_path(path: str) -> str:
    """Return a path for messages: inert, and with ~ for the user's home."""
    home = os.path.join(os.path.expanduser("~"), "")
    return visible(os.path.join("~", path[len(home) :]) if len(home) > 1 and path.startswith(home) else path)


def read_config(path: str, commands: Collection[str] | None = None) -> dict[tuple[str, str], FileValue]:
    """Return what a file sets, by (command, setting); the command is "" for settings of all commands.

    A table bears the name of one of `commands`; where these are None, any name will do. Raises ConfigError,
    with the line, for what is not TOML, a key that is not a setting, or a value of another type.
    """
    text = _text(path)
    try:
        _check_toml(text, path)
        entries = list(_entries(text))
    except RecursionError:
        raise ConfigError(
            f"{visible(path)}: its keys are nested too deeply.", "Keys have one part or two."
        ) from None
    found: dict[tuple[str, str], FileValue] = {}
    for line, keys, value in entries:
        where = _place(path, line)
        *table, key = keys if not isinstance(value, dict) else (*keys, "")
        if len(table) > 1 or (table and commands is not None and table[0] not in commands):
            raise _no_table(where, table, commands or ())
        if isinstance(value, dict):
            continue
        name = key.replace("-", "_")
        if name not in SETTINGS:
            raise _no_setting(where, key, commands or ())
        placed = ("".join(table), name)
        if placed in found:
            raise ConfigError(f"{where}: {visible(key)} is set in line {found[placed].line} already.")
        found[placed] = FileValue(_typed(name, value, where), path, line)
    return found


def in_force(paths: Sequence[str], command: str, commands: Collection[str] | None) -> dict[str, FileValue]:
    """Return what these files set for a command; an earlier file counts more, and in a file the command's table."""
    found: dict[str, FileValue] = {}
    for path in reversed(paths):
        settings = read_config(path, commands)
        for wanted in ("", command):
            found |= {name: setting for (table, name), setting in settings.items() if table == wanted}
    return found


class FileValues:
    """What files set for one command, read when the first value is asked for: help asks for none."""

    def __init__(self, names: Container[str], read: Callable[[], Mapping[str, FileValue]]) -> None:
        """`names` are the settings that the command takes from files, which `read` reads."""
        self.names = names
        self.read = cache(read)

    def origin(self, name: str) -> FileValue | None:
        """Return the value that is set for a setting, and its place."""
        return self.read().get(name) if name in self.names else None

    def get(self, name: str) -> Value | None:
        """Return the value that is set for a setting."""
        found = self.origin(name)
        return None if found is None else found.value


def _place(path: str, line: int) -> str:
    return f"{short_path(path)}, line {line}"


def _text(path: str) -> str:
    try:
        data = read_bytes(path, MAX_CONFIG_BYTES)
    except FileError as error:
        raise ConfigError(error.message, "Correct it, or move it away.") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(f"{short_path(path)} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{_place(path, line)}: this is not UTF-8.", "Save it as UTF-8.") from None


def _check_toml(text: str, path: str) -> None:
    import tomllib  # most users have no such file

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
        raise ConfigError(f"{short_path(path)} holds a value that is not a setting's.") from None


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


def _typed(name: str, value: object, where: str) -> Value:
    """Return a value that has the type of its setting; 1 will do for 1.0, and 3 for the head "3"."""
    kind = SETTINGS[name].type
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    is_huge = isinstance(value, int) and value.bit_length() > 63
    if isinstance(value, int | float) and not is_huge:
        if kind is bool and isinstance(value, bool):
            return value
        if kind is int and is_whole:
            return value
        if kind is float and (is_whole or isinstance(value, float)):
            return float(value)
        if name == "head" and is_whole:
            return str(value)
    if kind is str and isinstance(value, str) and "\0" not in value:
        return os.path.expanduser(value) if value.startswith("~/") else value  # there is no shell to do it
    hint = ""
    if isinstance(value, str):
        hint = "" if kind is str else "Remove the quotes." if value.strip() else "Remove the line."
    elif kind is str and not isinstance(value, list | dict):
        hint = "Put it in quotes."
    written = "a number of that many digits" if is_huge else _written(value)
    raise ConfigError(f"{where}: {name.replace('_', '-')} cannot be {written}: it takes {TAKES[kind]}.", hint)


def _written(value: object) -> str:
    if isinstance(value, str):
        return f'"{visible(value[:40])}{"..." if len(value) > 40 else ""}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else "a list" if isinstance(value, list) else "a date"


def _no_table(where: str, table: Sequence[str], commands: Collection[str]) -> ConfigError:
    near = near_names(table[0], commands) if len(table) == 1 else []
    named = visible(".".join(table)[:60])
    return ConfigError(
        f"{where}: there is no table [{named}].",
        f"{f'Did you mean [{near[0]}]? ' if near else ''}A table bears a command's name, as [masked].",
    )


def _no_setting(where: str, key: str, commands: Collection[str]) -> ConfigError:
    named = visible(key[:60])
    if key in ALL:
        known = ALL[key]
        return ConfigError(
            f"{where}: {named} cannot be set in a file.", f"Type it: {known.short} {known.metavar}"
        )
    if key in commands:
        return ConfigError(f"{where}: {named} is a command.", f"Write [{named}], and its settings below.")
    names = {name.replace("_", "-") for name in SETTINGS}
    name = key.replace("_", "-")
    near = did_you_mean(name, names) if name not in names else ""
    return ConfigError(f"{where}: there is no setting {named!r}.", f"{near}See attn config for all of them.")
