"""The nine usual mistakes, and the procedures that make each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from attn_cli.teach.grading.replay import Problem, Procedure, empty_softmaxes, other_corner, softmax_mask


def mistakes(problem: Problem) -> dict[str, list[Procedure]]:
    """Return the procedures that make each mistake in this problem, if any, in the order in which they are listed."""
    mask = problem.mask
    is_divided = problem.sqrt_d_k not in (None, 1)
    is_causal = mask is not None and len(mask) > 1 and np.array_equal(mask, np.tri(len(mask), dtype=np.bool_))
    over_heads = ("heads", "everything") if problem.heads > 1 else ()
    found: dict[str, Iterable[Procedure]] = {
        "no-scaling": (Procedure(scaling=way) for way in ("none", "unused") if is_divided),
        "scaled-by-d": (Procedure(scaling=way) for way in ("d", "unused-d") if is_divided),
        "softmax-axis": (Procedure(softmax_over=axis) for axis in ("queries", "whole", *over_heads)),
        "transposed-w": _transposed(problem),
        # np.triu, "upper", has the diagonal on both sides.
        "mask-inverted": (
            Procedure(mask=way) for way in ("inverted", *["upper"] * is_causal) if mask is not None
        ),
        "causal-corner": [Procedure(mask="corner")] * (other_corner(mask) is not None),
        "k-v-swapped": (Procedure(swapped=way) for way in _swaps(problem)),
        "mask-after-softmax": [Procedure(mask="after")] * (mask is not None),
        "heads-not-averaged": [Procedure(heads_apart=True)] * problem.wants_mean,
    }
    return {code: [way for one in ways for way in _each_empty(problem, one)] for code, ways in found.items()}


def _transposed(problem: Problem) -> Iterator[Procedure]:
    """Yield the ways to transpose one or more of the W, where their shape allows it."""
    heads = problem.heads
    square = [name for name, W in problem.W.items() if W.shape[0] == W.shape[1]]
    square_heads = [name for name, W in problem.W.items() if heads > 1 and W.shape[0] * heads == W.shape[1]]
    for names, by_head in ((square, False), (square_heads, True)):
        for count in range(1, len(names) + 1):
            for chosen in combinations(names, count):
                yield Procedure(transposed=frozenset(chosen), by_head=by_head)


def _swaps(problem: Problem) -> tuple[str, ...]:
    """Return the ways to use keys as values and values as keys, or to give each under the other's name."""
    k, v = problem.steps.get("k"), problem.steps.get("v")
    if k is None or v is None:
        return ()
    alike = ("used", "in-scores", "made", *["weights"] * bool(problem.b)) if k.shape == v.shape else ()
    return (*alike, "in-output", "named")


def _each_empty(problem: Problem, procedure: Procedure) -> Iterator[Procedure]:
    """Yield the procedure with each result that a softmax over nothing may give, where it goes over nothing."""
    yield procedure
    allowed = softmax_mask(problem, procedure)
    if allowed is not None and empty_softmaxes(allowed, procedure.softmax_over).any():
        for empty in ("uniform", "unmasked", "nan"):
            yield procedure._replace(empty=empty)
