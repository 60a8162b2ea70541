"""attn in forks of one process that has loaded it: a run costs what it does, and not what importing costs.

What depends on how Python itself starts (locale, PYTHON* variables) is tested in processes started anew. The process
that forks is that of multiprocessing, which tells a run's number and exit code.
"""

import fcntl
import io
import os
import pickle
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from typing import NamedTuple, NoReturn

_SERVER = forkserver.ForkServer()
_SERVER.set_forkserver_preload(["tests.loaded"])


class Run(NamedTuple):
    """A run that has been started: `status` gives its exit code."""

    pid: int
    status: int

    def wait(self, seconds: float) -> int:
        """Return the exit code (below 0: the signal that ended it); TimeoutExpired, and an end of it, if it lasts."""
        if not select.select([self.status], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired("attn", seconds)
        code: int = forkserver.read_signed(self.status)
        return code

    def close(self) -> None:
        os.close(self.status)


class Request(NamedTuple):
    """What attn is to be run with; with a session of its own, standard output is that session's terminal."""

    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    own_session: bool = False

    def start(self, streams: Sequence[int]) -> Run:
        status, request = _SERVER.connect_to_new_process([*streams])
        with open(request, "wb") as stream:
            pickle.dump({}, stream)
            pickle.dump(self, stream)
        return Run(forkserver.read_signed(status), status)

    def _bootstrap(self, parent: int) -> NoReturn:
        """Run in the process that has been forked, as multiprocessing has it."""
        os.close(parent)
        self.become(forkserver.get_inherited_fds())

    def become(self, streams: Sequence[int]) -> NoReturn:
        """Turn this process into attn, as a fresh one would be."""
        if self.own_session:
            os.setsid()
            fcntl.ioctl(streams[1], termios.TIOCSCTTY, 0)  # keys are read from the terminal of the session
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in streams:
            if descriptor > 2:
                os.close(descriptor)
        os.environ.clear()
        os.environ.update(self.env)
        os.chdir(self.cwd)
        sys.argv = ["attn", *self.args]
        encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding, "strict")
        # As Python's own, they do not close what they write to.
        out, err = (io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)) for descriptor in (1, 2))
        sys.stdout = io.TextIOWrapper(out, encoding, "strict", write_through=False)
        sys.stderr = io.TextIOWrapper(err, encoding, "backslashreplace")
        from attn_cli.__main__ import run

        run()
        os._exit(70)  # run() never returns
