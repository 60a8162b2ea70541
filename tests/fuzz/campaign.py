"""Many cases of one reader: written, opened, asked and counted, and the first of what crashes told."""

import os
import resource
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random

from attn_cli.errors import AttnError
from tests.fuzz import cases as vectors, gguf, seeds
from tests.fuzz.cases import Broken
from tests.fuzz.mutate import IN_MEMORY, place
from tests.fuzz.seeds import beside

LONGEST = 5.0  # seconds of a case; what takes longer hangs
MEMORY = 4 << 30  # bytes that a campaign may take; what wants more is a crash

NAMES = tuple(seeds.READERS)
ALL = (*NAMES, *gguf.NAMES)


@dataclass
class Outcome:
    """What became of a reader's cases; crashes by where they happened, with their number and first traceback."""

    reader: str
    cases: int
    opened: int = 0
    crashes: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def crashed(self) -> int:
        return sum(count for count, _ in self.crashes.values())


class Hangs(BaseException):
    """A case takes longer than LONGEST."""


def apart(name: str, cases: int, seed: int) -> Outcome:
    """Run a reader's cases in a process of their own, whose death would be a crash too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12 and later: a test's worker has threads
        bounds = (resource.RLIMIT_AS, (MEMORY, MEMORY))
        with ProcessPoolExecutor(1, get_context("fork"), resource.setrlimit, bounds) as pool:
            try:
                return pool.submit(campaign, name, cases, seed).result()
            except BrokenProcessPool:
                return Outcome(name, cases, crashes={"the process died": (1, "")})


def campaign(name: str, cases: int, seed: int) -> Outcome:
    """Run a reader's cases; the same seed gives the same."""
    reader, use = (gguf.reader(name), gguf.use) if name in gguf.NAMES else (seeds.READERS[name], vectors.use)
    outcome = Outcome(name, cases)
    with _place() as (path, warned):
        for number in range(cases):
            rng = Random(seed << 40 | number)
            files = reader.damaged(rng.choice(reader.seeds), rng)
            signal.setitimer(signal.ITIMER_REAL, LONGEST)
            warned.clear()
            try:
                for suffix, data in files.items():
                    beside(path, suffix).write_bytes(data)
                try:
                    for _ in use(str(path), reader, rng):  # it stops when the file is open, and is then asked
                        outcome.opened += 1
                except AttnError as error:
                    said = error.message + error.hint
                    if not error.message or any(letter < " " for letter in said):
                        raise Broken(f"no sound message: {said!r}") from error
                if warned:
                    raise Broken(warned[0])
            except (Exception, Hangs) as error:
                where = place(error)
                count, first = outcome.crashes.get(where, (0, ""))
                told = f"case {number}\n" + "".join(traceback.format_exception(error))
                outcome.crashes[where] = (count + 1, first or told)
    return outcome


@contextmanager
def _place() -> Iterator[tuple[Path, list[str]]]:
    """Yield a file that one case after the other overwrites, in memory if possible, and what is warned of."""
    warned = []

    def warn(message, kind, *_):
        frames = [frame for frame in traceback.extract_stack() if "attn_cli" in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} " if frames else ""
        warned.append(f"{where}{kind.__name__}: {message}")

    def hangs(number, frame):
        raise Hangs(f"more than {LONGEST} seconds")

    warnings.simplefilter("always")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.showwarning = warn
    signal.signal(signal.SIGALRM, hangs)
    with tempfile.TemporaryDirectory(prefix="attn-fuzz-", dir=IN_MEMORY) as made:
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        yield Path(made, "fuzz.dat"), warned
        signal.setitimer(signal.ITIMER_REAL, 0)
