"""A checkpoint's config.json: its values, each checked when it is asked for."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes

LARGEST_FILE = 1 << 22
MOST = 1 << 20  # no size in a config but that of a vocabulary is larger
SPELLED = 60  # how much of a bad value an error shows


class Config(NamedTuple):
    """The values of a config.json, or of an object in it; a value that is null counts as absent."""

    where: str
    values: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Tell whether there is a value of this name."""
        return self.values.get(name) is not None

    def whole(self, name: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """Return a whole number from `least` to `most`."""
        value = self._value(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.refused(name, f"a whole number from {least} to {most:,}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive finite number."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
            raise self.refused(name, "a positive number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, "true or false")
        return value

    def word(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.refused(name, "a string")
        return value

    def each(self, name: str, count: int) -> list[object]:
        """Return a list that has a value for each of `count` layers."""
        value = self._value(name, None)
        if not isinstance(value, list) or len(value) != count:
            raise self.refused(name, f"a list with a value for each of {count} layers")
        return value

    def part(self, name: str) -> Config:
        """Return the object of this name; an empty one where it is absent."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.refused(name, "an object")
        return Config(f"{self.where}, {name}", value)

    def without(self, *names: str) -> Config:
        """Return the config without these values."""
        return self._replace(values={key: value for key, value in self.values.items() if key not in names})

    def shared(self, name: str, whole: int) -> int:
        """Return `whole` divided by the number of this name, which must divide it."""
        count = self.whole(name)
        if whole % count:
            raise self.refused(name, f"a number that divides {whole}")
        return whole // count

    def refused(self, name: str, wanted: str) -> InputError:
        """Return the error that a value is not as it must be."""
        if not self.has(name):
            return InputError(f"{self.where} has no {name}.", f"It must be {wanted}.")
        value = json.dumps(self.values[name])
        value = value if len(value) <= SPELLED else value[:SPELLED] + "..."
        return InputError(f"{self.where}: {name} is {visible(value)}.", f"It must be {wanted}.")

    def _value(self, name: str, default: object) -> object:
        value = self.values.get(name)
        return default if value is None else value


def read_config(folder: str) -> Config:
    """Return the config.json of a checkpoint's folder; raise InputError where it cannot be used."""
    path = os.path.join(folder, "config.json")
    where = visible(path)
    try:
        values = json.loads(read_bytes(path, LARGEST_FILE), parse_constant=_not_finite)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not JSON.") from None
    if not isinstance(values, dict):
        raise InputError(f"{where} is not a JSON object.")
    config = Config(where, values)
    if config.has("quantization_config"):
        method = config.part("quantization_config").word("quant_method", "an unnamed method")
        raise InputError(
            f"{where}: the weights are quantised ({visible(method)[:SPELLED]}), which attn does not unpack.",
            "Use the checkpoint that it was made from, with weights in float32, float16 or bfloat16.",
        )
    return config


def _not_finite(name: str) -> float:
    return math.inf if name == "Infinity" else math.nan  # refused where it is asked for
