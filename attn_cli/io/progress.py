"""What long work reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Stage(NamedTuple):
    """Where work stands: the phase's name, the part of it done (0 to 1), words so far, seconds so far, a note."""

    phase: str
    done: float
    words: int
    seconds: float
    note: str = ""


Report = Callable[[Stage], None]
