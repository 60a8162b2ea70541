"""A system call that fails, takes less than it was given, or is the last of its process."""

import contextlib
import errno
import os
import signal
from collections import Counter
from functools import partial
from typing import NamedTuple

CALLS = ("open", "write", "fsync", "chmod", "close", "replace", "rename", "unlink", "mkdir", "rmdir")
ERRORS = ("EIO", "ENOSPC", "EINTR", "EDQUOT", "EACCES")
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
    of_write = (SHORT, "kill half") if call == "write" else ()
    errors = [one for one in ERRORS if one != "EINTR" or call not in TRIED_AGAIN]
    return (*errors, *STICKY, "kill before", "kill after", *of_write)


class Injector:
    """Stands before the os functions that write; counts their calls, and spoils one of them."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault or Fault("", 0, "")
        self.counts = Counter()
        self.victim = None  # the first argument of the spoilt call

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, partial(self.call, name, getattr(os, name)))

    def call(self, name, real, *args, **options):
        self.counts[name] += 1
        fault, before = self.fault, self.counts[name] - self.fault.nth
        if fault.call != name or before < 0 or (before > 0 and fault.kind not in STICKY):
            return real(*args, **options)
        self.victim = args[0] if self.victim is None else self.victim
        if fault.kind in (SHORT, "kill half"):
            written = real(args[0], bytes(args[1])[: max(fault.kind == SHORT, len(args[1]) // 2)])
            if fault.kind == SHORT:
                return written
        with contextlib.suppress(OSError):
            if fault.kind == "kill after":
                real(*args, **options)
        if fault.kind in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "close":
            real(*args, **options)  # Linux frees the number whatever it answers
        number = getattr(errno, fault.kind.split()[0])
        raise OSError(number, os.strerror(number))
