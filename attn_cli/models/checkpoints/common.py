"""What many families' config.json files say alike, in older and newer versions: activation, windows, rotary places."""

from __future__ import annotations

from collections.abc import Callable

from attn_cli.models.checkpoints.blocks import ACTIVATIONS, Rotary
from attn_cli.models.checkpoints.config import Config

MOST_LAYERS = 1000
FULL, LOCAL = "full_attention", "sliding_attention"


def activation(c: Config, *names: str, default: str | None = None) -> str:
    """Return the activation that the first of these names gives."""
    name = next((name for name in names if c.has(name)), names[0])
    if (found := c.word(name, default)) not in ACTIVATIONS:
        raise c.refused(name, f"one of {', '.join(ACTIVATIONS)}")
    return found


def tables(c: Config, own: str, words: str, tied: bool = True) -> tuple[str, ...]:
    """Return where the logits' table is: its own, or that of the words where the model ties them."""
    return (own, words) if c.flag("tie_word_embeddings", tied) else (own,)


def layer_windows(
    c: Config, count: int, is_local: Callable[[int], bool] | None, size: str = "sliding_window"
) -> list[int | None]:
    """Return each layer's window; `is_local` tells which layers have one where the config has no layer_types."""
    if c.has("layer_types"):
        kinds = c.each("layer_types", count)
        if not set(map(str, kinds)) <= {FULL, LOCAL}:
            raise c.refused("layer_types", f"a list of {FULL} and {LOCAL}")
        local = [kind == LOCAL for kind in kinds]
    else:
        local = [is_local is not None and c.has(size) and is_local(n) for n in range(count)]
    return [c.whole(size, most=1 << 24) if one else None for one in local]


def read_rotary(
    c: Config, d_k: int, theta: float, share: float = 1.0, kind: str = FULL, is_apart: bool = False
) -> Rotary:
    """Return how queries and keys turn in layers of this kind.

    `theta` and `share` hold where the config gives neither. `is_apart`: layers of this kind do not take the config's
    common rope_theta and rope_scaling.
    """
    told = c.part("rope_parameters")
    if told.has(kind) or told.has(FULL):
        told = told.part(kind)
    elif is_apart:
        told = Config(c.where, {})
    elif not told.values:
        told = c.part("rope_scaling")
    if not is_apart:
        theta, share = c.number("rope_theta", theta), c.number("partial_rotary_factor", share)
    dims = int(d_k * told.number("partial_rotary_factor", share))
    if not 0 < dims <= d_k or dims % 2:
        raise told.refused("partial_rotary_factor", f"a share of {d_k} that is an even number")
    rotary = Rotary(told.number("rope_theta", theta), dims)
    named = "rope_type" if told.has("rope_type") else "type"
    type_ = told.word(named, "default")
    if type_ == "linear":
        return rotary._replace(factor=told.number("factor"))
    if type_ == "llama3":
        numbers = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        factor, low, high, length = map(told.number, numbers)
        if low >= high:
            raise told.refused("high_freq_factor", "more than low_freq_factor")
        return rotary._replace(llama3=(factor, low, high, length))
    if type_ != "default":
        raise told.refused(named, "default, linear or llama3: attn knows no other")
    return rotary
