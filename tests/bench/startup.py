"""Whole processes: CPU time of attn over that of Python itself and of `import numpy`, pair by pair."""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from attn_cli.render.blocks import Block, Columns, Heading
from tests.bench.opponents import NOTHING, NUMPY
from tests.bench.timing import quartiles

ATTN = [sys.executable, "-m", "attn_cli"]
CASES = [
    ("self", [*ATTN, "self", "The cat sat on the mat", "--color", "always"], NUMPY, 1.6),
    (
        "explain",
        [*ATTN, "explain", "The quick brown fox jumped over the lazy dog", "--color", "always"],
        NUMPY,
        2.0,
    ),
    (
        "self, deep",
        [*ATTN, "self", "The cat sat on the mat", "-p", "roles-deep", "--color", "always"],
        NUMPY,
        1.3 * 1.6,
    ),
    (
        "explain deep",
        [
            *[*ATTN, "explain", "The quick brown fox jumped over the lazy dog"],
            *["-p", "roles-deep", "--color", "always"],
        ],
        NUMPY,
        1.3 * 2.0,
    ),
    ("--help", [*ATTN, "--help"], NUMPY, 1.5),
    ("--version", [*ATTN, "--version"], NOTHING, 2.0),
]


def cpu(command: list[str]) -> float:
    """Return the user and system seconds of one run."""
    # Compiled modules are cached, as they are wherever attn was installed; one BLAS thread for both.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env | {"OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def blocks(pairs: int = 15) -> Iterator[Block]:
    """Yield a table: each command's CPU seconds over those of its opponent, the median of pairs."""
    yield Heading("Start-up, in processor time of whole processes", 1)
    rows = []
    for name, command, opponent, limit in CASES:
        cpu(command), cpu(opponent)
        ratios = [cpu(command) / cpu(opponent) for _ in range(pairs)]
        ratio, (low, high) = statistics.median(ratios), quartiles(ratios)
        reached = "yes" if ratio <= limit else "no"
        against = " ".join(["python", *opponent[1:]])
        rows.append([name, against, f"{ratio:.3f}", f"{low:.2f}-{high:.2f}", f"{limit:.2f} {reached}"])
    yield Columns(["attn", "against", "ratio", "quartiles", "to reach"], rows)
