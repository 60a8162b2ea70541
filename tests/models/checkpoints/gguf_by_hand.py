"""GGUF files written by hand, without the gguf package: from folders of checkpoints, as llama.cpp's converter does."""

import json
import struct
from pathlib import Path

import numpy as np

from attn_cli.io.array_files import read_safetensors

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
        kinds = {kind for kind, _ in parts} or {8}
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
    body = b""
    for name, given in tensors.items():
        kind, shape, data = given if isinstance(given, tuple) else stored(given)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + body


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
KINDS = {"gemma3_text": "gemma3", "mistral": "llama"}
KEYS = {
    "block_count": ("num_hidden_layers", "n_layer"), "embedding_length": ("hidden_size", "n_embd"),
    "attention.head_count": ("num_attention_heads", "n_head"), "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",), "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
    "context_length": ("max_position_embeddings", "n_positions"), "feed_forward_length": ("intermediate_size",),
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
    own = {"bert": BERT, "gpt2": GPT2, "phi3": FUSED, "gemma2": GEMMA, "gemma3": GEMMA, "olmo2": GEMMA}
    names = own.get(kind, DECODER)
    for start in ("layers.", "h.", "encoder.layer."):
        number, _, role = stem.removeprefix(start).partition(".")
        if stem.startswith(start):
            return f"blk.{number}.{names[role]}.{part}" if role in names else None
    return None


def converted(folder, path, quantize=stored, **more):
    """Write a folder's model as a GGUF file, and return the file's name; `quantize` makes what matrices become."""
    config = json.loads((Path(folder) / "config.json").read_text())
    kind = KINDS.get(config["model_type"], config["model_type"])
    arrays, _ = read_safetensors(Path(folder) / "model.safetensors")
    metadata = {"general.architecture": kind}
    for key, names in KEYS.items():
        found = next((config[name] for name in names if config.get(name) is not None), None)
        if found is not None:
            metadata[f"{kind}.{key}"] = found
    heads = config.get("num_attention_heads")
    d_k = config.get("head_dim") or config.get("hidden_size", 0) // (heads or 1)
    rope = config.get("rope_parameters") or config
    theta = rope.get("full_attention", rope).get("rope_theta")
    metadata |= {f"{kind}.rope.freq_base": theta} if theta else {}
    if kind.startswith("gemma") and config.get("sliding_window"):
        metadata[f"{kind}.attention.sliding_window"] = config["sliding_window"]
    if kind == "phi3":
        metadata["phi3.rope.dimension_count"] = int(
            d_k * config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1))
        )
    if kind == "bert":
        metadata["bert.attention.causal"] = False
    of = {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}
    tensors = {}
    for name, array in arrays.items():
        called = renamed(name, kind)
        if called is None or (called == "output.weight" and config.get("tie_word_embeddings")):
            continue
        role = called.split(".")[-2]
        array = array.T if kind == "gpt2" and array.ndim == 2 and called.startswith("blk.") else array
        array = array + 1 if kind.startswith("gemma") and "norm" in called else array
        array = neighbours(array, of[role]) if kind == "llama" and role in of else array
        array = np.ascontiguousarray(array, np.float32)
        is_table = array.ndim == 2 and role not in ("position_embd", "token_types")
        tensors[called] = quantize(array) if is_table else stored(array)
    Path(path).write_bytes(gguf(metadata | more, tensors))
    return str(path)
