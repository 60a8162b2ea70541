"""From ready weights to a Trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.pipeline.attend_heads import ReadyWeights
from attn_cli.pipeline.build_trace import record_trace
from attn_cli.pipeline.embed import Inputs, Side
from attn_cli.pipeline.mask import stated_mask
from attn_cli.pipeline.project import Layer
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import unused
from attn_cli.trace.trace import Embedding, Projected, Trace

if TYPE_CHECKING:
    from attn_cli.inputs.saved_weights import Saved
    from attn_cli.pipeline.ready_weights import Shaping


def trace_weights(kind: str, saved: Saved, settings: Settings, shaping: Shaping | None = None) -> Trace:
    """Turn ready weights into a Trace: nothing is computed anew, and only attn's own JSON brings steps along.

    `shaping` says what becomes of word pieces and special tokens.
    """
    # Only who has ready weights needs these.
    from attn_cli.pipeline.ready_weights import select_weights
    from attn_cli.pipeline.reread import with_saved_steps

    settings = replace(settings, head=settings.head or saved.head)
    n_q, n_k = saved.weights.shape[-2:]
    mask = stated_mask(settings, saved.mask, n_q, n_k, saved.name)
    if mask is not None and mask.array is not None and settings.mask is None:
        mask = mask._replace(name=saved.mask_name or "as given")
    is_stated = settings.mask is not None or saved.mask is not None
    found = select_weights(saved, settings, mask, is_stated, shaping)
    notes = (*saved.notes, *found.notes, *unused(settings, words=False, learned=True))
    about = Embedding("given", saved.name, None, None, None)
    inputs = Inputs(
        Side(found.query_tokens),
        Side(found.key_tokens),
        saved.has_text,
        about,
        *saved.looked_up,
        notes=notes,
        apart=(saved.record or {}).get("kind") == "cross",
    )
    layer = Layer(Projected("given", saved.name, None, None, found.layer), found.head_names, found.head, ())
    work = ReadyWeights(found.kept, found.weights, found.mask)
    trace = record_trace(kind, inputs, layer, settings, work, None)
    return trace if saved.record is None or found.is_shaped else with_saved_steps(trace, saved.record)
