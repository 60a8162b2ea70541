"""--record and --replay: the keys of a lecture in a file, one event a line, and in what time they come."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes

FORMAT = "attn-live/1"
KINDS = ("key", "paste", "do")
LONGEST_WAIT = 3600.0  # seconds
MOST_BYTES = 64 << 20


class Event(NamedTuple):
    """One thing that was done, and how many seconds after the start."""

    at: float
    kind: str  # key: a key, and its character; paste: a text; do: a click, by its meaning
    value: str
    character: str | None = None
    numbers: tuple[float, ...] = ()


class Recording(NamedTuple):
    """A file of events, and the text that they began with; None where it was no text."""

    text: str | None
    events: tuple[Event, ...]


class Recorder:
    """Writes events to a file as they happen, so that a recording that is cut short can be replayed, too."""

    def __init__(self, path: str, text: str | None) -> None:
        from attn_cli.io.atomic import growing

        self.stream = growing(path)
        self.began = time.monotonic()
        self._put({"recording": FORMAT, "text": text})

    def add(
        self, kind: str, value: str, character: str | None = None, numbers: tuple[float, ...] = ()
    ) -> None:
        """Write one event."""
        record: dict[str, object] = {"at": round(time.monotonic() - self.began, 3), kind: value}
        if kind == "key":
            record["character"] = character
        if numbers:
            record["numbers"] = list(numbers)
        self._put(record)

    def _put(self, record: dict[str, object]) -> None:
        self.stream.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self.stream.flush()

    def close(self) -> None:
        """Close the file."""
        self.stream.close()


def read_recording(path: str) -> Recording:
    """Return the events of a file; raise InputError for one that is not a recording."""
    lines = read_bytes(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    name = visible(path)
    head = _object(lines[0] if lines else "", name, 1)
    if head.get("recording") != FORMAT:
        raise InputError(
            f"{name} is not a recording of attn live.", "attn live TEXT --record FILE makes one."
        )
    text = head.get("text")
    events = tuple(_events(lines[1:], name))
    return Recording(text if isinstance(text, str) else None, events)


def _events(lines: list[str], name: str) -> Iterator[Event]:
    last = 0.0
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        record = _object(line, name, number)
        kind = next((kind for kind in KINDS if isinstance(record.get(kind), str)), None)
        at = record.get("at")
        if kind is None or not isinstance(at, int | float) or isinstance(at, bool) or not math.isfinite(at):
            raise InputError(f"{name}, line {number}: no event with a time.")
        if not last <= at <= last + LONGEST_WAIT:
            raise InputError(f"{name}, line {number}: its time, {at:g}, does not follow {last:g}.")
        last = float(at)
        character, numbers = record.get("character"), _numbers(record.get("numbers", []))
        if numbers is None or not isinstance(character, str | None):
            raise InputError(f"{name}, line {number}: no event that attn live knows.")
        yield Event(last, kind, str(record[kind]), character, numbers)


def _numbers(given: object) -> tuple[float, ...] | None:
    """Return a list of numbers; None for anything else."""
    if not isinstance(given, list) or not all(isinstance(n, int | float) and math.isfinite(n) for n in given):
        return None
    return tuple(map(float, given))


def _object(line: str, name: str, number: int) -> dict[str, object]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InputError(
            f"{name}, line {number}: no JSON object.", "attn live TEXT --record FILE writes one a line."
        )
    return record
