"""The keys of config.json that each family of models reads, with the defaults of its configuration class."""

from __future__ import annotations

from attn_cli.models.checkpoints.config import Keys

# Encoders

BERT = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "is_decoder": False, "is_causal": True, "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}  # fmt: skip
ROBERTA = BERT | {"pad_token_id": 1}
MPNET = {name: value for name, value in ROBERTA.items() if not name.startswith("is_")} | {
    "relative_attention_num_buckets": 32, "pad_token_id": 1,
}  # fmt: skip
del MPNET["position_embedding_type"]
DEBERTA = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
    "layer_norm_eps": 1e-7, "relative_attention": False, "max_relative_positions": -1, "position_biased_input": True,
    "pos_att_type": None, "legacy": True, "tie_word_embeddings": True, "max_position_embeddings": 512,
}  # fmt: skip
DEBERTA_2 = DEBERTA | {
    "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24, "position_buckets": -1,
    "norm_rel_ebd": "none", "share_att_key": False, "conv_kernel_size": 0,
}  # fmt: skip
DISTILBERT = {
    "dim": 768, "n_layers": 6, "n_heads": 12, "activation": "gelu", "tie_word_embeddings": True,
}  # fmt: skip
ELECTRA = BERT | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4}
ALBERT = BERT | {
    "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64, "hidden_act": "gelu_new",
    "num_hidden_groups": 1, "inner_group_num": 1,
}  # fmt: skip
del ALBERT["is_decoder"], ALBERT["is_causal"]

# What rope_parameters, or rope_scaling, holds
ROPE = Keys(dict.fromkeys((
    "rope_theta", "type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    "partial_rotary_factor", "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor",
)) | {
    "type": "default", "rope_type": None, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
}, frozenset({"finetuned"}))  # fmt: skip
ROTARY = {"rope_parameters": ROPE, "rope_scaling": ROPE}
BY_KIND = {
    "rope_parameters": Keys({}, parts={"full_attention": ROPE, "sliding_attention": ROPE}),
    "rope_scaling": ROPE,
}
MODERNBERT = {
    "hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "hidden_activation": "gelu",
    "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False, "mlp_bias": False, "decoder_bias": True,
    "classifier_bias": False, "classifier_activation": "gelu", "tie_word_embeddings": True, "layer_types": None,
    "global_attn_every_n_layers": 3, "local_attention": 128, "global_rope_theta": 1.6e5, "local_rope_theta": 1e4,
    "max_position_embeddings": 8192, "original_max_position_embeddings": None,
}  # fmt: skip

# Decoders

GPT2 = {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True,
    "is_causal": True,
}  # fmt: skip
GPT_NEO = {
    "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "attention_types": None,
    "attention_layers": None, "window_size": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}  # fmt: skip
GPT_NEOX = {
    "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64, "hidden_act": "gelu",
    "layer_norm_eps": 1e-5, "use_parallel_residual": True, "attention_bias": True, "tie_word_embeddings": False,
    "rotary_emb_base": 1e4, "rotary_pct": 0.25, "max_position_embeddings": 2048,
    "original_max_position_embeddings": None, "is_causal": True,
}  # fmt: skip
GPT_J = {name: value for name, value in GPT2.items() if not name.startswith("scale_")} | {
    "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "tie_word_embeddings": False,
}  # fmt: skip
BLOOM = {
    "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5,
    "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True,
    "is_causal": True, "n_embed": None, "num_hidden_layers": None, "num_attention_heads": None,
}  # fmt: skip
FALCON = {
    "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "layer_norm_epsilon": 1e-5,
    "num_kv_heads": None, "num_ln_in_parallel_attn": None, "alibi": False, "new_decoder_architecture": False,
    "multi_query": True, "parallel_attn": True, "bias": False, "activation": "gelu", "tie_word_embeddings": True,
    "is_causal": True, "n_embed": None, "rope_theta": 1e4, "max_position_embeddings": 2048,
}  # fmt: skip
OPT = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "word_embed_proj_dim": None,
    "activation_function": "relu", "do_layer_norm_before": True, "_remove_final_layer_norm": False,
    "enable_bias": True, "layer_norm_elementwise_affine": True, "tie_word_embeddings": True, "is_causal": True,
}  # fmt: skip
ANY_LLAMA = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None,
    "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False,
    "original_max_position_embeddings": None, "is_causal": True,
}  # fmt: skip
LLAMA = ANY_LLAMA | {"attention_bias": False, "mlp_bias": False, "max_position_embeddings": 2048}
MISTRAL = ANY_LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131072}
WINDOWED = {"use_sliding_window": False, "sliding_window": 4096, "layer_types": None}
QWEN2 = ANY_LLAMA | WINDOWED | {
    "num_key_value_heads": 32, "max_window_layers": 28, "max_position_embeddings": 32768,
}  # fmt: skip
QWEN3 = QWEN2 | {"head_dim": 128, "attention_bias": False}
SMOLLM3 = LLAMA | WINDOWED | {
    "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
    "rope_theta": 2e6, "max_position_embeddings": 32768, "sliding_window": None, "no_rope_layers": None,
    "no_rope_layer_interval": 4, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA = ANY_LLAMA | {
    "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "attention_bias": False,
    "max_position_embeddings": 8192, "use_bidirectional_attention": None,
}  # fmt: skip
GEMMA2 = GEMMA | {
    "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "layer_types": None, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
}  # fmt: skip
del GEMMA2["hidden_act"]
GEMMA3 = GEMMA2 | {
    "max_position_embeddings": 131072, "final_logit_softcapping": None, "use_bidirectional_attention": False,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6,
}  # fmt: skip
del GEMMA3["attn_logit_softcapping"]

PHI3 = ANY_LLAMA | {
    "hidden_size": 3072, "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0, "sliding_window": None,
    "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
}  # fmt: skip
OLMO2 = ANY_LLAMA | {"rms_norm_eps": 1e-5, "attention_bias": False, "max_position_embeddings": 2048}
OLMO3 = OLMO2 | {"rope_theta": 5e5, "sliding_window": 4096, "layer_types": None}
GRANITE = LLAMA | dict.fromkeys(
    ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"), 1.0
)
COHERE = LLAMA | {
    "hidden_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 64, "layer_norm_eps": 1e-5,
    "rope_theta": 5e5, "tie_word_embeddings": True, "max_position_embeddings": 8192, "logit_scale": 0.0625,
    "use_qk_norm": False,
}  # fmt: skip
del COHERE["rms_norm_eps"], COHERE["mlp_bias"]
COHERE2 = COHERE | {
    "rope_theta": 1e4, "sliding_window": 4096, "layer_types": None, "sliding_window_pattern": 4,
}  # fmt: skip
del COHERE2["use_qk_norm"], COHERE2["head_dim"]
GLM4 = ANY_LLAMA | {
    "num_hidden_layers": 40, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-07,
    "attention_bias": True, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
}  # fmt: skip
STARCODER2 = ANY_LLAMA | {
    "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None,
    "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
del STARCODER2["rms_norm_eps"]
MIXTRAL = MISTRAL | {
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
GPT_OSS = ANY_LLAMA | {
    "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 1.5e5, "max_position_embeddings": 131072, "sliding_window": 128,
    "layer_types": None, "attention_bias": True, "num_local_experts": 128, "num_experts_per_tok": 4,
    "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
}  # fmt: skip
SPARSE_QWEN = {
    "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
    "num_experts": 60, "num_experts_per_tok": 4, "norm_topk_prob": False, "decoder_sparse_step": 1,
    "mlp_only_layers": None,
}  # fmt: skip
QWEN2_MOE = QWEN2 | SPARSE_QWEN | {"qkv_bias": True}
QWEN3_MOE = QWEN3 | SPARSE_QWEN | {
    "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "head_dim": None,
    "num_local_experts": None,  # another name of num_experts, which wins
}  # fmt: skip
del QWEN3_MOE["max_window_layers"], QWEN3_MOE["layer_types"]
# Sizes that the tensors have, and what training alone asks of a router
OF_EXPERTS = (
    "moe_intermediate_size shared_expert_intermediate_size output_router_logits router_aux_loss_coef "
    "router_jitter_noise"
)

# Models of an encoder and a decoder

T5 = {
    "d_model": 512, "d_kv": 64, "num_layers": 6, "num_decoder_layers": None, "num_heads": 8,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu", "dense_act_fn": None, "is_gated_act": None, "scale_decoder_outputs": None,
    "tie_word_embeddings": True, "decoder_start_token_id": 0, "is_causal": True,
}  # fmt: skip
MT5 = T5 | {"num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
del MT5["scale_decoder_outputs"], MT5["tie_word_embeddings"]  # always tied, and never scaled
BART = {
    "d_model": 1024, "encoder_layers": 12, "encoder_attention_heads": 16, "decoder_layers": 12,
    "decoder_attention_heads": 16, "activation_function": "gelu", "scale_embedding": False,
    "tie_word_embeddings": True, "decoder_start_token_id": 2, "is_causal": True, "num_hidden_layers": None,
}  # fmt: skip
MARIAN = BART | {"decoder_start_token_id": 58100}
MBART = BART | {"decoder_start_token_id": None}
PEGASUS = BART | {"decoder_start_token_id": 0}
M2M_100 = BART | {"activation_function": "relu", "scale_embedding": True, "pad_token_id": 1}
T5GEMMA = GEMMA2 | {"bos_token_id": 2}
del T5GEMMA["is_causal"], T5GEMMA["use_bidirectional_attention"]
# Sizes that the tensors have, and what the first versions of BART's and Marian's files say
OF_BART = (
    "encoder_ffn_dim decoder_ffn_dim normalize_before normalize_embedding add_final_layer_norm "
    "add_bias_logits static_position_embeddings extra_pos_embeddings max_position_embeddings decoder_vocab_size "
    "share_encoder_decoder_embeddings"
)
