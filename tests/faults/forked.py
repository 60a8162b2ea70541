"""attn run in a fork of a process that has loaded it: a run in milliseconds, with a fault of one's choice."""

import io
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.faults.inject import Fault, Injector

SECONDS = 60.0  # of one run
REPORT = "report.json"
_OURS = ("ATTN_", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR")


class Ended(NamedTuple):
    """How a run ended: its exit code (below 0: a signal), its streams, the calls that it made, the spoilt one's."""

    code: int
    out: bytes
    err: bytes
    calls: dict[str, int]
    victim: str


def run(
    args: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, fault: Fault | None = None
) -> Ended:
    """Run attn in `folder`, with its home beside it, and the fault injected."""
    home = folder.parent / "streams"
    home.mkdir(exist_ok=True)
    out, err, report = home / "out", home / "err", home / REPORT
    report.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _become(args, folder, {**(env or {})}, fault, out, err, report)
    status = _awaited(child)
    found = json.loads(report.read_text()) if report.exists() else {"calls": {}, "victim": ""}
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, out.read_bytes(), err.read_bytes(), found["calls"], found["victim"])


def _awaited(child: int) -> int:
    end = time.monotonic() + SECONDS
    pause = 0.001
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _become(
    args: Sequence[str], folder: Path, env: Mapping[str, str], fault: Fault | None,
    out: Path, err: Path, report: Path,
) -> None:  # fmt: skip
    """Turn this fork into attn; it never returns."""
    leave = os._exit
    try:
        os.chdir(folder)
        for name in [name for name in os.environ if name.startswith(_OURS)]:
            del os.environ[name]
        os.environ.update(env)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", False)), "utf-8")
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", False)), "utf-8", "backslashreplace"
        )
        injector = Injector(fault)
        write, opened, closed = os.write, os.open, os.close

        def left(code: int) -> None:
            number = opened(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            write(number, json.dumps({"calls": injector.counts, "victim": str(injector.victim)}).encode())
            closed(number)
            leave(code)

        os._exit = left  # type: ignore[assignment]
        sys.argv = ["attn", *args]
        from attn_cli.__main__ import run as main

        injector.install()
        main()
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"the harness failed: {error!r}\n".encode())
        leave(99)
