"""How long attn live takes from a key to the new screen: `python -m tests.live.latency [--keys N]`.

It runs on a terminal of its own, as people run it. The time is that from the byte of a key to the last byte of the
screen that answers it: the slowest of all ways to measure it. Beside it stand the processor time that attn takes for a
key, in all its threads, and the machine's load: on a busy machine the wall says more about the others.
"""

import argparse
import os
import re
import sys
import time
from itertools import cycle, islice

from tests.stage import Stage

QUIET = 0.06  # seconds without a byte after which a screen is whole: more than two frames of Textual's own 60 a second
TEXT = (
    "The quick brown fox jumped over the lazy dog and then it ran into the deep dark forest where a small grey "
    "cat sat on an old mat near the house"
)
WORDS = TEXT.split()
CASES = {  # name: words, keys before, the keys that are timed, milliseconds allowed at the 95th percentile
    "30 words": (30, "", "m+s-hx\x1b[B\x1b[C", 50),
    "30 words, typing": (30, "t", "abc \x7f", 50),
    "100 words, all heads": (100, "H", "m+s-", 200),
    "9 words": (9, "", "m+s-hxdv\x1b[B\x1b[C", 50),
    "9 words, typing": (9, "t", "abc \x7f", 50),
}


class Timed(Stage):
    """attn live on a terminal, with a watch."""

    def all_read(self, limit: float, quiet: float) -> float | None:
        """Read until nothing comes for a while; return when the last byte came, None if none did."""
        last, end = None, time.perf_counter() + limit
        while time.perf_counter() < end and self.read(quiet if last else end - time.perf_counter()):
            last = time.perf_counter()
        return last

    def timed(self, key: str) -> float | None:
        began = time.perf_counter()
        self.press(key)
        last = self.all_read(1.0, QUIET)
        return None if last is None else 1000 * (last - began)

    def processor(self) -> float:
        with open(f"/proc/{self.run.pid}/stat", encoding="utf-8") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        return 1000 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measured(name: str, count: int) -> tuple[list[float], float]:
    words, before, keys, _ = CASES[name]
    keys_before, timed = (re.findall("\x1b\\[.|.", text) for text in (before, keys))
    text = " ".join(islice(cycle(WORDS), words))
    with Timed("live", text, columns=120, rows=40, env={"COLORTERM": "truecolor"}) as screen:
        screen.all_read(20.0, 1.5)
        for key in keys_before:
            screen.timed(key)
            screen.all_read(2.0, 0.5)
        before_all = screen.processor()
        times = [screen.timed(key) for key in islice(cycle(timed), count)]
        taken = screen.processor() - before_all
    return sorted(time for time in times if time is not None), taken / count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.latency", description=__doc__)
    parser.add_argument("--keys", type=int, default=500)
    asked = parser.parse_args()
    slow = 0
    print(f"{'':<24}{'median':>9}{'95 %':>9}{'worst':>9}{'allowed':>9}{'CPU':>9}{'load':>9}  milliseconds")
    for name, (_, _, _, allowed) in CASES.items():
        times, taken = measured(name, asked.keys)
        at = times[int(len(times) * 0.95)]
        slow += at > allowed
        numbers = (times[len(times) // 2], at, times[-1], allowed, taken, os.getloadavg()[0])
        print(
            f"{name:<24}{''.join(f'{n:>9.1f}' for n in numbers)}{'  SLOW' if at > allowed else ''}",
            flush=True,
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
