"""The plans of Llama's kin: other norms and positions, numbers to multiply by, sparse networks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attn_cli.models.checkpoints import positions
from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.describe import Stack
from attn_cli.models.checkpoints.plans import GEMMA2, LLAMA, MISTRAL, QK_NORM
from attn_cli.models.checkpoints.positions import layer_windows


def _without(names: Mapping[str, str], *roles: str) -> dict[str, str]:
    return {role: name for role, name in names.items() if role not in roles}


PHI3 = MISTRAL._replace(
    names={
        **_without(LLAMA.names, "q", "k", "v", "gate", "up"), "qkv": "self_attn.qkv_proj",
        "gate_up": "mlp.gate_up_proj",
    },
    rotaries=positions.alike(share="partial_rotary_factor", kinds=positions.PHI3_KINDS),
    biases={"no_bias": "qkv o gate_up down"},
)  # fmt: skip
OLMO2 = LLAMA._replace(
    stack=LLAMA.stack._replace(qk_norm="all"),
    names={
        **_without(LLAMA.names, "norm_1", "norm_2"), **QK_NORM, "after_1": "post_attention_layernorm",
        "after_2": "post_feedforward_layernorm",
    },
)  # fmt: skip
OLMO3 = OLMO2._replace(
    windows=lambda c, count: layer_windows(c, count, lambda n: (n + 1) % 4 != 0),
    rotaries=positions.two_rotaries("rope_theta", "rope_theta", False),
)


def _maybe_qk_norm(c: Config, stack: Stack) -> Stack:
    if c.flag("use_qk_norm"):
        return stack
    names = _without(stack.layers[0].names, *QK_NORM)
    return stack._replace(layers=tuple(layer._replace(names=names) for layer in stack.layers))


COHERE = LLAMA._replace(
    stack=LLAMA.stack._replace(norm="layer", parallel=True, qk_norm="each"),
    names={**LLAMA.names, **QK_NORM, "norm_2": "input_layernorm", "last": "norm"},
    rotaries=positions.alike(neighbours=True),
    biases={**LLAMA.biases, "no_bias": "norm_1 q_norm k_norm last"},
    change=_maybe_qk_norm,
)
COHERE2 = COHERE._replace(
    names=_without(COHERE.names, *QK_NORM),
    windows=positions.pattern_of_windows,
    rotaries=positions.alike(neighbours=True, everywhere=False),
    biases={**LLAMA.biases, "no_bias": "norm_1 last"},
    change=None,
)
GLM4 = LLAMA._replace(
    names={
        **_without(LLAMA.names, "gate", "up"), "gate_up": "mlp.gate_up_proj", "after_1": "post_self_attn_layernorm",
        "after_2": "post_mlp_layernorm",
    },
    rotaries=positions.alike(share="partial_rotary_factor", neighbours=True),
    biases={"attention_bias": "q k v", "no_bias": "o gate_up down"},
)  # fmt: skip
STARCODER2 = MISTRAL._replace(
    stack=LLAMA.stack._replace(norm="layer"),
    names={**_without(LLAMA.names, "gate"), "up": "mlp.c_fc", "down": "mlp.c_proj"},
    biases={"use_bias": "q k v o up down"},
)


# Llama's kin with sparse networks

SPARSE = _without(LLAMA.names, "gate", "up", "down")
MIXTRAL = MISTRAL._replace(
    names={
        **SPARSE, "router": "block_sparse_moe.gate", "expert_gate": "block_sparse_moe.experts.{}.w1",
        "expert_up": "block_sparse_moe.experts.{}.w3", "expert_down": "block_sparse_moe.experts.{}.w2",
    },
    biases={"attention_bias": "q k v o", "no_bias": "router"},
)  # fmt: skip


OF_GPT_OSS = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def _yarn_unless_said(c: Config, d_k: int, windows: positions.Windows) -> positions.Rotaries:
    """Return GPT-OSS's rotation, which is YaRN's where config.json says nothing of it."""
    is_said = c.values.get("rope_parameters") or c.values.get("rope_scaling")
    values = c.values if is_said else {**c.values, "rope_scaling": OF_GPT_OSS}
    return positions.alike()(c._replace(values=values), d_k, windows)


GPT_OSS = LLAMA._replace(
    names={
        **SPARSE, "sinks": "self_attn.sinks", "router": "mlp.router", "expert_pairs": "mlp.experts.gate_up_proj[{}]",
        "expert_down": "mlp.experts.down_proj[{}]",
    },
    windows=GEMMA2.windows,
    rotaries=_yarn_unless_said,
    biases={"attention_bias": "q k v o"},
)  # fmt: skip
# in files of llama.cpp
APART = _without(GPT_OSS.names, "expert_pairs") | {"expert_gate": "", "expert_up": ""}


def _some_sparse(c: Config, stack: Stack) -> Stack:
    """Give some layers one network instead of many, as Qwen's keys say."""
    every = c.whole("decoder_sparse_step")
    dense = c.several("mlp_only_layers") if c.has("mlp_only_layers") else []
    roles = ("gate", "up", "down")
    sparse = _without(stack.layers[0].names, *roles)
    plain = {
        role: name for role, name in stack.layers[0].names.items() if role in LLAMA.names or role in QK_NORM
    }
    layers = (
        layer._replace(names=plain if n in dense or (n + 1) % every else sparse)
        for n, layer in enumerate(stack.layers)
    )
    return stack._replace(layers=tuple(layers))


QWEN2_MOE = LLAMA._replace(
    names={
        **LLAMA.names, "router": "mlp.gate", "shared_share": "mlp.shared_expert_gate",
        **{f"expert_{role}": f"mlp.experts.{{}}.{role}_proj" for role in ("gate", "up", "down")},
        **{f"shared_{role}": f"mlp.shared_expert.{role}_proj" for role in ("gate", "up", "down")},
    },
    windows=partial(positions.qwen_windows, lower=True),
    biases={"qkv_bias": "q k v", "no_bias": "o router"},
    change=_some_sparse,
)  # fmt: skip
QWEN3_MOE = QWEN2_MOE._replace(
    names={
        **_without(QWEN2_MOE.names, "shared_gate", "shared_up", "shared_down", "shared_share"), **QK_NORM
    },
    windows=lambda c, count: layer_windows(c, count, lambda n: c.flag("use_sliding_window")),
    biases={"attention_bias": "q k v o", "no_bias": "router"},
)  # fmt: skip
