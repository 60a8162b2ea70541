"""Two sides timed in pairs: one call of each in turn, so that whatever else the machine does slows both."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from itertools import repeat

from attn_cli.io.progress import OnPart
from tests.bench.records import Case, Measured

Side = Callable[[], object]
SAMPLE = 0.02  # seconds; a shorter call is repeated for one sample
QUICK, MORE = 0.1, 3  # a pair that takes fewer seconds is measured so many times as often


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
    ratio = statistics.median(ratios)
    medians = statistics.median(wall), statistics.median(their_wall)
    return Measured(case, "seconds", *medians, ratio, quartiles(ratios), cpu_ratio, rounds)


def quartiles(values: list[float]) -> tuple[float, float]:
    """Return the first and the third quartile.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0]), quartiles([7.0])
    ((2.0, 4.0), (7.0, 7.0))
    """
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def _seconds(side: Side, number: int) -> tuple[float, float]:
    """Return the wall and processor seconds of one call, the mean of `number` calls."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in repeat(None, number):
        side()
    return (time.perf_counter() - wall) / number, (time.process_time() - cpu) / number
