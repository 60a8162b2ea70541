"""Every step of attention recomputed: correctly, or with one of ten usual mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product

import numpy as np

from attn_cli.core import attention, masks
from attn_cli.core.scores import score_named
from attn_cli.errors import InputError
from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.trace import Trace

SCORE_STEPS = ("scores", "scaled_scores", "masked_scores")
OF_HEADS = ("q", "k", "v", *SCORE_STEPS, "weights", "output")  # in the order computed
OF_ATTENTION = (*OF_HEADS, "layer_output")
# Of the exercises on what comes of it.
OF_EFFECTS = ("transformed", "lengths", "norms", "parts", "logits", "without")
GRADED_STEPS = (*OF_ATTENTION, *OF_EFFECTS)
MANY_CELLS = 100_000  # with more cells than these, fewer ways of rounding are tried
Earlier = Mapping[str, Sequence[Array]]  # what each earlier step may be: (heads, rows, columns) each


class Problem(NamedTuple):
    """What the steps are computed from, and the correct steps. The first axis of every step is the heads."""

    # q, k (heads, n, d_k), scores (heads, n_q, n_k), ..., layer_output (1, n_q, d)
    steps: Mapping[str, Array]
    x: tuple[Array, Array] | None = None  # X of the queries (n_q, d), and of the keys (n_k, d)
    W: Mapping[str, Array] = {}  # q, k, v: (d, heads x d_k), as in x W; o: (heads x d_v, d)
    b: Mapping[str, Array] = {}
    position_scores: Array | None = None  # (heads, n_q, n_k), added to the scaled scores
    mask: Bools | None = None  # (n_q, n_k), True = may attend
    score: str = "scaled"
    scale: float | None = None  # scaled scores = scores * scale
    sqrt_d_k: float | None = None  # where it is part of the scale
    softcap: float | None = None  # c, where c tanh(s / c) of each scaled score s goes on to the mask
    wants_mean: bool = False  # whether the mean of several heads is asked for
    given_weights: Array | None = None  # (n_q, n_k), where norms are made of weights that are given

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return max(len(step) for step in self.steps.values())


class Procedure(NamedTuple):
    """How a student computes the steps: correctly by default, or with one thing done differently."""

    transposed: frozenset[str] = frozenset()  # which W of q, k, v, o
    by_head: bool = False  # whether each head's part of W is transposed by itself
    # K and V exchanged: "used" everywhere, "in-scores" or "in-output" only, "made", "weights", or only "named" so.
    swapped: str = ""
    scaling: str = "sqrt"  # or "none", or "d"
    is_unused: bool = False  # whether scores are divided correctly, but the softmax gets those of `scaling`
    mask: str = "given"  # "inverted", "upper", "corner", "after" the softmax
    softmax_over: str = "keys"  # "queries", "whole", "heads", "everything"
    empty: str = "zeros"  # what a softmax over nothing gives: one of EMPTY
    heads_apart: bool = False  # whether heads are given in any other way than as their mean
    joins_none: bool = False  # whether W_o is left out


CORRECT = Procedure()
EMPTY = ("zeros", "uniform", "unmasked", "nan")
EXCHANGED = {"in-scores": ("v", "v"), "in-output": ("k", "k"), **dict.fromkeys(("used", "named"), ("v", "k"))}


def problem_from(trace: Trace, wants_mean: bool) -> Problem:
    """Return the problem that a trace solved; the trace has all heads and all rows."""
    heads, name = [head for head in trace.heads if head.name != "mean"], trace.embedding.name
    if any(head.mask is not None for head in heads):
        said = f"{name} gives each head a mask of its own: attn check takes one for all heads."
        raise InputError(said, "Give right results in its place, such as weights (heads, n_q, n_k).")
    if heads[0].sink is not None:
        raise InputError(f"{name} has a sink in each row, which attn check does not compute.")

    def of_heads(part: str) -> list[Array]:
        return [found for head in heads if (found := getattr(head, part)) is not None]

    # Given scores have no q and k.
    steps = {step: np.stack(parts) for step in OF_HEADS if (parts := of_heads(step))}
    steps |= {} if trace.layer_output is None else {"layer_output": trace.layer_output[np.newaxis]}
    is_projected = heads[0].W_q is not None and trace.projection.source != "identity"
    W, b = ({m: parts for m in "qkv" if is_projected and (parts := of_heads(f"{M}_{m}"))} for M in "Wb")
    W |= {} if trace.W_o is None else {"o": [trace.W_o]}
    b |= {} if trace.b_o is None else {"o": [trace.b_o]}
    is_out_in, x, x_key = trace.projection.layout == "out-in", trace.x_query, trace.x_key
    positions = of_heads("position_scores")
    is_root = score_named(trace.score).is_scaled and trace.own_scale is None
    scale, softcap = trace.scale / trace.temperature, trace.softcap
    return Problem(
        steps,
        (x, x_key) if is_projected and x is not None and x_key is not None else None,
        {m: np.concatenate([part.T if is_out_in else part for part in parts], 1) for m, parts in W.items()},
        {m: np.concatenate(parts) for m, parts in b.items()},
        np.stack(positions) if positions else None,
        *(trace.mask, trace.score, scale, float(np.sqrt(steps["q"].shape[-1])) if is_root else None),
        None if softcap is None else softcap / trace.temperature,
        wants_mean and len(heads) > 1,
    )


def softmax_mask(problem: Problem, procedure: Procedure) -> Bools | None:
    """Return the mask (n_q, n_k) that is applied before the softmax; None where none is."""
    if problem.mask is None or procedure.mask == "after":
        return None
    if procedure.mask == "corner":
        return other_corner(problem.mask)
    return {"inverted": ~problem.mask, "upper": problem.mask.T}.get(procedure.mask, problem.mask)


def other_corner(mask: Bools | None) -> Bools | None:
    """Return the causal mask that starts from the other corner; None where there is none, or the mask is not causal."""
    if mask is None or mask.shape[0] == mask.shape[1]:
        return None
    n_q, n_k = mask.shape
    both = [masks.Mask(name, n_q, n_k).rows(range(n_q)) for name in ("causal", "causal-bottom-right")]
    for one, other in (both, both[::-1]):
        if np.array_equal(mask, one):
            return other
    return None


def empty_softmaxes(allowed: Bools, softmax_over: str) -> Bools:
    """Return where everything is masked that one softmax goes over, in a shape that fits (n_q, n_k)."""
    if softmax_over in ("heads", "everything"):
        return np.zeros((1, 1), dtype=np.bool_)
    axis = {"keys": 1, "queries": 0, "whole": None}[softmax_over]
    return np.logical_not(allowed.any(axis=axis, keepdims=True))


def mistakes(problem: Problem) -> dict[str, list[Procedure]]:
    """Return the procedures that make each mistake in this problem, if any, in the order in which they are listed."""
    mask, k, v = problem.mask, problem.steps.get("k"), problem.steps.get("v")
    scalings = (False, True) if problem.sqrt_d_k not in (None, 1) else ()
    is_causal = mask is not None and len(mask) > 1 and np.array_equal(mask, np.tri(len(mask), dtype=np.bool_))
    inverted = ("inverted", *["upper"] * is_causal)  # np.triu, "upper", has the diagonal on both sides
    over_heads = ("heads", "everything") if problem.heads > 1 else ()
    swaps = () if k is None or v is None else ("in-output", "named")
    if k is not None and v is not None and k.shape == v.shape:
        swaps = ("used", "in-scores", "made", *["weights"] * bool(problem.b), *swaps)
    found: dict[str, Iterable[Procedure]] = {
        "no-scaling": (Procedure(scaling="none", is_unused=way) for way in scalings),
        "scaled-by-d": (Procedure(scaling="d", is_unused=way) for way in scalings),
        "softmax-axis": (Procedure(softmax_over=axis) for axis in ("queries", "whole", *over_heads)),
        "transposed-w": _transposed(problem),
        "mask-inverted": (Procedure(mask=way) for way in inverted if mask is not None),
        "causal-corner": [Procedure(mask="corner")] * (other_corner(mask) is not None),
        "k-v-swapped": (Procedure(swapped=way) for way in swaps),
        "mask-after-softmax": [Procedure(mask="after")] * (mask is not None),
        "heads-not-averaged": [Procedure(heads_apart=True)] * problem.wants_mean,
        "w-o-left-out": [Procedure(joins_none=True)] * (problem.given_weights is not None),
    }

    def is_empty(one: Procedure) -> bool:
        allowed = softmax_mask(problem, one)
        return allowed is not None and bool(empty_softmaxes(allowed, one.softmax_over).any())

    def ways(one: Procedure) -> list[Procedure]:  # a softmax over nothing may give anything
        return [one._replace(empty=empty) for empty in (EMPTY if is_empty(one) else EMPTY[:1])]

    return {code: [way for one in procedures for way in ways(one)] for code, procedures in found.items()}


def _transposed(problem: Problem) -> Iterator[Procedure]:
    """Yield the ways to transpose one or more of the W, or of the heads' parts of them, where their shape allows it."""
    for parts in sorted({1, problem.heads}):
        names = [name for name, W in problem.W.items() if W.shape[0] * parts == W.shape[1]]
        for chosen in chain.from_iterable(combinations(names, n) for n in range(1, len(names) + 1)):
            yield Procedure(transposed=frozenset(chosen), by_head=parts > 1)


class _Way(NamedTuple):
    """How a step is computed, and what the steps before it may be."""

    problem: Problem
    procedure: Procedure
    step: str
    earlier: Earlier

    @property
    def joining(self) -> Array:
        """The matrix that joins the heads."""
        W = self.problem.W["o"]
        return W.T if "o" in self.procedure.transposed else W


def possible_arrays(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    """Return what a step may be under a procedure, (heads, rows, columns) each; empty where it may be anything.

    There is one array for each way to get there: `earlier` holds the steps before as computed, and as a student
    may have rounded them. A step with nothing before it is the correct one.
    """
    way, (compute, inputs) = _Way(problem, procedure, step, earlier), _COMPUTED[step]
    keys, values = EXCHANGED.get(procedure.swapped, ("k", "v"))
    taken = {"scores": ("q", keys), "output": ("weights", values)}.get(step, inputs)
    if step == "masked_scores" and procedure.is_unused:
        taken = ("scores",)
    with np.errstate(all="ignore"):  # a student's numbers may be of any size
        ways = product(*(earlier.get(name, ()) for name in taken))
        arrays = [found for given in ways if (found := compute(way, *given)) is not None]
    has_inputs = any(earlier.get(name) for name in inputs)
    if not arrays and step in problem.steps and (procedure == CORRECT or not has_inputs):
        return [problem.steps[step]]
    return [arrays[0], arrays[-1]] if len(arrays) > 2 and arrays[0].size > MANY_CELLS else arrays


def _projected(way: _Way) -> Array | None:
    problem, procedure, step = way[:3]
    exchanged = {"q": "q", "k": "v", "v": "k"}[step]
    if procedure.swapped in ("made", "named") and exchanged in problem.steps:
        return problem.steps[exchanged]
    source = exchanged if procedure.swapped == "weights" else step
    is_transposed = source in procedure.transposed
    if problem.x is None or not (is_transposed or procedure.swapped == "weights"):
        return None
    X, W = problem.x[0 if step == "q" else 1], problem.W[source]
    parts = np.split(W.T if is_transposed and not procedure.by_head else W, problem.heads, axis=1)
    if is_transposed and procedure.by_head:
        parts = [part.T for part in parts]
    b = np.split(problem.b[step], problem.heads) if step in problem.b else [None] * problem.heads
    return np.stack([attention.project(X, part, bias) for part, bias in zip(parts, b, strict=True)])


def _scaled(way: _Way, scores: Array) -> Array | None:
    problem, procedure, step = way[:3]
    if problem.scale is None:
        return None
    is_right = procedure.scaling == "sqrt" or (procedure.is_unused and step == "scaled_scores")
    if problem.sqrt_d_k is None or is_right:
        return scores * problem.scale
    temperature = round(1 / (problem.scale * problem.sqrt_d_k), 12)
    divisor = temperature * (round(problem.sqrt_d_k**2, 6) if procedure.scaling == "d" else 1.0)
    return scores / divisor


def _masked(way: _Way, scores: Array) -> Array | None:
    problem, procedure = way[:2]
    scaled = _scaled(way, scores) if procedure.is_unused else scores
    if scaled is None:
        return None
    if problem.softcap is not None:
        scaled = attention.soft_capped(scaled, problem.softcap)
    if problem.position_scores is not None:
        scaled = scaled + problem.position_scores
    allowed = softmax_mask(problem, procedure)
    return scaled if allowed is None else np.where(allowed, scaled, -np.inf)


def _weights(way: _Way, masked: Array) -> Array:
    problem, procedure = way[:2]
    weights, allowed = _softmax(masked, procedure.softmax_over), softmax_mask(problem, procedure)
    if procedure.mask == "after" and problem.mask is not None:
        return np.where(problem.mask, weights, 0)
    if allowed is None or procedure.empty == "zeros":
        return weights
    empty = empty_softmaxes(allowed, procedure.softmax_over)
    fill = np.array({"uniform": empty.size / allowed.size, "nan": np.nan}.get(procedure.empty, 0))
    if procedure.empty == "unmasked":
        unmasked = possible_arrays(problem._replace(mask=None), procedure, "masked_scores", way.earlier)
        fill = _softmax(unmasked[0], procedure.softmax_over)
    return np.where(empty, fill, weights)


def _softmax(scores: Array, over: str) -> Array:
    """Return the softmax over some axes of (heads, n_q, n_k)."""
    axes = {"keys": [2], "queries": [1], "whole": [1, 2], "heads": [0], "everything": [0, 1, 2]}[over]
    last = range(-len(axes), 0)
    moved = np.moveaxis(scores, axes, last)
    flat = moved.reshape(*moved.shape[: 3 - len(axes)], -1)
    return np.moveaxis(attention.softmax(flat).reshape(moved.shape), last, axes)


def _layer_output(way: _Way, output: Array) -> Array | None:
    if "o" not in way.problem.W:
        return None
    return attention.project(np.concatenate(list(output), axis=-1), way.joining, way.problem.b.get("o"))[
        np.newaxis
    ]


def _transformed(way: _Way, v: Array) -> Array | None:
    if way.problem.given_weights is None:
        return None
    return v if way.procedure.joins_none else v @ way.joining


def _norms(way: _Way, lengths: Array) -> Array | None:
    weights = way.problem.given_weights
    return None if weights is None else weights * lengths


# How each step is computed, and from which. Scores without q and k, or weights without scores, are a beginning.
_COMPUTED: dict[str, tuple[Callable[..., Array | None], tuple[str, ...]]] = {
    **dict.fromkeys(("q", "k", "v"), (_projected, ())),
    "scores": (lambda way, q, k: score_named(way.problem.score).of(q, k), ("q", "k")),
    "scaled_scores": (_scaled, ("scores",)),
    "masked_scores": (_masked, ("scaled_scores",)),
    "weights": (_weights, ("masked_scores",)),
    "output": (lambda way, weights, v: weights @ v, ("weights",)),
    "layer_output": (_layer_output, ("output",)),
    "transformed": (_transformed, ("v",)),
    "lengths": (lambda way, f: np.linalg.norm(f, axis=-1)[:, np.newaxis], ("transformed",)),
    "norms": (_norms, ("lengths",)),
    "parts": (lambda way: None, ()),
    "logits": (lambda way, parts: parts.sum(axis=1, keepdims=True), ("parts",)),
    # What each head adds taken away: heads are the rows between embedding and network.
    "without": (lambda way, parts, logits: logits - parts[:, 1:-1], ("parts", "logits")),
}
