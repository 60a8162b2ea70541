"""The network after attention: one for each layer, or many of which a router chooses some for each word."""

from __future__ import annotations

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.blocks import ACTIVATIONS, logistic, softmax
from attn_cli.models.checkpoints.describe import Layer
from attn_cli.models.checkpoints.reader import Reader, check_finite

ROLES = ("gate_up", "pairs", "gate", "up", "down")


def network(reader: Reader, layer: Layer, x: Array) -> Array:
    """Return what the network after attention makes of each word by itself."""
    if "router" not in layer.names:
        return _dense(reader, layer, x)
    rows = x.reshape(-1, x.shape[-1])
    found = _chosen(reader, layer, rows)
    if "shared_share" in layer.names:
        counts = logistic(reader.role(layer, "shared_share", rows, 1))
        found += counts * _dense(reader, layer, rows, "shared_")
    return found.reshape(x.shape)


def _chosen(reader: Reader, layer: Layer, rows: Array) -> Array:
    """Return what the experts that the router chooses for each of these words (n, d) make of it together."""
    experts, found = reader.stack.experts, np.zeros_like(rows)
    assert experts is not None  # a layer with a router has them
    shares = softmax(reader.role(layer, "router", rows, experts.number))
    check_finite(f"{visible(reader.weights.folder)}, {layer.place}", shares)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : experts.chosen]
    shares = np.take_along_axis(shares, chosen, axis=-1)
    if experts.is_normed:
        shares /= shares.sum(axis=-1, keepdims=True)
    for n in np.unique(chosen):
        at, rank = np.nonzero(chosen == n)
        made = _dense(reader, layer, rows[at], "expert_", int(n))
        found[at] += shares[at, rank, None] * made
    return found


def _dense(reader: Reader, layer: Layer, x: Array, kind: str = "", number: int = 0) -> Array:
    """Return what a network makes of words: of a layer, or of a `kind` in it, expert_ of this number or shared_."""
    names = {
        role: layer.place + layer.names[kind + role].format(number)
        for role in ROLES
        if kind + role in layer.names
    }
    activation, limit = ACTIVATIONS[reader.stack.activation], None
    if (experts := reader.stack.experts) is not None and experts.clamp is not None:
        activation, limit = experts.clamp.gate, experts.clamp.up
    hidden: Array
    if "gate_up" in names or "pairs" in names:
        name = names.get("gate_up") or names["pairs"]
        both = reader.linear(name, x, None)
        half, odd = divmod(both.shape[-1], 2)
        if odd:
            raise InputError(f"{visible(reader.weights.folder)}: {name} has an odd number of rows.")
        is_paired = "pairs" in names
        gate, up = (both[..., ::2], both[..., 1::2]) if is_paired else (both[..., :half], both[..., half:])
        hidden = activation(gate) * (up if limit is None else limit(up))
    elif "gate" in names:
        hidden = reader.linear(names["gate"], x, None, activation)
        hidden *= reader.linear(names["up"], x, hidden.shape[-1], limit)
    else:
        hidden = reader.linear(names["up"], x, None, activation)
    return reader.linear(names["down"], hidden, reader.stack.d)
