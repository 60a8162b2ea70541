"""How long attn live takes from the byte of a key to the last byte of the screen that answers it, on a terminal.

Beside it stands the processor time that attn takes for a key: on a busy machine the wall says more about the others.
"""

import re
import time
from collections.abc import Iterator
from itertools import cycle, islice

from tests.bench.row import Row
from tests.shell import worked
from tests.stage import Stage

QUIET = 0.06  # seconds without a byte after which a screen is whole: more than two frames of Textual's own 60 a second
TEXT = (
    "The quick brown fox jumped over the lazy dog and then it ran into the deep dark forest where a small grey "
    "cat sat on an old mat near the house"
)
WORDS = TEXT.split()
CASES = {  # name: words, keys before, the keys that are timed, seconds allowed at the 95th percentile
    "30 words": (30, "", "m+s-hx\x1b[B\x1b[C", 0.05),
    "30 words, typing": (30, "t", "abc \x7f", 0.05),
    "100 words, all heads": (100, "H", "m+s-", 0.2),
    "9 words": (9, "", "m+s-hxdv\x1b[B\x1b[C", 0.05),
    "9 words, typing": (9, "t", "abc \x7f", 0.05),
}


def rows(pairs: int = 60) -> Iterator[Row]:
    for what, case, most in (("a key", "9 words", 0.025), ("a typed letter", "9 words, typing", 0.04)):
        yield Row(f"attn live, {what}", "-", measured(case, pairs)[0], [], most)


def every_case(pairs: int = 500) -> Iterator[Row]:
    """Yield what so many keys take in each case: the median, the 95th percentile, the worst, a processor's time."""
    for name, (*_, allowed) in CASES.items():
        times, taken = measured(name, pairs)
        most = [times[int(len(times) * 0.95)]]
        told = {"": times, ", 95 % of keys": most, ", the worst": times[-1:], ", CPU": [taken]}
        for what, found in told.items():
            yield Row(f"attn live, {name}{what}", "-", found, [], allowed if found is most else None)


def all_read(screen: Stage, limit: float, quiet: float) -> float | None:
    """Read until nothing comes for a while; return when the last byte came, None if none did."""
    last, end = None, time.perf_counter() + limit
    while time.perf_counter() < end and screen.read(quiet if last else end - time.perf_counter()):
        last = time.perf_counter()
    return last


def measured(name: str, count: int) -> tuple[list[float], float]:
    """Return the seconds of each key, in order, and the processor's seconds for one."""
    words, before, timed, _ = CASES[name]
    text, found = " ".join(islice(cycle(WORDS), words)), []
    with Stage("live", text, columns=120, rows=40, env={"COLORTERM": "truecolor"}) as screen:
        all_read(screen, 20.0, 1.5)
        for key in before:
            screen.press(key)
            all_read(screen, 3.0, 0.5)
        used = worked(screen.run.pid)
        for key in islice(cycle(re.findall("\x1b\\[.|.", timed)), count):
            began = time.perf_counter()
            screen.press(key)
            last = all_read(screen, 1.0, QUIET)
            found += [] if last is None else [last - began]
        return sorted(found), (worked(screen.run.pid) - used) / count
