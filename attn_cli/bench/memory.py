"""How much memory attention takes at its peak, beyond what was there before, as a fresh process sees it.

Before, Q, K and V are there, attn is imported, and NumPy has multiplied and raised to powers once, so that the room
that its libraries make for themselves, once a process, is not counted. attn itself has not run: whatever room it makes,
and keeps, counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from attn_cli.bench.cases import ONE_BLAS_THREAD
from attn_cli.bench.records import Case
from attn_cli.bench.sides import numbers, ours
from attn_cli.core.tiles import quickest

CHILD = (
    "import sys; from attn_cli.bench.memory import peak; print(peak(*sys.argv[1:2], *map(int, sys.argv[2:])))"
)
STATUS, CLEAR = "/proc/self/status", "/proc/self/clear_refs"


def peak_in_child(case: Case) -> int:
    """Return the bytes that a case takes at its peak, in a process of its own.

    Raises CalledProcessError where the system does not tell, or the process dies, and OSError where there is none.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    sizes = [str(size) for size in (case.tokens, case.heads, case.dim)]
    command = [sys.executable, "-P", "-c", CHILD, case.job, *sizes]
    env = os.environ | {"PYTHONPATH": path, **ONE_BLAS_THREAD}
    return int(subprocess.check_output(command, env=env, stderr=subprocess.DEVNULL))


def peak(job: str, tokens: int, heads: int, dim: int) -> int:
    """Return the bytes that one call takes at its peak beyond Q, K and V; its answer is among them."""
    case = Case("memory", job, "", None, tokens, heads, dim)
    call = ours(case, 1)
    _warm_up(case)
    _forget_peak()
    before = _high_water()
    answer = call()
    after = _high_water()
    del answer
    return after - before


def _warm_up(case: Case) -> None:
    """Let the libraries make their own room: products of the shapes to come, and exponentials."""
    Q, K, V = numbers(case._replace(tokens=min(case.tokens, 512), heads=1))
    scores = Q @ K.T
    quickest(scores.itemsize).of(scores, out=scores)
    np.matmul(scores, V)


def _high_water() -> int:
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


def _forget_peak() -> None:
    """Let the peak begin anew at what is held now, where the system can; elsewhere the start-up stays below it."""
    try:
        with open(CLEAR, "w", encoding="ascii") as stream:
            stream.write("5")
    except OSError:
        return
