"""Models that are decoders: GPT-2 and its kin, Llama and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from attn_cli.models.checkpoints.blocks import Rotary
from attn_cli.models.checkpoints.config import (
    LOCAL,
    MOST_LAYERS,
    Config,
    activation,
    is_causal,
    layer_windows,
    read_rotary,
    switched_off,
    tied,
)
from attn_cli.models.checkpoints.describe import Layer, Logits, Model, Stack, Words, one_stack

GPT2 = {
    "qkv": "attn.c_attn", "o": "attn.c_proj", "norm_1": "ln_1", "norm_2": "ln_2",
    "up": "mlp.c_fc", "down": "mlp.c_proj",
}  # fmt: skip
GPT_NEO = {
    "q": "attn.attention.q_proj", "k": "attn.attention.k_proj", "v": "attn.attention.v_proj",
    "o": "attn.attention.out_proj", "norm_1": "ln_1", "norm_2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj",
}  # fmt: skip
GPT_NEOX = {
    "qkv": "attention.query_key_value", "o": "attention.dense", "norm_1": "input_layernorm",
    "norm_2": "post_attention_layernorm", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
}  # fmt: skip
BART = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.out_proj",
    "norm_1": "self_attn_layer_norm", "up": "fc1", "down": "fc2", "norm_2": "final_layer_norm",
}  # fmt: skip


def gpt2(c: Config) -> Model:
    """Return GPT-2."""
    d = c.whole("n_embd")
    d_k, count = c.shared("n_head", d), c.whole("n_layer", most=MOST_LAYERS)
    scale = 1 / sqrt(d_k) if c.flag("scale_attn_weights") else 1.0
    by_layer = c.flag("scale_attn_by_inverse_layer_idx")
    layers = tuple(Layer(f"h.{n}.", GPT2, scale / (n + 1) if by_layer else scale) for n in range(count))
    stack = Stack(
        Words(("wte.weight",), d, positions="wpe.weight"), layers, d, c.whole("n_head"), c.whole("n_head"), d_k,
        causal=is_causal(c), activation=activation(c, "activation_function"), norm="layer",
        eps=c.number("layer_norm_epsilon"), in_out=True, last_norm="ln_f", skips_padding_positions=True,
    )  # fmt: skip
    return one_stack(("transformer.",), stack, Logits(tied(c, "lm_head.weight", "wte.weight")))


def gpt_neo(c: Config) -> Model:
    """Return GPT-Neo: scores are not scaled, and every other layer looks back a window only."""
    d, count = c.whole("hidden_size"), c.whole("num_layers", most=MOST_LAYERS)
    d_k, heads, window = c.shared("num_heads", d), c.whole("num_heads"), c.whole("window_size")
    kinds = _kinds_of_gpt_neo(c, count)
    layers = tuple(
        Layer(f"h.{n}.", GPT_NEO, 1.0, window if kind == "local" else None) for n, kind in enumerate(kinds)
    )
    stack = Stack(
        Words(("wte.weight",), d, positions="wpe.weight"), layers, d, heads, heads, d_k,
        causal=True, activation=activation(c, "activation_function"), norm="layer",
        eps=c.number("layer_norm_epsilon"), last_norm="ln_f", skips_padding_positions=True,
    )  # fmt: skip
    unread = switched_off(c, "attention_bias", "q k v", GPT_NEO)
    return one_stack(("transformer.",), stack, Logits(tied(c, "lm_head.weight", "wte.weight")), unread)


def _kinds_of_gpt_neo(c: Config, count: int) -> list[object]:
    """Return global or local for each layer: from attention_layers, else from attention_types, which repeats some."""
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
    return kinds


def gpt_neox(c: Config) -> Model:
    """Return GPT-NeoX or Pythia: attention and the network take the same input."""
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    d_k, heads = c.shared("num_attention_heads", d), c.whole("num_attention_heads")
    rotary = read_rotary(c, d_k, "rotary_emb_base", "rotary_pct")
    layers = tuple(Layer(f"layers.{n}.", GPT_NEOX, 1 / sqrt(d_k), rotary=rotary) for n in range(count))
    stack = Stack(
        Words(("embed_in.weight",), d), layers, d, heads, heads, d_k,
        causal=is_causal(c), activation=activation(c, "hidden_act"), norm="layer",
        eps=c.number("layer_norm_eps"), parallel=c.flag("use_parallel_residual"), by_head=True,
        last_norm="final_layer_norm", skips_padding_positions=True,
    )  # fmt: skip
    logits = Logits(tied(c, "embed_out.weight", "embed_in.weight"))
    return one_stack(("gpt_neox.",), stack, logits, switched_off(c, "attention_bias", "qkv o", GPT_NEOX))


def opt(c: Config) -> Model:
    """Return OPT."""
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    d_k, heads = c.shared("num_attention_heads", d), c.whole("num_attention_heads")
    width = c.whole("word_embed_proj_dim") if c.has("word_embed_proj_dim") else d
    if not c.flag("layer_norm_elementwise_affine"):
        raise c.refused("layer_norm_elementwise_affine", "true: attn knows no norms without weights")
    before, apart = c.flag("do_layer_norm_before"), width != d
    words = Words(
        ("embed_tokens.weight",), width, positions="embed_positions.weight", offset=2,
        project="project_in" if apart else None, project_first=True,
    )  # fmt: skip
    layers = tuple(Layer(f"layers.{n}.", BART, 1 / sqrt(d_k)) for n in range(count))
    stack = Stack(
        words, layers, d, heads, heads, d_k,
        causal=is_causal(c), activation=activation(c, "activation_function"), norm="layer", eps=1e-5,
        pre_norm=before, skips_padding_positions=True,
        last_norm="final_layer_norm" if before and not c.flag("_remove_final_layer_norm") else None,
    )  # fmt: skip
    logits = Logits(
        tied(c, "lm_head.weight", "embed_tokens.weight"), project="project_out" if apart else None
    )
    unread = switched_off(c, "enable_bias", "q k v o up down", BART)
    return one_stack(("model.decoder.", "decoder."), stack, logits, unread)


# Llama and what came of it

LLAMA = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
    "norm_1": "input_layernorm", "norm_2": "post_attention_layernorm",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
QK_NORM = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
GEMMA2 = LLAMA | {
    "after_1": "post_attention_layernorm", "norm_2": "pre_feedforward_layernorm",
    "after_2": "post_feedforward_layernorm",
}  # fmt: skip


def llama(
    c: Config,
    *,
    names: Mapping[str, str] = LLAMA,
    windows: Sequence[int | None] | None = None,
    rotaries: Sequence[Rotary | None] | None = None,
    gemma: bool = False,
    causal: bool | None = None,
    biased: str = "",
) -> Model:
    """Return Llama or a model like it: a decoder with rotary positions, RMS norms and a gated network.

    `windows` and `rotaries` have an entry for each layer; without them no layer has a window, and all rotate alike.
    `biased` are roles that always have a bias.
    """
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    heads = c.whole("num_attention_heads")
    kv_heads = c.whole("num_key_value_heads") if c.has("num_key_value_heads") else heads
    if heads % kv_heads:
        raise c.refused("num_key_value_heads", f"a number that divides {heads}")
    d_k = head_size(c)
    scale = (c.number("query_pre_attn_scalar") if c.has("query_pre_attn_scalar") else d_k) ** -0.5
    windows = [None] * count if windows is None else windows
    rotaries = [read_rotary(c, d_k)] * count if rotaries is None else rotaries
    layers = tuple(Layer(f"layers.{n}.", names, scale, windows[n], rotaries[n]) for n in range(count))
    activated = "hidden_activation" if "hidden_activation" in c.keys.reads else "hidden_act"
    stack = Stack(
        Words(("embed_tokens.weight",), d, scale=sqrt(d) if gemma else 1.0), layers, d, heads, kv_heads, d_k,
        causal=is_causal(c) if causal is None else causal, activation=activation(c, activated),
        norm="rms, gain less one" if gemma else "rms", eps=c.number("rms_norm_eps"), last_norm="norm",
        softcap=c.number("attn_logit_softcapping") if c.has("attn_logit_softcapping") else None,
        skips_padding_positions=True,
    )  # fmt: skip
    logits = Logits(
        tied(c, "lm_head.weight", "embed_tokens.weight"),
        softcap=c.number("final_logit_softcapping") if c.has("final_logit_softcapping") else None,
    )
    prefixes = ("model.", "language_model.model.", "model.language_model.", "language_model.")
    unread = (
        *switched_off(c, "attention_bias", "q k v o", names, biased),
        *switched_off(c, "mlp_bias", "gate up down", names),
    )
    return one_stack(prefixes, stack, logits, unread)


def head_size(c: Config) -> int:
    """Return d_k, which need not be an equal share of the model's width."""
    return (
        c.whole("head_dim") if c.has("head_dim") else c.shared("num_attention_heads", c.whole("hidden_size"))
    )


def mistral(c: Config) -> Model:
    """Return Mistral: every layer looks back a window, if there is one."""
    return llama(c, windows=layer_windows(c, c.whole("num_hidden_layers", most=MOST_LAYERS), lambda n: True))


def qwen(c: Config, names: Mapping[str, str] = LLAMA) -> Model:
    """Return Qwen2; with other names, Qwen3. A window holds only where use_sliding_window says so."""
    first, count = c.whole("max_window_layers", least=0), c.whole("num_hidden_layers", most=MOST_LAYERS)
    has_windows = c.flag("use_sliding_window")
    windows = layer_windows(c, count, lambda n: has_windows and n >= first)
    if any(windows) and not has_windows:
        raise c.refused("use_sliding_window", f"true where layer_types has {LOCAL}")
    return llama(c, names=names, windows=windows, biased="q k v")


def smollm3(c: Config) -> Model:
    """Return SmolLM3: one layer in four knows no positions, and looks back a window where there is one."""
    count, every = c.whole("num_hidden_layers", most=MOST_LAYERS), c.whole("no_rope_layer_interval")
    is_rotated = [(n + 1) % every != 0 for n in range(count)]
    if c.has("no_rope_layers"):
        is_rotated = [bool(one) for one in c.several("no_rope_layers")[:count]]
        if len(is_rotated) < count:
            raise c.refused("no_rope_layers", f"a list with a value for each of {count} layers")
    has_windows = c.flag("use_sliding_window")
    windows = layer_windows(c, count, lambda n: has_windows and not is_rotated[n])
    rotary = read_rotary(c, head_size(c))
    return llama(c, windows=windows, rotaries=[rotary if one else None for one in is_rotated])


def gemma(c: Config, names: Mapping[str, str] = LLAMA, every: int | None = None) -> Model:
    """Return Gemma; with other names, Gemma 2, in which one layer of `every` sees all and the others a window."""
    if _looks_both_ways(
        c
    ):  # transformers masks such a model with one implementation of attention, not with another
        raise c.refused("use_bidirectional_attention", "false or null in this family")
    if (
        c.has("hidden_act") and c.word("hidden_act") == "gelu"
    ):  # which the first Gemma's files say and do not mean
        c = c._replace(values={**c.values, "hidden_act": "gelu_pytorch_tanh"})
    count = c.whole("num_hidden_layers", most=MOST_LAYERS)
    windows = layer_windows(c, count, lambda n: (n + 1) % every != 0) if every else None
    return llama(c, names=names, windows=windows, gemma=True)


def gemma3(c: Config) -> Model:
    """Return Gemma 3: five layers that look back a window, with rotary positions of their own, and one that sees all.

    Where attention is bidirectional, as in EmbeddingGemma, a window of w is w // 2 words on either side.
    """
    every, count = c.whole("sliding_window_pattern"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    windows = layer_windows(c, count, lambda n: (n + 1) % every != 0)
    causal, both_ways = is_causal(c), _looks_both_ways(c)
    near = read_rotary(c, head_size(c), "rope_local_base_freq", kind="sliding_attention", is_scaled=False)
    far = read_rotary(c, head_size(c), kind="full_attention")
    rotaries = [near if window else far for window in windows]
    if both_ways:  # is_causal, where it is false too, makes the window's end inclusive
        windows = [window and window // 2 + (not causal) for window in windows]
    return llama(
        c,
        names=GEMMA2 | QK_NORM,
        windows=windows,
        rotaries=rotaries,
        gemma=True,
        causal=causal and not both_ways,
    )


def gemma3_with_pictures(c: Config) -> Model:
    """Return the text's part of a Gemma 3 that reads pictures, too."""
    text, tie = c.part("text_config"), "tie_word_embeddings"
    if _looks_both_ways(text):  # which transformers obeys in a model of text alone
        raise text.refused("use_bidirectional_attention", "false or null in this family")
    return gemma3(text._replace(values={**text.values, tie: c.flag(tie)}))


def _looks_both_ways(c: Config) -> bool:
    return c.has("use_bidirectional_attention") and c.flag("use_bidirectional_attention")
