"""What a benchmark measures, and what came of it, as records."""

from __future__ import annotations

from typing import Literal, NamedTuple

When = Literal["always", "without-torch", "all"]
Unit = Literal["seconds", "bytes"]


class Case(NamedTuple):
    """One thing to measure: what attn does, against whom, how large, and the ratio to reach.

    Q, K and V are (heads, tokens, dim). `job` is what attn does: weights and output, output alone, or the
    strongest links; the group is the part of the table where it stands.
    """

    group: str
    job: str
    against: str
    to_reach: float | None
    tokens: int
    heads: int = 1
    dim: int = 64
    causal: bool = False
    when: When = "always"


class Timing(NamedTuple):
    """Seconds of one call on each side (medians), and their ratio pair by pair: median and quartiles.

    `cpu_ratio` is the same median in processor time, which a busy neighbour disturbs less; None where the
    clock is too coarse.
    """

    ours: float
    theirs: float
    ratio: float
    quartiles: tuple[float, float]
    cpu_ratio: float | None
    pairs: int


class Measured(NamedTuple):
    """What came of a case: seconds or bytes on both sides, and their ratio; the smaller, the better for attn."""

    case: Case
    unit: Unit
    ours: float
    theirs: float
    ratio: float
    quartiles: tuple[float, float]
    cpu_ratio: float | None
    pairs: int

    @property
    def reached(self) -> bool | None:
        """Tell whether the ratio to reach was reached; None where there is none."""
        return None if self.case.to_reach is None else self.ratio <= self.case.to_reach

    def to_dict(self) -> dict[str, object]:
        """Return the row as it stands in the JSON."""
        return {
            **_of_case(self.case),
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "quartiles": list(self.quartiles),
            "cpu_ratio": self.cpu_ratio,
            "pairs": self.pairs,
            "to_reach": self.case.to_reach,
            "reached": self.reached,
        }


class Missing(NamedTuple):
    """A case that could not be measured here, and why."""

    case: Case
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return the row as it stands in the JSON."""
        return {**_of_case(self.case), "reason": self.reason}


def _of_case(case: Case) -> dict[str, object]:
    return {
        "group": case.group,
        "job": case.job,
        "against": case.against,
        "tokens": case.tokens,
        "heads": case.heads,
        "dim": case.dim,
        "causal": case.causal,
    }


class Machine(NamedTuple):
    """What the figures were measured on.

    `torch` is None where it is not installed, and `torch_large_pages` tells whether it asks for large pages of memory,
    as NumPy does.
    """

    processor: str | None
    processors: int
    system: str
    python: str
    numpy: str
    blas: str
    exponential: str
    torch: str | None
    torch_large_pages: bool
