"""Matrices from files: Q, K, V, or X and W, from JSON, .npz, .safetensors or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isclose
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.arguments import read_softcap
from attn_cli.core.scores import GIVEN, scale_of
from attn_cli.errors import InputError, did_you_mean
from attn_cli.inputs.foreign_arrays import (
    BATCHED,
    GivenScores,
    heads_side_by_side,
    item_of_batch,
    read_scores,
    refuse_unsupported,
    taken_scores,
    with_own_names,
)
from attn_cli.inputs.record import read_record
from attn_cli.inputs.weight_axes import listed
from attn_cli.io.escape import visible
from attn_cli.settings.declare import declared
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

# How many axes each may have: heads and a batch come first.
AXES: dict[str, tuple[int, ...]] = dict.fromkeys(("Q", "K", "V"), (2, 3, 4))
AXES |= dict.fromkeys(("X", "context", "W_q", "W_k", "W_v"), (2, 3))
AXES |= {"W_o": (2,)} | dict.fromkeys(("b_q", "b_k", "b_v", "b_o"), (1,))
ADDED = {"position_scores": (2, 3, 4)}
POSITION = {"position_vectors": (3,), "position_biases": (2,)}  # of attn's own JSON: one for each head
KNOWN = frozenset({*AXES, "about", "schema", "heads", "layout", "tokens", "context_tokens"})
KNOWN |= {"score", "mask", "position_scores", "kv_heads", "scale", "softcap", "temperature"}


class Given(NamedTuple):
    """The contents of a file of matrices: arrays by name, and the rest as written."""

    name: str
    arrays: dict[str, Array]
    tokens: tuple[str, ...] | None = None
    context_tokens: tuple[str, ...] | None = None
    heads: int | None = None
    layout: str | None = None
    score: str | None = None
    mask: object = None
    ignored: tuple[str, ...] = ()
    stacked: int | None = (
        None  # the number of heads, where Q, K and V, or W_q, W_k and W_v, have one matrix a head
    )
    scale: float | None = None  # of the scores, where it is not that of their name
    softcap: float | None = None
    temperature: float | None = None
    scores: GivenScores | None = None  # in the place of Q and K
    kv_heads: int | None = None  # how many heads of K and V there are, where heads of Q share them
    lacks_head_count: bool = False  # True if W has PyTorch's names and no head count is given
    has_second_input: bool = False  # whether keys come from a second text, even with the same tokens

    @property
    def beside_weights(self) -> tuple[str, ...]:
        """The names of what changes attention but is not a weight; not expected in a file of weights."""
        stated = {name: getattr(self, name) for name in ("mask", "score", "scale", "softcap")}
        stated["position_scores"] = self.get("position_scores")
        return tuple(name for name, value in stated.items() if value is not None)

    def note_of_ignored(self, others: tuple[str, ...] = ()) -> list[str]:
        """Return a note on what the file holds and nothing was made of; `others` are among it."""
        ignored = [*self.ignored, *others]
        return [f"Ignored in {self.name}: {listed(ignored)}."] if ignored else []

    def laid_out(self, layout: str) -> Given:
        """Return the same with W_q, W_k and W_v that have one matrix a head laid side by side."""
        axis = -2 if layout == "out-in" else -1
        joined = {
            name: np.concatenate(list(W), axis=axis)
            for name, W in self.arrays.items()
            if name in ("W_q", "W_k", "W_v") and W.ndim == 3
        }
        return self._replace(arrays=self.arrays | joined)

    def get(self, name: str) -> Array | None:
        """Return the array of that name, or None."""
        return self.arrays.get(name)


def read_given(path: str | Path) -> Given:
    """Read a file of matrices; its content tells JSON, .npz and safetensors apart."""
    return given_from(read_record(path), visible(str(path)))


def given_from(record: Mapping[str, object], name: str, batch: int | None = None) -> Given:
    """Check a record of named values; q, k, v are accepted for Q, K, V, and PyTorch's names for W and b.

    Of attn's own JSON, made with --steps, the heads' matrices are taken. Of a batch, item `batch` is.
    """
    record = dict(record)
    lacks_head_count = False
    inputs = record.get("inputs")
    if isinstance(inputs, dict) and not KNOWN & record.keys() - {"score", "mask", "tokens", "schema"}:
        record = dict(inputs)  # an exercise: only its inputs
    heads = record.get("heads")
    if isinstance(heads, list):
        if record.get("schema") == "attn/1" and not heads:
            raise InputError(
                f"{name} was made without --steps: it holds no Q, K and V.", "Make it with --steps."
            )
        record |= _from_trace(record, heads, name)
        heads = record["heads"] = len(heads)
    for old in "qkv":
        if old in record and old.upper() not in record:
            record[old.upper()] = record.pop(old)
    if own := record.get("schema") == "attn/1":
        record |= {"tokens": record.get("query_tokens"), "context_tokens": record.get("key_tokens")}
    else:
        _refuse_near_names(record, name)
        refuse_unsupported(record, KNOWN, name)
        found = with_own_names(record, name)
        lacks_head_count = "W_q" in found and "W_q" not in record and record.get("heads") is None
        record = found
    layout = _choice(record.get("layout"), "layout", name)
    taken = AXES | (POSITION if own else {}) | ADDED
    present = {key: axes for key, axes in taken.items() if record.get(key) is not None}
    arrays = {key: array(record[key], key, axes, name) for key, axes in present.items()}
    mask = record.get("mask")
    if (of_batch := _with_batch(mask)) is not None:
        arrays["mask"] = of_batch
    arrays |= read_scores(record, name)
    arrays, counts = heads_side_by_side(item_of_batch(arrays, batch, name), name)
    scores = taken_scores(arrays)
    mask = arrays.pop("mask", mask)
    stacked, shared = counts or (None, None)
    scale = _positive(record.get("scale"), "scale", name)
    if own and "K" in arrays and scale is not None:
        d_k = arrays["K"].shape[1] // (record["heads"] if isinstance(record["heads"], int) else 1)
        scale = None if isclose(scale, scale_of(str(record.get("score") or "scaled"), d_k)) else scale
    return Given(
        name=name,
        arrays=arrays,
        tokens=_words(record.get("tokens"), "tokens", name),
        context_tokens=_words(record.get("context_tokens"), "context_tokens", name),
        heads=_count(heads, "heads", name) or stacked,
        layout=layout,
        score=None if record.get("score") == GIVEN and own else _choice(record.get("score"), "score", name),
        mask=mask,
        ignored=(*_ignored(record, own, scores), *_idle(arrays, own, layout)),
        stacked=stacked,
        temperature=None if own else _temperature(record.get("temperature"), name),
        scores=scores,
        scale=scale,
        softcap=_positive(record.get("softcap"), "softcap", name),
        kv_heads=_count(record.get("kv_heads"), "kv_heads", name) or shared,
        lacks_head_count=lacks_head_count,
        has_second_input=own and record.get("kind") == "cross",
    )


def _refuse_near_names(record: Mapping[str, object], name: str) -> None:
    """Raise InputError for a known name in other capitals or underscores, which would be ignored silently."""
    plain = {
        known.replace("_", "").lower(): known for known in (*AXES, "mask", "heads") if known not in "QKV"
    }
    for key in record:
        meant = plain.get(str(key).replace("_", "").replace("-", "").lower())
        if meant is not None and key != meant and meant not in record:
            raise InputError(f"{name}: there is no {visible(str(key))}.", f"Did you mean {meant}?")


def _with_batch(mask: object) -> Array | None:
    """Return a mask that has an axis for a batch; None for any other."""
    if isinstance(mask, str) or mask is None:
        return None
    try:
        found = np.asarray(mask)
    except ValueError:
        return None
    return found if found.ndim == BATCHED["mask"] and found.size else None


def _idle(arrays: Mapping[str, Array], own: bool, layout: str | None) -> tuple[str, ...]:
    """Return the names of arrays without effect: X and W beside Q, K and V, and b_o without W_o."""
    if own:
        return ()
    beside_qkv = ("X", "context", "W_q", "W_k", "W_v", "b_q", "b_k", "b_v") if "Q" in arrays else ()
    idle = [name for name in beside_qkv if name in arrays]
    if "b_o" in arrays and "W_o" not in arrays:
        idle.append("b_o")
    if layout is not None and "Q" in arrays and "W_o" not in arrays:
        idle.append("layout")
    return tuple(idle)


def _ignored(record: dict[str, object], own: bool, scores: GivenScores | None) -> tuple[str, ...]:
    if own:  # of all that changes the weights, only the temperature is not read again
        return () if record.get("temperature", 1) == 1 else ("temperature",)
    taken = {scores.name} if scores else set()
    known = KNOWN | taken
    return tuple(str(key) for key in record if key not in known)


def _from_trace(record: dict[str, object], heads: list[object], name: str) -> dict[str, object]:
    """Return the heads of attn's own JSON side by side, as one record of matrices."""
    projection = record.get("projection")
    layout = projection.get("layout") if isinstance(projection, dict) else "in-out"
    found: dict[str, object] = {"layout": layout}
    for key in ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "q", "k", "v"):
        rotated = _of_every_head(heads, f"{key}_turned")  # by their places, as they attend
        if parts := rotated or _of_every_head(heads, key):
            arrays = [array(part, key, (1,) if key[0] == "b" else (2,), name) for part in parts]
            axis = 0 if layout == "out-in" and key[0] == "W" else -1
            if len({part.shape for part in arrays}) > 1:
                raise InputError(f"{name}: the heads differ in the shape of {key}.")
            found[key] = np.concatenate(arrays, axis=axis)
    if record.get("score") == GIVEN:
        found |= {"scores": _of_every_head(heads, "scores"), "V": _of_every_head(heads, "v") or None}
        found.pop("v", None)
    # Of some rows, it is lost which they are: the position scores are taken as they are.
    is_part = record.get("query_rows") is not None
    for key in POSITION if not is_part else ():
        if parts := _of_every_head(heads, key):
            found[key] = parts
    is_told = "position_vectors" in found or any(_of_every_head(heads, "q_turned"))
    for key in ("mask", *(() if is_told else ("position_scores",))):
        if parts := _of_every_head(heads, key):
            found[key] = parts
    return found | _joining(record, found, name)


def _joining(record: dict[str, object], found: dict[str, object], name: str) -> dict[str, object]:
    """Return nothing in place of W_o and b_o where they join more heads than those that are listed."""
    if record.get("W_o") is None or "v" not in found:
        return {}
    W_o, v = (array(M, key, (2,), name) for key, M in (("W_o", record["W_o"]), ("v", found["v"])))
    is_whole = v.shape[1] == W_o.shape[1 if found["layout"] == "out-in" else 0]
    return {} if is_whole else {"W_o": None, "b_o": None}


def _of_every_head(heads: list[object], key: str) -> list[object]:
    """Return the values of a key, one a head; none where some head lacks it."""
    parts = [head.get(key) for head in heads if isinstance(head, dict)]
    return parts if all(part is not None for part in parts) else []


def array(value: object, key: str, axes: tuple[int, ...], name: str) -> Array:
    """Return finite numbers as float64, which have one of these numbers of axes, none of them empty.

    `name` and `key` begin the message of the InputError.
    """
    try:
        written = np.asarray(value)
    except ValueError:
        written = np.array(None)
    if written.dtype.kind not in "iufb":
        raise InputError(f"{name}: {key} is not a matrix of numbers.", "Give rows of equally many numbers.")
    numbers = written.astype(np.float64)
    if numbers.ndim not in axes or 0 in numbers.shape:
        wanted = f"{axes[0]} axes" if len(axes) == 1 else f"{axes[0]} to {axes[-1]} axes"
        raise InputError(
            f"{name}: {key} has shape {numbers.shape}; it should have {wanted} and no empty one."
        )
    if not np.isfinite(numbers).all():
        place = tuple(int(n) for n in np.argwhere(~np.isfinite(numbers))[0])
        raise InputError(f"{name}: {key} holds a number that is not finite, at {place}.")
    return numbers


def _words(value: object, key: str, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f"{name}: {key} should be a list of words.")
    if "" in value:
        raise InputError(f"{name}: number {value.index('')} of {key} is empty.", "Give each token a name.")
    return tuple(value)


def _positive(value: object, key: str, name: str) -> float | None:
    """Return a finite number above 0."""
    number = _single(value)
    if number is None:
        return None
    if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < inf:
        return read_softcap(number) if key == "softcap" else float(number)
    raise InputError(f"{name}: {key} should be a number above 0.")


def _temperature(value: object, name: str) -> float | None:
    """Return a temperature in the bounds that the option has."""
    bounds = declared(Settings)["temperature"].bounds
    found = _positive(value, "temperature", name)
    if found is not None and bounds is not None and found < bounds[0]:
        raise InputError(f"{name}: temperature should be a number from {bounds[0]:g} up.")
    return found


def _single(value: object) -> object:
    """Return the value of an array that holds a single one, as safetensors does."""
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _count(value: object, key: str, name: str) -> int | None:
    value = _single(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{name}: {key} should be a whole number above 0.")


def _choice(value: object, key: str, name: str) -> str | None:
    choices = declared(Settings)[key].names()
    if value is None or (isinstance(value, str) and value in choices):
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    raise InputError(f"{name}: {key} should be one of {', '.join(choices)}.", hint.rstrip())
