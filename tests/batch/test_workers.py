"""Several processes: the same bytes for any number of them, and none is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from attn_cli.batch import cluster, scheduler, workers
from attn_cli.errors import AttnError, InputError
from tests.batch.folders import content, records, write
from tests.shell import attn, here, started, wait_for


def running(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def test_a_bad_line_is_told_by_its_number_whoever_finds_it(at):
    write(2200, bad=(1700,))
    one = attn("batch", "lines.txt", "--workers", "1")
    assert one.code == 65 and one.out.count("\n") == 1700 and '"line": 1701' in one.err
    assert attn("batch", "lines.txt", "--workers", "3") == one
    assert attn("batch", "--workers", "2", input=Path("lines.txt").read_text()) == one
    one = attn("batch", "lines.txt", "--workers", "1", "--keep-going")
    assert one.code == 65 and one.out.count("\n") == 2200 and "1 of 2,200 lines" in one.err
    assert attn("batch", "lines.txt", "--workers", "3", "--keep-going") == one


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow", "csv", "parquet --tidy"])
@pytest.mark.parametrize("slot", [1 << 20, 1 << 10], ids=["shared", "sent"])
def test_any_number_of_processes_writes_the_same_bytes_shared_or_sent(slot, form, at, monkeypatch):
    monkeypatch.setattr(workers, "SLOT", slot)
    suffix, *tidy = form.split()
    write(2200)
    for count in ("1", "3"):
        fields = [] if tidy or suffix == "csv" else ["--fields", "summary"]
        out = ("--workers", count, "-o", f"{count}.{suffix}", *fields, *tidy)
        assert here("batch", "lines.txt", *out).code == 0
    assert Path(f"1.{suffix}").read_bytes() == Path(f"3.{suffix}").read_bytes()


@contextmanager
def computing(marker: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a batch that goes on for long, with two processes, until both of them are there."""
    write(60_000)
    command = ("batch", "lines.txt", "--workers", "2", "-o", marker)
    with started(*command, stderr=subprocess.PIPE, start_new_session=True) as process:
        wait_for(lambda: len(running(marker)) == 3)
        yield process
    wait_for(lambda: not running(marker))
    assert not Path(marker).exists()


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes there")


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_no_process_is_left_after_a_signal(number, at):
    with computing(f"left-{os.getpid()}-{number}.jsonl") as process:
        # A terminal sends an interrupt to all of them.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said, code = process.stderr.read(), process.wait(timeout=60)
    assert (code, said) == (-9 if number == signal.SIGKILL else 128 + number, b"")


@needs_proc
def test_a_process_that_is_killed_ends_the_run_with_an_error(at):
    marker = f"killed-{os.getpid()}.jsonl"
    with computing(marker) as process:
        os.kill(next(one for one in running(marker) if one != process.pid), signal.SIGKILL)
        said = process.stderr.read().decode()
        assert process.wait(timeout=60) == 71 and "was killed: memory may be short" in said


@pytest.mark.skipif(sys.platform != "linux", reason="the processes must be copies of this one")
def test_a_process_that_is_killed_while_it_answers_ends_the_run_too(at, monkeypatch):
    first = os.getpid()

    def write_chunk(computer, chunk):
        frame = sys._getframe()
        while "result_queue" not in frame.f_locals:  # of the function that a process of a pool runs
            frame = frame.f_back
        assert os.getpid() != first
        writer = frame.f_locals["result_queue"]._writer
        os.write(writer.fileno(), (1000).to_bytes(4, "big") + b"a part")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(workers.forms, "write_chunk", write_chunk)
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    write(2200)
    found = here("batch", "lines.txt", "--workers", "2", "--fields", "summary")
    assert found.code == 71 and "was killed: memory may be short" in found.err


@pytest.mark.skipif(sys.platform != "linux", reason="the processes must be copies of this one")
def test_what_comes_before_a_failure_is_written(at, monkeypatch):
    usual = workers.forms.write_chunk

    def write_chunk(computer, chunk):
        if chunk.first == 513:
            raise RuntimeError("a fault of our own")
        time.sleep(0.2)  # the second chunk fails before the first is there
        return usual(computer, chunk)

    monkeypatch.setattr(workers.forms, "write_chunk", write_chunk)
    write(2200)
    found = here("batch", "lines.txt", "--workers", "2", "--fields", "summary")
    assert found.code == 70 and found.out.count("\n") == 512


# A cluster without Dask: each task is done here when it is asked for, the third one first


class Task:
    status = "finished"

    def __init__(self, work):
        self.key, self.work = id(self), work

    def add_done_callback(self, tell):
        tell(self)

    def exception(self):
        try:
            self.found = self.work()
        except Exception as error:  # which Dask gives back, and does not raise
            return error

    def result(self):
        return self.found


class Ended(list):
    put = list.append

    def get(self, timeout):
        return self.pop(min(2, len(self) - 1))


class Quick(cluster.Dask):
    def __enter__(self):
        self.ended, self.most, self.client = Ended(), 0, SimpleNamespace(status="running", submit=self.submit)
        return self

    def submit(self, function, *task, pure):
        assert not pure, "the same task may be done again"
        self.most = max(self.most, len(self.pending) + 1)
        return Task(lambda: function(*task))


def fail(number, error=None):
    if number:
        raise error or InputError(f"of {number}")


OF_CLUSTERS = (
    (type("KilledWorker", (Exception,), {})("x"), "The workers of one part died, one after the other."),
    (type("FutureCancelledError", (Exception,), {})("x"), "The local cluster was lost."),
    (type("CommClosedError", (Exception,), {})("x"), "The local cluster was lost."),
    (ModuleNotFoundError("x", name="attn_cli.core"), "has no attn"),
    (ModuleNotFoundError("x", name="numpy"), "^x$"),
    *((OSError(28, "No space left"), "A worker cannot go on: No space left"), (None, "of 1")),
)


def test_a_cluster_is_handed_some_tasks_at_a_time_and_what_they_return_or_raise_stands_in_order():
    for count, most in ((2, 16), (10, 30)):
        with Quick(count) as dask:
            assert dask.map(abs, ((-n,) for n in range(40))) == [*range(40)] and dask.most == most
    for error, said in OF_CLUSTERS:
        with pytest.raises((AttnError, ModuleNotFoundError), match=said), Quick(2) as dask:
            dask.map(fail, ((n, error) for n in range(4)))


def test_an_answer_is_waited_for_which_is_said_after_a_while_and_not_for_ever(monkeypatch):
    said, never = [], threading.Event()
    monkeypatch.setattr(scheduler.console, "say", said.append)
    assert scheduler.ask(lambda: 3, "waiting", 60) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        scheduler.ask(lambda: int("x"), "waiting", 60, 120)
    for silence, seconds, count in ((0.02, 0.01, 0), (0.01, 0.02, 1)):
        with pytest.raises(TimeoutError):
            scheduler.ask(never.wait, "waiting", silence, seconds)
        assert said == ["waiting"] * count
    never.set()


def test_on_a_cluster_the_first_bad_line_counts_and_what_comes_after_is_not_computed(at, small, monkeypatch):
    monkeypatch.setattr(cluster, "Dask", Quick)
    monkeypatch.setattr(cluster, "LEAST_AHEAD", 4)
    monkeypatch.setattr(cluster, "AHEAD", 1)
    for name, count, place in (("0.txt", 700, 600), ("1.txt", 900, 400), ("2.txt", 1000, -1)):
        write(count, name, bad=(place,))
    usual = ("batch", "0.txt", "1.txt", "2.txt", "-e", "random", "--workers", "2")
    told = here(*usual, "-o", "out/", "--engine", "dask")
    # Of parts of 512 lines, the third is done before the second; in both is a bad line, the 601st and the 1,101st.
    assert told.code == 65 and '"line": 601' in told.err
    assert sorted(content()) == ["manifest.json", "part-00000.jsonl"]
    told = here(*usual, "-o", "out/", "--engine", "dask", "--keep-going")
    assert told.code == 65 and records() == here(*usual, "--keep-going").out
    monkeypatch.setattr(cluster, "PATIENCE", 0)
    monkeypatch.setattr("attn_cli.batch.folder.LocalFolder.size", lambda folder, name: None)
    told = here(*usual, "-o", "other/", "--engine", "dask", "--keep-going")
    assert told.code == 74 and "A worker wrote other/part-00002.jsonl, and it is not here." in told.err
