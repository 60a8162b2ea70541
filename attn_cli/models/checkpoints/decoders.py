"""Models that are decoders: GPT-2 and its kin, Llama and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

from attn_cli.models.checkpoints.common import MOST_LAYERS, activation, layer_windows, read_rotary, tables
from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.describe import Layer, Logits, Model, Stack, Words

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
    scale = 1 / sqrt(d_k) if c.flag("scale_attn_weights", True) else 1.0
    by_layer = c.flag("scale_attn_by_inverse_layer_idx", False)
    layers = tuple(Layer(f"h.{n}.", GPT2, scale / (n + 1) if by_layer else scale) for n in range(count))
    stack = Stack(
        Words(("wte.weight",), d, positions="wpe.weight"), layers, d, c.whole("n_head"), c.whole("n_head"), d_k,
        causal=True, activation=activation(c, "activation_function", default="gelu_new"), norm="layer",
        eps=c.number("layer_norm_epsilon", 1e-5), in_out=True, last_norm="ln_f", counts_real=True,
    )  # fmt: skip
    logits = Logits(tables(c, "lm_head.weight", "wte.weight"))
    return Model("gpt2", ("transformer.",), None, stack, logits)


def gpt_neo(c: Config) -> Model:
    """Return GPT-Neo: scores are not scaled, and every other layer looks back a window only."""
    d, count = c.whole("hidden_size"), c.whole("num_layers", most=MOST_LAYERS)
    d_k, heads, kinds = c.shared("num_heads", d), c.whole("num_heads"), c.each("attention_layers", count)
    if not set(map(str, kinds)) <= {"global", "local"}:
        raise c.refused("attention_layers", "a list of global and local")
    window = c.whole("window_size", 256)
    layers = tuple(
        Layer(f"h.{n}.", GPT_NEO, 1.0, window if kind == "local" else None) for n, kind in enumerate(kinds)
    )
    stack = Stack(
        Words(("wte.weight",), d, positions="wpe.weight"), layers, d, heads, heads, d_k,
        causal=True, activation=activation(c, "activation_function", default="gelu_new"), norm="layer",
        eps=c.number("layer_norm_epsilon", 1e-5), last_norm="ln_f", counts_real=True,
    )  # fmt: skip
    logits = Logits(tables(c, "lm_head.weight", "wte.weight"))
    return Model("gpt_neo", ("transformer.",), None, stack, logits)


def gpt_neox(c: Config) -> Model:
    """Return GPT-NeoX or Pythia: attention and the network take the same input."""
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    d_k, heads = c.shared("num_attention_heads", d), c.whole("num_attention_heads")
    rotary = read_rotary(c, d_k, theta=c.number("rotary_emb_base", 1e4), share=c.number("rotary_pct", 0.25))
    layers = tuple(Layer(f"layers.{n}.", GPT_NEOX, 1 / sqrt(d_k), rotary=rotary) for n in range(count))
    stack = Stack(
        Words(("embed_in.weight",), d), layers, d, heads, heads, d_k,
        causal=True, activation=activation(c, "hidden_act", default="gelu"), norm="layer",
        eps=c.number("layer_norm_eps", 1e-5), parallel=c.flag("use_parallel_residual", True), by_head=True,
        last_norm="final_layer_norm", counts_real=True,
    )  # fmt: skip
    logits = Logits(tables(c, "embed_out.weight", "embed_in.weight", tied=False))
    return Model("gpt_neox", ("gpt_neox.",), None, stack, logits)


def opt(c: Config) -> Model:
    """Return OPT."""
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    d_k, heads, width = (
        c.shared("num_attention_heads", d),
        c.whole("num_attention_heads"),
        c.whole("word_embed_proj_dim", d),
    )
    before, apart = c.flag("do_layer_norm_before", True), width != d
    words = Words(
        ("embed_tokens.weight",), width, positions="embed_positions.weight", offset=2,
        project="project_in" if apart else None, project_first=True,
    )  # fmt: skip
    layers = tuple(Layer(f"layers.{n}.", BART, 1 / sqrt(d_k)) for n in range(count))
    stack = Stack(
        words, layers, d, heads, heads, d_k,
        causal=True, activation=activation(c, "activation_function", default="relu"), norm="layer", eps=1e-5,
        before=before, counts_real=True,
        last_norm="final_layer_norm" if before and not c.flag("_remove_final_layer_norm", False) else None,
    )  # fmt: skip
    logits = Logits(
        tables(c, "lm_head.weight", "embed_tokens.weight"), project="project_out" if apart else None
    )
    return Model("opt", ("model.decoder.", "decoder."), None, stack, logits)


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
    theta: float = 1e4,
    local_theta: float | None = None,
    windows: Callable[[int], bool] | None = None,
    tied: bool = False,
    gemma: bool = False,
) -> Model:
    """Return Llama or a model like it: a decoder with rotary places, RMS norms and a gated network.

    `windows` tells which layers look back a window only, where the config itself does not.
    """
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    heads = c.whole("num_attention_heads")
    kv_heads = c.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        raise c.refused("num_key_value_heads", f"a number that divides {heads}")
    d_k = c.whole("head_dim") if c.has("head_dim") else c.shared("num_attention_heads", d)
    scale = c.number("query_pre_attn_scalar", d_k) ** -0.5
    local = layer_windows(c, count, windows)
    turns = {
        is_local: read_rotary(
            c, d_k, theta=local_theta if is_local and local_theta else theta,
            kind="sliding_attention" if is_local else "full_attention", is_apart=bool(is_local and local_theta),
        )
        for is_local in (False, True)
    }  # fmt: skip
    turned = c.each("no_rope_layers", count) if c.has("no_rope_layers") else [1] * count
    layers = tuple(
        Layer(
            f"layers.{n}.", names, scale, local[n],
            turns[local[n] is not None] if turned[n] else None,
        )
        for n in range(count)
    )  # fmt: skip
    stack = Stack(
        Words(("embed_tokens.weight",), d, scale=sqrt(d) if gemma else 1.0), layers, d, heads, kv_heads, d_k,
        causal=True,
        activation="gelu_pytorch_tanh" if gemma and not c.has("hidden_activation")
        else activation(c, "hidden_activation", "hidden_act", default="silu"),
        norm="rms, gain less one" if gemma else "rms", eps=c.number("rms_norm_eps", 1e-6), last_norm="norm",
        softcap=c.number("attn_logit_softcapping") if c.has("attn_logit_softcapping") else None,
        counts_real=True,
    )  # fmt: skip
    logits = Logits(
        tables(c, "lm_head.weight", "embed_tokens.weight", tied),
        softcap=c.number("final_logit_softcapping") if c.has("final_logit_softcapping") else None,
    )
    prefixes = ("model.", "language_model.model.", "model.language_model.", "language_model.")
    return Model(c.word("model_type"), prefixes, None, stack, logits)


def qwen(c: Config, names: Mapping[str, str] = LLAMA) -> Model:
    """Return Qwen2 or SmolLM3; with other names, Qwen3. A window holds only where use_sliding_window says so."""
    if not c.flag("use_sliding_window", False):
        return llama(c.without("sliding_window", "layer_types"), names=names)
    first = c.whole("max_window_layers", 28, least=0)
    return llama(c, names=names, windows=lambda n: n >= first)


def gemma3(c: Config) -> Model:
    """Return Gemma 3: five layers that look back a window, with rotary places of their own, and one that sees all."""
    every = c.whole("sliding_window_pattern", 6)
    return llama(
        c, names=GEMMA2 | QK_NORM, theta=1e6, local_theta=c.number("rope_local_base_freq", 1e4),
        windows=lambda n: (n + 1) % every != 0, tied=True, gemma=True,
    )  # fmt: skip
