"""A process that answers questions, each within a limit of time: for work that may never end, or end the process."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attn_cli.errors import MachineError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from subprocess import Popen

LONGEST_ANSWER = 1 << 28


class DiedError(Exception):
    """The process has ended before its answer; `is_late`: because there was no more time."""

    def __init__(self, is_late: bool) -> None:
        super().__init__("late" if is_late else "dead")
        self.is_late = is_late


class SeparateProcess:
    """A Python script that runs beside attn, and reads and writes JSON by the line.

    It is killed when attn ends, when it is late, and when whoever waits for an answer is interrupted.
    """

    def __init__(self, script: str, arguments: list[str], seconds: float) -> None:
        self.seconds, self._owner, self._is_late = seconds, os.getpid(), False
        self.running = _started([script, *arguments])
        atexit.register(self.end)

    def is_running(self) -> bool:
        """Tell whether the process can be asked."""
        return self.running.poll() is None

    def ask(self, question: dict[str, Any], data: bytes = b"") -> Any:
        """Return the answer to a question, and the bytes that belong to it; one thread at a time may ask."""
        with cleaned_up(self._kill):
            try:
                return self._answer(json.dumps(question).encode() + b"\n" + data)
            except BaseException:  # an interrupt, too: what is asked next must not get this answer
                self.end()
                raise

    def _answer(self, question: bytes) -> Any:
        to, of = self.running.stdin, self.running.stdout
        assert to is not None and of is not None
        timer = threading.Timer(self.seconds, self._kill_late)
        timer.daemon = True
        timer.start()
        try:
            to.write(question)
            to.flush()
            line = of.readline(LONGEST_ANSWER)
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return json.loads(line)
        self._kill()
        is_late = self.running.wait() == -getattr(signal, "SIGXCPU", 0)
        raise DiedError(is_late or self._is_late)

    def _kill_late(self) -> None:
        self._is_late = True
        self._kill()

    def _kill(self) -> None:
        if self._owner == os.getpid():  # a fork of attn leaves it to its parent
            self.running.kill()

    def end(self) -> None:
        """End the process."""
        atexit.unregister(self.end)
        if self._owner != os.getpid():
            return
        self._kill()
        self.running.wait()
        for pipe in (self.running.stdin, self.running.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()


def _started(command: list[str]) -> Popen[bytes]:
    """Start a script that imports nothing from the folder that attn runs in, or from PYTHONPATH (-I)."""
    import subprocess

    try:
        return subprocess.Popen(
            [sys.executable or "python", "-I", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for attn, which then kills it
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # else each thread takes 64 MB of what it may have
        )
    except OSError as error:
        raise MachineError(f"A separate process cannot be started: {error.strerror}.") from None
