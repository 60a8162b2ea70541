"""The arrays that a script starts from, each with the comment above it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.render.code.literals import safe_name
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

HAND_SIZED = 432  # numbers in W_q, W_k and W_v together, or in W_o, that a reader takes in: three of 12 x 12


class InputArray(NamedTuple):
    """An array that the script starts from; `rows` are its rows' labels: tokens of a side, or distances."""

    name: str
    array: Array | Bools
    about: str = ""  # the comment above it
    rows: str = ""  # queries, keys, distances


def joins_heads(trace: Trace) -> bool:
    """Tell whether the heads' outputs are joined by a W_o small enough to be written out."""
    return trace.W_o is not None and trace.W_o.size <= HAND_SIZED


def inputs(trace: Trace, heads: tuple[Head, ...], start: str) -> Iterator[InputArray]:
    """Yield X, the context's vectors, and the weights and biases, those of several heads side by side."""
    assert trace.x_query is not None and trace.x_key is not None
    below = _below(trace)
    text = "" if has_one_x(trace) else " of the text"
    yield InputArray("X", trace.x_query, f"A vector for each token{text}.{below and ' ' + below}", "queries")
    if not has_one_x(trace):
        yield InputArray("context", trace.x_key, "A vector for each token of the context.", "keys")
    if start == "identity":
        return
    axis = 1 if trace.projection.layout == "in-out" else 0
    shape = "(in, out)" if axis else "(out, in)"
    about = f"The weights, {shape}{_whose(trace, heads)}."
    for name in ("W_q", "W_k", "W_v"):
        yield InputArray(name, np.concatenate([getattr(head, name) for head in heads], axis=axis), about)
        about = ""
    about = "The biases."
    for name in ("b_q", "b_k", "b_v"):
        if getattr(heads[0], name) is not None:
            yield InputArray(name, np.concatenate([getattr(head, name) for head in heads]), about)
            about = ""


def vectors(trace: Trace, heads: tuple[Head, ...], shared: bool) -> Iterator[InputArray]:
    """Yield Q, K and V, those of several heads side by side."""
    about = _origin(trace, heads)
    for name, field, rows in (("Q", "q", "queries"), ("K", "k", "keys"), ("V", "v", "keys")):
        kept = heads[:1] if shared and name == "V" else heads
        yield InputArray(name, np.concatenate([getattr(head, field) for head in kept], axis=1), about, rows)
        about = ""


def _origin(trace: Trace, heads: tuple[Head, ...]) -> str:
    """Return where Q, K and V come from, and why they are written out."""
    head = heads[0]
    if head.W_q is None or head.W_v is None:
        return f"Queries, keys and values, as given{_whose(trace, heads)}."
    turned = "^T" if trace.projection.layout == "out-in" else ""
    same = equal(head.W_v, np.eye(len(head.W_v)))
    other = "X" if has_one_x(trace) else "context"
    made = [
        f"{letter.upper()} = {x} W_{letter}{turned}{'' if getattr(head, f'b_{letter}') is None else f' + b_{letter}'}"
        for letter, x in (("q", "X"), ("k", other), ("v", other))
    ]
    if same and head.b_v is None:
        made[2] = f"V = {other}"
    rows, columns = head.W_q.shape
    return (
        f"Queries, keys and values{_whose(trace, heads)}: {', '.join(made)}. They are written out because W_q and W_k "
        f"of {safe_name(trace.projection.name or 'the model')} have {rows} x {columns} numbers each. {_below(trace)}"
    ).strip()


def _below(trace: Trace) -> str:
    """Return what X is where it is not the words' vectors themselves."""
    layer = trace.projection.layer or 0
    if not layer:
        return ""
    return f"X is what {'layer 0 makes' if layer == 1 else f'layers 0 to {layer - 1} make'} of the words."


def _whose(trace: Trace, heads: tuple[Head, ...]) -> str:
    if len(heads) > 1:
        return f" of {len(heads)} heads side by side"
    return f" of head {safe_name(trace.shown.name)}" if len(trace.head_names) > 1 else ""


def positions(heads: tuple[Head, ...], reach: int | None) -> Iterator[InputArray]:
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
    elif head.position_scores is not None:
        about = "Position scores, as given: they are added to the scaled scores."
        yield InputArray("position_scores", head.position_scores, about, "queries")


def listed_mask(trace: Trace, rule: str | None) -> Iterator[InputArray]:
    """Yield the mask itself where no rule makes it."""
    if trace.mask is not None and rule is None:
        yield InputArray("mask", trace.mask, "The mask.", "queries")


def joining(trace: Trace) -> Iterator[InputArray]:
    """Yield W_o and b_o where the heads' outputs are joined."""
    if joins_heads(trace) and trace.W_o is not None:
        yield InputArray("W_o", trace.W_o, "What joins_heads the heads' outputs.")
        if trace.b_o is not None:
            yield InputArray("b_o", trace.b_o)


def has_one_x(trace: Trace) -> bool:
    """Tell whether keys and values are made of the same X as the queries."""
    return trace.query_tokens == trace.key_tokens and equal(trace.x_query, trace.x_key)


def equal(one: Array | Bools | None, other: Array | Bools | None) -> bool:
    """Tell whether two arrays are the same, or both are missing."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
