"""A recording played: each thing in its time, and once the one before is answered; a person's key takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from attn_cli.live.record import Event

LOOK = 0.005  # seconds between two looks whether an answer has come


@dataclass
class Replay:
    """Events that are still to come, and how fast they do."""

    events: tuple[Event, ...] = ()
    pace: float = 1.0
    is_on: bool = field(init=False)
    is_paused: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.is_on = bool(self.events)

    async def run(self, do: Callable[[Event], None], is_behind: Callable[[], bool]) -> None:
        """Do each event in its time, and not before the one before it is answered."""
        last = 0.0
        for event in self.events:
            await asyncio.sleep(max(LOOK, (event.at - last) / self.pace))
            while self.is_on and (self.is_paused or is_behind()):
                await asyncio.sleep(LOOK)
            if not self.is_on:
                return
            last = event.at
            do(event)
        await asyncio.sleep(LOOK)
        self.is_on = False

    def pressed(self, key: str) -> bool:
        """Let a person's space pause and continue, and any other key end it; return whether that is all it does."""
        if key == "space":
            self.is_paused = not self.is_paused
            return True
        self.is_on = False
        return False
