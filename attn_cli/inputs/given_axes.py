"""Leading axes of given matrices: the item of a batch that is taken, and heads laid side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.arguments import check_fit
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.given_scores import SCORES

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

# How many axes each has where a batch comes first.
BATCHED = dict.fromkeys(("Q", "K", "V", *SCORES, "mask", "position_scores"), 4) | {"X": 3, "context": 3}
PROJECTIONS = ("W_q", "W_k", "W_v")


def item_of_batch(arrays: Mapping[str, Array], batch: int | None, name: str) -> dict[str, Array]:
    """Return the arrays without their batch axis: of item `batch`, or of the only one.

    Raises InputError for a batch of several where none is chosen, UsageError for an item that there is not.
    """
    batched = {key: each for key, each in arrays.items() if each.ndim == BATCHED.get(key)}
    if not batched:
        if batch is not None:
            shapes = ", ".join(
                f"{key} has shape {each.shape}" for key, each in arrays.items() if key in BATCHED
            )
            raise UsageError(f"--batch {batch}: {name} has no batch ({shapes}).", option="--batch")
        return dict(arrays)
    largest = max(batched, key=lambda key: len(batched[key]))
    size = len(batched[largest])
    for key, each in batched.items():
        if len(each) not in (1, size):
            raise InputError(
                f"{name}: {largest} has shape {batched[largest].shape} and {key} {each.shape}: their batches differ."
            )
    if batch is None and size > 1:
        raise InputError(
            f"{name}: {largest} has shape {batched[largest].shape}, a batch of {size}.",
            f"--batch N (of attn compute) takes one of them, 0 to {size - 1}.",
        )
    if batch is not None and not 0 <= batch < size:
        raise UsageError(f"--batch cannot be {batch}.", f"{name} has 0 to {size - 1}.", "--batch")
    return {
        key: each[min(batch or 0, len(each) - 1)] if key in batched else each for key, each in arrays.items()
    }


def heads_side_by_side(
    arrays: Mapping[str, Array], name: str
) -> tuple[dict[str, Array], tuple[int, int] | None]:
    """Return Q, K and V (heads, n, d) as (n, heads x d), and how many heads there are of Q, and of K and V.

    These numbers are also those of W_q, W_k and W_v with one matrix a head, which stay; None where no head has an
    axis of its own.
    """
    made, found = dict(arrays), None
    for names in (("Q", "K", "V"), PROJECTIONS):
        stacks = {key: arrays[key] for key in names if key in arrays and arrays[key].ndim == 3}
        if not stacks:
            continue
        found = _head_counts({key: arrays[key] for key in names if key in arrays}, name)
        if names != PROJECTIONS:
            if len(stacks) == 3:
                check_fit(*stacks.values())
            made |= {key: np.concatenate(list(each), axis=-1) for key, each in stacks.items()}
    return made, found


def _head_counts(stacks: Mapping[str, Array], name: str) -> tuple[int, int]:
    """Return how many heads there are of queries, and of keys and values."""
    (first, one), *others = stacks.items()
    single = next((key for key, each in stacks.items() if each.ndim != 3), None)
    if single is not None:
        other, stack = next((key, each) for key, each in stacks.items() if each.ndim == 3)
        raise InputError(
            f"{name}: {other} has shape {stack.shape}, one matrix a head, and {single} {stacks[single].shape}: "
            "give all alike."
        )
    heads, shared = len(one), len(others[0][1]) if others else len(one)
    for key, each in others:
        if heads % len(each):
            raise InputError(
                f"{name}: {first} has shape {one.shape} and {key} {each.shape}: both need one matrix for each head.",
                f"Heads of {first} may share {key}, if they are a multiple of its heads.",
            )
        if len(each) != shared:
            other, its = others[0]
            raise InputError(
                f"{name}: {other} has shape {its.shape} and {key} {each.shape}: both need one matrix for each head."
            )
    return heads, shared
