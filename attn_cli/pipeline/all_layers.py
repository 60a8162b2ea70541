"""The heads of all layers in one trace, from the traces of each layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.errors import InputError
from attn_cli.settings.settings import ALL, ROLLOUT, Settings
from attn_cli.trace.head import Head
from attn_cli.trace.trace import LARGE, Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools

ROLLOUTS = "weights up to layer n = An ... A1 A0, each A = (mean of the heads + I) / 2"
MOST_CELLS = 1 << 25  # of all heads together: with every step, a gigabyte


def check_all_fit(n_q: int, n_k: int, layers: int, heads: int, settings: Settings) -> None:
    """Raise InputError if all layers' heads are too many numbers to hold at once."""
    drawn = heads if settings.head == ALL else 1
    cells = n_q * n_k * layers * drawn
    if n_q * n_k > LARGE or cells > MOST_CELLS:
        raise InputError(
            f"{n_q:,} x {n_k:,} weights of {layers * drawn:,} heads are too many to show at once.",
            "Give --layer N, or a shorter text; attn heads shows every head of a long one.",
        )


def together(traces: Iterable[Trace], settings: Settings) -> Trace:
    """Return the trace of the last layer with the heads of every layer, each of which says its layer.

    The masks of the layers may differ: each head then holds its own.
    """
    heads: list[Head] = []
    masks: list[Bools | None] = []
    notes: list[tuple[int | None, str]] = []
    for last in traces:
        of_layer = last.heads if settings.head == ALL else (last.shown,)
        heads += (replace(head, layer=last.projection.layer) for head in of_layer)
        masks += [last.mask] * len(of_layer)
        notes += ((last.projection.layer, note) for note in last.notes)
    if any(not _same(mask, last.mask) for mask in masks):
        n_q, n_k = len(last.rows), len(last.key_tokens)
        whole = np.ones((n_q, n_k), np.bool_)
        own = (Mask("its layer's", n_q, n_k, whole if mask is None else mask) for mask in masks)
        heads = [replace(head, mask=mask) for head, mask in zip(heads, own, strict=True)]
        named = last.projection.layer
        notes.append((None, f"The layers' masks differ: the one that is named is that of layer {named}."))
    shown = next(head for head in reversed(heads) if head.name == last.shown.name)
    derived = "the mean of each layer's heads" if last.shown.name == "mean" else last.derived
    if settings.head == ROLLOUT:
        derived = ROLLOUTS
    told = _told_once(notes)
    return replace(last, settings=settings, heads=tuple(heads), shown=shown, notes=told, derived=derived)


def _told_once(notes: list[tuple[int | None, str]]) -> tuple[str, ...]:
    """Return the notes of all layers: each once, with its layers where not all have it."""
    layers = {layer for layer, _ in notes if layer is not None}
    found = dict[str, list[int | None]]()
    for layer, note in notes:
        found.setdefault(note, []).append(layer)
    return tuple(
        note if None in given or set(given) == layers else f"Layer {', '.join(map(str, given))}: {note}"
        for note, given in found.items()
    )


def _same(one: Bools | None, other: Bools | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))
