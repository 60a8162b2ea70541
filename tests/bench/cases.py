"""The cases as data: what is measured, against whom, how large, and the ratio to reach.

A ratio is attn's seconds over the other's (or bytes over bytes), both on one thread unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.bench.records import Case, When

EXPLICIT, FUSED, TEXTBOOK, FLOOR = "torch-explicit", "torch-sdpa", "numpy-textbook", "floor"
OUTPUT_ONLY, RETURNED, LINEAR, RICH = "output-only", "weights-returned", "linear", "rich-table"
ONE_THREAD, BESIDE = "one-thread", "one-thread-beside-a-neighbour"
GROUPS = ("weights", "causal", "output", "small", "links", "memory", "threads", "drawing")
TOP = 5  # links of each row
# The memory that the output alone may take above Q, K and V: bytes for each token, and a fixed part.
BYTES_A_TOKEN, FIXED_BYTES = 1024, 16 << 20
LONG = 100_000
# One thread for every BLAS, also in a child process; to be set before NumPy is loaded.
ONE_BLAS_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
Limits = Mapping[str, float | None]  # the ratio to reach against each opponent
ONLY_TEXTBOOK: Limits = {TEXTBOOK: None}


def _rows(
    group: str, job: str, tokens: int, heads: int, limits: Limits, causal: bool = False, when: When = "always"
) -> Iterator[Case]:
    for against, to_reach in limits.items():
        yield Case(group, job, against, to_reach, tokens, heads, causal=causal, when=when)


CASES: tuple[Case, ...] = (
    *_rows("weights", "weights", 512, 8, {EXPLICIT: 0.8, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", "weights", 2048, 1, {EXPLICIT: 0.7, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", "weights", 2048, 8, {EXPLICIT: 0.6, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", "weights", 8192, 1, {EXPLICIT: 0.8, FLOOR: None}),
    *_rows("weights", "weights", 8192, 1, ONLY_TEXTBOOK, False, "all"),
    *_rows("causal", "weights", 2048, 1, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("causal", "weights", 2048, 1, ONLY_TEXTBOOK, True, "without-torch"),
    *_rows("causal", "weights", 2048, 8, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("causal", "weights", 2048, 8, ONLY_TEXTBOOK, True, "without-torch"),
    *_rows("causal", "weights", 8192, 1, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("output", "output", 512, 8, {FUSED: 1.45, FLOOR: None}),
    *_rows("output", "output", 2048, 1, {FUSED: 1.25, FLOOR: None}),
    *_rows("output", "output", 2048, 1, ONLY_TEXTBOOK, False, "without-torch"),
    *_rows("output", "output", 2048, 8, {FUSED: 1.25, FLOOR: None}),
    *_rows("output", "output", 2048, 8, ONLY_TEXTBOOK, False, "without-torch"),
    *_rows("output", "output", 8192, 1, {FUSED: 1.25, FLOOR: None}),
    *_rows("output", "output", 512, 8, {FUSED: None}, causal=True),
    *_rows("output", "output", 2048, 1, {FUSED: None}, causal=True),
    *_rows("output", "output", 2048, 8, {FUSED: None}, causal=True),
    *_rows("output", "output", 8192, 1, {FUSED: None}, causal=True),
    Case("small", "weights", EXPLICIT, 0.7, 8, 1, 50),
    Case("small", "weights", TEXTBOOK, None, 8, 1, 50),
    Case("small", "output", FUSED, 1.1, 8, 1, 50),
    Case("links", "links", OUTPUT_ONLY, None, 8192),
    Case("links", "links", OUTPUT_ONLY, 1.6, LONG, when="all"),
    Case("memory", "weights", RETURNED, 1.05, 2048, 8),
    Case("memory", "weights", RETURNED, 1.05, 8192),
    Case("memory", "output", LINEAR, 1.0, 8192),
    Case("memory", "output", LINEAR, 1.0, LONG, when="all"),
    Case("threads", "output", ONE_THREAD, 1 / 1.75, 2048, 8),
    Case("threads", "output", BESIDE, 1.1, 2048, 8),
    Case("threads", "weights", ONE_THREAD, None, 2048, 8),
    Case("threads", "weights", BESIDE, 1.1, 2048, 8),
    Case("drawing", "drawing", RICH, 1 / 40, 100, 1, 0),
)


def chosen(
    has_torch: bool,
    groups: Sequence[str] = (),
    everything: bool = False,
    tokens: int | None = None,
    threads: int = 1,
) -> list[Case]:
    """Return the cases of a run: those that take about a minute, or all, or all of some groups.

    With `tokens` every case but a drawing has that size. The ratios to reach hold only for the sizes above and
    one thread.
    """
    whens = {"always", *(() if has_torch else ("without-torch",))}
    every = everything or bool(groups) or tokens is not None
    cases: Iterable[Case] = (
        case for case in CASES if (not groups or case.group in groups) and (every or case.when in whens)
    )
    if tokens is not None:
        cases = (
            case if case.group == "drawing" else case._replace(tokens=tokens, to_reach=None, when="always")
            for case in cases
        )
    if threads != 1:
        # The floor is measured with one thread on both sides, and does not belong in this table.
        cases = (case._replace(to_reach=None) for case in cases if case.against != FLOOR)
    return list(dict.fromkeys(cases))
