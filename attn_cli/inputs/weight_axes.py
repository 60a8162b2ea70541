"""The axes of saved weights: layers, a batch, heads, queries and keys; and the tokens that label them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_cli.errors import InputError, as_utf8, count, listed, refuse, visible
from attn_cli.inputs.record import Record, json_of, numbers_in, one_of, strings, texts
from attn_cli.io.files import looks_like_file, read_bytes
from attn_cli.io.types import NamedTuple, NDArray

MOST_BYTES = 1 << 28
# The names under which a record holds tokens, of queries and of keys; attn's own JSON has the first alone.
LABELS = (("query_tokens", "tokens"), ("key_tokens", "context_tokens"))
_SIDES = (("query (row)", "queries (rows)"), ("key (column)", "keys (columns)"))
_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})")


def is_block(value: object) -> bool:
    """Tell whether a value may be weights: an array of two axes or more, or a list of lists of numbers."""
    if isinstance(value, np.ndarray):
        return value.ndim >= 2 and value.dtype.kind in "iufb"
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    return depth >= 2 and isinstance(value, (int, float))


def numbered_layers(names: list[str], name: str) -> list[str]:
    """Return names that differ only in a number, as layer_0, in its order; none if there are others."""
    found = {key: _NUMBERED.fullmatch(key) for key in names}
    parts = {key: (match[1], int(match[2])) for key, match in found.items() if match}
    if len(parts) != len(names) or len({prefix for prefix, _ in parts.values()}) != 1:
        return []
    ordered = sorted(names, key=lambda key: parts[key][1])
    numbers = [parts[key][1] for key in ordered]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise InputError(f"{name} lacks a layer: it holds {listed(ordered)}.", "--array NAME takes one.")
    return ordered


def with_axes(value: object, key: str, name: str, batch: int | None = None) -> NDArray[Any]:
    """Return weights as (layers, heads, n_q, n_k), those of text `batch` where that is given.

    Two axes are a matrix, three its heads, four the layers; five are (layers, batch, heads, n_q, n_k), as
    `torch.stack(outputs.attentions)` has them. With `batch`, the first of three or four axes counts texts.
    """
    found = numbers_in(value, f"{name}: {visible(key)}")
    if not 2 <= found.ndim <= 5 or 0 in found.shape:
        hint = "Weights are (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k), and no axis is empty."
        raise InputError(f"{name}: {visible(key)} has shape {found.shape}.", hint)
    if batch is not None:
        found = one_text(found, batch, name, 1 if found.ndim == 5 else 0)
    elif found.ndim == 5:
        if (texts := found.shape[1]) > 1:
            said = f"{name} has shape {found.shape}: (layers, batch, heads, n_q, n_k) with {texts} texts."
            raise InputError(said, f"--batch N takes one of them, 0 to {texts - 1}.")
        found = found[:, 0]
    return found.reshape((1,) * (4 - found.ndim) + found.shape)


def one_text(found: NDArray[Any], batch: int, name: str, axis: int) -> NDArray[Any]:
    """Return the weights of one text of a batch, which `axis` counts; UsageError where there is no such text."""
    said = f"--batch {batch}: {name} has no batch: its shape is {found.shape}."
    refuse(found.ndim - axis < 3, said, option="--batch")
    texts = found.shape[axis]
    refuse(not 0 <= batch < texts, f"--batch cannot be {batch}.", f"{name} has 0 to {texts - 1}.", "--batch")
    chosen: NDArray[Any] = found.take(batch, axis)
    return chosen


def stacked(parts: list[NDArray[Any]], names: Sequence[str], name: str) -> NDArray[Any]:
    """Stack arrays along a new first axis; raise InputError where their shapes differ."""
    for other, part in zip(names, parts, strict=True):
        if part.shape != parts[0].shape:
            said = f"{name}: {visible(names[0])} has shape {parts[0].shape}, {visible(other)} {part.shape}."
            raise InputError(said, "All need the same tokens; --array NAME takes one array.")
    return np.stack(parts)


def heads_of_layers(labels: Sequence[tuple[object, str]], name: str) -> tuple[int, tuple[str, ...]]:
    """Return how many layers heads labelled (layer, name) come from, and the names of a layer's heads.

    Where the layers name their heads differently, they are numbered. Raises InputError where a layer has two heads
    of one name, or fewer than another.
    """
    layers: dict[object, list[str]] = {}
    for layer, head in labels:
        layers.setdefault(layer, []).append(head)
    in_order = [layer for layer, heads in layers.items() for _ in heads]
    first, *others = layers.values()
    for heads in (first, *others):
        if len(set(heads)) < len(heads):
            raise InputError(f"{name}: two heads have the name {max(heads, key=heads.count)!r}.")
        if len(heads) != len(first) or in_order != [layer for layer, _ in labels]:
            raise InputError(f"{name}: its layers do not have the same heads.")
    are_alike = all(heads == first for heads in others)
    return len(layers), tuple(first) if are_alike else tuple(map(str, range(len(first))))


class Typed(NamedTuple):
    """Tokens of queries and of keys as the user gave them, and where."""

    queries: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    options: tuple[str, str] = ("--tokens", "--context-tokens")


NONE = Typed()


def labels_of(
    shape: tuple[int, ...], name: str, record: Record, batch: int | None, typed: Typed
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the tokens of queries and keys: those typed, else those that a record holds.

    A square matrix whose queries alone are labelled has the same tokens on both sides. Raises InputError for a wrong
    number of tokens.
    """
    is_square = shape[-2] == shape[-1]
    labels = [typed[0], typed[0] if typed[1] is None and is_square else typed[1]]
    for side, n in enumerate(shape[-2:]):
        is_typed = labels[side] is not None
        names = LABELS[side][:1] if record.get("schema") == "attn/1" else LABELS[side]
        key = next((key for key in names if record.get(key) is not None), None)
        if not is_typed and key is not None:
            labels[side] = texts(record, key, name, batch)
        found = labels[side]
        if found is not None and len(found) != n:
            whose, held = typed.options[side] if is_typed else name, count(len(found), "token", "tokens")
            said = f"{whose} holds {held}; {name} has {count(n, *_SIDES[side])}."
            raise InputError(said, _advice(len(found) < n, None if is_typed else typed.options[side]))
    return labels[0], labels[0] if labels[1] is None and is_square else labels[1]


def _advice(is_short: bool, option: str | None) -> str:
    """Return what to do about a wrong number of tokens; `option` overrules those of a file."""
    if not is_short:
        return "Give one token a row." if option is None else f"{option} overrules them."
    whole = "Give all that the model saw, special tokens such as [CLS] included"
    return f"{whole}." if option is None else f"{whole}; {option} overrules the file's."


def typed_tokens(value: str, option: str, batch: int | None = None) -> tuple[str, ...]:
    """Return an option's tokens: words between spaces, a JSON list, or a file of tokens; of a batch, one text's."""
    if looks_like_file(value) and (not re.search(r"\s", value) or os.path.isfile(value)):
        return _tokens_file(value, batch)
    value = as_utf8(value)
    listed = _json_list(value)
    tokens = tuple(value.split()) if listed is None else strings(one_of(listed, batch), option)
    refuse(not tokens, f"{option} holds no token.", "Give them between spaces, or in a file.", option)
    return tokens


def _tokens_file(path: str, batch: int | None) -> tuple[str, ...]:
    name = visible(path)
    text = read_bytes(path, MOST_BYTES).decode("utf-8-sig", "replace")
    listed = _json_list(text)
    if listed is None and path.lower().endswith(".json"):
        json_of(text.encode(), name)  # raises where it is not JSON
        raise InputError(f"{name} is not a JSON list of tokens.", 'Write ["The", "cat"].')
    if listed is None:
        listed = [line.rstrip("\r") for line in text.rstrip("\r\n").split("\n")]
    return strings(one_of(listed, batch), name)


def _json_list(text: str) -> Sequence[object] | None:
    """Return a JSON list; None for anything else, such as `[CLS] The cat [SEP]`."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None
