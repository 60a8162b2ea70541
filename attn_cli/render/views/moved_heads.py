"""Which heads and next words differ between two models, or heads between two texts on a screen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.escape import count
from attn_cli.render.blocks import Block, Columns, Heading, Links, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.text.wordpieces import SPACE

if TYPE_CHECKING:
    from attn_cli.teach.moved import Moved

RANKED = 8  # heads that are named
SMALL = 0.01  # bits: where no head moved by more, the map has a smaller unit


def blocks(moved: Moved, labels: Sequence[str]) -> Iterator[Block]:
    """Yield the map of all heads, those that moved most, and the next words."""
    if moved.heads[0].divergence:
        yield from _map(moved)
    if moved.words:
        yield Heading(f"Next words that moved most, {moved.where}")
        seen = [(word.replace(" ", SPACE), *both) for word, _, both in moved.words]
        rows = [(word, share(a), share(b), f"{b - a:+.2g}") for word, a, b in seen]
        yield Columns(("", *labels, "change"), rows)
    yield from (Say(f"Note: {note}") for note in moved.notes)


def finding(moved: Moved, labels: Sequence[str]) -> str:
    """Return which head moved most, and how much all did, in a sentence."""
    between, first = f"between {labels[0]} and {labels[1]}", moved.heads[0]
    over = f"over {len(moved.queries):,} queries x {len(moved.keys):,} keys that both have"
    if len(moved.keys) < 2 or not moved.queries:
        return f"Fewer than two tokens are the same {between}: no head can be measured."
    heads, by = count(len(moved.heads), "head", "heads"), share(first.divergence)
    if not first.divergence:
        return f"None of {heads} differs {between}, {over}."
    mean = share(sum(one.divergence for one in moved.heads) / len(moved.heads))
    most = f"Head {first.head} of layer {first.layer} differs most {between}: {by} of at most 1 bit"
    return f"{most}, {over}; the mean of {heads} is {mean}."


def _map(moved: Moved) -> Iterator[Block]:
    ordered = sorted(moved.heads, key=lambda one: (one.layer, int(one.head)))
    layers, most = ordered[-1].layer + 1, moved.heads[0].divergence
    unit = 10.0 ** (math.floor(math.log10(most)) + 1) if most < SMALL else 1.0
    values = np.array([one.divergence / unit for one in ordered]).reshape(layers, -1)
    names = [*map(str, range(values.shape[1])), "mean"]
    values = np.column_stack([values, values.mean(axis=1)])
    in_units = "bits, 0 to 1" if unit == 1 else f"units of {unit:g} bits"
    yield Heading(f"How much each head differs: Jensen-Shannon divergence in {in_units}")
    yield Matrix([*map(str, range(layers))], names, values, "layer\\head", is_weights=True, shaded=True)
    some = [one for one in moved.heads[:RANKED] if one.divergence]
    yield Links([("layer.head", [(f"{one.layer}.{one.head}", share(one.divergence)) for one in some])])
    yield Say("The mean over rows; 0 is the same weights, 1 is no key in common.", quiet=True)
