"""The cases as data: what is measured, against whom, how large, and the ratio to reach.

A ratio is attn's seconds over the other's (or bytes over bytes), both on one thread unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

EXPLICIT, FUSED, TEXTBOOK, FLOOR = "torch-explicit", "torch-sdpa", "numpy-textbook", "floor"
OUTPUT_ONLY, RETURNED, LINEAR, RICH = "output-only", "weights-returned", "linear", "rich-table"
ONE_THREAD, BESIDE = "one-thread", "one-thread-beside-a-neighbour"
GROUPS = ("weights", "causal", "output", "small", "links", "memory", "threads", "drawing")
TOP = 5  # links of each row
# The memory that the output alone may take above Q, K and V: bytes for each token, and a fixed part.
BYTES_A_TOKEN, FIXED_BYTES = 1024, 16 << 20
LONG = 100_000
# One thread for every BLAS, also in a child process; to be set before NumPy is loaded.
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ONE_BLAS_THREAD = dict.fromkeys(BLAS, "1")


class Case(NamedTuple):
    """One thing to measure: what attn does (the job), against whom, how large, and the ratio to reach.

    Q, K and V are (heads, tokens, dim). The group is the part of the table that the case belongs to.
    """

    group: str
    job: str
    against: str
    to_reach: float | None
    tokens: int
    heads: int = 1
    dim: int = 64
    causal: bool = False
    when: str = "always"  # or "without-torch", or "all"

    def to_dict(self) -> dict[str, object]:
        """Return the case as it stands in the JSON."""
        return {name: value for name, value in self._asdict().items() if name not in ("to_reach", "when")}


def _rows(
    group: str, tokens: int, heads: int, limits: Mapping[str, float | None], **more: object
) -> Iterator[Case]:
    job = "output" if group == "output" else "weights"
    for against, to_reach in limits.items():
        yield Case(group, job, against, to_reach, tokens, heads, **more)  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    *_rows("weights", 512, 8, {EXPLICIT: 0.45, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", 2048, 1, {EXPLICIT: 0.5, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", 2048, 8, {EXPLICIT: 0.45, TEXTBOOK: None, FLOOR: None}),
    *_rows("weights", 8192, 1, {EXPLICIT: 0.8, FLOOR: None}),
    *_rows("weights", 8192, 1, {TEXTBOOK: None}, when="all"),
    *_rows("causal", 2048, 1, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("causal", 2048, 1, {TEXTBOOK: None}, causal=True, when="without-torch"),
    *_rows("causal", 2048, 8, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("causal", 2048, 8, {TEXTBOOK: None}, causal=True, when="without-torch"),
    *_rows("causal", 8192, 1, {EXPLICIT: 0.6, FLOOR: None}, causal=True),
    *_rows("output", 512, 8, {FUSED: 1.0, FLOOR: None}),
    *_rows("output", 2048, 1, {FUSED: 1.0, FLOOR: None}),
    *_rows("output", 2048, 1, {TEXTBOOK: None}, when="without-torch"),
    *_rows("output", 2048, 8, {FUSED: 1.0, FLOOR: None}),
    *_rows("output", 2048, 8, {TEXTBOOK: None}, when="without-torch"),
    *_rows("output", 8192, 1, {FUSED: 0.95, FLOOR: None}),
    *_rows("output", 512, 8, {FUSED: None}, causal=True),
    *_rows("output", 2048, 1, {FUSED: None}, causal=True),
    *_rows("output", 2048, 8, {FUSED: None}, causal=True),
    *_rows("output", 8192, 1, {FUSED: None}, causal=True),
    Case("small", "weights", EXPLICIT, 0.7, 8, 1, 50),
    Case("small", "weights", TEXTBOOK, None, 8, 1, 50),
    Case("small", "output", FUSED, 1.1, 8, 1, 50),
    Case("links", "links", OUTPUT_ONLY, None, 8192),
    Case("links", "links", OUTPUT_ONLY, 1.6, LONG, when="all"),
    Case("memory", "weights", RETURNED, 1.05, 2048, 8),
    Case("memory", "weights", RETURNED, 1.05, 8192),
    Case("memory", "output", LINEAR, 1.0, 8192),
    Case("memory", "output", LINEAR, 1.0, LONG, when="all"),
    Case("threads", "output", ONE_THREAD, 1 / 1.8, 2048, 8),
    Case("threads", "output", BESIDE, 1.1, 2048, 8),
    Case("threads", "weights", ONE_THREAD, 1 / 1.8, 2048, 8),
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
    whens = ("always",) if has_torch else ("always", "without-torch")
    every = everything or bool(groups) or tokens is not None
    cases = [one for one in CASES if (not groups or one.group in groups) and (every or one.when in whens)]
    if tokens is not None:
        other = {"tokens": tokens, "to_reach": None, "when": "always"}
        cases = [one if one.group == "drawing" else one._replace(**other) for one in cases]
    if threads != 1:  # the floor is measured with one thread on both sides
        cases = [one._replace(to_reach=None) for one in cases if one.against != FLOOR]
    return list(dict.fromkeys(cases))
