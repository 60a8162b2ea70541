"""Every step of attention recomputed: correctly, or with one of ten usual mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from attn_cli.core import masks
from attn_cli.core.attention import project, soft_capped, softmax
from attn_cli.core.scores import score_named
from attn_cli.errors import InputError
from attn_cli.io.array_types import Array, Bools
from attn_cli.trace.trace import Trace

SCORE_STEPS = ("scores", "scaled_scores", "masked_scores")
OF_ATTENTION = ("q", "k", "v", *SCORE_STEPS, "weights", "output", "layer_output")  # in the order computed
# Of the exercises on what comes of it.
OF_EFFECTS = ("transformed", "lengths", "norms", "parts", "logits", "without")
GRADED_STEPS = (*OF_ATTENTION, *OF_EFFECTS)
MANY_CELLS = 100_000  # with more cells than these, fewer ways of rounding are tried
Earlier = Mapping[str, Sequence["Array"]]  # what each earlier step may be: (heads, rows, columns) each


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
    # "none" or "d": divided so. "unused" or "unused-d": divided correctly, but the softmax got the other scores.
    scaling: str = "sqrt"
    mask: str = "given"  # "inverted", "upper", "corner", "after" the softmax
    softmax_over: str = "keys"  # "queries", "whole", "heads", "everything"
    empty: str = "zeros"  # what a softmax over nothing gives: "uniform", "unmasked", "nan"
    heads_apart: bool = False  # whether heads are given in any other way than as their mean
    joins_none: bool = False  # whether W_o is left out


CORRECT = Procedure()


def problem_from(trace: Trace, wants_mean: bool) -> Problem:
    """Return the problem that a trace solved; the trace has all heads and all rows."""
    heads = [head for head in trace.heads if head.name != "mean"]
    if any(head.mask is not None for head in heads):
        raise InputError(
            f"{trace.embedding.name} gives each head a mask of its own: attn check takes one for all heads.",
            "Give right results in its place, such as weights (heads, n_q, n_k).",
        )
    if heads[0].sink is not None:
        raise InputError(f"{trace.embedding.name} has a sink in each row, which attn check does not compute.")
    names = ("q", "k", "v", *SCORE_STEPS, "weights", "output")
    present = [name for name in names if getattr(heads[0], name) is not None]  # given scores have no q and k
    steps = {name: _stack([getattr(head, name) for head in heads]) for name in present}
    if trace.layer_output is not None:
        steps["layer_output"] = trace.layer_output[np.newaxis]
    out_in = trace.projection.layout == "out-in"
    W, b = {}, {}
    is_projected = heads[0].W_q is not None and trace.projection.source != "identity"
    for letter in "qkv" if is_projected else "":
        parts = [getattr(head, f"W_{letter}") for head in heads]
        W[letter] = np.concatenate([part.T if out_in else part for part in parts], axis=1)
        if getattr(heads[0], f"b_{letter}") is not None:
            b[letter] = np.concatenate([getattr(head, f"b_{letter}") for head in heads])
    W |= {} if trace.W_o is None else {"o": trace.W_o.T if out_in else trace.W_o}
    b |= {} if trace.b_o is None else {"o": trace.b_o}
    x = None
    if is_projected and trace.x_query is not None and trace.x_key is not None:
        x = (trace.x_query, trace.x_key)
    positions = [head.position_scores for head in heads]
    is_root = score_named(trace.score).is_scaled and trace.own_scale is None
    return Problem(
        steps,
        x,
        W,
        b,
        None if positions[0] is None else _stack(positions),
        trace.mask,
        trace.score,
        trace.scale / trace.temperature,
        float(np.sqrt(steps["q"].shape[-1])) if is_root else None,
        None if trace.softcap is None else trace.softcap / trace.temperature,
        wants_mean and len(heads) > 1,
    )


def _stack(parts: Sequence[Array | None]) -> Array:
    return np.stack([part for part in parts if part is not None])


def softmax_mask(problem: Problem, procedure: Procedure) -> Bools | None:
    """Return the mask (n_q, n_k) that is applied before the softmax; None where none is."""
    if problem.mask is None or procedure.mask == "after":
        return None
    if procedure.mask == "inverted":
        return ~problem.mask
    if procedure.mask == "upper":
        return problem.mask.T
    return other_corner(problem.mask) if procedure.mask == "corner" else problem.mask


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


def empty_softmaxes(allowed: Bools, softmax_over: str) -> Bools:
    """Return where everything is masked that one softmax goes over, in a shape that fits (n_q, n_k)."""
    if softmax_over in ("heads", "everything"):
        return np.zeros((1, 1), dtype=np.bool_)
    axis = {"keys": 1, "queries": 0, "whole": None}[softmax_over]
    return np.logical_not(allowed.any(axis=axis, keepdims=True))


def mistakes(problem: Problem) -> dict[str, list[Procedure]]:
    """Return the procedures that make each mistake in this problem, if any, in the order in which they are listed."""
    mask = problem.mask
    is_divided = problem.sqrt_d_k not in (None, 1)
    is_causal = mask is not None and len(mask) > 1 and np.array_equal(mask, np.tri(len(mask), dtype=np.bool_))
    inverted = "inverted", *["upper"] * is_causal  # np.triu, "upper", has the diagonal on both sides
    over_heads = ("heads", "everything") if problem.heads > 1 else ()
    found: dict[str, Iterable[Procedure]] = {
        "no-scaling": (Procedure(scaling=way) for way in ("none", "unused") if is_divided),
        "scaled-by-d": (Procedure(scaling=way) for way in ("d", "unused-d") if is_divided),
        "softmax-axis": (Procedure(softmax_over=axis) for axis in ("queries", "whole", *over_heads)),
        "transposed-w": _transposed(problem),
        "mask-inverted": (Procedure(mask=way) for way in inverted if mask is not None),
        "causal-corner": [Procedure(mask="corner")] * (other_corner(mask) is not None),
        "k-v-swapped": (Procedure(swapped=way) for way in _swaps(problem)),
        "mask-after-softmax": [Procedure(mask="after")] * (mask is not None),
        "heads-not-averaged": [Procedure(heads_apart=True)] * problem.wants_mean,
        "w-o-left-out": [Procedure(joins_none=True)] * (problem.given_weights is not None),
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
    """Return the ways to use keys and values for each other, or to give each under the other's name."""
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


def possible_arrays(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    """Return what a step may be under a procedure, (heads, rows, columns) each; empty where it may be anything.

    There is one array for each way to get there: `earlier` holds the steps before as computed, and as a student
    may have rounded them. A step with nothing before it is the correct one.
    """
    compute, inputs = _COMPUTED[step]
    with np.errstate(all="ignore"):  # a student's numbers may be of any size
        arrays = compute(problem, procedure, step, earlier)
    has_inputs = any(earlier.get(name) for name in inputs)
    if not arrays and step in problem.steps and (procedure == CORRECT or not has_inputs):
        return [problem.steps[step]]
    if len(arrays) > 2 and arrays[0].size > MANY_CELLS:
        return [arrays[0], arrays[-1]]
    return arrays


def _projected(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    exchanged = {"q": "q", "k": "v", "v": "k"}[step]
    if procedure.swapped in ("made", "named") and exchanged in problem.steps:
        return [problem.steps[exchanged]]
    with_other_W = procedure.swapped == "weights"
    source = exchanged if with_other_W else step
    if problem.x is None or not (source in procedure.transposed or with_other_W):
        return []
    X, W = problem.x[0 if step == "q" else 1], problem.W[source]
    if source in procedure.transposed and not procedure.by_head:
        W = W.T
    parts = np.split(W, problem.heads, axis=1)
    if source in procedure.transposed and procedure.by_head:
        parts = [part.T for part in parts]
    b = np.split(problem.b[step], problem.heads) if step in problem.b else [None] * problem.heads
    return [np.stack([project(X, part, bias) for part, bias in zip(parts, b, strict=True)])]


def _keys_and_values(procedure: Procedure) -> tuple[str, str]:
    """Return the steps that serve as keys and as values."""
    exchanged = {"in-scores": ("v", "v"), "in-output": ("k", "k"), "used": ("v", "k"), "named": ("v", "k")}
    return exchanged.get(procedure.swapped, ("k", "v"))


def _scores(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    keys = earlier.get(_keys_and_values(procedure)[0], ())
    return [score_named(problem.score).of(q, k) for q in earlier.get("q", ()) for k in keys]


def _scaled(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    if problem.scale is None:
        return []
    if problem.sqrt_d_k is None or procedure.scaling not in ("none", "d"):
        return [scores * problem.scale for scores in earlier.get("scores", ())]
    temperature = round(1 / (problem.scale * problem.sqrt_d_k), 12)
    divisor = temperature * (round(problem.sqrt_d_k**2, 6) if procedure.scaling == "d" else 1.0)
    return [scores / divisor for scores in earlier.get("scores", ())]


def _masked(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    scaled = earlier.get("scaled_scores", ())
    if used := {"unused": "none", "unused-d": "d"}.get(procedure.scaling):
        scaled = _scaled(problem, procedure._replace(scaling=used), step, earlier)
    if problem.softcap is not None:
        scaled = [soft_capped(one, problem.softcap) for one in scaled]
    if problem.position_scores is not None:
        scaled = [one + problem.position_scores for one in scaled]
    allowed = softmax_mask(problem, procedure)
    return list(scaled) if allowed is None else [np.where(allowed, one, -np.inf) for one in scaled]


def _weights(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    weights = [_softmax(masked, procedure.softmax_over) for masked in earlier.get("masked_scores", ())]
    if procedure.mask == "after" and problem.mask is not None:
        return [np.where(problem.mask, one, 0) for one in weights]
    allowed = softmax_mask(problem, procedure)
    if allowed is None or procedure.empty == "zeros":
        return weights
    empty = empty_softmaxes(allowed, procedure.softmax_over)
    fill = np.array({"uniform": empty.size / allowed.size, "nan": np.nan}.get(procedure.empty, 0))
    unmasked = _masked(problem._replace(mask=None), procedure, step, earlier)
    if procedure.empty == "unmasked" and unmasked:
        fill = _softmax(unmasked[0], procedure.softmax_over)
    return [np.where(empty, fill, one) for one in weights]


def _softmax(scores: Array, over: str) -> Array:
    """Return the softmax over some axes of (heads, n_q, n_k)."""
    axes = {"keys": [2], "queries": [1], "whole": [1, 2], "heads": [0], "everything": [0, 1, 2]}[over]
    last = range(-len(axes), 0)
    moved = np.moveaxis(scores, axes, last)
    flat = moved.reshape(*moved.shape[: 3 - len(axes)], -1)
    return np.moveaxis(softmax(flat).reshape(moved.shape), last, axes)


def _output(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    values = earlier.get(_keys_and_values(procedure)[1], ())
    return [weights @ v for weights in earlier.get("weights", ()) for v in values]


def _layer_output(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    if "o" not in problem.W:
        return []
    W = problem.W["o"].T if "o" in procedure.transposed else problem.W["o"]
    outputs = earlier.get("output", ())
    return [project(np.concatenate(list(one), axis=-1), W, problem.b.get("o"))[np.newaxis] for one in outputs]


def _transformed(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    if problem.given_weights is None:
        return []
    W = problem.W["o"].T if "o" in procedure.transposed else problem.W["o"]
    return [v if procedure.joins_none else v @ W for v in earlier.get("v", ())]


def _lengths(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    return [np.linalg.norm(f, axis=-1)[:, np.newaxis] for f in earlier.get("transformed", ())]


def _norms(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    weights = problem.given_weights
    return [] if weights is None else [weights * lengths for lengths in earlier.get("lengths", ())]


def _logits(problem: Problem, procedure: Procedure, step: str, earlier: Earlier) -> list[Array]:
    """Return the sums of the parts, or these less what each head adds: the rows between embedding and network."""
    pairs = [(parts, parts.sum(axis=1, keepdims=True)) for parts in earlier.get("parts", ())]
    if step == "logits":
        return [logits for _, logits in pairs]
    return [logits - parts[:, 1:-1] for parts, _ in pairs for logits in earlier.get("logits", ())]


# How each step is computed, and from which. Scores without q and k, or weights without scores, are a beginning.
_Compute = Callable[[Problem, Procedure, str, Earlier], list["Array"]]
_COMPUTED: dict[str, tuple[_Compute, tuple[str, ...]]] = {
    **dict.fromkeys(("q", "k", "v"), (_projected, ())),
    "scores": (_scores, ("q", "k")),
    "scaled_scores": (_scaled, ("scores",)),
    "masked_scores": (_masked, ("scaled_scores",)),
    "weights": (_weights, ("masked_scores",)),
    "output": (_output, ("weights",)),
    "layer_output": (_layer_output, ("output",)),
    "transformed": (_transformed, ("v",)),
    "lengths": (_lengths, ("transformed",)),
    "norms": (_norms, ("lengths",)),
    "parts": (lambda *_: [], ()),
    "logits": (_logits, ("parts",)),
    "without": (_logits, ("parts", "logits")),
}
