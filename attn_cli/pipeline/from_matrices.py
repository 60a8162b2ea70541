"""From given matrices to a Trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.models.model_file import load_model, read_weights
from attn_cli.pipeline.build_trace import build_trace
from attn_cli.pipeline.embed import prepare_inputs, take_x, wrong_pairing
from attn_cli.pipeline.mask import wanted_mask
from attn_cli.pipeline.project import project_inputs, take_qkv
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import unused
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.core.fast import Report
    from attn_cli.inputs.matrices import Given


def trace_matrices(kind: str, given: Given, settings: Settings, report: Report | None = None) -> Trace:
    """Turn given matrices, Q, K, V or X with or without W, into a Trace."""
    has_qkv = given.get("Q") is not None
    notes = [f"Ignored in {given.name}: {', '.join(given.ignored)}."] if given.ignored else []
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
    weights = None if has_qkv else read_weights(settings)
    if has_qkv:
        if settings.pad:
            raise UsageError(
                f"{given.name} gives Q, K and V themselves: there are no vectors to add padding to.",
                "Give X and W, or leave out --pad.",
                "--pad",
            )
        inputs, layer = take_qkv(given, settings)
    else:
        inputs = prepare_inputs(take_x(given), settings)
        layer, more = project_inputs(inputs, settings, given, weights)
        notes += more
    inputs = inputs._replace(notes=(*inputs.notes, *notes))
    mask = wanted_mask(settings, given.mask, inputs, given.name)
    return build_trace(kind, inputs, layer, settings, mask, report)
