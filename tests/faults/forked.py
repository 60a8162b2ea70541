"""attn run in a fork of this process, which has loaded it: a run in milliseconds, with a fault of one's choice."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from attn_cli import __main__ as program
from tests import preloaded
from tests.faults.inject import Fault, Injector
from tests.shell import surroundings

SECONDS = 60  # of one run
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Ended(NamedTuple):
    """How a run ended: its exit code (below 0: a signal), its streams, the calls that it made, the spoilt one's."""

    code: int
    out: bytes
    err: bytes
    calls: dict[str, int]
    victim: str


def run(args: Sequence[str], folder: Path, env: Mapping[str, str], fault: Fault | None = None) -> Ended:
    home = folder.parent / "streams"
    home.mkdir(exist_ok=True)
    out, err, report = home / "out", home / "err", home / "report.json"
    report.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            streams = os.open(os.devnull, os.O_RDONLY), *(os.open(path, NEW) for path in (out, err))
            injector, leave, begin = Injector(fault), os._exit, program.run

            def left(code):  # with a report of the calls
                report.write_text(json.dumps({"calls": injector.counts, "victim": str(injector.victim)}))
                leave(code)

            def spoilt():  # attn begins with the fault in place
                os._exit = left
                injector.install()
                begin()

            program.run = spoilt
            preloaded.Request(args, surroundings(env), str(folder)).become(streams)
        except BaseException as error:
            err.write_text(f"the harness failed: {error!r}\n")
        finally:
            os.kill(os.getpid(), signal.SIGABRT)  # it is left by os._exit alone
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = json.loads(report.read_text()) if report.exists() else {"calls": {}, "victim": ""}
    return Ended(code, out.read_bytes(), err.read_bytes(), found["calls"], found["victim"])
