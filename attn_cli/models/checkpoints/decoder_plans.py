"""The plans of decoders: how their tensors are called, and what no key of config.json says of them."""

from __future__ import annotations

from functools import partial

from attn_cli.models.checkpoints import Logits, Model, Plan, Slopes, Stack, Words, positions
from attn_cli.models.checkpoints.config import Config

# GPT-2 and its kin


def _scaled_by_layer(c: Config, stack: Stack) -> Stack:
    """Scale the scores as GPT-2 says: not at all, or less in each layer."""
    by_layer, scale = c.flag("scale_attn_by_inverse_layer_idx"), stack.layers[0].scale
    scale = scale if c.flag("scale_attn_weights") else 1.0
    layers = [one._replace(scale=scale / (n if by_layer else 1)) for n, one in enumerate(stack.layers, 1)]
    return stack._replace(layers=tuple(layers))


OWN_TABLE = Logits(("lm_head.weight",))
OF_GPT = Words(("wte.weight",), positions="wpe.weight")
GPT2 = Plan(
    Stack(OF_GPT, "layer", in_out=True, last_norm="ln_f", skips_padding_positions=True),
    {
        "qkv": "attn.c_attn", "o": "attn.c_proj", "norm_1": "ln_1", "norm_2": "ln_2",
        "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
    ("transformer.",),
    OWN_TABLE,
    "h.{}.",
    change=_scaled_by_layer,
)  # fmt: skip
OF_NEO = {role: f"attn.attention.{role}_proj" for role in "qkv"} | {"o": "attn.attention.out_proj"}
GPT_NEO = GPT2.named("qkv", **OF_NEO)._replace(
    stack=GPT2.stack._replace(in_out=False),
    scale=1.0,
    windows=positions.neo_windows,
    biases={"attention_bias": "q k v"},
    change=None,
)
OF_NEOX = Stack(
    Words(("embed_in.weight",)), "layer", last_norm="final_layer_norm", skips_padding_positions=True
)
GPT_NEOX = Plan(
    OF_NEOX._replace(by_head=True),
    {
        "qkv": "attention.query_key_value", "o": "attention.dense", "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    },
    ("gpt_neox.",),
    Logits(("embed_out.weight",)),
    rotaries=positions.alike("rotary_emb_base", "rotary_pct"),
    biases={"attention_bias": "qkv o"},
)  # fmt: skip
OF_J = {role: f"attn.{role}_proj" for role in "qkv"} | {"o": "attn.out_proj", "norm_2": "ln_1"}
GPT_J = GPT_NEO.named(**OF_J, up="mlp.fc_in", down="mlp.fc_out")._replace(
    stack=OF_NEOX._replace(words=Words(("wte.weight",)), parallel=True, last_norm="ln_f"),
    logits=OWN_TABLE._replace(bias=("lm_head.bias",)),
    scale=None,
    windows=None,
    rotaries=positions.first_numbers,
    biases={"no_bias": "q k v o"},
)  # fmt: skip
OF_BLOOM = Words(("word_embeddings.weight",), norm="word_embeddings_layernorm")
BLOOM = GPT2._replace(
    stack=GPT_NEOX.stack._replace(words=OF_BLOOM, last_norm="ln_f", activation="gelu_new", relative=Slopes()),
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
    relative = Slopes(stack.d_k**-0.5) if c.flag("alibi") else None
    return stack.with_layers(names=names)._replace(kv_heads=kv_heads, parallel=is_parallel, relative=relative)


def _unless_alibi(c: Config, d_k: int, windows: positions.Windows) -> positions.Rotaries:
    return [None] * len(windows) if c.flag("alibi") else positions.alike()(c, d_k, windows)


FALCON = BLOOM._replace(
    stack=BLOOM.stack._replace(words=Words(BLOOM.stack.words.tables)),
    rotaries=_unless_alibi,
    biases={"bias": "qkv o up down"},
    change=_of_falcon,
)


def _norms_of_opt(c: Config, stack: Stack) -> Stack:
    before, has_gains = c.flag("do_layer_norm_before"), c.flag("layer_norm_elementwise_affine")
    last_norm = stack.last_norm if before and not c.flag("_remove_final_layer_norm") else None
    return stack._replace(pre_norm=before, last_norm=last_norm, has_gains=has_gains)


OF_OPT = Words(("embed_tokens.weight",), positions="embed_positions.weight", offset=2, project="project_in")
OPT = Plan(
    Stack(
        OF_OPT._replace(project_first=True), "layer", skips_padding_positions=True, last_norm="final_layer_norm"
    ),
    {
        **{role: f"self_attn.{role}_proj" for role in "qkv"}, "o": "self_attn.out_proj",
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
        **{role: f"self_attn.{role}_proj" for role in "qkvo"}, "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm", **{role: f"mlp.{role}_proj" for role in ("gate", "up", "down")},
    },
    ("model.", "language_model.model.", "model.language_model.", "language_model."),
    OWN_TABLE,
    rotaries=positions.alike(),
    biases={"attention_bias": "q k v o", "mlp_bias": "gate up down"},
)  # fmt: skip
MISTRAL = LLAMA._replace(windows=lambda c, count: positions.layer_windows(c, count, lambda n: True))
QK_NORM = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
AFTER = {"after_1": "post_attention_layernorm", "after_2": "post_feedforward_layernorm"}
QWEN2 = LLAMA._replace(windows=positions.qwen_windows, biases={"no_bias": "o gate up down"})
QWEN3 = QWEN2.named(**QK_NORM)._replace(biases=LLAMA.biases)
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
GEMMA2 = GEMMA.named(**AFTER, norm_2="pre_feedforward_layernorm")._replace(
    windows=lambda c, count: positions.layer_windows(c, count, lambda n: (n + 1) % 2 != 0)
)
GEMMA3 = GEMMA2.named(**QK_NORM)._replace(
    windows=positions.pattern_of_windows,
    rotaries=positions.two_rotaries("rope_local_base_freq", "rope_theta", False),
    change=lambda c, stack: stack._replace(causal=stack.causal and not positions.looks_both_ways(c)),
)


# Llama's later kin: other norms and positions, numbers to multiply by, sparse networks

PHI3 = MISTRAL.named("q k v gate up", qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")._replace(
    rotaries=positions.alike(share="partial_rotary_factor", kinds=positions.PHI3_KINDS),
    biases={"no_bias": "qkv o gate_up down"},
)
OLMO2 = LLAMA.named("norm_1 norm_2", **QK_NORM, **AFTER)._replace(stack=LLAMA.stack._replace(qk_norm="all"))
OLMO3 = OLMO2._replace(
    windows=lambda c, count: positions.layer_windows(c, count, lambda n: (n + 1) % 4 != 0),
    rotaries=positions.two_rotaries("rope_theta", "rope_theta", False),
)


def _maybe_qk_norm(c: Config, stack: Stack) -> Stack:
    layers = tuple(layer.lacking(*QK_NORM) for layer in stack.layers)
    return stack if c.flag("use_qk_norm") else stack._replace(layers=layers)


COHERE = LLAMA.named(**QK_NORM, norm_2="input_layernorm", last="norm")._replace(
    stack=LLAMA.stack._replace(norm="layer", parallel=True, qk_norm="each"),
    rotaries=positions.alike(neighbours=True),
    biases={**LLAMA.biases, "no_bias": "norm_1 q_norm k_norm last"},
    change=_maybe_qk_norm,
)
COHERE2 = COHERE.named("q_norm k_norm")._replace(
    windows=positions.pattern_of_windows,
    rotaries=positions.alike(neighbours=True, everywhere=False),
    biases={**LLAMA.biases, "no_bias": "norm_1 last"},
    change=None,
)
GLM4 = (
    LLAMA.named("gate up", gate_up="mlp.gate_up_proj", after_1="post_self_attn_layernorm")
    ._replace(
        rotaries=positions.alike(share="partial_rotary_factor", neighbours=True),
        biases={"attention_bias": "q k v", "no_bias": "o gate_up down"},
    )
    .named(after_2="post_mlp_layernorm")
)
STARCODER2 = MISTRAL.named("gate", up="mlp.c_fc", down="mlp.c_proj")._replace(
    stack=LLAMA.stack._replace(norm="layer"), biases={"use_bias": "q k v o up down"}
)


# Llama's kin with sparse networks

DENSE = ("gate", "up", "down")
MIXED = {"gate": "w1", "up": "w3", "down": "w2"}
MIXTRAL = MISTRAL.named(
    "gate up down",
    router="block_sparse_moe.gate",
    **{f"expert_{role}": f"block_sparse_moe.experts.{{}}.{name}" for role, name in MIXED.items()},
)._replace(biases={"attention_bias": "q k v o", "no_bias": "router"})


def _yarn_unless_said(c: Config, d_k: int, windows: positions.Windows) -> positions.Rotaries:
    """Return GPT-OSS's rotation, which is YaRN's where config.json says nothing of it."""
    own = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
    is_said = c.values.get("rope_parameters") or c.values.get("rope_scaling")
    values = c.values if is_said else {**c.values, "rope_scaling": own}
    return positions.alike()(c._replace(values=values), d_k, windows)


GPT_OSS = LLAMA.named("gate up down", sinks="self_attn.sinks", router="mlp.router")._replace(
    windows=GEMMA2.windows, rotaries=_yarn_unless_said, biases={"attention_bias": "q k v o"}
)
# in files of llama.cpp
APART = GPT_OSS.named(expert_gate="", expert_up="", expert_down="")._replace(rotaries=positions.alike())
GPT_OSS = GPT_OSS.named(expert_pairs="mlp.experts.gate_up_proj[{}]", expert_down="mlp.experts.down_proj[{}]")


def _some_sparse(c: Config, stack: Stack) -> Stack:
    """Give some layers one network instead of many, as Qwen's keys say."""
    every = c.whole("decoder_sparse_step")
    dense = c.several("mlp_only_layers") if c.has("mlp_only_layers") else []
    experts = stack.layers[0].names.keys() - {*LLAMA.names, *QK_NORM}
    return stack._replace(
        layers=tuple(
            layer.lacking(*(experts if n in dense or (n + 1) % every else DENSE))
            for n, layer in enumerate(stack.layers)
        )
    )


QWEN2_MOE = LLAMA.named(
    router="mlp.gate",
    shared_share="mlp.shared_expert_gate",
    **{f"expert_{role}": f"mlp.experts.{{}}.{role}_proj" for role in DENSE},
    **{f"shared_{role}": f"mlp.shared_expert.{role}_proj" for role in DENSE},
)._replace(
    windows=partial(positions.qwen_windows, lower=True),
    biases={"qkv_bias": "q k v", "no_bias": "o router"},
    change=_some_sparse,
)
QWEN3_MOE = QWEN2_MOE.named("shared_gate shared_up shared_down shared_share", **QK_NORM)._replace(
    windows=lambda c, count: positions.layer_windows(c, count, lambda n: c.flag("use_sliding_window")),
    biases={"attention_bias": "q k v o", "no_bias": "router"},
)


def with_pictures(c: Config, plan: Plan, text: str | None = None) -> Model:
    """Return the text's part of a Gemma 3, or of a Mistral 3 with a `text` of this type, that reads pictures, too."""
    own, tie = c.part("text_config"), "tie_word_embeddings"
    if text is not None and own.word("model_type") != text:
        raise own.refused("model_type", f"{text}: attn knows no other text part of a Mistral 3")
    if positions.looks_both_ways(own):  # which transformers obeys in a model of text alone
        raise own.refused("use_bidirectional_attention", "false or null in this family")
    return plan(own._replace(values={**own.values, tie: c.flag(tie)}))
