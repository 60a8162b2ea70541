"""Attention weights of other programs, saved or in memory: which array, axes and tokens; attn's own JSON too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from attn_cli.errors import InputError, UsageError, did_you_mean, listed, refuse, refuse_input, visible
from attn_cli.inputs import weight_axes as axes, weight_tables
from attn_cli.inputs.record import (
    MOST_TEXT,
    RECIPE,
    Record,
    as_array,
    is_binary,
    numbers_in,
    strings,
    texts,
    values_in,
)
from attn_cli.io.types import Bools, NamedTuple, NDArray

PADDING = "attention_mask"  # of a tokenizer: 1 for a token, 0 for padding
Tokens: TypeAlias = tuple[str, ...] | None
Labels: TypeAlias = str | Sequence[str] | None
NAMES = ("weights", "attention", "attentions")
IN_MEMORY = "the array"
OF_MEMORY = f"{IN_MEMORY}: weights"


class Saved(NamedTuple):
    """The contents of a file of weights. `record` is attn's own JSON, if the file is one."""

    name: str
    weights: NDArray[Any]  # (layers, heads, n_q, n_k), in the dtype that was saved
    heads: tuple[str, ...]
    query_tokens: tuple[str, ...] | None = None
    key_tokens: tuple[str, ...] | None = None
    head: str | None = None  # the one to show, where the file says so
    mask: object = None  # a name, or booleans, True = may attend; None where unknown
    mask_name: str | None = None  # the rule of the booleans
    padded: Bools | None = None  # (n_k,), the keys that the file's attention_mask hides
    notes: tuple[str, ...] = ()
    record: Record | None = None
    shows_layers: bool = False  # whether all layers are to be shown where nobody says which

    def labelled(self, typed: axes.Typed, record: Record, batch: int | None = None) -> Saved:
        """Return the same with its tokens, as typed or as the record holds them."""
        queries, keys = axes.labels_of(self.weights.shape, self.name, record, batch, typed)
        return self._replace(query_tokens=queries, key_tokens=keys)

    @property
    def has_text(self) -> bool:
        """Whether the tokens are words of a text, and not labels such as q0."""
        is_text = self.record is None or self.record.get("query_ids") is not None
        return self.query_tokens is not None and is_text

    @property
    def layer(self) -> int | None:
        """The layer, where attn's own JSON names it."""
        projection = (self.record or {}).get("projection")
        layer = projection.get("layer") if isinstance(projection, dict) else None
        return layer if type(layer) is int and layer >= 0 else None

    @property
    def looked_up(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words without a vector, and those that the tokenizer dropped, from attn's own JSON."""
        record = self.record or {}
        return texts(record, "unknown", self.name) or (), texts(record, "dropped", self.name) or ()


def read_saved(
    data: bytes, name: str, array: str | None = None, batch: int | None = None, typed: axes.Typed = axes.NONE
) -> Saved:
    """Read weights from the bytes of a file: JSON, CSV, .npy, .npz or safetensors.

    `array` names the array to take, `batch` the text of several; `typed` tokens overrule the file's own. Raises
    InputError (a ValueError) for a file without weights, and for pickles, which are never read.
    """
    option = "--array" if array is not None else "--batch" if batch is not None else ""
    what = "a table" if not is_binary(data) and weight_tables.is_table(data, name) else ""
    record: dict[str, object] = {}
    if not what:
        if not is_binary(data):
            _check_json(data, name)
        content = values_in(data, name)
        record = content if isinstance(content, dict) else {"weights": content}
        what = "attn's own JSON" if record.get("schema") == "attn/1" else ""
    refuse(what and option, f"{option} applies only to arrays; {name} is {what}.", option=option)
    if what:
        return _own(record, name).labelled(typed, record) if record else _of_table(data, name, typed)
    weights, keys = _chosen(record, name, array, batch)
    padded = _padded(record.get(PADDING), weights.shape[-1], batch)
    known = {*keys, *sum(axes.LABELS, ()), "mask", *(() if padded is None else (PADDING,))}
    ignored = [other for other in record if other not in known]
    heads = tuple(map(str, range(weights.shape[1])))
    notes = (f"Ignored in {name}: {listed(ignored)}.",) if ignored else ()
    saved = Saved(name, weights, heads, mask=record.get("mask"), padded=padded, notes=notes)
    return saved.labelled(typed, record, batch)


def weights_in_memory(
    weights: object, tokens: Labels, context_tokens: Labels, batch: int | None = None
) -> Saved:
    """Return weights (an array, lists, a tensor, or such of the layers) with their tokens, checked as a file's."""
    found = axes.with_axes(_as_block(weights), "weights", IN_MEMORY, batch)
    layers, heads = found.shape[:2]
    numbers, head = tuple(map(str, range(heads))), "all" if heads > 1 else None
    saved = Saved(IN_MEMORY, found, numbers, head=head, shows_layers=layers > 1)
    names = ("tokens", "context_tokens")
    typed = axes.Typed(_typed(tokens, names[0]), _typed(context_tokens, names[1]), names)
    return saved.labelled(typed, {})


def _as_block(value: object) -> NDArray[Any]:
    if isinstance(value, (list, tuple)) and value and _is_array(value[0]):
        parts = [numbers_in(_alone(part), OF_MEMORY) for part in value]
        return axes.stacked(parts, [f"layer {n}" for n in range(len(parts))], IN_MEMORY)
    return numbers_in(_alone(value), OF_MEMORY)


def _is_array(value: object) -> bool:
    return hasattr(value, "detach") or hasattr(value, "__array__")


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


def _typed(value: Labels, name: str) -> Tokens:
    if value is None:
        return None
    found = strings(value.split() if isinstance(value, str) else list(value), name)
    refuse_input(not found, f"{name} holds no token.", "Give one for each query.")
    return found


def _of_table(data: bytes, name: str, typed: axes.Typed) -> Saved:
    if len(data) > MOST_TEXT:
        raise InputError(f"{name}: {len(data):,} bytes of text are too many.", "Save it as .npy.")
    table = weight_tables.read_table(data, name)
    weights = np.where(np.isnan(table.weights), 0.0, table.weights)
    layers, heads = weights.shape[:2]
    head = "all" if heads > 1 else "mean" if table.heads == ("mean",) else None
    saved = Saved(name, weights, table.heads, head=head, mask=table.mask, shows_layers=layers > 1)
    return saved.labelled(typed, {"tokens": table.queries, "context_tokens": table.keys})


def _padded(value: object, n_k: int, batch: int | None) -> Bools | None:
    """Return which keys an attention mask of ones and zeros hides; None where it does not fit."""
    found = as_array(value)
    if found.ndim == 2 and (len(found) == 1 or batch is not None) and 0 <= (batch or 0) < len(found):
        found = found[batch or 0]
    if found.shape != (n_k,) or found.dtype.kind not in "iufb" or not np.isin(found, (0, 1)).all():
        return None
    hidden: Bools = found == 0
    return None if hidden.all() else hidden


def _check_json(data: bytes, name: str) -> None:
    """Refuse a text that is not JSON, and JSON Lines."""
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    refuse_input(not start, f"{name} is empty.", "Give JSON, CSV, .npy, .npz or .safetensors.")
    if start[:1] not in b"[{":
        raise InputError(f"{name} is neither JSON nor CSV, .npy, .npz or .safetensors.", RECIPE)
    first, _, rest = data.strip().partition(b"\n")
    if first[:1] == b"{" and first.rstrip()[-1:] == b"}" and rest.lstrip()[:1] == b"{":
        lines = sum(bool(line.strip()) for line in data.splitlines())
        said = f"{name} holds {lines:,} records, a line each."
        raise InputError(said, "Give one: sed -n 1p FILE | attn show -")


def _chosen(
    record: dict[str, object], name: str, wanted: str | None, batch: int | None
) -> tuple[NDArray[Any], list[str]]:
    """Return the weights, (layers, heads, n_q, n_k), asked for, named so, or the only ones, and their names."""
    candidates = [key for key, one in record.items() if axes.is_block(one) and key not in ("mask", PADDING)]
    if wanted is not None:
        if wanted not in candidates:
            near = did_you_mean(wanted, candidates)
            said = f"{name} has no array {visible(wanted)!r}."
            raise UsageError(said, f"{near}It has {listed(candidates)}.", "--array")
        return axes.with_axes(record[wanted], wanted, name, batch), [wanted]
    named = [key for key in NAMES if key in candidates] or candidates
    if len(named) == 1:
        return axes.with_axes(record[named[0]], named[0], name, batch), named
    if layers := axes.numbered_layers(candidates, name):
        return _layers(record, layers, name, batch), layers
    if named:
        said = f"{name} holds several arrays: {listed(named)}."
        raise InputError(said, "--array NAME takes one of them.")
    if lone := next((key for key in NAMES if record.get(key) is not None), None):
        return axes.with_axes(record[lone], lone, name, batch), [lone]  # an InputError says what it is
    said = f"{name} holds no weights: {listed(list(record))}."
    raise InputError(said, "Give a matrix, or an object with weights (n_q, n_k), and tokens.")


def _layers(record: Record, layers: list[str], name: str, batch: int | None) -> NDArray[Any]:
    parts = [numbers_in(record[key], f"{name}: {visible(key)}") for key in layers]
    if batch is not None:
        parts = [axes.one_text(part, batch, name, 0) for part in parts]
    found = axes.stacked(parts, layers, name)
    whole = found[:, np.newaxis] if found.ndim == 3 else found
    return axes.with_axes(whole, f"{layers[0]} to {layers[-1]}", name)


def _own(record: dict[str, object], name: str) -> Saved:
    error = record.get("error")
    if isinstance(error, dict):
        raise InputError(f"{name} holds an error of attn: {visible(str(error.get('message')))[:200]}")
    if record.get("weights") is None:
        if record.get("links") is not None:
            raise InputError(f"{name} {weight_tables.STRONGEST}", weight_tables.WHOLE)
        said = f"{name} is attn's JSON of the kind {visible(str(record.get('kind')))!r}"
        hint = "attn self, masked, cross, explain and example write some."
        raise InputError(f"{said}, which has no weights.", hint)
    weights, names = _own_heads(record, name)
    head = "mean" if record.get("head") == "mean" else "all" if len(names) > 1 else None
    rule, notes = record.get("mask_name"), texts(record, "notes", name) or ()
    mask, rule = _own_mask(record, weights), rule if isinstance(rule, str) and rule else None
    saved = Saved(name, weights, names, head=head, mask=mask, mask_name=rule, notes=notes, record=record)
    return saved._replace(shows_layers=len(weights) > 1)


def _own_heads(record: Record, name: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    several = record.get("heads")
    heads = [head for head in several if isinstance(head, dict)] if isinstance(several, list) else []
    heads = heads or [{"name": record.get("head") or "0", "weights": record["weights"]}]
    blocks = [numbers_in(head.get("weights"), f"{name}: weights") for head in heads]
    labels = [(str(head.get("layer")), str(head.get("name") or n)) for n, head in enumerate(heads)]
    layers, names = axes.heads_of_layers(labels, name)
    found = axes.stacked(blocks, [head for _, head in labels], name)
    if found.ndim == 3:
        found = found.reshape(layers, len(names), *found.shape[1:])
    return axes.with_axes(found, "weights", name), names


def _own_mask(record: Record, weights: NDArray[Any]) -> object:
    """Return the mask of attn's own JSON; None where the masks of layers or heads differ, as it is but one of them."""
    mask, heads = record.get("mask"), record.get("heads")
    of_heads = heads if isinstance(heads, list) else []
    if any(isinstance(head, dict) and head.get("mask") not in (None, mask) for head in of_heads):
        return None
    if mask is None or len(weights) == 1:
        return "none" if mask is None else mask
    allowed = numbers_in(mask, "mask")
    is_one = allowed.shape == weights.shape[-2:] and not weights[..., allowed == 0].any()
    return mask if is_one else None
