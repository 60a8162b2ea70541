"""What the other layout would change, where a square W fits in both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core import masks
from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.pipeline.build_trace import build_trace
from attn_cli.pipeline.embed import Inputs
from attn_cli.pipeline.project import Layer, project_inputs
from attn_cli.settings.settings import Settings
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given


def note_other_layout(
    trace: Trace,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    mask: masks.Mask | None,
    given: Given | None,
    weights: Given | None,
) -> Trace:
    """Add a note on what the other layout would change, where W fits in both and the file does not say which."""
    if not layer.is_square or trace.condensed:
        return trace
    used = layer.about.layout or "in-out"
    other = {"in-out": "out-in", "out-in": "in-out"}[used]
    try:
        turned, _ = project_inputs(inputs, replace(settings, layout=other), given, weights)
        there = build_trace(trace.kind, inputs, turned, settings, mask, None)
    except InputError:  # W_o or a bias fits in one layout alone
        return trace
    how = {"in-out": "x W", "out-in": "W x"}
    told = f"W is square, so its shape cannot tell its layout: it was read as {used} ({how[used]})."
    change = np.abs(trace.weights - there.weights)
    i, j = (int(n) for n in np.unravel_index(int(change.argmax()), change.shape))
    if change[i, j] > 1e-9:
        here, instead = float(trace.weights[i, j]), float(there.weights[i, j])
        pair = f"{visible(trace.query_tokens[int(trace.rows[i])])} on {visible(trace.key_tokens[j])}"
        told += f" As {other} ({how[other]}), the weight of {pair} would be {instead:.3f}, not {here:.3f}."
    else:
        same = (
            trace.output is not None and there.output is not None and np.allclose(trace.output, there.output)
        )
        told += f" As {other} ({how[other]}), the weights would be the same"
        told += ", and the output too." if same else ", but the output would not."
    return replace(trace, notes=(*trace.notes, told))
