"""The speed of this machine: `python -m tests.bench [table] [PART...]`; docs/bench.md says what it shows.

`table` is every figure that speed is judged by, in ten minutes. `startup` is whole processes, `attention` every part:
attn beside textbook NumPy and, where it is installed, PyTorch. --all measures long texts too; --threads and --tokens
measure with others; --json FILE keeps every figure.
"""

import argparse
import json
import os
from pathlib import Path

from attn_cli.io.progress import Progress
from attn_cli.io.terminal import Terminal
from attn_cli.settings.output import View
from tests.bench import startup, table
from tests.bench.cases import GROUPS, ONE_BLAS_THREAD, RICH, chosen

PARTS = ("startup", "attention", *GROUPS)


def main() -> None:
    """Measure what was asked for, and print it; nothing depends on what comes out."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"table, {', '.join(PARTS)}")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    parts = asked.parts or ["startup", "attention"]
    if unknown := set(parts) - {"table", *PARTS}:
        parser.error(f"no such part: {', '.join(unknown)}; parts are table, {', '.join(PARTS)}")
    os.environ.update(ONE_BLAS_THREAD)  # before NumPy is loaded: two of its threads would wait for each other
    if "table" in parts:
        for line in table.lines():
            print(line, flush=True)
    if "startup" in parts:
        show(startup.blocks(2 * asked.pairs + 1))
    groups = [part for part in parts if part in GROUPS]
    if groups or "attention" in parts:
        attention(groups, asked)


def show(blocks) -> None:
    """Print a screen."""
    from attn_cli.render.screen.draw import draw

    terminal = Terminal(width=100)
    print(terminal.paint(draw(blocks, View(), terminal)), flush=True)


def attention(groups: list[str], asked: argparse.Namespace) -> None:
    """Print what attn takes beside others, also after an interrupt."""
    from tests.bench.beside_rich_table import drawing
    from tests.bench.machine import machine
    from tests.bench.screen import bench, record
    from tests.bench.sides import RACES
    from tests.bench.timing import measure, until_interrupted

    here = machine()
    cases = chosen(here.torch is not None, groups, asked.all, asked.tokens, asked.threads)
    with Progress("Measuring") as progress:
        measured = measure(cases, asked.pairs, asked.threads, {**RACES, RICH: drawing}, progress)
        rows, is_whole = until_interrupted(measured)
    asides = [] if is_whole else ["Interrupted: the other rows are missing."]
    if here.torch is None:
        asides.append("With PyTorch installed (pip install torch), attn is measured beside it too.")
    show(bench(here, rows, asked.threads, asides))
    if asked.json is not None:
        asked.json.write_text(
            json.dumps(record(here, rows, asked.threads, is_whole), indent=1), encoding="utf-8"
        )


main()
