"""Each family of models by the name that config.json gives it. A new family is a new entry of FAMILIES.

A family declares the keys that it reads, with the defaults of its configuration class in transformers 5, and those
that change no number: a key that is neither is told in a note. A plan says what no key says: see `describe`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from attn_cli.errors import InputError, did_you_mean, refuse_input, visible
from attn_cli.models.checkpoints import Model, Plan, decoder_plans as decoders, encoder_plans as encoders
from attn_cli.models.checkpoints.config import IDLE, Config, Keys

LOOKS_AHEAD = {"is_causal": False, "use_bidirectional_attention": True}  # what takes a decoder's mask away


def _idle(names: str) -> dict[str, object]:
    return dict.fromkeys(names.split(), IDLE)


def _sizes(d: int, layers: int, heads: int, kv_heads: int | None = None) -> dict[str, object]:
    sizes: dict[str, object] = {"hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": heads}
    return sizes | ({} if kv_heads is None else {"num_key_value_heads": kv_heads})


def _without(keys: Keys, names: str) -> dict[str, object]:
    return {name: value for name, value in keys.items() if name not in names.split()}


# Encoders

BERT = _sizes(768, 12, 12) | {
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "is_decoder": False, "is_causal": True, "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}  # fmt: skip
ROBERTA = BERT | {"pad_token_id": 1}
MPNET = _without(ROBERTA, "is_decoder is_causal position_embedding_type")
MPNET["relative_attention_num_buckets"] = 32
DEBERTA = _sizes(768, 12, 12) | {
    "hidden_act": "gelu", "layer_norm_eps": 1e-7, "relative_attention": False, "max_relative_positions": -1,
    "position_biased_input": True, "pos_att_type": None, "legacy": True, "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}  # fmt: skip
DEBERTA_2 = DEBERTA | _sizes(1536, 24, 24) | _idle("conv_act conv_groups") | {
    "position_buckets": -1, "norm_rel_ebd": "none", "share_att_key": False, "conv_kernel_size": 0,
}  # fmt: skip
DISTILBERT = {
    "dim": 768, "n_layers": 6, "n_heads": 12, "activation": "gelu", "tie_word_embeddings": True,
    **_idle("hidden_dim sinusoidal_pos_embds tie_weights_ is_causal"),
}  # fmt: skip
ELECTRA = BERT | _sizes(256, 12, 4) | {"embedding_size": 128}
ALBERT = _without(BERT, "is_decoder") | _sizes(4096, 12, 64) | {
    "embedding_size": 128, "hidden_act": "gelu_new", "num_hidden_groups": 1, "inner_group_num": 1,
    **_idle("is_causal net_structure_type gap_size num_memory_blocks down_scale_factor"),
}  # fmt: skip

# What rope_parameters, or rope_scaling, holds
ROPE = dict.fromkeys((
    "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "rope_type",
    "partial_rotary_factor", "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor",
)) | {"type": "default", "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "finetuned": IDLE}  # fmt: skip
ROTARY = {"rope_parameters": ROPE, "rope_scaling": ROPE}
BY_KIND = ROTARY | {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}}
MODERNBERT = _sizes(768, 22, 12) | BY_KIND | {
    "hidden_activation": "gelu", "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False, "mlp_bias": False,
    "decoder_bias": True, "classifier_bias": False, "classifier_activation": "gelu", "tie_word_embeddings": True,
    "layer_types": None, "global_attn_every_n_layers": 3, "local_attention": 128, "global_rope_theta": 1.6e5,
    "local_rope_theta": 1e4, "max_position_embeddings": 8192, "original_max_position_embeddings": None,
    **_idle(
        "deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile repad_logits_with_grad "
        "layer_norm_eps position_embedding_type is_causal"
    ),
}  # fmt: skip

# Decoders

GPT2 = {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True,
    "is_causal": True, **_idle("n_positions n_ctx n_inner reorder_and_upcast_attn"),
}  # fmt: skip
GPT_NEO = {
    "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "attention_types": None,
    "attention_layers": None, "window_size": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True, "is_causal": IDLE,
}  # fmt: skip
GPT_NEOX = _sizes(6144, 44, 64) | ROTARY | {
    "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True, "attention_bias": True,
    "tie_word_embeddings": False, "rotary_emb_base": 1e4, "rotary_pct": 0.25, "max_position_embeddings": 2048,
    "original_max_position_embeddings": None, "is_causal": True,
}  # fmt: skip
GPT_J = _without(GPT2, "scale_attn_weights scale_attn_by_inverse_layer_idx n_ctx reorder_and_upcast_attn") | {
    "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "tie_word_embeddings": False,
}  # fmt: skip
BLOOM = {
    "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5,
    "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True,
    "is_causal": True, "n_embed": None, "num_hidden_layers": None, "num_attention_heads": None,
    **_idle("n_inner seq_length slow_but_exact"),
}  # fmt: skip
FALCON = _sizes(4544, 32, 71) | ROTARY | {
    "layer_norm_epsilon": 1e-5, "num_kv_heads": None, "num_ln_in_parallel_attn": None, "alibi": False,
    "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False, "activation": "gelu",
    "tie_word_embeddings": True, "is_causal": True, "n_embed": None, "rope_theta": 1e4,
    "max_position_embeddings": 2048, "apply_residual_connection_post_layernorm": IDLE,
}  # fmt: skip
OPT = _sizes(768, 12, 12) | {
    "word_embed_proj_dim": None, "activation_function": "relu", "do_layer_norm_before": True,
    "_remove_final_layer_norm": False, "enable_bias": True, "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True, "is_causal": True, "ffn_dim": IDLE,
}  # fmt: skip
ANY_LLAMA = _sizes(4096, 32, 32) | ROTARY | {
    "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    "tie_word_embeddings": False, "original_max_position_embeddings": None, "is_causal": True,
}  # fmt: skip
BIASED_LLAMA = ANY_LLAMA | {"attention_bias": False, "mlp_bias": False, "max_position_embeddings": 2048}
LLAMA = BIASED_LLAMA | _idle("is_llama_config rope_interleaved")
MISTRAL = ANY_LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131072}
WINDOWED = {"use_sliding_window": False, "sliding_window": 4096, "layer_types": None}
ANY_QWEN = ANY_LLAMA | WINDOWED | {
    "num_key_value_heads": 32, "max_window_layers": 28, "max_position_embeddings": 32768,
}  # fmt: skip
QWEN2 = ANY_QWEN | {"use_mrope": IDLE}
QWEN3 = ANY_QWEN | {"head_dim": 128, "attention_bias": False}
SMOLLM3 = BIASED_LLAMA | WINDOWED | _sizes(2048, 36, 16, 4) | {
    "rope_theta": 2e6, "max_position_embeddings": 32768, "sliding_window": None, "no_rope_layers": None,
    "no_rope_layer_interval": 4, "tie_word_embeddings": True, "max_window_layers": IDLE,
}  # fmt: skip
GEMMA = ANY_LLAMA | _sizes(3072, 28, 16, 16) | {
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "attention_bias": False,
    "max_position_embeddings": 8192, "use_bidirectional_attention": None, "hidden_activation": IDLE,
}  # fmt: skip
GEMMA2 = GEMMA | _sizes(2304, 26, 8, 4) | {
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096, "hidden_act": IDLE,
    "layer_types": None, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
}  # fmt: skip
GEMMA3 = GEMMA2 | BY_KIND | {
    "max_position_embeddings": 131072, "final_logit_softcapping": None, "use_bidirectional_attention": False,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6,
    **_idle("attn_logit_softcapping _sliding_window_pattern"),
}  # fmt: skip
PHI3 = ANY_LLAMA | {
    "hidden_size": 3072, "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0, "sliding_window": None,
    "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
}  # fmt: skip
OLMO2 = ANY_LLAMA | {"rms_norm_eps": 1e-5, "attention_bias": False, "max_position_embeddings": 2048}
OLMO3 = OLMO2 | BY_KIND | {"rope_theta": 5e5, "sliding_window": 4096, "layer_types": None}
MULTIPLIERS = "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"
GRANITE = BIASED_LLAMA | dict.fromkeys(MULTIPLIERS.split(), 1.0)
ANY_COHERE = _without(BIASED_LLAMA, "rms_norm_eps mlp_bias") | _sizes(8192, 40, 64) | {
    "layer_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 8192, "logit_scale": 0.0625,
}  # fmt: skip
COHERE = ANY_COHERE | {"rope_theta": 5e5, "use_qk_norm": False}
COHERE2 = ANY_COHERE | {
    "sliding_window": 4096, "layer_types": None, "sliding_window_pattern": 4,
    **_idle("head_dim _sliding_window_pattern"),
}  # fmt: skip
GLM4 = ANY_LLAMA | {
    "num_hidden_layers": 40, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-07,
    "attention_bias": True, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
}  # fmt: skip
STARCODER2 = _without(ANY_LLAMA, "rms_norm_eps") | _sizes(3072, 30, 24, 2) | {
    "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None,
    "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
# Sizes that the tensors have, and what training alone asks of a router
OF_EXPERTS = _idle(
    "moe_intermediate_size shared_expert_intermediate_size output_router_logits router_aux_loss_coef "
    "router_jitter_noise"
)
MIXTRAL = MISTRAL | OF_EXPERTS | {
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
GPT_OSS = ANY_LLAMA | OF_EXPERTS | _sizes(2880, 36, 64, 8) | {
    "head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 1.5e5, "max_position_embeddings": 131072,
    "sliding_window": 128, "layer_types": None, "attention_bias": True, "num_local_experts": 128,
    "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    **_idle("initial_context_length experts_per_token"),
}  # fmt: skip
SPARSE_QWEN = OF_EXPERTS | {
    "num_experts_per_tok": 4, "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": None,
}  # fmt: skip
QWEN2_MOE = ANY_QWEN | SPARSE_QWEN | _sizes(2048, 24, 16, 16) | {"num_experts": 60, "qkv_bias": True}
QWEN3_MOE = _without(QWEN3, "layer_types") | SPARSE_QWEN | _sizes(2048, 24, 32, 4) | {
    "num_experts": 128, "num_experts_per_tok": 8, "head_dim": None, "max_window_layers": IDLE,
    "num_local_experts": None,  # another name of num_experts, which wins
}  # fmt: skip

# Models of an encoder and a decoder

MT5 = {
    "d_model": 512, "d_kv": 64, "num_layers": 8, "num_decoder_layers": None, "num_heads": 6,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "gated-gelu", "dense_act_fn": None, "is_gated_act": None, "decoder_start_token_id": 0,
    "is_causal": True,
    **_idle("d_ff n_positions tie_word_embeddings scale_decoder_outputs"),  # always tied, and never scaled
}  # fmt: skip
T5 = MT5 | {
    "num_layers": 6, "num_heads": 8, "feed_forward_proj": "relu", "tie_word_embeddings": True,
    "scale_decoder_outputs": None,
}  # fmt: skip
BART = {
    "d_model": 1024, "encoder_layers": 12, "encoder_attention_heads": 16, "decoder_layers": 12,
    "decoder_attention_heads": 16, "activation_function": "gelu", "scale_embedding": False,
    "tie_word_embeddings": True, "decoder_start_token_id": 2, "is_causal": True, "num_hidden_layers": None,
    # Sizes that the tensors have, and what the first versions of BART's and Marian's files say
    **_idle(
        "encoder_ffn_dim decoder_ffn_dim normalize_before normalize_embedding add_final_layer_norm "
        "add_bias_logits static_position_embeddings extra_pos_embeddings max_position_embeddings decoder_vocab_size "
        "share_encoder_decoder_embeddings"
    ),
}  # fmt: skip
M2M_100 = BART | {"activation_function": "relu", "scale_embedding": True, "pad_token_id": 1}
T5GEMMA = _without(GEMMA2, "is_causal use_bidirectional_attention") | {"bos_token_id": 2}
TIED = {"tie_word_embeddings": True}
# Of models that read pictures, too
GEMMA3_TEXT = {**TIED, "text_config": GEMMA3, **_idle("vision_config mm_tokens_per_image")}
OF_PICTURES = (
    "vision_config projector_hidden_act vision_feature_layer multimodal_projector_bias spatial_merge_size"
)
MISTRAL3_TEXT = {**TIED, "text_config": MISTRAL | {"model_type": "mistral"}, **_idle(OF_PICTURES)}

# What describes a model of the family, and the keys of its config.json
FAMILIES: dict[str, tuple[Plan | Callable[[Config], Model], Keys]] = {
    "bert": (encoders.BERT, BERT), "roberta": (encoders.ROBERTA, ROBERTA),
    "xlm-roberta": (encoders.ROBERTA, ROBERTA), "camembert": (encoders.ROBERTA, ROBERTA),
    "mpnet": (encoders.MPNET, MPNET), "deberta": (encoders.deberta, DEBERTA),
    "deberta-v2": (partial(encoders.deberta, plan=encoders.DEBERTA_2), DEBERTA_2),
    "distilbert": (encoders.DISTILBERT, DISTILBERT), "electra": (encoders.ELECTRA, ELECTRA),
    "albert": (encoders.ALBERT, ALBERT), "modernbert": (encoders.MODERNBERT, MODERNBERT),
    "gpt2": (decoders.GPT2, GPT2), "gpt_neo": (decoders.GPT_NEO, GPT_NEO),
    "gpt_neox": (decoders.GPT_NEOX, GPT_NEOX), "gptj": (decoders.GPT_J, GPT_J),
    "bloom": (decoders.BLOOM, BLOOM), "falcon": (decoders.FALCON, FALCON), "opt": (decoders.OPT, OPT),
    "llama": (decoders.LLAMA, LLAMA), "mistral": (decoders.MISTRAL, MISTRAL),
    "qwen2": (decoders.QWEN2, QWEN2), "qwen3": (decoders.QWEN3, QWEN3),
    "smollm3": (decoders.SMOLLM3, SMOLLM3), "gemma": (decoders.GEMMA, GEMMA),
    "gemma2": (decoders.GEMMA2, GEMMA2), "gemma3_text": (decoders.GEMMA3, GEMMA3),
    "gemma3": (partial(decoders.with_pictures, plan=decoders.GEMMA3), GEMMA3_TEXT),
    "phi3": (decoders.PHI3, PHI3), "olmo2": (decoders.OLMO2, OLMO2), "olmo3": (decoders.OLMO3, OLMO3),
    "granite": (decoders.LLAMA, GRANITE), "cohere": (decoders.COHERE, COHERE),
    "cohere2": (decoders.COHERE2, COHERE2), "glm4": (decoders.GLM4, GLM4),
    "starcoder2": (decoders.STARCODER2, STARCODER2), "mixtral": (decoders.MIXTRAL, MIXTRAL),
    "qwen2_moe": (decoders.QWEN2_MOE, QWEN2_MOE), "qwen3_moe": (decoders.QWEN3_MOE, QWEN3_MOE),
    "gpt_oss": (decoders.GPT_OSS, GPT_OSS),
    "mistral3": (partial(decoders.with_pictures, plan=decoders.MISTRAL, text="mistral"), MISTRAL3_TEXT),
    "t5": (encoders.t5, T5), "mt5": (encoders.t5, MT5), "bart": (encoders.bart, BART),
    "marian": (encoders.MARIAN, BART | {"decoder_start_token_id": 58100}),
    "mbart": (encoders.MBART, BART | {"decoder_start_token_id": None}),
    "pegasus": (encoders.PEGASUS, BART | {"decoder_start_token_id": 0}),
    "m2m_100": (encoders.M2M_100, M2M_100),
    "t5gemma": (encoders.t5gemma, TIED | dict.fromkeys(("encoder", "decoder"), T5GEMMA)),
}  # fmt: skip


def describe(config: Config, is_strict: bool = False) -> Model:
    """Return the description of a config.json's model, with a note on keys that its family does not know.

    Raises InputError if attn does not know the family; `is_strict` makes an error of the note, too.
    """
    name = config.word("model_type")
    if name not in FAMILIES:
        said = f"{config.where}: attn does not know models of the type {visible(name)[:60]!r}."
        raise InputError(said, f"{did_you_mean(name, FAMILIES)}It knows {', '.join(FAMILIES)}.")
    read, keys = FAMILIES[name]
    declared = config._replace(keys=keys)
    unknown = declared.unknown(name)
    refuse_input(unknown and is_strict, f"{config.where}: {unknown}")
    model, notes = read(declared), [unknown] if unknown else []
    key = next((key for key, value in LOOKS_AHEAD.items() if config.values.get(key) is value), "")
    if declared.reads(key):
        said = f"{key} = {json.dumps(LOOKS_AHEAD[key])}"
        notes.append(f"config.json says {said}: no word is hidden from another.")
    return model._replace(family=name, notes=tuple(notes))
