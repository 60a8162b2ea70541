"""Run attn as its users do: in a process of its own, in a shell's pipe, or on a terminal."""

import contextlib
import csv
import fcntl
import io
import json
import os
import re
import shlex
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest import mock

import attn_cli
from tests import preloaded

Text = str | bytes
Env = Mapping[str, str | None] | None  # changes of the environment; None takes a variable away
Folder = str | os.PathLike[str] | None
COMMAND = [sys.executable, "-m", "attn_cli"]
ROOT = str(Path(attn_cli.__file__).resolve().parents[1])
SGR = re.compile("\x1b\\[[0-9;]*m")
# What Python reads when it starts: such a run is a process started anew. Streams of another encoding are made anyway.
_OF_PYTHON = re.compile("PYTHON(?!IOENCODING$).*|LC_.*|LANG.*|_ATTN_COMPLETE")
# What would change how attn looks or computes; a test that wants one says so. Raw standard streams change nothing.
_OURS = re.compile("_?ATTN_.*|.*COLOR.*|COLUMNS|LINES|LC_.*|LANG.*|PYTHON(?!UNBUFFERED$).*")


class Ran(NamedTuple):
    """How a run of attn ended: its exit code, and what it wrote to each stream."""

    code: int
    out: str
    err: str


def surroundings(env: Env = None) -> dict[str, str]:
    """Return a plain environment for the attn under test, changed by `env`; None takes a variable away."""
    made = {name: value for name, value in os.environ.items() if not _OURS.fullmatch(name)}
    made |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | dict(env or {})
    made["PYTHONPATH"] = os.pathsep.join(filter(None, [made.get("PYTHONPATH"), ROOT]))
    return {name: value for name, value in made.items() if value is not None}


def attn(*args: Text, input: Text = b"", env: Env = None, cwd: Folder = None, timeout: float = 60) -> Ran:
    """Run `attn ARGS`, with `input` piped in, and return how it ended."""
    data = input.encode("utf-8", "surrogatepass") if isinstance(input, str) else input or b""
    if not any(map(_OF_PYTHON.fullmatch, env or {})):
        return _forked(args, data, surroundings(env), cwd, timeout)
    return _started([*COMMAND, *args], data, env, cwd=cwd, timeout=timeout)


def _started(command: Sequence[Text], data: bytes = b"", env: Env = None, **more: Any) -> Ran:
    how = {"timeout": 60, "env": surroundings(env)} | more
    done = subprocess.run(command, input=data, capture_output=True, **how)
    return Ran(done.returncode, _text(done.stdout), _text(done.stderr))


def started(*args: str, env: Env = None, **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([*COMMAND, *args], env=surroundings(env), **options)


def _forked(args: Sequence[Text], data: bytes, env: Mapping[str, str], cwd: Folder, timeout: float) -> Ran:
    """Run attn in a process that has loaded it already, its streams being pipes."""
    ours, its = zip(os.pipe()[::-1], os.pipe(), os.pipe(), strict=True)
    run = preloaded.Request([*map(os.fsdecode, args)], env, os.fspath(cwd or os.getcwd())).start(its)
    for one in its:
        os.close(one)
    with open(ours[1], "rb") as out, open(ours[2], "rb") as err, ThreadPoolExecutor(3) as pool:
        pool.submit(_feed, ours[0], data)
        read = [pool.submit(stream.read) for stream in (out, err)]
        try:
            code = run.wait(timeout)
        finally:
            run.close()
        return Ran(code, *(_text(one.result()) for one in read))


def _feed(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as stream:
        stream.write(data)


def here(*args: str, env: Env = None) -> Ran:
    """Run `attn ARGS` in this process, with nothing to read: for many small cases that need no system."""
    from attn_cli.cli import options
    from attn_cli.cli.app import main

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(3)]
    with (
        mock.patch.object(options, "single_command", _made_once(options.single_command)),
        mock.patch.dict(os.environ, surroundings(env), clear=True),
        mock.patch.multiple(sys, **dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))),
        mock.patch.object(sys, "argv", ["attn", *args]),
    ):
        code = main(list(args))
    for stream in streams:
        stream.flush()
    return Ran(code, *(_text(stream.buffer.getvalue()) for stream in streams[1:]))


def told(*args: str, env: Env = None) -> str:
    """Return what `attn ARGS` writes; it does so without an error, and without a word beside it."""
    ran = here(*args, env=env)
    assert (ran.code, ran.err) == (0, ""), ran
    return ran.out


def record(*args: str, env: Env = None) -> Any:
    return json.loads(told(*args, "-f", "json", env=env))


def rows(*args: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(told(*args, "-f", "csv"), newline=""))]


def refused(*args: str, code: int = 2, env: Env = None) -> str:
    """Return the one line with which `attn ARGS` is refused."""
    ran = here(*args, env=env)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
    return ran.err


@cache
def _made_once(make: Callable[[str, object], object]) -> Callable[[str, object], object]:
    """Let each command be made once, as it takes long, and again where a test has added a score, a mask or a format."""
    from attn_cli.core.masks import MASKS
    from attn_cli.core.scores import SCORES
    from attn_cli.render.formats import FORMATS

    made = cache(lambda name, function, known: make(name, function))
    return lambda name, function: made(name, function, (*SCORES, *MASKS, *FORMATS))


def pasted(lines: Sequence[str], locale: str = "C.UTF-8") -> list[list[str]]:
    """Return the words that bash, with its history on, makes of command lines; `attn` in them is not run."""
    begin = "set -o history -H; attn() { printf '%s\\0' $# \"$@\"; }"
    script = "".join(f"{line}\n" for line in [begin, *lines])
    ran = _started(["bash", "--norc"], os.fsencode(script), {"LC_ALL": locale})
    assert not ran.err, ran.err  # a line that the history has changed is told there
    words = iter(ran.out.split("\0")[:-1])
    return [[next(words) for _ in range(int(n))] for n in words]


def shell(line: str, **more: Any) -> Ran:
    """Run a line of bash in which `attn` is attn; a failing part of a pipe is the code of the whole."""
    script = f'attn() {{ {shlex.join(COMMAND)} "$@"; }}; set -o pipefail; {line}'
    return _started(["bash", "-c", script], **more)


def terminal(*args: str, columns: int = 80, rows: int = 24, env: Env = None) -> Ran:
    """Run `attn ARGS` on a terminal of that size: all three streams are the screen, which is in `out`; no pager."""
    from tests.stage import Stage  # it draws screens with a library that a run of few tests need not have

    env = {"ATTN_PAGER": ""} | dict(env or {})
    if any(map(_OF_PYTHON.fullmatch, env)):
        raise ValueError("a terminal run takes no variable that Python reads when it starts")
    with Stage(*args, columns=columns, rows=rows, env=env) as stage:
        return Ran(stage.code(), _text(stage.shown).replace("\r\n", "\n"), "")


def python(script: str, *args: str, flags: Sequence[str] = (), **more: Any) -> Ran:
    """Run lines of Python, to which `sys` is known, in a process of its own."""
    return _started([sys.executable, *flags, "-c", f"import sys\n{script}", *args], **more)


def until_closed(terminal: int) -> bytes:
    """Return what is shown on a terminal until its other end is closed, and close it."""
    shown = b""
    with open(terminal, "rb", buffering=0) as stream, contextlib.suppress(OSError):  # which tells the end
        while data := stream.read(1 << 12):
            shown += data
    return shown


def wait_for(is_so: Callable[[], object], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)


def unread(pipe: int | IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def worked(pid: int | str) -> float:
    """Return the seconds of a processor that a process has had: how far it is, however busy the machine."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def plain(text: str) -> str:
    return SGR.sub("", text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
