"""Two sides timed in pairs: one call of each in turn, so that whatever else the machine does slows both."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from subprocess import CalledProcessError
from typing import NamedTuple

from attn_cli.core.threads import processors
from attn_cli.io.types import OnPart
from tests.bench.cases import BESIDE, BYTES_A_TOKEN, EXPLICIT, FIXED_BYTES, FUSED, ONE_THREAD, RETURNED, Case
from tests.bench.machine import fastest_pytorch, pytorch

Side = Callable[[], object]
SAMPLE = 0.02  # seconds; a shorter call is repeated for one sample
QUICK, MORE = 0.1, 3  # a pair that takes fewer seconds is measured so many times as often
FLOAT32 = 4  # bytes
OVERHEAD = 2_000_000.0  # of a call, in weights computed in the same time


class Measured(NamedTuple):
    """The result of a case: what a call takes on each side (medians), and their ratio, the smaller the better.

    The ratio is that of pairs: its median and quartiles. `cpu_ratio` is the same median in processor time, which a
    busy neighbour disturbs less; None where the clock is too coarse.
    """

    case: Case
    unit: str  # seconds or bytes
    ours: float
    theirs: float
    ratio: float
    quartiles: tuple[float, float]
    cpu_ratio: float | None
    pairs: int

    @property
    def reached(self) -> bool | None:
        """Tell whether the ratio to reach was reached; None where there is none."""
        return None if self.case.to_reach is None else self.ratio <= self.case.to_reach

    def to_dict(self) -> dict[str, object]:
        """Return the row as it stands in the JSON."""
        result = {name: value for name, value in self._asdict().items() if name != "case"}
        more = {"quartiles": list(self.quartiles), "to_reach": self.case.to_reach, "reached": self.reached}
        return self.case.to_dict() | result | more


class Missing(NamedTuple):
    """A case that could not be measured here, and why."""

    case: Case
    reason: str


def measure(
    cases: Sequence[Case],
    pairs: int,
    threads: int,
    races: Mapping[str, Callable[[Case, int], object]],
    report: OnPart = lambda done: None,
) -> Iterator[Measured | Missing]:
    """Yield the result of each case, in order, from at least `pairs` pairs of calls.

    `races` makes the two sides of a case; `report` gets the part that is done, 0 to 1.
    """
    cells = [OVERHEAD + case.heads * case.tokens**2 for case in cases]  # roughly how long each takes
    costs = [
        one if case.group == "memory" else one * (pairs + 1) for one, case in zip(cells, cases, strict=True)
    ]
    for n, case in enumerate(cases):

        def report_part(part: float, n: int = n) -> None:
            report((sum(costs[:n]) + part * costs[n]) / sum(costs))

        yield _measured(case, pairs, threads, races, report_part)
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
    case: Case, pairs: int, threads: int, races: Mapping[str, Callable[[Case, int], object]], report: OnPart
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
    from tests.bench.memory import peak_in_child

    try:
        ours = peak_in_child(case)
    except (OSError, CalledProcessError, ValueError):
        return Missing(case, "The peak of a process could not be read.")
    returned = case.heads * case.tokens**2 * FLOAT32
    theirs = returned if case.against == RETURNED else case.tokens * BYTES_A_TOKEN + FIXED_BYTES
    ratio = ours / theirs
    return Measured(case, "bytes", ours, theirs, ratio, (ratio, ratio), None, 1)


def race(case: Case, ours: Side, theirs: Side, pairs: int, report: OnPart = lambda done: None) -> Measured:
    """Time both sides in at least `pairs` rounds, which begin with each side in turn, and compare round by round.

    Both must have been called before. `report` gets the part that is done, 0 to 1.
    """
    sides = (ours, theirs)
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()  # it would slow one side and not the other
    try:
        once = [_seconds(side, 1) for side in sides]
        is_quick = once[0][0] + once[1][0] < QUICK
        numbers = [1, 1]
        for which in (0, 1, 0, 1) if is_quick else ():  # twice, as the first calls are slow
            seconds = _seconds(sides[which], numbers[which])[0]
            numbers[which] = max(1, math.ceil(SAMPLE / max(seconds, 1e-9)))
        # A long pair is not repeated: the one that showed how long it takes is the first sample.
        samples: list[list[tuple[float, float]]] = [[], []] if is_quick else [[once[0]], [once[1]]]
        rounds = MORE * pairs if is_quick else pairs
        for n in range(len(samples[0]), rounds):
            for which in (0, 1) if n % 2 == 0 else (1, 0):
                samples[which].append(_seconds(sides[which], numbers[which]))
            report((n + 1) / rounds)
    finally:
        if was_on:
            gc.enable()
    (wall, cpu), (their_wall, their_cpu) = (list(zip(*side, strict=True)) for side in samples)
    ratios = [one / other for one, other in zip(wall, their_wall, strict=True)]
    cpu_ratio = None
    if all(their_cpu):
        cpu_ratio = statistics.median(one / other for one, other in zip(cpu, their_cpu, strict=True))
    medians = statistics.median(wall), statistics.median(their_wall)
    ratio = statistics.median(ratios)
    return Measured(case, "seconds", *medians, ratio, quartiles(ratios), cpu_ratio, rounds)


def quartiles(values: list[float]) -> tuple[float, float]:
    """Return the first and the third quartile.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0]), quartiles([7.0])
    ((2.0, 4.0), (7.0, 7.0))
    """
    first, _, third = statistics.quantiles(
        values * 2 if len(values) == 1 else values, n=4, method="inclusive"
    )
    return first, third


def _seconds(side: Side, number: int) -> tuple[float, float]:
    """Return the wall and processor seconds of one call, the mean of `number` calls."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in repeat(None, number):
        side()
    return (time.perf_counter() - wall) / number, (time.process_time() - cpu) / number
