"""Names that other programs give to matrices: those that are taken, and those that attn does not compute with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.escape import visible

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

PACKED = {"in_proj_weight": ("W_q", "W_k", "W_v"), "in_proj_bias": ("b_q", "b_k", "b_v")}
# Weights as torch.nn.Linear keeps them, (out, in): of MultiheadAttention, and of most models in transformers.
LINEAR = {f"{letter}_proj_weight": f"W_{letter}" for letter in "qkv"}
LINEAR |= {f"{letter}_proj.weight": f"W_{letter}" for letter in "qkvo"} | {"out_proj.weight": "W_o"}
BIASES = {f"{letter}_proj.bias": f"b_{letter}" for letter in "qkvo"} | {"out_proj.bias": "b_o"}
SAME = {"bias": "position_scores"}  # as `attend` calls it
TORCH = frozenset({*PACKED, *LINEAR, *BIASES})

_AS_SCORES = "Add it up, and give it as position_scores, which are added to the scaled scores."
_AS_ROWS = "Give it as one more row of K and of V."
_TURNED = "Give Q and K as they are after turning."
_ALLOWED = 'Give a mask, true = may attend; or a rule, as "mask": "causal".'
# What changes the result and is not computed with, in plain letters, and what to do instead.
REFUSED = {
    **dict.fromkeys(("alibi", "alibislopes", "relativeattentionbias", "relativepositionbias"), _AS_SCORES),
    **dict.fromkeys(("attnbias", "attentionbias"), _AS_SCORES),
    **dict.fromkeys(("biask", "biasv", "addzeroattn"), _AS_ROWS),
    **dict.fromkeys(("rotary", "rotaryemb", "rope", "ropetheta", "cos", "sin", "invfreq"), _TURNED),
    **dict.fromkeys(("qnorm", "knorm", "qknorm"), "Give Q and K as they are after the norm."),
    **dict.fromkeys(("sink", "sinks", "saux"), "attn has no sinks: give one more key, whose value is zeros."),
    **dict.fromkeys(("dropout", "dropoutp", "attndropout"), "attn drops nothing: leave it out, or say 0."),
    **dict.fromkeys(("attnmask", "attentionmask", "iscausal", "causal"), _ALLOWED),
    **dict.fromkeys(("keypaddingmask", "paddingmask"), _ALLOWED),
    **dict.fromkeys(("window", "windowsize", "slidingwindow"), 'Give a rule, as "mask": "window:4".'),
    **dict.fromkeys(("numheads", "nheads", "nhead", "numattentionheads"), "Name it heads."),
    **dict.fromkeys(("numkvheads", "numkeyvalueheads", "nkvheads"), "Name it kv_heads."),
}


def taken_over(record: Mapping[str, object], name: str) -> dict[str, object]:
    """Return the record with the names of other programs turned into attn's own.

    The three matrices in one of torch.nn.MultiheadAttention, in_proj_weight (3d, d), become W_q, W_k and W_v. What
    stands before these names (`self_attn.`, `layers.0.attn.`) is left out. Raises InputError where two are one.
    """
    found: dict[str, object] = {}
    is_torch = False
    for key, value in record.items():
        own = _own_names(key)
        is_torch |= bool(own) and key not in SAME
        parts = (
            _thirds(value, key, name) if len(own) == 3 and value is not None else [value] * max(1, len(own))
        )
        for one, part in zip(own or (key,), parts, strict=True):
            if own and (one in found or record.get(one) is not None):
                raise InputError(f"{name} gives {one} twice, once in {visible(key)}.", "Give it once.")
            found[one] = part
    if is_torch:
        if found.get("layout") not in (None, "out-in"):
            raise InputError(
                f"{name} has PyTorch's names, whose weights are (out, in), and the layout {found['layout']!r}.",
                "Leave out layout, or name them W_q, W_k and W_v.",
            )
        found["layout"] = "out-in"
    return found


def _own_names(key: str) -> tuple[str, ...]:
    """Return the names that attn has for a key of another program; none where it is no such key."""
    if key in SAME:
        return (SAME[key],)
    parts = key.split(".")
    for foreign in (".".join(parts[-2:]), parts[-1]):
        if foreign in TORCH:
            return PACKED.get(foreign) or ((LINEAR | BIASES)[foreign],)
    return ()


def _thirds(value: object, key: str, name: str) -> list[object]:
    """Return the parts for queries, keys and values, one below the other in one array."""
    try:
        packed: Array = np.asarray(value)
    except ValueError:
        packed = np.array(0)
    if packed.ndim < 1 or len(packed) % 3 or not len(packed):
        raise InputError(
            f"{name}: {visible(key)} has shape {packed.shape}; it should have the rows of W_q, W_k and W_v, "
            "one below the other, equally many each."
        )
    return list(np.split(packed, 3))


def refuse_unread(record: Mapping[str, object], known: frozenset[str], name: str) -> None:
    """Raise InputError for a key that would change the result, and that attn does not compute with."""
    for key, value in record.items():
        if key in known or value is None or value is False or _is_zero(value):
            continue
        for part in (key, key.removesuffix(".weight").rpartition(".")[2]):
            what = REFUSED.get(part.replace("_", "").replace("-", "").lower())
            if what is not None:
                raise InputError(
                    f"{name}: attn does not compute with {visible(key)}, and without it the result is another.",
                    what,
                )


def _is_zero(value: object) -> bool:
    return isinstance(value, (int, float)) and value == 0
