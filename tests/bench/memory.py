"""The peak memory of attention, beyond Q, K and V, measured in a fresh process.

Before the measurement NumPy has multiplied and exponentiated once, so that the buffers that its libraries allocate
once a process do not count. attn itself has not run: every buffer that it allocates, and keeps, counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.bench.cases import ONE_BLAS_THREAD, Case
from tests.bench.sides import numbers, ours

CHILD = (
    "import sys; from tests.bench.memory import peak; print(peak(*sys.argv[1:2], *map(int, sys.argv[2:])))"
)
STATUS, CLEAR = "/proc/self/status", "/proc/self/clear_refs"


def peak_in_child(case: Case) -> int:
    """Return the peak bytes of a case, from a child process.

    Raises CalledProcessError where the system does not give them, or the process dies, and OSError where it does
    not start.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    sizes = [str(size) for size in (case.tokens, case.heads, case.dim)]
    command = [sys.executable, "-P", "-c", CHILD, case.job, *sizes]
    env = os.environ | {"PYTHONPATH": path, **ONE_BLAS_THREAD}
    return int(subprocess.check_output(command, env=env, stderr=subprocess.DEVNULL))


def peak(job: str, tokens: int, heads: int, dim: int) -> int:
    """Return the peak bytes of one call beyond Q, K and V; they include its answer."""
    case = Case("memory", job, "", None, tokens, heads, dim)
    call = ours(case, 1)
    # The libraries allocate their own buffers: for products of the shapes to come, and for exponentials.
    Q, K, V = numbers(case._replace(tokens=min(tokens, 512), heads=1))
    scores = Q @ K.T
    np.matmul(np.exp(scores, out=scores), V)
    with suppress(OSError), open(CLEAR, "w", encoding="ascii") as stream:
        # The peak is what is held now, where the system can; else the start-up stays below it.
        stream.write("5")
    before = _peak_so_far()
    answer = call()
    after = _peak_so_far()
    del answer
    return after - before


def _peak_so_far() -> int:
    """Return the most bytes that this process has held at a time."""
    if os.path.exists(STATUS):
        with open(STATUS, encoding="ascii", errors="replace") as lines:
            found = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
        if found is not None:
            return int(found) * 1024
    try:
        import resource  # not there on Windows
    except ImportError:
        raise OSError("this system does not say how much memory a process took") from None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
