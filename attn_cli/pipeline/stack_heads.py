"""All layers' heads of a model of attn's own (language, roles-deep), for what each of them does on a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.io.escape import shell_quote, visible
from attn_cli.models.encoder import EncoderStack
from attn_cli.models.model_file import load_model
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.every_head import LayerWeights, Source
from attn_cli.pipeline.from_text import settings_for_masked, trace_text
from attn_cli.settings.settings import ALL, Settings
from attn_cli.trace.head_roles import Text
from attn_cli.trace.trace import LARGE, Trace


def stack_layers(kind: str, text: str, context: str | None, settings: Settings) -> Iterator[LayerWeights]:
    """Yield each layer of the learned model that the settings name, over a text; `kind` is self, masked or cross."""
    if load_model(settings) is None:
        raise UsageError(
            f"{visible(str(settings.projection))} has no heads of its own.",
            "Give -p language, roles-deep or roles, or a file that attn learn wrote.",
            "--projection",
        )
    shared = open_shared(settings)
    stack = shared.stack
    assert stack is not None
    sizes = [len(stack.attention(layer).heads) for layer in range(stack.layers)]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"The layers of {stack.name} have {min(sizes)} and {max(sizes)} heads: they do not fit on one map.",
            f"Try attn self TEXT -p {shell_quote(str(settings.projection))} --head all --layer 0.",
            "--projection",
        )
    settings = settings_for_masked(settings) if kind == "masked" else settings
    settings = replace(settings, head=ALL, next=0, full=True)
    for layer in range(stack.layers):
        trace = trace_text(kind, text, context, replace(settings, layer=layer), shared=shared)
        yield _layer(trace, layer, stack)


def _layer(trace: Trace, layer: int, stack: EncoderStack) -> LayerWeights:
    queries, keys = trace.query_tokens, trace.key_tokens
    if len(queries) * len(keys) > LARGE:
        raise UsageError(
            f"{len(queries):,} x {len(keys):,} weights of every head are too many.", "Give a part of it."
        )
    kind = "masked" if trace.mask is not None and trace.kind == "self" else trace.kind
    source = Source(stack.name, kind, queries, keys, Text(queries, keys, not trace.apart))
    allowed = np.ones((len(queries), len(keys)), np.bool_) if trace.mask is None else trace.mask
    weights = np.stack([head.weights for head in trace.heads])
    names = tuple(head.name for head in trace.heads)
    told = [note for name in names if (note := _known(stack, layer, name)) is not None]
    return LayerWeights(source, layer, names, weights, allowed, (*trace.notes, *told))


def _known(stack: EncoderStack, layer: int, head: str) -> str | None:
    """Return what is known of a head on any text, if anything: what it was named for, and how often it does that."""
    facts = stack.learned(layer, head)
    if facts.about is None or facts.accuracy is None or facts.baseline is None:
        return None
    how = "was taught to look" if facts.taught else "is named for looking"
    told = f"Head {visible(head)} of layer {layer} {how} {facts.about}: its strongest link is there in"
    where = f" on held-out text, {visible(facts.scored_on.partition('.')[0])}" if facts.scored_on else ""
    beside = f" (best fixed distance: {facts.baseline:.0%})" if facts.baseline < 1 else ""
    return f"{told} {facts.accuracy:.0%}{where}{beside}."
