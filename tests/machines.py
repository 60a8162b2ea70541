"""A Dask cluster as a user has one: a scheduler and workers, each a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.shell import surroundings

REUSE = "DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON__MALLOC_{}_THRESHOLD_"
MEMORY = {REUSE.format("TRIM"): "67108864", REUSE.format("MMAP"): "33554432"}  # as docs/scale.md has it


def workers_of(pid: int | str) -> list[int]:
    """Return the workers of a local cluster that a process has started, by whichever of its threads."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
    return found


class Machines:
    """A scheduler and workers of one thread, which run until they are ended."""

    def __init__(self, workers: int = 2) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port))
        self.workers = []
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        self.workers.append(self._start("worker", self.address, "--nthreads", "1"))

    def _start(self, what: str, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *args, "--no-dashboard"]
        quiet = {"stderr": subprocess.DEVNULL, "start_new_session": True}
        return subprocess.Popen(command, env=surroundings(MEMORY), **quiet)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *raised: object) -> None:
        for process in (*self.workers, self.scheduler):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
