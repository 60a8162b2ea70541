"""Mutation fuzzing of every reader: `python -m tests.fuzz [--cases N] [--seed S] [--reader NAME] [--save FOLDER]`.

Readers of GGUF files are run where they are asked for: `--reader gguf`.
"""

import sys
import time
from pathlib import Path

import typer

from tests.fuzz.campaign import ALL, NAMES, Outcome, apart

COLUMNS = "{:<22}{:>9}{:>8}{:>9}{:>10}{:>9}{:>9}"


def main(cases: int = 1_050_000, seed: int = 1, reader: str = "", save: Path | None = None) -> None:
    """Run so many cases over all readers, or those whose name begins so; save what crashes, with its traceback."""
    names = [name for name in ALL if name.startswith(reader)] if reader else NAMES
    if not names:
        print(f"There is no reader {reader!r}. Choose one of: {', '.join(ALL)}.", file=sys.stderr)
        sys.exit(2)
    began, outcomes = time.perf_counter(), []
    print(COLUMNS.format("reader", "cases", "opened", "crashes", "worst ms", "grew MB", "us/case"))
    for name in names:
        outcomes.append(apart(name, -(-cases // len(names)), seed, save))
        print(_row(outcomes[-1]), flush=True)
    done, crashed = sum(one.cases for one in outcomes), sum(one.crashed for one in outcomes)
    print(f"{done:,} cases in {time.perf_counter() - began:.0f} s, {crashed:,} crashes; seed {seed}")
    for outcome in outcomes:
        if outcome.died:
            print(f"\n{outcome.reader}: the process died")
        for place, (count, first) in sorted(outcome.crashes.items()):
            print(f"\n{outcome.reader}, {count:,} times: {place}\n{first}")
    sys.exit(bool(crashed))


def _row(outcome: Outcome) -> str:
    cases = max(1, outcome.cases)
    counts = f"{outcome.cases:,}", f"{outcome.opened / cases:.0%}", f"{outcome.crashed:,}"
    growth, each = f"{outcome.growth / 1e6:.1f}", f"{1e6 * outcome.seconds / cases:.0f}"
    return COLUMNS.format(outcome.reader, *counts, f"{1e3 * outcome.slowest:.1f}", growth, each)


if __name__ == "__main__":
    typer.run(main)
