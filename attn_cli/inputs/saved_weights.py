"""Attention weights saved by other programs: which array of a file, which axes, which tokens; attn's own JSON too."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError, did_you_mean
from attn_cli.inputs.record import json_of, spoken
from attn_cli.inputs.token_labels import texts
from attn_cli.io.array_files import is_safetensors, npy_in, npz_in, safetensors_in
from attn_cli.io.escape import visible
from attn_cli.io.plural import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES = 1 << 30
MOST_JSON = 1 << 28
NAMES = ("weights", "attention", "attentions")
LABELS = ("query_tokens", "tokens", "key_tokens", "context_tokens")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})")
_RECIPE = "Where it was made: numpy.savez('attention.npz', attentions=torch.stack(attentions).cpu().numpy())"


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
    notes: tuple[str, ...] = ()
    record: Mapping[str, object] | None = None

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


def read_saved(data: bytes, name: str, array: str | None = None, batch: int | None = None) -> Saved:
    """Read weights from the bytes of a file: JSON, .npy, .npz or safetensors.

    `array` names the array to take, `batch` the text of several. Raises InputError (a ValueError) for a file
    without weights, and for pickles, which are never read.
    """
    record = _record(data, name)
    if record.get("schema") == "attn/1":
        if array is not None or batch is not None:
            option = "--batch" if array is None else "--array"
            raise UsageError(f"{option} goes with arrays; {name} is attn's own JSON.", option=option)
        return _own(record, name)
    keys, found = _chosen(record, name, array)
    weights = _axes(found, keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}", name, batch)
    ignored = [other for other in record if other not in {*keys, *LABELS, "mask"}]
    query_tokens, tokens, key_tokens, context = (texts(record, label, name, batch) for label in LABELS)
    saved = Saved(
        name,
        weights,
        tuple(map(str, range(weights.shape[1]))),
        mask=record.get("mask"),
        notes=(f"Ignored in {name}: {_listed(ignored)}.",) if ignored else (),
    )
    return labelled(saved, query_tokens or tokens, key_tokens or context, f"{name} holds")


def labelled(
    saved: Saved, tokens: tuple[str, ...] | None, context: tuple[str, ...] | None, whose: str
) -> Saved:
    """Label the queries and the keys; without `context`, a square matrix has the same tokens on both sides.

    `whose` begins the message of the InputError for a wrong number of tokens.
    """
    n_q, n_k = saved.weights.shape[-2:]
    if tokens is not None and context is None and n_q == n_k:
        context = tokens
    sides = ((tokens, n_q, "query (row)", "queries (rows)"), (context, n_k, "key (column)", "keys (columns)"))
    for given, n, one, many in sides:
        if given is not None and len(given) != n:
            raise InputError(
                f"{whose} {count(len(given), 'token', 'tokens')}; {saved.name} has {count(n, one, many)}.",
                "Give all that the model saw, special tokens such as [CLS] included."
                if len(given) < n
                else "Give one token a row.",
            )
    return saved._replace(
        query_tokens=saved.query_tokens if tokens is None else tokens,
        key_tokens=saved.key_tokens if context is None else context,
    )


def _record(data: bytes, name: str) -> dict[str, object]:
    """Return a file's named values; a lone array or list is named weights."""
    file = io.BytesIO(data)
    if data[:6] == b"\x93NUMPY":
        return {"weights": npy_in(file, name)}
    if data[:2] == b"PK":
        if b"data.pkl" in data[:4096]:
            raise _pickle(name)
        return {key: spoken(array, name) for key, array in npz_in(file, name, MOST_BYTES).items()}
    if is_safetensors(data):
        return dict(safetensors_in(file, name)[0])
    if data[:1] == b"\x80":
        raise _pickle(name)
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise InputError(f"{name} is empty.", "Give JSON, .npy, .npz or .safetensors.")
    if start[:1] not in b"[{":
        raise InputError(f"{name} is neither JSON nor .npy, .npz or .safetensors.", _RECIPE)
    if len(data) > MOST_JSON:
        raise InputError(f"{name}: {len(data):,} bytes of JSON are too many.", "Save it as .npy.")
    _check_alone(data, name)
    content = json_of(data, name)
    return content if isinstance(content, dict) else {"weights": content}


def _check_alone(data: bytes, name: str) -> None:
    """Raise InputError for JSON Lines of several records."""
    first, _, rest = data.strip().partition(b"\n")
    if first[:1] == b"{" and first.rstrip()[-1:] == b"}" and rest.lstrip()[:1] == b"{":
        lines = sum(bool(line.strip()) for line in data.splitlines())
        raise InputError(
            f"{name} holds {lines:,} records, a line each.", "Give one: sed -n 1p FILE | attn show -"
        )


def _pickle(name: str) -> InputError:
    return InputError(
        f"{name} is a pickle, as torch.save writes: it could run code, so none is read.", _RECIPE
    )


def _chosen(record: dict[str, object], name: str, wanted: str | None) -> tuple[list[str], object]:
    """Return the names and the value of the weights: those asked for, or named so, or the only ones, or all layers."""
    candidates = [key for key, value in record.items() if _is_block(value) and key != "mask"]
    if wanted is not None:
        if wanted not in candidates:
            near = did_you_mean(wanted, candidates)
            raise UsageError(
                f"{name} has no array {visible(wanted)!r}.", f"{near}It has {_listed(candidates)}.", "--array"
            )
        return [wanted], record[wanted]
    named = [key for key in NAMES if key in candidates] or candidates
    if len(named) == 1:
        return named, record[named[0]]
    if layers := _layers(candidates, name):
        found = _stacked([_block(record[key], key, name) for key in layers], layers, name)
        return layers, found[:, np.newaxis] if found.ndim == 3 else found
    if named:
        raise InputError(f"{name} holds several arrays: {_listed(named)}.", "--array NAME takes one of them.")
    if lone := next((key for key in NAMES if record.get(key) is not None), None):
        return [lone], record[lone]  # later an InputError says what it is
    raise InputError(
        f"{name} holds no weights: {_listed(list(record))}.",
        "Give a matrix, or an object with weights (n_q, n_k), and tokens.",
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(visible(name[:40]) for name in names[:8]) + more) or "nothing"


def _is_block(value: object) -> bool:
    """Tell whether a value may be weights: an array of two axes or more, or a list of lists of numbers."""
    if isinstance(value, np.ndarray):
        return value.ndim >= 2 and value.dtype.kind in "iufb"
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    return depth >= 2 and isinstance(value, (int, float))


def _layers(names: list[str], name: str) -> list[str]:
    """Return names that differ only in a number, as layer_0, in its order; none if there are others."""
    found = {key: _NUMBERED.fullmatch(key) for key in names}
    parts = {key: (match[1], int(match[2])) for key, match in found.items() if match}
    if len(parts) != len(names) or len({prefix for prefix, _ in parts.values()}) != 1:
        return []
    ordered = sorted(names, key=lambda key: parts[key][1])
    numbers = [parts[key][1] for key in ordered]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise InputError(f"{name} lacks a layer: it holds {_listed(ordered)}.", "--array NAME takes one.")
    return ordered


def _own(record: dict[str, object], name: str) -> Saved:
    """Return the weights, the labels and the mask of attn's own JSON."""
    error = record.get("error")
    if isinstance(error, dict):
        raise InputError(f"{name} holds an error of attn: {visible(str(error.get('message')))[:200]}")
    if record.get("links") is not None and record.get("weights") is None:
        raise InputError(
            f"{name} holds each row's strongest links, and not the weights.",
            "Make it without --top; above a million weights, with --full.",
        )
    if record.get("weights") is None:
        raise InputError(
            f"{name} is attn's JSON of the kind {visible(str(record.get('kind')))!r}, which has no weights.",
            "attn self, masked, cross, explain and example write some.",
        )
    listed = record.get("heads")
    heads = [head for head in listed if isinstance(head, dict)] if isinstance(listed, list) else []
    heads = heads or [{"name": record.get("head") or "0", "weights": record["weights"]}]
    blocks = [_block(head.get("weights"), "weights", name) for head in heads]
    names = tuple(str(head.get("name") or n) for n, head in enumerate(heads))
    if len(set(names)) < len(names):
        raise InputError(f"{name}: two heads have the name {max(names, key=names.count)!r}.")
    mask_name = record.get("mask_name")
    saved = Saved(
        name,
        _axes(_stacked(blocks, names, name), "weights", name, None),
        names,
        head="mean" if record.get("head") == "mean" else "all" if len(names) > 1 else None,
        mask="none" if record.get("mask") is None else record["mask"],
        mask_name=mask_name if isinstance(mask_name, str) and mask_name else None,
        notes=texts(record, "notes", name) or (),
        record=record,
    )
    queries, keys = (texts(record, key, name) for key in ("query_tokens", "key_tokens"))
    return labelled(saved, queries, keys, f"{name} holds")


def _axes(value: object, key: str, name: str, batch: int | None) -> NDArray[Any]:
    """Return weights as (layers, heads, n_q, n_k).

    Two axes are a matrix, three its heads, four the layers; five are (layers, batch, heads, n_q, n_k), as
    `torch.stack(outputs.attentions)` has them.
    """
    found = _block(value, key, name)
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


def _stacked(parts: list[NDArray[Any]], names: Sequence[str], name: str) -> NDArray[Any]:
    """Stack arrays along a new first axis; raise InputError where their shapes differ."""
    for other, part in zip(names, parts, strict=True):
        if part.shape != parts[0].shape:
            raise InputError(
                f"{name}: {visible(names[0])} has shape {parts[0].shape}, {visible(other)} {part.shape}.",
                "All need the same tokens; --array NAME takes one array.",
            )
    return np.stack(parts)


def _block(value: object, key: str, name: str) -> NDArray[Any]:
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
