"""Attention weights as Python programs hold them: arrays, lists, and the tensors of any library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import InputError
from attn_cli.inputs.saved_weights import Saved, labelled
from attn_cli.inputs.weight_axes import block, stacked, strings, with_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME, KEY = "the array", "weights"


def weights_in_memory(
    weights: object,
    tokens: str | Sequence[str] | None,
    context_tokens: str | Sequence[str] | None,
    batch: int | None = None,
) -> Saved:
    """Return weights with their tokens, checked as those of a file are; of several heads and layers all are shown."""
    found = with_axes(_array(weights), KEY, NAME, batch)
    layers, heads = found.shape[:2]
    saved = Saved(
        NAME,
        found,
        tuple(map(str, range(heads))),
        head="all" if heads > 1 else None,
        shows_layers=layers > 1,
    )
    queries, keys = _tokens(tokens, "tokens"), _tokens(context_tokens, "context_tokens")
    saved = labelled(saved, queries, None, "tokens holds")
    return labelled(saved, None, keys, "context_tokens holds")


def _array(value: object) -> NDArray[Any]:
    """Return numbers of any kind as an array; arrays in a tuple or a list are those of the layers."""
    if isinstance(value, (list, tuple)) and value and _is_array(value[0]):
        parts = [block(_alone(part), KEY, NAME) for part in value]
        return stacked(parts, [f"layer {n}" for n in range(len(parts))], NAME)
    return block(_alone(value), KEY, NAME)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "detach") or hasattr(value, "__array__")


def _alone(value: object) -> object:
    """Return a tensor as an array: without its gradient, from its device, and bfloat16 as float32."""
    detach: Any = getattr(value, "detach", None)
    if callable(detach):
        tensor = detach()
        if "bfloat16" in str(getattr(tensor, "dtype", "")):  # NumPy has no such type
            tensor = tensor.float()
        return tensor.cpu().numpy()
    if _is_array(value):
        found = np.asarray(value)
        return found.astype(np.float32) if found.dtype.name == "bfloat16" else found
    return value


def _tokens(value: str | Sequence[str] | None, name: str) -> tuple[str, ...] | None:
    """Return tokens: those of a list, or words between spaces."""
    if value is None:
        return None
    found = strings(value.split() if isinstance(value, str) else list(value), name)
    if not found:
        raise InputError(f"{name} holds no token.", "Give one for each query.")
    return found
