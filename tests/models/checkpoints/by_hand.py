"""Small checkpoints written by hand, without PyTorch."""

import json
import struct
from pathlib import Path

import numpy as np

LETTERS = ("a", "b", "c", "d", "Ġa", "Ġb")
FRAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = (*FRAMES, "the", "cat", "##s", "walk", "##ing", "home", "a", "b", "c")


def as_bfloat16(array):
    """Return the upper halves of a float32 array's numbers, cut off and not rounded."""
    return (np.asarray(array, np.float32).view("<u4") >> 16).astype("<u2")


def safetensors(arrays):
    """Return the bytes of a safetensors file; numbers of 16 bits are those of bfloat16."""
    names = {"float32": "F32", "float16": "F16", "float64": "F64", "uint16": "BF16"}
    names |= {"int8": "I8", "uint8": "U8", "uint32": "U32"}
    header, end = {}, 0
    for key, array in arrays.items():
        start, end = end, end + array.nbytes
        kind, shape = names[str(array.dtype)], list(array.shape)
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + b"".join(array.tobytes() for array in arrays.values())


def saved(folder, config, arrays):
    """Write a checkpoint's folder, and return its name."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    return str(folder)


def byte_pairs(folder, vocabulary=LETTERS, merges=()):
    """Write a byte-level tokenizer, as GPT-2 has one, into a model's folder."""
    folder = Path(folder)
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(vocabulary)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))


def word_pieces(folder, vocabulary=PIECES, lower=True):
    """Write a tokenizer of word pieces, as BERT has one, into a model's folder."""
    folder = Path(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))


GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "activation_function": "relu"}


def gpt2(seed=0, vocabulary=6, places=10, d=8, layers=2):
    """Return the tensors of a small random GPT-2."""
    draw = np.random.default_rng(seed)

    def some(*shape):
        return draw.standard_normal(shape).astype(np.float32)

    made = {"wte.weight": some(vocabulary, d), "wpe.weight": some(places, d)}
    for n in range(layers):
        for name, shape in (
            ("ln_1.weight", (d,)), ("ln_1.bias", (d,)), ("ln_2.weight", (d,)), ("ln_2.bias", (d,)),
            ("attn.c_attn.weight", (d, 3 * d)), ("attn.c_attn.bias", (3 * d,)), ("attn.c_proj.weight", (d, d)),
            ("attn.c_proj.bias", (d,)), ("mlp.c_fc.weight", (d, 4 * d)), ("mlp.c_fc.bias", (4 * d,)),
            ("mlp.c_proj.weight", (4 * d, d)), ("mlp.c_proj.bias", (d,)),
        ):  # fmt: skip
            made[f"h.{n}.{name}"] = some(*shape)
    return made | {"ln_f.weight": some(d), "ln_f.bias": some(d)}


def small_gpt2(folder, tensors=None, **config):
    """Write a GPT-2 of six letters with its tokenizer, and return the folder's name."""
    name = saved(folder, GPT2 | config, gpt2() if tensors is None else tensors)
    byte_pairs(name)
    return name


BERT = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 16, "hidden_act": "relu"}


def bert(seed=0, vocabulary=14, places=12, d=8, layers=2, head=True, wide=2):
    """Return the tensors of a random BERT, with or without the head that makes words; its network is d x wide d."""
    draw = np.random.default_rng(seed)

    def norm(name):
        return {f"{name}.weight": np.ones(d, np.float32), f"{name}.bias": np.zeros(d, np.float32)}

    def some(*shape):
        return draw.standard_normal(shape).astype(np.float32)

    def linear(name, given, made):
        return {f"{name}.weight": some(made, given), f"{name}.bias": some(made)}

    found = norm("embeddings.LayerNorm")
    for name, rows in (("word", vocabulary), ("position", places), ("token_type", 2)):
        found[f"embeddings.{name}_embeddings.weight"] = some(rows, d)
    for n in range(layers):
        place = f"encoder.layer.{n}."
        for role in ("query", "key", "value"):
            found |= linear(f"{place}attention.self.{role}", d, d)
        found |= linear(place + "attention.output.dense", d, d) | norm(place + "attention.output.LayerNorm")
        found |= linear(place + "intermediate.dense", d, wide * d)
        found |= linear(place + "output.dense", wide * d, d) | norm(place + "output.LayerNorm")
    if head:
        found |= linear("cls.predictions.transform.dense", d, d) | norm("cls.predictions.transform.LayerNorm")
        found["cls.predictions.bias"] = some(vocabulary)
    return found


GEMMA2 = {
    "model_type": "gemma2", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 2,
    "num_key_value_heads": 1, "intermediate_size": 4, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 2.0,
    "sliding_window": 100, "rms_norm_eps": 1e-12,
}  # fmt: skip


def gemma2(seed=0, vocabulary=6, d=4, heads=2, pairs=1):
    """Return the tensors of a small random Gemma 2: one layer, heads of two numbers, which share pairs of k and v."""
    draw = np.random.default_rng(seed)
    shapes = {
        "input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,),
        "pre_feedforward_layernorm.weight": (d,), "post_feedforward_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (2 * heads, d), "self_attn.k_proj.weight": (2 * pairs, d),
        "self_attn.v_proj.weight": (2 * pairs, d), "self_attn.o_proj.weight": (d, 2 * heads),
        "mlp.gate_proj.weight": (4, d), "mlp.up_proj.weight": (4, d), "mlp.down_proj.weight": (d, 4),
    }  # fmt: skip
    named = {f"layers.0.{name}": shape for name, shape in shapes.items()} | {
        "embed_tokens.weight": (vocabulary, d)
    }
    made = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in named.items()}
    return made | {"norm.weight": np.zeros(d, np.float32)}


GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 2,
    "num_key_value_heads": 1, "intermediate_size": 3, "num_local_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip


def gpt_oss(seed=0, vocabulary=6, d=4, layers=2, m=3):
    """Return the tensors of a small random GPT-OSS, whose sinks take some of each row."""
    draw = np.random.default_rng(seed)
    shapes = {
        "input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,), "self_attn.sinks": (2,),
        "self_attn.q_proj.weight": (4, d), "self_attn.q_proj.bias": (4,), "self_attn.k_proj.weight": (2, d),
        "self_attn.k_proj.bias": (2,), "self_attn.v_proj.weight": (2, d), "self_attn.v_proj.bias": (2,),
        "self_attn.o_proj.weight": (d, 4), "self_attn.o_proj.bias": (d,), "mlp.router.weight": (2, d),
        "mlp.router.bias": (2,), "mlp.experts.gate_up_proj": (2, d, 2 * m), "mlp.experts.down_proj": (2, m, d),
        "mlp.experts.gate_up_proj_bias": (2, 2 * m), "mlp.experts.down_proj_bias": (2, d),
    }  # fmt: skip
    named = {f"layers.{n}.{name}": shape for n in range(layers) for name, shape in shapes.items()}
    named |= {"embed_tokens.weight": (vocabulary, d), "norm.weight": (d,), "lm_head.weight": (vocabulary, d)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in named.items()}


def small_gpt_oss(folder):
    """Write a GPT-OSS of six letters with its tokenizer, and return the folder's name."""
    name = saved(folder, GPT_OSS, gpt_oss())
    byte_pairs(name)
    return name


def small_bert(folder, pieces=PIECES, **more):
    """Write a BERT of a few word pieces with its tokenizer, and return the folder's name."""
    name = saved(folder, BERT, bert(vocabulary=len(pieces), **more))
    word_pieces(name, pieces)
    return name
