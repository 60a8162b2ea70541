"""The plans of encoders, alone or with a decoder: how tensors are called, and what no key of config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import sqrt

from attn_cli.models.checkpoints import (
    Disentangled,
    Layer,
    Logits,
    Model,
    Plan,
    Relative,
    Stack,
    Words,
    blocks,
    decoder_plans,
    positions,
)
from attn_cli.models.checkpoints.config import MOST_LAYERS, Config, activation, looks_back

# BERT and what came of it, ModernBERT


def _head(name: str, dense: str, norm: str) -> Logits:
    return Logits((f"{name}.decoder.weight",), (f"{name}.decoder.bias", f"{name}.bias"), dense, norm)


EMBEDDINGS = "embeddings.word_embeddings.weight"
OF_BERT = Words((EMBEDDINGS,), positions="embeddings.position_embeddings.weight", norm="embeddings.LayerNorm")
UNTYPED = Stack(OF_BERT, "layer", causal=False, pre_norm=False, eps=1e-12)
BERT_STACK = UNTYPED._replace(words=OF_BERT._replace(types="embeddings.token_type_embeddings.weight"))
BERT = Plan(
    BERT_STACK,
    {
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
        "o": "attention.output.dense", "norm_1": "attention.output.LayerNorm",
        "up": "intermediate.dense", "down": "output.dense", "norm_2": "output.LayerNorm",
    },
    ("bert.",),
    _head("cls.predictions", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    "encoder.layer.{}.",
    head_activation="hidden_act",
)  # fmt: skip
ROBERTA = BERT._replace(
    stack=BERT_STACK._replace(skips_padding_positions=True),
    prefixes=("roberta.",),
    logits=_head("lm_head", "lm_head.dense", "lm_head.layer_norm"),
    head_activation=None,
)
# transformers counts 32 buckets, whatever the config says
OF_MPNET = Relative("encoder.relative_attention_bias.weight", 32, 128)
MPNET = (
    ROBERTA.named(**{role: f"attention.attn.{role}" for role in "qkvo"})
    ._replace(
        stack=UNTYPED._replace(skips_padding_positions=True),
        prefixes=("mpnet.",),
        change=lambda c, stack: stack._replace(relative=OF_MPNET),
    )
    .named(norm_1="attention.LayerNorm")
)
OF_WORDS, GUESSES = "generator_lm_head", "generator_predictions"
ELECTRA = BERT._replace(
    stack=BERT_STACK._replace(words=BERT_STACK.words._replace(project="embeddings_project")),
    prefixes=("electra.",),
    logits=Logits((f"{OF_WORDS}.weight",), (f"{OF_WORDS}.bias",), f"{GUESSES}.dense", f"{GUESSES}.LayerNorm"),
    head_activation=None,
)
DISTILBERT = Plan(
    UNTYPED,
    {
        "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin", "o": "attention.out_lin",
        "norm_1": "sa_layer_norm", "up": "ffn.lin1", "down": "ffn.lin2", "norm_2": "output_layer_norm",
    },
    ("distilbert.",),
    Logits(("vocab_projector.weight",), ("vocab_projector.bias",), "vocab_transform", "vocab_layer_norm"),
    "transformer.layer.{}.",
    head_activation="activation",
)  # fmt: skip


def _groups(c: Config, stack: Stack) -> Stack:
    """Let groups of layers share their weights, as in ALBERT."""
    count, groups = len(stack.layers), c.whole("num_hidden_groups")
    inner = c.whole("inner_group_num", most=MOST_LAYERS // count)
    if groups > count:
        raise c.refused("num_hidden_groups", f"at most {count}, the number of layers")
    each = ((int(n / (count / groups)), m) for n in range(count) for m in range(inner))
    places = (f"encoder.albert_layer_groups.{group}.albert_layers.{m}." for group, m in each)
    words = stack.words._replace(project="encoder.embedding_hidden_mapping_in")  # whatever its width
    return stack._replace(words=words, layers=tuple(stack.layers[0]._replace(place=one) for one in places))


ALBERT = Plan(
    BERT_STACK,
    {
        "q": "attention.query", "k": "attention.key", "v": "attention.value", "o": "attention.dense",
        "norm_1": "attention.LayerNorm", "up": "ffn", "down": "ffn_output", "norm_2": "full_layer_layer_norm",
    },
    ("albert.",),
    _head("predictions", "predictions.dense", "predictions.LayerNorm"),
    change=_groups,
    head_activation="hidden_act",
)  # fmt: skip


def _without_first_norm(c: Config, stack: Stack) -> Stack:
    """Take the first norm from the first layer: the embeddings have one."""
    first, *others = stack.layers
    return stack._replace(layers=(first.lacking("norm_1"), *others))


MODERN_WORDS = Words(("embeddings.tok_embeddings.weight",), norm="embeddings.norm")
MODERNBERT = Plan(
    Stack(MODERN_WORDS, "layer", causal=False, last_norm="final_norm"),
    {
        "qkv": "attn.Wqkv", "o": "attn.Wo", "norm_1": "attn_norm", "norm_2": "mlp_norm", "gate_up": "mlp.Wi",
        "down": "mlp.Wo", "words": "embeddings.norm", "last": "final_norm", "head": "head.norm", "dense": "head.dense",
    },
    ("model.",),
    Logits(("decoder.weight",), ("decoder.bias",), "head.dense", "head.norm"),
    windows=positions.half_windows,
    rotaries=positions.two_rotaries("local_rope_theta", "global_rope_theta", True),
    biases={
        "attention_bias": "qkv o", "mlp_bias": "gate_up down", "norm_bias": "norm_1 norm_2 words last head",
        "classifier_bias": "dense",
    },
    change=_without_first_norm,
    head_activation="classifier_activation",
)  # fmt: skip


# DeBERTa, whose layers compare queries with distances, and keys (He et al. 2021)


def _disentangled(c: Config, stack: Stack) -> Stack:
    """Let each layer make keys and queries of distances, as far as DeBERTa's keys say."""
    told = c.values.get("pos_att_type") or []
    kinds = [kind.strip() for kind in told.lower().split("|")] if isinstance(told, str) else told
    if not isinstance(kinds, list) or len(kinds) > 2 or not set(map(str, kinds)) <= set(OF_PLACES):
        raise c.refused("pos_att_type", "c2p, p2c or both")
    is_relative, words = c.flag("relative_attention"), stack.words
    absent = [role for kind, role in OF_PLACES.items() if kind not in kinds or not is_relative]
    names = dict(stack.layers[0].lacking(*absent).names)
    if c.flag("share_att_key", False):
        names |= {role: names[role[-1]] for role in OF_PLACES.values() if role in names}
    if c.reads("conv_kernel_size") and c.values.get("conv_kernel_size", 0) != 0:
        raise c.refused("conv_kernel_size", "0 or left out: attn knows no convolution in a layer")
    words = words if c.flag("position_biased_input") else words._replace(positions=None)
    stack = stack._replace(words=words, disentangled=_distances(c) if is_relative else None)
    return stack.with_layers(names=names, scale=(stack.d_k * (1 + len(kinds))) ** -0.5)


def _distances(c: Config) -> Disentangled:
    def some(name: str) -> int | None:
        """Return a number of 1 and more; None for those below, which say that there is none."""
        value = c.values.get(name, -1)
        return None if type(value) is int and value < 1 else c.whole(name)

    farthest = some("max_relative_positions") or c.whole("max_position_embeddings")
    buckets = some("position_buckets") if c.reads("position_buckets") else None
    if buckets is not None and (buckets < 2 or farthest - 1 <= buckets // 2):
        raise c.refused("position_buckets", f"2 or more, and less than twice {farthest - 1}")
    norms = c.word("norm_rel_ebd").lower() if c.has("norm_rel_ebd") else ""
    norm = "encoder.LayerNorm" if "layer_norm" in [kind.strip() for kind in norms.split("|")] else None
    return Disentangled(buckets or farthest, farthest, buckets is not None, norm)


OF_PLACES = {"c2p": "place_k", "p2c": "place_q"}
OWN = "attention.self."
DEBERTA_2 = BERT.named(
    **{role: f"{OWN}{name}_proj" for role, name in (("q", "query"), ("k", "key"), ("v", "value"))},
    **{f"place_{role}": f"{OWN}pos_{name}_proj" for role, name in (("k", "key"), ("q", "query"))},
)._replace(prefixes=("deberta.",), change=_disentangled)
DEBERTA = (
    DEBERTA_2.named("q k v", qkv=f"{OWN}in_proj", q_bias=f"{OWN}q_bias", v_bias=f"{OWN}v_bias")
    ._replace(stack=BERT_STACK._replace(by_head=True), biases={"no_bias": "qkv place_k"})
    .named(place_k=f"{OWN}pos_proj", place_q=f"{OWN}pos_q_proj")
)


def deberta(c: Config, plan: Plan = DEBERTA) -> Model:
    """Return DeBERTa, whose words are guessed by one of two heads."""
    own = "lm_predictions.lm_head"
    head = Logits((EMBEDDINGS,), (f"{own}.bias",), f"{own}.dense", f"{own}.LayerNorm")
    return (plan if c.flag("legacy") else plan._replace(logits=head))(c)


# Beside a decoder: T5, BART and its kin, T5Gemma

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
    if gated not in ("", "gated") or activated not in blocks.ACTIVATIONS:
        wanted = f"one of {', '.join(blocks.ACTIVATIONS)}, or that with gated- before it"
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
    stacks = (
        stack("encoder", decoder_plans.OPT.names),
        stack("decoder", {**decoder_plans.OPT.names, **BART_CROSS}),
    )
    return Model(("model.",), *stacks, logits, _start(c))


MARIAN = partial(bart, places=None, offset=0, sinusoids="sines first", norm=None)
MBART = partial(bart, last_norm="layer_norm")
PEGASUS = partial(MBART, offset=0, sinusoids="sines first", norm=None)
M2M_100 = partial(MBART, places=None, sinusoids="to the end", norm=None, bias="", skips_padding=True)
GEMMA_CROSS = {f"cross_{role}": f"cross_attn.{role}_proj" for role in "qkvo"}
GEMMA_CROSS |= {"cross_norm": "pre_cross_attn_layernorm", "after_cross": "post_cross_attn_layernorm"}
BESIDE = {"norm_1": "pre_self_attn_layernorm", "after_1": "post_self_attn_layernorm"}
T5GEMMA = decoder_plans.GEMMA2.named(**BESIDE, **GEMMA_CROSS)._replace(
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
