"""What was done, one event a line, and done again: each in its time, and once the one before is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeGuard

from attn_cli.errors import CreateError, InputError, refuse_input, visible
from attn_cli.io import atomic, files
from attn_cli.live.keys import NUMBERS

FORMAT = "attn-live/1"
KINDS = ("key", "paste", "do")
LONGEST_WAIT = 3600.0  # seconds
MOST_BYTES = 64 << 20
MOST = 1e15  # of any number
LOOK = 0.005  # seconds between two looks whether an answer has come
CALM = 20  # looks in a row that find nothing to answer: a message may be between two queues at one of them


class Event(NamedTuple):
    """One thing that was done, and how many seconds after the start."""

    at: float
    kind: str  # key: a key, and its character; paste: a text; do: a click, by its meaning
    value: str
    character: str | None = None
    numbers: tuple[int, ...] = ()


class Recorder:
    """Writes events to a file as they happen, so that a recording that is cut short can be replayed, too."""

    def __init__(self, path: str, text: str | None) -> None:
        try:
            self.stream = atomic.growing(path)
            self.began = time.monotonic()
            self._put({"recording": FORMAT, "text": text})
        except OSError as error:
            said = f"Cannot create {visible(path)}: {error.strerror}."
            raise CreateError(said, "Choose another place.") from None

    def write(self, kind: str, value: str, **more: object) -> None:
        """Write one event; raises OSError where there is no room for it."""
        self._put({"at": round(time.monotonic() - self.began, 3), kind: value, **more})

    def _put(self, record: dict[str, object]) -> None:
        self.stream.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self.stream.flush()


class Replay:
    """Events that are still to come, and how fast they do."""

    def __init__(self, events: tuple[Event, ...] = (), pace: float = 1.0) -> None:
        self.events, self.pace = events, pace
        self.is_on, self.is_paused = bool(events), False

    async def run(self, do: Callable[[Event], Awaitable[None]], is_calm: Callable[[], bool]) -> None:
        """Do each event in its time, and not before the one before it is answered."""
        last = 0.0
        for event in self.events:
            await asyncio.sleep(max(LOOK, (event.at - last) / self.pace))
            while self.is_on and (self.is_paused or not is_calm()):
                await asyncio.sleep(LOOK)
            if not self.is_on:
                return
            last = event.at
            await do(event)
        calm = 0
        while self.is_on and calm < CALM:
            await asyncio.sleep(LOOK)
            calm = calm + 1 if is_calm() else 0
        self.is_on = False

    def interrupted(self, key: str) -> bool:
        """Let a person's space pause and continue, and any other key end it; return whether that is all it does."""
        self.is_on, is_pause = key == "space", key == "space"
        self.is_paused ^= is_pause
        return is_pause


def read_recording(path: str) -> tuple[str | None, tuple[Event, ...]]:
    """Return the text that a file of events begins with, if any, and these; InputError for one that is no recording."""
    lines = files.read_bytes(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    name = visible(path)
    head = _object(lines[0] if lines else "", f"{name}, line 1")
    said = f"{name} is not a recording of attn live."
    refuse_input(head.get("recording") != FORMAT, said, "attn live TEXT --record FILE makes one.")
    text, events = head.get("text"), list[Event]()
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            events.append(_event(line, f"{name}, line {number}", events[-1].at if events else 0.0))
    return text if isinstance(text, str) else None, tuple(events)


def _event(line: str, place: str, last: float) -> Event:
    record = _object(line, place)
    at, numbers, char = record.get("at"), record.get("numbers", []), record.get("character")
    kind = next((kind for kind in KINDS if isinstance(record.get(kind), str)), None)
    if kind is None or not _is_number(at):
        raise InputError(f"{place}: no event with a time.")
    if not last <= at <= last + LONGEST_WAIT:
        raise InputError(f"{place}: its time, {at:g}, does not follow {last:g}.")
    value = str(record[kind])
    if not (isinstance(numbers, list) and all(map(_is_number, numbers)) and isinstance(char, str | None)):
        raise InputError(f"{place}: no event that attn live knows.")
    if kind == "do" and NUMBERS.get(value) != len(numbers):
        raise InputError(f"{place}: no click that attn live knows.")
    return Event(float(at), kind, value, char, tuple(map(int, numbers)))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST


def _object(line: str, place: str) -> dict[str, object]:
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict):
            return record
    raise InputError(f"{place}: no JSON object.", "attn live TEXT --record FILE writes one a line.")
