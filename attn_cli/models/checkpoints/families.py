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
from attn_cli.models.checkpoints import deberta, keys, llama_plans, plans, translators
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


_gemma3_idle = "hidden_act attn_logit_softcapping _sliding_window_pattern"
_gemma3_text = Family(plans.GEMMA3.model, keys.GEMMA3, _gemma3_idle, keys.BY_KIND)

FAMILIES: dict[str, Family] = {
    "bert": Family(plans.BERT.model, keys.BERT),
    "roberta": Family(plans.ROBERTA.model, keys.ROBERTA),
    "xlm-roberta": Family(plans.ROBERTA.model, keys.ROBERTA),
    "camembert": Family(plans.ROBERTA.model, keys.ROBERTA),
    "mpnet": Family(plans.MPNET.model, keys.MPNET),
    "deberta": Family(deberta.deberta, keys.DEBERTA),
    "deberta-v2": Family(
        partial(deberta.deberta, plan=deberta.DEBERTA_2), keys.DEBERTA_2, "conv_act conv_groups"
    ),
    "distilbert": Family(
        plans.DISTILBERT.model, keys.DISTILBERT, "hidden_dim sinusoidal_pos_embds tie_weights_ is_causal"
    ),
    "electra": Family(plans.ELECTRA.model, keys.ELECTRA),
    "albert": Family(
        plans.ALBERT.model,
        keys.ALBERT,
        "is_causal net_structure_type gap_size num_memory_blocks down_scale_factor",
    ),
    "modernbert": Family(
        plans.MODERNBERT.model,
        keys.MODERNBERT,
        "deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile repad_logits_with_grad "
        "layer_norm_eps position_embedding_type is_causal",
        keys.BY_KIND,
    ),
    "gpt2": Family(plans.GPT2.model, keys.GPT2, "n_positions n_ctx n_inner reorder_and_upcast_attn"),
    "gpt_neo": Family(plans.GPT_NEO.model, keys.GPT_NEO, "is_causal"),
    "gpt_neox": Family(plans.GPT_NEOX.model, keys.GPT_NEOX, "", keys.ROTARY),
    "gptj": Family(plans.GPT_J.model, keys.GPT_J, "n_positions n_inner"),
    "bloom": Family(plans.BLOOM.model, keys.BLOOM, "n_inner seq_length slow_but_exact"),
    "falcon": Family(
        plans.FALCON.model, keys.FALCON, "apply_residual_connection_post_layernorm", keys.ROTARY
    ),
    "opt": Family(plans.OPT.model, keys.OPT, "ffn_dim"),
    "llama": Family(plans.LLAMA.model, keys.LLAMA, "is_llama_config rope_interleaved", keys.ROTARY),
    "mistral": Family(plans.MISTRAL.model, keys.MISTRAL, "", keys.ROTARY),
    "qwen2": Family(plans.QWEN2.model, keys.QWEN2, "use_mrope", keys.ROTARY),
    "qwen3": Family(plans.QWEN3.model, keys.QWEN3, "", keys.ROTARY),
    "smollm3": Family(plans.SMOLLM3.model, keys.SMOLLM3, "max_window_layers", keys.ROTARY),
    "gemma": Family(plans.GEMMA.model, keys.GEMMA, "hidden_activation", keys.ROTARY),
    "gemma2": Family(plans.GEMMA2.model, keys.GEMMA2, "hidden_act", keys.ROTARY),
    "gemma3_text": _gemma3_text,
    "gemma3": Family(
        plans.gemma3_with_pictures,
        {"tie_word_embeddings": True},
        "vision_config mm_tokens_per_image",
        {"text_config": _gemma3_text.keys},
    ),
    "phi3": Family(llama_plans.PHI3.model, keys.PHI3, "", keys.ROTARY),
    "olmo2": Family(llama_plans.OLMO2.model, keys.OLMO2, "", keys.ROTARY),
    "olmo3": Family(llama_plans.OLMO3.model, keys.OLMO3, "", keys.BY_KIND),
    "granite": Family(plans.LLAMA.model, keys.GRANITE, "", keys.ROTARY),
    "cohere": Family(llama_plans.COHERE.model, keys.COHERE, "", keys.ROTARY),
    "cohere2": Family(
        llama_plans.COHERE2.model, keys.COHERE2, "head_dim _sliding_window_pattern", keys.ROTARY
    ),
    "glm4": Family(llama_plans.GLM4.model, keys.GLM4, "", keys.ROTARY),
    "starcoder2": Family(llama_plans.STARCODER2.model, keys.STARCODER2, "", keys.ROTARY),
    "mixtral": Family(llama_plans.MIXTRAL.model, keys.MIXTRAL, keys.OF_EXPERTS, keys.ROTARY),
    "qwen2_moe": Family(llama_plans.QWEN2_MOE.model, keys.QWEN2_MOE, keys.OF_EXPERTS, keys.ROTARY),
    "qwen3_moe": Family(
        llama_plans.QWEN3_MOE.model, keys.QWEN3_MOE, keys.OF_EXPERTS + " max_window_layers", keys.ROTARY
    ),
    "gpt_oss": Family(
        llama_plans.GPT_OSS.model,
        keys.GPT_OSS,
        keys.OF_EXPERTS + " initial_context_length experts_per_token",
        keys.ROTARY,
    ),
    "mistral3": Family(
        plans.mistral3_with_pictures,
        {"tie_word_embeddings": True},
        "vision_config projector_hidden_act vision_feature_layer multimodal_projector_bias spatial_merge_size",
        {"text_config": Keys(keys.MISTRAL | {"model_type": "mistral"}, parts=keys.ROTARY)},
    ),
    "t5": Family(translators.t5, keys.T5, "d_ff n_positions"),
    "mt5": Family(translators.t5, keys.MT5, "d_ff n_positions tie_word_embeddings scale_decoder_outputs"),
    "bart": Family(translators.bart, keys.BART, keys.OF_BART),
    "marian": Family(partial(translators.bart, sides=translators.MARIAN), keys.MARIAN, keys.OF_BART),
    "mbart": Family(partial(translators.bart, sides=translators.MBART), keys.MBART, keys.OF_BART),
    "pegasus": Family(partial(translators.bart, sides=translators.PEGASUS), keys.PEGASUS, keys.OF_BART),
    "m2m_100": Family(partial(translators.bart, sides=translators.M2M_100), keys.M2M_100, keys.OF_BART),
    "t5gemma": Family(
        translators.t5gemma,
        {"tie_word_embeddings": True},
        "",
        dict.fromkeys(("encoder", "decoder"), Keys(keys.T5GEMMA, frozenset({"hidden_act"}), keys.ROTARY)),
    ),
}


def describe(config: Config, is_strict: bool = False) -> Model:
    """Return the description of a config.json's model, with a note on keys that its family does not know.

    Raises InputError if attn does not know the family; `is_strict` makes an error of the note, too.
    """
    name = config.word("model_type")
    if name not in FAMILIES:
        said = f"{config.where}: attn does not know models of the type {visible(name)[:60]!r}."
        raise InputError(said, f"{did_you_mean(name, FAMILIES)}It knows {', '.join(FAMILIES)}.")
    family = FAMILIES[name]
    declared = config._replace(keys=family.keys)
    unknown = declared.unknown(name)
    if unknown and is_strict:
        raise InputError(f"{config.where}: {unknown}")
    model, notes = family.describe(declared), [unknown] if unknown else []
    key = next((key for key, value in LOOKS_AHEAD.items() if config.values.get(key) is value), None)
    if key and model.decoder is None and key in family.keys.reads:
        said = json.dumps(LOOKS_AHEAD[key])
        notes.append(f"config.json says {key} = {said}: no word is hidden from another.")
    return model._replace(family=name, notes=tuple(notes))
