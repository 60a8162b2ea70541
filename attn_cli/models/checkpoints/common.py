"""What many families' config.json files say alike, old and new: activation, windows, rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attn_cli.models.checkpoints.blocks import ACTIVATIONS, Rotary
from attn_cli.models.checkpoints.config import Config

MOST_LAYERS = 1000
FULL, LOCAL = "full_attention", "sliding_attention"


def activation(c: Config, name: str) -> str:
    """Return the activation that the key of this name gives."""
    if (found := c.word(name)) not in ACTIVATIONS:
        raise c.refused(name, f"one of {', '.join(ACTIVATIONS)}")
    return found


def tied(c: Config, own: str, source: str) -> tuple[str, ...]:
    """Return the names that a tensor of the logits may have: its own, or what the model ties it to."""
    return (own, source) if c.flag("tie_word_embeddings") else (own,)


def is_causal(c: Config) -> bool:
    """Tell whether words look at themselves and those before only; null, which means no to some, is refused."""
    if "is_causal" in c.values and not isinstance(c.values["is_causal"], bool):
        raise c.refused("is_causal", "true or false")
    return c.flag("is_causal")


def switched_off(
    c: Config, flag: str, roles: str, names: Mapping[str, str], always: str = ""
) -> tuple[str, ...]:
    """Return the biases of these roles where the model has none: the file's own are not read.

    A family with this flag says so by it; one without has no biases but those of the roles in `always`.
    """
    if flag in c.keys.reads:
        always = roles if c.flag(flag) else ""
    return tuple(
        f"{names[role]}.bias" for role in roles.split() if role in names and role not in always.split()
    )


def layer_windows(
    c: Config, count: int, is_local: Callable[[int], bool], size: str = "sliding_window"
) -> list[int | None]:
    """Return each layer's window; `is_local` tells which layers have one where the config has no layer_types."""
    if c.has("layer_types"):
        kinds = c.each("layer_types", count)
        if not set(map(str, kinds)) <= {FULL, LOCAL}:
            raise c.refused("layer_types", f"a list of {FULL} and {LOCAL}")
        local = [kind == LOCAL for kind in kinds]
    else:
        local = [c.has(size) and is_local(n) for n in range(count)]
    return [c.whole(size, most=1 << 24) if one else None for one in local]


def read_rotary(
    c: Config,
    d_k: int,
    theta: str = "rope_theta",
    share: str | None = None,
    kind: str | None = None,
    is_scaled: bool = True,
) -> Rotary:
    """Return how queries and keys are rotated by their positions, as transformers 5 reads it.

    `theta` and `share` are the keys that hold where rope_parameters has neither; without `share`, all of a head is
    rotated. `kind` is that of the layers, in families where rope_parameters has an object for each kind. rope_scaling
    takes the place of rope_parameters, or adds to those of a kind; it does not where `is_scaled` is False.
    """
    told, scaling = c.part("rope_parameters"), c.part("rope_scaling")
    told = told if kind is None else told.part(kind)
    if is_scaled and scaling.values:
        of_kind = told.values or {"rope_type": "default"}  # so that the older "type" says nothing beside it
        told = scaling if kind is None else told._replace(values={**of_kind, **scaling.values})
    dims = d_k
    if share is not None:
        own, named = (told, "partial_rotary_factor") if told.has("partial_rotary_factor") else (c, share)
        dims = int(d_k * own.number(named))
        if not 0 < dims <= d_k or dims % 2:
            raise own.refused(named, f"a share of {d_k} that is an even number")
    rotary = Rotary(told.number("rope_theta") if told.has("rope_theta") else c.number(theta), dims)
    named = "rope_type" if told.has("rope_type") else "type"
    type_ = told.word(named)
    if type_ == "linear":
        return rotary._replace(factor=told.number("factor"))
    if type_ == "llama3":
        factor, low, high = map(told.number, ("factor", "low_freq_factor", "high_freq_factor"))
        if low >= high:
            raise told.refused("high_freq_factor", "more than low_freq_factor")
        return rotary._replace(llama3=(factor, low, high, _first_length(c, told, kind is None)))
    if type_ != "default":
        raise told.refused(named, "default, linear or llama3: attn knows no other")
    return rotary


def _first_length(c: Config, told: Config, is_for_all: bool) -> float:
    """Return how many tokens the model was first trained on."""
    name = "original_max_position_embeddings"
    own = next((one for one in (c, told) if one.has(name) and (is_for_all or one is told)), None)
    return c.number("max_position_embeddings") if own is None else own.number(name)
