"""Models of an encoder and a decoder: T5, BART and its kin, T5Gemma."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import sqrt

from attn_cli.models.checkpoints.blocks import ACTIVATIONS
from attn_cli.models.checkpoints.config import MOST_LAYERS, Config, activation, looks_back
from attn_cli.models.checkpoints.decoder_plans import GEMMA2, OPT
from attn_cli.models.checkpoints.describe import Layer, Logits, Model, Relative, Stack, Words

T5 = {role: f"layer.0.SelfAttention.{role}" for role in "qkvo"} | {"norm_1": "layer.0.layer_norm"}
T5_CROSS = {f"cross_{role}": f"layer.1.EncDecAttention.{role}" for role in "qkvo"}
T5_CROSS["cross_norm"] = "layer.1.layer_norm"
BART_CROSS = {f"cross_{role}": f"encoder_attn.{role}_proj" for role in "qkv"} | {
    "cross_o": "encoder_attn.out_proj", "cross_norm": "encoder_attn_layer_norm",
}  # fmt: skip


def t5(c: Config) -> Model:
    """Return T5, T5 v1.1, FLAN-T5 and mT5: scores are not scaled, and distances have a number for each head."""
    d, heads, d_k = c.whole("d_model"), c.whole("num_heads"), c.whole("d_kv")
    gated, _, network_kind = c.word("feed_forward_proj").rpartition("-")
    activated = "gelu_new" if (gated, network_kind) == ("gated", "gelu") else network_kind
    if gated not in ("", "gated") or activated not in ACTIVATIONS:
        wanted = f"one of {', '.join(ACTIVATIONS)}, or that with gated- before it"
        raise c.refused("feed_forward_proj", wanted)
    for name in ("dense_act_fn", "is_gated_act", "scale_decoder_outputs"):
        if name in c.values and c.values[name] is None:
            raise c.refused(name, "left out, or a value")
    activated = activation(c, "dense_act_fn") if c.has("dense_act_fn") else activated
    is_gated = c.flag("is_gated_act", bool(gated))
    count = c.whole("num_layers", most=MOST_LAYERS)

    def stack(side: str, count: int, network: int, cross: dict[str, str]) -> Stack:
        dense = f"layer.{network}.DenseReluDense."
        ups = {"gate": dense + "wi_0", "up": dense + "wi_1"} if is_gated else {"up": dense + "wi"}
        names = T5 | cross | ups | {"down": dense + "wo", "norm_2": f"layer.{network}.layer_norm"}
        buckets = c.whole("relative_attention_num_buckets", least=4)
        farthest = "relative_attention_max_distance"
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        relative = Relative(name, buckets, c.whole(farthest))
        if relative.farthest <= buckets:
            raise c.refused(farthest, "more than relative_attention_num_buckets")
        layers = tuple(Layer(f"{side}.block.{n}.", names, 1.0) for n in range(count))
        return Stack(
            Words((f"{side}.embed_tokens.weight", "shared.weight"), d), "rms", layers, d, heads, heads, d_k,
            causal=side == "decoder", activation=activated, eps=c.number("layer_norm_epsilon"),
            relative=relative, last_norm=f"{side}.final_layer_norm",
        )  # fmt: skip

    encoder, below = stack("encoder", count, 1, {}), "num_decoder_layers"
    decoder = stack("decoder", c.whole(below, most=MOST_LAYERS) if c.has(below) else count, 2, T5_CROSS)
    # T5 v1.1 says that its embeddings are not tied, by which it means that what they are compared with is not scaled
    scaled = "scale_decoder_outputs" if c.has("scale_decoder_outputs") else "tie_word_embeddings"
    logits = Logits(("lm_head.weight", "shared.weight"), scale=d**-0.5 if c.flag(scaled, False) else 1.0)
    return Model((), encoder, decoder, logits, _start(c), unread=(".bias",))


def bart(
    c: Config, places: str | None = "embed_positions.weight", offset: int = 2, sinusoids: str | None = None,
    norm: str | None = "layernorm_embedding", last_norm: str | None = None, bias: str = "final_logits_bias",
    skips_padding: bool = False,
) -> Model:  # fmt: skip
    """Return BART, or one of its kin, which no key sets apart: `sinusoids` is how places are computed without a table.

    With a `last_norm`, norms stand before what they belong to.
    """
    d = c.whole("d_model")

    def stack(side: str, names: Mapping[str, str]) -> Stack:
        d_k, heads = c.shared(counted := f"{side}_attention_heads", d), c.whole(counted)
        words = Words(
            (f"{side}.embed_tokens.weight", "shared.weight"), d,
            scale=sqrt(d) if c.flag("scale_embedding") else 1.0, positions=places and f"{side}.{places}",
            offset=c.whole("pad_token_id", least=0) + 1 if skips_padding else offset,
            sinusoids=sinusoids, norm=norm and f"{side}.{norm}",
        )  # fmt: skip
        # transformers keeps num_hidden_layers as another name of encoder_layers, which wins
        is_older = side == "encoder" and c.has("num_hidden_layers")
        count = c.whole("num_hidden_layers" if is_older else f"{side}_layers", most=MOST_LAYERS)
        layers = tuple(Layer(f"{side}.layers.{n}.", names, 1 / sqrt(d_k)) for n in range(count))
        return Stack(
            words, "layer", layers, d, heads, heads, d_k, causal=side == "decoder",
            activation=activation(c, "activation_function"), pre_norm=last_norm is not None,
            last_norm=last_norm and f"{side}.{last_norm}", skips_padding_positions=skips_padding,
        )  # fmt: skip

    sources = ("decoder.embed_tokens.weight", "shared.weight") if c.flag("tie_word_embeddings") else ()
    logits = Logits(("lm_head.weight", *sources), (bias,) if bias else (), bias_lead=(1,))
    stacks = stack("encoder", OPT.names), stack("decoder", {**OPT.names, **BART_CROSS})
    return Model(("model.",), *stacks, logits, _start(c))


MARIAN = partial(bart, places=None, offset=0, sinusoids="sines first", norm=None)
MBART = partial(bart, last_norm="layer_norm")
PEGASUS = partial(MBART, offset=0, sinusoids="sines first", norm=None)
M2M_100 = partial(MBART, places=None, sinusoids="to the end", norm=None, bias="", skips_padding=True)
GEMMA_CROSS = {f"cross_{role}": f"cross_attn.{role}_proj" for role in "qkvo"}
GEMMA_CROSS |= {"cross_norm": "pre_cross_attn_layernorm", "after_cross": "post_cross_attn_layernorm"}
BESIDE = {"norm_1": "pre_self_attn_layernorm", "after_1": "post_self_attn_layernorm"}
T5GEMMA = GEMMA2.named(**BESIDE, **GEMMA_CROSS)._replace(
    logits=Logits(("lm_head.out_proj.weight",)),
    biases={"attention_bias": "q k v o cross_q cross_k cross_v cross_o", "no_bias": "gate up down"},
)


def t5gemma(c: Config) -> Model:
    """Return T5Gemma: an encoder and a decoder with the layers of Gemma 2, each with a config of its own."""
    models = []
    for side in ("encoder", "decoder"):
        part, tie = c.part(side), "tie_word_embeddings"
        words = Words((f"{side}.embed_tokens.weight",))
        stack = T5GEMMA.stack._replace(words=words, last_norm=f"{side}.norm", causal=side == "decoder")
        plan = T5GEMMA._replace(stack=stack, place=f"{side}.layers.{{}}.", change=None)
        models.append(plan(part._replace(values={**part.values, tie: c.flag(tie)})))
    encoder, decoder = models
    start = c.part("decoder").whole("bos_token_id", least=0, most=1 << 24)
    return decoder._replace(prefixes=("model.",), encoder=encoder.encoder, start=start)


def _start(c: Config) -> int:
    """Return the token with which the decoder begins; raise InputError where it would look ahead."""
    if not looks_back(c, True):
        raise c.refused("is_causal", "true in a model of an encoder and a decoder")
    return c.whole("decoder_start_token_id", least=0, most=1 << 24)
