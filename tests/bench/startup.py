"""Whole processes: CPU time of attn over that of Python itself and of the libraries it loads, pair by pair."""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from attn_cli.render.blocks import Block, Columns, Heading
from tests.bench.opponents import LIBRARIES, NOTHING, NUMPY
from tests.bench.timing import quartiles

ATTN = [sys.executable, "-m", "attn_cli"]
CAT, FOX = "The cat sat on the mat", "The quick brown fox jumped over the lazy dog"
DRAWN, DEEP = ("--color", "always"), ("-p", "roles-deep", "--color", "always")
CASES = [
    ("self", [*ATTN, "self", CAT, *DRAWN], LIBRARIES, 1.08),
    ("explain", [*ATTN, "explain", FOX, *DRAWN], LIBRARIES, 1.2),
    ("explain, json", [*ATTN, "explain", FOX, "-f", "json"], LIBRARIES, 1.05),
    ("self, deep", [*ATTN, "self", CAT, *DEEP], NUMPY, 1.3 * 1.6),
    ("explain, deep", [*ATTN, "explain", FOX, *DEEP], NUMPY, 1.3 * 2.0),
    ("--help", [*ATTN, "--help"], NUMPY, 1.5),
    ("--version", [*ATTN, "--version"], NOTHING, 1.5),
]


def cpu(command: list[str]) -> float:
    """Return the user and system seconds of one run."""
    # Compiled modules are cached, as they are wherever attn was installed; one BLAS thread for both.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env | {"OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(pairs: int) -> Iterator[tuple[str, str, list[float], float]]:
    """Yield each command, its opponent, the ratios of their CPU seconds pair by pair, and the ratio to reach."""
    for name, command, opponent, limit in CASES:
        cpu(command), cpu(opponent)
        ratios = [cpu(command) / cpu(opponent) for _ in range(pairs)]
        yield name, " ".join(["python", *opponent[1:]]), ratios, limit


def figures() -> Iterator[tuple[str, str, float, float]]:
    """Yield each command's row of the table of all figures."""
    for name, against, ratios, limit in measured(15):
        yield f"attn {name}, CPU of the process", against, statistics.median(ratios), limit


def blocks(pairs: int = 15) -> Iterator[Block]:
    """Yield a table: each command's CPU seconds over those of its opponent, the median of pairs."""
    yield Heading("Start-up, in processor time of whole processes", 1)
    rows = []
    for name, against, ratios, limit in measured(pairs):
        ratio, (low, high) = statistics.median(ratios), quartiles(ratios)
        reached = "yes" if ratio <= limit else "no"
        rows.append([name, against, f"{ratio:.3f}", f"{low:.2f}-{high:.2f}", f"{limit:.2f} {reached}"])
    yield Columns(["attn", "against", "ratio", "quartiles", "to reach"], rows)
