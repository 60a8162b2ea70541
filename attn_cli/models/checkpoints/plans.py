"""The plans of models of one stack: how their tensors are called, and what no key of config.json says of them.

Those of Llama's later kin are in `llama_plans`.
"""

from __future__ import annotations

from attn_cli.models.checkpoints import positions
from attn_cli.models.checkpoints.config import MOST_LAYERS, Config
from attn_cli.models.checkpoints.describe import Logits, Model, Plan, Relative, Slopes, Stack, Words
from attn_cli.models.checkpoints.positions import layer_windows

# Encoders: BERT and what came of it, ModernBERT

EMBEDDINGS = "embeddings.word_embeddings.weight"
BERT_STACK = Stack(
    Words(
        (EMBEDDINGS,), positions="embeddings.position_embeddings.weight",
        types="embeddings.token_type_embeddings.weight", norm="embeddings.LayerNorm",
    ),
    "layer", causal=False, pre_norm=False, eps=1e-12,
)  # fmt: skip
BERT = Plan(
    BERT_STACK,
    {
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
        "o": "attention.output.dense", "norm_1": "attention.output.LayerNorm",
        "up": "intermediate.dense", "down": "output.dense", "norm_2": "output.LayerNorm",
    },
    ("bert.",),
    Logits(
        ("cls.predictions.decoder.weight",), ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
    ),
    "encoder.layer.{}.",
    head_activation="hidden_act",
)  # fmt: skip
ROBERTA = BERT._replace(
    stack=BERT_STACK._replace(skips_padding_positions=True),
    prefixes=("roberta.",),
    logits=Logits(
        ("lm_head.decoder.weight",), ("lm_head.decoder.bias", "lm_head.bias"), "lm_head.dense", "lm_head.layer_norm"
    ),
    head_activation=None,
)  # fmt: skip
MPNET = ROBERTA._replace(
    stack=ROBERTA.stack._replace(words=ROBERTA.stack.words._replace(types=None)),
    names={
        **BERT.names, "q": "attention.attn.q", "k": "attention.attn.k", "v": "attention.attn.v",
        "o": "attention.attn.o", "norm_1": "attention.LayerNorm",
    },
    prefixes=("mpnet.",),
    # transformers counts 32 buckets, whatever the config says
    change=lambda c, stack: stack._replace(relative=Relative("encoder.relative_attention_bias.weight", 32, 128)),
)  # fmt: skip


ELECTRA = BERT._replace(
    stack=BERT_STACK._replace(words=BERT_STACK.words._replace(project="embeddings_project")),
    prefixes=("electra.",),
    logits=Logits(
        ("generator_lm_head.weight",), ("generator_lm_head.bias",),
        "generator_predictions.dense", "generator_predictions.LayerNorm",
    ),
    head_activation=None,
)  # fmt: skip
DISTILBERT = Plan(
    BERT_STACK._replace(words=BERT_STACK.words._replace(types=None)),
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
    places = (
        f"encoder.albert_layer_groups.{int(n / (count / groups))}.albert_layers.{m}."
        for n in range(count)
        for m in range(inner)
    )
    return stack._replace(layers=tuple(stack.layers[0]._replace(place=place) for place in places))


ALBERT = Plan(
    BERT_STACK._replace(words=BERT_STACK.words._replace(project="encoder.embedding_hidden_mapping_in")),
    {
        "q": "attention.query", "k": "attention.key", "v": "attention.value", "o": "attention.dense",
        "norm_1": "attention.LayerNorm", "up": "ffn", "down": "ffn_output", "norm_2": "full_layer_layer_norm",
    },
    ("albert.",),
    Logits(
        ("predictions.decoder.weight",), ("predictions.decoder.bias", "predictions.bias"),
        "predictions.dense", "predictions.LayerNorm",
    ),
    change=_groups,
    head_activation="hidden_act",
    always_projects=True,
)  # fmt: skip


def _without_first_norm(c: Config, stack: Stack) -> Stack:
    """Take the first norm from the first layer: the embeddings have one."""
    first, *others = stack.layers
    names = {role: name for role, name in first.names.items() if role != "norm_1"}
    return stack._replace(layers=(first._replace(names=names), *others))


MODERNBERT = Plan(
    Stack(
        Words(("embeddings.tok_embeddings.weight",), norm="embeddings.norm"), "layer", causal=False,
        last_norm="final_norm",
    ),
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


# Decoders: GPT-2 and its kin


def _scaled_by_layer(c: Config, stack: Stack) -> Stack:
    """Scale the scores as GPT-2 says: not at all, or less in each layer."""
    by_layer, is_scaled = c.flag("scale_attn_by_inverse_layer_idx"), c.flag("scale_attn_weights")
    scales = (
        (layer.scale if is_scaled else 1.0) / (n if by_layer else 1)
        for n, layer in enumerate(stack.layers, 1)
    )
    each = zip(stack.layers, scales, strict=True)
    return stack._replace(layers=tuple(layer._replace(scale=scale) for layer, scale in each))


OWN_TABLE = Logits(("lm_head.weight",))
GPT2 = Plan(
    Stack(
        Words(("wte.weight",), positions="wpe.weight"), "layer", in_out=True, last_norm="ln_f",
        skips_padding_positions=True,
    ),
    {
        "qkv": "attn.c_attn", "o": "attn.c_proj", "norm_1": "ln_1", "norm_2": "ln_2",
        "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
    ("transformer.",),
    OWN_TABLE,
    "h.{}.",
    change=_scaled_by_layer,
)  # fmt: skip


GPT_NEO = Plan(
    GPT2.stack._replace(in_out=False),
    {
        "q": "attn.attention.q_proj", "k": "attn.attention.k_proj", "v": "attn.attention.v_proj",
        "o": "attn.attention.out_proj", "norm_1": "ln_1", "norm_2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
    ("transformer.",),
    OWN_TABLE,
    "h.{}.",
    scale=1.0,
    windows=positions.neo_windows,
    biases={"attention_bias": "q k v"},
)  # fmt: skip


GPT_NEOX = Plan(
    Stack(
        Words(("embed_in.weight",)), "layer", by_head=True, last_norm="final_layer_norm", skips_padding_positions=True
    ),
    {
        "qkv": "attention.query_key_value", "o": "attention.dense", "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    },
    ("gpt_neox.",),
    Logits(("embed_out.weight",)),
    rotaries=positions.alike("rotary_emb_base", "rotary_pct"),
    biases={"attention_bias": "qkv o"},
)  # fmt: skip


GPT_J = GPT_NEO._replace(
    stack=GPT_NEOX.stack._replace(words=Words(("wte.weight",)), by_head=False, parallel=True, last_norm="ln_f"),
    names={
        **{role: f"attn.{role}_proj" for role in "qkv"}, "o": "attn.out_proj", "norm_1": "ln_1", "norm_2": "ln_1",
        "up": "mlp.fc_in", "down": "mlp.fc_out",
    },
    logits=OWN_TABLE._replace(bias=("lm_head.bias",)),
    scale=None,
    windows=None,
    rotaries=positions.first_numbers,
    biases={"no_bias": "q k v o"},
)  # fmt: skip


BLOOM = GPT2._replace(
    stack=GPT_NEOX.stack._replace(
        words=Words(("word_embeddings.weight",), norm="word_embeddings_layernorm"), last_norm="ln_f",
        activation="gelu_new", relative=Slopes(),
    ),
    names={**GPT_NEOX.names, "qkv": "self_attention.query_key_value", "o": "self_attention.dense"},
    change=lambda c, stack: stack._replace(adds_to_norm=c.flag("apply_residual_connection_post_layernorm")),
)  # fmt: skip


def _of_falcon(c: Config, stack: Stack) -> Stack:
    is_new, is_parallel = c.flag("new_decoder_architecture"), c.flag("parallel_attn")
    if is_new and not is_parallel:
        raise c.refused("parallel_attn", "true where new_decoder_architecture is")
    kv_heads = 1 if c.flag("multi_query") and not is_new else stack.heads
    if is_new and c.has("num_kv_heads"):
        kv_heads = stack.heads // c.shared("num_kv_heads", stack.heads)
    count = "num_ln_in_parallel_attn"
    norms = c.whole(count, most=1 + is_new) if is_parallel and c.has(count) else 1 + is_new
    names = {**stack.layers[0].names, "norm_2": "input_layernorm"} if is_parallel else stack.layers[0].names
    names = names if norms == 1 else {**names, "norm_1": "ln_attn", "norm_2": "ln_mlp"}
    return stack._replace(
        layers=tuple(layer._replace(names=names) for layer in stack.layers), kv_heads=kv_heads, parallel=is_parallel,
        relative=Slopes(stack.d_k**-0.5) if c.flag("alibi") else None,
    )  # fmt: skip


FALCON = BLOOM._replace(
    stack=BLOOM.stack._replace(words=Words(BLOOM.stack.words.tables)),
    rotaries=lambda c, d_k, windows: [None] * len(windows) if c.flag("alibi") else positions.alike()(c, d_k, windows),
    biases={"bias": "qkv o up down"},
    change=_of_falcon,
)  # fmt: skip


def _norms_of_opt(c: Config, stack: Stack) -> Stack:
    before, has_gains = c.flag("do_layer_norm_before"), c.flag("layer_norm_elementwise_affine")
    has_last = before and not c.flag("_remove_final_layer_norm")
    last_norm = stack.last_norm if has_last else None
    return stack._replace(pre_norm=before, last_norm=last_norm, has_gains=has_gains)


OPT = Plan(
    Stack(
        Words(
            ("embed_tokens.weight",), positions="embed_positions.weight", offset=2, project="project_in",
            project_first=True,
        ),
        "layer", skips_padding_positions=True, last_norm="final_layer_norm",
    ),
    {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.out_proj",
        "norm_1": "self_attn_layer_norm", "up": "fc1", "down": "fc2", "norm_2": "final_layer_norm",
    },
    ("model.decoder.", "decoder."),
    Logits(("lm_head.weight",), project="project_out"),
    biases={"enable_bias": "q k v o up down"},
    change=_norms_of_opt,
)  # fmt: skip


# Llama and what came of it: decoders with rotary positions, RMS norms and a gated network

LLAMA = Plan(
    Stack(Words(("embed_tokens.weight",)), "rms", last_norm="norm", skips_padding_positions=True),
    {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "norm_1": "input_layernorm", "norm_2": "post_attention_layernorm",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    },
    ("model.", "language_model.model.", "model.language_model.", "language_model."),
    OWN_TABLE,
    rotaries=positions.alike(),
    biases={"attention_bias": "q k v o", "mlp_bias": "gate up down"},
)  # fmt: skip
MISTRAL = LLAMA._replace(windows=lambda c, count: layer_windows(c, count, lambda n: True))


QK_NORM = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
QWEN2 = LLAMA._replace(windows=positions.qwen_windows, biased="q k v")
QWEN3 = QWEN2._replace(names={**LLAMA.names, **QK_NORM})


SMOLLM3 = LLAMA._replace(windows=positions.unrotated_windows, rotaries=positions.some_rotaries)


def _one_way(c: Config, stack: Stack) -> Stack:
    """Refuse a Gemma that looks both ways: transformers masks it with one implementation of attention alone."""
    if positions.looks_both_ways(c):
        raise c.refused("use_bidirectional_attention", "false or null in this family")
    # The first files say gelu, and do not mean it.
    is_old = c.has("hidden_act") and c.word("hidden_act") == "gelu"
    return stack._replace(activation="gelu_pytorch_tanh") if is_old else stack


GEMMA = LLAMA._replace(
    stack=LLAMA.stack._replace(norm="rms, gain less one"), change=_one_way, scales_words=True
)
GEMMA2 = GEMMA._replace(
    names={
        **LLAMA.names, "after_1": "post_attention_layernorm", "norm_2": "pre_feedforward_layernorm",
        "after_2": "post_feedforward_layernorm",
    },
    windows=lambda c, count: layer_windows(c, count, lambda n: (n + 1) % 2 != 0),
)  # fmt: skip


GEMMA3 = GEMMA2._replace(
    names={**GEMMA2.names, **QK_NORM},
    windows=positions.pattern_of_windows,
    rotaries=positions.two_rotaries("rope_local_base_freq", "rope_theta", False),
    change=lambda c, stack: stack._replace(causal=stack.causal and not positions.looks_both_ways(c)),
)


def mistral3_with_pictures(c: Config) -> Model:
    """Return the text's part of a Mistral 3 that reads pictures, too."""
    text, tie = c.part("text_config"), "tie_word_embeddings"
    if text.word("model_type") != "mistral":
        raise text.refused("model_type", "mistral: attn knows no other text part of a Mistral 3")
    return MISTRAL.model(text._replace(values={**text.values, tie: c.flag(tie)}))


def gemma3_with_pictures(c: Config) -> Model:
    """Return the text's part of a Gemma 3 that reads pictures, too."""
    text, tie = c.part("text_config"), "tie_word_embeddings"
    if positions.looks_both_ways(text):  # which transformers obeys in a model of text alone
        raise text.refused("use_bidirectional_attention", "false or null in this family")
    return GEMMA3.model(text._replace(values={**text.values, tie: c.flag(tie)}))
