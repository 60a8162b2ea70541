"""Names that other programs give to matrices: those that are taken, and those that attn does not support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from attn_cli.core.arguments import check_fit
from attn_cli.errors import InputError, UsageError, visible
from attn_cli.inputs.record import Record, as_array
from attn_cli.io.types import Array, NamedTuple

# Weights as torch.nn.Linear keeps them, (out, in): of MultiheadAttention, and of most models in transformers.
TORCH: dict[str, tuple[str, ...]] = {
    "in_proj_weight": ("W_q", "W_k", "W_v"),
    "in_proj_bias": ("b_q", "b_k", "b_v"),
}
TORCH |= {f"{letter}_proj_weight": (f"W_{letter}",) for letter in "qkv"}
TORCH |= {f"{letter}_proj.weight": (f"W_{letter}",) for letter in "qkvo"}
TORCH |= {f"{letter}_proj.bias": (f"b_{letter}",) for letter in "qkvo"}
TORCH |= {"out_proj.weight": ("W_o",), "out_proj.bias": ("b_o",)}
HeadCounts: TypeAlias = tuple[int, int]  # of queries, and of keys and values
BIAS = "bias"  # as `attend` calls the position scores
_AS_SCORES = "Add it up, and give it as position_scores, which are added to the scaled scores."
_AS_ROWS = "Give it as one more row of K and of V."
_TURNED = "Give Q and K after the rotary embedding has been applied."
_ALLOWED = 'Give a mask, true = may attend; or a rule, as "mask": "causal".'

# What changes the result and is not computed with, in plain letters, and what to do instead.
REFUSED = {
    **dict.fromkeys(("alibi", "alibislopes", "relativeattentionbias", "relativepositionbias"), _AS_SCORES),
    **dict.fromkeys(("attnbias", "attentionbias"), _AS_SCORES),
    **dict.fromkeys(("biask", "biasv", "addzeroattn"), _AS_ROWS),
    **dict.fromkeys(("rotary", "rotaryemb", "rope", "ropetheta", "cos", "sin", "invfreq"), _TURNED),
    **dict.fromkeys(("qnorm", "knorm", "qknorm"), "Give Q and K as they are after the norm."),
    **dict.fromkeys(("sink", "sinks", "saux"), "attn calls them sinks: a score for each head."),
    **dict.fromkeys(("dropout", "dropoutp", "attndropout"), "attn drops nothing: leave it out, or say 0."),
    **dict.fromkeys(("attnmask", "attentionmask", "iscausal", "causal"), _ALLOWED),
    **dict.fromkeys(("keypaddingmask", "paddingmask"), _ALLOWED),
    **dict.fromkeys(("window", "windowsize", "slidingwindow"), 'Give a rule, as "mask": "window:4".'),
    **dict.fromkeys(("numheads", "nheads", "nhead", "numattentionheads"), "Name it heads."),
    **dict.fromkeys(("numkvheads", "numkeyvalueheads", "nkvheads"), "Name it kv_heads."),
}


def with_own_names(record: Record, name: str) -> dict[str, object]:
    """Return the record with the names of other programs turned into attn's own.

    The three matrices in one of torch.nn.MultiheadAttention, in_proj_weight (3d, d), become W_q, W_k and W_v. What
    stands before these names (`self_attn.`, `layers.0.attn.`) is left out. Raises InputError where two are one.
    """
    found: dict[str, object] = {}
    is_torch = False
    for key, value in record.items():
        ends = key.split(".")
        named = TORCH.get(".".join(ends[-2:])) or TORCH.get(ends[-1], ())
        own = ("position_scores",) if key == BIAS else named
        is_torch |= bool(own) and key != BIAS
        parts = [value] * max(1, len(own))
        if len(own) == 3 and value is not None:
            packed: Array = as_array(value)
            if packed.ndim < 1 or len(packed) % 3 or not len(packed):
                wanted = "it should have the rows of W_q, W_k and W_v, one below the other, equally many each"
                raise InputError(f"{name}: {visible(key)} has shape {packed.shape}; {wanted}.")
            parts = list(np.split(packed, 3))
        for one, part in zip(own or (key,), parts, strict=True):
            if own and (one in found or record.get(one) is not None):
                raise InputError(f"{name} gives {one} twice, once in {visible(key)}.", "Give it once.")
            found[one] = part
    if is_torch:
        if found.get("layout") not in (None, "out-in"):
            said = f"{name} has PyTorch's names, whose weights are (out, in), and the layout {found['layout']!r}."
            raise InputError(said, "Leave out layout, or name them W_q, W_k and W_v.")
        found["layout"] = "out-in"
    return found


def refuse_unsupported(record: Record, known: frozenset[str], name: str) -> None:
    """Raise InputError for a key that would change the result, and that attn does not support."""
    for key, value in record.items():
        is_off = value is None or (isinstance(value, (int, float)) and not value)
        end = key.removesuffix(".weight").rpartition(".")[2].replace("_", "").replace("-", "").lower()
        if key not in known and not is_off and (what := REFUSED.get(end)):
            said = f"{name}: attn does not support {visible(key)}"
            raise InputError(f"{said}, and ignoring it would change the result.", what)


SCORES = ("masked_scores", "scaled_scores", "scores")  # the one that is computed first is taken


class GivenScores(NamedTuple):
    """Scores (heads, n_q, n_k), -inf where masked, and the name they were given by; only raw `scores` are scaled."""

    name: str
    values: Array

    @property
    def is_raw(self) -> bool:
        """Whether a given scale is still to be applied."""
        return self.name == "scores"


def taken_scores(arrays: dict[str, Array]) -> GivenScores | None:
    """Take the scores out of the arrays, after an item of the batch was chosen; None where there are none."""
    for key in SCORES:
        if (values := arrays.pop(key, None)) is not None:
            return GivenScores(key, values if values.ndim == 3 else values[np.newaxis])
    return None


# How many axes each has where a batch comes first.
BATCHED = dict.fromkeys(("Q", "K", "V", *SCORES, "mask", "position_scores"), 4) | {"X": 3, "context": 3}


def item_of_batch(arrays: Mapping[str, Array], batch: int | None, name: str) -> dict[str, Array]:
    """Return the arrays without their batch axis: of item `batch`, or of the only one.

    Raises InputError for a batch of several where none is chosen, UsageError for an item that there is not.
    """
    batched = {key: each for key, each in arrays.items() if each.ndim == BATCHED.get(key)}
    if not batched:
        if batch is None:
            return dict(arrays)
        shapes = ", ".join(f"{key} has shape {each.shape}" for key, each in arrays.items() if key in BATCHED)
        raise UsageError(f"--batch {batch}: {name} has no batch ({shapes}).", option="--batch")
    largest = max(batched, key=lambda key: len(batched[key]))
    size = len(batched[largest])
    for key, each in batched.items():
        if len(each) not in (1, size):
            shapes = f"{largest} has shape {batched[largest].shape} and {key} {each.shape}"
            raise InputError(f"{name}: {shapes}: their batches differ.")
    if batch is None and size > 1:
        said = f"{name}: {largest} has shape {batched[largest].shape}, a batch of {size}."
        raise InputError(said, f"--batch N (of attn compute) takes one of them, 0 to {size - 1}.")
    if batch is not None and not 0 <= batch < size:
        raise UsageError(f"--batch cannot be {batch}.", f"{name} has 0 to {size - 1}.", "--batch")
    return {key: M[min(batch or 0, len(M) - 1)] if key in batched else M for key, M in arrays.items()}


def heads_side_by_side(arrays: Mapping[str, Array], name: str) -> tuple[dict[str, Array], HeadCounts | None]:
    """Return Q, K and V (heads, n, d) as (n, heads x d), and how many heads there are of Q, and of K and V.

    These numbers are also those of W_q, W_k and W_v with one matrix a head, which stay; None where no head has an
    axis of its own.
    """
    made, found = dict(arrays), None
    for names in (("Q", "K", "V"), ("W_q", "W_k", "W_v")):
        given = {key: arrays[key] for key in names if key in arrays}
        stacks = {key: each for key, each in given.items() if each.ndim == 3}
        if stacks:
            found = _head_counts(given, stacks, name)
        if names[0] == "Q":
            if len(stacks) == 3:
                check_fit(*stacks.values())
            made |= {key: np.concatenate(list(each), axis=-1) for key, each in stacks.items()}
    return made, found


def _head_counts(given: Mapping[str, Array], stacks: Mapping[str, Array], name: str) -> HeadCounts:
    (first, one), *others = stacks.items()
    for key in [key for key in given if key not in stacks]:
        shapes = f"{first} has shape {one.shape}, one matrix a head, and {key} {given[key].shape}"
        raise InputError(f"{name}: {shapes}: give all alike.")
    second, two = others[0] if others else (first, one)
    for key, each in others:
        is_shared = len(one) % len(each) == 0
        if is_shared and len(each) == len(two):
            continue
        whose = second if is_shared else first
        may_share = f"Heads of {first} may share {key}, if they are a multiple of its heads."
        said = f"{name}: {whose} has shape {stacks[whose].shape} and {key} {each.shape}"
        raise InputError(f"{said}: both need one matrix for each head.", "" if is_shared else may_share)
    return len(one), len(two)
