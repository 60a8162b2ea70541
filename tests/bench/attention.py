"""Attention itself beside PyTorch and NumPy, in time and memory: what is measured, against whom, and how.

Both sides are called in turn, so that whatever else the machine does slows both; each begins in every other pair.
"""

import json
import math
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from timeit import timeit

import numpy as np

from attn_cli.core.threads import processors
from tests.bench import sides
from tests.bench.row import Row, ran
from tests.bench.sides import Case, Side

# What stands in the column "against"; docs/bench.md says what each is.
EXPLICIT, FUSED, TEXTBOOK, FLOOR = "PyTorch", "PyTorch SDPA", "NumPy", "floor"
ALONE, ONE_THREAD, BESIDE, RICH = "output alone", "one thread", "one thread, busy", "rich.table"
RETURNED, LINEAR = "the weights", "1 KiB/token"
RACES = {
    EXPLICIT: sides.explicit, FUSED: sides.fused, TEXTBOOK: sides.textbook, FLOOR: sides.floor,
    ALONE: sides.output_alone, ONE_THREAD: sides.one_thread, BESIDE: sides.beside_another, RICH: sides.drawing,
}  # fmt: skip
SAMPLE = 0.02  # seconds; a shorter call is repeated for one sample
QUICK, MORE = 0.1, 3  # a pair that takes fewer seconds is measured so many times as often
LONG = 100_000
# The memory that the output alone may take above Q, K and V: bytes for each token, and a fixed part.
BYTES_A_TOKEN, FIXED_BYTES, FLOAT32 = 1024, 16 << 20, 4
CHILD = "import sys, json; from tests.bench.attention import *; print(peak(Case(*json.loads(sys.argv[1]))))"


def _tried() -> Iterator[Case]:
    """Yield the cases: the first opponent of each has a ratio to reach."""
    for group, causal, against, limits in (
        ("weights", False, (EXPLICIT, TEXTBOOK, FLOOR), (0.45, 0.5, 0.45, 0.8)),
        ("causal", True, (EXPLICIT, TEXTBOOK, FLOOR), (None, 0.6, 0.6, 0.6)),
        ("output", False, (FUSED, TEXTBOOK, FLOOR), (1.0, 1.0, 1.0, 0.95)),
        ("output", True, (FUSED,), (None,) * 4),
    ):
        job = "output" if group == "output" else "weights"
        for (tokens, heads), limit in zip(((512, 8), (2048, 1), (2048, 8), (8192, 1)), limits, strict=True):
            for opponent in against:
                to_reach = limit if opponent == against[0] else None
                yield Case(group, job, opponent, to_reach, tokens, heads, causal=causal)


CASES = (
    *_tried(),
    Case("small", "weights", EXPLICIT, 0.7, 8, dim=50),
    Case("small", "weights", TEXTBOOK, None, 8, dim=50),
    Case("small", "output", FUSED, 1.1, 8, dim=50),
    *(Case("links", "links", ALONE, to_reach, tokens) for tokens, to_reach in ((8192, None), (LONG, 1.6))),
    *(Case("memory", "weights", RETURNED, 1.05, tokens, heads) for tokens, heads in ((2048, 8), (8192, 1))),
    *(Case("memory", "output", LINEAR, 1.0, tokens) for tokens in (8192, LONG)),
    *(Case("threads", "output", *against, 2048, 8) for against in ((ONE_THREAD, 1 / 1.8), (BESIDE, 1.1))),
    *(Case("threads", "weights", *against, 2048, 8) for against in ((ONE_THREAD, 1 / 1.8), (BESIDE, 1.1))),
    Case("drawing", "drawing", RICH, 1 / 40, 100, 1, 0),
)
GROUPS = tuple(dict.fromkeys(case.group for case in CASES))


def chosen(groups=(), everything=False, tokens: int | None = None, threads: int = 1) -> list[Case]:
    """Return the cases of a run; the ratios to reach hold only for the sizes above and one thread."""
    every = everything or bool(groups) or tokens is not None
    cases = [one for one in CASES if (not groups or one.group in groups) and (every or one.tokens < LONG)]
    if tokens is not None:
        cases = [c if c.group == "drawing" else c._replace(tokens=tokens, to_reach=None) for c in cases]
    if threads != 1:  # the floor is measured with one thread on both sides
        cases = [one._replace(to_reach=None) for one in cases if one.against != FLOOR]
    return list(dict.fromkeys(cases))


def rows(cases: Iterable[Case], pairs: int = 7, threads: int = 1) -> Iterator[Row]:
    for case in cases:
        alone = case.against in (EXPLICIT, FUSED) and sides.pytorch() is None
        if alone or (case.against in (ONE_THREAD, BESIDE) and processors() < 2):
            continue
        if case.group == "memory":
            ours = int(ran([sys.executable, "-c", CHILD, json.dumps(case)]).out)
            returned = case.heads * case.tokens**2 * FLOAT32
            theirs = returned if case.against == RETURNED else case.tokens * BYTES_A_TOKEN + FIXED_BYTES
            yield Row(f"peak, {_named(case)}", case.against, [ours], [theirs], case.to_reach, "B")
            continue
        if torch := sides.pytorch():
            torch.set_num_threads(threads)
        with torch.inference_mode() if torch else nullcontext():
            both = RACES[case.against](case, threads)
            both.check()
            with both.around():
                times = race(both.ours, both.theirs, pairs)
        yield Row(_named(case), case.against, *times, case.to_reach)


def judged(pairs: int = 7) -> Iterator[Row]:
    groups, against = ("weights", "output", "threads"), (EXPLICIT, FUSED, ONE_THREAD)
    return rows((one for one in CASES if one.group in groups and one.against in against), pairs)


def _named(case: Case) -> str:
    job = {"weights": "weights and output", "output": "output alone"}.get(case.job, case.job)
    size = f"{case.tokens:,}" + (f" x {case.heads}" if case.heads > 1 else "")
    return f"{job}{', causal' * case.causal}, {size} tokens"


def race(ours: Side, theirs: Side, pairs: int) -> tuple[list[float], list[float]]:
    """Time both sides in at least `pairs` rounds, which begin with each side in turn; return the seconds of a call."""
    both = (ours, theirs)
    once = [_seconds(side, 1) for side in both]
    is_quick = sum(once) < QUICK
    numbers = [1, 1]
    for which in (0, 1, 0, 1) if is_quick else ():  # twice, as the first calls are slow
        numbers[which] = max(1, math.ceil(SAMPLE / max(_seconds(both[which], numbers[which]), 1e-9)))
    # A long pair is not repeated: the one that showed how long it takes is the first sample.
    samples = ([], []) if is_quick else ([once[0]], [once[1]])
    for n in range(len(samples[0]), MORE * pairs if is_quick else pairs):
        for which in (0, 1) if n % 2 == 0 else (1, 0):
            samples[which].append(_seconds(both[which], numbers[which]))
    return samples


def _seconds(side: Side, number: int) -> float:
    return timeit(side, timer=time.perf_counter, number=number) / number


def peak(case: Case) -> int:
    """Return the peak bytes of one call beyond Q, K, V and NumPy's own buffers; for a fresh process."""
    call = sides.ours(case, 1)
    Q, K, V = sides.numbers(case._replace(tokens=min(case.tokens, 512), heads=1))
    scores = Q @ K.T
    np.matmul(np.exp(scores, out=scores), V)
    with suppress(OSError):  # the peak becomes what is held now, where the system can do that
        Path("/proc/self/clear_refs").write_text("5")
    before = held_at_most()
    _answer = call()
    return held_at_most() - before


def held_at_most() -> int:
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])


def machine() -> str:
    name, torch = platform.processor(), sides.pytorch()
    with suppress(OSError, TypeError):
        name = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(errors="replace"), re.M)[1]
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return (
        f"Processors: {processors()} ({name}), {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__} with {blas.get('name')} {blas.get('version')}, "
        + (f"PyTorch {torch.__version__}" if torch else "without PyTorch (pip install torch)")
    )
