"""Every figure that speed is judged by, in one table: `python -m tests.bench table`, ten minutes.

Each part is measured in processes of its own, and what computes twice: as the machine is, and with NumPy, OpenBLAS,
MKL and PyTorch all kept to AVX2, as on most laptops. A part yields what it measured, against what, the figure (a
ratio, unless `what` names a unit) and the figure to reach; what a part needs and is not installed leaves its rows out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.cases import ONE_BLAS_THREAD

Figure = tuple[str, str, float, float]  # what, against what, the figure, the figure to reach
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
COLUMNS = ("what", "against", "here", "AVX2", "to reach")
# The module, and whether it computes enough to be measured with AVX2 alone too.
PARTS = {
    "core": ("tests.bench.table", True),
    "startup": ("tests.bench.startup", False),
    "models": ("tests.bench.pretrained", True),
    "page": ("tests.bench.page", False),
    "live": ("tests.bench.live", False),
    "batch": ("tests.bench.batch", False),
}


def figures() -> Iterator[Figure]:
    """Yield the ratios of attention itself beside PyTorch, on one thread, and of two threads over one."""
    from tests.bench.cases import CASES, EXPLICIT, FUSED, ONE_THREAD
    from tests.bench.screen import OPPONENTS
    from tests.bench.sides import RACES
    from tests.bench.timing import Measured, measure

    groups = ("weights", "output", "threads")
    wanted = [
        case
        for case in CASES
        if case.group in groups and case.against in (EXPLICIT, FUSED, ONE_THREAD) and case.to_reach
    ]
    for row in measure(wanted, 7, 1, RACES):
        if isinstance(row, Measured):
            case = row.case
            jobs = {"weights": "weights and output", "output": "output alone"}
            what = f"{jobs[case.job]}, {case.heads} x {case.tokens:,} x {case.dim}"
            yield what, OPPONENTS[case.against][0], row.ratio, row.case.to_reach or 0.0


def avx2() -> dict[str, str] | None:
    """Return the variables that keep everything to AVX2; None where this processor has nothing above it."""
    from numpy._core import _multiarray_umath as numpy_core

    parts: Any = numpy_core
    above = [name for name in parts.__cpu_dispatch__ if name.startswith(("AVX512", "X86_V4"))]
    present = [name for name in above if parts.__cpu_features__.get(name)]
    if not present:
        return None
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(present),
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }


def run(part: str, variables: dict[str, str]) -> Iterator[Figure]:
    """Yield the figures of a part, measured in a process with these variables; say so where that failed."""
    command = [sys.executable, "-m", "tests.bench.table", part]
    done = subprocess.run(
        command, env=os.environ | ONE_BLAS_THREAD | QUIET | variables, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        print(f"{part}: not measured to its end (exit code {done.returncode})", file=sys.stderr)
    yield from (tuple(json.loads(line)) for line in done.stdout.splitlines())


def lines() -> Iterator[str]:
    """Measure every part, and yield the table's lines: what each figure is here, and what it is to be."""
    narrow = avx2()
    yield "A ratio is attn's time over the other's, a median of pairs: below 1, attn is faster."
    yield _line(*COLUMNS)
    for part, (_, computes) in PARTS.items():
        here = list(run(part, {}))
        beside = {row[:2]: row[2] for row in run(part, narrow)} if computes and narrow else {}
        yield ""
        yield from (_line(*_cells(*row, beside.get(row[:2]))) for row in here)


def _cells(what: str, against: str, figure: float, to_reach: float, beside: float | None) -> tuple[str, ...]:
    missed = max(figure, beside or 0.0) > to_reach
    reached = f"{to_reach:.2f} {'no' if missed else 'yes'}"
    return what, against, f"{figure:.2f}", "-" if beside is None else f"{beside:.2f}", reached


def _line(what: str, against: str, here: str, beside: str, to_reach: str) -> str:
    return f"{what:<54} {against:<45} {here:>6} {beside:>6} {to_reach:>10}"


def main() -> None:
    """Print the figures of one part as lines of JSON."""
    for figure in import_module(PARTS[sys.argv[1]][0]).figures():
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
