"""A run of the benchmark: each case measured, or the reason why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from subprocess import CalledProcessError

from attn_cli.core.threads import processors
from attn_cli.io.progress import OnPart
from tests.bench.cases import BESIDE, BYTES_A_TOKEN, EXPLICIT, FIXED_BYTES, FUSED, ONE_THREAD, RETURNED
from tests.bench.machine import fastest_pytorch, pytorch
from tests.bench.memory import peak_in_child
from tests.bench.records import Case, Measured, Missing
from tests.bench.sides import RACES, Sides
from tests.bench.timing import race

FLOAT32 = 4  # bytes
OVERHEAD = 2_000_000.0  # of a call, in weights computed in the same time


def measure(
    cases: Sequence[Case],
    pairs: int,
    threads: int = 1,
    report: OnPart = lambda done: None,
    races: Mapping[str, Callable[[Case, int], Sides]] = RACES,
) -> Iterator[Measured | Missing]:
    """Yield the result of each case, in order, from at least `pairs` pairs of calls.

    `races` makes the two sides of a case; `report` gets the part that is done, 0 to 1.
    Raises AttnError where two sides give different answers.
    """
    costs = [_cost(case, pairs) for case in cases]
    for n, case in enumerate(cases):

        def report_part(part: float, n: int = n) -> None:
            report((sum(costs[:n]) + part * costs[n]) / sum(costs))

        yield _measured(case, pairs, threads, report_part, races)
        report_part(1)


def until_interrupted(results: Iterator[Measured | Missing]) -> tuple[list[Measured | Missing], bool]:
    """Return the results, and whether they are all; an interrupt leaves those before it."""
    rows: list[Measured | Missing] = []
    try:
        rows.extend(results)
    except KeyboardInterrupt:
        if not rows:
            raise
        return rows, False
    return rows, True


def _measured(
    case: Case, pairs: int, threads: int, report: OnPart, races: Mapping[str, Callable[[Case, int], Sides]]
) -> Measured | Missing:
    if case.against in (EXPLICIT, FUSED) and pytorch() is None:
        return Missing(case, "PyTorch is not installed.")
    if case.against in (ONE_THREAD, BESIDE) and processors() < 2:
        return Missing(case, "There is one processor.")
    if case.group == "memory":
        return _memory(case)
    with fastest_pytorch(threads):
        sides = races[case.against](case, threads)
        if sides.check is not None:
            sides.check()
        with sides.around():
            return race(case, sides.ours, sides.theirs, pairs, report)


def _memory(case: Case) -> Measured | Missing:
    """Return the peak of a case, and its ratio to the bytes that it is held against."""
    try:
        ours = peak_in_child(case)
    except (OSError, CalledProcessError, ValueError):
        return Missing(case, "The peak of a process could not be read.")
    returned = case.heads * case.tokens**2 * FLOAT32
    theirs = returned if case.against == RETURNED else case.tokens * BYTES_A_TOKEN + FIXED_BYTES
    ratio = ours / theirs
    return Measured(case, "bytes", ours, theirs, ratio, (ratio, ratio), None, 1)


def _cost(case: Case, pairs: int) -> float:
    """Return roughly how long a case takes, in weights computed, for the progress bar."""
    cells = OVERHEAD + case.heads * case.tokens**2
    return cells if case.group == "memory" else cells * (pairs + 1)
