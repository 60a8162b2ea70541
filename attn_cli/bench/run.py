"""A run of the benchmark: each case measured, or the reason why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from subprocess import CalledProcessError

from attn_cli.bench.cases import A_TOKEN, BESIDE, EXPLICIT, FUSED, IN_ANY_CASE, LINEAR, ONE_THREAD, RETURNED
from attn_cli.bench.machine import pytorch, pytorch_at_its_best
from attn_cli.bench.memory import peak_in_child
from attn_cli.bench.records import Case, Measured, Missing
from attn_cli.bench.sides import RACES, Sides
from attn_cli.bench.timing import race
from attn_cli.core.threads import processors

Races = Mapping[str, Callable[[Case, int], Sides]]
Told = Callable[[float], None]
FLOAT32 = 4  # bytes
A_CALL = 2_000_000.0  # weights computed in the time of what a call takes in any case


def measure(
    cases: Sequence[Case], pairs: int, threads: int = 1, told: Told = lambda done: None, races: Races = RACES
) -> Iterator[Measured | Missing]:
    """Yield what comes of each case, in order, from at least `pairs` pairs of calls.

    `races` says how the two sides of a case are made; `told` gets the part that is done, 0 to 1.
    Raises AttnError where two sides give different answers.
    """
    costs = [_cost(case, pairs) for case in cases]
    whole = sum(costs)
    for n, case in enumerate(cases):
        before = sum(costs[:n])

        def tell(part: float, before: float = before, cost: float = costs[n]) -> None:
            told((before + part * cost) / whole)

        yield _measured(case, pairs, threads, tell, races)
        tell(1)


def until_interrupted(results: Iterator[Measured | Missing]) -> tuple[list[Measured | Missing], bool]:
    """Return what was measured, and whether that is all: an interrupt leaves what came before it."""
    rows: list[Measured | Missing] = []
    try:
        rows.extend(results)
    except KeyboardInterrupt:
        if not rows:
            raise
        return rows, False
    return rows, True


def _measured(case: Case, pairs: int, threads: int, told: Told, races: Races) -> Measured | Missing:
    if reason := _hindrance(case):
        return Missing(case, reason)
    if case.group == "memory":
        return _memory(case)
    with pytorch_at_its_best(threads):
        sides = races[case.against](case, threads)
        if sides.check is not None:
            sides.check()
        with sides.around():
            return Measured(case, "seconds", *race(sides.ours, sides.theirs, pairs, told))


def _hindrance(case: Case) -> str:
    if case.against in (EXPLICIT, FUSED) and pytorch() is None:
        return "PyTorch is not installed."
    if case.against in (ONE_THREAD, BESIDE) and processors() < 2:
        return "There is one processor."
    return ""


def _memory(case: Case) -> Measured | Missing:
    """Return the peak of a case over what it may be compared with, which its name says."""
    try:
        ours = peak_in_child(case)
    except (OSError, CalledProcessError, ValueError):
        return Missing(case, "The peak of a process could not be read.")
    theirs = {
        RETURNED: case.heads * case.tokens**2 * FLOAT32,
        LINEAR: case.tokens * A_TOKEN + IN_ANY_CASE,
    }[case.against]
    ratio = ours / theirs
    return Measured(case, "bytes", ours, theirs, ratio, (ratio, ratio), None, 1)


def _cost(case: Case, pairs: int) -> float:
    """Return about how long a case takes, in weights computed; for the progress bar alone."""
    cells = A_CALL + case.heads * case.tokens**2
    return cells if case.group == "memory" else cells * (pairs + 1)
