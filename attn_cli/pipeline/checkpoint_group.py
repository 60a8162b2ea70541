"""Texts of one length go through a pretrained model together; each has its own trace, as by itself.

The matrices of a layer meet all texts at once, so numbers may differ from those of a text by itself in the last bits
of float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attn_cli.models.checkpoints.blocks import Ready, Unturned
from attn_cli.models.checkpoints.layers import LayerSteps
from attn_cli.pipeline.project import wanted_layer
from attn_cli.settings.settings import ALL, ROLLOUT

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.from_checkpoint import Reading
    from attn_cli.settings.settings import Settings
    from attn_cli.trace.trace import Trace


def can_be_grouped(settings: Settings, keep_weights: bool) -> bool:
    """Tell whether one layer is all that is asked for."""
    is_one = settings.layer != ALL and settings.head != ROLLOUT
    return is_one and not settings.next and not keep_weights


def traces_of_group(readings: Sequence[Reading], settings: Settings) -> Iterator[Trace]:
    """Yield the trace of each text; all have the same lengths, and `can_be_grouped` has allowed the settings."""
    first = readings[0]
    number = wanted_layer(settings, len(first.run.model.stacks[first.side].layers), first.name)
    together = first.run.beside([reading.run for reading in readings[1:]])
    *_, steps = first._replace(run=together).layers(number)
    for at, reading in enumerate(readings):
        alone = reading._replace(run=reading.run.with_step(_of_text(steps, at)))
        yield next(alone.traces(settings, number))


def _of_text(steps: LayerSteps, at: int) -> LayerSteps:
    """Return the attention of one of the texts."""
    own = slice(at, at + 1)

    def part(M: Array) -> Array:
        return M[own] if len(M) > 1 else M  # what all texts share has one entry

    q, k, v, scale, position, softcap, mask = steps.ready
    position = None if position is None else part(position)
    mask = mask[own] if mask is not None and len(mask) > 1 else mask
    ready = Ready(part(q), part(k), part(v), scale, position, softcap, mask)
    unturned = steps.unturned
    if unturned is not None:
        places = unturned.places[own] if len(unturned.places) > 1 else unturned.places
        unturned = Unturned(part(unturned.q), part(unturned.k), unturned.rotary, places)
    made = (part(steps.x), part(steps.projected), part(steps.context))
    return LayerSteps(steps.side, steps.layer, steps.kind, *made, ready, unturned, steps.where)
