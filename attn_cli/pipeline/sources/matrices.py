"""From given matrices to a Trace."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

from attn_cli.core.arguments import check_fit
from attn_cli.core.scores import scale_of
from attn_cli.errors import InputError, UsageError
from attn_cli.models.model_file import load_model, read_weights
from attn_cli.models.projection import (
    Projection,
    given_positions,
    in_out,
    kv_head_count,
    rounded,
    shared,
    split,
    to_digits,
)
from attn_cli.pipeline.embed import wrong_pairing
from attn_cli.pipeline.inputs import Inputs, Side, prepare_inputs
from attn_cli.pipeline.mask import wanted_masks
from attn_cli.pipeline.project import (
    Layer,
    given_biases,
    head_count,
    labels,
    project_inputs,
    sharing_note,
    shown_head,
    with_masks,
)
from attn_cli.pipeline.record import Attended, record
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import unused
from attn_cli.trace.computation import Embedding
from attn_cli.trace.head import Head, Projected
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attn_cli.core.masks import Mask
    from attn_cli.inputs.matrices import Given
    from attn_cli.io.array_types import Array
    from attn_cli.io.progress import OnPart


def trace_matrices(kind: str, given: Given, settings: Settings, report: OnPart | None = None) -> Trace:
    """Turn given matrices, Q, K, V or X with or without W, into a Trace."""
    if given.temperature is not None and settings.temperature == Settings().temperature:
        settings = replace(settings, temperature=given.temperature)
    if given.scores is not None:
        from attn_cli.pipeline.sources.scores import attend_scores  # only for scores that are given

        return record(attend_scores(kind, given, given.scores, settings, report))
    has_qkv = given.get("Q") is not None
    notes = [
        *given.note_of_ignored(),
        *[
            f"{given.name} does not give the number of heads; its weights were read as one head. --heads N splits them."
        ]
        * (given.lacks_head_count and settings.heads is None and not has_qkv),
    ]
    notes += unused(settings, words=False, has_x=not has_qkv)
    settings = replace(
        settings,
        positions=None if has_qkv else settings.positions,
        layout=settings.layout or given.layout,
        score=settings.score or given.score,
    )
    stack = None if settings.projection is None else load_model(settings)
    if stack is not None:
        raise wrong_pairing(stack, f"given by {given.name}")
    if has_qkv:
        inputs, layer = _take_qkv(given, settings)
    else:
        weights = read_weights(settings)
        inputs = prepare_inputs(_take_x(given), settings)
        layer, more = project_inputs(inputs, settings, given, weights)
        notes += more
    masks = wanted_masks(settings, given.mask, inputs, given.name, len(layer.names))
    layer, mask, more = with_masks(_with_scale(layer, given, settings), masks)
    if (other_layout := layer.other_layout) is not None:
        layer = layer._replace(other_layout=lambda: _with_other_layout(other_layout, given, settings, masks))
    inputs = inputs._replace(notes=(*inputs.notes, *notes, *more))
    return record(Attended(kind, inputs, layer, settings, mask, report=report))


def _with_scale(layer: Layer, given: Given, settings: Settings) -> Layer:
    """Return the layer with the scale and the softcap that were given; a scale is noted if it is not the score's."""

    def own(head: Head) -> float | None:
        assert head.q is not None  # it is about to attend
        usual = scale_of(settings.score or "scaled", head.q.shape[1])
        return None if given.scale is None or isclose(given.scale, usual) else given.scale

    heads = tuple(replace(head, scale=own(head), softcap=given.softcap) for head in layer.heads)
    return layer._replace(heads=heads)


def _with_other_layout(
    other_layout: Callable[[], tuple[Layer, list[str]]],
    given: Given,
    settings: Settings,
    masks: Sequence[Mask | None],
) -> tuple[Layer, list[str]]:
    """Return the layer as the other layout of W makes it, with the same masks and the same scale."""
    layer, notes = other_layout()
    return with_masks(_with_scale(layer, given, settings), masks)[0], notes


def _take_x(given: Given) -> Inputs:
    """Take X, and the context where there is one, from given matrices."""
    X = given.get("X")
    if X is None:
        weights = " attn show draws ready weights." if "weights" in given.ignored else ""
        raise InputError(
            f"{given.name} holds neither Q, K, V nor X.", f"Give Q, K and V, or X and W, or scores.{weights}"
        )
    context = given.get("context")
    x_key = X if context is None else context
    if x_key.shape[1] != X.shape[1]:
        raise InputError(
            f"X has shape {X.shape} and context {x_key.shape}: both need equally many columns.",
            "Where W_q, W_k and W_v fit each, give Q = X W_q, K = context W_k and V = context W_v instead.",
        )
    query = Side(labels(given.tokens, len(X), "q", given.name), X)
    key = query
    if context is not None:
        key = Side(labels(given.context_tokens, len(context), "k", given.name), context)
    about = Embedding("given", given.name, X.shape[1], None, None)
    return Inputs(query, key, given.tokens is not None, about, has_second_input=context is not None)


def _take_qkv(given: Given, settings: Settings) -> tuple[Inputs, Layer]:
    """Take Q, K and V as given, their columns split among the heads."""
    if settings.pad:
        raise UsageError(
            f"{given.name} gives Q, K and V themselves: there are no vectors to add padding to.",
            "Give X and W, or leave out --pad.",
            "--pad",
        )
    missing = [name for name in "QKV" if given.get(name) is None]
    if missing:
        raise InputError(f"{given.name} holds Q but no {' and no '.join(missing)}.", "Give Q, K and V.")
    Q, K, V = (given.arrays[name] for name in "QKV")
    count = head_count(settings, given, ("Q", "K", "V"), 1)
    _check_columns(given, Q, K, V, count)
    if settings.round is not None:
        Q, K, V = (to_digits(M, settings.round) for M in (Q, K, V))
    kv_heads = kv_head_count(given, count)
    parts = [shared(split(M, n, 1), count) for M, n in ((Q, count), (K, kv_heads), (V, kv_heads))]
    biases = given_biases(given, settings, (count, len(Q), len(K)))
    positions = given_positions(given, count, parts[1][0].shape[1]) if len(Q) == len(K) else None
    heads = tuple(
        Head(str(h), q=q, k=k, v=v, bias=biases[h], position=positions[h] if positions else None)
        for h, (q, k, v) in enumerate(zip(*parts, strict=True))
    )
    own = given.context_tokens or (given.tokens if len(K) == len(Q) else None)
    inputs = Inputs(
        Side(labels(given.tokens, len(Q), "q", given.name)),
        Side(labels(own, len(K), "k", given.name)),
        given.tokens is not None,
        Embedding("given", given.name, None, None, None),
        has_second_input=given.has_second_input,
        notes=tuple(sharing_note(given, count)),
    )
    W_o = given.get("W_o")
    layout = None if W_o is None else settings.layout or given.layout or "in-out"
    joining = Projection(Projected("given", given.name, layout, None, None), ())
    if W_o is not None:
        joining = joining._replace(W_o=in_out(W_o, layout), b_o=given.get("b_o"))
    if settings.round is not None:
        joining = rounded(joining, settings.round)
    names = tuple(head.name for head in heads)
    return inputs, Layer(names, shown_head(settings.head, names), heads, joining)


def _check_columns(given: Given, Q: Array, K: Array, V: Array, heads: int) -> None:
    """Raise InputError unless Q, K and V fit each other, head by head."""
    kv_heads = kv_head_count(given, heads)
    if kv_heads == heads:
        if heads > 1 and K.shape[1] < Q.shape[1] and Q.shape[1] % K.shape[1] == 0:
            raise InputError(
                f"Q has shape {Q.shape} and K {K.shape}: queries and keys must have the same number of columns.",
                "If heads of Q share those of K and V, say how many K and V have: kv_heads.",
            )
        check_fit(Q, K, V)
    elif Q.shape[1] * kv_heads != K.shape[1] * heads:
        raise InputError(
            f"Q has shape {Q.shape} for {heads} heads and K {K.shape} for {kv_heads}: queries and keys must have the "
            "same number of columns a head."
        )
    elif len(K) != len(V):
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")
