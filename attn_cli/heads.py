"""One layer's heads with Q, K and V made: from given ones, or from X and a projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli import model
from attn_cli.errors import InputError, UsageError
from attn_cli.files import looks_like_file
from attn_cli.inputs import Inputs, given_labels
from attn_cli.trace import Embedding, Projected, Settings
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Array
    from attn_cli.matrices import Given


class Ready(NamedTuple):
    """One head with its queries, keys and values made: all that attention itself needs."""

    name: str
    weights: model.HeadWeights | None
    q: Array
    k: Array
    v: Array
    bias: Array | None = None


class Layer(NamedTuple):
    """The heads to attend with, where they came from, and the projection that joins them."""

    about: Projected
    heads: tuple[Ready, ...]
    projection: model.Projection | None = None


def given_qkv(given: Given, settings: Settings) -> tuple[Inputs, Layer]:
    """Take Q, K and V as given, their columns split among the heads."""
    missing = [name for name in "QKV" if given.get(name) is None]
    if missing:
        raise InputError(f"{given.name} holds Q but no {' and no '.join(missing)}.", "Give Q, K and V.")
    Q, K, V = (given.arrays[name] for name in "QKV")
    if Q.shape[1] != K.shape[1]:
        raise InputError(
            f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns."
        )
    if len(K) != len(V):
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")
    heads = settings.heads or 1
    parts = [model.split(M, heads, 1) for M in (Q, K, V)]
    ready = tuple(
        Ready(str(h), None, parts[0][h], parts[1][h], parts[2][h], given.get("position_scores"))
        for h in range(heads)
    )
    query_tokens = given_labels(given.tokens, len(Q), "q", given.name)
    own = given.context_tokens or (given.tokens if len(K) == len(Q) else None)
    inputs = Inputs(
        query_tokens,
        given_labels(own, len(K), "k", given.name),
        given.tokens is not None,
        None,
        None,
        Embedding("given", given.name, None, None, None),
    )
    about = Projected("given", given.name, None, None, None)
    return inputs, Layer(about, ready)


def projected(inputs: Inputs, settings: Settings, given: Given | None) -> tuple[Layer, list[str]]:
    """Choose the projection and make Q, K and V; return also what is to be noted."""
    assert inputs.x_query is not None and inputs.x_key is not None
    d = inputs.x_query.shape[1]
    name, notes = settings.projection, []
    if (
        name is None
        and given is not None
        and not any(given.get(W) is not None for W in ("W_q", "W_k", "W_v"))
    ):
        name = "identity"
    if name is None and given is None:
        name = "random" if inputs.embedding.source == "random" else "identity"
    heads = settings.heads or 1
    if name == "identity":
        projection = model.identity(d, heads)
    elif name == "random":
        projection = model.random(d, heads, settings.seed)
    else:
        source = "given" if name is None else "file"
        weights = given if name is None else _projection_file(name)
        assert weights is not None
        layout = settings.layout or weights.layout or "in-out"
        projection = model.from_given(weights, settings.heads or weights.heads or 1, layout, source)
        _check_projection(inputs, weights, layout)
        W_q = weights.arrays["W_q"]
        if source == "file" and W_q.shape[0] == W_q.shape[1]:
            notes.append(f"W is square, so its shape cannot tell its layout; it was read as {layout}.")
        ignored = [*weights.ignored, *weights.beside_weights] if source == "file" else []
        if ignored:
            notes.append(f"Ignored in {weights.name}: {', '.join(ignored)}.")
    layout = projection.about.layout or "in-out"
    with np.errstate(over="ignore", invalid="ignore"):
        ready = _ready(projection, inputs.x_query, inputs.x_key, layout, given)
    return Layer(projection.about, ready, projection), notes


def _ready(
    projection: model.Projection, x_query: Array, x_key: Array, layout: str, given: Given | None
) -> tuple[Ready, ...]:
    ready = tuple(
        Ready(
            head.name,
            head,
            head.queries(x_query, layout),
            head.keys(x_key, layout),
            head.values(x_key, layout),
            None if given is None else given.get("position_scores"),
        )
        for head in projection.heads
    )
    for head in ready:
        for name, made in (("W_q", head.q), ("W_k", head.k), ("W_v", head.v)):
            if not np.isfinite(made).all():
                raise InputError(
                    f"{name} times the vectors is more than a number can hold.", "Scale them down."
                )
    return ready


def _projection_file(name: str) -> Given:
    if not looks_like_file(name):
        raise UsageError(
            f"There is no projection {visible(name)!r}.",
            "Projections are identity, random, or a file (with a slash or a suffix such as .json).",
            option="--projection",
        )
    from attn_cli.matrices import read_given  # only those who give a file need it

    return read_given(name)


def _check_projection(inputs: Inputs, weights: Given, layout: str) -> None:
    axis, side = (0, "rows") if layout == "in-out" else (1, "columns")
    sides = (("W_q", inputs.x_query), ("W_k", inputs.x_key), ("W_v", inputs.x_key))
    for name, X in sides:
        W = weights.arrays[name]
        if X is not None and W.shape[axis] != X.shape[1]:
            raise InputError(
                f"X has shape {X.shape} and {name} {W.shape}: with layout {layout}, {name} needs as many "
                f"{side} as X has columns.",
                "Change the vectors, the weights or --layout.",
            )
