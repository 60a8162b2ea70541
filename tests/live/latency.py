"""How long attn live takes from a key to the new screen: `python -m tests.live.latency [--keys N]`.

It runs on a terminal of its own, as people run it. The time is that from the byte of a key to the last byte of the
screen that answers it, when the view says what is expected: the slowest of all ways to measure it. Beside it stand
the processor time that attn takes for a key, in all its threads, the machine's load, and the share of time that its
host took away (a virtual machine's "steal"): on a busy machine the wall says more about the others.
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


def stolen() -> tuple[int, int]:
    with open("/proc/stat", encoding="utf-8") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return steal, user + nice + system + irq + softirq + steal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.latency", description=__doc__)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    slow = 0
    heads = f"{'':<24}{'keys':>6}{'median':>9}{'95 %':>9}{'worst':>9}{'allowed':>9}{'CPU':>9}"
    print(f"{heads}{'load':>7}{'stolen':>9}  milliseconds")
    for name, (_, _, _, allowed) in CASES.items():
        if asked.only not in name:
            continue
        before, worked = stolen()
        times, taken = measured(name, asked.keys)
        after, work = stolen()
        at = times[int(len(times) * 0.95)]
        slow += at > allowed
        numbers = f"{len(times):>6}{times[len(times) // 2]:>9.1f}{at:>9.1f}{times[-1]:>9.1f}{allowed:>9}"
        numbers += f"{taken:>9.1f}{os.getloadavg()[0]:>7.2f}{(after - before) / max(work - worked, 1):>9.0%}"
        print(f"{name:<24}{numbers}{'  SLOW' if at > allowed else ''}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
