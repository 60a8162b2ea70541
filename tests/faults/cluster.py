"""A run on a Dask cluster, disturbed: `python -m tests.faults.cluster [--lines N] [--kills N]`.

Its workers are killed again and again, its scheduler once, its disk is full once. After each of them the parts and the
manifest must be those of an undisturbed run on one machine, byte for byte. Only root can mount a small disk.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import typer

from tests.batch.folders import content
from tests.bench.batch import sentences
from tests.machines import Machines, workers_of
from tests.shell import started

WORKERS = 2
PAUSE = 1.0  # seconds that a new worker has before one is killed again
LOCAL = ("--engine", "dask", "--workers", str(WORKERS))

Run = subprocess.Popen
Ended = tuple[int, str]  # exit code, standard error


def attn(folder: str, *options: str, during: Callable[[Run], object] | None = None) -> Ended:
    """Run attn batch into a folder, disturb it, and return how it ended."""
    command = ("batch", "lines.txt", "--fields", "summary", "-o", f"{folder}/", *options)
    how = {"stderr": subprocess.PIPE, "start_new_session": True, "text": True}
    with started(*command, **how) as process:
        if during:
            during(process)
        _, said = process.communicate()
    lines = [line for line in said.splitlines() if "waiting for" not in line]  # for workers: a busy machine
    return process.returncode, "\n".join(lines)


def with_parts(folder: str, count: int, run: Run) -> None:
    while len(list(Path(folder).glob("part-*"))) < count and run.poll() is None:
        time.sleep(0.05)


def compared(name: str, folder: str, ended: Ended, whole: dict[str, bytes]) -> Iterator[str]:
    """Say how a run ended; it must have ended well, with the bytes of the undisturbed one."""
    code, said = ended
    is_same = content(folder) == whole
    print(f"{name}: {'the same bytes' if is_same else 'OTHER BYTES'}", flush=True)
    if code or not is_same:
        yield f"{name}: exit code {code}: {said}"


def stopped(name: str, ended: Ended, code: int, why: str) -> Iterator[str]:
    """Say how a run ended that cannot go on: in one line, with its exit code."""
    told = f"{name}: exit code {ended[0]}: {ended[1]}"
    print(f"  {told}", flush=True)
    if ended[0] != code or "\n" in ended[1] or why not in ended[1]:
        yield told


def campaign(lines: int, kills: int) -> Iterator[str]:
    Path("lines.txt").write_text("".join(f"{line}\n" for line in sentences(lines)))
    ended = attn("one", "--workers", str(WORKERS))
    whole = content("one")
    yield from compared("one machine, undisturbed", "one", ended, whole)
    yield from compared("a local cluster, undisturbed", "plain", attn("plain", *LOCAL), whole)
    done, draw = [], random.Random(0)

    def kill_workers(run):
        with_parts("killed", 1, run)
        while len(done) < kills and run.poll() is None:
            if len(found := workers_of(run.pid)) == WORKERS:
                done.append(draw.choice(found))
                os.kill(done[-1], signal.SIGKILL)
            time.sleep(PAUSE + draw.random())

    ended = attn("killed", *LOCAL, during=kill_workers)
    yield from compared(f"workers killed {len(done)} times", "killed", ended, whole)
    if len(done) != kills:
        yield f"{len(done)} kills: the run was too short"
    with Machines(WORKERS) as own:  # the scheduler is killed when a few parts are there

        def kill(run):
            with_parts("lost", 5, run)
            own.scheduler.kill()

        ended = attn("lost", "--engine", "dask", "--scheduler", own.address, during=kill)
        yield from stopped("scheduler killed", ended, 71, "was lost")
    with Machines(WORKERS) as own:
        ended = attn("lost", "--engine", "dask", "--scheduler", own.address)
        yield from compared("the same command, a new scheduler", "lost", ended, whole)
    os.mkdir("full")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", "full"], check=True)
    try:
        yield from stopped("disk full", attn("full", *LOCAL), 74, "No space left")
        if list(Path("full").glob(".*.part")):
            yield "unfinished files are left"
        subprocess.run(["mount", "-o", "remount,size=2g", "full"], check=True)
        yield from compared("the same command, with room", "full", attn("full", *LOCAL), whole)
    finally:
        subprocess.run(["umount", "full"], check=True)


def main(lines: int = 200_000, kills: int = 10) -> None:
    """Run that many lines, and kill workers that often."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for what in campaign(lines, kills):
            wrong += 1
            print(f"  WRONG: {what}", flush=True)
    print(f"{wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
