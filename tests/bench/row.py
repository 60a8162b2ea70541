"""A row of a benchmark: what attn takes, and what its opponent does; and how processes are measured."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ATTN = [sys.executable, "-m", "attn_cli"]
# One thread for every BLAS; to be set before NumPy is loaded.
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ONE_BLAS_THREAD = dict.fromkeys(BLAS, "1")
COLUMNS = "{:<48} {:<22} {:>9} {:>9} {:>7} {:>11} {:>13}"
HEAD = COLUMNS.format("what", "against", "attn", "other", "ratio", "quartiles", "to reach")
UNITS = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))}
UNITS["B"] = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
PEAK = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
)


class Row(NamedTuple):
    """What attn took, and the other, pair by pair, in seconds or bytes; and the ratio to reach."""

    what: str
    against: str
    ours: list[float]
    theirs: list[float]
    to_reach: float | None
    unit: str = "s"

    @property
    def ratios(self) -> list[float]:
        """The ratio of each pair: below 1, attn takes less. Where there is no other, attn's own figures."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [one / other for one, other in pairs] if self.theirs else self.ours

    @property
    def reached(self) -> bool | None:
        """Whether the median ratio is the one to reach; None where there is none."""
        return None if self.to_reach is None else statistics.median(self.ratios) <= self.to_reach

    def to_dict(self) -> dict[str, object]:
        found = {"ratio": statistics.median(self.ratios), "quartiles": quartiles(self.ratios)}
        return self._asdict() | found | {"reached": self.reached}

    def __str__(self) -> str:
        attn, other, ratio, spread, wanted = amount(statistics.median(self.ours), self.unit), *"----"
        if self.theirs:
            other = amount(statistics.median(self.theirs), self.unit)
            ratio = f"{statistics.median(self.ratios):.3f}"
        if len(self.theirs) > 1:
            spread = "{:.2f}-{:.2f}".format(*quartiles(self.ratios))
        if self.to_reach is not None:
            limit = f"{self.to_reach:.3g}" if self.theirs else amount(self.to_reach, self.unit)
            wanted = f"{limit} {'yes' if self.reached else 'no'}"
        return COLUMNS.format(self.what, self.against, attn, other, ratio, spread, wanted)


def amount(value: float, unit: str) -> str:
    """Return seconds or bytes with three significant digits, in a suitable unit."""
    factor, name = next((one for one in UNITS[unit] if value >= one[0]), UNITS[unit][-1])
    scaled = value / factor
    return f"{scaled:,.{0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2}f} {name}"


def quartiles(values: list[float]) -> tuple[float, float]:
    some = values * 2 if len(values) == 1 else values
    first, _, third = statistics.quantiles(some, n=4, method="inclusive")
    return first, third


class Ran(NamedTuple):
    """What a process and those below it took, in seconds of a processor and by the clock, and what it printed."""

    cpu: float
    clock: float
    out: bytes


def ran(command: list[str]) -> Ran:
    """Run a process to its end, which must be a good one; compiled modules are kept, as where attn is installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, env=env | ONE_BLAS_THREAD, cwd=ROOT)
        _, status, used = os.wait4(child.pid, 0)
        clock = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{command[:6]} ended with {child.returncode}")
        out.seek(0)
        return Ran(used.ru_utime + used.ru_stime, clock, out.read())


def peak(command: list[str]) -> float:
    """Return the most bytes that one process of a command holds; it is run by a small one, whose own would count."""
    return 1024 * int(ran([sys.executable, "-c", PEAK, *command]).out)


def compared(what, ours: list[str], against, theirs: list[str], to_reach, pairs: int, by="cpu") -> Row:
    both = [(getattr(ran(ours), by), getattr(ran(theirs), by)) for _ in range(pairs + 1)]
    return Row(what, against, *map(list, zip(*both[1:], strict=True)), to_reach)
