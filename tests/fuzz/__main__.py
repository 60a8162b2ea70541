"""Mutation fuzzing of every reader: `python -m tests.fuzz [--cases N] [--seed S] [--reader NAME]`.

Readers of GGUF files are run where they are asked for: `--reader gguf`.
"""

import sys

import typer

from tests.fuzz.campaign import ALL, NAMES, apart


def main(cases: int = 1_050_000, seed: int = 1, reader: str = "") -> None:
    """Run so many cases over all readers, or those whose name begins so; a case is the same for the same seed."""
    names = [name for name in ALL if name.startswith(reader)] if reader else NAMES
    if not names:
        sys.exit(f"There is no reader {reader!r}. Choose one of: {', '.join(ALL)}.")
    crashed = 0
    for name in names:
        found = apart(name, -(-cases // len(names)), seed)
        crashed += found.crashed
        opened = f"{found.opened / found.cases:.0%} opened"
        print(f"{name:<22}{found.cases:>9,} cases, {opened:>11}, {found.crashed:,} crashes", flush=True)
        for place, (count, first) in sorted(found.crashes.items()):
            print(f"\n{count:,} times: {place}\n{first}")
    print(f"{crashed:,} crashes; seed {seed}")
    sys.exit(bool(crashed))


if __name__ == "__main__":
    typer.run(main)
