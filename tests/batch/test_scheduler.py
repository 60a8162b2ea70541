"""The address of a scheduler: what does not answer, or is none, is told in one line and in time."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from attn_cli.batch import cluster, scheduler
from attn_cli.batch import manifest as manifests
from tests.batch.folders import NEEDS_DASK, write
from tests.batch.test_dask import once
from tests.machines import Machines
from tests.shell import COMMAND, Ran, here, surroundings, wait_for
from tests.thorough import takes_long

pytestmark = NEEDS_DASK
WAITING = "attn: waiting for the Dask scheduler at {} (at most {} s: --connect-timeout).\n"


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[tuple[str, threading.Event]]:
    """Listen on a port of this machine; yield its address, and what is set when somebody has connected."""
    came, taken = threading.Event(), []

    def serve() -> None:
        with suppress(OSError):
            while True:
                taken.append(one.accept()[0])
                came.set()
                with suppress(OSError):
                    answer(taken[-1])

    with socket.create_server(("127.0.0.1", 0)) as one:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{one.getsockname()[1]}", came
        one.shutdown(socket.SHUT_RDWR)
        for each in taken:
            each.close()


def silent(connection: socket.socket) -> None:
    """Take the connection, and never answer."""


def on(address: str, *args: str, env: dict[str, str | None] | None = None) -> Ran:
    usual = ("-o", "out/", "-e", "random", "--engine", "dask", "--scheduler", address)
    return here("batch", "lines.txt", *usual, *args, env=env)


def error(got: Ran) -> str:
    """Return the message and the hint of the one line of an error."""
    assert got.out == "" and got.err.count("\n") == 1, got
    found = json.loads(got.err)["error"]
    assert found["code"] == got.code
    return f"{found['message']} {found['hint']}"


@pytest.fixture(autouse=True)
def short(at, monkeypatch):
    monkeypatch.setattr(manifests, "LINES", 512)
    write(3)


def test_a_port_that_never_answers_is_told_of_and_left_in_time(monkeypatch):
    monkeypatch.setattr(scheduler, "SILENCE", 0.1)
    with server(silent) as (port, came):
        start = time.monotonic()
        got = on(f"tcp://{port}", "--connect-timeout", "0.4")
        assert time.monotonic() - start < 5 and came.is_set()
    said, _, last = got.err.partition("\n")
    assert said + "\n" == WAITING.format(f"tcp://{port}", "0.4")
    told = error(Ran(got.code, got.out, last))
    assert got.code == 71
    assert f"The scheduler at tcp://{port} accepted the connection but did not answer in 0.4 s" in told


def test_a_port_that_answers_something_else_is_no_scheduler(monkeypatch):
    answers = [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff" * 1000, b"\0" * 1000]
    answers.append((1 << 40).to_bytes(8, "little") * 3)
    for data in answers:
        with server(lambda connection, data=data: connection.sendall(data)) as (port, _):
            got = on(f"tcp://{port}", "--connect-timeout", "5")
        assert got.code == 71, got
        assert f"What answers at tcp://{port} does not speak as a scheduler of Dask does. " in error(got)
    with server(socket.socket.close) as (port, _):
        got = on(f"tcp://{port}", "--connect-timeout", "0.5")  # Dask may try again until then
    assert got.code == 71 and f"Cannot reach the scheduler at tcp://{port}: " in error(got)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:1", "Connection refused"),
        ("tcp://no-such-host.invalid:8786", ""),
        ("127.0.0.1:1", "Connection refused"),
    ],
)
def test_what_cannot_be_reached_is_told_with_the_reason(address, why):
    got = on(address, "--connect-timeout", "0.5")
    told = error(got)
    assert got.code == 71 and f"Cannot reach the scheduler at {address}: {why}" in told
    assert "dask scheduler" in told
    assert "Timed out" not in told


def test_tls_that_does_not_match_is_told(tmp_path):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    own = distributed.Security.temporary()
    for name, text in (("cert", own.tls_client_cert), ("key", own.tls_client_key)):
        (tmp_path / name).write_text(text)
    start = "DASK_DISTRIBUTED__COMM__TLS__"
    files = {"CA_FILE": "cert", "CLIENT__CERT": "cert", "CLIENT__KEY": "key"}
    code = "import sys; from attn_cli.cli.app import main; sys.exit(main(sys.argv[1:]))"

    def of_its_own(**env: str) -> Ran:
        """Run it in a process of its own, as Dask reads its environment once."""
        args = ("batch", "lines.txt", "-o", "out/", "--engine", "dask", "--scheduler", f"tls://{port}")
        command, env = [sys.executable, "-c", code, *args], {start + key: one for key, one in env.items()}
        done = subprocess.run(command, env=surroundings(env), capture_output=True, text=True, timeout=30)
        return Ran(done.returncode, done.stdout, done.stderr)

    with server(lambda connection: connection.sendall(b"no TLS" * 100)) as (port, _):
        got = on(f"tls://{port}", "--connect-timeout", "3")
        assert got.code == 2 and "certificates" in error(got)
        given = {key: str(tmp_path / name) for key, name in files.items()}
        done, missing = of_its_own(**given), of_its_own(**given | {"CA_FILE": "nowhere"})
    assert missing.code == 2 and "certificates" in error(missing)
    assert done.code == 71 and ("Cannot reach" in error(done) or "does not speak" in error(done)), done


def test_an_address_that_is_none_is_wrong_usage():
    for address, why in (
        *(("http://127.0.0.1:1", "unknown address scheme"), ("tcp://127.0.0.1", "missing port")),
        *(("tcp://127.0.0.1:x", "invalid literal"), ("tcp://::1:8786", "ipv6 needs brackets")),
        ("", "missing port"),
    ):
        got = on(address)
        assert got.code == 2 and why in error(got) and "tcp://host:8786" in error(got), got


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "86401", "1e9", "soon", ""])
def test_a_time_that_is_none_is_wrong_usage(seconds):
    got = on("tcp://127.0.0.1:1", "--connect-timeout", seconds)
    assert got.code == 2 and "--connect-timeout" in error(got)


def test_the_time_goes_with_a_scheduler():
    for args in ((), ("--engine", "dask")):
        got = here("batch", "lines.txt", "-o", "out/", "--connect-timeout", "3", *args)
        assert got.code == 2 and "--connect-timeout requires --scheduler" in error(got)


@contextmanager
def running(address: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [*COMMAND, "batch", "lines.txt", "-o", "out/", "--engine", "dask", "--scheduler", address]
    with subprocess.Popen(
        command, env=surroundings(), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_an_interrupt_ends_the_wait_for_an_answer_at_once():
    with server(silent) as (port, came), running(f"tcp://{port}") as process:
        assert came.wait(30)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130 and process.stderr.read() == b""


def test_a_scheduler_without_workers_is_told_of_and_waited_for(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(cluster, "WAIT", 0.2)
    monkeypatch.setattr(cluster, "say", said.append)
    # Of a busy machine, which takes its time to answer.
    monkeypatch.setattr(scheduler.console, "say", lambda text: None)
    with Machines(workers=0) as machines:
        with running(machines.address) as process:
            wait_for(Path("out").exists)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=5) == 130
        with once(lambda: bool(said), machines.add_worker):
            assert on(machines.address) == (0, "", "")
    assert said == [f"attn: The scheduler at {machines.address} has no workers: waiting for one."]


@takes_long
def test_a_scheduler_that_stops_for_a_while_is_told_of_and_waited_for(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(cluster, "WAIT", 0.3)
    monkeypatch.setattr(cluster, "say", lambda text: None)  # of the worker, which takes its time to come
    monkeypatch.setattr(scheduler.console, "say", said.append)
    write(4000)
    with Machines(workers=1) as machines:
        process = machines.scheduler
        resumed = threading.Timer(20, lambda: process.send_signal(signal.SIGCONT))  # whatever is said
        resumed.start()
        with (
            once(Path("out/part-00000.jsonl").exists, lambda: process.send_signal(signal.SIGSTOP)),
            once(
                lambda: any("does not answer" in one for one in said),
                lambda: process.send_signal(signal.SIGCONT),
            ),
        ):
            got = on(machines.address, "--connect-timeout", "30")
        resumed.cancel()
    assert got == (0, "", "")
    assert f"attn: The scheduler at {machines.address} does not answer: waiting for it." in said
