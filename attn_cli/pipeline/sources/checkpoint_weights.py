"""The matrices of a pretrained model's layer in its trace: X, W and biases of the heads, W_o and what it makes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attend import output_of
from attn_cli.pipeline.attend import Work
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.models.checkpoints.describe import Stack, Words
    from attn_cli.models.checkpoints.layers import LayerSteps
    from attn_cli.models.checkpoints.run import LayerWeights
    from attn_cli.trace.head import Head


class Read(NamedTuple):
    """A layer's attention as the model computed it, what its heads project with, and the stack it is in."""

    steps: LayerSteps
    weights: LayerWeights
    stack: Stack


def with_weights(trace: Trace, read: Read, layer_output: Array | None) -> Trace:
    """Return the trace with X, its heads' weights and biases, W_o, and the layer's output (n_q, d)."""
    steps, kept, stack = read
    heads = tuple(_with_own(head, kept) for head in trace.heads)
    dtype = trace.settings.dtype
    X, context = steps.projected[0].astype(dtype), steps.context[0].astype(dtype)
    about = trace.projection._replace(
        layout="in-out",
        x_is_normed=steps.projected is not steps.x,
        kv_heads=stack.kv_heads if stack.kv_heads < stack.heads else None,
    )
    return replace(
        trace,
        heads=heads,
        shown=next((head for head in heads if head.name == trace.shown.name), trace.shown),
        x_parts=_parts_of_x(stack.words),
        x_query=X,
        x_key=X if steps.context is steps.projected else context,
        embedding=trace.embedding._replace(dim=X.shape[1]),
        projection=about,
        W_o=kept.W_o,
        b_o=kept.b_o,
        layer_output=layer_output,
    )


def _parts_of_x(words: Words) -> tuple[str, ...]:
    """Return what the input of the first layer is the sum of."""
    parts = {"its token": True, "its place": words.positions or words.sinusoids, "its segment": words.types}
    return tuple(part for part, is_there in parts.items() if is_there)


def _with_own(head: Head, kept: LayerWeights) -> Head:
    return replace(head, W=kept.heads[int(head.name)], qk_norm=kept.qk_norm)


def joined_anew(work: Work, weights: LayerWeights) -> Array | None:
    """Return the layer's output (n_q, d) where its attention is not the model's own; None without a W_o.

    `work` holds all heads of the layer, and the mask, the score and the temperature.
    """
    if weights.W_o is None:
        return None
    outputs = [output_of(work.head_input(head), work.threads, None) for head in work.heads]
    joined: Array = np.concatenate(outputs, axis=1) @ weights.W_o
    return joined if weights.b_o is None else joined + weights.b_o
