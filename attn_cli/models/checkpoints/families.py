"""Each family of models by the name that config.json gives it. A new family is a new entry of FAMILIES.

A family declares the keys that it reads, with the defaults of its configuration class in transformers 5, and those
that change no number: what is in neither list is told in a note. A plan says what no key says: see `describe`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from attn_cli.errors import InputError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints import plans, translators
from attn_cli.models.checkpoints.config import Config, Keys
from attn_cli.models.checkpoints.describe import Model

LOOKS_AHEAD = {"is_causal": False, "use_bidirectional_attention": True}  # what takes a decoder's mask away


class Family(NamedTuple):
    """What describes a model of the family, and the keys of its config.json, `idle` ones between spaces."""

    describe: Callable[[Config], Model]
    reads: Mapping[str, object]
    idle: str = ""
    parts: Mapping[str, Keys] = {}

    @property
    def keys(self) -> Keys:
        """The keys, as a Config asks for them."""
        return Keys(self.reads, frozenset(self.idle.split()), self.parts)


# Encoders

BERT = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "is_decoder": False, "is_causal": True, "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}  # fmt: skip
ROBERTA = BERT | {"pad_token_id": 1}
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
    "partial_rotary_factor",
)) | {"type": "default", "rope_type": None}, frozenset({"finetuned"}))  # fmt: skip
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
# Sizes that the tensors have, and what the first versions of BART's and Marian's files say
OF_BART = (
    "encoder_ffn_dim decoder_ffn_dim normalize_before normalize_embedding add_final_layer_norm "
    "add_bias_logits static_position_embeddings extra_pos_embeddings max_position_embeddings decoder_vocab_size "
    "share_encoder_decoder_embeddings"
)

_gemma3_text = Family(
    plans.GEMMA3.model, GEMMA3, "hidden_act attn_logit_softcapping _sliding_window_pattern", BY_KIND
)

FAMILIES: dict[str, Family] = {
    "bert": Family(plans.BERT.model, BERT),
    "roberta": Family(plans.ROBERTA.model, ROBERTA),
    "xlm-roberta": Family(plans.ROBERTA.model, ROBERTA),
    "camembert": Family(plans.ROBERTA.model, ROBERTA),
    "distilbert": Family(
        plans.DISTILBERT.model, DISTILBERT, "hidden_dim sinusoidal_pos_embds tie_weights_ is_causal"
    ),
    "electra": Family(plans.ELECTRA.model, ELECTRA),
    "albert": Family(
        plans.ALBERT.model,
        ALBERT,
        "is_causal net_structure_type gap_size num_memory_blocks down_scale_factor",
    ),
    "modernbert": Family(
        plans.MODERNBERT.model,
        MODERNBERT,
        "deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile repad_logits_with_grad "
        "layer_norm_eps position_embedding_type is_causal",
        BY_KIND,
    ),
    "gpt2": Family(plans.GPT2.model, GPT2, "n_positions n_ctx n_inner reorder_and_upcast_attn"),
    "gpt_neo": Family(plans.GPT_NEO.model, GPT_NEO, "is_causal"),
    "gpt_neox": Family(plans.GPT_NEOX.model, GPT_NEOX, "", ROTARY),
    "opt": Family(plans.OPT.model, OPT, "ffn_dim"),
    "llama": Family(plans.LLAMA.model, LLAMA, "is_llama_config rope_interleaved", ROTARY),
    "mistral": Family(plans.MISTRAL.model, MISTRAL, "", ROTARY),
    "qwen2": Family(plans.QWEN2.model, QWEN2, "use_mrope", ROTARY),
    "qwen3": Family(plans.QWEN3.model, QWEN3, "", ROTARY),
    "smollm3": Family(plans.SMOLLM3.model, SMOLLM3, "max_window_layers", ROTARY),
    "gemma": Family(plans.GEMMA.model, GEMMA, "hidden_activation", ROTARY),
    "gemma2": Family(plans.GEMMA2.model, GEMMA2, "hidden_act", ROTARY),
    "gemma3_text": _gemma3_text,
    "gemma3": Family(
        plans.gemma3_with_pictures,
        {"tie_word_embeddings": True},
        "vision_config mm_tokens_per_image",
        {"text_config": _gemma3_text.keys},
    ),
    "t5": Family(translators.t5, T5, "d_ff n_positions"),
    "mt5": Family(translators.t5, MT5, "d_ff n_positions tie_word_embeddings scale_decoder_outputs"),
    "bart": Family(translators.bart, BART, OF_BART),
    "marian": Family(partial(translators.bart, sinusoids=True), MARIAN, OF_BART),
}


def describe(config: Config, is_strict: bool = False) -> Model:
    """Return the description of a config.json's model, with a note on keys that its family does not know.

    Raises InputError if attn does not know the family; `is_strict` makes an error of the note, too.
    """
    name = config.word("model_type")
    if name not in FAMILIES:
        raise InputError(
            f"{config.where}: attn does not know models of the type {visible(name)[:60]!r}.",
            f"{did_you_mean(name, FAMILIES)}It knows {', '.join(FAMILIES)}.",
        )
    family = FAMILIES[name]
    declared = config._replace(keys=family.keys)
    unknown = declared.unknown(name)
    if unknown and is_strict:
        raise InputError(f"{config.where}: {unknown}")
    model, notes = family.describe(declared), [unknown] if unknown else []
    key = next((key for key, value in LOOKS_AHEAD.items() if config.values.get(key) is value), None)
    if key and model.decoder is None and key in family.keys.reads:
        notes.append(
            f"config.json says {key} = {json.dumps(LOOKS_AHEAD[key])}: no word is hidden from another."
        )
    return model._replace(family=name, notes=tuple(notes))
