"""What a script needs to recompute a trace: the arrays it starts from, the facts of its steps, a framework's words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_cli.core.masks import Mask, find_rule, rule_named
from attn_cli.core.scores import score_named
from attn_cli.errors import count, refuse
from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.render.code.literals import safe_name
from attn_cli.trace import Head, Trace

MOST_TOKENS = 200
MOST_NUMBERS = 20_000
HAND_SIZED = 432  # numbers in W_q, W_k and W_v together, or in W_o, that a reader takes in: three of 12 x 12
TINY, HUGE = 1e-9, 1e100  # beyond these, squares lose what they are made of
MAX_FLOAT32_SCORE = 1e3  # scores beyond it lose too much in the float32 that most of Keras works in
TITLES = {"numpy": "NumPy", "torch": "PyTorch", "keras": "Keras"}
_TORCH = "import torch\nimport torch.nn.functional as F\n\ntorch.set_default_dtype(torch.float64)"
_ANY = "# Any backend will do; JAX has float64 only with JAX_ENABLE_X64=1."
_KERAS = f"{_ANY}\nimport keras\nfrom keras import ops"
# How each framework writes what all scripts share; a number in braces stands for an operand.
PHRASES = {
    "imports": ("import numpy as np", _TORCH, _KERAS),
    "library": ("np", "torch", "ops"),
    "array": ("np.array(", "torch.tensor(", "ops.array("),
    "end of numbers": (")", ")", ', dtype="float64")'),
    "end of booleans": (")", ")", ', dtype="bool")'),
    "to list": ("{}.tolist()", "{}.tolist()", "ops.convert_to_numpy({}).tolist()"),
    "root": ("np.sqrt(d_k)", "d_k**0.5", "d_k**0.5"),
    "transpose": ("{}.T", "{}.T", "ops.transpose({})"),
    "swap last": ("{}.swapaxes(-1, -2)", "{}.mT", "ops.swapaxes({}, -1, -2)"),
    "split": ("np.split(M, heads, axis=1)", "M.chunk(heads, dim=1)", "ops.split(M, heads, axis=1)"),
    "join": ("np.concatenate([*{}], axis=-1)", "torch.cat([*{}], dim=-1)", "ops.concatenate([*{}], axis=-1)"),
    "minus infinity": ("-np.inf", "-torch.inf", 'float("-inf")'),
    "polarity": (
        "True = may attend.",
        "True = may attend, as in scaled_dot_product_attention.",
        "True = may attend, as in the attention_mask of Keras' layers.",
    ),
    # Of the array {0}, what stands at `place` along the axis {1}.
    "take": ("{0}[{2}place]", "{0}[{2}place]", "ops.take({0}, place, axis={1})"),
    "pad column": (
        "np.pad({}, ((0, 0), (0, 1)), constant_values={!r})",
        "F.pad({}, (0, 1), value={!r})",
        "ops.pad({}, ((0, 0), (0, 1)), constant_values={!r})",
    ),
    "pad row": ("np.pad(V, ((0, 1), (0, 0)))", "F.pad(V, (0, 0, 0, 1))", "ops.pad(V, ((0, 1), (0, 0)))"),
}


class InputArray(NamedTuple):
    """An array that the script starts from; `rows` are its rows' labels: tokens of a side, or distances."""

    name: str
    array: Array | Bools
    about: str = ""  # the comment above it
    rows: str = ""  # queries, keys, distances


class ScriptPlan(NamedTuple):
    """How to get from the arrays it starts from to a trace's weights and output; heads are side by side."""

    framework: str
    trace: Trace
    heads: tuple[Head, ...]  # those to compute
    arrays: tuple[InputArray, ...]
    start: str  # X, identity, QKV
    shared_values: bool  # all heads have the same V
    reach: int | None  # of a learned position term
    rule: str | None  # the mask's name, where that says all
    one_text: bool  # queries and keys are the same tokens
    several: bool  # several heads are computed
    has_position: bool  # the distance of query and key adds to the scores
    knows_more: bool  # a soft cap or a sink, which frameworks' own attention does not know
    has_empty_row: bool  # some query may look at nothing
    is_extreme: bool  # some numbers are too large or too small to be squared

    def say(self, phrase: str, *operands: object) -> str:
        """Return a phrase of PHRASES in the framework's words."""
        return PHRASES[phrase][[*TITLES].index(self.framework)].format(*operands)

    def has(self, name: str) -> bool:
        """Tell whether an array of that name is given."""
        return any(one.name == name for one in self.arrays)

    @property
    def has_layer(self) -> bool:
        """Whether keras.layers.Attention can do it: usual scores, no position term, no mask but the causal one."""
        scores = [head.scaled_scores for head in self.heads if head.scaled_scores is not None]
        return (
            self.framework == "keras"
            and score_named(self.trace.score).as_dot is not None
            and (self.rule is None or bool(rule_named(self.rule)[0].keras_argument))
            and (self.trace.mask is None) == (self.rule is None)
            and all(head.position_scores is None or head.rotated is not None for head in self.heads)
            and not self.knows_more
            and len(self.trace.key_tokens) > 1  # Keras warns of a softmax over one
            and max(float(np.abs(M).max()) for M in scores) < MAX_FLOAT32_SCORE
        )


def plan_script(trace: Trace, framework: str) -> ScriptPlan:
    """Return how to recompute a trace; raise UsageError if no script can, or only one too long to read."""
    refuse(trace.has_layers, "A script recomputes one layer.", "Give --layer N.", "--format")
    is_one = trace.settings.head not in ("all", "mean") and not joins_heads(trace)
    heads = (trace.shown,) if is_one else trace.heads
    longest = max(len(trace.query_tokens), len(trace.key_tokens))
    _check_size(longest, MOST_TOKENS, "tokens")
    queries_and_keys = [M for head in heads for M in (head.q, head.k) if M is not None]
    what = "There are no queries and keys here to compute these weights from."
    refuse(trace.condensed or len(queries_and_keys) < 2 * len(heads), what, "Use -f json.", "--format")
    _refuse_own_terms(heads)
    start, rule = _start(trace, heads), _rule(trace, framework)
    shared = len(heads) > 1 and start == "QKV" and all(_equal(head.v, heads[0].v) for head in heads)
    biases = heads[0].position_biases
    reach = None if biases is None else min(len(biases) // 2, longest - 1)
    arrays = [*(_vectors(trace, heads, shared) if start == "QKV" else _inputs(trace, heads, start))]
    arrays += _positions(trace, heads, reach)
    if trace.mask is not None and rule is None:
        arrays.append(InputArray("mask", trace.mask, "The mask.", "queries"))
    if joins_heads(trace) and trace.W_o is not None:
        arrays.append(InputArray("W_o", trace.W_o, "The output projection, which joins the heads' outputs."))
        arrays += [] if trace.b_o is None else [InputArray("b_o", trace.b_o)]
    many = f" and {len(heads)} heads" if len(heads) > 1 else ""
    here = f" Here are {count(len(trace.key_tokens), 'key', 'keys')}{many}."
    fewer = "one head (--head NAME), " if many and not joins_heads(trace) else ""
    _check_size(sum(one.array.size for one in arrays), MOST_NUMBERS, "numbers", here, fewer)
    sizes = np.concatenate([np.abs(M).max(axis=-1) for M in queries_and_keys]).astype(np.float64)
    is_extreme = bool(((sizes > 0) & (sizes < TINY) | (sizes > HUGE)).any())
    has_empty_row = any(not head.weights.any(axis=-1).all() for head in heads)
    one_text, several = trace.query_tokens == trace.key_tokens, len(heads) > 1
    knows_more = trace.softcap is not None or trace.heads[0].sink is not None
    has_position = reach is not None or any(one.name == "position_scores" for one in arrays)
    facts = shared, reach, rule, one_text, several, has_position, knows_more, has_empty_row, is_extreme
    return ScriptPlan(framework, trace, heads, tuple(arrays), start, *facts)


def _refuse_own_terms(heads: tuple[Head, ...]) -> None:
    """Raise UsageError for several heads with masks of their own, or position scores that are not made of vectors."""
    given = [head for head in heads if head.position_vectors is None and head.rotated is None]
    alike = all(_equal(head.position_scores, given[0].position_scores) for head in given)
    differ = not alike or any(head.mask is not None for head in heads)
    why = "differ" if differ else "have sinks"
    what = f"A script of several heads has one mask, one matrix of position scores and no sink; these heads {why}."
    is_wrong = len(heads) > 1 and (differ or heads[0].sink is not None)
    refuse(is_wrong, what, "Give one head (--head NAME), without a W_o.", "--format")


def _check_size(n: int, most: int, what: str, here: str = "", fewer: str = "") -> None:
    said = f"A script of {n:,} {what} would be too long to read; it holds at most {most:,}.{here}"
    refuse(n > most, said, f"Give a shorter text, {fewer}or use -f json --steps.", "--format")


def _start(trace: Trace, heads: tuple[Head, ...]) -> str:
    """Return what the script starts from: X and W if W is small or smaller than Q, K and V, else QKV."""
    if trace.x_query is None or trace.x_key is None or heads[0].W_q is None or trace.of_model:
        return "QKV"
    if trace.projection.source == "identity":
        return "identity"
    weights = sum(W.size for head in heads for W in (head.W_q, head.W_k, head.W_v) if W is not None)
    made = sum(M.size for head in heads for M in (head.q, head.k, head.v) if M is not None)
    return "X" if weights <= HAND_SIZED or weights + trace.x_query.size <= made else "QKV"


def _rule(trace: Trace, framework: str) -> str | None:
    """Return the mask's name if it is that of a rule that makes the same mask, and has a line for the framework."""
    name, found = trace.mask_name, find_rule(trace.mask_name)
    if found is None or trace.mask is None or framework not in found[0].lines:
        return None
    made = Mask(name, len(trace.query_tokens), len(trace.key_tokens)).rows(trace.rows)
    return name if _equal(made, trace.mask) else None


def joins_heads(trace: Trace) -> bool:
    """Tell whether the heads' outputs are joined by a W_o small enough to be written out."""
    has_all = len(trace.heads) == len(trace.head_names)
    are_out = any(one.startswith(f"{trace.projection.layer}.") for one in trace.settings.knock_out)
    return trace.W_o is not None and has_all and trace.W_o.size <= HAND_SIZED and not are_out


def _inputs(trace: Trace, heads: tuple[Head, ...], start: str) -> Iterator[InputArray]:
    assert trace.x_query is not None and trace.x_key is not None
    below, text = _below(trace), "" if _has_one_x(trace) else " of the text"
    yield InputArray("X", trace.x_query, f"A vector for each token{text}.{below and ' ' + below}", "queries")
    if not _has_one_x(trace):
        yield InputArray("context", trace.x_key, "A vector for each token of the context.", "keys")
    if start == "identity":
        return
    axis = 1 if trace.projection.layout == "in-out" else 0
    about = f"The weights{_whose(trace, heads)}, as {'(in, out)' if axis else '(out, in)'}."
    yield from _side_by_side(heads, about, axis, "W_q", "W_k", "W_v")
    yield from _side_by_side(heads, "The biases.", 0, "b_q", "b_k", "b_v")


def _side_by_side(heads: tuple[Head, ...], about: str, axis: int, *names: str) -> Iterator[InputArray]:
    """Yield the arrays that heads have under these names, joined; the first has the comment on all of them."""
    for name in names:
        if getattr(heads[0], name) is not None:
            yield InputArray(name, np.concatenate([getattr(head, name) for head in heads], axis=axis), about)
            about = ""


def _vectors(trace: Trace, heads: tuple[Head, ...], shared: bool) -> Iterator[InputArray]:
    q, k = ("q_turned", "k_turned") if heads[0].rotated is not None else ("q", "k")
    kept = heads[:1] if shared else heads
    for one in (*_side_by_side(heads, _origin(trace, heads), 1, q, k), *_side_by_side(kept, "", 1, "v")):
        yield one._replace(name=one.name[0].upper(), rows="queries" if one.name == q else "keys")


def _origin(trace: Trace, heads: tuple[Head, ...]) -> str:
    """Return where Q, K and V come from, and why they are written out."""
    head, whose = heads[0], _whose(trace, heads)
    if head.rotated is not None:
        return f"Queries and keys (rotated by their positions) and values{whose}."
    if head.W_q is None or head.W_v is None:
        return f"Queries, keys and values{whose}, as {made_by(trace)}."
    mark = "^T" if trace.projection.layout == "out-in" else ""
    other = "X" if _has_one_x(trace) else "context"
    made = [
        f"{letter.upper()} = {x} W_{letter}{mark}{'' if getattr(head, f'b_{letter}') is None else f' + b_{letter}'}"
        for letter, x in (("q", "X"), ("k", other), ("v", other))
    ]
    if head.b_v is None and _equal(head.W_v, np.eye(len(head.W_v))):
        made[2] = f"V = {other}"
    rows, columns = head.W_q.shape
    return (
        f"Queries, keys and values{whose}: {', '.join(made)}. They are written out because W_q and W_k "
        f"({safe_name(trace.projection.name or 'the model')}) have {rows} x {columns} numbers each. {_below(trace)}"
    ).strip()


def made_by(trace: Trace) -> str:
    """Return where queries, keys and values come from that the script has no weights for, behind `as`."""
    return "the model computes them" if trace.of_model else "given"


def _below(trace: Trace) -> str:
    layer = trace.projection.layer or 0
    return f"X is the output of layer {layer - 1}." if layer else ""


def _whose(trace: Trace, heads: tuple[Head, ...]) -> str:
    if len(heads) > 1:
        return f" of {len(heads)} heads, side by side"
    return f" of head {safe_name(trace.shown.name)}" if len(trace.head_names) > 1 else ""


def _positions(trace: Trace, heads: tuple[Head, ...], reach: int | None) -> Iterator[InputArray]:
    """Yield what distances add: R and b for those that occur, or the scores that were given."""
    head = heads[0]
    if reach is not None and head.position_biases is not None:
        middle = len(head.position_biases) // 2
        kept = slice(middle - reach, middle + reach + 1)
        R = [one.position_vectors[kept] for one in heads if one.position_vectors is not None]
        b = [one.position_biases[kept] for one in heads if one.position_biases is not None]
        about = "For each distance from query to key, a vector r and a number b."
        yield InputArray("R", np.concatenate(R, axis=1), about, "distances")
        yield InputArray("b", b[0] if len(heads) == 1 else np.stack(b, axis=1), rows="distances")
    elif head.position_scores is not None and head.rotated is None:  # turned vectors have it in them
        about = f"Position scores, as {made_by(trace)}: they are added to the scaled scores."
        yield InputArray("position_scores", head.position_scores, about, "queries")


def _has_one_x(trace: Trace) -> bool:
    return trace.query_tokens == trace.key_tokens and _equal(trace.x_query, trace.x_key)


def _equal(one: Array | Bools | None, other: Array | Bools | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)
