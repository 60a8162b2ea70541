"""attn bench: this machine's speed beside textbook NumPy and, where it is installed, PyTorch."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from attn_cli.bench.cases import GROUPS, ONE_BLAS_THREAD, RICH, chosen
from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import OF_FIGURES, own, without
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.io.files import creatable
from attn_cli.io.pager import unused
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result
from attn_cli.settings.declare import MEASURED
from attn_cli.settings.output import View

PAIRS, MOST_PAIRS, MOST_THREADS = 7, 1000, 64
MOST_TOKENS = 8192  # beyond, the textbook's matrices take gigabytes


@without("tidy", "steps", "fields", "precision", "palette", "shades", *OF_FIGURES)
def bench(
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Everything, 100,000 tokens too: a quarter of an hour.",
            rich_help_panel=MEASURED,
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        own(
            "PART",
            f"One part, all of it: {', '.join(GROUPS)}; may be given again.",
            group=MEASURED,
            values=GROUPS,
        ),
    ] = None,
    pairs: Annotated[int, own("N", "Pairs of calls for each ratio, at least.", group=MEASURED)] = PAIRS,
    threads: Annotated[int, own("N", "Threads for attn and for PyTorch.", group=MEASURED)] = 1,
    tokens: Annotated[
        int | None, own("N", "Measure at N tokens, up to 8,192, instead.", group=MEASURED)
    ] = None,
    *,
    view: View,
) -> None:
    """The speed of this machine beside textbook NumPy and, where it is installed, PyTorch.

    Both sides take turns, on the same numbers, and their answers are compared before they are timed. Takes a minute
    or two. The table says which ratios are to be reached; nothing depends on whether they are.

    Example: attn bench --only weights
    """
    view = choose(view, OF_BLOCKS, "bench")
    _check(only or [], pairs, threads, tokens, view)
    os.environ.update(ONE_BLAS_THREAD)  # before NumPy is loaded: two of its threads would wait for each other
    from attn_cli.bench.machine import machine, pytorch
    from attn_cli.bench.run import measure, until_interrupted
    from attn_cli.bench.sides import RACES
    from attn_cli.io.signals import raised
    from attn_cli.render.screen.beside_rich_table import drawing
    from attn_cli.render.views import benchmark

    has_torch = pytorch() is not None
    cases = chosen(has_torch, only or [], everything, tokens, threads)
    with Progress("Measuring") as progress, raised():
        races = {**RACES, RICH: drawing}
        rows, is_whole = until_interrupted(measure(cases, pairs, threads, progress, races))
    asides = []
    if not is_whole:
        asides.append("Interrupted: the other rows are missing.")
    if not has_torch:
        asides.append("With PyTorch installed (pip install torch), attn is measured beside it too.")
    if len(cases) < len(chosen(has_torch, everything=True)) and not only and tokens is None:
        asides.append("attn bench --all measures the rest: 100,000 tokens, in a quarter of an hour.")
    result = Result(
        "bench",
        blocks=lambda view: benchmark.bench(machine(), rows, threads, asides),
        record=lambda view: benchmark.record(machine(), rows, threads, is_whole),
    )
    with unused():
        deliver(result, view)
    if not is_whole:
        raise KeyboardInterrupt


def _check(only: list[str], pairs: int, threads: int, tokens: int | None, view: View) -> None:
    """Refuse what cannot be measured or written, before anything is measured."""
    for option, value, most in (
        ("--pairs", pairs, MOST_PAIRS),
        ("--threads", threads, MOST_THREADS),
        ("--tokens", 1 if tokens is None else tokens, MOST_TOKENS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{option} cannot be {value}.", f"Give 1 to {most:,}.", option)
    for group in only:
        if group not in GROUPS:
            raise UsageError(
                f"There is no part {visible(group[:60])!r}.",
                f"{did_you_mean(group, GROUPS)}Parts are {', '.join(GROUPS)}.",
                "--only",
            )
    if not view.to_standard_output:
        creatable(str(view.output))
