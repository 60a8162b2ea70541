"""GGUF files written by hand, without the gguf package: from folders of checkpoints, as llama.cpp's converter does."""

import json
import struct
from pathlib import Path

import numpy as np

from attn_cli.io.array_files import read_safetensors
from tests.models.checkpoints.by_hand import byte_pairs, drawn, gpt2, in_layers, saved

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
NUMBERS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def text(words):
    encoded = words.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(given):
    """Return the type of a value, and its bytes."""
    if isinstance(given, str):
        return 8, text(given)
    if isinstance(given, list):
        parts = [value(one) for one in given]
        # In lists, llama.cpp's numbers have a sign.
        kinds = {5 if kind == 4 else kind for kind, _ in parts} or {8}
        assert len(kinds) == 1
        return 9, struct.pack("<IQ", *kinds, len(parts)) + b"".join(data for _, data in parts)
    kind, form = NUMBERS[type(given)]
    return kind, struct.pack(f"<{form}", given)


def stored(array):
    """Return what a tensor is in a file: its type, its shape and its bytes."""
    kind = {np.dtype(np.float32): F32, np.dtype(np.float16): F16, np.dtype(np.uint16): BF16}[array.dtype]
    return kind, array.shape, array.tobytes()


def eight_bits(array):
    """Return a tensor as Q8_0: 32 numbers share a scale in float16."""
    runs = array.astype(np.float32).reshape(-1, 32)
    scales = (np.abs(runs).max(axis=1, keepdims=True) / 127).astype(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.nan_to_num(np.round(runs / scales)).astype(np.int8)
    blocks = np.concatenate([scales.view(np.uint8), whole.view(np.uint8)], axis=1)
    return Q8_0, array.shape, blocks.tobytes()


def gguf(metadata, tensors, version=3, alignment=32):
    """Return the bytes of a GGUF file; tensors are arrays, or (type, shape, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, one in metadata.items():
        kind, data = value(one)
        head += text(key) + struct.pack("<I", kind) + data
    parts, end = [], 0
    for name, given in tensors.items():
        kind, shape, data = given if isinstance(given, tuple) else stored(given)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, end)
        parts += [data, bytes(-len(data) % alignment)]
        end += len(data) + len(parts[-1])
    return b"".join([head, bytes(-len(head) % alignment), *parts])


DECODER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
GEMMA = DECODER | {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
FUSED = DECODER | {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
BERT = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip
GPT2 = {
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_1": "attn_norm", "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
WHOLE = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "wte": "token_embd",
    "wpe": "position_embd", "ln_f": "output_norm", "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}  # fmt: skip
OSS = DECODER | {
    "self_attn.sinks": "attn_sinks", "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
}  # fmt: skip
MOE = DECODER | {
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.shared_expert.{role}_proj": f"ffn_{role}_shexp" for role in ("gate", "up", "down")},
}  # fmt: skip
KINDS = {"gpt_oss": "gpt-oss", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
KINDS |= {"mistral": "llama", "olmo3": "olmo2"}
NAMES = {"gpt-oss": OSS, "bert": BERT, "gpt2": GPT2, "phi3": FUSED, "qwen2moe": MOE, "qwen3moe": MOE}
NAMES |= dict.fromkeys(("gemma2", "gemma3", "olmo2"), GEMMA)
KEYS = {
    "block_count": ("num_hidden_layers", "n_layer"), "embedding_length": ("hidden_size", "n_embd"),
    "attention.head_count": ("num_attention_heads", "n_head"), "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",), "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
    "context_length": ("max_position_embeddings", "n_positions"), "feed_forward_length": ("intermediate_size",),
    "expert_count": ("num_local_experts", "num_experts"), "expert_used_count": ("num_experts_per_tok",),
    "attn_logit_softcapping": ("attn_logit_softcapping",), "final_logit_softcapping": ("final_logit_softcapping",),
}  # fmt: skip


def neighbours(rows, heads):
    """Return rows in the order in which llama.cpp rotates them: a head's two halves one by one in turn."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def renamed(name, kind):
    """Return a tensor's name in a GGUF file; None for what it does not have."""
    for prefix in ("model.", "transformer.", "bert."):
        name = name.removeprefix(prefix)
    stem, _, part = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{part}"
    if stem.endswith("self_attn"):
        stem, part = name, "weight"
    names = NAMES.get(kind, DECODER)
    for start in ("layers.", "h.", "encoder.layer."):
        number, _, role = stem.removeprefix(start).partition(".")
        if stem.startswith(start):
            return f"blk.{number}.{names[role]}.{part}" if role in names else None
    return None


def with_stacks(arrays):
    """Return the arrays with the experts' matrices as llama.cpp has them: (experts, made, given), the gate apart."""
    found, stacks = {}, {}
    for name, array in arrays.items():
        place, is_expert, role = name.partition("mlp.experts.")
        number = place.removeprefix("model.layers.").rstrip(".")
        if not is_expert:
            found[name] = array
        elif role.startswith(("gate_up", "down")) and not role.endswith(".weight"):  # GPT-OSS
            part = "bias" if role.endswith("_bias") else "weight"
            array = array if part == "bias" else array.swapaxes(1, 2)
            apart = {"down": array} if role[0] == "d" else {"gate": array[:, ::2], "up": array[:, 1::2]}
            found |= {f"blk.{number}.ffn_{one}_exps.{part}": of for one, of in apart.items()}
        else:
            expert, role, _ = role.split(".")
            own = stacks.setdefault(f"blk.{number}.ffn_{role.removesuffix('_proj')}_exps.weight", {})
            own[int(expert)] = array
    return found | {name: np.stack([own[n] for n in range(len(own))]) for name, own in stacks.items()}


def is_table(called, array):
    """Tell whether a tensor of this name is a matrix that a file may have in fewer bits."""
    is_of_places = called.startswith(("position_embd", "token_types"))
    return array.ndim == 2 and called.endswith(".weight") and not is_of_places


def rotation(config, kind):
    """Return what a file says of positions and windows."""
    rope, window = config.get("rope_parameters") or config, config.get("sliding_window")
    found = {"rope.freq_base": rope.get("full_attention", rope).get("rope_theta")}
    is_olmo3 = config["model_type"] == "olmo3"
    if (kind.startswith("gemma") and window) or kind in ("phi3", "gpt-oss") or is_olmo3:
        found["attention.sliding_window"] = window or 0
    if is_olmo3:
        found["attention.sliding_window_pattern"] = ["sliding" in one for one in config["layer_types"]]
    if kind == "phi3":
        d_k = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        share = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1))
        found["rope.dimension_count"] = int(d_k * share)
    if kind == "gpt-oss":
        found |= {"rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"]}
        found["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return found


def converted(folder, path, quantize=stored, further=None, **more):
    """Write a folder's model as a GGUF file with `further` tensors, and return its name; `quantize` makes matrices."""
    config = json.loads((Path(folder) / "config.json").read_text())
    kind = KINDS.get(config["model_type"], config["model_type"])
    arrays = with_stacks(read_safetensors(Path(folder) / "model.safetensors")[0])
    own = {
        key: next((config[name] for name in names if config.get(name) is not None), None)
        for key, names in KEYS.items()
    } | rotation(config, kind)
    own |= {"attention.causal": False} if kind == "bert" else {}
    metadata = {f"{kind}.{key}": one for key, one in own.items() if one is not None}
    heads = config.get("num_attention_heads")
    of = {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}
    tensors = {}
    while arrays:  # given up one by one: a model may be large
        name = next(iter(arrays))
        array = arrays.pop(name)
        called = name if "_exps." in name else renamed(name, kind)
        if called is None or (called == "output.weight" and config.get("tie_word_embeddings")):
            continue
        role = called.split(".")[-2]
        array = array.T if kind == "gpt2" and array.ndim == 2 and called.startswith("blk.") else array
        array = array + 1 if kind.startswith("gemma") and "norm" in called else array
        array = neighbours(array, of[role]) if kind == "llama" and role in of else array
        array = np.ascontiguousarray(array, np.float32)
        tensors[called] = quantize(array) if is_table(called, array) else stored(array)
    Path(path).write_bytes(gguf({"general.architecture": kind} | metadata | more, tensors | (further or {})))
    return str(path)


SIZES = {"vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = SIZES | {"model_type": "llama", "num_key_value_heads": 2, "intermediate_size": 96}
LLAMA |= {"rms_norm_eps": 1e-5}


def llama(seed=0, kv=2, d=64, wide=96, layers=2, heads=4, words=40, some=None):
    """Return the tensors of a random Llama, or those that `some` makes of each shape."""
    layer = {f"self_attn.{of}_proj": (kv * d // heads if of in "kv" else d, d) for of in "qkvo"}
    layer |= {"mlp.gate_proj": (wide, d), "mlp.up_proj": (wide, d), "mlp.down_proj": (d, wide)}
    layer |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (d,))
    whole = {"model.embed_tokens": (words, d), "model.norm": (d,), "lm_head": (words, d)}
    whole |= in_layers("model.layers", layers, layer)
    shapes = {f"{name}.weight": shape for name, shape in whole.items()}
    if some is not None:
        return {name: some(*shape) for name, shape in shapes.items()}
    return {name: array / 2 for name, array in drawn(seed, shapes).items()}


PIECES = ["<s>", "</s>", *"abcdĠ", "Ġa", "Ġb", "ab"]
BYTE_PAIRS = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": [3, 3] + [1] * (len(PIECES) - 2), "tokenizer.ggml.merges": ["Ġ a", "Ġ b", "a b"],
    "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True,
}  # fmt: skip
FORTY = [*"abcdefghijklmnopqrstuvwxyzĠ", *(f"Ġ{letter}" for letter in "abcdefghijklm")]
OF_FORTY = BYTE_PAIRS | {
    "tokenizer.ggml.tokens": FORTY, "tokenizer.ggml.token_type": [1] * 40, "tokenizer.ggml.merges": ["Ġ a"],
    "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.eos_token_id": 1,
}  # fmt: skip
SPELLED = ["<unk>", "<s>", "</s>", "<0x0A>", *"ab▁", "▁a", "▁b", "ab"]
SENTENCE_PIECES = {
    "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": SPELLED, "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.token_type": [2, 3, 3, 6] + [1] * (len(SPELLED) - 4),
    "tokenizer.ggml.scores": [-float(n) for n in range(len(SPELLED))], "tokenizer.ggml.add_space_prefix": True,
}  # fmt: skip
WORD_PIECES = {
    "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["[UNK]", "[CLS]", "[SEP]", "▁a", "▁b", "b", "c", "ab"],
    "tokenizer.ggml.token_type": [3, 3, 3] + [1] * 5, "tokenizer.ggml.cls_token_id": 1,
    "tokenizer.ggml.seperator_token_id": 2,
}  # fmt: skip


DENSE, SHARED = " ffn_gate ffn_up ffn_down", " ffn_gate_inp_shexp ffn_gate_shexp ffn_up_shexp ffn_down_shexp"
SPARSE = {
    "gpt-oss": "ffn_norm" + DENSE + SHARED,
    "qwen2moe": "post_attention_norm attn_sinks" + DENSE,
    "qwen3moe": "post_attention_norm attn_sinks" + DENSE + SHARED,
}


def small(kind, seed=0, quantize=eight_bits, layers=2, d=64, heads=4, pairs=2, wide=96, words=40, **more):
    """Return a random model of an architecture as `gguf` takes it: its metadata, and its tensors.

    `more` is further metadata; None takes a key out. `pairs` is how many keys and values its heads share, in
    architectures where heads share them; `wide` is what its networks have between.
    """
    draw, d_k = np.random.default_rng(seed), d // heads
    is_old = kind in ("gpt2", "bert")
    pairs = heads if is_old else pairs
    norm = "attention.layer_norm_epsilon" if is_old else "attention.layer_norm_rms_epsilon"
    keys = {
        "block_count": layers, "embedding_length": d, "attention.head_count": heads, "feed_forward_length": wide,
        "attention.head_count_kv": pairs, "context_length": 64, norm: 1e-5, "rope.freq_base": 10_000.0,
        "attention.key_length": d_k, "attention.value_length": d_k, "rope.dimension_count": d_k,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 4,
        "attention.causal": kind != "bert", "expert_count": 3, "expert_used_count": 2,
        "expert_feed_forward_length": wide, "expert_shared_feed_forward_length": 32, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
    }  # fmt: skip
    left_out = "rope key_length value_length count_kv" if is_old else "causal"
    left_out += "" if kind == "gemma2" else " softcapping"
    left_out += "" if kind in ("gemma2", "gemma3", "phi3", "gpt-oss") else " sliding_window"
    left_out += ("" if kind in SPARSE else " expert") + ("" if kind == "gpt-oss" else " scaling")
    keys = {key: one for key, one in keys.items() if not any(word in key for word in left_out.split())}
    made = {"token_embd.weight": (words, d), "output_norm.weight": (d,), "output.weight": (words, d)}
    made |= {"position_embd.weight": (64, d)} if is_old else {}
    made |= {"output_norm.bias": (d,)} if kind == "gpt2" else {}
    if kind == "bert":
        made = {"token_embd.weight": (words, d), "position_embd.weight": (64, d)}
        made |= {"token_types.weight": (2, d), "token_embd_norm.weight": (d,), "token_embd_norm.bias": (d,)}
    for n in range(layers):
        parts = {
            "attn_q": (d, d), "attn_k": (pairs * d_k, d), "attn_v": (pairs * d_k, d), "attn_output": (d, d),
            "ffn_gate": (wide, d), "ffn_up": (wide, d), "ffn_down": (d, wide), "attn_norm": (d,), "ffn_norm": (d,),
        }  # fmt: skip
        if kind in ("gpt2", "phi3"):
            parts["attn_qkv"] = (d + 2 * pairs * d_k, d)
            parts["ffn_up"] = (wide if is_old else 2 * wide, d)
        if kind in ("gemma2", "gemma3", "olmo2"):
            parts |= {"post_attention_norm": (d,), "post_ffw_norm": (d,)}
        if kind in ("qwen3", "qwen3moe", "gemma3", "olmo2"):
            all_of = (d, pairs * d_k) if kind == "olmo2" else (d_k, d_k)
            parts |= {"attn_q_norm": all_of[:1], "attn_k_norm": all_of[1:]}
        if kind in SPARSE:
            parts |= {"ffn_gate_inp": (3, d), **dict.fromkeys(("ffn_gate_exps", "ffn_up_exps"), (3, wide, d))}
            parts |= {"ffn_down_exps": (3, d, wide), "post_attention_norm": (d,), "attn_sinks": (heads,)}
            parts |= {"ffn_gate_inp_shexp": (1, d), "ffn_down_shexp": (d, 32)}
            parts |= dict.fromkeys(("ffn_gate_shexp", "ffn_up_shexp"), (32, d))
        if kind == "bert":
            parts |= {"attn_output_norm": (d,), "layer_output_norm": (d,)}
        unused = {
            "gpt2": "attn_q attn_k attn_v ffn_gate", "phi3": "attn_q attn_k attn_v ffn_gate",
            "olmo2": "attn_norm ffn_norm", "bert": "attn_norm ffn_norm ffn_gate", **SPARSE,
        }  # fmt: skip
        parts = {role: shape for role, shape in parts.items() if role not in unused.get(kind, "").split()}
        biased = parts if is_old else ("attn_q", "attn_k", "attn_v") if kind in ("qwen2", "qwen2moe") else ()
        if kind == "gpt-oss":
            biased = [role for role in parts if "norm" not in role and role != "attn_sinks"]
        made |= {f"blk.{n}.{role}.weight": shape for role, shape in parts.items()}
        made |= {f"blk.{n}.{role}.bias": parts[role][:-1] or parts[role] for role in biased}
    if kind.startswith("gemma"):
        del made["output.weight"]
    tensors = {}
    for name, shape in made.items():
        array = draw.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))
        array = 1 + array if "norm.weight" in name else array
        tensors[name] = quantize(array) if is_table(name, array) else stored(array)
    named = {f"{kind}.{key}": one for key, one in keys.items()}
    whole = {"general.architecture": kind} | named | more
    return {key: one for key, one in whole.items() if one is not None}, tensors


def in_both_forms(folder):
    """Write a small GPT-2 as a folder and as two GGUF files, exact and in eight bits, and return their names."""
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2}
    config |= {"activation_function": "gelu_new"}
    whole = saved(folder / "whole", config, gpt2(vocabulary=len(PIECES), d=32))
    byte_pairs(whole, PIECES, BYTE_PAIRS["tokenizer.ggml.merges"])
    more = BYTE_PAIRS | {"tokenizer.ggml.add_bos_token": False}
    exact = converted(whole, folder / "exact.gguf", **more)
    return whole, exact, converted(whole, folder / "eight.gguf", eight_bits, **more)
