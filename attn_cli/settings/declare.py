"""How a setting is declared: type, default, choices, range and help in one place, which everything else reads.

Each field of Settings, View and the settings of training is made by a Group. Command line, ATTN_* variables,
attn.toml, JSON files, checks and the reference page read `declared(Settings)`; which commands take an option is
said in `cli.options` and above each command.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

from attn_cli.errors import SettingError, did_you_mean, visible
from attn_cli.io.types import NamedTuple

T = TypeVar("T")
Value: TypeAlias = bool | int | float | str
# Names that can be added while the program runs (score functions, mask rules) are given by a function.
Names: TypeAlias = Sequence[str] | Callable[[], Iterable[str]]

TYPES: dict[str, type[Value]] = {"str": str, "int": int, "float": float, "bool": bool}
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
SHORTEST, LONGEST = 1, 50  # inches


class Setting(NamedTuple):
    """One setting: its name, type and default are those of its field."""

    group: Group  # the heading above its option in --help
    help: str | Callable[[], str]
    short: str = ""  # the option's one-letter form
    metavar: str | None = None  # what stands for the value in --help where there are no choices
    choices: Names = ()  # all values there are
    examples: Names = ()  # some of the values there are, for completion
    parts: Names = ()  # the names that a value is a list of, with commas between them; a dot may follow each
    bounds: tuple[float, float] | None = None  # of a number, both included
    words: Sequence[str] = ()  # what may stand in the place of that number
    form: Callable[[object], object] | None = None  # gives None for a text that the setting cannot have
    is_repeated: bool = False  # given once for each of its values, which it has as a tuple
    hint: str = ""  # what to give instead of a value that is refused
    unset: str = ""  # what None stands for, in words
    has_variable: bool = True  # whether ATTN_* sets it, and with it attn.toml
    in_files: bool = True  # whether that does
    name: str = ""
    type: type[Value] = str
    default: object = None

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
        return now(self.choices)

    def help_text(self) -> str:
        """Return the help of its option, without the default."""
        return self.help if isinstance(self.help, str) else self.help()

    def read(self, value: Any) -> Any:
        """Return the value as the setting holds it: of digits beside words their number, of what is repeated each once.

        >>> Setting(TEXT, "", bounds=(0, 9), words=("all",)).read("7")
        7
        """
        if self.is_repeated:
            return tuple(dict.fromkeys(value))
        is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
        return int(value) if self.words and is_number else value

    def check(self, value: object) -> None:
        """Raise SettingError if the setting cannot have this value."""
        if value is None and self.default is None:
            return
        refused, hint = value, self.hint
        if names := self.names():
            is_right = value in names
            hint = "" if is_right else f"{did_you_mean(str(value), names)}Choose {', '.join(names)}."
        elif parts := now(self.parts):
            given = [part.partition(".")[0] for part in split(str(value))]
            wrong = [part for part in given if part not in parts]
            is_right, refused = not wrong, (*wrong, "")[0]
            hint = did_you_mean(refused, parts) + hint if wrong else hint
        elif self.bounds is not None and value not in self.words:
            least, most = self.bounds
            is_number = hasattr(value, "__float__" if self.type is float else "__index__")
            is_right = is_number and least <= value <= most and math.isfinite(value)  # type: ignore[operator, arg-type]
            hint = hint or f"Give a whole number from {least} to {most:,}."
        else:
            is_right = self.form is None or self.form(value) is not None
        if not is_right:
            shown = visible(str(refused)[:60])
            raise SettingError(self.name, repr(shown) if isinstance(refused, str) else shown, hint)


class Group(str):
    """The heading above options in --help; called in a dataclass, it declares a field that is one of them."""

    def __call__(self, help: str | Callable[[], str], default: T = None, **about: Any) -> T:  # type: ignore[assignment]
        """Return the field of a setting; `about` are further fields of Setting."""
        return dataclasses.field(default=default, metadata={"setting": Setting(self, help, **about)})


GROUPS = (  # in the order of --help
    *(INPUT := Group("Input"), COMPARED := Group("What is compared"), MEASURED := Group("What is measured")),
    *(TEXT := Group("Text"), VECTORS := Group("Vectors"), ATTENTION := Group("Attention")),
    *(MODEL := Group("Model"), TRAINING := Group("Training"), SHOWN := Group("What is shown")),
    *(OUTPUT := Group("Output"), HELP := Group("Help")),
)


def now(names: Names) -> tuple[str, ...]:
    """Return the names that there are at this moment."""
    return tuple(names() if callable(names) else names)


def split(value: str) -> list[str]:
    """Return the names in a value that is a list of them.

    >>> split("weights, summary")
    ['weights', 'summary']
    """
    return [name.strip() for name in value.split(",")]


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


def area_of(value: object) -> tuple[float, float] | None:
    """Return a width and a height in inches, each within SHORTEST and LONGEST; None if these are none.

    >>> area_of("8x4.5"), area_of("16 x 9"), area_of("8"), area_of("0x9")
    ((8.0, 4.5), (16.0, 9.0), None, None)
    """
    try:
        width, height = map(float, str(value).lower().split("x"))
    except ValueError:
        return None
    return (width, height) if all(SHORTEST <= side <= LONGEST for side in (width, height)) else None


@cache
def declared(record: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name; its other fields the library alone sets.

    >>> from attn_cli.settings import Settings
    >>> declared(Settings)["pad_side"].names()
    ('right', 'left')
    """
    found = {}
    for one in dataclasses.fields(record):
        if (about := one.metadata.get("setting")) is not None:
            kind = TYPES["str" if about.is_repeated else str(one.type).partition(" ")[0]]
            metavar = about.metavar or ("N" if kind is int else None)
            found[one.name] = about._replace(name=one.name, type=kind, default=one.default, metavar=metavar)
    return found


def as_typed(record: object, but: Sequence[str] = (), short: bool = False) -> list[str]:
    """Return the options of all settings but these that are not what they are by default, `short` where they can be."""
    found: list[str] = []
    kind: type = type(record)
    for name, one in declared(kind).items():
        value = getattr(record, name)
        if value == one.default or name in but:
            continue
        if one.is_repeated:
            found += [part for each in value for part in (one.option, str(each))]
        elif isinstance(value, bool):
            found.append(one.option)  # which is off by default
        else:
            written = f"{value:.12g}" if isinstance(value, float) else str(value)
            found += [(short and one.short) or one.option, written]
    return found


def check(record: object) -> None:
    """Raise SettingError for the first value of Settings or View that cannot be; keep each as `Setting.read` has it."""
    kind: type = type(record)
    for name, one in declared(kind).items():
        value = one.read(getattr(record, name))
        object.__setattr__(record, name, value)
        one.check(value)
