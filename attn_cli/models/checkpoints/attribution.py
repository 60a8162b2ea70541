"""The way of one word's vector through a checkpoint to its logits, for what each part adds to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attn_cli.models.checkpoints.blocks import ACTIVATIONS
from attn_cli.models.checkpoints.layers import Changes
from attn_cli.models.checkpoints.reader import Reader
from attn_cli.models.checkpoints.run import Run
from attn_cli.models.logit_parts import Part, Trail


class Way(NamedTuple):
    """The way of the vector at one place, through the layers and what stands between them and the output table."""

    trail: Trail
    run: Run

    def parts(self, id_: int, against: int | None = None) -> list[Part]:
        """Return what each part adds to the logit of a token, or to its difference from another's, before a softcap."""
        weights, head = self.run.weights, self.run.model.logits
        table, bias, ids = weights.find(*head.tables), weights.find(*head.bias), [id_]
        assert table is not None  # the run has a head
        ids += [] if against is None else [against]
        rows = weights.rows(table, np.array(ids), None, "token").astype(np.float64)
        signs = np.array([1.0, -1.0][: len(ids)])
        parts = self.trail.parts(signs @ rows * head.scale)
        if bias is not None:
            numbers = weights.read(bias, *head.bias_lead, None).reshape(-1)[ids]
            parts.append(Part("output bias", float(signs @ numbers)))
        return parts


def way_of(run: Run, place: int) -> Way:
    """Return the way of the vector at a place of a run's one text; what is left of the run is computed."""
    trail = Trail(place)
    run = run.changed(Changes(trail=trail))
    x, head = trail.row(run.output()), run.model.logits
    stack = list(run.model.stacks.values())[-1]
    reader, width = Reader(run.weights, stack), stack.words.width
    if head.dense:
        W, b = reader.linear_weights(head.dense, len(x), width)
        made = x @ W if b is None else x @ W + b
        active = ACTIVATIONS[head.activation](made[None].astype(np.float32))[0].astype(np.float64)
        trail.mapped(W, b, "output layer bias")
        x, ratio = active, np.divide(active, made, out=np.zeros_like(made), where=made != 0)
        trail.mapped(ratio, None, "output layer bias")
    if head.norm:
        trail.normed(frozen := reader.frozen(head.norm, x), "final norm bias")
        x = frozen.forward(x)
    if head.project:
        trail.mapped(*reader.linear_weights(head.project, len(x), width), "output layer bias")
    return Way(trail, run)
