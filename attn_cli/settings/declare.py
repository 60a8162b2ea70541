"""How a setting is declared: type, default, choices, range and help in one place, which everything else reads.

Each field of Settings, View and the settings of training is made by `Setting.field`. Command line, ATTN_* variables,
attn.toml, JSON files, checks and the reference page read `declared(Settings)`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from attn_cli.errors import SettingError, did_you_mean
from attn_cli.io.escape import visible

T = TypeVar("T")
Value: TypeAlias = bool | int | float | str
# Names that can be added while the program runs (score functions, mask rules) are given by a function.
Names: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]

TYPES: dict[str, type[Value]] = {"str": str, "int": int, "float": float, "bool": bool}
# The groups of options, in the order of --help; each option names its own where it is declared.
GROUPS = (
    *(INPUT := "Input", COMPARED := "What is compared", MEASURED := "What is measured"),
    *(
        TEXT := "Text",
        VECTORS := "Vectors",
        ATTENTION := "Attention",
        MODEL := "Model",
        TRAINING := "Training",
    ),
    *(SHOWN := "What is shown", OUTPUT := "Output", HELP := "Help"),
)


class Setting(NamedTuple):
    """One setting: its name, type and default are those of its field."""

    group: str  # the heading above its option in --help
    help: str | Callable[[], str]
    short: str = ""  # the option's one-letter form
    metavar: str | None = None  # what stands for the value in --help where there are no choices
    choices: Names = ()  # all values there are
    examples: Names = ()  # some of the values there are, for completion
    parts: Names = ()  # the names that a value is a list of, with commas between them
    bounds: tuple[float, float] | None = None  # of a number, both included
    words: Names = ()  # what may stand in the place of that number
    is_size: bool = False  # a number of bytes, as size_of reads it
    is_area: bool = False  # width x height in inches, as area_of reads it
    is_repeated: bool = False  # given once for each of its values, which it has as a tuple
    hint: str = ""  # what to give instead of a value out of range
    unset: str = ""  # what None stands for, in words
    has_variable: bool = True  # whether ATTN_* sets it
    in_files: bool = True  # whether attn.toml sets it
    name: str = ""
    type: type[Value] = str
    default: object = None

    def field(self, default: T) -> T:
        """Return the field of a dataclass that this setting declares."""
        return dataclasses.field(default=default, metadata={"setting": self})

    @property
    def option(self) -> str:
        """The long form of its option: --mask-true."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it."""
        return "ATTN_" + self.name.upper() if self.has_variable else None

    def names(self) -> tuple[str, ...]:
        """Return all values there are, or nothing where they cannot be counted."""
        return _now(self.choices)

    def completions(self) -> tuple[str, ...]:
        """Return the values that a shell offers."""
        return self.names() or _now(self.examples)

    def help_text(self) -> str:
        """Return the help of its option, without the default."""
        return self.help if isinstance(self.help, str) else self.help()

    def read(self, value: Any) -> Any:
        """Return the value as the setting holds it: the number that digits stand for, where words are taken too.

        >>> Setting("", "", bounds=(0, 9), words=("all",)).read("7")
        7
        """
        is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
        return int(value) if self.words and is_number else value

    def check(self, value: object) -> None:
        """Raise SettingError if the setting cannot have this value."""
        if value is None and self.default is None:
            return
        if names := self.names():
            if value not in names:
                hint = f"{did_you_mean(str(value), names)}Choose {', '.join(names)}."
                raise SettingError(self.name, _quoted(value), hint)
        elif parts := _now(self.parts):
            self._check_parts(str(value), parts)
        elif self.bounds is not None and value not in _now(self.words):
            least, most = self.bounds
            is_number = hasattr(value, "__float__" if self.type is float else "__index__")
            if not (is_number and least <= value <= most and math.isfinite(value)):  # type: ignore[operator, arg-type]
                hint = self.hint or f"Give a whole number from {least} to {most:,}."
                raise SettingError(self.name, _quoted(value), hint)
        elif self.is_size and size_of(value) is None:
            raise SettingError(self.name, _quoted(value), "Give a number of bytes, as 500000, 512kB or 64MB.")
        elif self.is_area and area_of(value) is None:
            hint = f"Give the width and the height, each from {SHORTEST} to {LONGEST} inches, as 8x4.5."
            raise SettingError(self.name, _quoted(value), hint)

    def _check_parts(self, value: str, parts: Sequence[str]) -> None:
        """Raise SettingError if the value is not a list of these names."""
        for part in split(value):
            if part not in parts:
                raise SettingError(self.name, _quoted(part), f"{did_you_mean(part, parts)}{self.hint}")


def split(value: str) -> list[str]:
    """Return the names in a value that is a list of them.

    >>> split("weights, summary")
    ['weights', 'summary']
    """
    return [name.strip() for name in value.split(",")]


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def size_of(value: object) -> int | None:
    """Return a size in bytes, above 0; None if it is none.

    >>> size_of("64MB"), size_of("512 k"), size_of("1000"), size_of("many")
    (64000000, 512000, 1000, None)
    """
    text = str(value).strip().lower().removesuffix("b")
    unit = text[-1:] if text[-1:] in UNITS else ""
    digits = text.removesuffix(unit).strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) * UNITS[unit] or None if is_number else None


SHORTEST, LONGEST = 1, 50  # inches


def area_of(value: object) -> tuple[float, float] | None:
    """Return a width and a height in inches, each within SHORTEST and LONGEST; None if these are none.

    >>> area_of("8x4.5"), area_of("16 x 9"), area_of("8"), area_of("0x9")
    ((8.0, 4.5), (16.0, 9.0), None, None)
    """
    sides = str(value).lower().split("x")
    if len(sides) != 2:
        return None
    try:
        width, height = map(float, sides)
    except ValueError:
        return None
    fits = all(SHORTEST <= side <= LONGEST for side in (width, height))
    return (width, height) if fits else None


def _now(names: Names) -> tuple[str, ...]:
    return tuple(names() if callable(names) else names)


def _quoted(value: object) -> str:
    return repr(visible(value[:60])) if isinstance(value, str) else visible(str(value)[:60])


@cache
def declared(record: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name.

    >>> from attn_cli.settings.settings import Settings
    >>> declared(Settings)["pad_side"].names()
    ('right', 'left')
    """
    found = {}
    for one in dataclasses.fields(record):
        about: Setting | None = one.metadata.get("setting")
        if about is None:
            continue  # the library alone sets it
        kind = TYPES["str" if about.is_repeated else str(one.type).partition(" ")[0]]
        metavar = about.metavar or ("N" if kind is int else None)
        found[one.name] = about._replace(name=one.name, type=kind, default=one.default, metavar=metavar)
    return found


def check(record: object) -> None:
    """Raise SettingError for the first value of Settings or View that cannot be; keep each as `Setting.read` has it."""
    kind: type = type(record)
    for name, one in declared(kind).items():
        given = getattr(record, name)
        value = one.read(given)
        if value is not given:
            object.__setattr__(record, name, value)
        one.check(value)
