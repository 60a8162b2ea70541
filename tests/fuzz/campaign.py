"""Many cases of one reader: counted, timed, and what comes out of them kept."""

import contextlib
import os
import pickle
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import LONGEST, Bench, Hangs, beside, drawn, run
from tests.fuzz.mutate import place
from tests.fuzz.seeds import READERS, Files

ENOUGH = 3  # files of one kind of crash are kept
MEMORY = 4 << 30  # bytes that a campaign may take; what wants more is a crash
WARM = 200

NAMES = tuple(READERS)


@dataclass
class Outcome:
    """What became of a reader's cases; crashes by where they happened, with their number and first traceback."""

    reader: str
    cases: int = 0
    opened: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    growth: int = 0
    died: int = 0
    crashes: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def crashed(self) -> int:
        return sum(count for count, _ in self.crashes.values()) + self.died


def apart(name: str, cases: int, seed: int, save: Path | None) -> Outcome:
    """Run a reader's cases in a process of their own, whose death would be a crash too."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12 and later: a test's worker has threads
        child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            with contextlib.suppress(ValueError, OSError):  # not everywhere
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with open(writing, "wb") as pipe:
                pickle.dump(campaign(name, cases, seed, save), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(told) if not status and told else Outcome(name, cases, died=1)


def campaign(name: str, cases: int, seed: int, save: Path | None = None) -> Outcome:
    bench, outcome = Bench(), Outcome(name)
    one = _case(name, seed, bench)
    before, began = _peak(), time.perf_counter()
    try:
        for number in range(cases):
            _count(outcome, one, number, save)
            if number == min(WARM, cases // 2):
                before = _peak()
    finally:
        bench.close()
    outcome.seconds = time.perf_counter() - began
    outcome.growth = _peak() - before
    return outcome


Case = Callable[[int], tuple[Files, Callable[[], bool]]]


def _case(name: str, seed: int, bench: Bench) -> Case:
    """Return what draws the case of a number: its files, and how it is run."""

    def of_file(number: int) -> tuple[Files, Callable[[], bool]]:
        files, asked = drawn(READERS[name], seed, number)
        return files, lambda: run(bench, files, asked)

    return of_file


def _count(outcome: Outcome, one: Case, number: int, save: Path | None) -> None:
    files, go = one(number)
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        outcome.opened += go()
    except (Exception, Hangs) as error:
        _keep(outcome, number, error, files, save)
    taken = time.perf_counter() - start
    outcome.cases += 1
    if taken > outcome.slowest and number > min(WARM, 10):
        outcome.slowest = taken


def _keep(outcome: Outcome, number: int, error: BaseException, files: Files, save: Path | None) -> None:
    """Count a crash under the place where it happened, and save the first few of each."""
    where = place(error)
    count, first = outcome.crashes.get(where, (0, ""))
    told = f"case {number}\n" + "".join(traceback.format_exception(error))
    outcome.crashes[where] = (count + 1, first or told)
    if save is None or count >= ENOUGH:
        return
    folder = save / f"{outcome.reader}-{number}".replace(" ", "-").replace("'", "").replace(",", "")
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, data in files.items():
        beside(folder / "fuzz.dat", suffix).write_bytes(data)
    (folder / "traceback.txt").write_text(told, errors="backslashreplace")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
