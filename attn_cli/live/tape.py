"""What happens to keys, pastes and clicks besides being obeyed: they are recorded, and a replay makes them."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from attn_cli.live.record import Event, Recorder
from attn_cli.live.replay import Replay
from attn_cli.live.scene import Hit

STOPPED = "The replay has stopped; the keys are yours."


class Tape:
    """The recorder and the replay of one session; `say` tells people what becomes of them."""

    def __init__(self, recorder: Recorder | None, replay: Replay | None, say: Callable[[str], None]) -> None:
        self.recorder = recorder
        self.replay = replay or Replay()
        self._say = say
        self._fed: set[int] = set()  # events that the replay has made, and that are on their way

    def is_kept(self, event: events.Key | events.Paste) -> bool:
        """Record an event; tell whether the replay keeps it to itself, as a person's pause."""
        if id(event) in self._fed:
            self._fed.discard(id(event))
        elif self.replay.is_on and isinstance(event, events.Key):
            if self.replay.pressed(event.key):
                return True
            self._say(STOPPED)
        if isinstance(event, events.Key):
            self._add("key", event.key, event.character)
        else:
            self._add("paste", event.text)
        return False

    def clicked(self, hit: Hit, times: int) -> None:
        """Record a click."""
        self._add("do", hit.action, str(times), hit.numbers)

    def made(self, event: Event) -> events.Key | events.Paste | tuple[Hit, int]:
        """Return what was recorded, as it happens again: a key, a paste, or a click and how many times."""
        if event.kind == "do":
            return Hit(event.value, tuple(map(int, event.numbers))), int(event.character or 1)
        is_key = event.kind == "key"
        again = events.Key(event.value, event.character) if is_key else events.Paste(event.value)
        self._fed.add(id(again))
        return again

    def _add(
        self, kind: str, value: str, character: str | None = None, numbers: tuple[int, ...] = ()
    ) -> None:
        """Record an event; a full disk ends the recording, not the lecture."""
        if self.recorder is None:
            return
        try:
            self.recorder.add(kind, value, character, tuple(map(float, numbers)))
        except OSError as error:
            self.recorder = None
            self._say(f"The recording has ended: {error.strerror or error}.")
