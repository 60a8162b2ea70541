"""Models of an encoder and a decoder: T5, BART, Marian."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from attn_cli.models.checkpoints.blocks import ACTIVATIONS
from attn_cli.models.checkpoints.common import MOST_LAYERS, activation
from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.decoders import BART
from attn_cli.models.checkpoints.describe import Layer, Logits, Model, Relative, Stack, Words

T5 = {
    "q": "layer.0.SelfAttention.q", "k": "layer.0.SelfAttention.k", "v": "layer.0.SelfAttention.v",
    "o": "layer.0.SelfAttention.o", "norm_1": "layer.0.layer_norm",
}  # fmt: skip
T5_CROSS = {
    "cross_q": "layer.1.EncDecAttention.q", "cross_k": "layer.1.EncDecAttention.k",
    "cross_v": "layer.1.EncDecAttention.v", "cross_o": "layer.1.EncDecAttention.o",
    "cross_norm": "layer.1.layer_norm",
}  # fmt: skip
BART_CROSS = {
    "cross_q": "encoder_attn.q_proj", "cross_k": "encoder_attn.k_proj", "cross_v": "encoder_attn.v_proj",
    "cross_o": "encoder_attn.out_proj", "cross_norm": "encoder_attn_layer_norm",
}  # fmt: skip


def t5(c: Config) -> Model:
    """Return T5, T5 v1.1, FLAN-T5 and mT5: scores are not scaled, and distances have a number for each head."""
    d, heads, d_k = c.whole("d_model"), c.whole("num_heads"), c.whole("d_kv")
    gated, _, network_kind = c.word("feed_forward_proj", "relu").rpartition("-")
    activated = "gelu_new" if (gated, network_kind) == ("gated", "gelu") else network_kind
    if gated not in ("", "gated") or activated not in ACTIVATIONS:
        raise c.refused(
            "feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or that with gated- before it"
        )
    count = c.whole("num_layers", most=MOST_LAYERS)

    def stack(side: str, count: int, network: int, cross: dict[str, str]) -> Stack:
        dense = f"layer.{network}.DenseReluDense."
        ups = {"gate": dense + "wi_0", "up": dense + "wi_1"} if gated else {"up": dense + "wi"}
        names = T5 | cross | ups | {"down": dense + "wo", "norm_2": f"layer.{network}.layer_norm"}
        relative = Relative(
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            c.whole("relative_attention_num_buckets", 32, least=4),
            c.whole("relative_attention_max_distance", 128),
        )
        if relative.farthest <= relative.buckets:
            raise c.refused("relative_attention_max_distance", "more than relative_attention_num_buckets")
        layers = tuple(Layer(f"{side}.block.{n}.", names, 1.0) for n in range(count))
        return Stack(
            Words((f"{side}.embed_tokens.weight", "shared.weight"), d), layers, d, heads, heads, d_k,
            causal=side == "decoder", activation=activated, norm="rms", eps=c.number("layer_norm_epsilon", 1e-6),
            relative=relative, last_norm=f"{side}.final_layer_norm",
        )  # fmt: skip

    encoder = stack("encoder", count, 1, {})
    decoder = stack("decoder", c.whole("num_decoder_layers", count, most=MOST_LAYERS), 2, T5_CROSS)
    named = c.word("model_type")
    is_scaled = named == "t5" and c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", True))
    logits = Logits(("lm_head.weight", "shared.weight"), scale=d**-0.5 if is_scaled else 1.0)
    return Model(named, (), encoder, decoder, logits, _start(c, 0))


def bart(c: Config, sinusoids: bool = False) -> Model:
    """Return BART, or Marian, whose places are sinusoids."""
    d = c.whole("d_model")

    def stack(side: str, names: Mapping[str, str]) -> Stack:
        d_k, heads = c.shared(f"{side}_attention_heads", d), c.whole(f"{side}_attention_heads")
        words = Words(
            (f"{side}.embed_tokens.weight", "shared.weight"), d,
            scale=sqrt(d) if c.flag("scale_embedding", False) else 1.0,
            positions=None if sinusoids else f"{side}.embed_positions.weight", offset=2, sinusoids=sinusoids,
            norm=None if sinusoids else f"{side}.layernorm_embedding",
        )  # fmt: skip
        count = c.whole(f"{side}_layers", most=MOST_LAYERS)
        layers = tuple(Layer(f"{side}.layers.{n}.", names, 1 / sqrt(d_k)) for n in range(count))
        return Stack(
            words, layers, d, heads, heads, d_k,
            causal=side == "decoder", activation=activation(c, "activation_function", default="gelu"),
            norm="layer", eps=1e-5, before=False,
        )  # fmt: skip

    logits = Logits(
        ("lm_head.weight", "decoder.embed_tokens.weight", "shared.weight"),
        "final_logits_bias",
        bias_lead=(1,),
    )
    encoder, decoder = stack("encoder", BART), stack("decoder", BART | BART_CROSS)
    return Model(c.word("model_type"), ("model.",), encoder, decoder, logits, _start(c, 2))


def _start(c: Config, default: int) -> int:
    """Return the token with which the decoder begins."""
    return c.whole("decoder_start_token_id", default, least=0, most=1 << 24)
