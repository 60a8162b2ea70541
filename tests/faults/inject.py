"""A system call that fails, takes less than it was given, or is the last of its process."""

import contextlib
import errno
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

CALLS = ("open", "write", "fsync", "chmod", "close", "replace", "rename", "unlink", "mkdir", "rmdir")
ERRORS = ("EIO", "ENOSPC", "EINTR", "EDQUOT")
TRIED_AGAIN = ("open", "write", "fsync", "chmod")  # by Python itself after EINTR (PEP 475): nobody sees it
KILLS = ("kill before", "kill after", "kill half")  # half: of a write
SHORT = "short"
STICKY = "EIO from then on", "ENOSPC from then on"


class Fault(NamedTuple):
    """What happens at the `nth` call (from 1) of a name: an error, a short count, or the end of the process."""

    call: str
    nth: int
    kind: str

    def __str__(self) -> str:
        return f"{self.call} {self.nth}: {self.kind}"


def kinds(call: str) -> tuple[str, ...]:
    """Return the faults that a call can have."""
    of_write = (SHORT, "kill half") if call == "write" else ()
    errors = [one for one in ERRORS if one != "EINTR" or call not in TRIED_AGAIN]
    return (*errors, *STICKY, "kill before", "kill after", *of_write)


class Injector:
    """Stands before the os functions that write; counts their calls, and spoils one of them."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.counts: Counter[str] = Counter()
        self.victim: Any = None  # the first argument of the spoilt call

    def install(self) -> None:
        """Replace the functions of os in this process, for good."""
        for name in CALLS:
            setattr(os, name, self._standing_before(name, getattr(os, name)))

    def _standing_before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.counts[name] += 1
            fault = self.fault
            if fault is None or fault.call != name or not self._is_due(fault):
                return real(*args, **options)
            if self.victim is None:
                self.victim = args[0]
            return _spoilt(fault.kind, real, args, options, name)

        return call

    def _is_due(self, fault: Fault) -> bool:
        count = self.counts[fault.call]
        return count >= fault.nth if fault.kind in STICKY else count == fault.nth


def _spoilt(kind: str, real: Callable[..., Any], args: tuple[Any, ...], options: Any, name: str) -> Any:
    if kind == SHORT:
        return real(args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
    if kind in KILLS:
        if kind == "kill after":
            with contextlib.suppress(OSError):
                real(*args, **options)
        if kind == "kill half":
            real(args[0], bytes(args[1])[: len(args[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "close":
        real(*args, **options)  # Linux frees the number whatever it answers
    number = getattr(errno, kind.split()[0])
    raise OSError(number, os.strerror(number))
