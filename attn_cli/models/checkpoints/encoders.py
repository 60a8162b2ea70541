"""Models that are encoders: BERT and what came of it, ModernBERT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

from attn_cli.models.checkpoints.config import (
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

BERT = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "o": "attention.output.dense", "norm_1": "attention.output.LayerNorm",
    "up": "intermediate.dense", "down": "output.dense", "norm_2": "output.LayerNorm",
}  # fmt: skip
DISTILBERT = {
    "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin", "o": "attention.out_lin",
    "norm_1": "sa_layer_norm", "up": "ffn.lin1", "down": "ffn.lin2", "norm_2": "output_layer_norm",
}  # fmt: skip
ALBERT = {
    "q": "attention.query", "k": "attention.key", "v": "attention.value", "o": "attention.dense",
    "norm_1": "attention.LayerNorm", "up": "ffn", "down": "ffn_output", "norm_2": "full_layer_layer_norm",
}  # fmt: skip
EMBEDDINGS = "embeddings.word_embeddings.weight"


def _bert_like(
    c: Config,
    prefix: str,
    logits: Logits,
    *,
    names: Mapping[str, str] = BERT,
    places: Callable[[int], str] = "encoder.layer.{}.".format,
    sizes: tuple[str, str, str] = ("hidden_size", "num_hidden_layers", "num_attention_heads"),
    activated: str = "hidden_act",
    types: bool = True,
    project: str | None = None,
    always_projects: bool = False,
    skips_padding_positions: bool = False,
) -> Model:
    """Return an encoder with learned positions, and norms after the sums."""
    if c.has("position_embedding_type") and c.word("position_embedding_type") != "absolute":
        raise c.refused("position_embedding_type", "absolute")
    d = c.whole(sizes[0])
    d_k, heads = c.shared(sizes[2], d), c.whole(sizes[2])
    width = c.whole("embedding_size") if project else d
    words = Words(
        (EMBEDDINGS,),
        width,
        positions="embeddings.position_embeddings.weight",
        offset=c.whole("pad_token_id", least=0) + 1 if skips_padding_positions else 0,
        types="embeddings.token_type_embeddings.weight" if types else None,
        norm="embeddings.LayerNorm",
        project=project if width != d or always_projects else None,
    )
    count = c.whole(sizes[1], most=MOST_LAYERS)
    layers = tuple(Layer(places(n), names, 1 / sqrt(d_k)) for n in range(count))
    stack = Stack(
        words, layers, d, heads, heads, d_k,
        causal=c.has("is_decoder") and c.flag("is_decoder") and is_causal(c),
        activation=activation(c, activated), norm="layer", pre_norm=False,
        skips_padding_positions=skips_padding_positions,
        eps=c.number("layer_norm_eps") if c.has("layer_norm_eps") else 1e-12,
    )  # fmt: skip
    return one_stack((prefix,), stack, logits)


def bert(c: Config) -> Model:
    """Return BERT."""
    head = "cls.predictions."
    logits = Logits(
        tied(c, head + "decoder.weight", EMBEDDINGS), tied(c, head + "decoder.bias", head + "bias"),
        head + "transform.dense", head + "transform.LayerNorm", activation(c, "hidden_act"),
    )  # fmt: skip
    return _bert_like(c, "bert.", logits)


def roberta(c: Config) -> Model:
    """Return RoBERTa or XLM-R: places are counted from after the padding token's number."""
    logits = Logits(
        tied(c, "lm_head.decoder.weight", EMBEDDINGS), tied(c, "lm_head.decoder.bias", "lm_head.bias"),
        "lm_head.dense", "lm_head.layer_norm",
    )  # fmt: skip
    return _bert_like(c, "roberta.", logits, skips_padding_positions=True)


def electra(c: Config) -> Model:
    """Return ELECTRA, whose generator has a head that makes words."""
    head = "generator_predictions."
    logits = Logits(
        tied(c, "generator_lm_head.weight", EMBEDDINGS), ("generator_lm_head.bias",),
        head + "dense", head + "LayerNorm",
    )  # fmt: skip
    return _bert_like(c, "electra.", logits, project="embeddings_project")


def distilbert(c: Config) -> Model:
    """Return DistilBERT."""
    logits = Logits(
        tied(c, "vocab_projector.weight", EMBEDDINGS), ("vocab_projector.bias",), "vocab_transform",
        "vocab_layer_norm", activation(c, "activation"),
    )  # fmt: skip
    return _bert_like(
        c, "distilbert.", logits, names=DISTILBERT, places="transformer.layer.{}.".format,
        sizes=("dim", "n_layers", "n_heads"), activated="activation", types=False,
    )  # fmt: skip


def albert(c: Config) -> Model:
    """Return ALBERT: groups of layers share their weights."""
    count, groups = c.whole("num_hidden_layers", most=MOST_LAYERS), c.whole("num_hidden_groups")
    if c.whole("inner_group_num") != 1 or groups > count:
        raise c.refused("inner_group_num", "1, with no more num_hidden_groups than layers")
    logits = Logits(
        tied(c, "predictions.decoder.weight", EMBEDDINGS), tied(c, "predictions.decoder.bias", "predictions.bias"),
        "predictions.dense", "predictions.LayerNorm", activation(c, "hidden_act"),
    )  # fmt: skip
    return _bert_like(
        c, "albert.", logits, names=ALBERT, project="encoder.embedding_hidden_mapping_in", always_projects=True,
        places=lambda n: f"encoder.albert_layer_groups.{int(n / (count / groups))}.albert_layers.0.",
    )  # fmt: skip


MODERNBERT = {
    "qkv": "attn.Wqkv", "o": "attn.Wo", "norm_1": "attn_norm", "norm_2": "mlp_norm",
    "gate_up": "mlp.Wi", "down": "mlp.Wo",
}  # fmt: skip
UNNORMED = {role: name for role, name in MODERNBERT.items() if role != "norm_1"}  # the embeddings have a norm
OTHER_NORMS = {"words": "embeddings.norm", "last": "final_norm", "head": "head.norm"}


def modernbert(c: Config) -> Model:
    """Return ModernBERT: one layer in three sees all, the others a window, with rotary places of their own."""
    d, count = c.whole("hidden_size"), c.whole("num_hidden_layers", most=MOST_LAYERS)
    d_k, heads = c.shared("num_attention_heads", d), c.whole("num_attention_heads")
    every = c.whole("global_attn_every_n_layers")
    windows = layer_windows(c, count, lambda n: n % every != 0, "local_attention")
    near, far = (
        read_rotary(c, d_k, theta=theta, kind=kind)
        for theta, kind in (
            ("local_rope_theta", "sliding_attention"),
            ("global_rope_theta", "full_attention"),
        )
    )
    layers = tuple(
        Layer(
            f"layers.{n}.", MODERNBERT if n else UNNORMED, 1 / sqrt(d_k),
            window and window // 2, near if window else far,
        )
        for n, window in enumerate(windows)
    )  # fmt: skip
    words = "embeddings.tok_embeddings.weight"
    stack = Stack(
        Words((words,), d, norm="embeddings.norm"), layers, d, heads, heads, d_k,
        causal=False, activation=activation(c, "hidden_activation"), norm="layer",
        eps=c.number("norm_eps"), last_norm="final_norm",
    )  # fmt: skip
    logits = Logits(
        tied(c, "decoder.weight", words), ("decoder.bias",) if c.flag("decoder_bias") else (),
        "head.dense", "head.norm", activation(c, "classifier_activation"),
    )  # fmt: skip
    norms = MODERNBERT | OTHER_NORMS
    unread = (
        *switched_off(c, "attention_bias", "qkv o", MODERNBERT),
        *switched_off(c, "mlp_bias", "gate_up down", MODERNBERT),
        *switched_off(c, "norm_bias", "norm_1 norm_2 words last head", norms),
        *switched_off(c, "classifier_bias", "head", {"head": "head.dense"}),
    )
    return one_stack(("model.",), stack, logits, unread)
