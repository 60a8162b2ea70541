"""What a script needs to recompute a trace: the arrays it starts from, and the facts its steps depend on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attn_cli.core.masks import named
from attn_cli.errors import UsageError
from attn_cli.io.plural import count
from attn_cli.render.code.arrays import (
    HAND_SIZED,
    InputArray,
    equal,
    has_one_x,
    inputs,
    joining,
    joins_heads,
    listed_mask,
    positions,
    vectors,
)
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

MOST_TOKENS = 200
MOST_NUMBERS = 20_000
TINY, HUGE = 1e-9, 1e100  # beyond these, squares lose what they are made of


class ScriptPlan(NamedTuple):
    """How to get from the arrays it starts from to a trace's weights and output, in any framework.

    Several heads have their columns side by side in the arrays.
    """

    trace: Trace
    heads: tuple[Head, ...]  # those to compute
    arrays: tuple[InputArray, ...]
    start: str  # X, identity, QKV
    context: str  # what K and V are made of: X, or context
    columns: tuple[int, int] | None  # of X, where one head of an identity projection takes a share
    shared_values: bool  # all heads have the same V
    reach: int | None  # of a learned position term
    rule: str | None  # the mask's name, where that says all
    has_empty_row: bool  # some query may look at nothing
    is_extreme: bool  # some numbers are too large or too small to be squared

    def has(self, name: str) -> bool:
        """Tell whether an array of that name is given."""
        return any(one.name == name for one in self.arrays)

    @property
    def one_text(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.trace.query_tokens == self.trace.key_tokens

    @property
    def several(self) -> bool:
        """Whether several heads are computed."""
        return len(self.heads) > 1


def plan_script(trace: Trace) -> ScriptPlan:
    """Return how to recompute a trace; raise UsageError if no script can, or only one too long to read."""
    is_one = trace.settings.head not in ("all", "mean") and not joins_heads(trace)
    heads = (trace.shown,) if is_one else trace.heads
    _check_tokens(trace)
    queries_and_keys = [M for head in heads for M in (head.q, head.k) if M is not None]
    if trace.condensed or len(queries_and_keys) < 2 * len(heads):
        raise UsageError(
            "There are no queries and keys here to compute these weights from.", "Use -f json.", "--format"
        )
    start, rule = _start(trace, heads), _rule(trace)
    shared = len(heads) > 1 and start == "QKV" and all(equal(head.v, heads[0].v) for head in heads)
    biases = heads[0].position_biases
    furthest = max(len(trace.query_tokens), len(trace.key_tokens)) - 1
    reach = None if biases is None else min(len(biases) // 2, furthest)
    arrays = (
        *(vectors(trace, heads, shared) if start == "QKV" else inputs(trace, heads, start)),
        *positions(heads, reach),
        *listed_mask(trace, rule),
        *joining(trace),
    )
    _check_size(trace, sum(one.array.size for one in arrays), len(heads))
    sizes = np.concatenate([np.abs(M).max(axis=-1) for M in queries_and_keys]).astype(np.float64)
    return ScriptPlan(
        trace=trace,
        heads=heads,
        arrays=arrays,
        start=start,
        context="X" if has_one_x(trace) else "context",
        columns=_share(trace) if start == "identity" and len(heads) == 1 else None,
        shared_values=shared,
        reach=reach,
        rule=rule,
        has_empty_row=any(not head.weights.any(axis=-1).all() for head in heads),
        is_extreme=bool(((sizes > 0) & (sizes < TINY) | (sizes > HUGE)).any()),
    )


def _check_tokens(trace: Trace) -> None:
    n = max(len(trace.query_tokens), len(trace.key_tokens))
    if n > MOST_TOKENS:
        raise UsageError(
            f"A script of {n:,} tokens would be too long to read; it holds at most {MOST_TOKENS}.",
            "Give a shorter text, or use -f json --steps.",
            "--format",
        )


def _check_size(trace: Trace, numbers: int, heads: int) -> None:
    if numbers > MOST_NUMBERS:
        fewer = "one head (--head NAME), " if heads > 1 and not joins_heads(trace) else ""
        many = f" and {heads} heads" if heads > 1 else ""
        raise UsageError(
            f"A script of {numbers:,} numbers would be too long to read; it holds at most {MOST_NUMBERS:,}. "
            f"Here are {count(len(trace.key_tokens), 'key', 'keys')}{many}.",
            f"Give a shorter text, {fewer}or use -f json --steps.",
            "--format",
        )


def _start(trace: Trace, heads: tuple[Head, ...]) -> str:
    """Return what the script starts from: X and W if W is small or smaller than Q, K and V, else QKV."""
    if trace.x_query is None or trace.x_key is None or heads[0].W_q is None:
        return "QKV"
    if trace.projection.source == "identity":
        return "identity"
    weights = sum(W.size for head in heads for W in (head.W_q, head.W_k, head.W_v) if W is not None)
    made = sum(M.size for head in heads for M in (head.q, head.k, head.v) if M is not None)
    return "X" if weights <= HAND_SIZED or weights + trace.x_query.size <= made else "QKV"


def _rule(trace: Trace) -> str | None:
    """Return the mask's name if it is that of a rule that makes the same mask."""
    try:
        mask = named(trace.mask_name, len(trace.query_tokens), len(trace.key_tokens))
    except UsageError:
        return None
    is_rule = mask is not None and trace.mask is not None and equal(mask.rows(trace.rows), trace.mask)
    return trace.mask_name if is_rule else None


def _share(trace: Trace) -> tuple[int, int] | None:
    """Return which columns of X the shown head of an identity projection takes; None if all."""
    if len(trace.head_names) == 1 or trace.shown.q is None:
        return None
    width = trace.shown.q.shape[1]
    start = trace.head_names.index(trace.shown.name) * width
    return start, start + width
