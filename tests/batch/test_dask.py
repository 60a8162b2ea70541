"""A Dask cluster: the same bytes as one machine, whoever dies; runs go on from one engine to the other."""

import gzip
import importlib.util
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from attn_cli.batch import cluster, scheduler
from tests.batch.folders import content, ended, manifest, records, write as write_lines
from tests.batch.test_workers import running as alive
from tests.machines import Machines, workers_of
from tests.shell import Ran, attn, here, refused, started, wait_for
from tests.thorough import takes_long

HAS_DASK = importlib.util.find_spec("distributed") is not None or os.environ.get("ATTN_REQUIRE_DASK")
pytestmark = [
    pytest.mark.skipif(not HAS_DASK, reason="needs the extra dask"),
    pytest.mark.filterwarnings("ignore"),  # of Dask's own parts
]
ON_DASK = ("--engine", "dask", "--workers", "2")


@pytest.fixture(autouse=True)
def patient(small, monkeypatch):
    monkeypatch.setattr(cluster, "WAIT", 300)  # on a busy machine, a worker takes its time to come


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with Machines() as found:
        yield found


def on(machines: Machines, *args: str) -> Ran:
    """Run a batch on a cluster; that a busy machine is waited for is left out of what is said."""
    got = here("batch", *args, "--engine", "dask", "--scheduler", machines.address)
    return got._replace(err="".join(line for line in got.err.splitlines(True) if "waiting for" not in line))


@contextmanager
def once(is_so: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Do something when something is so, which it must be, while the block runs."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(lambda: (wait_for(is_so), act()))
        yield
        done.result()


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet", "npz"])
def test_a_cluster_writes_the_same_bytes_as_one_machine(form, at, machines):
    write_lines(700, "a.txt")
    Path("b.txt").write_bytes(b"\xef\xbb\xbfshe likes coffee\r\n...\r\n" + b"a b\r\n" * 900 + b"the last one")
    Path("c.txt.gz").write_bytes(gzip.compress(b"the cat sat\n" * 600 + b"\n" + b"on the mat\n" * 300))
    Path("d.txt").write_bytes(b"x" * 1_100_000 + b"\nshe likes tea\n")
    options = ("a.txt", "[bc].txt*", "d.txt", "-f", form, "--keep-going")
    one = here("batch", *options, "-o", "one/", "--workers", "1")
    many = on(machines, *options, "-o", "many/")
    assert one.code == 65 and "3 of 2,506 lines were refused" in one.err
    assert many == one
    assert content("one") == content("many")
    assert [part["lines"] for part in manifest("many")["parts"]] == [512] * 4 + [458]
    again = on(machines, *options, "-o", "many/")
    assert (again.code, again.out) == (0, "") and "many/ is complete: 2,506 lines in 5 parts" in again.err


def test_a_run_goes_on_from_one_engine_to_the_other(at, machines):
    write_lines(3000)
    assert here("batch", "lines.txt", "-o", "out/").code == 0
    whole = content()
    for is_here in (False, True):
        Path("out/manifest.json").write_text(json.dumps(ended(manifest(), 1, 4)))
        Path("out/part-00002.jsonl").write_text("spoilt")
        options = ("lines.txt", "-o", "out/")
        got = here("batch", *options) if is_here else on(machines, *options)
        assert got == (0, "", "attn: out/ already holds 1,024 lines in 2 parts: resuming.\n")
        assert content() == whole


def test_the_first_bad_line_is_told_and_then_the_run_goes_on(at, machines):
    write_lines(4000, bad=(1500, 3300))
    Path("out").mkdir()
    (left := Path("out/.part-00099.jsonl.deadbeef.part")).write_text("of a worker that was ended")
    got = on(machines, "lines.txt", "-o", "out/")
    assert got.code == 65 and '"line": 1501' in got.err and got.err.count("\n") == 1
    assert not left.exists()  # a cluster that stays may still write its own
    assert not manifest()["complete"] and manifest()["parts"][0]["first"] == 1
    got = here("batch", "lines.txt", "-o", "out/", "--keep-going")
    assert got.code == 65 and "2 of 4,000 lines were refused" in got.err
    assert records() == here("batch", "lines.txt", "--keep-going").out


def test_what_is_wrong_with_every_line_or_with_the_options_is_said_at_once(three, without):
    for args in ("", "--engine dask --workers 2", "--engine dask -e random -p roles"):
        asked = ("batch", "lines.txt", "-o", "out/", "--scheduler", "tcp://127.0.0.1:1", *args.split())
        refused(*asked, code=65 if "roles" in args else 2)
    refused("batch", "-", "-o", "out/", *ON_DASK)
    without("dask")
    said = refused("batch", "lines.txt", "-o", "out/", *ON_DASK, code=69)
    assert "pip install 'attn-cli[dask]'" in said


def test_workers_that_are_killed_lose_nothing(at):
    write_lines(8000)
    assert here("batch", "lines.txt", "-o", "one/").code == 0
    Path("out").mkdir()
    Path("out/.part-00099.jsonl.deadbeef.part").write_text("of a worker that was ended")
    kill = lambda: [os.kill(pid, signal.SIGKILL) for pid in workers_of("self")]  # noqa: E731
    with once(Path("out/part-00001.jsonl").exists, kill):
        assert here("batch", "lines.txt", "-o", "out/", *ON_DASK) == (0, "", "")
    assert content() == content("one")
    assert not workers_of("self")


def test_a_scheduler_that_is_killed_is_one_line_and_the_same_command_goes_on(at):
    write_lines(9_000)
    has_parts = lambda: Path("out/manifest.json").exists() and manifest()["parts"]  # noqa: E731
    with Machines() as own, once(has_parts, own.scheduler.kill):
        got = on(own, "lines.txt", "-o", "out/")
    assert got.code == 71 and got.err.count("\n") == 1, got
    assert f"The scheduler at {own.address} was lost." in got.err and "goes on where this run was" in got.err
    assert not manifest()["complete"] and manifest()["parts"]
    assert here("batch", "lines.txt", "-o", "out/", *ON_DASK).code == 0
    assert records() == here("batch", "lines.txt").out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda one: one.name)
def test_no_process_is_left_after_a_signal(number, at):
    write_lines(100_000)
    marker = f"left-{os.getpid()}-{number}/"
    own = {"env": {"TMPDIR": str(Path.cwd())}, "stderr": subprocess.PIPE, "start_new_session": True}
    with started("batch", "lines.txt", "-o", marker, *ON_DASK, **own) as process:
        wait_for(lambda: list(Path().glob(f"{marker}part-*")))
        # A terminal interrupts all of them.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        code = process.wait(timeout=60)
        said = process.stderr.read()  # ends when the last worker has
    assert (code, said) == (-9 if number == signal.SIGKILL else 128 + number, b"")
    wait_for(lambda: not alive(marker))
    assert number == signal.SIGKILL or not list(Path().glob("attn-dask-*"))


def test_a_worker_that_died_while_it_started_is_replaced(monkeypatch):
    from distributed.core import Status

    monkeypatch.setattr(cluster, "GONE", 0.2)
    with cluster.Dask(1) as one:
        (nanny,) = one.local.workers.values()
        nanny.status = Status.starting  # Dask starts none anew
        os.kill(nanny.pid, signal.SIGKILL)
        assert one.map(abs, [(-3,), (-4,)]) == [3, 4]
        # Freed memory is used again: Dask's own 64 KiB make small products take three times as long.
        assert {*one.client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values()} == {str(1 << 26)}


@contextmanager
def server(
    answer: Callable[[socket.socket], object] = lambda connection: None,
) -> Iterator[tuple[str, threading.Event]]:
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


USUAL = ("lines.txt", "-o", "out/", "-e", "random", "--engine", "dask", "--scheduler")
at_address = partial(here, "batch", *USUAL)


def error(got: Ran, code: int = 2) -> str:
    assert (got.code, got.out, got.err.count("\n")) == (code, "", 1), got
    found = json.loads(got.err)["error"]
    return f"{found['message']} {found['hint']}"


@pytest.fixture
def three(at):
    write_lines(3)


def test_a_port_that_never_answers_is_left_at_an_interrupt_and_told_of_and_left_in_time(monkeypatch, three):
    monkeypatch.setattr(scheduler, "SILENCE", 0.1)
    with server() as (port, came):
        assert interrupted(f"tcp://{port}", came.is_set) == b""
        came.clear()
        start = time.monotonic()
        got = at_address(f"tcp://{port}", "--connect-timeout", "0.4")
        assert time.monotonic() - start < 20 and came.is_set()  # on a busy machine, too
    said, _, last = got.err.partition("\n")
    assert said == f"attn: waiting for the Dask scheduler at tcp://{port} (at most 0.4 s: --connect-timeout)."
    told = f"The scheduler at tcp://{port} accepted the connection but did not answer in 0.4 s"
    assert told in error(Ran(got.code, got.out, last), 71)


def test_a_port_that_answers_something_else_is_no_scheduler(three):
    numbers = (1 << 40).to_bytes(8, "little") * 3
    for data in (b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff" * 1000, b"\0" * 1000, numbers):
        with server(lambda connection, data=data: connection.sendall(data)) as (port, _):
            got = at_address(f"tcp://{port}", "--connect-timeout", "5")
        assert f"What answers at tcp://{port} does not speak as a scheduler of Dask does. " in error(got, 71)
    with server(socket.socket.close) as (port, _):
        got = at_address(f"tcp://{port}", "--connect-timeout", "0.5")  # Dask may try again until then
    assert f"Cannot reach the scheduler at tcp://{port}: " in error(got, 71)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no-such-host.invalid:8786", "127.0.0.1:1"])
def test_what_cannot_be_reached_is_told_with_the_reason(address, three):
    told = error(at_address(address, "--connect-timeout", "0.5"), 71)
    why = "Connection refused" if address.endswith(":1") else ""
    assert f"Cannot reach the scheduler at {address}: {why}" in told
    assert "dask scheduler" in told and "Timed out" not in told


def test_tls_that_does_not_match_is_told(tmp_path, three):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    places = [scheduler._place(distributed.comm, f"{kind}://a:1") for kind in ("tls", "inproc")]
    assert places == [("a", 1), None]
    own = distributed.Security.temporary()
    for name, text in (("cert", own.tls_client_cert), ("key", own.tls_client_key)):
        (tmp_path / name).write_text(text)
    files = {"CA_FILE": "cert", "CLIENT__CERT": "cert", "CLIENT__KEY": "key"}
    given = {f"DASK_DISTRIBUTED__COMM__TLS__{key}": str(tmp_path / name) for key, name in files.items()}
    missing = given | {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": "nowhere"}
    with server(lambda connection: connection.sendall(b"no TLS" * 100)) as (port, _):
        # In processes of their own, as Dask reads its environment once.
        done, lacking = (attn("batch", *USUAL, f"tls://{port}", env=env) for env in (given, missing))
        for got in (lacking, at_address(f"tls://{port}", "--connect-timeout", "3")):
            assert "certificates" in error(got)
    assert "Cannot reach" in error(done, 71) or "does not speak" in error(done, 71)


ADDRESSES = {"http://127.0.0.1:1": "unknown address scheme", "tcp://127.0.0.1:x": "invalid literal"}
ADDRESSES |= {"tcp://127.0.0.1": "missing port", "": "missing port", "tcp://::1:8786": "ipv6 needs brackets"}


def test_an_address_or_a_time_that_is_none_is_wrong_usage(three):
    for address, why in ADDRESSES.items():
        said = error(at_address(address))
        assert why in said and "tcp://host:8786" in said
    for seconds in ("0", "nan", "86401", "soon", ""):
        assert "--connect-timeout" in error(at_address("tcp://127.0.0.1:1", "--connect-timeout", seconds))
    for args in ((), ("--engine", "dask")):
        said = refused("batch", "lines.txt", "-o", "out/", "--connect-timeout", "3", *args)
        assert "--connect-timeout requires --scheduler" in said


def interrupted(address: str, when: Callable[[], object]) -> bytes:
    """Interrupt a run when it is so, which must end it at once; return what it said."""
    with started("batch", *USUAL, address, stderr=subprocess.PIPE, start_new_session=True) as process:
        wait_for(when)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=5) == 130
        finally:
            process.kill()
        return process.stderr.read()


def test_a_scheduler_without_workers_is_told_of_and_waited_for(monkeypatch, three):
    said: list[str] = []
    monkeypatch.setattr(cluster, "WAIT", 0.2)
    monkeypatch.setattr(cluster, "say", said.append)
    # Of a busy machine, which takes its time to answer.
    monkeypatch.setattr(scheduler.console, "say", lambda text: None)
    with Machines(workers=0) as machines:
        interrupted(machines.address, Path("out").exists)
        with once(lambda: bool(said), machines.add_worker):
            assert at_address(machines.address) == (0, "", "")
    assert said == [f"attn: The scheduler at {machines.address} has no workers: waiting for one."]


@takes_long
def test_a_scheduler_that_stops_for_a_while_is_told_of_and_waited_for(monkeypatch, three):
    said: list[str] = []
    monkeypatch.setattr(cluster, "WAIT", 0.3)
    monkeypatch.setattr(cluster, "say", lambda text: None)  # of the worker, which takes its time to come
    monkeypatch.setattr(scheduler.console, "say", said.append)
    write_lines(4000)
    with Machines(workers=1) as machines:
        process = machines.scheduler
        stop, go_on = (partial(process.send_signal, number) for number in (signal.SIGSTOP, signal.SIGCONT))
        resumed = threading.Timer(20, go_on)  # whatever is said
        resumed.start()
        is_told = lambda: any("does not answer" in one for one in said)  # noqa: E731
        with once(Path("out/part-00000.jsonl").exists, stop), once(is_told, go_on):
            got = at_address(machines.address, "--connect-timeout", "30")
        resumed.cancel()
    assert got == (0, "", "")
    assert f"attn: The scheduler at {machines.address} does not answer: waiting for it." in said
