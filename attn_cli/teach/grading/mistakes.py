"""The nine usual mistakes, in the order in which they are told: each yields the ways to make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from attn_cli.teach.grading.replay import Plan, Problem, allowed, empty_lines, other_corner


def no_scaling(problem: Problem) -> Iterator[Plan]:
    """The scores are not divided, or the undivided ones are used."""
    if problem.root not in (None, 1):
        yield Plan(scaling="none")
        yield Plan(scaling="unused")


def scaled_by_d(problem: Problem) -> Iterator[Plan]:
    """The scores are divided by d_k, not by its square root."""
    if problem.root not in (None, 1):
        yield Plan(scaling="d")
        yield Plan(scaling="unused-d")


def softmax_axis(problem: Problem) -> Iterator[Plan]:
    """The softmax goes over the queries, over the whole matrix, over the heads, or over all at once."""
    for axis in ("queries", "whole", "heads", "everything") if problem.heads > 1 else ("queries", "whole"):
        yield Plan(axis=axis)


def transposed_w(problem: Problem) -> Iterator[Plan]:
    """One or more of the W are transposed, where their shape allows it."""
    heads = problem.heads
    square = [name for name, W in problem.W.items() if W.shape[0] == W.shape[1]]
    apart = [name for name, W in problem.W.items() if heads > 1 and W.shape[0] * heads == W.shape[1]]
    for names, each_head in ((square, False), (apart, True)):
        for count in range(1, len(names) + 1):
            for chosen in combinations(names, count):
                yield Plan(transposed=frozenset(chosen), each_head=each_head)


def mask_inverted(problem: Problem) -> Iterator[Plan]:
    """What should be masked may be seen, and the other way round."""
    if problem.mask is not None:
        yield Plan(mask="inverted")
        n_q, n_k = problem.mask.shape
        if n_q == n_k > 1 and np.array_equal(problem.mask, np.tri(n_q, dtype=np.bool_)):
            yield Plan(mask="upper")  # np.triu: the diagonal is on both sides


def causal_corner(problem: Problem) -> Iterator[Plan]:
    """A causal mask starts from the other corner, which differs where there are more keys than queries, or fewer."""
    if other_corner(problem.mask) is not None:
        yield Plan(mask="corner")


def k_v_swapped(problem: Problem) -> Iterator[Plan]:
    """Keys are taken for values and values for keys, or are given under each other's name."""
    if "k" not in problem.right or "v" not in problem.right:
        return
    if problem.right["k"].shape == problem.right["v"].shape:
        yield Plan(swapped="used")
        yield Plan(swapped="in-scores")
        yield Plan(swapped="made")
        if problem.b:
            yield Plan(swapped="weights")
    yield Plan(swapped="in-output")
    yield Plan(swapped="named")


def mask_after_softmax(problem: Problem) -> Iterator[Plan]:
    """The softmax goes over all keys; the masked ones are set to zero afterwards."""
    if problem.mask is not None:
        yield Plan(mask="after")


def heads_not_averaged(problem: Problem) -> Iterator[Plan]:
    """The heads are given one by one, or side by side, or one of them, or their sum, in place of their mean."""
    if problem.averaged:
        yield Plan(apart=True)


MISTAKES: dict[str, Callable[[Problem], Iterator[Plan]]] = {
    "no-scaling": no_scaling,
    "scaled-by-d": scaled_by_d,
    "softmax-axis": softmax_axis,
    "transposed-w": transposed_w,
    "mask-inverted": mask_inverted,
    "causal-corner": causal_corner,
    "k-v-swapped": k_v_swapped,
    "mask-after-softmax": mask_after_softmax,
    "heads-not-averaged": heads_not_averaged,
}


def plans(problem: Problem, code: str) -> Iterator[Plan]:
    """Yield the ways to make one mistake; each also with what programs make of a softmax over nothing."""
    for plan in MISTAKES[code](problem):
        yield plan
        if _has_empty(problem, plan):
            for empty in ("uniform", "unmasked", "nan"):
                yield plan._replace(empty=empty)


def _has_empty(problem: Problem, plan: Plan) -> bool:
    """Tell whether the softmax meets a line in which everything is masked."""
    may = allowed(problem, plan)
    return may is not None and bool(empty_lines(may, plan.axis).any())
