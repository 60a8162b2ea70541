"""attn in forks of one process that has loaded it: a run costs what it does, and not what importing costs.

Such a run has its own process, streams, environment and folder. What depends on how Python itself starts (locale,
PYTHON* variables) and start-up itself are tested in processes started anew.
"""

import atexit
import contextlib
import fcntl
import importlib.util
import io
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

PACKAGE = Path(__file__).parents[1] / "attn_cli"
MissingTextual = () if importlib.util.find_spec("textual") else ImportError
MATPLOTLIB = ("figure", "collections", "backends.backend_agg", "backends.backend_pdf", "backends.backend_svg")
SIZE = struct.Struct("!I")
CODE = struct.Struct("!i")
_ONE_AT_A_TIME = threading.Lock()


class Run(NamedTuple):
    """A run that has been started: `status` gives its process's number, and then its exit code."""

    pid: int
    status: int

    def wait(self, seconds: float) -> int:
        """Return the exit code (below 0: the signal that ended it); TimeoutExpired, and an end of it, if it lasts."""
        if not select.select([self.status], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired("attn", seconds)
        code: int = CODE.unpack(_exactly(self.status, CODE.size))[0]
        return code

    def close(self) -> None:
        """End the run if it still goes on."""
        os.close(self.status)


def start(
    args: Sequence[str], env: Mapping[str, str], cwd: str, streams: Sequence[int], own_session: bool = False
) -> Run:
    """Start `attn ARGS` with standard input, output and error on these descriptors.

    With a session of its own, standard output is that session's terminal.
    """
    status, its = os.pipe()
    request = json.dumps({"args": args, "env": dict(env), "cwd": cwd, "own_session": own_session}).encode()
    with _ONE_AT_A_TIME:
        server, _ = _server()
        socket.send_fds(server, [SIZE.pack(len(request))], [*streams, its])
        server.sendall(request)
    os.close(its)
    return Run(CODE.unpack(_exactly(status, CODE.size))[0], status)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that has loaded attn, once; it ends when this one does."""
    ours, its = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", str(its.fileno())],
        pass_fds=[its.fileno()],
        cwd=PACKAGE.parent,
        stdin=subprocess.DEVNULL,
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, process


def _exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            raise ConnectionError("the process that runs attn has ended")
        data += part
    return data


def _serve(number: int) -> None:
    """Answer requests until the other side is closed."""
    load()
    connection = socket.socket(fileno=number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those below
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, SIZE.size, 4)
        if not head:
            return
        request = json.loads(_exactly(number, SIZE.unpack(head)[0]))
        if not os.fork():
            connection.close()
            _watch(request, descriptors[:3], descriptors[3])
        for one in descriptors:
            os.close(one)


def _watch(request: dict[str, object], streams: Sequence[int], status: int) -> NoReturn:
    """Run attn in a process below this one, and report its number and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        os.close(status)
        become(request, streams)
    os.write(status, CODE.pack(child))
    for one in streams:
        os.close(one)
    _, ended = os.waitpid(child, 0)
    os.write(status, CODE.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def become(request: dict[str, object], streams: Sequence[int]) -> NoReturn:
    """Turn this process into attn, as a fresh one would be."""
    if request["own_session"]:
        os.setsid()
        fcntl.ioctl(streams[1], termios.TIOCSCTTY, 0)  # keys are read from the terminal of the session
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in streams:
        if descriptor > 2:
            os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    sys.argv = ["attn", *request["args"]]  # type: ignore[misc]
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding, "strict")
    # As Python's own, they do not close what they write to.
    out, err = (io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)) for descriptor in (1, 2))
    sys.stdout = io.TextIOWrapper(out, encoding, "strict", write_through=False)
    sys.stderr = io.TextIOWrapper(err, encoding, "backslashreplace")
    from attn_cli.__main__ import run

    run()
    os._exit(70)  # run() never returns


def load() -> None:
    """Load what runs of attn need, and make its commands, so that a fork has them."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in ("numpy", "typer.main", "rich.console"):
        importlib.import_module(name)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] not in ("__init__", "__main__"):
            with contextlib.suppress(MissingTextual):
                importlib.import_module(".".join(parts))
    with contextlib.suppress(ModuleNotFoundError):
        for name in MATPLOTLIB:
            importlib.import_module(f"matplotlib.{name}")
    _make_commands()
    importlib.import_module("gc").freeze()


def _make_commands() -> None:
    """Make every command once: a run has the one that it asks for at hand."""
    from attn_cli.cli import app, options

    options.single_command = cache(options.single_command)
    for name, (module, function) in app.COMMANDS.items():
        entries = function if isinstance(function, dict) else {name: (module, function)}
        for verb, (where, what) in entries.items():
            made = importlib.import_module(where)
            options.single_command(verb, getattr(made, what))


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
