"""Matrices from files: Q, K, V, or X and W, from JSON, .npz, .safetensors or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isclose
from pathlib import Path

import numpy as np

from attn_cli.core.arguments import read_softcap
from attn_cli.core.scores import GIVEN, scale_of
from attn_cli.errors import InputError, did_you_mean, listed, refuse_input, visible
from attn_cli.inputs import foreign_arrays as foreign
from attn_cli.inputs.record import Record, array, as_array, read_record, texts
from attn_cli.io.types import Array, NamedTuple
from attn_cli.settings import Settings, declared

# How many axes each may have: heads and a batch come first.
AXES: dict[str, tuple[int, ...]] = dict.fromkeys(("Q", "K", "V"), (2, 3, 4))
AXES |= dict.fromkeys(("X", "context", "W_q", "W_k", "W_v"), (2, 3))
AXES |= {"W_o": (2,)} | dict.fromkeys(("b_q", "b_k", "b_v", "b_o"), (1,)) | {"sinks": (0, 1)}
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
    stacked: int | None = None  # the number of heads, where Q, K and V, or their W, have one matrix a head
    scale: float | None = None  # of the scores, where it is not that of their name
    softcap: float | None = None
    temperature: float | None = None
    scores: foreign.GivenScores | None = None  # in the place of Q and K
    kv_heads: int | None = None  # how many heads of K and V there are, where heads of Q share them
    lacks_head_count: bool = False  # True if W has PyTorch's names and no head count is given
    has_second_input: bool = False  # whether keys come from a second text, even with the same tokens
    is_spelled: bool = False  # whether X had, beside the word vectors, what spelling adds

    @property
    def beside_weights(self) -> tuple[str, ...]:
        """The names of what changes attention but is not a weight; not expected in a file of weights."""
        stated = {name: getattr(self, name) for name in ("mask", "score", "scale", "softcap")}
        stated["position_scores"] = self.get("position_scores")
        stated["what spelling adds to X"] = self.is_spelled or None
        return tuple(name for name, value in stated.items() if value is not None)

    def note_of_ignored(self, others: tuple[str, ...] = ()) -> list[str]:
        """Return a note on what the file holds and nothing was made of; `others` are among it."""
        ignored = [*self.ignored, *others]
        return [f"Ignored in {self.name}: {listed(ignored)}."] if ignored else []

    def laid_out(self, layout: str) -> Given:
        """Return the same with W_q, W_k and W_v that have one matrix a head laid side by side."""
        axis = -2 if layout == "out-in" else -1
        stacks = {name: self.arrays[name] for name in ("W_q", "W_k", "W_v") if name in self.arrays}
        joined = {name: np.concatenate(list(W), axis=axis) for name, W in stacks.items() if W.ndim == 3}
        return self._replace(arrays=self.arrays | joined)

    def get(self, name: str) -> Array | None:
        """Return the array of that name, or None."""
        return self.arrays.get(name)


def read_given(path: str | Path) -> Given:
    """Read a file of matrices; its content tells JSON, .npz and safetensors apart."""
    return given_from(read_record(path), visible(str(path)))


def given_from(record: Record, name: str, batch: int | None = None) -> Given:
    """Check a record of named values; q, k, v are accepted for Q, K, V, and PyTorch's names for W and b.

    Of attn's own JSON, made with --steps, the heads' matrices are taken. Of a batch, item `batch` is.
    """
    record, lacks_head_count = _in_own_names(record, name)
    own = record.get("schema") == "attn/1"  # of an exercise only the inputs are left, which are not
    layout = _choice(record, "layout", name)
    arrays, counts = _arrays(record, own, batch, name)
    scores = foreign.taken_scores(arrays)
    stacked, shared = counts or (None, None)
    learned = record.get("learned")
    return Given(
        name,
        arrays,
        mask=arrays.pop("mask", record.get("mask")),
        tokens=texts(record, "tokens", name),
        context_tokens=texts(record, "context_tokens", name),
        heads=_count(record, "heads", name) or stacked,
        layout=layout,
        score=None if own and record.get("score") == GIVEN else _choice(record, "score", name),
        ignored=_without_effect(record, arrays, own, scores and scores.name, layout),
        stacked=stacked,
        temperature=None if own else _positive(record, "temperature", name),
        scores=scores,
        scale=_scale(record, arrays, own, name),
        softcap=_positive(record, "softcap", name),
        kv_heads=_count(record, "kv_heads", name) or shared,
        lacks_head_count=lacks_head_count,
        has_second_input=own and record.get("kind") == "cross",
        is_spelled=own and isinstance(learned, dict) and learned.get("spelled") is True,
    )


def _in_own_names(given: Record, name: str) -> tuple[dict[str, object], bool]:
    """Return a record in the names that attn reads, and whether PyTorch's names came without a number of heads."""
    record = dict(given)
    inputs = record.get("inputs")
    if isinstance(inputs, dict) and not KNOWN & record.keys() - {"score", "mask", "tokens", "schema"}:
        record = dict(inputs)  # an exercise: only its inputs
    own, heads = record.get("schema") == "attn/1", record.get("heads")
    if isinstance(heads, list):
        said = f"{name} was made without --steps: it holds no Q, K and V."
        refuse_input(own and not heads, said, "Make it with --steps.")
        record |= _from_trace(record, heads, name) | {"heads": len(heads)}
    for old in "qkv":
        if old in record and old.upper() not in record:
            record[old.upper()] = record.pop(old)
    if own:
        labels = {"tokens": record.get("query_tokens"), "context_tokens": record.get("key_tokens")}
        return record | labels, False
    _refuse_near_names(record, name)
    foreign.refuse_unsupported(record, KNOWN, name)
    found = foreign.with_own_names(record, name)
    return found, "W_q" in found and "W_q" not in record and record.get("heads") is None


def _refuse_near_names(record: Record, name: str) -> None:
    """Raise InputError for a known name in other capitals or underscores, which would be ignored silently."""
    names = (known for known in (*AXES, "mask", "heads") if known not in "QKV")
    plain = {known.replace("_", "").lower(): known for known in names}
    for key in record:
        meant = plain.get(str(key).replace("_", "").replace("-", "").lower())
        if meant is not None and key != meant and meant not in record:
            raise InputError(f"{name}: there is no {visible(str(key))}.", f"Did you mean {meant}?")


def _arrays(
    record: Record, own: bool, batch: int | None, name: str
) -> tuple[dict[str, Array], foreign.HeadCounts | None]:
    """Return the arrays without a batch, a mask that had one among them, and how many heads are stacked in them."""
    taken = AXES | (POSITION if own else {}) | {"position_scores": (2, 3, 4)}
    there = {key: axes for key, axes in taken.items() if record.get(key) is not None}
    arrays = {key: array(record[key], key, axes, name) for key, axes in there.items()}
    mask = as_array(record.get("mask"))
    if mask.ndim == foreign.BATCHED["mask"] and mask.size:
        arrays["mask"] = mask
    first = next((key for key in ("Q", "X", *foreign.SCORES) if record.get(key) is not None), "Q")
    if first in foreign.SCORES:
        arrays[first] = array(record[first], first, (2, 3, 4), name, may_be_masked=True)
    return foreign.heads_side_by_side(foreign.item_of_batch(arrays, batch, name), name)


def _without_effect(
    record: Record, arrays: Mapping[str, Array], own: bool, scores: str | None, layout: str | None
) -> tuple[str, ...]:
    """Return the names that are not known, and those that change nothing: X beside Q, K and V, b_o without W_o."""
    if own:  # of all that changes the weights, only the temperature is not read again
        return () if record.get("temperature", 1) == 1 else ("temperature",)
    found = [str(key) for key in record if key not in KNOWN and key != scores]
    beside_qkv = ("X", "context", "W_q", "W_k", "W_v", "b_q", "b_k", "b_v") if "Q" in arrays else ()
    found += [key for key in beside_qkv if key in arrays]
    if "b_o" in arrays and "W_o" not in arrays:
        found.append("b_o")
    if layout is not None and "Q" in arrays and "W_o" not in arrays:
        found.append("layout")
    return tuple(found)


def _from_trace(record: Record, heads: list[object], name: str) -> dict[str, object]:
    """Return the heads of attn's own JSON side by side, as one record of matrices."""
    projection = record.get("projection")
    layout = projection.get("layout") if isinstance(projection, dict) else "in-out"
    found: dict[str, object] = {"layout": layout}
    for key in ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "q", "k", "v"):
        rotated = _of_every_head(heads, f"{key}_turned")  # by their places, as they attend
        if parts := rotated or _of_every_head(heads, key):
            arrays = [array(part, key, (1,) if key[0] == "b" else (2,), name) for part in parts]
            if len({part.shape for part in arrays}) > 1:
                raise InputError(f"{name}: the heads differ in the shape of {key}.")
            found[key] = np.concatenate(arrays, axis=0 if layout == "out-in" and key[0] == "W" else -1)
    if record.get("score") == GIVEN:
        found |= {"scores": _of_every_head(heads, "scores"), "V": _of_every_head(heads, "v") or None}
        found.pop("v", None)
    # Of some rows, it is lost which they are: the position scores are taken as they are.
    vectors = POSITION if record.get("query_rows") is None else ()
    found |= {key: parts for key in vectors if (parts := _of_every_head(heads, key))}
    is_told = "position_vectors" in found or any(_of_every_head(heads, "q_turned"))
    found["sinks"] = _of_every_head(heads, "sink_score") or None
    others = ("mask",) if is_told else ("mask", "position_scores")
    found |= {key: parts for key in others if (parts := _of_every_head(heads, key))}
    if record.get("W_o") is not None and "v" in found:
        W_o, v = (array(M, key, (2,), name) for key, M in (("W_o", record["W_o"]), ("v", found["v"])))
        if v.shape[1] != W_o.shape[1 if layout == "out-in" else 0]:  # it joins more heads than are listed
            found |= {"W_o": None, "b_o": None}
    return found


def _of_every_head(heads: list[object], key: str) -> list[object]:
    """Return the values of a key, one a head; none where some head lacks it."""
    parts = [head.get(key) for head in heads if isinstance(head, dict)]
    return parts if all(part is not None for part in parts) else []


def _single(record: Record, key: str) -> object:
    value = record.get(key)
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _positive(record: Record, key: str, name: str) -> float | None:
    number = _single(record, key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < inf:
        raise InputError(f"{name}: {key} should be a number above 0.")
    bounds = declared(Settings)["temperature"].bounds if key == "temperature" else None
    if bounds and number < bounds[0]:
        raise InputError(f"{name}: temperature should be a number from {bounds[0]:g} up.")
    return read_softcap(number) if key == "softcap" else float(number)


def _scale(record: Record, arrays: Mapping[str, Array], own: bool, name: str) -> float | None:
    """Return the scale; None where attn's own JSON has that of its score."""
    scale = _positive(record, "scale", name)
    if scale is None or not own or "K" not in arrays:
        return scale
    heads = record.get("heads")
    d_k = arrays["K"].shape[1] // (heads if isinstance(heads, int) else 1)
    return None if isclose(scale, scale_of(str(record.get("score") or "scaled"), d_k)) else scale


def _count(record: Record, key: str, name: str) -> int | None:
    value = _single(record, key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{name}: {key} should be a whole number above 0.")


def _choice(record: Record, key: str, name: str) -> str | None:
    value, choices = record.get(key), declared(Settings)[key].names()
    if value is None or (isinstance(value, str) and value in choices):
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    raise InputError(f"{name}: {key} should be one of {', '.join(choices)}.", hint.rstrip())
