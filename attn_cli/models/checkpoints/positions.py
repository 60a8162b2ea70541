"""Which layers look back a window only, and how queries and keys are rotated, as a config.json says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log, pi, sqrt

from attn_cli.models.checkpoints.blocks import Rotary
from attn_cli.models.checkpoints.config import Config, looks_back

Windows = Sequence[int | None]  # one for each layer
Rotaries = Sequence[Rotary | None]
# of a config, what it says of rotation, whether of all layers
Kind = Callable[[Config, Config, Rotary, bool], Rotary]
FULL, LOCAL = "full_attention", "sliding_attention"


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
    c: Config, d_k: int, theta: str = "rope_theta", share: str | None = None, kind: str | None = None,
    is_scaled: bool = True, kinds: Mapping[str, Kind] | None = None,
) -> Rotary:  # fmt: skip
    """Return how queries and keys are rotated by their positions, as transformers 5 reads it.

    `theta` and `share` are the keys that hold where rope_parameters has neither; without `share`, all of a head is
    rotated. `kind` is that of the layers, in families where rope_parameters has an object for each kind. rope_scaling
    takes the place of rope_parameters, or adds to those of a kind; it does not where `is_scaled` is False.
    """
    rope, scaling = c.part("rope_parameters"), c.part("rope_scaling")
    rope = rope if kind is None else rope.part(kind)
    if is_scaled and scaling.values:
        of_kind = rope.values or {"rope_type": "default"}  # so that the older "type" says nothing beside it
        rope = scaling if kind is None else rope._replace(values={**of_kind, **scaling.values})
    own, named = (c, share) if share is not None else (rope, "")
    if share is not None and rope.has("partial_rotary_factor"):
        own, named = rope, "partial_rotary_factor"
    base = rope.number("rope_theta") if rope.has("rope_theta") else c.number(theta)
    rotary = Rotary(base, int(d_k * own.number(named)) if named else d_k)
    if rotary.dims < 1 or rotary.turned > d_k:
        raise own.refused(named, f"a share of {d_k}") if named else c.refused("head_dim", "even")
    named, kinds = "rope_type" if rope.has("rope_type") else "type", kinds or ROPE_KINDS
    if (read := kinds.get(rope.word(named))) is None:
        raise rope.refused(named, f"one of {', '.join(kinds)}: attn knows no other")
    return read(c, rope, rotary, kind is None)


def _llama3(c: Config, rope: Config, rotary: Rotary, is_for_all: bool) -> Rotary:
    factor, low, high = map(rope.number, ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise rope.refused("high_freq_factor", "more than low_freq_factor")
    return rotary._replace(llama3=(factor, low, high, _first_length(c, rope, is_for_all)))


def _dynamic(c: Config, rope: Config, rotary: Rotary, is_for_all: bool) -> Rotary:
    if rotary.dims < 3:
        raise rope.refused("rope_type", "default where fewer than three numbers are rotated")
    return rotary._replace(length=c.number("max_position_embeddings"), growth=rope.number("factor"))


def _yarn(c: Config, rope: Config, rotary: Rotary, is_for_all: bool) -> Rotary:
    """Return YaRN's rotation (Peng et al. 2023): slow turns are divided by the factor, fast ones are not."""
    first = _first_length(c, rope, is_for_all)
    factor = rope.optional("factor") or c.number("max_position_embeddings") / first
    if rotary.theta == 1:
        raise rope.refused("rope_theta", "another number than 1")
    turns = map(rope.number, ("beta_fast", "beta_slow"))
    low, high = (rotary.dims * log(first / (turn * 2 * pi)) / (2 * log(rotary.theta)) for turn in turns)
    if not is_for_all or rope.flag("truncate"):  # of kinds of layers, transformers truncates all
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, rotary.dims - 1)
    width = high - low or 0.001
    shares = (min(max((n - low) / width, 0), 1) for n in range(rotary.turned // 2))
    gain = rope.optional("attention_factor")
    if gain is None:
        gain = _gain(factor, 1)
        if rope.has("mscale") and rope.has("mscale_all_dim"):
            gain = _gain(factor, rope.number("mscale")) / _gain(factor, rope.number("mscale_all_dim"))
    divisors = tuple(1 / (1 - share + share / factor) for share in shares)
    return rotary._replace(divisors=divisors, gain=gain)


def _gain(factor: float, more: float) -> float:
    return 0.1 * more * log(factor) + 1 if factor > 1 else 1.0


def _longrope(c: Config, rope: Config, rotary: Rotary, is_for_all: bool) -> Rotary:
    """Return LongRoPE's rotation (Ding et al. 2024): each turn has a divisor, and another in long texts."""
    first, gain = _first_length(c, rope, is_for_all), rope.optional("attention_factor")
    factor = rope.optional("factor") or c.number("max_position_embeddings") / first
    if first <= 1:
        raise rope.refused("original_max_position_embeddings", "more than 1")
    if gain is None:
        gain = sqrt(1 + log(factor) / log(first)) if factor > 1 else 1.0
    short, long = (rope.numbers(name, rotary.turned // 2) for name in ("short_factor", "long_factor"))
    return rotary._replace(length=first, divisors=short, long_divisors=long, gain=gain)


ROPE_KINDS: dict[str, Kind] = {
    "default": lambda c, rope, rotary, is_for_all: rotary,
    "linear": lambda c, rope, rotary, is_for_all: rotary._replace(factor=rope.number("factor")),
    "llama3": _llama3, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope,
}  # fmt: skip
# longrope, and older names of it
PHI3_KINDS = {"default": ROPE_KINDS["default"]} | dict.fromkeys(("longrope", "su", "yarn"), _longrope)


def _first_length(c: Config, rope: Config, is_for_all: bool) -> float:
    """Return how many tokens the model was first trained on."""
    name = "original_max_position_embeddings"
    own = next((one for one in (c, rope) if one.has(name) and (is_for_all or one is rope)), None)
    return c.number("max_position_embeddings") if own is None else own.number(name)


def half_windows(c: Config, count: int) -> Windows:
    """Return ModernBERT's windows: one layer in three sees all, the others half a window on either side."""
    every = c.whole("global_attn_every_n_layers")
    windows = layer_windows(c, count, lambda n: n % every != 0, "local_attention")
    return [None if window is None else window // 2 for window in windows]


def two_rotaries(near: str, far: str, is_near_scaled: bool) -> Callable[[Config, int, Windows], Rotaries]:
    """Return what reads two rotations: by the key `near` where there is a window, by `far` elsewhere."""

    def rotaries(c: Config, d_k: int, windows: Windows) -> Rotaries:
        local = read_rotary(c, d_k, near, kind=LOCAL, is_scaled=is_near_scaled)
        full = read_rotary(c, d_k, far, kind=FULL)
        return [full if window is None else local for window in windows]

    return rotaries


def neo_windows(c: Config, count: int) -> Windows:
    """Return GPT-Neo's windows: from attention_layers, else from attention_types, which repeats some kinds."""
    name = "attention_layers" if c.has("attention_layers") else "attention_types"
    wanted = f"a list of global and local for each of {count} layers"
    if name == "attention_layers":
        kinds = c.each(name, count)
    elif not c.has(name):
        kinds = ["global", "local"] * 12
    else:
        wanted += ', as [[["global", "local"], 12]]'
        kinds = []
        for entry in c.several(name):
            match entry:
                case [list(some), int(times)] if 0 <= times <= count and len(some) <= count:
                    kinds += some * times
                case _:
                    raise c.refused(name, wanted)
    if len(kinds) != count or not set(map(str, kinds)) <= {"global", "local"}:
        raise c.refused(name, wanted)
    window = c.whole("window_size")
    return [window if kind == "local" else None for kind in kinds]


def alike(
    theta: str = "rope_theta", share: str | None = None, kinds: Mapping[str, Kind] = ROPE_KINDS,
    neighbours: bool = False, everywhere: bool = True,
) -> Callable[[Config, int, Windows], Rotaries]:  # fmt: skip
    """Return what reads one rotation for all layers, or for those with a window where it is not `everywhere`."""

    def rotaries(c: Config, d_k: int, windows: Windows) -> Rotaries:
        rotary = read_rotary(c, d_k, theta, share, kinds=kinds)._replace(neighbours=neighbours)
        return [rotary if everywhere or window is not None else None for window in windows]

    return rotaries


def first_numbers(c: Config, d_k: int, windows: Windows) -> Rotaries:
    """Return GPT-J's rotation: of the first numbers of a head, neighbours together."""
    dims = c.whole("rotary_dim", most=d_k)
    if dims % 2:
        raise c.refused("rotary_dim", "even")
    return [Rotary(1e4, dims, neighbours=True)] * len(windows)


def qwen_windows(c: Config, count: int, lower: bool = False) -> Windows:
    """Return the windows of Qwen's upper layers, or of every other `lower` one, where use_sliding_window says so."""
    bound, has_windows = c.whole("max_window_layers", least=0), c.flag("use_sliding_window")

    def is_local(n: int) -> bool:
        return has_windows and (n % 2 == 0 and n < bound if lower else n >= bound)

    windows = layer_windows(c, count, is_local)
    if any(windows) and not has_windows:
        raise c.refused("use_sliding_window", f"true where layer_types has {LOCAL}")
    return windows


def _is_rotated(c: Config, count: int) -> Sequence[bool]:
    """Tell of each of SmolLM3's layers whether it knows positions: one in four does not."""
    every = c.whole("no_rope_layer_interval")
    if not c.has("no_rope_layers"):
        return [(n + 1) % every != 0 for n in range(count)]
    told = [bool(one) for one in c.several("no_rope_layers")[:count]]
    if len(told) < count:
        raise c.refused("no_rope_layers", f"a list with a value for each of {count} layers")
    return told


def unrotated_windows(c: Config, count: int) -> Windows:
    """Return SmolLM3's windows: of the layers that know no positions."""
    is_rotated, has_windows = _is_rotated(c, count), c.flag("use_sliding_window")
    return layer_windows(c, count, lambda n: has_windows and not is_rotated[n])


def some_rotaries(c: Config, d_k: int, windows: Windows) -> Rotaries:
    """Return SmolLM3's rotations: none where a layer knows no positions."""
    rotary = read_rotary(c, d_k)
    return [rotary if one else None for one in _is_rotated(c, len(windows))]


def looks_both_ways(c: Config) -> bool:
    """Tell whether a Gemma is no decoder."""
    return c.flag("use_bidirectional_attention", False)


def pattern_of_windows(c: Config, count: int) -> Windows:
    """Return Gemma 3's windows: five layers have one, and one sees all.

    Where attention is bidirectional, as in EmbeddingGemma, a window of w is w // 2 words on either side; is_causal,
    where it is false too, makes the window's end inclusive.
    """
    every = c.whole("sliding_window_pattern")
    windows = layer_windows(c, count, lambda n: (n + 1) % every != 0)
    if not looks_both_ways(c):
        return windows
    return [None if window is None else window // 2 + (not looks_back(c, True)) for window in windows]
