"""Traces of a pretrained model's weights alone, without the scores that made them: those between its words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_cli.models.projection import Projection
from attn_cli.pipeline.attend_heads import ReadyWeights
from attn_cli.pipeline.build_trace import record_trace
from attn_cli.pipeline.embed import Inputs, Side
from attn_cli.pipeline.project import Layer
from attn_cli.pipeline.ready_weights import SelectedWeights, shaped
from attn_cli.settings.settings import Settings
from attn_cli.trace.trace import Trace


def unasked(settings: Settings) -> Settings:
    """Return settings under which a trace holds all that the asked-for one is made of: every row, whole."""
    return replace(settings, query=None, versus=None, top=None, full=True)


def between_words(trace: Trace, settings: Settings) -> Trace:
    """Return the trace with its word pieces joined and its special tokens hidden, as `settings` ask.

    The trace holds every row. What it becomes has no scores: a score belongs to two pieces, and to no word.
    """
    what = "joined to words" if settings.join_pieces else "without special tokens"
    return recorded(trace, shaped(selected(trace), settings), settings, f"the model's weights, {what}")


def selected(trace: Trace) -> SelectedWeights:
    """Return a trace's weights, apart from what made them."""
    return SelectedWeights(
        trace.query_tokens,
        trace.key_tokens,
        trace.head_names,
        trace.shown.name,
        tuple(head.name for head in trace.heads),
        np.array([head.weights for head in trace.heads]),
        trace.mask,
        trace.mask_name,
        trace.projection.layer,
        trace.notes,
    )


def recorded(trace: Trace, found: SelectedWeights, settings: Settings, derived: str) -> Trace:
    """Return a trace of other weights than those of `trace`, made of them; `derived` says how, as a formula would."""
    query = Side(found.query_tokens)
    key = query if trace.is_self else Side(found.key_tokens)
    inputs = Inputs(query, key, True, trace.embedding, notes=found.notes, apart=trace.apart)
    layer = Layer(found.head_names, found.head, (), Projection(trace.projection, ()))
    work = ReadyWeights(found.kept, found.weights, found.mask)
    return replace(record_trace(trace.kind, inputs, layer, settings, work, None), derived=derived)
