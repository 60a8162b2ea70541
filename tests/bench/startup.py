"""Whole processes: CPU time of attn over that of Python itself and of `import numpy`, pair by pair."""

import os
import resource
import statistics
import subprocess
import sys

from tests.bench.opponents import NOTHING, NUMPY

ATTN = [sys.executable, "-m", "attn_cli"]
CASES = [
    ("attn self, 6 words", [*ATTN, "self", "The cat sat on the mat", "--color", "always"], NUMPY, 1.6),
    (
        "attn explain, 9 words",
        [*ATTN, "explain", "The quick brown fox jumped over the lazy dog", "--color", "always"],
        NUMPY,
        2.0,
    ),
    (
        "attn self, 6 words, five layers",
        [*ATTN, "self", "The cat sat on the mat", "-p", "roles-deep", "--color", "always"],
        NUMPY,
        1.3 * 1.6,
    ),
    (
        "attn explain, 9 words, five layers",
        [
            *[*ATTN, "explain", "The quick brown fox jumped over the lazy dog"],
            *["-p", "roles-deep", "--color", "always"],
        ],
        NUMPY,
        1.3 * 2.0,
    ),
    ("attn --help", [*ATTN, "--help"], NUMPY, 1.5),
    ("attn --version", [*ATTN, "--version"], NOTHING, 2.0),
]


def cpu(command: list[str]) -> float:
    """Return the user and system seconds of one run."""
    # Compiled modules are cached, as they are wherever attn was installed; one BLAS thread for both.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env | {"OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows(pairs: int = 15) -> list[tuple[str, str, float, float]]:
    """Return (case, opponent, median ratio, ratio to reach) for each case."""
    found = []
    for name, command, opponent, limit in CASES:
        cpu(command), cpu(opponent)
        ratios = [cpu(command) / cpu(opponent) for _ in range(pairs)]
        against = " ".join(opponent[1:])
        found.append((name, f"python {against}", statistics.median(ratios), limit))
    return found
