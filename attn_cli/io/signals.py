"""What a signal leaves behind: nothing. Ctrl-C, SIGTERM and SIGHUP clean up and end the process at once.

No exception is raised: one that comes out of an import or out of a callback in C may be swallowed there, or be
reported as something else. Work that can use an interrupt (a training that writes what it has learned) says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

_cleanups: dict[int, Callable[[], object]] = {}
_catching = 0
received = 0  # the signal that was raised as a KeyboardInterrupt


@contextlib.contextmanager
def cleaned_up(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if a signal ends the process inside this block; errors are the block's own business."""
    key = id(undo)
    _cleanups[key] = undo
    try:
        yield
    finally:
        _cleanups.pop(key, None)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt for a signal inside this block, for work that ends well by itself."""
    global _catching
    _catching += 1
    try:
        yield
    finally:
        _catching -= 1


def exit_code() -> int:
    """Return the exit code of a run that was interrupted."""
    return 128 + (received or signal.SIGINT)


def end(signum: int) -> None:
    """End the process as this signal does: undo what is half done; raise KeyboardInterrupt where that is wanted."""
    global received
    if _catching and not received:
        received = signum
        raise KeyboardInterrupt
    for one in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(one, signal.SIG_IGN)
    for undo in reversed(list(_cleanups.values())):
        with contextlib.suppress(Exception):
            undo()
    os._exit(128 + signum)
