"""What a signal leaves behind: nothing. Ctrl-C, SIGTERM and SIGHUP clean up and end the process at once.

No exception is raised: one that comes out of an import or out of a callback in C may be swallowed there, or be
reported as something else. Work that can use an interrupt (a training that writes what it has learned) says so.
Beside it, a separate process for work that may never end, or end the process: it ends with attn.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen
    from types import FrameType

_cleanups: dict[int, Callable[[], object]] = {}
_catching = 0
received = 0  # the signal that was raised as a KeyboardInterrupt


@contextmanager
def cleaned_up(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if a signal ends the process inside this block; errors are the block's own business."""
    key = id(undo)
    _cleanups[key] = undo
    try:
        yield
    finally:
        _cleanups.pop(key, None)


@contextmanager
def handled(act: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Let these signals do this inside the block, unless they are ignored."""
    before = {one: signal.getsignal(one) for one in numbers if signal.getsignal(one) != signal.SIG_IGN}
    for one in before:
        signal.signal(one, act)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def put_off(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals come when the block has ended: a mask would hold them off in one thread alone."""
    waiting = list[int]()
    try:
        with handled(lambda number, frame: waiting.append(number), *numbers):
            yield
    finally:
        for number in waiting:
            signal.raise_signal(number)  # os.kill ends the process, on Windows, whatever its handler


@contextmanager
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
        with suppress(Exception):
            undo()
    os._exit(128 + signum)


class DiedError(Exception):
    """The separate process has ended before its answer; `is_late`: because there was no more time."""

    def __init__(self, is_late: bool) -> None:
        super().__init__("late" if is_late else "dead")
        self.is_late = is_late


class SeparateProcess:
    """A Python script that reads and writes JSON lines; killed when attn ends or is interrupted, or it is late."""

    def __init__(self, script: str, arguments: list[str], seconds: float) -> None:

        self.seconds, self._owner, self._is_late = seconds, os.getpid(), False
        self.running = _started([script, *arguments])
        atexit.register(self.end)

    def is_running(self) -> bool:
        """Tell whether the process can be asked."""
        return self.running.poll() is None

    def ask(self, question: dict[str, Any], data: bytes = b"") -> Any:
        """Return the answer to a question, and the bytes that belong to it; one thread at a time may ask."""
        import json

        with cleaned_up(self._kill):
            try:
                return json.loads(self._answer(json.dumps(question).encode() + b"\n" + data))
            except BaseException:  # an interrupt, too: what is asked next must not get this answer
                self.end()
                raise

    def _answer(self, question: bytes) -> bytes:
        from threading import Timer

        to, of = self.running.stdin, self.running.stdout
        assert to is not None and of is not None
        timer = Timer(self.seconds, self._kill, [True])
        timer.daemon = True
        timer.start()
        try:
            to.write(question)
            to.flush()
            line = of.readline(1 << 28)
        except OSError:  # EPIPE; on Windows EINVAL
            line = b""
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return line
        self._kill()
        is_late = self.running.wait() == -getattr(signal, "SIGXCPU", 0)
        raise DiedError(is_late or self._is_late)

    def _kill(self, is_late: bool = False) -> None:
        self._is_late |= is_late
        if self._owner == os.getpid():  # a fork of attn leaves it to its parent
            self.running.kill()

    def end(self) -> None:
        """End the process."""
        atexit.unregister(self.end)
        if self._owner == os.getpid():
            with suppress(OSError), self.running:  # which closes its pipes, and waits for it
                self._kill()


def _started(command: list[str]) -> Popen[bytes]:
    import subprocess

    from attn_cli.errors import MachineError

    # With -I, it imports nothing from the folder that attn runs in, or from PYTHONPATH.
    isolated = [sys.executable or "python", "-I", *command]
    env = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # else each thread takes 64 MB of what it may have
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:  # in a session of its own: Ctrl-C is for attn, which then kills it
        return subprocess.Popen(
            isolated, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True, env=env
        )
    except OSError as error:
        raise MachineError(f"A separate process cannot be started: {error.strerror}.") from None
