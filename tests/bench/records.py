"""The records of a benchmark: its cases, its results, and the machine."""

from __future__ import annotations

from typing import Literal, NamedTuple

When = Literal["always", "without-torch", "all"]
Unit = Literal["seconds", "bytes"]


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
    when: When = "always"


class Measured(NamedTuple):
    """The result of a case: what a call takes on each side (medians), and their ratio, the smaller the better.

    The ratio is that of pairs: its median and quartiles. `cpu_ratio` is the same median in processor time, which a
    busy neighbour disturbs less; None where the clock is too coarse.
    """

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
        result = {name: value for name, value in self._asdict().items() if name != "case"}
        result |= {"quartiles": list(self.quartiles), "to_reach": self.case.to_reach, "reached": self.reached}
        return _case_dict(self.case) | result


class Missing(NamedTuple):
    """A case that could not be measured here, and why."""

    case: Case
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return the row as it stands in the JSON."""
        return _case_dict(self.case) | {"reason": self.reason}


def _case_dict(case: Case) -> dict[str, object]:
    return {name: value for name, value in case._asdict().items() if name not in ("to_reach", "when")}


class Machine(NamedTuple):
    """The machine that was measured on."""

    processor: str | None
    processors: int
    system: str
    python: str
    numpy: str
    blas: str
    torch: str | None  # None where it is not installed
    torch_large_pages: bool  # whether it asks for large pages of memory, as NumPy does
