"""A Dask cluster: the same bytes as one machine, whoever dies; runs go on from one engine to the other."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attn_cli.batch import cluster
from attn_cli.batch import manifest as manifests
from tests.batch.folders import NEEDS_DASK, content, ended, manifest, records
from tests.batch.folders import write as write_lines
from tests.batch.test_workers import running as alive
from tests.machines import Machines
from tests.shell import COMMAND, Ran, here, surroundings, wait_for

pytestmark = NEEDS_DASK
ON_DASK = ("--engine", "dask", "--workers", "2")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(manifests, "LINES", 512)
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
    """Do something when something is so, while the block runs."""

    def watch() -> None:
        while not is_so() and not over.is_set():
            time.sleep(0.005)
        if not over.is_set():
            act()

    over = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def children() -> list[int]:
    """Return the workers of a local cluster of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_child = entry.name.isdigit() and f"PPid:\t{os.getpid()}\n" in (entry / "status").read_text()
            if is_child and "spawn_main" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def inputs() -> list[str]:
    """Write files of several kinds, with bad lines among good ones; return their names."""
    write_lines(700, "a.txt")
    Path("b.txt").write_bytes(b"\xef\xbb\xbfshe likes coffee\r\n...\r\n" + b"a b\r\n" * 900 + b"the last one")
    Path("c.txt.gz").write_bytes(gzip.compress(b"the cat sat\n" * 600 + b"\n" + b"on the mat\n" * 300))
    Path("d.txt").write_bytes(b"x" * 1_100_000 + b"\nshe likes tea\n")
    return ["a.txt", "[bc].txt*", "d.txt"]


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet", "npz"])
def test_a_cluster_writes_the_same_bytes_as_one_machine(form, at, machines):
    options = (*inputs(), "-f", form, "--keep-going")
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
    got = on(machines, "lines.txt", "-o", "out/")
    assert got.code == 65 and '"line": 1501' in got.err and got.err.count("\n") == 1
    assert not manifest()["complete"] and manifest()["parts"][0]["first"] == 1
    got = here("batch", "lines.txt", "-o", "out/", "--keep-going")
    assert got.code == 65 and "2 of 4,000 lines were refused" in got.err
    assert records() == here("batch", "lines.txt", "--keep-going").out


def test_what_is_wrong_with_every_line_or_with_the_options_is_said_at_once(at, machines):
    write_lines(3)
    Path("v.txt").write_text("she 1 0\ncat 0 1\n")
    for code, options in (
        *((65, ("-o", "out/", "-e", "random", "-p", "roles")), (2, ("-o", "out.jsonl")), (2, ())),
        *((2, ("-o", "out/", "-e", "v.txt")), (2, ("-o", "out/", "--workers", "2"))),
    ):
        got = on(machines, "lines.txt", *options)
        assert (got.code, got.out, got.err.count("\n")) == (code, "", 1), got
    assert here("batch", "lines.txt", "-o", "out/", "--scheduler", machines.address).code == 2
    assert here("batch", "-", "-o", "out/", *ON_DASK).code == 2


def test_workers_that_are_killed_lose_nothing(at):
    write_lines(8000)
    assert here("batch", "lines.txt", "-o", "one/").code == 0

    def kill() -> None:
        for pid in children():
            os.kill(pid, signal.SIGKILL)

    with once(Path("out/part-00001.jsonl").exists, kill):
        got = here("batch", "lines.txt", "-o", "out/", *ON_DASK)
    assert got == (0, "", "")
    assert content() == content("one")
    assert not children()


def test_a_scheduler_that_is_killed_is_one_line_and_the_same_command_goes_on(at):
    write_lines(9_000)
    with (
        Machines() as own,
        once(lambda: Path("out/manifest.json").exists() and manifest()["parts"], own.scheduler.kill),
    ):
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
    command = [*COMMAND, "batch", "lines.txt", "-o", marker, *ON_DASK]
    env = surroundings({"TMPDIR": str(Path.cwd())})
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, start_new_session=True) as process:
        wait_for(lambda: list(Path().glob(f"{marker}part-*")))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        code = process.wait(timeout=60)
        said = process.stderr.read()  # ends when the last worker has
    assert (code, said) == (-9 if number == signal.SIGKILL else 128 + number, b"")
    wait_for(lambda: not alive(marker))
    if number == signal.SIGINT:
        assert not list(Path().glob("attn-dask-*"))


def test_without_dask_the_line_that_installs_it_is_said(at, monkeypatch):
    write_lines(3)
    monkeypatch.setitem(sys.modules, "dask", None)
    got = here("batch", "lines.txt", "-o", "out/", *ON_DASK)
    assert got.code == 69 and "pip install 'attn-cli[dask]'" in got.err


def test_a_run_that_fails_leaves_no_unfinished_file(at):
    Path("lines.txt").write_bytes(b"A dog sat.\n" * 20 + b"...\n")
    Path("out").mkdir()
    Path("out/.part-00099.jsonl.deadbeef.part").write_text("of a worker that was ended")
    ran = here("batch", "lines.txt", "-o", "out/", *ON_DASK)
    assert ran.code == 65 and not list(Path("out").glob(".*.part"))


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
        assert nanny not in one.local.workers.values()
