"""Mutation fuzzing of every reader: `python -m tests.fuzz [--cases N] [--seed S] [--reader NAME] [--save FOLDER]`.

Readers of GGUF files are run where they are asked for: `--reader gguf`.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import ALL, NAMES, Outcome, apart

COLUMNS = "{:<22}{:>9}{:>8}{:>9}{:>10}{:>9}{:>9}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_050_000, help="over all readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", help="what its name begins with: " + ", ".join(ALL))
    parser.add_argument("--save", type=Path, help="a folder for the files that crash, with their tracebacks")
    asked = parser.parse_args()
    names = [name for name in ALL if name.startswith(asked.reader)] if asked.reader else NAMES
    if not names:
        print(f"There is no reader {asked.reader!r}. Choose one of: {', '.join(ALL)}.", file=sys.stderr)
        return 2
    began = time.perf_counter()
    outcomes: list[Outcome] = []
    print(COLUMNS.format("reader", "cases", "opened", "crashes", "worst ms", "grew MB", "us/case"))
    for name in names:
        outcomes.append(apart(name, -(-asked.cases // len(names)), asked.seed, asked.save))
        print(_row(outcomes[-1]), flush=True)
    cases, crashed = sum(one.cases for one in outcomes), sum(one.crashed for one in outcomes)
    print(f"{cases:,} cases in {time.perf_counter() - began:.0f} s, {crashed:,} crashes; seed {asked.seed}")
    for outcome in outcomes:
        if outcome.died:
            print(f"\n{outcome.reader}: the process died")
        for place, (count, first) in sorted(outcome.crashes.items()):
            print(f"\n{outcome.reader}, {count:,} times: {place}\n{first}")
    return 1 if crashed else 0


def _row(outcome: Outcome) -> str:
    cases = max(1, outcome.cases)
    counts = f"{outcome.cases:,}", f"{outcome.opened / cases:.0%}", f"{outcome.crashed:,}"
    costs = (
        f"{1e3 * outcome.slowest:.1f}",
        f"{outcome.growth / 1e6:.1f}",
        f"{1e6 * outcome.seconds / cases:.0f}",
    )
    return COLUMNS.format(outcome.reader, *counts, *costs)


if __name__ == "__main__":
    sys.exit(main())
