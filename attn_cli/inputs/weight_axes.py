"""Saved weights as an array, and which of its axes are layers, heads, queries and keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray


def axes(value: object, key: str, name: str, batch: int | None) -> NDArray[Any]:
    """Return weights as (layers, heads, n_q, n_k).

    Two axes are a matrix, three its heads, four the layers; five are (layers, batch, heads, n_q, n_k), as
    `torch.stack(outputs.attentions)` has them.
    """
    found = block(value, key, name)
    if not 2 <= found.ndim <= 5 or 0 in found.shape:
        raise InputError(
            f"{name}: {visible(key)} has shape {found.shape}.",
            "Weights are (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k), and no axis is empty.",
        )
    if found.ndim < 5:
        if batch:
            raise UsageError(
                f"--batch {batch}: {name} has no batch: its shape is {found.shape}.", option="--batch"
            )
        return found.reshape((1,) * (4 - found.ndim) + found.shape)
    texts = found.shape[1]
    if batch is None and texts > 1:
        raise InputError(
            f"{name} has shape {found.shape}: (layers, batch, heads, n_q, n_k) with {texts} texts.",
            f"--batch N takes one of them, 0 to {texts - 1}.",
        )
    if batch is not None and not 0 <= batch < texts:
        raise UsageError(f"--batch cannot be {batch}.", f"{name} has 0 to {texts - 1}.", "--batch")
    return found[:, batch or 0]


def stacked(parts: list[NDArray[Any]], names: Sequence[str], name: str) -> NDArray[Any]:
    """Stack arrays along a new first axis; raise InputError where their shapes differ."""
    for other, part in zip(names, parts, strict=True):
        if part.shape != parts[0].shape:
            raise InputError(
                f"{name}: {visible(names[0])} has shape {parts[0].shape}, {visible(other)} {part.shape}.",
                "All need the same tokens; --array NAME takes one array.",
            )
    return np.stack(parts)


def block(value: object, key: str, name: str) -> NDArray[Any]:
    """Return numbers as an array; raise InputError, with the place, where they are not one."""
    try:
        found = np.asarray(value)
    except ValueError:
        found = np.array(None)
    if found.dtype.kind not in "iufb":
        place = _crooked(value)
        raise InputError(
            f"{name}: {visible(key)} is not a block of numbers{place}.", "Give rows of equally many numbers."
        )
    return found


def _crooked(value: object, at: str = "") -> str:
    """Return in words the first place where nested lists do not form an array."""
    if not isinstance(value, list):
        is_number = isinstance(value, (int, float))
        return "" if is_number or not at else f": {visible(json.dumps(value)[:40])} stands at {at.strip()}"
    lengths = [len(part) if isinstance(part, list) else -1 for part in value]
    for place, length in enumerate(lengths):
        if length != lengths[0]:
            sizes = [f"{n} numbers" if n >= 0 else "no list" for n in (lengths[0], length)]
            return f": {at}[0] has {sizes[0]}, {at}[{place}] {sizes[1]}"
    return next(filter(None, (_crooked(part, f"{at}[{i}]") for i, part in enumerate(value))), "")
