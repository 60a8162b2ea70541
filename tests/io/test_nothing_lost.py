"""Every byte is written or the run says that it was not; signals leave nothing behind."""

import contextlib
import errno
import fcntl
import gzip
import io
import json
import os
import pty
import select
import shlex
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from attn_cli.errors import CreateError, WriteError
from attn_cli.io import files, signals
from attn_cli.io.atomic import write_together, written
from attn_cli.io.console import CheckedStream
from tests.shell import attn, here, python, shell, started, unread, until_closed, wait_for
from tests.thorough import often, takes_long

LONG = " ".join(f"word{i}" for i in range(100))
RECORD = ["self", LONG, "-e", "random", "-f", "json"]  # half a megabyte
FULL = 60_000  # bytes in a pipe that takes 65,536
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
buffered_or_not = pytest.mark.parametrize("env", [{}, UNBUFFERED], ids=["buffered", "unbuffered"])
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE = [signal.SIGINT, *(pytest.param(number, marks=takes_long) for number in SIGNALS[1:])]  # at many moments
TOO_MUCH = "self 'a b' -e random --dim 9999"


def all_of(ours, process):
    """What is still to read from a pipe; the process ends well."""
    with open(ours, "rb") as stream:
        got = stream.read()
    assert process.wait(60) == 0
    return got


@buffered_or_not
def test_a_file_that_cannot_grow_is_74_and_not_a_short_file_with_0(env, at):
    ran = shell(f"ulimit -f 64; attn {shlex.join(RECORD)} > o.json", env=env)
    assert (Path("o.json").stat().st_size, ran.code) == (65536, 74)
    assert json.loads(ran.err)["error"]["message"] == "Cannot write to standard output: File too large."


@buffered_or_not
def test_a_pipe_that_does_not_block_gets_everything(env):
    ours, its = os.pipe()
    fcntl.fcntl(its, fcntl.F_SETFL, fcntl.fcntl(its, fcntl.F_GETFL) | os.O_NONBLOCK)
    process = started(*RECORD, env=env, stdout=its)
    os.close(its)
    wait_for(lambda: unread(ours) > FULL)  # long before it is read
    assert all_of(ours, process) == attn(*RECORD).out.encode()


@pytest.mark.parametrize("how", ["standard output", "-o to a pipe"])
def test_a_writer_that_is_stopped_and_continued_loses_nothing(how, at):
    os.mkfifo("pipe")
    if how == "standard output":
        ours, its = os.pipe()
        process = started(*RECORD, env=UNBUFFERED, stdout=its)
        os.close(its)
    else:
        process = started(*RECORD, "-o", "pipe")
        ours = os.open("pipe", os.O_RDONLY)
    got = os.read(ours, 1)
    for _ in range(5):
        process.send_signal(signal.SIGSTOP)
        got += os.read(ours, 4096)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    assert got + all_of(ours, process) == attn(*RECORD).out.encode()


def test_a_checked_stream_takes_what_was_taken_in_parts_and_nothing_is_an_error_and_not_a_loop(monkeypatch):
    ours, its = os.pipe()
    real = os.write
    with CheckedStream(its, "wb") as stream:
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
        assert stream.write(b"0123456789") == 10
        monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
        with pytest.raises(OSError, match="No byte was taken"):
            stream.write(b"x")
    monkeypatch.undo()
    assert os.read(ours, 100) == b"0123456789"
    os.close(ours)


def test_a_link_that_leads_to_itself_is_refused_and_kept(at):
    os.symlink("loop", "loop")
    ran = attn("self", "a b", "-f", "json", "-o", "loop")
    assert ran.code == 73 and "symbolic links" in ran.err
    assert os.readlink("loop") == "loop"


def test_what_a_killed_run_left_is_swept_and_what_another_writes_now_is_not(at):
    long = f"{'long' * 62}.json"  # of which an unfinished file's name has the beginning
    Path(f".{long[:40]}.0123abcd.part").write_bytes(b"left")
    assert attn("self", "a b", "-o", long).code == 0
    assert os.listdir() == [long]
    Path(long).unlink()
    Path(".x.json.0123abcd.part").write_bytes(b"left")
    Path(".x.json.notes.part").write_bytes(b"somebody's own")
    os.mkfifo(".x.json.89abcdef.part")  # which nobody opens
    stay = {".x.json.89abcdef.part", ".x.json.notes.part"}
    with written("x.json"):
        (running,) = {*os.listdir()} - stay
        assert "0123abcd" not in running
        assert attn("self", "a b", "-o", "x.json").code == 0
        assert running in os.listdir()
    assert {*os.listdir()} == stay | {"x.json"}
    with written("x.json"):
        (part,) = {*os.listdir()} - stay - {"x.json"}
        assert stat.S_IMODE(os.stat(part).st_mode) == 0o600  # until it has the permissions of the old one


def inode(path):
    return os.stat(path).st_ino


def test_what_is_written_is_on_the_disk_before_it_takes_its_place(at, monkeypatch):
    sync, move, done = os.fsync, os.replace, []

    def fsync(descriptor):
        of = os.fstat(descriptor)
        done.append(("sync", of.st_ino, of.st_size))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda old, new: done.append(("move", inode(old))) or move(old, new))
    assert here("self", "a b", "-o", "x.json").code == 0
    whole = ("sync", inode("x.json"), os.path.getsize("x.json"))
    assert done[:2] == [whole, ("move", inode("x.json"))] and done[2:] == [("sync", inode("."), done[2][2])]


@pytest.mark.parametrize("failing", range(3))
def test_files_written_together_are_those_of_before_where_one_cannot_be_made(at, monkeypatch, failing):
    before = {name: f"old {name}".encode() for name in ("a", "b", "whole")}
    for name, data in before.items():
        Path(name).write_bytes(data)
    real, made = os.open, []

    def no_room(path, flags, *more):
        if flags & os.O_EXCL:
            made.append(path)
            if len(made) > failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *more)

    with monkeypatch.context() as patched, pytest.raises(CreateError, match="No space left"):
        patched.setattr(os, "open", no_room)
        write_together(".", dict.fromkeys(before, b"new"), "whole")
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


def test_where_one_of_several_files_cannot_take_its_place_the_one_that_says_all_are_whole_goes(
    at, monkeypatch
):
    for name in ("a", "whole"):
        Path(name).write_bytes(b"old")
    move, sync, unlink, done = os.replace, os.fsync, os.unlink, []

    def replace(old, new):
        if new.endswith("/a"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        move(old, new)

    with monkeypatch.context() as patched, pytest.raises(WriteError, match="a: Input/output error") as caught:
        patched.setattr(os, "replace", replace)
        patched.setattr(os, "fsync", lambda fd: done.append((os.fstat(fd).st_size, "bytes")) or sync(fd))
        patched.setattr(os, "unlink", lambda path: done.append(os.path.basename(path)) or unlink(path))
        write_together(".", dict.fromkeys(("a", "b", "whole"), b"new"), "whole")
    assert caught.value.hint == "What is there does not belong together: write it again with --force."
    assert {path.name: path.read_bytes() for path in at.iterdir()} == {"a": b"old", "b": b"new"}
    assert done[: done.index("whole")] == [(3, "bytes")] * 3, "nothing is taken away before all is written"


@pytest.mark.parametrize("line", [b"x" * 25, b" " + b"x" * 25, b"xx " + b"x" * 25, b"  x  " * 5])
def test_a_line_too_long_comes_in_parts_that_lose_nothing(monkeypatch, line):
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    monkeypatch.setattr(files, "PIECE", 6)
    parts = list(islice(files.unpacked_lines(io.BytesIO(line), "x.txt"), 50))
    assert b"".join(parts) == line
    assert len(parts) > 2 and all(0 < len(part) <= 10 for part in parts)


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.ENOTSUP])
def test_a_folder_that_cannot_be_synced_is_told_after_the_file_is_there_if_any_can(at, monkeypatch, number):
    def fsync(descriptor, real=os.fsync):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with contextlib.ExitStack() as told:
        if number == errno.EIO:
            told.enter_context(pytest.raises(OSError, match="is written, but its folder cannot be synced"))
        with written("x") as stream:
            stream.write(b"new")
    assert Path("x").read_bytes() == b"new"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_file_is_written_leaves_no_part_of_it(number, at):
    Path("x.jsonl").write_text("old")
    Path("lines.txt").write_text("the cat sat on the mat\n" * 20_000)
    process = started("batch", "lines.txt", "-e", "random", "-o", "x.jsonl", stderr=subprocess.PIPE)
    wait_for(lambda: any(name.endswith(".part") for name in os.listdir()))
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, b"")
    assert sorted(os.listdir()) == ["lines.txt", "x.jsonl"] and Path("x.jsonl").read_text() == "old"


@pytest.mark.parametrize("number", ONE)
def test_a_signal_at_any_moment_gives_its_code_and_silence(number):
    start = time.monotonic()
    assert started(*RECORD, stdout=subprocess.DEVNULL).wait(60) == 0
    whole_run = time.monotonic() - start
    ends = []
    for part in range(often(10) + 1):
        process = started(*RECORD, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if part == often(10):
            wait_for(lambda process=process: unread(process.stdout) > FULL)  # it is surely at work
        else:
            time.sleep(whole_run * part / often(10))
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        if b"Traceback" in err:  # Python itself was still starting
            assert b"attn_cli" not in err
        else:
            assert err == b"", (part, err)
            ends.append(process.returncode)
    assert set(ends) <= {0, 128 + number, -number} and ends[-1] == 128 + number


def test_who_ignores_a_signal_is_not_ended_by_it():
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    process = started(*RECORD, stdout=subprocess.DEVNULL, **ignoring)
    for _ in range(20):
        time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_in_a_block_a_signal_has_its_handler_unless_it_is_ignored_and_then_that_of_before(before):
    old = signal.signal(signal.SIGUSR2, before)
    with signals.handled(print, signal.SIGUSR2):
        inside = signal.getsignal(signal.SIGUSR2)
    assert signal.signal(signal.SIGUSR2, old) == before
    assert inside == (print if before == signal.SIG_DFL else before)


def test_a_separate_process_answers_or_is_dead_or_late(tmp_path):
    child = tmp_path / "child.py"
    child.write_text("import json, sys\nexec(json.loads(input())['run'])\n")
    for run, seconds, is_late in (("sys.exit()", 60, False), ("input()", 0.2, True)):
        process = signals.SeparateProcess(str(child), [], seconds)
        with pytest.raises(signals.DiedError) as caught:
            process.ask({"run": run})
        assert caught.value.is_late == is_late and not process.is_running() and process.running.stdin.closed
    process = signals.SeparateProcess(str(child), ["x"], 60)
    run = "print(json.dumps([sys.flags.isolated, sys.argv[1:]]), flush=True); input()"
    assert process.ask({"run": run}) == [1, ["x"]]
    killed = []
    with pytest.MonkeyPatch.context() as forked:
        forked.setattr(process, "_owner", 0)  # as in a fork of attn, which leaves it to its parent
        forked.setattr(process.running, "kill", lambda: killed.append(process))
        process._kill()
        process.end()
    assert killed == [] and process.is_running()
    process.end()
    assert not process.is_running()


@pytest.mark.parametrize("again", ["inside", "after it"])
def test_inside_a_block_that_wants_it_a_signal_is_an_interrupt_and_a_second_one_the_end(again):
    script = f"""
import os, signal
from attn_cli.io import signals
signal.signal(signal.SIGTERM, lambda number, frame: signals.end(number))
with signals.cleaned_up(lambda: print("all", flush=True)), signals.cleaned_up(lambda: print("cleaned", flush=True)):
    with signals.cleaned_up(print):
        pass
    try:
        with signals.raised():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                print("interrupted", signals.exit_code(), flush=True)
                {"os.kill(os.getpid(), signal.SIGTERM)" if again == "inside" else "raise"}
    except KeyboardInterrupt:
        print("after it", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
"""
    said = "after it\n" if again == "after it" else ""
    assert python(script)[:2] == (143, f"interrupted 143\n{said}cleaned\nall\n")
    assert signals.exit_code() == 130


def test_the_progress_bar_is_taken_away_by_a_signal_too(at):
    Path("lines.txt").write_text("the cat sat on the mat\n" * 20_000)
    ours, its = pty.openpty()
    process = started("batch", "lines.txt", "-e", "random", "-o", "x.jsonl", stderr=its, stdin=its)
    os.close(its)
    shown = b""
    while b"%" not in shown and select.select([ours], [], [], 20)[0]:
        shown += os.read(ours, 1000)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    shown += until_closed(ours)
    assert shown.endswith(b"\r") and not shown.rstrip(b"\r").rsplit(b"\r", 1)[-1].strip()


def test_a_long_word_and_a_long_text_are_refused_before_they_hurt_and_a_long_word_takes_little_memory(at):
    ran = attn("self", "-e", "random", input="a" * 1_000_001)
    assert ran.code == 65 and "Token 0 (aaaaaaaaaaaaaaaaaaaa...) has more than 1,000,000 bytes." in ran.err
    ran = attn("self", "-e", "random", "--max-text", "2k", input="a " * 1001)
    assert ran.code == 65 and "The text has more than 2,000 bytes." in ran.err
    assert attn("self", "-e", "random", "--max-text", "2002", input="a " * 1001).code == 0
    assert [here("self", "日本", "--max-word", n).code for n in "56"] == [65, 0]  # bytes, not letters
    assert here("self", "word", env={"ATTN_MAX_WORD": "3"}).code == 65
    Path("attn.toml").write_text('max_word = "3"\n')
    assert here("self", "word").code == 65

    script = """import resource
from attn_cli.text.tokenize import tokenize
text, before = "a" * 10_000_000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tokenize(text)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    assert int(python(script).out) < 64 << 10, "KiB"


@pytest.mark.parametrize("limit", [30, 60, 100, 150, 250, 768])
def test_too_little_memory_is_71_in_one_line(limit):
    ran = shell(f"ulimit -v {limit * 1024}; attn {TOO_MUCH if limit == 768 else 'explain she'}")
    assert ran.code == 71 and ran.err.count("\n") == 1
    assert "There is not enough memory for this." in ran.err


def test_sixteen_processes_import_remove_and_look_up_one_name(own, file):
    rows = ("".join(f"w{i} {n * i} {n} {n}.5\n" for i in range(300)) for n in (1, 2))
    packed = [file(gzip.compress(text.encode()), f"v{n}.txt.gz") for n, text in enumerate(rows)]

    def of_w7(name):
        ran = attn("self", "w7", "-e", name, "-p", "identity", "-f", "json", "--steps")
        return ran, ran.out.partition('"x_query":')[2]

    answers = {of_w7(path)[1] for path in packed}
    assert len(answers) == 2

    def work(number):
        wrong = []
        for turn in range(often(6)):
            if number % 4 == 0:
                ran = attn("vectors", "import", packed[turn % 2], "--name", "mine")
                fine = ran.code == 0
            elif number == 1:
                ran = attn("vectors", "remove", "mine")
                fine = ran.code == 0 or "There is no imported name" in ran.err
            else:
                ran, answer = of_w7("mine")
                fine = answer in answers if ran.code == 0 else "There are no vectors" in ran.err
            wrong += [] if fine else [ran]
        return wrong

    with ThreadPoolExecutor(16) as pool:
        assert [ran for wrong in pool.map(work, range(16)) for ran in wrong] == []
    assert attn("vectors", "import", packed[0], "--name", "mine").code == 0
    folder = own / "data" / "attn" / "vectors"
    left = sorted(os.listdir(folder))
    assert len(left) == 2 and left[1] == "mine.json" and left[0].endswith(".vectors")
    assert attn("vectors", "remove", "mine").code == 0 and os.listdir(folder) == []


def test_sixteen_processes_write_one_file(at):
    texts = ["the cat", "the dog sat"]
    alone = [attn("self", text, "-f", "json").out for text in texts]
    with ThreadPoolExecutor(16) as pool:
        ran = [*pool.map(lambda n: attn("self", texts[n % 2], "-f", "json", "-o", "x.json"), range(16))]
    assert [one.code for one in ran] == [0] * 16
    assert Path("x.json").read_text() in alone and os.listdir() == ["x.json"]
