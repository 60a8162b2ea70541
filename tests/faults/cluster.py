"""A run on a Dask cluster, disturbed: `python -m tests.faults.cluster [--lines N] [--kills N]`.

Its workers are killed again and again, its scheduler once, its disk is full once. After each of them the parts and the
manifest must be those of an undisturbed run on one machine, byte for byte: nothing lost, nothing twice. The disk is a
small tmpfs where one can be mounted, else a limit of the size of files.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path

from tests.bench.batch import sentences
from tests.machines import Machines
from tests.shell import COMMAND, surroundings

WORKERS = 2
PAUSE = 1.0  # seconds that a new worker has before one is killed again
LIMIT = 1 << 16  # bytes of a file, where no small disk can be mounted
MOUNTED = "size=10m", "remount,size=2g"

Ended = tuple[int, str, float]  # exit code, standard error, seconds


def attn(
    folder: Path, *options: str, during: Callable[[int], object] = lambda pid: None, limit: int = 0
) -> Ended:
    """Run attn batch into a folder, disturb it, and return how it ended; `limit` is of each file's bytes."""
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)) if limit else None
    command = [*COMMAND, "batch", "lines.txt", "--fields", "summary", "-o", f"{folder}/", *options]
    start = time.monotonic()
    with subprocess.Popen(
        command, env=surroundings(), stderr=subprocess.PIPE, preexec_fn=limited, start_new_session=True
    ) as process:
        during(process.pid)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    return process.returncode, said.strip(), time.monotonic() - start


def content(folder: Path) -> dict[str, str]:
    """Return the checksum of every file of a folder."""
    return {path.name: blake2b(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def workers_of(pid: int) -> list[int]:
    """Return the workers that a run has started, by whichever of its threads."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
    return found


def goes_on(pid: int) -> bool:
    """Tell whether a run goes on: a process that has ended has no command line."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def with_parts(folder: Path, count: int, pid: int) -> None:
    """Wait until a run has so many parts, or has ended."""
    while len(list(folder.glob("part-*"))) < count and goes_on(pid):
        time.sleep(0.05)


def killing(kills: int, folder: Path, done: list[float]) -> Callable[[int], None]:
    """Return what kills a worker so many times while a run goes on; `done` gets the time of each."""
    draw = random.Random(0)

    def act(pid: int) -> None:
        with_parts(folder, 1, pid)
        while len(done) < kills and goes_on(pid):
            found = workers_of(pid)
            if len(found) == WORKERS:
                os.kill(draw.choice(found), signal.SIGKILL)
                done.append(time.monotonic())
            time.sleep(PAUSE + draw.random())

    return act


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[int, Callable[[], object]]]:
    """Make a folder's disk small; yield the limit of files where that is done so, and what makes it large again."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", MOUNTED[0], "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield LIMIT, lambda: None
        return
    try:
        yield 0, lambda: subprocess.run(["mount", "-o", MOUNTED[1], str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Campaign:
    """The runs, and what is wrong with them."""

    def __init__(self, place: Path, lines: int, kills: int) -> None:
        self.place, self.lines, self.kills = place, lines, kills
        self.wrong = 0

    def run(self) -> int:
        """Do all of it; return how much was wrong."""
        Path("lines.txt").write_text("".join(f"{line}\n" for line in sentences(self.lines)))
        one = self.place / "one"
        ended = attn(one, "--workers", str(WORKERS))
        self.whole = content(one)
        self.tell("one machine, undisturbed", ended, one)
        on_dask = ("--engine", "dask", "--workers", str(WORKERS))
        self.compared("a local cluster, undisturbed", "plain", *on_dask)
        kills: list[float] = []
        killed = self.place / "killed"
        ended = attn(killed, *on_dask, during=killing(self.kills, killed, kills))
        self.tell(f"workers killed {len(kills)} times", ended, killed)
        self.expect(len(kills) == self.kills, f"{len(kills)} kills: the run was too short")
        self.scheduler_killed()
        self.disk_full(on_dask)
        return self.wrong

    def compared(self, name: str, folder: str, *options: str) -> None:
        self.tell(name, attn(self.place / folder, *options), self.place / folder)

    def scheduler_killed(self) -> None:
        """Kill the scheduler when a few parts are there; the same command goes on with a new one."""
        folder = self.place / "lost"
        with Machines(WORKERS) as own:

            def kill(pid: int) -> None:
                with_parts(folder, 5, pid)
                own.scheduler.kill()

            code, said, _ = attn(folder, "--engine", "dask", "--scheduler", own.address, during=kill)
        self.expect(code == 71 and said.count("\n") == 0 and "was lost" in said, f"exit code {code}: {said}")
        print(f"  scheduler killed: exit code {code}: {said}", flush=True)
        with Machines(WORKERS) as own:
            on_dask = ("--engine", "dask", "--scheduler", own.address)
            self.compared("the same command, a new scheduler", "lost", *on_dask)

    def disk_full(self, on_dask: tuple[str, ...]) -> None:
        """Let the disk be full; the same command goes on when there is room."""
        folder = self.place / "full"
        with small_disk(folder) as (limit, enlarge):
            code, said, _ = attn(folder, *on_dask, limit=limit)
            self.expect(code == 74 and said.count("\n") == 0, f"exit code {code}: {said}")
            self.expect(not list(folder.glob(".*.part")), "unfinished files are left")
            print(f"  disk full ({'a limit' if limit else 'tmpfs'}): exit code {code}: {said}", flush=True)
            enlarge()
            self.compared("the same command, with room", "full", *on_dask)
            shutil.rmtree(folder, ignore_errors=True)

    def tell(self, name: str, ended: Ended, folder: Path) -> None:
        """Say how a run ended; it must have ended well, with the bytes of the undisturbed one."""
        code, said, seconds = ended
        self.expect(code == 0, f"{name}: exit code {code}: {said}")
        found = content(folder)
        different = sorted(path for path in {*found, *self.whole} if found.get(path) != self.whole.get(path))
        self.expect(not different, f"{name}: other than undisturbed: {different}")
        same = "the same bytes" if not different else "OTHER BYTES"
        print(f"{name:36} {self.lines:,} lines, {len(found) - 1} parts, {seconds:5.0f} s: {same}", flush=True)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong += 1
            print(f"  WRONG: {otherwise}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cluster", description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=10, help="of workers")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        wrong = Campaign(Path(folder), asked.lines, asked.kills).run()
        os.chdir("/")
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
