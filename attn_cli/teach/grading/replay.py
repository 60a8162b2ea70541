"""Every step of attention computed anew, as it should be or with one thing done wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import masks
from attn_cli.core.attention import project, softmax
from attn_cli.core.scores import score_named

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools
    from attn_cli.trace.trace import Trace

SCORES = ("scores", "scaled_scores", "masked_scores")
STEPS = ("q", "k", "v", *SCORES, "weights", "output", "layer_output")  # in the order computed
LARGE = 100_000  # cells, above which fewer ways of rounding are tried

Known = Mapping[str, Sequence["Array"]]


class Problem(NamedTuple):
    """What the steps are computed from, and the right ones. The first axis of every array is the heads."""

    right: Mapping[
        str, Array
    ]  # q, k (heads, n, d_k), scores (heads, n_q, n_k), ..., layer_output (1, n_q, d)
    x: tuple[Array, Array] | None = None  # X of the queries (n_q, d), and of the keys (n_k, d)
    W: Mapping[str, Array] = {}  # q, k, v: (d, heads x d_k), as in x W; o: (heads x d_v, d)
    b: Mapping[str, Array] = {}
    bias: Array | None = None  # (heads, n_q, n_k), added to the scaled scores
    mask: Bools | None = None  # (n_q, n_k), True = may attend
    score: str = "scaled"
    factor: float | None = None  # scaled scores = scores * factor
    root: float | None = None  # the square root of d_k that is in the factor; None where none is
    averaged: bool = False  # the mean of several heads is asked for

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return max(len(step) for step in self.right.values())


class Plan(NamedTuple):
    """A way to compute: as it should be, but for what is said here."""

    transposed: frozenset[str] = frozenset()  # of q, k, v, o
    each_head: bool = False  # transposed head by head, not as a whole
    swapped: str = (
        ""  # K and V: "used" for each other ("in-scores" or "in-output" alone), "made", "weights", "named"
    )
    scaling: str = (
        "root"  # "none", "d"; "unused", "unused-d": divided rightly, but the softmax got something else
    )
    mask: str = "given"  # "inverted", "upper", "corner", "after"
    axis: str = "keys"  # along which the softmax goes: "queries", "whole", "heads", "everything"
    empty: str = "zeros"  # what a softmax over nothing gives: "uniform", "unmasked", "nan"
    apart: bool = False  # whether heads are given in any other way than as their mean


RIGHT = Plan()


def problem_of(trace: Trace, averaged: bool) -> Problem:
    """Return the problem that a trace solved; it holds all heads, and all rows."""
    heads = [head for head in trace.heads if head.name != "mean"]
    names = ("q", "k", "v", *SCORES, "weights", "output")
    right = {name: _stack([getattr(head, name) for head in heads]) for name in names}
    if trace.layer_output is not None:
        right["layer_output"] = trace.layer_output[np.newaxis]
    out_in = trace.projection.layout == "out-in"
    W, b = {}, {}
    is_made = heads[0].W_q is not None and trace.projection.source != "identity"
    for letter in "qkv" if is_made else "":
        parts = [getattr(head, f"W_{letter}") for head in heads]
        W[letter] = np.concatenate([part.T if out_in else part for part in parts], axis=1)
        if getattr(heads[0], f"b_{letter}") is not None:
            b[letter] = np.concatenate([getattr(head, f"b_{letter}") for head in heads])
    if trace.W_o is not None:
        W["o"] = trace.W_o.T if out_in else trace.W_o
    if trace.b_o is not None:
        b["o"] = trace.b_o
    x = None
    if is_made and trace.x_query is not None and trace.x_key is not None:
        x = (trace.x_query, trace.x_key)
    bias = [head.position_scores for head in heads]
    return Problem(
        right,
        x,
        W,
        b,
        None if bias[0] is None else _stack(bias),
        trace.mask,
        trace.score,
        trace.scale / trace.temperature,
        float(np.sqrt(right["q"].shape[-1])) if score_named(trace.score).is_scaled else None,
        averaged and len(heads) > 1,
    )


def _stack(parts: Sequence[Array | None]) -> Array:
    return np.stack([part for part in parts if part is not None])


# How a step is computed under a plan.


def allowed(problem: Problem, plan: Plan) -> Bools | None:
    """Return the mask (n_q, n_k) that the softmax gets; None where it gets none."""
    if problem.mask is None or plan.mask == "after":
        return None
    if plan.mask == "inverted":
        return ~problem.mask
    if plan.mask == "upper":
        return problem.mask.T
    return other_corner(problem.mask) if plan.mask == "corner" else problem.mask


def other_corner(mask: Bools | None) -> Bools | None:
    """Return the causal mask that starts from the other corner; None where it is the same, or none is causal."""
    if mask is None or mask.shape[0] == mask.shape[1]:
        return None
    n_q, n_k = mask.shape
    both = [masks.Mask(name, n_q, n_k).rows(range(n_q)) for name in ("causal", "causal-bottom-right")]
    for one, other in (both, both[::-1]):
        if np.array_equal(mask, one):
            return None if np.array_equal(one, other) else other
    return None


def empty_lines(may: Bools, axis: str) -> Bools:
    """Return where the softmax is over nothing, in a shape that fits (n_q, n_k)."""
    over: dict[str, int | None] = {"keys": 1, "queries": 0, "whole": None}
    if axis in ("heads", "everything"):
        return np.zeros((1, 1), dtype=np.bool_)
    return np.logical_not(may.any(axis=over[axis], keepdims=True))


def values(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    """Return what a step may be under a plan: one array (heads, rows, columns) for each way to come to it.

    `known` holds what the steps before may be: as computed, and as somebody rounded them before going on.
    A step with nothing before it is the right one; one that cannot be computed may be anything: an empty list.
    """
    with np.errstate(all="ignore"):  # somebody's numbers may be of any size
        made = _MAKERS[step](problem, plan, step, known)
    begun = any(known.get(before) for before in _BEFORE[step])
    if not made and step in problem.right and (plan == RIGHT or not begun):
        return [problem.right[step]]
    if len(made) > 2 and made[0].size > LARGE:
        return [made[0], made[-1]]
    return made


def _made(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    exchanged = {"q": "q", "k": "v", "v": "k"}[step]
    if plan.swapped in ("made", "named") and exchanged in problem.right:
        return [problem.right[exchanged]]
    source = exchanged if plan.swapped == "weights" else step
    if problem.x is None or not ({source} & plan.transposed or plan.swapped == "weights"):
        return []
    X, W = problem.x[0 if step == "q" else 1], problem.W[source]
    parts = np.split(W, problem.heads, axis=1)
    if source in plan.transposed and plan.each_head:
        parts = [part.T for part in parts]
    elif source in plan.transposed:
        parts = np.split(W.T, problem.heads, axis=1)
    b = np.split(problem.b[step], problem.heads) if step in problem.b else [None] * problem.heads
    return [np.stack([project(X, part, bias) for part, bias in zip(parts, b, strict=True)])]


def _roles(plan: Plan) -> tuple[str, str]:
    """Return the names under which the keys and the values of the computation are known."""
    one_use = {"in-scores": ("v", "v"), "in-output": ("k", "k")}
    return one_use.get(plan.swapped, ("v", "k") if plan.swapped in ("used", "named") else ("k", "v"))


def _scores(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    keys = known.get(_roles(plan)[0], ())
    return [score_named(problem.score).of(q, k) for q in known.get("q", ()) for k in keys]


def _scaled(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    if problem.factor is None:
        return []
    if problem.root is None or plan.scaling not in ("none", "d"):
        return [scores * problem.factor for scores in known.get("scores", ())]
    divisor = _undivided(problem) * (round(problem.root**2, 6) if plan.scaling == "d" else 1.0)
    return [scores / divisor for scores in known.get("scores", ())]


def _undivided(problem: Problem) -> float:
    """Return what else scores are divided by than the root of d_k: the temperature."""
    return round(1 / ((problem.factor or 1.0) * (problem.root or 1.0)), 12)


def _masked(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    if plan.scaling in ("unused", "unused-d"):
        divisor = _undivided(problem) * (
            round((problem.root or 1.0) ** 2, 6) if plan.scaling == "unused-d" else 1.0
        )
        scaled = [scores / divisor for scores in known.get("scores", ())]
    else:
        scaled = list(known.get("scaled_scores", ()))
    with_bias = [one if problem.bias is None else one + problem.bias for one in scaled]
    may = allowed(problem, plan)
    return with_bias if may is None else [np.where(may, one, -np.inf) for one in with_bias]


def _weights(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    unmasked = _masked(problem._replace(mask=None), plan, step, known)
    found = [_softmax(masked, plan.axis) for masked in known.get("masked_scores", ())]
    may = allowed(problem, plan)
    if plan.mask == "after" and problem.mask is not None:
        return [np.where(problem.mask, weights, 0) for weights in found]
    if may is None or plan.empty == "zeros" or not found:
        return found
    over = {"keys": may.shape[1], "queries": may.shape[0], "whole": may.size}
    filled = {"uniform": np.array(1 / over.get(plan.axis, 1)), "nan": np.array(np.nan)}
    if plan.empty == "unmasked" and unmasked:
        filled["unmasked"] = _softmax(unmasked[0], plan.axis)
    return [np.where(empty_lines(may, plan.axis), filled.get(plan.empty, 0), weights) for weights in found]


def _softmax(scores: Array, axis: str) -> Array:
    if axis == "queries":
        return np.swapaxes(softmax(np.swapaxes(scores, -1, -2)), -1, -2)
    if axis == "everything":
        return softmax(scores.reshape(1, -1)).reshape(scores.shape)
    if axis == "whole":
        return softmax(scores.reshape(len(scores), -1)).reshape(scores.shape)
    return np.moveaxis(softmax(np.moveaxis(scores, 0, -1)), -1, 0) if axis == "heads" else softmax(scores)


def _output(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    values_of_keys = known.get(_roles(plan)[1], ())
    return [weights @ v for weights in known.get("weights", ()) for v in values_of_keys]


def _layer(problem: Problem, plan: Plan, step: str, known: Known) -> list[Array]:
    if "o" not in problem.W:
        return []
    W = problem.W["o"].T if "o" in plan.transposed else problem.W["o"]
    outputs = known.get("output", ())
    return [project(np.concatenate(list(one), axis=-1), W, problem.b.get("o"))[np.newaxis] for one in outputs]


_MAKERS: dict[str, Callable[[Problem, Plan, str, Known], list[Array]]] = {
    "q": _made,
    "k": _made,
    "v": _made,
    "scores": _scores,
    "scaled_scores": _scaled,
    "masked_scores": _masked,
    "weights": _weights,
    "output": _output,
    "layer_output": _layer,
}
# The steps that a step comes from. Scores without q and k, or weights without scores, are a beginning.
_BEFORE: dict[str, tuple[str, ...]] = {
    "q": (),
    "k": (),
    "v": (),
    "scores": ("q", "k"),
    "scaled_scores": ("scores",),
    "masked_scores": ("scaled_scores",),
    "weights": ("masked_scores",),
    "output": ("weights",),
    "layer_output": ("output",),
}
