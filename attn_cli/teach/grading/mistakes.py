"""The nine usual mistakes, in the order in which they are listed: each yields the procedures that make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from attn_cli.teach.grading.replay import Problem, Procedure, empty_softmaxes, other_corner, softmax_mask


def no_scaling(problem: Problem) -> Iterator[Procedure]:
    """The scores are not divided, or the undivided ones are used."""
    if problem.sqrt_d_k not in (None, 1):
        yield Procedure(scaling="none")
        yield Procedure(scaling="unused")


def scaled_by_d(problem: Problem) -> Iterator[Procedure]:
    """The scores are divided by d_k, not by its square root."""
    if problem.sqrt_d_k not in (None, 1):
        yield Procedure(scaling="d")
        yield Procedure(scaling="unused-d")


def softmax_axis(problem: Problem) -> Iterator[Procedure]:
    """The softmax goes over the queries, over the whole matrix, over the heads, or over all at once."""
    for axis in ("queries", "whole", "heads", "everything") if problem.heads > 1 else ("queries", "whole"):
        yield Procedure(softmax_over=axis)


def transposed_w(problem: Problem) -> Iterator[Procedure]:
    """One or more of the W are transposed, where their shape allows it."""
    heads = problem.heads
    square = [name for name, W in problem.W.items() if W.shape[0] == W.shape[1]]
    square_heads = [name for name, W in problem.W.items() if heads > 1 and W.shape[0] * heads == W.shape[1]]
    for names, by_head in ((square, False), (square_heads, True)):
        for count in range(1, len(names) + 1):
            for chosen in combinations(names, count):
                yield Procedure(transposed=frozenset(chosen), by_head=by_head)


def mask_inverted(problem: Problem) -> Iterator[Procedure]:
    """What should be masked is allowed, and the other way round."""
    if problem.mask is not None:
        yield Procedure(mask="inverted")
        n_q, n_k = problem.mask.shape
        if n_q == n_k > 1 and np.array_equal(problem.mask, np.tri(n_q, dtype=np.bool_)):
            yield Procedure(mask="upper")  # np.triu: the diagonal is on both sides


def causal_corner(problem: Problem) -> Iterator[Procedure]:
    """A causal mask starts from the other corner; this differs where keys and queries differ in number."""
    if other_corner(problem.mask) is not None:
        yield Procedure(mask="corner")


def k_v_swapped(problem: Problem) -> Iterator[Procedure]:
    """Keys are used as values and values as keys, or each is given under the other's name."""
    if "k" not in problem.steps or "v" not in problem.steps:
        return
    if problem.steps["k"].shape == problem.steps["v"].shape:
        yield Procedure(swapped="used")
        yield Procedure(swapped="in-scores")
        yield Procedure(swapped="made")
        if problem.b:
            yield Procedure(swapped="weights")
    yield Procedure(swapped="in-output")
    yield Procedure(swapped="named")


def mask_after_softmax(problem: Problem) -> Iterator[Procedure]:
    """The softmax goes over all keys; the masked ones are set to zero afterwards."""
    if problem.mask is not None:
        yield Procedure(mask="after")


def heads_not_averaged(problem: Problem) -> Iterator[Procedure]:
    """The heads are given one by one, side by side, one alone, or summed, in place of their mean."""
    if problem.wants_mean:
        yield Procedure(heads_apart=True)


MISTAKES: dict[str, Callable[[Problem], Iterator[Procedure]]] = {
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


def procedures(problem: Problem, code: str) -> Iterator[Procedure]:
    """Yield the ways to make one mistake, also with each result that a softmax over nothing may give."""
    for procedure in MISTAKES[code](problem):
        yield procedure
        allowed = softmax_mask(problem, procedure)
        if allowed is not None and empty_softmaxes(allowed, procedure.softmax_over).any():
            for empty in ("uniform", "unmasked", "nan"):
                yield procedure._replace(empty=empty)
