"""Every benchmark in one table: `python -m tests.bench [startup] [attention] [PART...] [--all] [--pairs N]`.

A part is one of `attn bench --only`; `attention` is all of them. With --all long texts are measured too.
"""

import argparse
import os

from attn_cli.bench.cases import GROUPS, ONE_BLAS_THREAD, RICH, chosen
from attn_cli.io.terminal import Terminal
from attn_cli.settings.output import View
from tests.bench import startup


def main() -> None:
    """Measure what was asked for, and print it; nothing depends on what comes out."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--pairs", type=int, default=7)
    asked = parser.parse_args()
    parts = asked.parts or ["startup", "attention"]
    if unknown := set(parts) - {"startup", "attention", *GROUPS}:
        parser.error(f"no such part: {', '.join(unknown)}; parts are startup, attention, {', '.join(GROUPS)}")
    os.environ.update(ONE_BLAS_THREAD)
    from attn_cli.render.screen.draw import draw

    terminal = Terminal(width=100)
    if "startup" in parts:
        print(terminal.paint(draw(startup.blocks(2 * asked.pairs + 1), View(), terminal)), flush=True)
    groups = [part for part in parts if part in GROUPS]
    if groups or "attention" in parts:
        print(terminal.paint(draw(_attention(groups, asked.all, asked.pairs), View(), terminal)), flush=True)


def _attention(groups, everything, pairs):
    """Return the screen that attn bench shows."""
    from attn_cli.bench.machine import machine
    from attn_cli.bench.run import measure
    from attn_cli.bench.sides import RACES
    from attn_cli.render.screen.beside_rich_table import drawing
    from attn_cli.render.views.benchmark import bench

    here = machine()
    cases = chosen(here.torch is not None, groups, everything)
    return bench(here, list(measure(cases, pairs, races={**RACES, RICH: drawing})))


main()
