"""The screen of the benchmark: the machine, a table for each kind of work, and which targets were reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from attn_cli.errors import count
from attn_cli.render.blocks import Block, Columns, Heading, Say
from tests.bench.cases import FLOOR, TOP, Case
from tests.bench.machine import Machine
from tests.bench.timing import Measured, Missing

TITLES = {
    "weights": "Weights and output",
    "causal": "Weights and output, causal",
    "output": "Output alone",
    "small": "A small call",
    "links": f"The {TOP} strongest links of each row",
    "memory": "Peak memory, beyond Q, K and V",
    "threads": "Two threads",
    "drawing": "A coloured table of weights",
}
# The name in the first column, at most twelve letters, and its meaning.
OPPONENTS = {
    "torch-explicit": ("PyTorch", "softmax(Q K^T / sqrt(d)) V written out, which gives the weights too"),
    "torch-sdpa": ("PyTorch SDPA", "scaled_dot_product_attention, which gives no weights"),
    "numpy-textbook": ("NumPy", "the formula as in a textbook"),
    "floor": ("floor", "the two matrix products and the exponential alone, in NumPy, in attn's tiles"),
    "output-only": ("output alone", "attn without the links"),
    "one-thread": ("one thread", "attn with one instead of two"),
    "one-thread-beside-a-neighbour": ("one, busy", "the same, beside a process that keeps a processor busy"),
    "weights-returned": ("the weights", "the bytes of the weights that are returned"),
    "linear": ("1 KiB/token", "1 KiB for each token, and 16 MiB"),
    "rich-table": ("rich.table", "rich.table.Table of Text cells, the same numbers and colours"),
}
UNITS = {
    "seconds": ((1e-6, "us"), (1e-3, "ms"), (1.0, "s")),
    "bytes": ((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")),
}
_JOBS = {"weights": "weights and output", "output": "output alone"}
HEADER = ("against", "tokens", "attn", "other", "ratio", "quartiles", "to reach")


def bench(
    machine: Machine, rows: Sequence[Measured | Missing], threads: int = 1, asides: Sequence[str] = ()
) -> Iterator[Block]:
    """Yield the screen of a benchmark run; `asides` are sentences for its end."""
    measured = [row for row in rows if isinstance(row, Measured)]
    yield Heading("Speed on this machine", 1)
    yield Say(_measured_on(machine))
    many = f"{threads} threads for attn and PyTorch, one for NumPy"
    sides = "One thread on each side" if threads == 1 else many
    yield Say(f"{sides}. ratio is attn's time over the other's, a median of pairs: below 1, attn is faster.")
    for title, part in groupby(measured, _title):
        yield Heading(title, 2)
        yield Columns(HEADER, [_cells(row) for row in part])
    yield Say("")
    yield from map(Say, _verdict(measured))
    missing = [row for row in rows if isinstance(row, Missing)]
    for reason, left in groupby(missing, lambda row: row.reason):
        yield Say(f"{reason} {count(len(list(left)), 'row is', 'rows are')} left out.")
    for against in dict.fromkeys(row.case.against for row in measured):
        name, meaning = OPPONENTS[against]
        yield Say(f"{name}: {meaning}.", quiet=True)
    yield from (Say(text, quiet=True) for text in asides)


def _measured_on(machine: Machine) -> str:
    named = f" ({machine.processor})" if machine.processor else ""
    pages = " with large pages" if machine.torch_large_pages else ""
    torch = f"PyTorch {machine.torch}{pages}" if machine.torch else "PyTorch is not installed"
    return (
        f"{count(machine.processors, 'processor', 'processors')}{named}, {machine.system}, Python {machine.python}, "
        f"NumPy {machine.numpy} with {machine.blas}. {torch}."
    )


def _title(row: Measured) -> str:
    case = row.case
    if case.group == "output":
        return TITLES["output"] + (", causal" if case.causal else "")
    if case.group == "small":
        return f"{TITLES['small']}, {count(case.tokens, 'token', 'tokens')} of {case.dim} numbers: {_JOBS[case.job]}"
    return TITLES[case.group] + (f": {_JOBS[case.job]}" if case.group in ("memory", "threads") else "")


def _cells(row: Measured) -> list[str]:
    case, (low, high) = row.case, row.quartiles
    spread = f"{low:.2f}-{high:.2f}" if high >= 0.1 else f"{low:.3f}-{high:.3f}"
    reached = "" if row.reached is None else " yes" if row.reached else " no"
    return [
        OPPONENTS[case.against][0],
        _size(case),
        _amount(row.ours, row.unit),
        _amount(row.theirs, row.unit),
        f"{row.ratio:.3f}",
        spread if row.pairs > 1 else "-",
        "-" if case.to_reach is None else f"{_limit(case.to_reach)}{reached}",
    ]


def _size(case: Case) -> str:
    return f"{case.tokens:,} x {case.heads}" if case.heads > 1 else f"{case.tokens:,}"


def _limit(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _amount(value: float, unit: str) -> str:
    """Return seconds or bytes with three significant digits, in a suitable unit."""
    factor, name = next((u for u in reversed(UNITS[unit]) if value >= u[0]), UNITS[unit][0])
    scaled = value / factor
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {name}"


def _verdict(measured: Sequence[Measured]) -> Iterator[str]:
    """Yield how many ratios were reached, and each missed one with its target and the floor."""
    judged = [row for row in measured if row.reached is not None]
    if not judged:
        return
    missed = [row for row in judged if not row.reached]
    yield f"Reached: {len(judged) - len(missed)} of {len(judged)}."
    floors = {_work(row.case): row for row in measured if row.case.against == FLOOR}
    for row in missed:
        at = "" if row.case.group == "small" else f" at {_size(row.case)}"
        wanted = f"{row.ratio:.3f}, and {_limit(row.case.to_reach or 0)} is wanted"
        floor = floors.get(_work(row.case))
        beside = f"; the floor would be {row.ratio / floor.ratio:.3f}" if floor else ""
        yield f"Not reached: {_title(row)}{at}, against {OPPONENTS[row.case.against][0]}: {wanted}{beside}."


def _work(case: Case) -> Case:
    return case._replace(against="", to_reach=None, when="always")


def record(
    machine: Machine, rows: Sequence[Measured | Missing], threads: int, is_whole: bool
) -> dict[str, object]:
    """Return the JSON of a run; `is_whole` is false if it was interrupted."""
    return {
        "schema": "attn/1",
        "kind": "bench",
        "machine": machine._asdict(),
        "threads": threads,
        "complete": is_whole,
        "rows": [row.to_dict() for row in rows if isinstance(row, Measured)],
        "not_measured": [
            row.case.to_dict() | {"reason": row.reason} for row in rows if isinstance(row, Missing)
        ],
    }
