"""Mutation fuzzing of every reader: `python -m tests.fuzz [--cases N] [--seed S] [--reader NAME] [--save FOLDER]`.

Readers of GGUF files are run where they are asked for: `--reader gguf`.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import ALL, NAMES, Outcome, apart

HEAD = f"{'reader':<22}{'cases':>9}{'opened':>8}{'crashes':>9}{'worst ms':>10}{'grew MB':>9}{'us/case':>9}"


def main() -> int:
    asked = _arguments()
    names = [name for name in ALL if name.startswith(asked.reader)] if asked.reader else NAMES
    if not names:
        print(f"There is no reader {asked.reader!r}. Choose one of: {', '.join(ALL)}.", file=sys.stderr)
        return 2
    began = time.perf_counter()
    outcomes: list[Outcome] = []
    print(HEAD)
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_050_000, help="over all readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", help="what its name begins with: " + ", ".join(ALL))
    parser.add_argument("--save", type=Path, help="a folder for the files that crash, with their tracebacks")
    return parser.parse_args()


def _row(outcome: Outcome) -> str:
    each = 1e6 * outcome.seconds / max(1, outcome.cases)
    return (
        f"{outcome.reader:<22}{outcome.cases:>9,}{outcome.opened / max(1, outcome.cases):>8.0%}"
        f"{outcome.crashed:>9,}{1e3 * outcome.slowest:>10.1f}{outcome.growth / 1e6:>9.1f}{each:>9.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
